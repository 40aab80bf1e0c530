"""How a play cleans up: as it is meant, and broken in each way that a control must find out."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ctxfs.session.cleanup.contents import prune_session, remove_contents, session_plan
from ctxfs.session.cleanup.erasing import erase_in
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import Record, SessionStarted
from ctxfs.session.timeline.fork import forked_records
from ctxfs.session.timeline.timeline import Timeline
from ctxfs.storage.base import NewFile
from ctxfs.storage.memory import MemoryDisk, MemoryStore
from prove.cleanup_family import Forget, forget_properly

__all__ = [
    "WatchedStore",
    "Ways",
    "copied",
    "erase_files_only",
    "fork_as_it_was",
    "prune_silently",
    "prune_too_much",
]


async def _prune_properly(fs: ContextFileSystem, _: MemoryDisk, **settings: Any) -> None:
    await prune_session(fs, **settings)


async def prune_too_much(fs: ContextFileSystem, _: MemoryDisk, **__: Any) -> None:
    """A broken clean-up, for the control: it removes what was evicted, though its placeholder is there."""
    evicted = [item.id for item in fs.state.items.values() if item.destroyed and item.id in fs.state.stored]
    await remove_contents(fs, dict.fromkeys(evicted, "control"), by="control")


async def prune_silently(fs: ContextFileSystem, disk: MemoryDisk, **settings: Any) -> None:
    """Another one: it removes what can go, and leaves no tombstone."""
    for one in (await session_plan(fs, **settings)).collect:
        disk.files.pop(one.name, None)


async def _erase_properly(fs: ContextFileSystem, item_ids: Sequence[str], now: float) -> Sequence[str]:
    """Erase the items, and return those that have a line of them."""
    return (await erase_in(fs, item_ids, by="a play", reason="secret", now=now)).quoted_in


async def erase_files_only(fs: ContextFileSystem, item_ids: Sequence[str], _: float) -> Sequence[str]:
    """A broken erasing, for the control: the journal and the archives still have the contents."""
    await remove_contents(fs, dict.fromkeys(item_ids, "control"), by="control")
    return ()


def _fork_properly(records: Sequence[Record], started: SessionStarted, at: int | None) -> Sequence[Record]:
    return forked_records(records, started, at)[0]


def fork_as_it_was(records: Sequence[Record], started: SessionStarted, at: int | None) -> Sequence[Record]:
    """A broken fork, for the control: it does not know what was removed since."""
    return [started, *Timeline(records).records_before(at)[1:]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How a play prunes, erases, forks and forgets; as it is meant, unless it is a control."""

    prune: Callable[..., Awaitable[None]] = _prune_properly
    erase: Callable[[ContextFileSystem, Sequence[str], float], Awaitable[Sequence[str]]] = _erase_properly
    fork: Callable[[Sequence[Record], SessionStarted, int | None], Sequence[Record]] = _fork_properly
    forget: Forget = forget_properly


class WatchedStore(MemoryStore):
    """Keeps what a crash before each of its changes would leave."""

    def __init__(self, session_id: str, disk: MemoryDisk) -> None:
        super().__init__(session_id, disk)
        self.crashed: list[MemoryDisk] = []

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        self.crashed.append(copied(self.disk))
        super().commit(files, log)

    def replace(self, name: str, data: bytes | Iterable[bytes]) -> None:
        self.crashed.append(copied(self.disk))
        super().replace(name, data)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self.crashed.append(copied(self.disk))
            super().delete([name])


def copied(disk: MemoryDisk) -> MemoryDisk:
    return MemoryDisk(files=dict(disk.files), log=bytearray(disk.log), exists=True)
