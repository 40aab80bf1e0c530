"""Kill the removal of a session before each of its calls: the session is whole or gone, and what is left goes next.

As a program: ``killed_removal.py <directory> [in-place]``; prints the tally as JSON. Each child removes the session and
is killed before one call, the first, the second, and so on; then whoever uses the root next, by listing, opening
another session or removing one, must clear up. ``in-place`` removes the files without hiding the session first, and
must be noticed.
"""

import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.local import LocalStore, list_sessions, remove_session
from ctxfs.storage.removal import remove_hidden
from failing_fs import FailingFileSystem, as_port
from session_items import evicted, tool_result

__all__ = ["Tally", "run_all"]

REMOVED, OTHER = "removed", "other"
CONTENTS = tuple(f"content {number}\n" * 500 for number in range(4))


@dataclass(slots=True)
class Tally:
    """What happened: how many removals were killed, after how many the session was ``gone``, and what was broken."""

    kills: int = 0
    gone: int = 0
    broken: list[str] = field(default_factory=list)


class Killing(FailingFileSystem):
    """The process is killed before the call number ``at``."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at

    def perform(self, name: str, method: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if len(self.log) == self._at:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(*arguments)


async def prepare(root: Path) -> None:
    """Make a session with contents inside and outside of its context, and another one."""
    for session_id in (REMOVED, OTHER):
        async with ContextFileSystem(session_id, root_path=root, inline_limit_chars=100) as fs:
            items = [tool_result(fs, content, f"call_{number}") for number, content in enumerate(CONTENTS)]
            await fs.writer.add(items)
            await fs.writer.evict([(items[0], evicted(fs, items[0]), "test")])


def run_all(base: Path, *, in_place: bool = False) -> Tally:
    """Kill before each call, until a removal makes no more calls than were let through."""
    template, tally = base / "template", Tally()
    anyio.run(prepare, template)
    for at in itertools.count(1):
        root = base / str(at)
        shutil.copytree(template, root)
        killed = _remove(root, at, in_place=in_place)
        tally.kills += killed
        tally.gone += anyio.run(_check, root, at, tally.broken)
        shutil.rmtree(root)
        if not killed:
            return tally
    raise AssertionError


def _remove(root: Path, at: int, *, in_place: bool) -> bool:
    """Remove the session in a child, and tell whether that was killed."""
    pid = os.fork()
    if not pid:
        try:
            port = as_port(Killing(at))
            if in_place:
                remove_hidden(port, port.open_root(root), REMOVED)
            else:
                LocalStore(root, REMOVED, fs=port).remove()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


async def _check(root: Path, at: int, broken: list[str]) -> bool:
    """Use the root as whoever comes next; tell whether the session is gone."""
    whole = (root / REMOVED).exists()
    await _next_use(root, at)
    listed = await list_sessions(root)
    if (REMOVED in listed) != whole:
        broken.append(f"call {at}: the session is {'not ' if whole else ''}listed")
    left = _names(root) - {REMOVED, OTHER}
    if left:
        broken.append(f"call {at}: {sorted(left)} is left")
    for session_id in listed:
        async with ContextFileSystem(session_id, root_path=root) as fs:
            found = [str(item.damaged) for item in await fs.items() if item.damaged is not None]
            found += [str(problem) for problem in (await fs.verify()).problems]
            if len(fs.state.stored) != len(CONTENTS) or not fs.recovery.clean:
                found.append(f"{len(fs.state.stored)} contents, {fs.recovery}")
        broken += [f"call {at}: {session_id}: {problem}" for problem in found]
    if REMOVED in listed and not broken:
        await remove_session(root, REMOVED)
        if await list_sessions(root) != [OTHER]:
            broken.append(f"call {at}: the session cannot be removed any more")
    return not whole


def _names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


async def _next_use(root: Path, at: int) -> None:
    match at % 3:
        case 0:
            await list_sessions(root)
        case 1:
            async with ContextFileSystem(OTHER, root_path=root):
                pass
        case _:
            async with ContextFileSystem("third", root_path=root):
                pass
            await remove_session(root, "third")


if __name__ == "__main__":
    directory, *options = sys.argv[1:]
    print(json.dumps(asdict(run_all(Path(directory), in_place="in-place" in options))))
