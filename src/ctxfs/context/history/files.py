"""The files of one session, used from any thread and any event loop: each use has a loop and a thread of its own.

Nothing that is kept here belongs to a loop or a thread, so nothing can hang, and a process that forks loses nothing: it
forgets the threads, handles and locks of its parent. The session is locked only while something is written: several
processes take turns in it.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import anyio
from anyio.lowlevel import checkpoint

from ctxfs.messages.items import ContextItem
from ctxfs.session.records import Record
from ctxfs.session.shared import SharedFileSystem
from ctxfs.session.state import check_owner
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.threads import begin

T = TypeVar("T")

_known: "WeakKeyDictionary[Any, Callable[[Any], None]]" = WeakKeyDictionary()


def forget_in_forked(one: T, forget: Callable[[T], None]) -> None:
    """Call ``forget`` on ``one`` in every process that is forked from this one, as long as ``one`` exists."""
    _known[one] = forget


def _forget_all() -> None:
    for one, forget in list(_known.items()):
        forget(one)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def run_alone(func: Callable[[], Awaitable[T]]) -> T:
    """Run an async function to its end in an event loop of its own, in a thread of its own, and return its result.

    It can be called in any thread, even in one with a running loop, which it blocks. An interrupt waits for the end.
    """
    begun = begin(partial(anyio.run, func))
    try:
        return begun.result()
    except BaseException:
        begun.exception()  # the work goes on even if the waiting was interrupted
        raise


class SessionFiles:
    """The files of one session; not for several threads at the same time.

    ``wait_s``: for how many seconds to wait while another process writes.
    """

    def __init__(self, fs: SharedFileSystem, *, wait_s: float) -> None:
        self.fs = fs
        self._wait_s = wait_s
        self._seen: tuple[int, int] | None = None

    def open(self) -> None:
        """Open the session, or create it; does nothing if it is open. Raises what ``fs.open`` raises."""
        if self.fs.is_open:
            return
        run_alone(self._open)
        self._seen = self._size()

    async def _open(self) -> None:
        await self.fs.open(wait_s=self._wait_s, owner="History")
        await self.fs.release()

    def catch_up(self) -> bool:
        """Take in what other processes wrote; return False if there is nothing new.

        In that case, it costs one system call, or one request if the store is not in a directory.
        """
        if self.fs.stores.directory is None:
            return run_alone(partial(self.fs.follow, wait_s=self._wait_s))
        if self._size() == self._seen:
            return False
        self.leased(checkpoint)  # to take a lease is to take in what others wrote
        return True

    def write(self, contents: Sequence[ContextItem], records: Sequence[Record]) -> bool:
        """Store contents and record the decisions about them; if these are outdated, write nothing and return False.

        They are outdated if another process has decided something in the meantime, or if a name is taken by now.

        Raises:
            StorageError: they cannot be written; nothing was.
            SessionLocked: another process has been writing for too long.

        """
        return self.leased(partial(self._write, contents, records, len(self.fs.state.decisions)))

    async def _write(self, contents: Sequence[ContextItem], records: Sequence[Record], known: int) -> bool:
        """Write what was decided while the session had ``known`` decisions."""
        state = self.fs.state
        if len(state.decisions) != known or any(item.id in state.ids for item in contents):
            return False
        await self.fs.writer.decide(contents, records, last=True)
        return True

    def leased(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run an async function that may write to the session. Raises ``SessionLocked`` if another process does."""
        done = run_alone(partial(self._leased, work))
        self._seen = self._size()
        return done

    async def _leased(self, work: Callable[[], Awaitable[T]]) -> T:
        await self.fs.acquire(wait_s=self._wait_s)
        try:
            # A context may have made the session its own since this one opened it.
            check_owner(self.fs.session_id, self.fs.state, "History")
            return await work()
        finally:
            await self.fs.release()  # does nothing if the last commit released it

    def _size(self) -> tuple[int, int] | None:
        """The journal's file and size, which change with each write; None when it is not there."""
        if self.fs.stores.directory is None:
            return None
        try:
            status = os.stat(self.fs.session_path / LOG_NAME)  # noqa: PTH116 - the cheapest
        except OSError:
            return None
        return status.st_ino, status.st_size

    def close(self) -> None:
        """Close the session; idempotent."""
        if self.fs.is_open:
            run_alone(self.fs.close)
