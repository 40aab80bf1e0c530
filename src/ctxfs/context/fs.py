"""The session's file system: what leaves the context is durable here first, and can be read back exactly.

Follows "Context FileSystem 上下文卸载功能". One object is one session; it has one writer, and any number of readers.
"""

import logging
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import anyio

from ctxfs.context.content import ContentReader
from ctxfs.context.encoding import BlockIndex, ContentFile, IndexChunks, index_name
from ctxfs.context.index import INDEX_NAME, parse_index, render_index
from ctxfs.context.items import ContextItem, ItemType
from ctxfs.context.journal import SessionState, encode_line, fold, scan
from ctxfs.context.layout import ENVELOPE, TEXT, Layout, Names, check_session_id, new_session_id
from ctxfs.context.records import (
    CallMade,
    Closed,
    ItemAdded,
    Record,
    Removed,
    Replaced,
    Restored,
    SessionStarted,
    Stored,
    WriterOpened,
    with_content,
)
from ctxfs.context.recovery import Recovery, examine
from ctxfs.errors import ConfigError, CtxfsError, NotStored, SessionClosed, StorageError, UnknownItem, WriteFailed
from ctxfs.llm.base import Usage
from ctxfs.llm.messages import Content, ToolMessage
from ctxfs.storage.base import NewFile, Store
from ctxfs.storage.local import LocalStore, default_root, list_sessions, remove_session

__all__ = ["ContextFileSystem", "Problem", "VerifyReport", "default_root", "list_sessions", "remove_session"]

INDEX_MIN_CHANGES = 32
INDEXES_KEPT = 16

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that ``verify`` found: the file's name and what is wrong with it."""

    name: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The outcome of ``verify``: how many contents were checked, and every problem found."""

    checked: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether everything is as it was written."""
        return not self.problems


class _Ticket:
    """One caller's commit: files to write, and the records that follow from them."""

    __slots__ = ("done", "error", "files", "make", "records")

    def __init__(self, files: Sequence[NewFile], make: Callable[[], list[Record]]) -> None:
        self.files = files
        self.make = make
        self.records: list[Record] = []
        self.error: BaseException | None = None
        self.done = False


class ContextFileSystem:
    """A session on disk: ``<root_path>/{session_id}``.

    ``session_id`` None starts a new session. ``root_path`` None is ``default_root()``. ``layout`` applies to new
    sessions; a session keeps the layout it was started with. ``store`` replaces the local disk. ``clock`` gives seconds
    since the epoch. Content of more than ``inline_limit_chars`` characters goes to its file when its item is added,
    other content stands in the journal. ``read_only`` takes no lock and writes nothing.
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
        root = default_root() if root_path is None else Path(root_path).expanduser()
        # Not resolved: links in the root are the user's.
        self._root = Path(os.path.normpath(root if root.is_absolute() else Path.cwd() / root))
        self._store: Store = LocalStore(self._root, session_id) if store is None else store
        self._layout = layout
        self._clock = clock
        self._inline_limit_chars = inline_limit_chars
        self._read_only = read_only
        self._state = SessionState()
        self._names = Names(layout=layout)
        self._seq = 0
        self._log_end = 0
        self._recovery = Recovery()
        self._open = False
        self._queue: list[_Ticket] = []
        self._turn = anyio.Lock()
        self._index_seq = 0
        self._index_size = 0
        self._block_indexes: dict[str, BlockIndex] = {}

    # ---- what it is

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._session_id

    @property
    def session_path(self) -> Path:
        """The session's directory, absolute."""
        return self._root / self._session_id

    @property
    def is_open(self) -> bool:
        """Whether the session is open."""
        return self._open

    @property
    def layout(self) -> Layout:
        """Where contents go and in which form."""
        return self._layout

    @property
    def recovery(self) -> Recovery:
        """What opening the session had to repair."""
        return self._recovery

    @property
    def calls(self) -> tuple[CallMade, ...]:
        """The model calls that were recorded, in order."""
        return tuple(self._state.calls)

    def archive_of(self, item_id: str) -> str | None:
        """Return the item whose content holds this item's, when it left in an archive; None otherwise."""
        return self._state.archived.get(item_id)

    def stored(self) -> Mapping[str, Stored]:
        """Return what is durable, by item id; a view that grows."""
        return MappingProxyType(self._state.stored)

    def claim(self, item_type: ItemType, raw_id: str | None, tool_name: str | None = None) -> tuple[str, str]:
        """Return a new item's id and the name of its file; see ``Names.claim``."""
        self._check_open()
        return self._names.claim(item_type, raw_id, tool_name)

    def path_of(self, name: str) -> str:
        """Return the absolute path of a file of this session."""
        return str(self.session_path / name)

    def item_of_path(self, path: str) -> str | None:
        """Return the item whose content is stored under ``path``; None when this session stored nothing there.

        ``path`` is absolute, or a name relative to the session. Places where the session lay before count too.
        """
        for base in (str(self.session_path), *self._state.paths):
            if path.startswith(base + "/"):
                path = path[len(base) + 1 :]
                break
        return self._state.by_name.get(path)

    # ---- opening and closing

    async def open(self, *, create: bool = True) -> None:
        """Open the session, and make it when it is not there and ``create`` is true.

        Raises ``SessionLocked``, ``SessionNotFound``, ``UnsafePath``, ``ConfigError`` and ``WriteFailed``.
        """
        if self._open:
            return
        await self._store.open(create=create and not self._read_only, write=not self._read_only)
        try:
            await self._recover()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._store.close()
            raise
        self._open = True

    async def _recover(self) -> None:
        found = await examine(self._store)
        self._state, self._seq, self._log_end = found.state, found.last_seq, found.log_end
        self._recovery = found.recovery
        if found.state.layout is not None:
            self._layout = TEXT if found.state.layout == TEXT.name else ENVELOPE
        records: list[Record] = [*found.adopt]
        if found.new:
            rebuilt = found.recovery.rebuilt_journal
            started = SessionStarted(
                session_id=self._session_id, started_at=self._clock(), layout=self._layout.name, rebuilt=rebuilt
            )
            records.insert(0, started)
        if self._read_only:
            fold(self._state, records)
        else:
            opened = WriterOpened(epoch=found.state.epoch + 1, path=str(self.session_path), opened_at=self._clock())
            if found.recovery.cut_bytes:
                await self._store.truncate_log(found.log_end)
            await self._write_one(_Ticket([], lambda: [*records, opened]))
            await self._write_index()
        self._names = Names([*self._state.ids], layout=self._layout)

    async def close(self) -> None:
        """Write the index, note the end in the journal and release the session; idempotent."""
        if not self._open:
            return
        with anyio.CancelScope(shield=True):
            try:
                if not self._read_only:
                    await self._commit([], lambda: [Closed(closed_at=self._clock())])
                    await self.flush()
            finally:
                self._open = False
                await self._store.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def refresh(self) -> None:
        """Take in what the session's writer appended since; for readers."""
        self._check_open()
        log = scan(await self._store.read_log(self._log_end), last_seq=self._seq, offset=self._log_end)
        fold(self._state, log.records)
        self._seq, self._log_end = log.last_seq, log.end

    # ---- writing

    async def add(self, items: Sequence[ContextItem], *, before: str | None = None) -> None:
        """Record items that join the context, before the item ``before`` (None: at the end); all of them, or none."""
        files = {item.id: self._file_for(item) for item in items if self._is_large(item)}

        def records() -> list[Record]:
            made: list[Record] = []
            for item in items:
                file = files.get(item.id)
                if file is not None:
                    made.append(file.stored)
                made.append(self._added(item, content_stored=file is not None, before=before))
            return made

        await self._commit(_new_files(files.values()), records)

    async def store(self, items: Sequence[ContextItem]) -> None:
        """Make the contents of items durable; those that are already cost nothing."""
        files = [self._file_for(item) for item in items if self._must_store(item)]
        if files:
            await self._commit(_new_files(files), lambda: [file.stored for file in files])

    async def replace(self, items: Sequence[ContextItem], *, reason: str) -> None:
        """Record that items stand in the context in a new form, their placeholders; contents are stored already."""
        await self._commit([], lambda: [self._replaced(item, reason) for item in items])

    async def evict(self, steps: Sequence[tuple[ContextItem, ContextItem, str]]) -> None:
        """Store the contents of old items and record the new ones in their place, in one commit.

        A step is the old item, the new one and the reason. An item that only repeats lines of stored content
        (``source``) is not stored a second time.
        """
        files = [self._file_for(old) for old, _, _ in steps if old.source is None and self._must_store(old)]

        def records() -> list[Record]:
            replaced: list[Record] = [self._replaced(new, reason) for _, new, reason in steps]
            return [*(file.stored for file in files), *replaced]

        await self._commit(_new_files(files), records)

    async def remove(self, item_ids: Sequence[str], *, reason: str) -> None:
        """Record that items left the context; what was stored of them stays."""
        await self._commit([], lambda: [Removed(item_ids=tuple(item_ids), reason=reason)])

    async def archive(
        self, item: ContextItem, content: str, item_ids: Sequence[str], *, before: str | None, reason: str
    ) -> None:
        """Store ``content`` as the content of ``item``, which joins the context in the place of ``item_ids``.

        ``before`` is the item that follows it, None at the end. One commit: all of it happens, or nothing.
        """
        file = self._file_for(replace(item, message=with_content(item.message, content)))

        def records() -> list[Record]:
            added = self._added(item, content_stored=False, before=before)
            return [file.stored, added, Removed(item_ids=tuple(item_ids), reason=reason, archive=item.id)]

        await self._commit(_new_files([file]), records)

    async def restore(self, item_id: str, *, reason: str = "") -> None:
        """Record that an item's stored content is back in the context. Raises ``UnknownItem``."""
        self._stored_of(item_id)
        await self._commit([], lambda: [Restored(item_id=item_id, reason=reason)])

    async def record_call(self, usage: Usage, model: str, *, counted_tokens: int = 0) -> None:
        """Record that the model was called on the context as it stands; ``counted_tokens`` is our own count."""
        number = len(self._state.calls) + 1
        call = CallMade(number=number, usage=usage, model=model, counted_tokens=counted_tokens)
        await self._commit([], lambda: [call])

    async def offload(self, item: ContextItem) -> str:
        """Make an item's content durable and return the absolute path of its file."""
        await self.store([item])
        return self.path_of(self._stored_of(item.id).name)

    def _must_store(self, item: ContextItem) -> bool:
        return item.id not in self._state.stored and not item.offloaded

    def _is_large(self, item: ContextItem) -> bool:
        return (
            self._must_store(item) and item.source is None and _chars(item.message.content) > self._inline_limit_chars
        )

    def _file_for(self, item: ContextItem) -> ContentFile:
        return ContentFile(
            item.message.content,
            item_id=item.id,
            item_type=item.item_type,
            name=item.name,
            raw=self._layout.raw,
            offloaded_at=int(self._clock()),
            extra=_metadata(item),
        )

    def _added(self, item: ContextItem, *, content_stored: bool, before: str | None) -> ItemAdded:
        item = self._relative(item)
        if content_stored:
            item = replace(item, message=with_content(item.message, ""))
        return ItemAdded(item=item, content_stored=content_stored, before=before)

    def _replaced(self, item: ContextItem, reason: str) -> Replaced:
        item = self._relative(item)
        content = item.message.content
        if not isinstance(content, str):
            raise ConfigError(f"item {item.id}: a placeholder is text")
        return Replaced(
            item_id=item.id,
            content=content,
            token_count=item.token_count,
            path=item.offload_path,
            destroyed=item.destroyed,
            reason=reason,
        )

    # ---- commits

    async def _commit(self, files: Sequence[NewFile], make: Callable[[], list[Record]]) -> None:
        """Write ``files`` and record what follows, together with whoever waits at the same time."""
        self._check_writer()
        ticket = _Ticket(files, make)
        self._queue.append(ticket)
        try:
            async with self._turn:
                if not ticket.done:
                    await self._write_queue()
        except BaseException:
            if ticket in self._queue:
                self._queue.remove(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error

    async def _write_queue(self) -> None:
        tickets, self._queue = self._queue, []
        try:
            await self._write(tickets)
        except CtxfsError as error:
            if len(tickets) == 1:
                tickets[0].error = error
                tickets[0].done = True
            else:  # each on its own: one caller's failure is not another's
                for ticket in tickets:
                    await self._write_alone(ticket)
        await self._write_index_if_due()

    async def _write_alone(self, ticket: _Ticket) -> None:
        try:
            await self._write([ticket])
        except CtxfsError as error:
            ticket.error = error
            ticket.done = True

    async def _write_one(self, ticket: _Ticket) -> None:
        await self._write([ticket])

    async def _write(self, tickets: Sequence[_Ticket]) -> None:
        written = 0

        def log() -> bytes:
            nonlocal written
            lines = []
            for number, ticket in enumerate(tickets, self._seq + 1):
                ticket.records = ticket.make()
                lines.append(encode_line(number, ticket.records))
            data = b"".join(lines)
            written = len(data)
            return data

        await self._store.commit([file for ticket in tickets for file in ticket.files], log)
        self._seq += len(tickets)
        self._log_end += written
        for ticket in tickets:
            fold(self._state, ticket.records)
            ticket.done = True

    # ---- the index

    async def flush(self) -> None:
        """Write the index. Raises ``WriteFailed``."""
        self._check_writer()
        if self._index_seq != self._seq:
            await self._write_index()

    async def _write_index_if_due(self) -> None:
        changes = len(self._state.stored) - self._index_size
        if changes < max(INDEX_MIN_CHANGES, self._index_size // 2):
            return
        try:
            await self._write_index()
        except WriteFailed as error:  # a cache: the journal has it all, and flush and close try again
            logger.warning("the index of session %s was not written: %s", self._session_id, error)

    async def _write_index(self) -> None:
        seq, entries = self._seq, list(self._state.stored.values())
        await self._store.replace(INDEX_NAME, render_index(self._session_id, seq, entries))
        self._index_seq, self._index_size = seq, len(entries)

    # ---- reading

    async def items(self) -> tuple[ContextItem, ...]:
        """Return what is in the context as the journal says, contents loaded and paths absolute."""
        self._check_open()
        return tuple([await self._loaded(item) for item in tuple(self._state.items.values())])

    async def _loaded(self, item: ContextItem) -> ContextItem:
        if item.id in self._state.content_stored:
            item = replace(item, message=with_content(item.message, await self.load(item.id)))
        return self._absolute(item)

    async def load(self, item_id: str) -> Content:
        """Return an item's stored content, exactly. Raises ``UnknownItem``, ``NotStored`` and ``CorruptContent``."""
        return await self.reader(item_id).load()

    def reader(self, item_id: str) -> ContentReader:
        """Return a reader of an item's stored content. Raises ``UnknownItem``."""
        self._check_open()
        return ContentReader(self._store, self._stored_of(item_id))

    async def verify(self) -> VerifyReport:
        """Check every stored content against its digest, and the index against the journal."""
        self._check_open()
        entries = tuple(self._state.stored.values())
        problems = [Problem(name="journal.jsonl", detail=damage.reason) for damage in self._recovery.damages]
        for entry in entries:
            try:
                await ContentReader(self._store, entry).load()
            except (StorageError, NotStored) as error:
                problems.append(Problem(name=entry.name, detail=str(error)))
        problems.extend(await self._verify_index())
        return VerifyReport(checked=len(entries), problems=tuple(problems))

    async def _verify_index(self) -> list[Problem]:
        try:
            index = parse_index(await self._store.read(INDEX_NAME))
        except (NotStored, ValueError) as error:
            return [Problem(name=INDEX_NAME, detail=f"{error}: opening the session for writing rebuilds it")]
        log = scan(await self._store.read_log())
        known = fold(SessionState(), log.records).stored
        return [
            Problem(name=INDEX_NAME, detail=f"it contradicts the journal about {item_id}")
            for item_id, entry in index.items.items()
            if known.get(item_id) != entry
        ]

    # ---- small things

    def _stored_of(self, item_id: str) -> Stored:
        try:
            return self._state.stored[item_id]
        except KeyError:
            raise UnknownItem(item_id) from None

    def _relative(self, item: ContextItem) -> ContextItem:
        prefix = f"{self.session_path}/"
        path = item.offload_path
        if path is None or not path.startswith(prefix):
            return item
        return _moved(item, path[len(prefix) :])

    def _absolute(self, item: ContextItem) -> ContextItem:
        path = item.offload_path
        return item if path is None or path.startswith("/") else _moved(item, self.path_of(path))

    def _check_open(self) -> None:
        if not self._open:
            raise SessionClosed(f"session {self._session_id} is not open: use `async with`, or await open()")

    def _check_writer(self) -> None:
        self._check_open()
        if self._read_only:
            raise SessionClosed(f"session {self._session_id} is open for reading only")


def _moved(item: ContextItem, path: str) -> ContextItem:
    message = item.message
    if isinstance(message, ToolMessage) and message.offload_path is not None:
        message = replace(message, offload_path=path)
    return replace(item, message=message, offload_path=path)


def _new_files(files: Iterable[ContentFile]) -> list[NewFile]:
    made: list[NewFile] = []
    for file in files:
        made.append(NewFile(name=file.name, chunks=file))
        if file.wants_index:
            made.append(NewFile(name=index_name(file.name), chunks=IndexChunks(file), derived=True))
    return made


def _metadata(item: ContextItem) -> dict[str, Any]:
    data: dict[str, Any] = {}
    message = item.message
    if isinstance(message, ToolMessage):
        data["tool_name"] = message.tool_name
        if message.tool_call_id != item.id:
            data["tool_call_id"] = message.tool_call_id
        if message.is_error:
            data["is_error"] = True
    if item.label is not None:
        data["label"] = item.label
    return data


def _chars(value: Any) -> int:
    """Estimate the length of a content, without encoding it."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(key) + _chars(entry) for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return sum(_chars(entry) for entry in value)
    return 8
