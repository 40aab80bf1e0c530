"""The session's file system: content is durable here before it is evicted, and can be read back exactly.

Follows "Context FileSystem 上下文卸载功能". One object is one session; it has one writer, and any number of readers.
"""

import random
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from warnings import warn

import anyio

from ctxfs.errors import (
    ConfigError,
    ContentGone,
    NotRestorable,
    SessionClosed,
    SessionLocked,
    SessionNotFound,
    UnknownItem,
)
from ctxfs.errors.checks import async_with_only, names_settings, require_bool, require_int, require_method
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import Content
from ctxfs.messages.names import (
    ENVELOPE,
    SHORT,
    Layout,
    LayoutName,
    as_layout,
    check_session_id,
    logical_base,
    new_session_id,
    path_of,
)
from ctxfs.session.content.reader import ContentReader, IndexCache
from ctxfs.session.content.stored import Stored
from ctxfs.session.damaged import with_contents
from ctxfs.session.item_records import absolute
from ctxfs.session.journal_writer import JournalReader
from ctxfs.session.records import Record
from ctxfs.session.recovery import NOTHING_READ, Reading, Recovery, read_journal, scan_session
from ctxfs.session.state import Owner, SessionState, check_owner, fold
from ctxfs.session.verify import VerifyReport, verify
from ctxfs.session.writer import SessionWriter
from ctxfs.storage.base import DirectoryStore, Store
from ctxfs.storage.local_sessions import likely_session_under
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import run_to_completion, uninterrupted
from ctxfs.storage.urls import stores_at

FIRST_PAUSE_S = 0.001
LONGEST_PAUSE_S = 0.05

T = TypeVar("T")


async def patiently(attempt: Callable[[], Awaitable[T]], wait_s: float) -> T:
    """Make the attempt again while another writer has the session, for up to ``wait_s`` seconds."""
    until = anyio.current_time() + wait_s
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return await attempt()
        except SessionLocked:
            if anyio.current_time() + pause_s > until:
                raise
        await anyio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


@async_with_only
@names_settings({"offload_root_path": "it is root_path here"})
class ContextFileSystem:
    """One session: on disk, as ``<root_path>/{session_id}``, or in a store that many machines reach.

    Args:
        session_id: the session to open, or the id of a new one; None starts a new one with an id of its own.
        root_path: where sessions are: a directory, a URL (``s3://bucket/prefix``) or a ``SessionStores``; None means
            ``~/.agent/context``. A relative path is resolved at once.
        layout: the form of the content files of a new session; an existing one keeps its own. Compression is not
            part of it: ``Layout("envelope", compress_from_chars=0)`` stores new contents as they are.
        store: the ``Store`` of this one session, whose paths begin with ``root_path``, a directory; None: the one that
            ``root_path`` has for it.
        clock: returns seconds since the epoch.
        inline_limit_chars: content whose JSON has more than about this many characters gets a file of its own when its
            item is added; other content is part of the journal.
        read_only: take no lock, and write nothing.

    Raises:
        ConfigError: a setting of another type, or one that cannot work.

    """

    def __init__(
        self,
        session_id: str | None = None,
        *,
        root_path: str | Path | SessionStores | None = None,
        layout: Layout | LayoutName = ENVELOPE,
        store: Store | None = None,
        clock: Callable[[], float] = time.time,
        inline_limit_chars: int = 8192,
        read_only: bool = False,
    ) -> None:
        self._layout = as_layout(layout)
        require_int("inline_limit_chars", inline_limit_chars, at_least=0)
        require_bool("read_only", read_only)
        if not callable(clock):
            raise ConfigError(f"clock is {clock!r}: use a function that gives seconds")
        if session_id is None:
            session_id = new_session_id(datetime.fromtimestamp(clock(), UTC), random.SystemRandom())
        self._session_id = check_session_id(session_id)
        require_method("store", store, "commit", "the Store of this session (root_path takes a URL or a SessionStores)")
        self._stores: SessionStores | None = None
        if store is None:
            self._stores = stores_at(root_path)
            self._store = ThreadedStore(self._stores.store(session_id))
            self._directory = self._store.directory
        else:
            self._store = ThreadedStore(store)
            self._directory = self._store.directory
            if root_path is not None:
                place = stores_at(root_path)
                if place.directory is None:
                    raise ConfigError("store is of this one session, and root_path names no directory: leave out one")
                self._stores = place if isinstance(store, DirectoryStore) else None
                self._directory = place.directory / session_id
        self._clock = clock
        self._inline_limit_chars = inline_limit_chars
        self._read_only = read_only
        self._recovery = Recovery()
        self._reading: Reading | None = None  # None: what is read of the journal is not kept
        self._state = SessionState()
        self._journal: JournalReader | None = None
        self._writer: SessionWriter | None = None
        self._indexes = IndexCache(self._store, keep=not read_only)

    # What it is ------------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._session_id

    @property
    def base(self) -> str:
        """The beginning of its contents' paths: the absolute path of its directory, or ``ctxfs://{session_id}``.

        The latter names no place, so it is the same on every machine. The tools of ctxfs find contents by either.
        """
        return logical_base(self._session_id) if self._directory is None else str(self._directory)

    @property
    def session_path(self) -> Path:
        """The session's directory, absolute. Raises ``ConfigError`` if it has none on this machine: see ``base``."""
        if self._directory is None:
            raise ConfigError(f"session {self._session_id} is in no directory of this machine: use `base`, a str")
        return self._directory

    @property
    def stores(self) -> SessionStores:
        """The place of this session and others. Raises ``ConfigError`` if only its own store is known."""
        if self._stores is None:
            raise ConfigError(f"session {self._session_id} has a store of its own: where others are is unknown")
        return self._stores

    @property
    def read_only(self) -> bool:
        """Whether it was made for reading only."""
        return self._read_only

    @property
    def is_open(self) -> bool:
        """Whether the session is open."""
        return self._journal is not None

    @property
    def recovery(self) -> Recovery:
        """The repairs that opening the session made, and damaged contents."""
        return self._recovery

    @property
    def state(self) -> SessionState:
        """The fold of the session's journal. Read only: ``writer`` alone changes it."""
        return self._state

    @property
    def writer(self) -> SessionWriter:
        """The object that changes the open session: for a context, or a tool of your own that stores something.

        Raises ``SessionClosed`` if the session is not open, or is open read-only.
        """
        if self._writer is not None:
            return self._writer
        self._opened()
        raise SessionClosed(f"session {self._session_id} is open for reading only")

    # Opening and closing ---------------------------------------------------------------------------------------------

    async def open(self, *, create: bool = True, wait_s: float = 0.0, owner: Owner | None = None) -> None:
        """Open the session, or create it if it does not exist and ``create`` is true.

        If it is open, nothing is done, but a wrong ``owner`` is refused with a ``ConfigError`` all the same.

        ``wait_s``: for how many seconds to try again while another writer has it. ``owner``: who goes on with its
        conversation, which must be kept where that one looks for it; None: nobody does. Raises ``SessionLocked``,
        ``SessionNotFound``, ``UnsafePath``, ``ConfigError`` and ``WriteFailed``.
        """
        if self._journal is not None:
            check_owner(self._session_id, self._state, owner)
            return
        write = not self._read_only
        try:
            await patiently(lambda: self._store.open(create=create and write, write=write), wait_s)
            await self._resume(owner)
        except SessionNotFound as error:
            await self._let_go()
            raise await self._not_found(error) from None
        except BaseException:
            await self._let_go()
            raise

    async def _not_found(self, error: SessionNotFound) -> SessionNotFound:
        """The error, with the session that was meant. Only a directory is asked: elsewhere it would take requests."""
        root = None if self._stores is None else self._stores.directory
        if root is None or error.removed:
            return error
        meant = await run_to_completion(lambda: likely_session_under(root, self._session_id))
        return SessionNotFound(error.session_id, error.root, meant=meant)

    async def _resume(self, owner: Owner | None) -> None:
        if self._read_only:
            found = await scan_session(self._store, read_only=True, known=self._reading)
            journal = JournalReader(self._store, self._session_id)
            journal.resume(found)
            fold(journal.state, found.orphans)
        else:
            writer = SessionWriter(
                self._store,
                session_id=self._session_id,
                base=self.base,
                layout=self._layout,
                clock=self._clock,
                inline_limit_chars=self._inline_limit_chars,
            )
            found = await writer.open(owner, known=self._reading)
            self._writer = writer
            journal = writer.journal
        self._recovery = found.recovery
        self._reading = found.reading
        self._journal = journal
        self._state = journal.state

    async def close(self) -> None:
        """Write the index, note the end in the journal and release the session; idempotent.

        The session is released even if something cannot be written; the error is still raised.
        """
        try:
            await self._close()
        except (KeyboardInterrupt, SystemExit):  # it may have hit before the session was released
            await self._let_go()
            raise

    @uninterrupted
    async def _close(self) -> None:
        if self._journal is None:
            return
        try:
            if self._writer is not None:
                await self._writer.close()
        finally:
            await self._let_go()

    @uninterrupted
    async def _let_go(self) -> None:
        """Release the session, however far it was opened."""
        self._journal = None
        self._writer = None
        await self._store.close()

    def __del__(self) -> None:
        """Warn about a writer that was dropped without ``close``; its store goes with it, and releases the lock."""
        if getattr(self, "_writer", None) is not None:
            text = (
                f"session {self._session_id} was dropped while it was open: use `async with`, or await close(), on the "
                "Agent, Context, History or ContextFileSystem"
            )
            warn(text, ResourceWarning, stacklevel=2, source=self)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def refresh(self) -> None:
        """Take in what the session's writer has appended. Does nothing in the writer, which has everything."""
        journal = self._opened()
        if self._writer is None:
            await journal.catch_up()

    # Writing ---------------------------------------------------------------------------------------------------------

    async def offload(self, item: ContextItem) -> str:
        """Make an item's content durable and return the path of its file, absolute; see ``SessionWriter.store``."""
        await self.writer.store([item])
        return path_of(self.base, self._stored_of(item.id).name)

    async def restore(self, item_id: str, *, reason: str = "") -> None:
        """Record that an item's stored content is back in the context, for the next ``Context`` that is opened.

        Raises:
            UnknownItem: the session has no such item.
            NotRestorable: it is not a message, or it has no content of its own; or a context is open on the session,
                which would not notice: use ``Context.restore``.
            WriteFailed: it could not be recorded. Nothing changed.

        """
        if self.writer.context is not None:
            raise NotRestorable(item_id, "a context is open on the session: use its own restore()")
        await self.writer.restore(item_id, reason=reason)

    # Reading ---------------------------------------------------------------------------------------------------------

    async def items(self, *, load: bool = True) -> tuple[ContextItem, ...]:
        """Return the items in the context, by the journal, with paths that begin with ``base``.

        ``load``: False leaves contents that are in files empty, so that only the journal is read. If an item's content
        is damaged or missing, a text that says so replaces it, and the item is marked (``damaged``) and noted in
        ``recovery``. Its ``token_count`` is still that of the content.
        """
        items = tuple(self._state.items.values())
        if load:
            items = await self._loaded(items)
        return tuple(absolute(item, self.base) for item in items)

    async def _loaded(self, items: Sequence[ContextItem]) -> tuple[ContextItem, ...]:
        loaded, damaged = await with_contents(items, self._state.content_stored, self.load)
        read = {item.id for item in items if item.id in self._state.content_stored}
        others = (found for found in self._recovery.contents if found.item_id not in read)
        self._recovery = replace(self._recovery, contents=(*others, *damaged))
        return loaded

    async def load(self, item_id: str) -> Content:
        """Return an item's stored content, exactly. Raises as ``reader``, and ``NotStored`` and ``CorruptContent``."""
        return await self.reader(item_id).load()

    def reader(self, item_id: str) -> ContentReader:
        """Return a reader of an item's stored content, or of what a running command has printed so far.

        Raises ``UnknownItem``, and ``ContentGone`` if it was removed on purpose.
        """
        self._opened()
        if self._writer is not None and item_id in self._writer.growing:
            return self._writer.growing[item_id].reader()
        return ContentReader(self._store, self._stored_of(item_id), indexes=self._indexes)

    def find(self, ref: str) -> str | None:
        """Return the id of the item whose content ``ref`` names, even if it was removed; None for anything else.

        ``ref`` is a path, absolute or relative to the session, a short name, or an id. A path below a directory in
        which the session was opened earlier is found too.
        """
        name = ref
        for base in (self.base, logical_base(self._session_id), *self._state.paths):
            if ref.startswith(base + "/"):
                name = ref[len(base) + 1 :]
                break
        if name.startswith(SHORT):
            return self._state.find_short(name)
        if name in self._state.by_name:
            return self._state.by_name[name]
        growing = self._writer.growing if self._writer is not None else {}
        for item_id, log in growing.items():
            if log.name == name:
                return item_id
        if ref in self._state.stored or ref in growing or ref in self._state.removed:
            return ref
        return None

    async def history(self) -> tuple[Record, ...]:
        """Return every record of the journal, from the first; damaged ones are left out."""
        self._opened()
        reading = await read_journal(self._store, self._reading or NOTHING_READ)
        if self._reading is not None:
            self._reading = reading
        return reading.scan.records

    async def verify(self, item_ids: Collection[str] | None = None) -> VerifyReport:
        """Check every byte of stored contents' files, and the indexes, against the journal; None: all contents.

        Raises ``UnknownItem`` and ``ContentGone`` for the id of an item that is not stored.
        """
        chosen = tuple(self._state.stored) if item_ids is None else item_ids
        return await verify(self._store, self.session_id, tuple(map(self._stored_of, chosen)), self._recovery.damages)

    # Inside ----------------------------------------------------------------------------------------------------------

    def _stored_of(self, item_id: str) -> Stored:
        if (stored := self._state.stored.get(item_id)) is not None:
            return stored
        if (gone := self._state.removed.get(item_id)) is not None:
            raise ContentGone(item_id, str(gone))
        raise UnknownItem(item_id)

    def _opened(self) -> JournalReader:
        if self._journal is None:
            raise SessionClosed(f"session {self._session_id} is not open: use `async with`, or await open()")
        return self._journal


def storage_of(fs: ContextFileSystem) -> ThreadedStore:
    """Return the store of a session, open while the session is: for the rooms of ctxfs that look at its files."""
    return fs._store  # noqa: SLF001 - of this module


def reading_once(fs: ContextFileSystem, *, after: ContextFileSystem | None = None) -> ContextFileSystem:
    """Let ``fs``, which is not open yet, keep what it reads of the journal, so that ``history`` need not read it again.

    This is for those who soon close it, since it keeps what the context does not hold any more. ``after``: another one
    of this session, with what it has read.
    """
    fs._reading = NOTHING_READ if after is None else after._reading  # noqa: SLF001 - of this module
    return fs
