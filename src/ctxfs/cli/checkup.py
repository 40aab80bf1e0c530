"""What this machine has for ctxfs: the packages, and the disk that holds the sessions."""

import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from ctxfs.storage.port import FileSystem, OsFileSystem

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[^\]]*\])?\s*(?P<versions>[^;]*)")
_EXTRA = re.compile(r"extra == ['\"](?P<extra>[^'\"]+)['\"]")
_LEAST = re.compile(r">=\s*(?P<version>[\w.]+)")

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_SYNCS = 5
_WRITTEN = b"ctxfs doctor\n" * 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package that ctxfs requires for ``extra``; "": it is always required.

    ``installed``: its version; None if it is not installed. ``versions``: the versions that will do. ``too_old``:
    whether the installed one will not.
    """

    name: str
    extra: str
    versions: str
    installed: str | None
    too_old: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The disk that holds the sessions.

    ``directory``: the one that was tested: that of the sessions, or the nearest one above it that exists. ``kind``:
    the file system's name; "" if the system does not tell. ``in_memory``: nothing on it survives a power failure.
    ``sync_ms``: the median time until a write is on the disk; None if it could not be written. ``locks``: whether
    files can be locked, so that a session has one writer at a time. ``problem``: what went wrong.
    """

    directory: Path
    kind: str
    in_memory: bool
    free_bytes: int
    sync_ms: float | None
    locks: bool
    problem: str | None


def packages(required: Iterable[str] | None = None) -> list[Package]:
    """The packages that ctxfs requires, also for its extras, and their installed versions.

    ``required``: lines as in a package's metadata; None reads those of ctxfs, which has none when it runs from a
    source folder that was never installed.
    """
    return [_package(line) for line in (_required() if required is None else required)]


def _required() -> list[str]:
    try:
        return requires("ctxfs") or []
    except PackageNotFoundError:
        return []


def _package(line: str) -> Package:
    found, extra = _REQUIREMENT.match(line), _EXTRA.search(line)
    assert found is not None, line
    try:
        installed = version(found["name"])
    except PackageNotFoundError:
        installed = None
    least = _LEAST.search(found["versions"])
    return Package(
        name=found["name"],
        extra=extra["extra"] if extra is not None else "",
        versions=found["versions"].strip(),
        installed=installed,
        too_old=installed is not None and least is not None and _numbers(installed) < _numbers(least["version"]),
    )


def _numbers(release: str) -> tuple[int, ...]:
    """The numbers that a version begins with, without zeros at the end: a pre-release counts as its release."""
    numbers = [int(number) for number in re.findall(r"\d+", re.split(r"[a-z+-]", release)[0])]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def unfit(found: Iterable[Package]) -> list[str]:
    """Required packages that are missing, and all packages that are too old, including those of extras."""
    wrong = []
    for package in found:
        named = f"ctxfs[{package.extra}]" if package.extra else "ctxfs"
        if package.too_old:
            wrong.append(f"{package.name} {package.installed} is too old for {named}: it needs {package.versions}")
        elif package.installed is None and not package.extra:
            wrong.append(f"{package.name} is not installed: install ctxfs again")
    return wrong


def disk_at(root: Path, system: FileSystem | None = None) -> Disk:
    """Test the disk on which ``root`` is, or will be; a small file is written beside the sessions and removed again.

    ``system`` makes the system calls; None means those of this machine.
    """
    directory = next((path for path in (root, *root.parents) if path.is_dir()), Path(root.anchor))
    kind = _kind_of(directory)
    sync_ms, locks, problem = None, False, None
    try:
        with tempfile.TemporaryDirectory(prefix=".ctxfs-doctor-", dir=directory) as made:
            sync_ms, locks, problem = _tried(Path(made), system or OsFileSystem())
    except OSError as error:
        problem = f"{directory} cannot be written: {error.strerror}"
    free = os.statvfs(directory)
    return Disk(
        directory=directory,
        kind=kind,
        in_memory=kind in _IN_MEMORY,
        free_bytes=free.f_bavail * free.f_frsize,
        sync_ms=sync_ms,
        locks=locks,
        problem=problem,
    )


def _tried(directory: Path, system: FileSystem) -> tuple[float | None, bool, str | None]:
    """How many milliseconds a synced write takes, whether files can be locked, and what went wrong."""
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
            return None, False, f"the disk does not sync: {error.strerror}"
        sync_ms = statistics.median(took)
        try:
            system.lock(file.fileno())
        except OSError as error:
            return sync_ms, False, f"files cannot be locked: {error.strerror}"
        return sync_ms, True, None


def _kind_of(directory: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The name of the file system that holds ``directory``; "" if the system does not tell."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    kinds: Mapping[Path, str] = {Path(line.split()[4]): line.partition(" - ")[2].split()[0] for line in lines}
    resolved = directory.resolve()
    return next((kinds[path] for path in (resolved, *resolved.parents) if path in kinds), "")
