"""``ctxfs doctor``: what is installed, where sessions are, whether the disk syncs, which prices are known."""

import os
import platform
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from ctxfs.cli.checkup import Disk, Package, disk_at, packages, unfit
from ctxfs.cli.options import ROOT_VARIABLE, STORE_VARIABLE, AsJson, Root
from ctxfs.cli.output import print_json
from ctxfs.cli.session import sessions_directory
from ctxfs.cli.storecheck import StoreCheck, store_at
from ctxfs.eviction.placeholder.lines import plural
from ctxfs.messages.models.known import KnownModels, ModelInfo, known_model, known_models
from ctxfs.messages.tokens import load_counter
from ctxfs.session.content.visible import visible_text as for_terminal
from ctxfs.storage.local import list_sessions
from ctxfs.storage.urls import stores_at
from ctxfs.version import __version__
from ctxfs.view import figures

_FAILED = 1
_KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")
_VARIABLES = (ROOT_VARIABLE, STORE_VARIABLE, *_KEYS, "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL")
_WIDTH = 10


def doctor(
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME", help="Show what is known about this model; repeatable."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            envvar=STORE_VARIABLE,
            help="Test this store too, as a session would use it: does it allow only one writer?",
            show_default=False,
        ),
    ] = None,
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Show what is installed, where sessions are, whether the disk syncs, and which prices are known.

    API keys are never shown, only whether they are set. A store is tested with a session of its own, which is
    removed afterwards: eight writers race for it, twenty times. The exit code is 1 if something is wrong.
    """
    directory = sessions_directory(root, may_be_new=True)
    checked = None if store is None else store_at(store)
    found = _Found(
        directory=directory,
        sessions=len(anyio.run(list_sessions, directory)) if store is None else _sessions_in(store, checked),
        packages=packages(),
        disk=disk_at(directory),
        store=checked,
        counter=anyio.run(load_counter).engine,
        known=known_models(),
        models={name: known_model(name) for name in model or ()},
    )
    if as_json:
        print_json(found.as_dict())
    else:
        sys.stdout.write("".join(f"{_wrapped(name, text)}\n" for name, text in found.lines() if text))
        for problem in found.problems:
            sys.stderr.write(for_terminal(f"ctxfs: {problem}\n"))
    if found.problems:
        raise typer.Exit(_FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What was found; ``store``: None unless one was to be tested. It is then where sessions are.

    ``sessions``: how many there are; None: the store could not be read.
    """

    directory: Path
    sessions: int | None
    packages: Sequence[Package]
    disk: Disk
    store: StoreCheck | None
    counter: str
    known: KnownModels
    models: Mapping[str, ModelInfo | None]

    @property
    def problems(self) -> list[str]:
        """The problems; empty if there are none."""
        tried = (self.disk.problem, None if self.store is None else self.store.problem)
        return [*unfit(self.packages), *(problem for problem in tried if problem is not None)]

    def as_dict(self) -> dict[str, Any]:
        """The report for programs."""
        return {
            "ok": not self.problems,
            "problems": self.problems,
            "ctxfs": __version__,
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "packages": [asdict(package) for package in self.packages],
            "sessions": {
                "directory": str(self.directory) if self.store is None else None,
                "store": None if self.store is None else self.store.url,
                "count": self.sessions,
            },
            "disk": {**asdict(self.disk), "directory": str(self.disk.directory)},
            "store": None if self.store is None else {"url": self.store.url, **asdict(self.store.trial)},
            "counter": self.counter,
            "prices": asdict(self.known),
            "models": {name: _model_as_dict(info) for name, info in self.models.items()},
            "environment": {name: name in os.environ for name in _VARIABLES},
        }

    def lines(self) -> Iterable[tuple[str, str]]:
        """The report for people: the name of each line, and its text; "" if there is nothing to say."""
        yield "ctxfs", f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
        if self.store is None:
            yield "sessions", f"{self.directory}: {_counted(self.directory, self.sessions or 0)}"
        else:
            counted = "unknown" if self.sessions is None else plural(self.sessions, "session")
            yield "sessions", f"{self.store.url}: {counted}"
        yield "disk", _disk(self.disk)
        yield "store", "" if self.store is None else str(self.store)
        yield "counter", self.counter
        yield "prices", _prices(self.known)
        for name, info in self.models.items():
            yield "model", _model(name, info)
        yield (
            "set",
            ", ".join(name for name in _VARIABLES if name in os.environ) or "none of the variables that ctxfs reads",
        )
        yield "not set", ", ".join(name for name in _KEYS if name not in os.environ)
        yield from _installed(self.packages)


def _sessions_in(url: str, checked: StoreCheck | None) -> int | None:
    """How many sessions a store has; None: it cannot be read."""
    if checked is None or checked.problem is not None:
        return None
    return len(anyio.run(stores_at(None, url).sessions))


def _counted(directory: Path, sessions: int) -> str:
    if not directory.exists():
        return "does not exist yet; the first session creates it"
    return plural(sessions, "session")


def _disk(disk: Disk) -> str:
    kind = f"{disk.kind or 'file system unknown'}, {figures.size(disk.free_bytes)} free"
    if disk.problem is not None:
        return f"{kind}; {disk.problem}"
    synced = f"a write is synced in {disk.sync_ms:.2f} ms"
    return f"{kind}; {'in memory: it does not survive a power failure' if disk.in_memory else synced}; locks work"


def _prices(known: KnownModels) -> str:
    most = sorted(known.by_provider.items(), key=lambda one: -one[1])
    named = ", ".join(f"{provider} {count}" for provider, count in most)
    return f"{known.source}: {sum(known.by_provider.values()):,} models ({named})"


def _model(name: str, info: ModelInfo | None) -> str:
    if info is None:
        return f"{name} is not known: 128,000 tokens and Anthropic's price ratios are assumed"
    window = f"{info.window_tokens:,} tokens" if info.window_tokens else "window unknown"
    paid = info.prices
    price = f"${paid.input:g} in, ${paid.output:g} out a million tokens" if paid is not None else "prices unknown"
    return f"{name}: {info.provider}, {window}, {price}"


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


def _installed(found: Sequence[Package]) -> Iterable[tuple[str, str]]:
    """What is installed, which extras are complete, and which are not."""
    if not found:
        yield "packages", "unknown: ctxfs runs from its source folder and is not installed"
        return
    versions = {one.name: one.installed or "missing" for one in found if one.installed or not one.extra}
    yield "packages", ", ".join(f"{name} {installed}" for name, installed in versions.items())
    extras = list(dict.fromkeys(one.extra for one in found if one.extra))
    missing = {one.extra for one in found if one.installed is None}
    yield "extras", ", ".join(extra for extra in extras if extra not in missing) or "none"
    yield "without", ", ".join(extra for extra in extras if extra in missing)


def _wrapped(name: str, text: str) -> str:
    """A line for people, as wide as the terminal."""
    width = max(shutil.get_terminal_size().columns, 4 * _WIDTH)
    indent = " " * _WIDTH
    return textwrap.fill(
        for_terminal(f"{name:{_WIDTH}}{text}"), width, subsequent_indent=indent, break_long_words=False
    )
