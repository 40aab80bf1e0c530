"""A session in which several processes take turns."""

from ctxfs.errors import OutcomeUnknown, SessionLocked
from ctxfs.session.filesystem import ContextFileSystem, patiently
from ctxfs.session.records import Record
from ctxfs.storage.threads import uninterrupted


class SharedFileSystem(ContextFileSystem):
    """A ``ContextFileSystem`` that several processes have open; one of them at a time is the writer.

    Each opens and releases it, and then takes a lease for each use: ``acquire``, write, ``release``. Between two leases
    of one object, only what the others appended is read. Whatever is allocated in a lease (ids, names) must also be
    recorded in it: after the release another process may allocate the same.

    Leases are not counted: of two tasks that write at the same time, the first would release what the second one still
    uses. If a session is closed while it is released, its journal does not record this.
    """

    _was_lost = False
    """Whether the last lease expired before it was released, so that others may have written."""

    async def release(self) -> None:
        """Let another process write; this object can still read, and can write again after ``acquire``.

        There is nothing to release if another writer took over, or if the outcome of a commit is unknown.

        Raises:
            ConfigError: the store cannot do this, or a content of ``SessionWriter.grow`` is not finished.
            SessionClosed: the session is not open, or for reading only.

        """
        try:
            await self.writer.release()
        except (SessionLocked, OutcomeUnknown):  # the commit that found out has raised it already
            self._was_lost = True

    async def acquire(self, *, wait_s: float = 0.0) -> tuple[Record, ...]:
        """Become the writer again after ``release``; return the records that others wrote in the meantime.

        ``state`` and ``items`` have them already. This costs next to nothing if no other process wrote. If a writer
        has died, the session is opened again: ``recovery`` says what was repaired, and ``state`` and ``writer`` are new
        objects. Does nothing if the session was not released.

        Args:
            wait_s: for how many seconds to try again while another writer has the session.

        Raises:
            SessionLocked: another writer still has it.
            SessionNotFound: it has been removed.
            WriteFailed: it cannot be written.
            SessionClosed: the session is not open, or for reading only.

        """
        gained = await patiently(self.writer.acquire, wait_s)
        self._was_lost = False
        if gained is None:
            return await self._reopened()
        return gained

    async def follow(self, *, wait_s: float = 0.0) -> bool:
        """While the session is released, take in records that others wrote; return whether there may be some.

        This takes no lease, unless the journal is not the one that was released. Raises what ``acquire`` raises, and
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
        """Open the session again; return the records that its journal has gained since it was released."""
        known = self._opened()
        await self._let_go()
        await self.open(create=False)
        return await known.catch_up()
