"""The session's file system: content is durable here before it is evicted, and can be read back exactly.

Follows "Context FileSystem 上下文卸载功能". One object is one session; it has one writer, and any number of readers.
"""

import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self, TypeVar
from warnings import warn

import anyio

from ctxfs.checks import require_bool, require_int, require_kind
from ctxfs.content.reader import ContentReader, IndexCache
from ctxfs.content.stored import Stored
from ctxfs.errors import ConfigError, CtxfsError, SessionClosed, SessionLocked, UnknownItem
from ctxfs.items import ContextItem
from ctxfs.llm.messages import Content
from ctxfs.session.archive import archived_items
from ctxfs.session.damaged import DamagedContent, detail_of, with_stand_ins
from ctxfs.session.item_records import absolute
from ctxfs.session.journal_writer import JournalReader
from ctxfs.session.names import ENVELOPE, SHORT, Layout, check_session_id, new_session_id
from ctxfs.session.records import CallMade, Record
from ctxfs.session.recovery import Recovery, read_journal, scan_session
from ctxfs.session.state import SessionState, fold
from ctxfs.session.verify import VerifyReport, verify
from ctxfs.session.writer import SessionWriter
from ctxfs.steps import run_in_steps
from ctxfs.storage.base import Store
from ctxfs.storage.local import LocalStore, absolute_root, default_root, list_sessions, remove_session
from ctxfs.storage.threads import uninterrupted

__all__ = ["ContextFileSystem", "default_root", "list_sessions", "remove_session"]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.05

T = TypeVar("T")


class ContextFileSystem:
    """A session on disk: ``<root_path>/{session_id}``.

    Args:
        session_id: the session to open, or the id of a new one; None starts a new one with an id of its own.
        root_path: the directory that holds sessions; None means ``~/.agent/context``. A relative path is resolved at
            once.
        layout: the form of the content files of a new session; an existing one keeps its own.
        store: used instead of the local disk.
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
        root_path: str | Path | None = None,
        layout: Layout = ENVELOPE,
        store: Store | None = None,
        clock: Callable[[], float] = time.time,
        inline_limit_chars: int = 8192,
        read_only: bool = False,
    ) -> None:
        require_kind("layout", layout, Layout, "ENVELOPE or TEXT of ctxfs.session")
        require_int("inline_limit_chars", inline_limit_chars, at_least=0)
        require_bool("read_only", read_only)
        if store is not None and (isinstance(store, type) or not callable(getattr(store, "commit", None))):
            raise ConfigError(f"store is {store!r}: use a Store, such as LocalStore(...), or None")
        if not callable(clock):
            raise ConfigError(f"clock is {clock!r}: use a function that gives seconds")
        if session_id is None:
            session_id = new_session_id(datetime.fromtimestamp(clock(), UTC), random.SystemRandom())
        self._session_id = check_session_id(session_id)
        root = absolute_root(root_path)
        self._session_path = root / session_id
        self._store: Store = LocalStore(root, session_id) if store is None else store
        self._layout = layout
        self._clock = clock
        self._inline_limit_chars = inline_limit_chars
        self._read_only = read_only
        self._recovery = Recovery()
        self._state = SessionState()
        self._journal: JournalReader | None = None
        self._writer: SessionWriter | None = None
        self._restore: Callable[..., Awaitable[object]] | None = None
        self._indexes = IndexCache(self._store, keep=not read_only)

    # What it is ------------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._session_id

    @property
    def session_path(self) -> Path:
        """The session's directory, absolute."""
        return self._session_path

    @property
    def is_open(self) -> bool:
        """Whether the session is open."""
        return self._journal is not None

    @property
    def recovery(self) -> Recovery:
        """What opening the session had to repair, and which contents are damaged."""
        return self._recovery

    @property
    def state(self) -> SessionState:
        """What the session's journal adds up to, up to now; to be read, and changed by ``writer`` alone."""
        return self._state

    @property
    def calls(self) -> tuple[CallMade, ...]:
        """The model calls that were recorded, in order, those for summaries among them."""
        return tuple(self._state.calls)

    @property
    def writer(self) -> SessionWriter:
        """What changes the open session: for a context, or a tool of your own that stores something.

        Raises ``SessionClosed`` when the session is not open, or for reading only.
        """
        self._opened()
        if self._writer is None:
            raise SessionClosed(f"session {self._session_id} is open for reading only")
        return self._writer

    # Opening and closing ---------------------------------------------------------------------------------------------

    async def open(self, *, create: bool = True, wait_s: float = 0.0) -> None:
        """Open the session, and make it when it is not there and ``create`` is true; does nothing when it is open.

        ``wait_s``: for how many seconds to try again while another writer has it. Raises ``SessionLocked``,
        ``SessionNotFound``, ``UnsafePath``, ``ConfigError`` and ``WriteFailed``.
        """
        if self._journal is not None:
            return
        write = not self._read_only
        await _patiently(lambda: self._store.open(create=create and write, write=write), wait_s)
        try:
            await self._resume()
        except BaseException:
            await uninterrupted(self._store.close)()
            raise

    async def _resume(self) -> None:
        if self._read_only:
            found = await scan_session(self._store, read_only=True)
            journal = JournalReader(self._store, self._session_id)
            journal.resume(found)
            fold(journal.state, found.orphans)
            self._recovery = found.recovery
        else:
            writer = SessionWriter(
                self._store,
                session_id=self._session_id,
                session_path=self._session_path,
                layout=self._layout,
                clock=self._clock,
                inline_limit_chars=self._inline_limit_chars,
            )
            self._recovery = await writer.open()
            self._writer, journal = writer, writer.journal
        self._journal, self._state = journal, journal.state

    @uninterrupted
    async def close(self) -> None:
        """Write the index, note the end in the journal and release the session; idempotent.

        It is released also when something cannot be written; the error is raised all the same.
        """
        if self._journal is None:
            return
        try:
            if self._writer is not None:
                await self._writer.close()
        finally:
            self._journal = self._writer = self._restore = None
            await self._store.close()

    def __del__(self) -> None:
        """Warn of a writer that was dropped without ``close``; its store, which goes with it, releases the lock."""
        if getattr(self, "_writer", None) is not None:
            text = (
                f"session {self._session_id} was dropped while it was open: use `async with`, or await close(), on the "
                "Agent, Context or ContextFileSystem"
            )
            warn(text, ResourceWarning, stacklevel=2, source=self)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def release(self) -> None:
        """Let another process write; this object reads on, and writes after ``acquire``.

        So that several processes take turns in one session, each opens and releases it, and then takes a lease for each
        use: ``acquire``, write, ``release``. Between two leases of one object nothing is read again but what the others
        appended. Whatever a lease allocates (ids, names) it must record too: after the release another process may
        allocate the same.

        Not counted, and not for tasks that write at the same time: one of them would release what another one still
        uses. A session that is closed while it is released is closed without a word in its journal.

        Raises:
            ConfigError: the store cannot do this, or a content of ``SessionWriter.grow`` is not finished.
            SessionClosed: the session is not open, or for reading only.

        """
        await self.writer.release()

    async def acquire(self, *, wait_s: float = 0.0) -> tuple[Record, ...]:
        """Be the writer again after ``release``, with all that others recorded meanwhile; returns that.

        It is in ``state`` already, and ``items`` shows it. It costs next to nothing when nobody wrote. When a writer
        died meanwhile the session is opened again: ``recovery`` says what was repaired, and ``state`` and ``writer``
        are new objects. Does nothing when the session was not released.

        Args:
            wait_s: for how many seconds to try again while another writer has the session.

        Raises:
            SessionLocked: another writer still has it.
            SessionNotFound: it was removed meanwhile.
            WriteFailed: it cannot be written.
            SessionClosed: the session is not open, or for reading only.

        """
        gained = await _patiently(self.writer.acquire, wait_s)
        return await self._reopened() if gained is None else gained

    @uninterrupted
    async def _reopened(self) -> tuple[Record, ...]:
        """Open the session again; returns what its journal gained since it was released."""
        known = self._opened()
        self._journal = self._writer = None
        await self._store.close()
        await self.open(create=False)
        return await known.catch_up()

    async def refresh(self) -> None:
        """Take in what the session's writer appended since. Does nothing in the writer, which has it all."""
        journal = self._opened()
        if self._writer is None:
            await journal.catch_up()

    # Writing ---------------------------------------------------------------------------------------------------------

    async def offload(self, item: ContextItem) -> str:
        """Make an item's content durable and return the absolute path of its file; see ``SessionWriter.store``."""
        await self.writer.store([item])
        return self.path_of(self._stored_of(item.id).name)

    async def restore(self, item_id: str, *, reason: str = "") -> None:
        """Bring an item's stored content back into the context, as ``Context.restore``, if a context is open on this.

        Otherwise it is recorded for the next one. Raises ``UnknownItem``, ``NotRestorable``, and what that raises.
        """
        restore: Callable[..., Awaitable[object]] = self._restore or self.writer.restore
        await restore(item_id, reason=reason)

    def restore_by(self, restore: Callable[..., Awaitable[object]]) -> None:
        """Let ``restore``, which is called alike, do what ``self.restore`` is to do, until ``close``: for a context."""
        self._restore = restore

    # Reading ---------------------------------------------------------------------------------------------------------

    async def items(self, *, load: bool = True) -> tuple[ContextItem, ...]:
        """Return what is in the context as the journal says, paths absolute.

        ``load`` False leaves contents that are in their files empty, so that nothing but the journal is read. An item
        whose content is damaged or missing has a text that says so in its place, and is marked (``damaged``); it is
        noted in ``recovery``. The item's ``token_count`` is that of the content.
        """
        items = tuple(self._state.items.values())
        if load:
            items = await self._loaded(items)
        return tuple(absolute(item, self.session_path) for item in items)

    async def _loaded(self, items: Sequence[ContextItem]) -> tuple[ContextItem, ...]:
        inside = [item for item in items if item.id in self._state.content_stored]
        contents: dict[str, Content] = {}
        damaged: dict[str, DamagedContent] = {}
        for item in inside:
            try:
                contents[item.id] = await self.load(item.id)
            except CtxfsError as error:
                if (detail := detail_of(error)) is None:
                    raise
                damaged[item.id] = DamagedContent(item_id=item.id, name=item.name, detail=detail)
        read = {item.id for item in inside}
        others = (found for found in self._recovery.contents if found.item_id not in read)
        self._recovery = replace(self._recovery, contents=(*others, *damaged.values()))
        loaded = [item.with_content(contents[item.id]) if item.id in contents else item for item in items]
        return with_stand_ins(loaded, damaged)

    async def load(self, item_id: str) -> Content:
        """Return an item's stored content, exactly. Raises ``UnknownItem``, ``NotStored`` and ``CorruptContent``."""
        return await self.reader(item_id).load()

    def reader(self, item_id: str) -> ContentReader:
        """Return a reader of an item's stored content, or of what has come of it so far. Raises ``UnknownItem``."""
        self._opened()
        if self._writer is not None and item_id in self._writer.growing:
            return self._writer.growing[item_id].reader()
        return ContentReader(self._store, self._stored_of(item_id), indexes=self._indexes)

    def stored(self) -> Mapping[str, Stored]:
        """Return what is durable, by item id; a view that grows."""
        return MappingProxyType(self._state.stored)

    def path_of(self, name: str) -> str:
        """Return the absolute path of a file of this session."""
        return f"{self.session_path}/{name}"

    def find(self, ref: str) -> str | None:
        """Return the id of the item whose content ``ref`` names, if ``reader`` can read it; None otherwise.

        ``ref`` is a path, absolute or relative to the session, a short name, or an id. Places where the session lay
        before count too.
        """
        name = ref
        for base in (str(self.session_path), *self._state.paths):
            if ref.startswith(base + "/"):
                name = ref[len(base) + 1 :]
                break
        if name.startswith(SHORT):
            return self._state.find_short(name)
        growing = self._writer.growing if self._writer is not None else {}
        by_name = {log.name: item_id for item_id, log in growing.items()}
        if found := self._state.by_name.get(name, by_name.get(name)):
            return found
        return ref if ref in self._state.stored or ref in growing else None

    async def history(self) -> tuple[Record, ...]:
        """Return every record of the journal, from the first; damaged ones are left out."""
        self._opened()
        return (await read_journal(self._store)).scan.records

    async def archived(self, archive_id: str) -> tuple[ContextItem, ...]:
        """Return the items that left in an archive, in order, each exactly as it was then; paths absolute.

        Reads the whole journal; an item whose lines in it are damaged is left out. Raises ``UnknownItem`` when no item
        left in such an archive, and ``CorruptContent``.
        """
        if archive_id not in self._state.archived.values():
            raise UnknownItem(archive_id)
        records, archive = await self.history(), str(await self.load(archive_id))
        items = await run_in_steps(lambda: archived_items(archive, archive_id, records))
        return tuple(absolute(item, self.session_path) for item in items)

    async def verify(self) -> VerifyReport:
        """Check every stored content against its digest, and the index against the journal."""
        return await verify(self._store, tuple(self._state.stored.values()), self._recovery.damages)

    # Inside ----------------------------------------------------------------------------------------------------------

    def _stored_of(self, item_id: str) -> Stored:
        try:
            return self._state.stored[item_id]
        except KeyError:
            raise UnknownItem(item_id) from None

    def _opened(self) -> JournalReader:
        if self._journal is None:
            raise SessionClosed(f"session {self._session_id} is not open: use `async with`, or await open()")
        return self._journal


async def _patiently(attempt: Callable[[], Awaitable[T]], wait_s: float) -> T:
    """Make the attempt again while another writer has the session, for up to ``wait_s`` seconds."""
    until, pause_s = anyio.current_time() + wait_s, FIRST_PAUSE_S
    while True:
        try:
            return await attempt()
        except SessionLocked:
            if anyio.current_time() + pause_s > until:
                raise
        await anyio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
