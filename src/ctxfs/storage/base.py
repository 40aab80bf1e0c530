"""The storage of a session: small files that are written once, and one log.

A store holds one session. It works with names and bytes, not with paths, items or JSON, so that a session can be on a
disk, in memory or on a server.

A store is plain synchronous code. ``ThreadedStore`` calls it in worker threads, and knows what that takes: that a
change that was begun ends, whatever is cancelled, and that nobody waits forever for a silent server.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

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


@runtime_checkable
class Store(Protocol):
    """The storage of one session. To write one of your own, inherit from this.

    Every method blocks. All but ``open`` are called on what ``open`` returned, until ``close``; they may be called in
    several threads at the same time. A name that is not a plain relative path raises ``UnsafePath``: see
    ``check_name``. A method that writes raises ``SessionClosed`` unless this is the one writer.
    """

    @abstractmethod
    def open(self, *, create: bool, write: bool) -> Self:
        """Open the session, and return the open store: this object, or one for this opening.

        ``write`` makes it the one writer. After ``close`` the session can be opened again.

        Raises ``SessionLocked`` (another writer), ``SessionNotFound`` (unless ``create``), ``UnsafePath``,
        ``ConfigError`` (a place that cannot hold sessions), ``WriteFailed`` and ``StorageError`` (it cannot be read).
        """

    @abstractmethod
    def close(self) -> None:
        """Release the session; idempotent."""

    @abstractmethod
    def release(self) -> None:
        """Stop being the one writer, without closing. Reading still works. Idempotent."""

    @abstractmethod
    def acquire(self) -> bool:
        """Become the one writer again; idempotent. The log may have grown in the meantime.

        Also after ``OutcomeUnknown``, and after a write that was interrupted: it has ended when this returns.

        Returns False if a writer has died since ``release``: the caller must look for what it left half-written, as
        after ``open``. Raises ``SessionLocked`` (another writer), ``SessionNotFound`` (it was removed) and
        ``WriteFailed``.
        """

    @abstractmethod
    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        """Make ``files`` durable, then append what ``log`` returns to the log and make that durable, then return.

        ``log`` is called once, after all chunks were consumed. Raises ``NameTaken`` (files are never overwritten),
        ``WriteFailed``, ``SessionLocked`` (another writer took over), and whatever ``chunks`` or ``log`` raise, as it
        is; then no file of this call is visible under its name and the log is as before, unless the machine itself
        fails first.
        """

    @abstractmethod
    def replace(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """Write or replace a file atomically: readers see the old bytes or the new ones. Raises ``WriteFailed``."""

    @abstractmethod
    def append(self, name: str, data: bytes, *, sync: bool = False) -> None:
        """Add to the end of a file, creating it if necessary; ``sync`` makes the whole file durable.

        Readers see it grow, at the latest when it is synced. After a failure the file may hold a part of ``data``.
        Raises ``WriteFailed``.
        """

    @abstractmethod
    def delete(self, names: Sequence[str]) -> None:
        """Delete files durably; names that do not exist count as deleted. Raises ``WriteFailed``."""

    @abstractmethod
    def truncate_log(self, length: int) -> None:
        """Cut the log to ``length`` bytes, durably. Raises ``WriteFailed``."""

    @abstractmethod
    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read up to ``length`` bytes (None: all) from ``offset``; short at the end. Raises ``NotStored``."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Return the file's size in bytes. Raises ``NotStored``."""

    @abstractmethod
    def names(self, prefix: str = "") -> list[str]:
        """List the names that start with ``prefix``, sorted; the log is not among them."""

    @abstractmethod
    def read_log(self, offset: int = 0) -> bytes:
        """Read the log from ``offset`` (bytes) on; empty if there is none. It may grow at any time."""

    def pieces(self, name: str, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """Yield the bytes of each span, an offset and a length, reading each when it is asked for; short at the end.

        As it stands, this calls ``read`` for each. Raises ``NotStored`` during iteration.
        """
        for offset, length in spans:
            yield self.read(name, offset, length)


@runtime_checkable
class DirectoryStore(Store, Protocol):
    """A store whose files are in a directory of this machine.

    A kind of its own because programs other than ctxfs can read these files, and two sessions can share one.
    """

    @property
    @abstractmethod
    def directory(self) -> Path:
        """The session's directory, absolute: placeholders name its files."""

    @abstractmethod
    def share(self, names: Sequence[str], source: Store) -> list[str]:
        """Give files of another session the same names here, durably; return those that have to be copied instead.

        Raises ``NotStored`` and ``WriteFailed``.
        """


@runtime_checkable
class RewritingStore(Store, Protocol):
    """A store in which bytes can be removed for good, including those of its log.

    A kind of its own because not every place can do that: a bucket with versions keeps what was deleted.
    """

    @abstractmethod
    def rewrite(self, log: bytes | None = None) -> None:
        """Replace the log with one of the same length, and remove all bytes that are no longer part of the session.

        ``log``: None leaves it as it is. Readers see the old log or the new one. After a failure the bytes may still be
        in the store, where no reader finds them; the next ``rewrite`` removes them. Raises ``WriteFailed``.
        """


@runtime_checkable
class SharedStore(Store, Protocol):
    """A store that several machines share. It numbers its writers, and takes a session from one that is silent.

    A kind of its own because each use of it is a request that may get no answer: a session makes fewer of them, and
    its callers, when they are cancelled, do not wait for one. The next commit of a writer whose session was taken over
    raises ``SessionLocked``, and stores nothing. A request without an answer raises ``OutcomeUnknown``: the store has
    to be acquired, or opened, again. Each opening needs an object of its own: an earlier one may still be waiting for
    the server.
    """

    @property
    @abstractmethod
    def epoch(self) -> int:
        """Return the number that the store gave this writer, higher than any earlier one's; 0: it is not the writer.

        A tool may pass it on to a service, which can then refuse the lower number of an earlier writer.
        """

    @abstractmethod
    def commit_and_release(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        """Do ``commit`` and ``release`` in one request, and raise as ``commit``; on failure the session stays open."""

    def has_orphans(self) -> bool:
        """Whether a writer that was killed left contents that no commit names. As it stands: there are none.

        A writer that works may be about to write such a commit. Raises ``StorageError``.
        """
        return False

    def delete_orphans(self) -> int:
        """Delete these contents, as the one writer, and return how many there were. Raises as ``delete``."""
        return 0


def read_log_now(store: Store, offset: int = 0) -> bytes:
    """Read the log of a session that is not open, from ``offset`` (bytes) on. Blocks. Raises as ``Store.open``."""
    opened = store.open(create=False, write=False)
    try:
        return opened.read_log(offset)
    finally:
        opened.close()


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
