"""``ctxfs doctor``: what is installed, where sessions are, whether the disk syncs, which prices are known.

The report is one dict, which ``--json`` prints as it is.
"""

import os
import platform
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import anyio
import typer

from ctxfs.cli.directory import ROOT_VARIABLE, sessions_directory
from ctxfs.cli.lines import to_stderr, wrapped
from ctxfs.cli.options import STORE_VARIABLE, AsJson, Root
from ctxfs.cli.output import print_json, stdout_columns
from ctxfs.errors import ConfigError, SessionNotFound, StorageError
from ctxfs.eviction.placeholder.lines import plural
from ctxfs.messages.models.known import ModelInfo, known_model, known_models
from ctxfs.messages.tokens import load_counter
from ctxfs.session.content.visible import visible_text as for_terminal
from ctxfs.storage.local import list_sessions
from ctxfs.storage.port import FileSystem, OsFileSystem
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.trial import Trial, try_stores
from ctxfs.storage.urls import at_url, scheme_of
from ctxfs.stores.objects.sessions import ObjectSessions
from ctxfs.stores.postgres import SCHEMES, PostgresBucket, shown_url
from ctxfs.text import figures
from ctxfs.version import __version__

_KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")
_VARIABLES = (ROOT_VARIABLE, STORE_VARIABLE, *_KEYS, "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL")
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[^\]]*\])?\s*(?P<versions>[^;]*)")
_EXTRA = re.compile(r"extra == ['\"](?P<extra>[^'\"]+)['\"]")
_LEAST = re.compile(r">=\s*(?P<version>[\w.]+)")
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_SYNCS = 5
"""The median of a few writes: the first one on an idle disk may be slower."""
_WRITTEN = b"ctxfs doctor\n" * 300
_NAME_COLUMNS = 10

StoreToTest = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        envvar=STORE_VARIABLE,
        help="Test this store too, as a session would use it: does it allow only one writer?",
        show_default=False,
    ),
]


def doctor(
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME", help="Show what is known about this model; repeatable."),
    ] = None,
    store: StoreToTest = None,
    *,
    init: Annotated[
        bool, typer.Option("--init", help="First create the tables of ctxfs in the database of --store.")
    ] = False,
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Check this machine: packages, disk, store and prices.

    API keys are never shown, only whether they are set. A store is tested with a session of its own, which is
    removed afterwards: eight writers race for it, twenty times. The exit code is 1 if something is wrong.

    With --init, the role that --store names needs the right to create tables. Sessions then need only the rights to
    select, insert, update and delete in ctxfs_meta and ctxfs_object. Buckets and directories need no preparation.
    """
    if init:
        _create_tables(store)
    directory = sessions_directory(root, may_be_new=True)
    report = _report(directory, store, model or ())
    if as_json:
        print_json(report)
    else:
        for name, text in _lines(report):
            if text:
                sys.stdout.write(f"{_wrapped(name, text)}\n")
        for problem in report["problems"]:
            to_stderr(f"ctxfs: {problem}")
    if report["problems"]:
        raise typer.Exit(1)


def _report(directory: Path, store: str | None, models: Sequence[str]) -> dict[str, Any]:
    disk = disk_at(directory)
    found = packages()
    tried = None if store is None else {"url": shown_url(store), **asdict(_trial_of(store))}
    problems = unfit(found)
    if disk["problem"] is not None:
        problems.append(disk["problem"])
    if tried is not None and tried["problem"] is not None:
        problems.append(f"{tried['url']}: {tried['problem']}")
    count: int | None = None
    if store is None:
        count = len(anyio.run(list_sessions, directory))
    elif tried is not None and tried["problem"] is None:
        count = len(anyio.run(at_url(store).sessions))
    return {
        "ok": not problems,
        "problems": problems,
        "ctxfs": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": found,
        "sessions": {
            "directory": str(directory) if store is None else None,
            "store": None if tried is None else tried["url"],
            "count": count,
        },
        "disk": disk,
        "store": tried,
        "counter": anyio.run(load_counter).engine,
        "prices": asdict(known_models()),
        "models": {name: _model_as_dict(known_model(name)) for name in models},
        "environment": {name: name in os.environ for name in _VARIABLES},
    }


# What is installed ------------------------------------------------------------------------------------------------


def packages(required: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """The packages that ctxfs requires, also for its extras, and their installed versions.

    ``required``: lines as in a package's metadata; None reads those of ctxfs, which has none when it runs from a
    source folder that was never installed.
    """
    if required is None:
        try:
            required = requires("ctxfs") or ()
        except PackageNotFoundError:
            required = ()
    return [_package(line) for line in required]


def _package(line: str) -> dict[str, Any]:
    found = _REQUIREMENT.match(line)
    assert found is not None, line
    extra = _EXTRA.search(line)
    least = _LEAST.search(found["versions"])
    try:
        installed = version(found["name"])
    except PackageNotFoundError:
        installed = None
    return {
        "name": found["name"],
        "extra": "" if extra is None else extra["extra"],
        "versions": found["versions"].strip(),
        "installed": installed,
        "too_old": installed is not None and least is not None and _numbers(installed) < _numbers(least["version"]),
    }


def _numbers(release: str) -> tuple[int, ...]:
    """The numbers that a version begins with, without zeros at the end: a pre-release counts as its release."""
    numbers = [int(number) for number in re.findall(r"\d+", re.split(r"[a-z+-]", release)[0])]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def unfit(found: Iterable[dict[str, Any]]) -> list[str]:
    """What is wrong: required packages that are missing, and all that are too old, including those of extras."""
    wrong = []
    for one in found:
        named = f"ctxfs[{one['extra']}]" if one["extra"] else "ctxfs"
        if one["too_old"]:
            wrong.append(f"{one['name']} {one['installed']} is too old for {named}: it needs {one['versions']}")
        elif one["installed"] is None and not one["extra"]:
            wrong.append(f"{one['name']} is not installed: install ctxfs again")
    return wrong


# The disk, and a store ----------------------------------------------------------------------------------------------


def disk_at(root: Path, system: FileSystem | None = None) -> dict[str, Any]:
    """Test the disk on which ``root`` is, or will be; a small file is written beside the sessions and removed again.

    ``system`` makes the system calls; None means those of this machine. In the result, ``directory`` is the one that
    was tested, ``kind`` the file system's name ("": the system does not say), and ``sync_ms`` the median time until
    a write is on the disk (None: it could not be written).
    """
    directory = next((path for path in (root, *root.parents) if path.is_dir()), Path(root.anchor))
    tried: dict[str, Any] = {"sync_ms": None, "locks": False, "problem": None}
    try:
        with tempfile.TemporaryDirectory(prefix=".ctxfs-doctor-", dir=directory) as made:
            _try_disk(Path(made), system or OsFileSystem(), tried)
    except OSError as error:
        tried["problem"] = f"{directory} cannot be written: {error.strerror}"
    kind = kind_of(directory)
    free = os.statvfs(directory)
    named = {"directory": str(directory), "kind": kind, "in_memory": kind in _IN_MEMORY}
    return {**named, "free_bytes": free.f_bavail * free.f_frsize, **tried}


def _try_disk(directory: Path, system: FileSystem, tried: dict[str, Any]) -> None:
    """Write, sync and lock a file, and put what happened into ``tried``."""
    took: list[float] = []
    with (directory / "file").open("wb") as file:
        try:
            for _ in range(_SYNCS):
                file.write(_WRITTEN)
                file.flush()
                start = time.perf_counter()
                system.sync(file.fileno())
                took.append((time.perf_counter() - start) * 1_000)
        except OSError as error:
            tried["problem"] = f"the disk does not sync: {error.strerror}"
            return
        tried["sync_ms"] = statistics.median(took)
        try:
            system.lock(file.fileno())
        except OSError as error:
            tried["problem"] = f"files cannot be locked: {error.strerror}"
            return
        tried["locks"] = True


def kind_of(directory: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The name of the file system that holds ``directory``; "" if the system does not say."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    kinds = {Path(line.split()[4]): line.partition(" - ")[2].split()[0] for line in lines}
    resolved = directory.resolve()
    return next((kinds[path] for path in (resolved, *resolved.parents) if path in kinds), "")


def _trial_of(url: str) -> Trial:
    """Test a store as a session would use it, with a session of its own that is then removed.

    Raises ``ConfigError`` and ``MissingExtra``.
    """
    stores = at_url(url)
    parts = urlsplit(url)
    directory = Path(unquote(parts.path)) if parts.scheme in {"file", "objects+file"} else None
    is_new = directory is not None and not directory.exists()
    session_id = f"ctxfs-doctor-{uuid4().hex}"
    try:
        trial = try_stores(stores, session_id)
        with suppress(SessionNotFound):  # it was never made
            _remove(stores, session_id)
    except StorageError as error:
        trial = Trial(races=0, writers=0, commit_ms=None, problem=str(error))
    if is_new and directory is not None:
        with suppress(OSError):  # another program uses it by now
            directory.rmdir()
    return trial


def _remove(stores: SessionStores, session_id: str) -> None:
    if isinstance(stores, ObjectSessions):
        stores.forget(session_id)  # also what keeps a sleeping writer out: nothing of a test stays in a bucket
    else:
        anyio.run(stores.remove, session_id)


def _create_tables(url: str | None) -> None:
    """Create the tables of ctxfs in a database; those that exist stay as they are."""
    if url is None or scheme_of(url) not in SCHEMES:
        given = "nothing" if url is None else shown_url(url)
        raise ConfigError(f"--init prepares a database, and --store names {given}: buckets and directories need none")
    bucket = PostgresBucket(url)
    try:
        bucket.create_tables()
    finally:
        bucket.close()


# What is shown ------------------------------------------------------------------------------------------------------


def _lines(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The report for people: the name of each line, and its text; "" if there is nothing to say."""
    yield "ctxfs", f"{report['ctxfs']}, Python {report['python']}, {report['system']}"
    yield "sessions", _sessions(report["sessions"])
    yield "disk", _disk(report["disk"])
    yield "store", _store(report["store"])
    yield "counter", report["counter"]
    by_provider = report["prices"]["by_provider"]
    most = sorted(by_provider.items(), key=lambda one: -one[1])
    named = ", ".join(f"{provider} {count}" for provider, count in most)
    yield "prices", f"{report['prices']['source']}: {sum(by_provider.values()):,} models ({named})"
    for name, info in report["models"].items():
        yield "model", _model(name, info)
    is_set = [name for name, given in report["environment"].items() if given]
    yield "set", ", ".join(is_set) or "none of the variables that ctxfs reads"
    yield "not set", ", ".join(name for name in _KEYS if name not in is_set)
    yield from _installed(report["packages"])


def _sessions(sessions: dict[str, Any]) -> str:
    count = sessions["count"]
    counted = "unknown" if count is None else plural(count, "session")
    if sessions["store"] is not None:
        return f"{sessions['store']}: {counted}"
    if not Path(sessions["directory"]).exists():
        counted = "does not exist yet; the first session creates it"
    return f"{sessions['directory']}: {counted}"


def _disk(disk: dict[str, Any]) -> str:
    kind = f"{disk['kind'] or 'file system unknown'}, {figures.size(disk['free_bytes'])} free"
    if disk["problem"] is not None:
        return f"{kind}; {disk['problem']}"
    if disk["in_memory"]:
        return f"{kind}; in memory: it does not survive a power failure; locks work"
    return f"{kind}; a write is synced in {disk['sync_ms']:.2f} ms; locks work"


def _store(tried: dict[str, Any] | None) -> str:
    if tried is None:
        return ""
    if tried["problem"] is not None:
        return f"{tried['url']}: {tried['problem']}"
    raced = f"one writer in each of {tried['races']} races of {tried['writers']}"
    return f"{tried['url']}: {raced}; a commit takes {tried['commit_ms'] or 0:.1f} ms"


def _model(name: str, info: dict[str, Any] | None) -> str:
    if info is None:
        return f"{name} is not known: 128,000 tokens and Anthropic's price ratios are assumed"
    window = f"{info['window_tokens']:,} tokens" if info["window_tokens"] else "window unknown"
    price = "prices unknown"
    if info["input_usd"] is not None:
        price = f"${info['input_usd']:g} in, ${info['output_usd']:g} out a million tokens"
    return f"{name}: {info['provider']}, {window}, {price}"


def _model_as_dict(info: ModelInfo | None) -> dict[str, Any] | None:
    if info is None:
        return None
    paid = info.prices
    return {
        "name": info.name,
        "provider": info.provider,
        "window_tokens": info.window_tokens,
        "input_usd": None if paid is None else paid.input,
        "output_usd": None if paid is None else paid.output,
    }


def _installed(found: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """What is installed, which extras are complete, and which are not."""
    if not found:
        yield "packages", "unknown: ctxfs runs from its source folder and is not installed"
        return
    versions = {one["name"]: one["installed"] or "missing" for one in found if one["installed"] or not one["extra"]}
    yield "packages", ", ".join(f"{name} {installed}" for name, installed in versions.items())
    extras = list(dict.fromkeys(one["extra"] for one in found if one["extra"]))
    missing = {one["extra"] for one in found if one["installed"] is None}
    yield "extras", ", ".join(extra for extra in extras if extra not in missing) or "none"
    yield "without", ", ".join(extra for extra in extras if extra in missing)


def _wrapped(name: str, text: str) -> str:
    """A line; on a terminal, in lines that fit."""
    return wrapped(for_terminal(f"{name:{_NAME_COLUMNS}}{text}"), stdout_columns(), indent=" " * _NAME_COLUMNS)
