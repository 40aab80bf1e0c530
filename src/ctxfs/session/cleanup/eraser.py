"""What has to be removed so that a content is nowhere in its session any more. Pure.

For an erased item, the journal's lines keep its identity, its size and its tokens, which sums of the session are made
of, and lose its content: its message, its placeholders and digests, and every checksum, which would reveal a short
content to whoever tries the possible ones. An archive keeps its place among the others. A reply keeps its calls without
arguments, so that the results after it still have a call.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.names import short_name
from ctxfs.session.cleanup.live import mentioned, text_of
from ctxfs.session.content.stored import Stored
from ctxfs.session.records import ContentRemoved, ItemAdded, NoteWritten, Record, Removed, Replaced, SessionStarted
from ctxfs.session.redaction import erased
from ctxfs.text.steps import checkpoint

_METADATA = frozenset({"encoding", "tool_name"})
_ACTIONS = ("original", "again", "rewritten")
_QUOTE_CHARS = 9
"""Shorter lines may be in any text, so they do not count as quotes."""
_WORD_CHARS = 12
_QUOTES = 500


@dataclass(slots=True)
class Held:
    """What a journal says about contents.

    ``items``: every item that was ever in the context, as it entered; ``texts``: the texts of each in the journal
    itself, including placeholders; ``stored``: every record of a content, in order; ``archives``: the ids of the items
    in each archive; ``tombstones``: those of removed contents; ``notes``: the last text of each, by number.
    """

    items: dict[str, ContextItem] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)
    stored: dict[str, list[Stored]] = field(default_factory=dict)
    archives: dict[str, set[str]] = field(default_factory=dict)
    tombstones: dict[str, ContentRemoved] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    forked_from: str = ""


def held(records: Iterable[Record]) -> Held:
    """Collect this from a whole journal."""
    found = Held()
    for record in records:
        match record:
            case SessionStarted():
                found.forked_from = record.forked_from
            case ItemAdded():
                found.items.setdefault(record.item.id, record.item)
                found.texts.setdefault(record.item.id, []).append(text_of(record.item.message.content))
            case Replaced():
                found.texts.setdefault(record.item_id, []).append(text_of(record.content))
            case Stored():
                found.stored.setdefault(record.item_id, []).append(record)
            case Removed() if record.archive is not None:
                found.archives.setdefault(record.archive, set()).update(record.item_ids)
            case ContentRemoved():
                found.tombstones[record.item_id] = record
            case NoteWritten():
                found.notes[record.number] = record.text
    return found


def related(found: Held, item_ids: Iterable[str]) -> dict[str, str]:
    """The items to erase so that these are gone, each with the reason why it has to be erased too."""
    with_it: dict[str, list[tuple[str, str]]] = defaultdict(list)  # by item: others that go with it, and why
    for item_id, item in found.items.items():
        if item.source is not None:
            with_it[item.source.item_id].append((item_id, f"it repeats lines of {item.source.item_id}"))
    for input_id, reply_id in _inputs(found):
        with_it[reply_id].append((input_id, f"it holds arguments of {reply_id}"))
        with_it[input_id].append((reply_id, f"its arguments are {input_id}"))
    reasons = dict.fromkeys(item_ids, "it was asked for")
    waiting = deque(reasons)
    while waiting:
        for other, why in with_it[waiting.popleft()]:
            if other not in reasons:
                reasons[other] = why
                waiting.append(other)
    return reasons


def _inputs(found: Held) -> Iterator[tuple[str, str]]:
    """The stored arguments of calls, each with the reply that made the call: a text of the reply names the file."""
    names: dict[bytes, str] = {}
    for records in found.stored.values():
        stored = records[-1]
        if stored.item_type is ItemType.TOOL_INPUT:
            names[stored.name.encode()] = stored.item_id
            names[short_name(stored.item_id).encode()] = stored.item_id
    if not names:
        return
    for item_id, item in found.items.items():
        if item.item_type is ItemType.ASSISTANT_MESSAGE:
            checkpoint()
            for text in found.texts[item_id]:
                for input_id in mentioned(text, names):
                    yield input_id, item_id


def checksums(found: Held, item_ids: Iterable[str]) -> set[str]:
    """Those of all contents that were stored for these items, but the zeros that stand for an erased one."""
    known = set[str]()
    for item_id in item_ids:
        known.update(stored.digest for stored in found.stored.get(item_id, ()))
    return {digest for digest in known if digest.strip("0")}


def equals(found: Held, item_ids: Iterable[str]) -> set[str]:
    """The items that ever had the same content as one of these, which are among them; a file may be gone since."""
    known = checksums(found, item_ids)
    return {item_id for item_id, records in found.stored.items() if any(stored.digest in known for stored in records)}


class Eraser:
    """Removes the contents of ``item_ids`` from a journal's records, given as JSON data in their order.

    Records after the tombstone of an item are left as they are: they were written when the content was gone.
    ``archives``: the archives that held one of the items, each with the checksum that it has without them.
    """

    def __init__(self, item_ids: Collection[str], archives: Mapping[str, str]) -> None:
        self._all = frozenset(item_ids)
        self._held = set(item_ids)  # without those whose tombstone has passed
        self._archives = archives

    def __call__(self, part: Any) -> Any:  # noqa: PLR0911 - one for each kind of record
        """The record without the contents."""
        match part:
            case {"type": "item_added", "item": {"id": item_id}} if item_id in self._held:
                return {**part, "item": _blank_item(part["item"])}
            case {"type": "replaced" | "decided", "item_id": item_id} if item_id in self._held:
                return _blank(part)
            case {"type": "parts_noted"}:
                return _blank_notes(part, self._held)
            case {"type": "stored"}:
                return self._stored(part)
            case {"type": "shadowed"} if self._held:  # the arguments of its calls may quote any content
                return {**part, **dict.fromkeys(_ACTIONS, "")}
            case {"type": "request_sent", "status": status} if any(item_id in str(status) for item_id in self._all):
                return {**part, "status": ""}
            case {"type": "content_removed", "item_id": item_id, "erased": True}:
                self._held.discard(item_id)
        return part

    def _stored(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        """A record of a stored content: without its checksum, and without how far it could be compressed or escaped."""
        item_id = part["item_id"]
        digest = part["digest"]
        if item_id in self._archives:
            if digest == self._archives[item_id]:
                return part
        elif item_id not in self._held:
            return part
        blank = {**part, "digest": "0" * len(digest), "content_length": 0}
        if "metadata" in part:
            blank["metadata"] = {name: value for name, value in part["metadata"].items() if name in _METADATA}
        return blank


def _blank_item(item: Mapping[str, Any]) -> Mapping[str, Any]:
    message = item["message"]
    blank = {**item, "message": {**message, "content": erased(message["content"])}}
    if item.get("placeholder"):
        blank["placeholder"] = erased(item["placeholder"])
    return blank


def _blank(part: Mapping[str, Any]) -> Mapping[str, Any]:
    blank = {**part, "content": erased(part["content"])}
    if "sha256" in part:  # of a decision
        blank["sha256"] = "0" * len(part["sha256"])
    if part.get("placeholder"):
        blank["placeholder"] = erased(part["placeholder"])
    return blank


def _blank_notes(part: Mapping[str, Any], item_ids: Collection[str]) -> Mapping[str, Any]:
    """Notes about parts without the checksums of erased texts.

    Which checksum belongs to an erased text is not known, so none of the token counts stays: they are counted again.
    """
    blank = dict(part)
    if "tokens" in part:
        blank["tokens"] = {}
    if "sources" in part:
        sources = part["sources"]
        blank["sources"] = {sha256: source for sha256, source in sources.items() if source[0] not in item_ids}
    return blank


class Quotes:
    """Finds other texts with a line of the erased contents, or with one of their longest words; or equal to one."""

    def __init__(self, texts: Iterable[str]) -> None:
        lines = set[str]()
        words = set[str]()
        whole = set[str]()
        for text in texts:
            if len(text) >= _QUOTE_CHARS:  # a repeated result may have short lines alone
                whole.add(text)
            lines.update(map(str.strip, text.splitlines()))
            words.update(word for word in text.split() if len(word) >= _WORD_CHARS)
        self._whole = frozenset(whole)
        self._lines = frozenset(line for line in lines if len(line) >= _QUOTE_CHARS)
        self._longest = [*sorted(self._lines, key=len)[-_QUOTES:], *sorted(words, key=len)[-_QUOTES:]]

    def found_in(self, text: str) -> bool:
        """Whether the text has one of them."""
        if text in self._whole:
            return True
        for line in text.splitlines():
            if line.strip() in self._lines:
                return True
        return any(piece in text for piece in self._longest)
