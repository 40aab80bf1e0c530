"""Everything that was ever in a session, item by item, with the call that first carried it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ctxfs.messages.items import ItemType
from ctxfs.messages.messages import Block, Content, readable_text, text_with
from ctxfs.session.content.stored import Stored
from ctxfs.session.records import CallMade, ContentRemoved, Decided, ItemAdded, Record, Removed
from ctxfs.session.timeline.lives import Lives
from ctxfs.text.jsontext import codec as json_codec

RECALL_TOOLS = frozenset({"history_search", "history_read", "history_calls", "context_query", "context_status", "note"})
"""The tools of this package: their results repeat what was in the session before, and are not searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastItem:
    """Something that was in the session.

    ``call``: the model call that first carried it, or whose reply it is; the first is 1. ``text``: its content as
    lines; None: it is in its file. ``left_after``: the last call that carried its content whole; None: it is still in
    the context. ``tokens``: the size of the content; 0: not known.
    """

    item_id: str
    item_type: ItemType
    tool_name: str | None
    call: int
    text: str | None
    tokens: int = 0
    left_after: int | None = None

    @property
    def name(self) -> str:
        """What it is, for the model."""
        return f"{self.item_type.value} of {self.tool_name}" if self.tool_name else self.item_type.value


class Past:
    """The items of a journal, in the order in which they came; ``take`` adds those of new records."""

    def __init__(self) -> None:
        self.items: dict[str, PastItem] = {}
        self._lives = Lives()
        self.prompt_tokens = 0
        """The tokens of the last request, by our own count; 0: not known."""
        self.erased = 0
        """How many contents were erased for good; a text that is kept elsewhere may come from one of them."""
        self._hidden: set[str] = set()

    @property
    def calls(self) -> int:
        """How often the model was called."""
        return len(self._lives.calls)

    def take(self, records: Iterable[Record]) -> None:
        """Take in the next records."""
        for record in records:
            step = self._lives.take(record)
            match record:
                case ItemAdded(returned=False):
                    self._add(record)
                case Stored():
                    self._store(record)
                case Removed():
                    self._hide_archive(record)
                case Decided():
                    self._decided(record)
                case CallMade(summary=False):
                    self.prompt_tokens = record.counted_tokens
                case ContentRemoved(erased=True):
                    self._erase(record.item_id)
            for change in step.changes:
                self._follow(change.item_id)

    def _add(self, record: ItemAdded) -> None:
        item = record.item
        if item.source is not None or item.tool_name in RECALL_TOOLS:
            self._hide(item.id)
            return
        stored = self.items.get(item.id)
        in_file = record.content_stored or (stored is not None and item.offloaded)
        self._hidden.discard(item.id)
        self.items.pop(item.id, None)  # so that its place is where it was added
        self.items[item.id] = PastItem(
            item_id=item.id,
            item_type=item.item_type,
            tool_name=item.tool_name,
            call=self._lives.lives[item.id].entered,
            text=None if in_file else content_text(item.message.content),
            tokens=item.content_tokens,
        )

    def _store(self, record: Stored) -> None:
        """A stored content of an unknown item: the output of a running command, or a part of a framework's history."""
        if record.item_id in self.items or record.item_id in self._hidden or record.tool_name in RECALL_TOOLS:
            return
        if record.item_type is ItemType.COMPACTION_SUMMARY:  # an archive, whose items are all known by themselves
            return
        self.items[record.item_id] = PastItem(
            item_id=record.item_id,
            item_type=record.item_type,
            tool_name=record.tool_name,
            call=self.calls + 1,
            text=None,
        )

    def _hide_archive(self, record: Removed) -> None:
        archive = self.items.get(record.archive or "")
        if archive is not None and archive.text is None:
            self._hide(archive.item_id)

    def _decided(self, record: Decided) -> None:
        """A part left a framework's history; only now is it known that it was there, and since when."""
        item = self.items.get(record.item_id)
        if item is not None and item.left_after is None:
            entered = self._lives.lives[record.item_id].entered
            self.items[item.item_id] = replace(item, call=entered, tokens=item.tokens or record.tokens_before)

    def _follow(self, item_id: str) -> None:
        """Take over from the item's life whether it is in the context."""
        item = self.items.get(item_id)
        if item is not None:
            left = self._lives.lives[item_id].left
            self.items[item_id] = replace(item, left_after=None if left is None else left.after_call)

    def _erase(self, item_id: str) -> None:
        self.erased += 1
        if item_id in self.items:
            self.items[item_id] = replace(self.items[item_id], text=None)  # and its file says that it is gone

    def _hide(self, item_id: str) -> None:
        self._hidden.add(item_id)
        self.items.pop(item_id, None)

    def of_calls(self, first: int, last: int) -> list[PastItem]:
        """The items that the calls ``first`` to ``last`` brought: what was new in each request, and its reply."""
        return [item for item in self.items.values() if first <= item.call <= last]


def content_text(content: Content) -> str:
    """The lines in which a content is searched and read: its text, and the calls that a reply made."""
    return text_with(content, _block_text)


def _block_text(block: Block) -> str:
    if block["type"] == "tool_use":
        name = block.get("name")
        if name in RECALL_TOOLS:
            return ""
        return f"{name}({_arguments(block.get('input'))})"
    if block["type"] in ("thinking", "reasoning"):
        return str(block.get("thinking") or block.get("text") or "")
    return readable_text((block,))


def _arguments(arguments: object) -> str:
    """A call's arguments; texts of several lines keep their lines."""
    if not isinstance(arguments, Mapping):
        return ""
    shown: list[str] = []
    for name, value in arguments.items():
        is_lines = isinstance(value, str) and "\n" in value
        shown.append(f"{name}={value if is_lines else json_codec.dumps_text(value)}")
    return ", ".join(shown)
