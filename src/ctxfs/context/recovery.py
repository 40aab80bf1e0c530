"""What opening a session finds: a torn tail, damaged lines, files that the journal does not know, a lost index.

Nothing here writes: it says what is there and what is to be done, and is the same the second time.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from ctxfs.context import encoding as codec
from ctxfs.context.content import ContentReader, scan_blocks
from ctxfs.context.damaged import MISSING, DamagedContent
from ctxfs.context.index import INDEX_NAME, Index, parse_index
from ctxfs.context.items import ItemType
from ctxfs.context.journal import Damage, Scan, SessionState, fold, scan
from ctxfs.context.journal_types import check_types
from ctxfs.context.layout import ARTIFACTS, ENVELOPE, TERMINAL, TEXT
from ctxfs.context.records import Stored
from ctxfs.errors import CtxfsError, NotStored
from ctxfs.storage.base import Store
from ctxfs.storage.threads import run_to_completion

__all__ = ["Found", "Journal", "Recovery", "examine", "growing_logs", "move_aside", "read_journal"]

HEADER_WINDOW = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What opening a session had to repair; all empty after an orderly close.

    ``cut_bytes``: a torn last line, never acknowledged, was cut off. ``damages``: lines of the journal that are no
    records; they are skipped and stay where they are. ``adopted``: files that the journal did not know and that belong
    to it now. ``foreign``: files that are not ours, left alone; one that stood under an item's name is now called
    ``….foreign``. ``rebuilt_journal``, ``rebuilt_index``: they were lost or damaged. ``contents``: those whose
    files are missing and, once the items of the context were read, those of them that are damaged; the files are left
    alone, and one that is restored is found whole when the session is opened next.
    """

    cut_bytes: int = 0
    damages: tuple[Damage, ...] = ()
    adopted: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    rebuilt_journal: bool = False
    rebuilt_index: bool = False
    contents: tuple[DamagedContent, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether there was nothing to repair."""
        return self == Recovery()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A session as it was found. ``new``: there is nothing yet. ``adopt``: records that its journal lacks.

    ``in_the_way``: foreign files under names that belong to items of the context.
    """

    state: SessionState
    last_seq: int
    log_end: int
    new: bool
    adopt: tuple[Stored, ...] = ()
    in_the_way: tuple[str, ...] = ()
    recovery: Recovery = field(default_factory=Recovery)


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """A journal as it was read: the state that it adds up to, and where its lines end."""

    state: SessionState
    scan: Scan


async def read_journal(store: Store) -> Journal:
    """Read the whole journal, in a worker thread."""
    data = await store.read_log()

    def read() -> Journal:
        found = scan(data)
        return Journal(state=fold(SessionState(), found.records), scan=found)

    return await run_to_completion(read)


async def examine(store: Store, *, read_only: bool) -> Found:
    """Read a session and say what is in it, and what is wrong with it.

    A reader may look while the writer writes: for it a torn line and a file that is not in the journal yet are normal.
    What a command has printed so far is there for it.
    """
    journal = await read_journal(store)
    log, state = journal.scan, journal.state
    started = log.last_seq > 0
    if read_only and started:
        growing = await growing_logs(store, state)
        missing = _missing(state, await store.names())
        recovery = Recovery(damages=log.damages, contents=missing)
        return Found(state=state, last_seq=log.last_seq, log_end=log.end, new=False, adopt=growing, recovery=recovery)
    index, index_is_there = await _read_index(store)
    names = [name for name in await store.names() if name != INDEX_NAME]
    adopt, foreign = await _unknown_files(store, state, index, names)
    anything = bool(names) or index_is_there or bool(log.damages)
    recovery = Recovery(
        cut_bytes=log.torn_bytes,
        damages=log.damages,
        adopted=tuple(entry.name for entry in adopt),
        foreign=tuple(foreign),
        rebuilt_journal=not started and anything,
        rebuilt_index=started and (index is None or _contradicts(index, state)),
        contents=_missing(state, names),
    )
    claimed = {item.name for item in state.items.values() if item.id not in state.content_stored}
    return Found(
        state=state,
        last_seq=log.last_seq,
        log_end=log.end,
        new=not started,
        adopt=tuple(adopt),
        in_the_way=tuple(name for name in foreign if name in claimed),
        recovery=recovery,
    )


async def growing_logs(store: Store, state: SessionState) -> tuple[Stored, ...]:
    """Describe what commands have printed that the journal does not know of: they run, or their agent was killed.

    Each is described as it is at one moment; its file may have grown since.
    """
    adopt, _ = await _unknown_files(store, state, None, await store.names(TERMINAL))
    return tuple(adopt)


async def move_aside(store: Store, name: str) -> None:
    """Give a file that stands under an item's name another one; not a byte of it is lost."""
    await store.replace(f"{name}.foreign", await store.read(name))
    await store.delete([name])


def _missing(state: SessionState, names: list[str]) -> tuple[DamagedContent, ...]:
    """The contents that the journal knows and that have no file, however it is spelled where case does not count."""
    present = {name.casefold() for name in names}
    return tuple(
        DamagedContent(item_id=entry.item_id, name=entry.name, detail=MISSING)
        for entry in state.stored.values()
        if entry.name.casefold() not in present
    )


async def _read_index(store: Store) -> tuple[Index | None, bool]:
    """Read the index, None when it is missing or damaged; and tell whether its file is there."""
    try:
        data = await store.read(INDEX_NAME)
        return await run_to_completion(lambda: parse_index(data)), True
    except NotStored:
        return None, False
    except ValueError:
        return None, True


def _contradicts(index: Index, state: SessionState) -> bool:
    """Tell whether the index says what the journal does not; that it lags behind is normal."""
    return any(state.stored.get(item_id) != entry for item_id, entry in index.items.items())


async def _unknown_files(
    store: Store, state: SessionState, index: Index | None, names: list[str]
) -> tuple[list[Stored], list[str]]:
    """Sort the files that the journal does not know into ours, whole but never acknowledged or lost, and others."""
    indexed = {} if index is None else {entry.name: entry for entry in index.items.values()}
    adopt: list[Stored] = []
    foreign: list[str] = []
    present = set(names)
    contents = present | state.by_name.keys()  # also those whose file is missing
    # Where case does not count, a directory is listed as its first user spelled it.
    spelled_otherwise = {name.casefold() for name in state.by_name if name not in present}
    for name in names:
        if name in state.by_name or name.casefold() in spelled_otherwise or _is_index_of_another(name, contents):
            continue
        entry = await _describe(store, name, indexed.get(name))
        if entry is not None and await _fits(store, state, entry):
            adopt.append(entry)
        else:
            foreign.append(name)
    adopt.sort(key=lambda entry: (entry.offloaded_at, entry.name))
    return adopt, foreign


def _is_index_of_another(name: str, contents: set[str]) -> bool:
    return name.endswith(".idx") and name.removesuffix(".idx") in contents


async def _fits(store: Store, state: SessionState, entry: Stored) -> bool:
    """Tell whether the file can be the content of its id: it must not contradict what the journal says of it."""
    if entry.item_id in state.stored:
        return False
    item = state.items.get(entry.item_id)
    if item is None:
        return True
    if item.name != entry.name or item.offloaded or item.id in state.content_stored:
        return item.name == entry.name
    return await ContentReader(store, entry).load() == item.message.content


async def _describe(store: Store, name: str, indexed: Stored | None) -> Stored | None:
    try:
        if indexed is not None and (await scan_blocks(store, indexed)).root == indexed.digest:
            return indexed
        if name.startswith(ARTIFACTS):
            return await _describe_artifact(store, name)
        if name.endswith(ENVELOPE.extension):
            return await _describe_envelope(store, name)
        if name.endswith(TEXT.extension):
            return await _describe_text(store, name)
    except (CtxfsError, ValueError, KeyError, TypeError):
        return None  # not one of ours: reported as foreign
    return None


async def _describe_envelope(store: Store, name: str) -> Stored:
    head, offset = parse_header(await store.read(name, 0, HEADER_WINDOW))
    encoding = str(head["metadata"]["encoding"])
    trailer = b"}\n" if encoding == "blocks" else b'"}\n'
    end = await store.size(name) - len(trailer)
    if await store.read(name, end) != trailer:
        raise ValueError("it does not end like an envelope")
    entry = _unmeasured(
        name=name,
        item_id=str(head["item_id"]),
        item_type=ItemType(head["item_type"]),
        offloaded_at=int(head["offloaded_at"]),
        metadata=head["metadata"],
        content_offset=offset,
        content_length=end - offset,
        raw=False,
    )
    if PurePosixPath(name).name != entry.item_id + ENVELOPE.extension:
        raise ValueError("the envelope is another item's")
    return await _measured(store, entry)


async def _describe_text(store: Store, name: str) -> Stored:
    parts = PurePosixPath(name).parts
    metadata: dict[str, Any] = {"tool_name": parts[1]} if len(parts) > 2 else {}
    item_id = parts[-1].removesuffix(TEXT.extension)
    return await _describe_raw(store, name, item_id, ItemType(parts[0]), metadata)


async def _describe_artifact(store: Store, name: str) -> Stored:
    """A tool's output; that of a command which had not ended is ``partial``."""
    metadata = {"partial": True} if name.startswith(TERMINAL) else {}
    return await _describe_raw(store, name, PurePosixPath(name).stem, ItemType.TOOL_RESULT, metadata)


async def _describe_raw(
    store: Store, name: str, item_id: str, item_type: ItemType, metadata: Mapping[str, Any]
) -> Stored:
    entry = _unmeasured(
        name=name,
        item_id=item_id,
        item_type=item_type,
        offloaded_at=0,
        metadata={**metadata, "encoding": "text"},
        content_offset=0,
        content_length=await store.size(name),
        raw=True,
    )
    try:
        return await _measured(store, entry)
    except (CtxfsError, ValueError):
        metadata = {**metadata, "encoding": "bytes"}
        return await _measured(store, replace(entry, encoding="bytes", metadata=metadata))


def _unmeasured(
    *,
    name: str,
    item_id: str,
    item_type: ItemType,
    offloaded_at: int,
    metadata: Mapping[str, Any],
    content_offset: int,
    content_length: int,
    raw: bool,
) -> Stored:
    entry = Stored(
        item_id=item_id,
        item_type=item_type,
        name=name,
        encoding=metadata["encoding"],
        size_bytes=0,
        chars=0,
        lines=0,
        digest="",
        blocks=0,
        content_offset=content_offset,
        content_length=content_length,
        raw=raw,
        offloaded_at=offloaded_at,
        metadata=metadata,
    )
    check_types(entry)  # what an envelope says of itself may be anything
    return entry


async def _measured(store: Store, entry: Stored) -> Stored:
    """Fill in what only the content says; it is read whole, and must decode."""
    index = await scan_blocks(store, entry)
    entry = replace(entry, size_bytes=index.size_bytes, digest=index.root, blocks=index.count)
    chars, newlines, last = 0, 0, ""
    async for text in ContentReader(store, entry).text_blocks():
        chars += len(text)
        newlines += text.count("\n")
        last = text or last
    if entry.encoding == "bytes":
        chars = entry.size_bytes
    lines = codec.text_lines(newlines, ends_open=bool(last) and not last.endswith("\n"))
    return replace(entry, chars=chars, lines=lines)


def parse_header(data: bytes) -> tuple[dict[str, Any], int]:
    """Read an envelope up to its content: the keys before it, and where the content's encoded form starts.

    Raises ValueError when the bytes are no envelope of ours.
    """
    text = data.decode("utf-8", "surrogateescape")
    if not text.startswith("{"):
        raise ValueError("not an envelope")
    decoder = json.JSONDecoder()
    head: dict[str, Any] = {}
    position = 1
    while True:
        key, position = decoder.raw_decode(text, position)
        if not isinstance(key, str) or text[position : position + 1] != ":":
            raise ValueError("not an envelope")
        position += 1
        if key == "content":
            position += text[position : position + 1] == '"'
            return head, len(text[:position].encode("utf-8", "surrogateescape"))
        head[key], position = decoder.raw_decode(text, position)
        if text[position : position + 1] != ",":
            raise ValueError("not an envelope")
        position += 1
