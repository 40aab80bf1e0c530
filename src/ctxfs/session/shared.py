"""A session in which several processes take turns."""

from ctxfs.errors import OutcomeUnknown, SessionLocked
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.patience import patiently
from ctxfs.session.records import Record
from ctxfs.storage.threads import uninterrupted

__all__ = ["SharedFileSystem"]


class SharedFileSystem(ContextFileSystem):
    """A ``ContextFileSystem`` that several processes have open, and of which one at a time is the writer.

    Each opens and releases it, and then takes a lease for each use: ``acquire``, write, ``release``. Between two leases
    of one object nothing is read again but what the others appended. Whatever a lease allocates (ids, names) it must
    record too: after the release another process may allocate the same.

    A lease is not counted: of two tasks that write at the same time, the first would release what the second one still
    uses. A session that is closed while it is released is closed without a record of that in its journal.
    """

    _was_lost = False
    """Whether the last lease ended before it was released, so that others may have written meanwhile."""

    async def release(self) -> None:
        """Let another process write; this object reads on, and writes after ``acquire``.

        There is nothing to release where another writer took over, or where the outcome of a commit is unknown.

        Raises:
            ConfigError: the store cannot do this, or a content of ``SessionWriter.grow`` is not finished.
            SessionClosed: the session is not open, or for reading only.

        """
        try:
            await self.writer.release()
        except (SessionLocked, OutcomeUnknown):  # the commit that found out has raised it already
            self._was_lost = True

    async def acquire(self, *, wait_s: float = 0.0) -> tuple[Record, ...]:
        """Become the writer again after ``release``; returns the records that others wrote meanwhile.

        ``state`` and ``items`` have them already. It costs next to nothing when no other process wrote. If a writer
        died meanwhile, the session is opened again: ``recovery`` says what was repaired, and ``state`` and ``writer``
        are new objects. Does nothing when the session was not released.

        Args:
            wait_s: for how many seconds to try again while another writer has the session.

        Raises:
            SessionLocked: another writer still has it.
            SessionNotFound: it was removed meanwhile.
            WriteFailed: it cannot be written.
            SessionClosed: the session is not open, or for reading only.

        """
        gained = await patiently(self.writer.acquire, wait_s)
        self._was_lost = False
        return await self._reopened() if gained is None else gained

    async def follow(self, *, wait_s: float = 0.0) -> bool:
        """While it is released, take in the records that others wrote meanwhile; returns whether there may be some.

        That takes no lease, unless the journal is not the one that was released. Raises as ``acquire``, and
        ``StorageError``.
        """
        gained = None if self._was_lost else await self.writer.follow()
        if gained is not None:
            return bool(gained)
        await self.acquire(wait_s=wait_s)
        await self.release()
        return True

    @uninterrupted
    async def _reopened(self) -> tuple[Record, ...]:
        """Open the session again; returns what its journal gained since it was released."""
        known = self._opened()
        self._journal = self._writer = None
        await self._store.close()
        await self.open(create=False)
        return await known.catch_up()
