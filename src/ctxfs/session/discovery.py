"""Files of a session that its journal does not know: orphans of the session, or foreign files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from ctxfs.errors import CtxfsError
from ctxfs.messages.items import ItemType
from ctxfs.messages.names import ARTIFACTS, COMPRESSED_SUFFIX, ENVELOPE, TERMINAL, TEXT, is_compressed
from ctxfs.session.content.blocks import INDEX_SUFFIX, is_block_index, text_lines
from ctxfs.session.content.compression import ZSTD, first_frame
from ctxfs.session.content.file import trailer_of
from ctxfs.session.content.reader import ContentReader, scan_blocks
from ctxfs.session.content.stored import Stored
from ctxfs.session.field_types import check_types
from ctxfs.session.index import Index
from ctxfs.session.state import SessionState
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.text.jsontext.tokens import JsonTokens

HEADER_WINDOW = 1 << 20


async def unknown_files(
    store: ThreadedStore, state: SessionState, index: Index | None, names: list[str]
) -> tuple[list[Stored], list[str]]:
    """Sort the files that the journal does not know into orphans, which are ours, and foreign ones."""
    # Each file is one of four cases:
    # - known: the journal names it, or it is the block index of a content;
    # - an orphan: a whole content that was never acknowledged, or whose record was lost. It is adopted;
    # - ours by its form, but in contradiction to what the journal says about its item: foreign;
    # - anything else, or unreadable: foreign.
    indexed = {} if index is None else {entry.name: entry for entry in index.items.values()}
    adopt: list[Stored] = []
    foreign: list[str] = []
    present = set(names)
    contents = present | state.by_name.keys()  # also those whose file is missing
    # On file systems that ignore case, a directory is listed as its first user spelled it.
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
    return is_block_index(name) and name.removesuffix(INDEX_SUFFIX) in contents


async def _fits(store: ThreadedStore, state: SessionState, entry: Stored) -> bool:
    """Whether the file can be the content of its id: it must not contradict what the journal says about the item."""
    if entry.item_id in state.stored:
        return False
    item = state.items.get(entry.item_id)
    if item is None:
        return True
    if item.name != entry.name:
        return False
    if item.offload_path is not None or item.id in state.content_stored:
        return True  # the journal does not have the content
    return await ContentReader(store, entry).load() == item.message.content


async def _describe(store: ThreadedStore, name: str, indexed: Stored | None) -> Stored | None:
    """What a file is, by the index or by the file itself; None if it is not one of ours."""
    try:
        if indexed is not None and (await scan_blocks(store, indexed)).root == indexed.digest:
            return indexed
        if name.startswith(ARTIFACTS):
            return await measure(store, await _parse_artifact(store, name))
        parse = _PARSERS.get(PurePosixPath(_plain(name)).suffix)
        if parse is None:
            return None
        return await measure(store, await parse(store, name))
    except (CtxfsError, ValueError, KeyError, TypeError):
        return None


def _plain(name: str) -> str:
    """The name that the file would have if it was not compressed."""
    return name.removesuffix(COMPRESSED_SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDraft:
    """What a file's name and its frame tell; the rest is measured from its content."""

    item_id: str
    item_type: ItemType
    name: str
    content_offset: int
    content_length: int
    raw: bool
    offloaded_at: int
    metadata: Mapping[str, Any]
    compression: str = ""

    def stored(self, encoding: str) -> Stored:
        """What is known about the content if ``encoding`` is how it became bytes; nothing is measured yet."""
        entry = Stored(
            item_id=self.item_id,
            item_type=self.item_type,
            name=self.name,
            encoding=encoding,
            size_bytes=0,
            chars=0,
            lines=0,
            digest="",
            blocks=0,
            content_offset=self.content_offset,
            content_length=self.content_length,
            raw=self.raw,
            offloaded_at=self.offloaded_at,
            metadata={**self.metadata, "encoding": encoding},
            compression=self.compression,
        )
        check_types(entry)  # the values in an envelope may be anything
        return entry


async def _parse_envelope(store: ThreadedStore, name: str) -> StoredDraft:
    compression = ZSTD if is_compressed(name) else ""
    head, offset = _parse_start(await store.read(name, 0, HEADER_WINDOW), compression)
    encoding = str(head["metadata"]["encoding"])
    trailer = trailer_of(encoding, raw=False, compression=compression)
    end = await store.size(name) - len(trailer)
    if await store.read(name, end) != trailer:
        raise ValueError("it does not end like an envelope")
    item_id = str(head["item_id"])
    if PurePosixPath(_plain(name)).name != item_id + ENVELOPE.extension:
        raise ValueError("the envelope is another item's")
    return StoredDraft(
        item_id=item_id,
        item_type=ItemType(head["item_type"]),
        name=name,
        content_offset=offset,
        content_length=end - offset,
        raw=False,
        offloaded_at=int(head["offloaded_at"]),
        metadata=head["metadata"],
        compression=compression,
    )


def _parse_start(data: bytes, compression: str) -> tuple[dict[str, Any], int]:
    """Read the start of an envelope's file: its keys, and where its content starts. Raises ValueError."""
    if not compression:
        return parse_header(data)
    found = first_frame(data, HEADER_WINDOW)
    if found is None:
        raise ValueError("its first frame is cut off")
    head, end = parse_header(found[0])
    if end != len(found[0]):
        raise ValueError("its first frame is not the head of an envelope")
    return head, found[1]


async def _parse_text(store: ThreadedStore, name: str) -> StoredDraft:
    parts = PurePosixPath(_plain(name)).parts
    metadata = {"tool_name": parts[1]} if len(parts) > 2 else {}
    return await _raw_draft(store, name, parts[-1].removesuffix(TEXT.extension), ItemType(parts[0]), metadata)


async def _parse_artifact(store: ThreadedStore, name: str) -> StoredDraft:
    """A tool's output; it is ``partial`` if the command had not ended."""
    metadata = {"partial": True} if name.startswith(TERMINAL) else {}
    return await _raw_draft(store, name, PurePosixPath(name).stem, ItemType.TOOL_RESULT, metadata)


async def _raw_draft(
    store: ThreadedStore, name: str, item_id: str, item_type: ItemType, metadata: Mapping[str, Any]
) -> StoredDraft:
    return StoredDraft(
        item_id=item_id,
        item_type=item_type,
        name=name,
        content_offset=0,
        content_length=await store.size(name),
        raw=True,
        offloaded_at=0,
        metadata=metadata,
        compression=ZSTD if is_compressed(name) and not name.startswith(ARTIFACTS) else "",
    )


_PARSERS = {ENVELOPE.extension: _parse_envelope, TEXT.extension: _parse_text}


async def measure(store: ThreadedStore, draft: StoredDraft) -> Stored:
    """What is stored in the file of ``draft``. Raises ValueError or ``CtxfsError`` when the content does not decode."""
    if not draft.raw:
        return await _measured(store, draft.stored(draft.metadata["encoding"]))
    try:
        return await _measured(store, draft.stored("text"))
    except (CtxfsError, ValueError):
        return await _measured(store, draft.stored("bytes"))


async def _measured(store: ThreadedStore, entry: Stored) -> Stored:
    """Fill in what only the content tells; all of it is read, and must decode."""
    index = await scan_blocks(store, entry)
    entry = replace(entry, size_bytes=index.size_bytes, digest=index.root, blocks=index.count)
    chars = 0
    newlines = 0
    last = ""
    async for text in ContentReader(store, entry).text_blocks():
        chars += len(text)
        newlines += text.count("\n")
        last = text or last
    if entry.encoding == "bytes":
        chars = entry.size_bytes
    lines = text_lines(newlines, ends_open=bool(last) and not last.endswith("\n"))
    return replace(entry, chars=chars, lines=lines)


def parse_header(data: bytes) -> tuple[dict[str, Any], int]:
    """Read an envelope up to its content: the keys before it, and where the content's encoded form starts.

    Raises ValueError when the bytes are no envelope of ours.
    """
    text = data.decode("utf-8", "surrogateescape")
    if not text.startswith("{"):
        raise ValueError("not an envelope")
    tokens = JsonTokens(text)
    decoder = json.JSONDecoder()
    head: dict[str, Any] = {}
    entry = tokens.first(0)
    while entry is not None:
        key, end = decoder.raw_decode(text, entry)
        if not isinstance(key, str):
            raise tokens.fault("expected a string", entry)
        value = tokens.after_key(end)
        if key == "content":
            value += text[value : value + 1] == '"'
            return head, len(text[:value].encode("utf-8", "surrogateescape"))
        head[key], end = decoder.raw_decode(text, value)
        entry = tokens.following(0, end)
    raise ValueError("an envelope without a content")
