"""The storage of a session: small files that are written once, and one log.

A store holds one session. It works with names and bytes, not with paths, items or JSON, so that a session can be on a
disk, in memory or in an object store.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from ctxfs.errors import UnsafePath

MAX_PART_BYTES = 255
HIDDEN_PREFIX = "."


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file to be written once. ``name`` is a relative POSIX path.

    ``chunks`` is consumed in a worker thread, perhaps more than once. ``derived`` files can be rebuilt from others:
    they need not be durable, and replace one of the same name.
    """

    name: str
    chunks: Iterable[bytes]
    derived: bool = False


class Store(Protocol):
    """The storage of one session.

    All methods raise ``SessionClosed`` before ``open`` and after ``close``. Names that are not plain relative paths
    raise ``UnsafePath``. Every method but ``open`` and ``close`` may be called concurrently.
    """

    async def open(self, *, create: bool, write: bool) -> None:
        """Open the session; ``write`` makes this the one writer.

        Raises ``SessionLocked`` (another writer), ``SessionNotFound`` (unless ``create``), ``UnsafePath``,
        ``ConfigError`` (a root that cannot hold sessions) and ``WriteFailed``.
        """

    async def close(self) -> None:
        """Release the session; idempotent."""

    async def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        """Make ``files`` durable, then append what ``log`` returns to the log and make that durable, then return.

        ``log`` is called once, in the worker thread, after all chunks were consumed. Once begun, the commit ends one
        way or the other, whatever is cancelled; a cancellation is delivered after it. Raises ``NameTaken``
        (files are never overwritten), ``WriteFailed``, ``SessionLocked`` (another writer took over), and whatever
        ``chunks`` or ``log`` raise, as it is; then no file of this call is visible under its name and the log is as
        before, unless the machine itself fails first.
        """

    async def replace(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """Write or replace a file atomically: readers see the old bytes or the new ones. Raises ``WriteFailed``."""

    async def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read up to ``length`` bytes (None: all) from ``offset``; short at the end. Raises ``NotStored``."""

    async def size(self, name: str) -> int:
        """Return the file's size in bytes. Raises ``NotStored``."""

    async def names(self, prefix: str = "") -> list[str]:
        """List the names that start with ``prefix``, sorted; the log is not among them."""

    async def delete(self, names: Sequence[str]) -> None:
        """Delete files durably; names that do not exist count as deleted. Raises ``WriteFailed``."""

    async def read_log(self, offset: int = 0) -> bytes:
        """Read the log from ``offset`` (bytes) on; empty if there is none. It may grow at any time."""

    async def truncate_log(self, length: int) -> None:
        """Cut the log to ``length`` bytes, durably. Raises ``WriteFailed``."""


@runtime_checkable
class GrowingStore(Store, Protocol):
    """A store whose files can also grow, for content that comes over time. Not every store can."""

    async def append(self, name: str, data: bytes, *, sync: bool = False) -> None:
        """Add to the end of a file, creating it if necessary; ``sync`` makes the whole file durable.

        Readers see it grow. After a failure the file may hold a part of ``data``. Raises ``WriteFailed``.
        """


@runtime_checkable
class RewritingStore(Store, Protocol):
    """A store in which bytes can be removed for good, including those of its log. Not every store can do that."""

    async def rewrite(self, log: bytes | None = None) -> None:
        """Replace the log with one of the same length, and remove all bytes that are no longer part of the session.

        ``log``: None leaves it as it is. Readers see the old log or the new one. After a failure the bytes may still be
        in the store, where no reader finds them; the next ``rewrite`` removes them. Raises ``WriteFailed``.
        """


@runtime_checkable
class OrphanStore(Store, Protocol):
    """A store on a server, where a writer that was killed may leave contents that no commit names."""

    async def has_orphans(self) -> bool:
        """Whether there are such contents.

        A writer that works may be about to write such a commit. Raises ``StorageError``.
        """

    async def delete_orphans(self) -> int:
        """Delete these contents, as the one writer, and return how many there were. Raises as ``delete``."""


@runtime_checkable
class LeaseStore(Store, Protocol):
    """A store whose writer can let another one take over and come back, without opening the session again."""

    async def release(self) -> None:
        """Stop being the one writer. Reading still works; writing raises ``SessionClosed``. Idempotent."""

    async def acquire(self) -> bool:
        """Become the one writer again; idempotent. The log may have grown in the meantime.

        Also after ``OutcomeUnknown``, and after a write that was interrupted: it has ended when this returns.

        Returns False if a writer has died since ``release``: the caller must look for what it left half-written, as
        after ``open``. Raises ``SessionLocked`` (another writer), ``SessionNotFound`` (it was removed) and
        ``WriteFailed``.
        """


@runtime_checkable
class SharedStore(LeaseStore, Protocol):
    """A store that several machines share. It numbers its writers, and takes a session from one that is silent.

    The next commit of a writer whose session was taken over raises ``SessionLocked``, and stores nothing.
    A request without an answer raises ``OutcomeUnknown``: the store has to be acquired, or opened, again.
    """

    wants_index: bool
    """Whether ``index.json`` is written; False: no tool could read it there, and each write would be a request."""

    @property
    def epoch(self) -> int:
        """Return the number that the store gave this writer, higher than any earlier one's; 0: it is not the writer.

        A tool may pass it on to a service, which can then refuse the lower number of an earlier writer.
        """

    async def commit_and_release(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        """Do ``commit`` and ``release`` in one request, and raise as ``commit``; on failure the session stays open."""


@runtime_checkable
class DirectoryStore(Store, Protocol):
    """A store whose files are in a directory of this machine, where programs other than ctxfs can read them."""

    @property
    def directory(self) -> Path:
        """The session's directory, absolute: placeholders name its files."""


@runtime_checkable
class LinkingStore(Store, Protocol):
    """A store that can share files with another session."""

    async def share(self, names: Sequence[str], source: Store) -> list[str]:
        """Give files of another session the same names here, durably; return those that have to be copied instead.

        Raises ``NotStored`` and ``WriteFailed``.
        """


@runtime_checkable
class ThreadStore(Store, Protocol):
    """A store whose files can be read in any thread, without a wait between one piece and the next."""

    def pieces(self, name: str, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """Yield the bytes of each span, an offset and a length, reading each when it is asked for; short at the end.

        Raises ``NotStored`` during iteration.
        """


def check_name(name: str) -> tuple[str, ...]:
    """Split a file's name into its parts. Raises ``UnsafePath`` for anything but a plain relative POSIX path."""
    parts = tuple(name.split("/"))
    for part in parts:
        if part in {"", ".", ".."} or "\0" in part or "\\" in part or not _fits(part):
            raise UnsafePath(
                name,
                f"cannot name a file: each part of it needs 1 to {MAX_PART_BYTES} bytes of UTF-8, "
                "without '\\' and NUL, and cannot be '.' or '..'",
            )
    return parts


def check_session_name(session_id: str) -> str:
    """Return ``session_id``, which must be a single part of a name. Raises ``UnsafePath``."""
    if len(check_name(session_id)) != 1:
        raise UnsafePath(session_id, "is not a session id")
    return session_id


def is_hidden(name: str) -> bool:
    """Whether the name is one of the store's own files (temporary files, locks), and not a content."""
    return any(part.startswith(HIDDEN_PREFIX) for part in name.split("/"))


def _fits(part: str) -> bool:
    try:
        return len(part.encode()) <= MAX_PART_BYTES
    except UnicodeEncodeError:
        return False
