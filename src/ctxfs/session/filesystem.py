"""The session's file system: what leaves the context is durable here first, and can be read back exactly.

Follows "Context FileSystem 上下文卸载功能". One object is one session; it has one writer, and any number of readers.
"""

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self
from warnings import warn

from ctxfs.content.file import ContentFile
from ctxfs.content.growing import GrowingLog
from ctxfs.content.reader import ContentReader, IndexCache
from ctxfs.content.stored import Stored
from ctxfs.errors import ConfigError, CtxfsError, SessionClosed, UnknownItem
from ctxfs.items import ContextItem, ItemType
from ctxfs.jsontext.write_stream import has_surrogates, is_longer
from ctxfs.llm.base import Usage, UsageLike, check_model
from ctxfs.llm.messages import Content, has_media
from ctxfs.session.archive import archived_items
from ctxfs.session.damaged import DamagedContent, detail_of, refuse_damaged, with_stand_ins
from ctxfs.session.field_types import check_types
from ctxfs.session.item_records import absolute, added, metadata_of, replacement
from ctxfs.session.names import ENVELOPE, TEXT, Layout, Names, check_session_id, new_session_id
from ctxfs.session.records import (
    CallMade,
    Closed,
    EvictionSet,
    ItemAdded,
    Record,
    Removed,
    Restored,
    SessionStarted,
    WriterOpened,
    with_content,
)
from ctxfs.session.recovery import Recovery, examine, move_aside, read_journal
from ctxfs.session.state import Savings, SessionState, fold
from ctxfs.session.verify import VerifyReport, verify
from ctxfs.session.writer import SessionLog
from ctxfs.steps import run_in_steps
from ctxfs.storage.base import GrowingStore, Store
from ctxfs.storage.local import LocalStore, absolute_root, default_root, list_sessions, remove_session
from ctxfs.storage.threads import uninterrupted

__all__ = ["ContextFileSystem", "default_root", "list_sessions", "remove_session"]


class ContextFileSystem:
    """A session on disk: ``<root_path>/{session_id}``.

    ``session_id`` None starts a new session. ``root_path`` None is ``default_root()``; a relative one is taken from the
    working directory at once. ``layout`` applies to new sessions; a session keeps the layout it was started with.
    ``store`` replaces the local disk. ``clock`` gives seconds since the epoch. Content whose JSON
    has more than about ``inline_limit_chars`` characters goes to its file when its item is added, other content stands
    in the journal. ``read_only`` takes no lock and writes nothing.
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
        self._names = Names(layout=layout)
        self._recovery = Recovery()
        self._session: SessionLog | None = None
        self._state = SessionState()
        self._indexes = IndexCache(self._store, keep=not read_only)
        self._growing: dict[str, GrowingLog] = {}

    # ---- what it is

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
        return self._session is not None

    @property
    def layout(self) -> Layout:
        """Where contents go and in which form."""
        return self._layout

    @property
    def recovery(self) -> Recovery:
        """What opening the session had to repair, and which contents are damaged."""
        return self._recovery

    @property
    def calls(self) -> tuple[CallMade, ...]:
        """The model calls that were recorded, in order, those for summaries among them."""
        return tuple(self._state.calls)

    @property
    def left_on_arrival(self) -> Savings:
        """What left the context the moment it came in, in the whole life of the session."""
        return self._state.left_on_arrival

    @property
    def eviction(self) -> EvictionSet | None:
        """The rules by which results leave, as they were recorded last; None when they never were."""
        return self._state.eviction

    async def history(self) -> tuple[Record, ...]:
        """Return every record of the journal, from the first; damaged ones are left out."""
        self._opened()
        return (await read_journal(self._store)).scan.records

    def archive_of(self, item_id: str) -> str | None:
        """Return the item whose content holds this item's, when it left in an archive; None otherwise."""
        return self._state.archived.get(item_id)

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

    def stored(self) -> Mapping[str, Stored]:
        """Return what is durable, by item id; a view that grows."""
        return MappingProxyType(self._state.stored)

    def claim(self, item_type: ItemType, raw_id: str | None, tool_name: str | None = None) -> tuple[str, str]:
        """Return a new item's id and the name of its file; see ``Names.claim``."""
        return self.names.claim(item_type, raw_id, tool_name)

    @property
    def names(self) -> Names:
        """The names that the open session has given out."""
        self._writer()
        return self._names

    def path_of(self, name: str) -> str:
        """Return the absolute path of a file of this session."""
        return f"{self.session_path}/{name}"

    def item_of_path(self, path: str) -> str | None:
        """Return the item whose content is stored under ``path``; None when this session stored nothing there.

        ``path`` is absolute, or a name relative to the session. Places where the session lay before count too.
        """
        for base in (str(self.session_path), *self._state.paths):
            if path.startswith(base + "/"):
                path = path[len(base) + 1 :]
                break
        growing = next((log.item_id for log in self._growing.values() if log.name == path), None)
        return self._state.by_name.get(path, growing)

    def is_stored(self, item_id: str) -> bool:
        """Whether ``reader`` can read this item's content, or what has come of it so far."""
        return item_id in self._state.stored or item_id in self._growing

    # ---- opening and closing

    async def open(self, *, create: bool = True) -> None:
        """Open the session, and make it when it is not there and ``create`` is true.

        Raises ``SessionLocked``, ``SessionNotFound``, ``UnsafePath``, ``ConfigError`` and ``WriteFailed``.
        """
        if self._session is not None:
            return
        await self._store.open(create=create and not self._read_only, write=not self._read_only)
        try:
            self._session = await self._recover()
            self._state = self._session.state
        except BaseException:
            await uninterrupted(self._store.close)()
            raise

    async def _recover(self) -> SessionLog:
        found = await examine(self._store, read_only=self._read_only)
        self._recovery = found.recovery
        if found.state.layout is not None:
            self._layout = TEXT if found.state.layout == TEXT.name else ENVELOPE
        session = SessionLog(self._store, self._session_id, found)
        records: list[Record] = [*found.adopt]
        if found.new:
            records.insert(0, self._started(rebuilt=found.recovery.rebuilt_journal))
        if self._read_only:
            fold(session.state, records)
        else:
            if found.recovery.cut_bytes:
                await self._store.truncate_log(found.log_end)
            for name in found.in_the_way:
                await move_aside(self._store, name)
            path, epoch = str(self.session_path), found.state.epoch + 1
            records.append(WriterOpened(epoch=epoch, path=path, opened_at=self._clock()))
            await session.commit(lambda: records)
            await session.write_index()
        self._names = Names(session.state.ids, layout=self._layout)
        self._growing.clear()
        return session

    def _started(self, *, rebuilt: bool) -> SessionStarted:
        return SessionStarted(
            session_id=self._session_id, started_at=self._clock(), layout=self._layout.name, rebuilt=rebuilt
        )

    @uninterrupted
    async def close(self) -> None:
        """Write the index, note the end in the journal and release the session; idempotent.

        It is released also when something cannot be written; the error is raised all the same.
        """
        session = self._session
        if session is None:
            return
        try:
            if not self._read_only:
                await session.commit(lambda: [Closed(closed_at=self._clock())])
                await session.write_index()
        finally:
            self._session = None
            session.end()
            await self._store.close()

    def __del__(self) -> None:
        """Warn of a writer that was dropped without ``close``; its store, which goes with it, releases the lock."""
        if getattr(self, "_session", None) is not None and not self._read_only:
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

    async def refresh(self) -> None:
        """Take in what the session's writer appended since. Does nothing in the writer, which has it all."""
        session = self._opened()
        if self._read_only:
            await session.refresh()

    # ---- writing

    async def add(
        self,
        items: Sequence[ContextItem],
        *,
        before: str | None = None,
        leaving: Collection[str] = (),
        replaced: Callable[[], Sequence[tuple[ContextItem, str, int]]] = tuple,
        removing: Collection[str] = (),
        calls: Sequence[CallMade] = (),
    ) -> None:
        """Record items that join the context, before the item ``before`` (None: at the end); all of them, or none.

        ``leaving``: ids of those that leave in the same commit. ``replaced`` gives them in their new form, with the
        reason and the characters that this saves; it is called in a worker thread, when the contents were written.
        ``removing``: ids of items whose place the new ones take; they leave the context in the same commit. ``calls``:
        the model calls that came to this, as ``call_made`` gives them. Raises ``CorruptContent`` for an item that only
        says that its content is damaged.
        """
        refuse_damaged(items)

        def needs_file(item: ContextItem) -> bool:
            return self._needs_file(item) or (item.id in leaving and self._must_store(item))

        def joined(item: ContextItem, written: Collection[str]) -> ItemAdded:
            stored = item.id in written or (item.id in self._state.stored and item.offload_path is None)
            return added(item, self.session_path, content_stored=stored, before=before)

        def records(written: Collection[str]) -> list[Record]:
            made: list[Record] = [joined(item, written) for item in items]
            for new, reason, saved_chars in replaced():
                made.append(replacement(new, self.session_path, reason, saved_chars=saved_chars))
            if removing:
                made.append(Removed(item_ids=tuple(removing), reason="a new one took its place"))
            first = len(self._state.calls) + 1
            return [*made, *(replace(call, number=number) for number, call in enumerate(calls, first))]

        await self._commit(records, lambda: [item for item in items if needs_file(item)])

    async def store(
        self, items: Sequence[ContextItem], *, metadata: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        """Make the contents of items durable; those that are already cost nothing.

        ``metadata``, JSON by item id, is recorded beside each content and read back in ``stored()[item_id].metadata``.
        Raises ``CorruptContent`` for an item that only says that its content is damaged.
        """
        refuse_damaged(items)
        if any(self._must_store(item) for item in items):
            await self._commit(lambda _: [], lambda: self._unstored(items), metadata or {})

    async def replace(self, items: Sequence[ContextItem], *, reason: str) -> None:
        """Record that items stand in the context in a new form, their placeholders; contents are stored already."""
        await self._commit(lambda _: [replacement(item, self.session_path, reason) for item in items])

    async def evict(self, steps: Sequence[tuple[ContextItem, ContextItem, str]]) -> None:
        """Store the contents of old items and record the new ones in their place, in one commit.

        A step is the old item, the new one and the reason. An item that only repeats lines of stored content
        (``source``) is not stored a second time.
        """
        leaving = [old for old, _, _ in steps if old.source is None]
        await self._commit(
            lambda _: [replacement(new, self.session_path, reason) for _, new, reason in steps],
            lambda: self._unstored(leaving),
        )

    async def remove(self, item_ids: Sequence[str], *, reason: str) -> None:
        """Record that items left the context; what was stored of them stays."""
        await self._commit(lambda _: [Removed(item_ids=tuple(item_ids), reason=reason)])

    async def archive(
        self, item: ContextItem, content: str, item_ids: Sequence[str], *, before: str | None, reason: str
    ) -> None:
        """Store ``content`` as the content of ``item``, which joins the context in the place of ``item_ids``.

        ``before`` is the item that follows it, None at the end. One commit: all of it happens, or nothing.
        """
        full = replace(item, message=with_content(item.message, content), offload_path=None)
        joined = added(item, self.session_path, content_stored=False, before=before)
        removed = Removed(item_ids=tuple(item_ids), reason=reason, archive=item.id)
        await self._commit(lambda _: [joined, removed], lambda: self._unstored([full]))

    async def restore(self, item_id: str, *, reason: str = "") -> None:
        """Record that an item's stored content is back in the context. Raises ``UnknownItem``."""
        self._stored_of(item_id)
        await self._commit(lambda _: [Restored(item_id=item_id, reason=reason)])

    def call_made(
        self, usage: UsageLike, model: str | None, *, counted_tokens: int = 0, summary: bool = False
    ) -> CallMade:
        """What a call on the context as it stands was billed, to be recorded; see ``CallMade`` for the rest.

        Raises ``InvalidReply`` and ``InvalidRecord`` when it cannot be recorded.
        """
        call = CallMade(
            number=0,
            usage=Usage.of(usage),
            model=check_model(model),
            counted_tokens=counted_tokens,
            made_at=self._clock(),
            summary=summary,
        )
        check_types(call)
        return call

    async def record_call(
        self, usage: UsageLike, model: str | None, *, counted_tokens: int = 0, summary: bool = False
    ) -> None:
        """Record what a call on the context as it stands was billed, and nothing else; raises like ``call_made``."""
        await self.add([], calls=[self.call_made(usage, model, counted_tokens=counted_tokens, summary=summary)])

    async def record_eviction(self, rules: EvictionSet) -> None:
        """Record by which rules results leave from here on; nothing is written when that is known."""
        if rules != self._state.eviction:
            await self._commit(lambda _: [rules])

    async def offload(self, item: ContextItem) -> str:
        """Make an item's content durable and return the absolute path of its file."""
        await self.store([item])
        return self.path_of(self._stored_of(item.id).name)

    async def _commit(
        self,
        records: Callable[[Collection[str]], Sequence[Record]],
        needs: Callable[[], Sequence[ContextItem]] = tuple,
        metadata: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        """Write the contents of those items that ``needs`` gives, then record that, and ``records``.

        ``needs`` is asked again when another caller wrote some of them meanwhile. ``records`` is given the ids of those
        that were written, and is called in a worker thread.
        """
        files: dict[str, ContentFile] = {}

        def prepare() -> Sequence[ContentFile]:
            files.clear()
            files.update((item.id, self._file_for(item, metadata.get(item.id))) for item in needs())
            return tuple(files.values())

        await self._writer().commit(lambda: [*(file.stored for file in files.values()), *records(files)], prepare)

    def _unstored(self, items: Sequence[ContextItem]) -> list[ContextItem]:
        return [item for item in items if self._must_store(item)]

    def _must_store(self, item: ContextItem) -> bool:
        return item.id not in self._state.stored and item.offload_path is None and item.damaged is None

    def _needs_file(self, item: ContextItem) -> bool:
        """Tell whether the content does not go into the journal: it is large, or JSON escapes would change it.

        A page that was read back is never so large, unless an image or a document came with it.
        """
        content = item.message.content
        if not self._must_store(item) or (item.source is not None and not has_media(content)):
            return False
        return is_longer(content, self._inline_limit_chars) or has_surrogates(content)

    def _file_for(self, item: ContextItem, metadata: Mapping[str, Any] | None = None) -> ContentFile:
        return ContentFile(
            item.message.content,
            item_id=item.id,
            item_type=item.item_type,
            name=item.name,
            raw=self._layout.is_raw(item.name),
            offloaded_at=int(self._clock()),
            extra={**metadata_of(item), **(metadata or {})},
        )

    async def grow(self, tool_name: str) -> GrowingLog:
        """Begin a file of the session that is written as a command prints: ``artifacts/terminal/<id>.log``.

        It can be read at once; ``finish`` makes it durable and records it, and a crash before that loses nothing that
        was appended, and neither does closing the session. Raises ``ConfigError`` when the store cannot do this, and
        ``WriteFailed``.
        """
        session = self._writer()
        if not isinstance(self._store, GrowingStore):
            raise ConfigError(f"{type(self._store).__name__} has no files that grow: use the local disk")
        item_id, name = self._names.claim_terminal()

        async def record(stored: Stored) -> None:
            await session.commit(lambda: [stored])
            self._growing.pop(item_id, None)  # the next opening forgets them all

        log = GrowingLog(
            self._store,
            item_id=item_id,
            name=name,
            metadata={"tool_name": tool_name},
            clock=self._clock,
            record=record,
            check_open=session.check_open,
        )
        await log.append(b"")
        self._growing[item_id] = log
        return log

    async def flush(self) -> None:
        """Write the index. Raises ``WriteFailed``."""
        await self._writer().write_index()

    # ---- reading

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
        loaded = [
            replace(item, message=with_content(item.message, contents[item.id])) if item.id in contents else item
            for item in items
        ]
        return with_stand_ins(loaded, damaged)

    async def load(self, item_id: str) -> Content:
        """Return an item's stored content, exactly. Raises ``UnknownItem``, ``NotStored`` and ``CorruptContent``."""
        return await self.reader(item_id).load()

    def reader(self, item_id: str) -> ContentReader:
        """Return a reader of an item's stored content, or of what has come of it so far. Raises ``UnknownItem``."""
        self._opened()
        if item_id in self._growing:
            return self._growing[item_id].reader()
        return ContentReader(self._store, self._stored_of(item_id), indexes=self._indexes)

    async def verify(self) -> VerifyReport:
        """Check every stored content against its digest, and the index against the journal."""
        return await verify(self._store, tuple(self._state.stored.values()), self._recovery.damages)

    # ---- small things

    def _stored_of(self, item_id: str) -> Stored:
        try:
            return self._state.stored[item_id]
        except KeyError:
            raise UnknownItem(item_id) from None

    def _opened(self) -> SessionLog:
        if self._session is None:
            raise SessionClosed(f"session {self._session_id} is not open: use `async with`, or await open()")
        return self._session

    def _writer(self) -> SessionLog:
        if self._read_only:
            raise SessionClosed(f"session {self._session_id} is open for reading only")
        return self._opened()
