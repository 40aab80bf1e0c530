"""Everything that a session holds, in a list: the items in its context, and contents that are only stored.

The items in an archive are among them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ctxfs.errors import ConfigError, UnknownItem
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import Content
from ctxfs.session.archive import archived_items
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.item_records import absolute
from ctxfs.session.records import Decided
from ctxfs.storage.threads import run_in_steps

Place = Literal["context", "file", "removed", "archive"]
"""Where an item's content is; see ``Entry``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An item of a session, in its context or not.

    ``place``: "context" (its content is there), "file" (it was evicted to its file), "removed" (only its file is left)
    or "archive" (it was archived, with others). ``tokens`` is its size in the context now,
    ``content_tokens`` that of its content; None: not known. ``damaged``: what is wrong with its content's file.
    For a part of a history that a framework owns, ``tokens`` is the size of its replacement.
    """

    item_id: str
    item_type: ItemType
    tool_name: str | None
    place: Place
    tokens: int
    content_tokens: int | None
    item: ContextItem | None
    stored: Stored | None
    damaged: str | None = None

    @property
    def partial(self) -> bool:
        """Whether the end of a tool's output is missing: its command had not ended, or a host cut it."""
        return self.stored is not None and self.stored.missing != ""


async def entries(fs: ContextFileSystem) -> list[Entry]:
    """Everything that the session holds: its context in order, then contents that are only stored.

    Contents of a history that a framework owns are in its order, if its bills were recorded; else in that of storing.
    Damaged contents of the context are known once they have been read; see ``ContextFileSystem.items``.
    """
    stored = fs.state.stored
    found = {item.id: entry_of(item, stored.get(item.id)) for item in await fs.items(load=False)}
    decided: dict[str, list[Decided]] = {}
    if not found:  # else what replaces a content is in an item of the context, and counted there
        for decision in fs.state.decisions:
            decided.setdefault(decision.item_id, []).append(decision)
    outside: list[Entry] = []
    for item_id, content in stored.items():
        if item_id not in found:
            outside.append(_outside(content, decided.get(item_id, ())))
    if fs.state.is_elsewhere and fs.state.calls:
        places = fs.state.places
        outside.sort(key=lambda entry: places.get(entry.item_id, len(fs.state.calls)))
    listed = [*found.values(), *outside]
    damaged = {content.item_id: content.detail for content in fs.recovery.contents}
    return [replace(entry, damaged=damaged.get(entry.item_id)) for entry in listed]


def inline_content(entry: Entry) -> Content:
    """The content of an item of which nothing is stored.

    Raises:
        ConfigError: the item only repeats lines of another one.
    """
    item = entry.item
    assert item is not None, "what is not stored is in the context, or was in an archive"
    source = item.source
    if item.offloaded and source is not None:
        lines = f"{source.first_line} to {source.last_line}"
        raise ConfigError(f"{item.id} only repeats lines {lines} of {source.item_id}: read those of {source.item_id}")
    return item.message.content


def entry_of(item: ContextItem, stored: Stored | None) -> Entry:
    """The entry of an item of the context; ``stored``: what is stored of it, if anything is."""
    return Entry(
        item_id=item.id,
        item_type=item.item_type,
        tool_name=item.tool_name,
        place="file" if item.offload_path is not None else "context",
        tokens=item.token_count,
        content_tokens=item.content_tokens,
        item=item,
        stored=stored,
    )


def _outside(stored: Stored, decided: Sequence[Decided]) -> Entry:
    """The entry of a content that is only stored; ``decided``: its replacement in a framework's history."""
    return Entry(
        item_id=stored.item_id,
        item_type=stored.item_type,
        tool_name=stored.tool_name,
        place="file" if decided else "removed",
        tokens=sum(decision.tokens for decision in decided),
        content_tokens=sum(decision.tokens_before for decision in decided) if decided else None,
        item=None,
        stored=stored,
    )


async def archived(fs: ContextFileSystem, archive_id: str) -> tuple[ContextItem, ...]:
    """Return the items in an archive, in order, each exactly as it was when it was archived; paths are absolute.

    Reads the whole journal; an item whose lines in it are damaged is left out. Raises ``UnknownItem`` if there is no
    such archive, and ``CorruptContent``.
    """
    if archive_id not in fs.state.archived.values():
        raise UnknownItem(archive_id)
    records = await fs.history()
    archive = str(await fs.load(archive_id))
    items = await run_in_steps(lambda: archived_items(archive, archive_id, records))
    return tuple(absolute(item, fs.base) for item in items)
