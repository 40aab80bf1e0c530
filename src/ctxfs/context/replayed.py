"""What the planner knew of a session, rebuilt from its journal: each record goes the way that it went live. Pure.

A resumed session must plan as one that goes on. What it has spent and saved, and what may still be read back, cannot be
seen in its context. So a second transcript is led through all that happened, from the first record on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from ctxfs.context.entry import Entry, EntryRules, Known, recorded_entry
from ctxfs.context.transcript import Transcript
from ctxfs.eviction.candidates import EvictionOptions
from ctxfs.eviction.economics.plans import Why
from ctxfs.eviction.offload_plan import Trim, stored_arguments
from ctxfs.eviction.preview import named_by
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import AssistantMessage, ToolMessage
from ctxfs.messages.tokens import TokenCounter, count_json
from ctxfs.session.content.stored import Stored
from ctxfs.session.records import CallMade, ItemAdded, Pinned, Removed, Replaced, RequestSent, Restored
from ctxfs.session.state import Past


@dataclass(slots=True)
class _Evictions:
    """How items were evicted, found before the replay: an item enters with what could be evicted of it later.

    ``placeholders``: by item, the first record that replaced it. ``trims``: by reply, its evicted arguments, as trims;
    ``trim_of``: by the place of their records in the past.
    """

    placeholders: dict[str, Replaced] = field(default_factory=dict)
    trims: dict[str, list[Trim]] = field(default_factory=dict)
    trim_of: dict[int, Trim] = field(default_factory=dict)


def _evictions(past: Sequence[Past], counter: TokenCounter) -> _Evictions:
    found = _Evictions()
    tokens: dict[str, int] = {}  # of each item, as it is so far
    trimmed: dict[str, tuple[int, ...]] = {}
    stored: list[str] = []  # arguments whose reply was not replaced yet
    for place, record in enumerate(past):
        match record:
            case ItemAdded():
                tokens[record.item.id] = record.item.token_count
            case Stored():
                stored.append(record.item_id)
            case Restored():
                trimmed.pop(record.item_id, None)
            case Replaced():
                new = record.trimmed[len(trimmed.get(record.item_id, ())) :]
                if new and not record.destroyed and stored:
                    trim = _trim(record, new[-1], stored.pop(0), tokens.get(record.item_id, 0), counter)
                    found.trims.setdefault(record.item_id, []).append(trim)
                    found.trim_of[place] = trim
                found.placeholders.setdefault(record.item_id, record)
                tokens[record.item_id] = record.token_count
                trimmed[record.item_id] = record.trimmed
    return found


def _trim(record: Replaced, block: int, stored_id: str, before: int, counter: TokenCounter) -> Trim:
    content: Any = record.content
    arguments: Mapping[str, Any] = {}
    if block < len(content) and isinstance(content[block], Mapping):  # what was erased has fewer blocks, or is a text
        arguments = content[block].get("input", {})
    tokens_after = count_json(counter, arguments)
    tokens_before = tokens_after + before - record.token_count
    return Trim(
        item_id=record.item_id,
        block=block,
        arguments=arguments,
        stored=stored_arguments(stored_id, tokens_before),
        path="",
        tokens_before=tokens_before,
        tokens_after=tokens_after,
        reason=str(Why.BATCH),
    )


def fill(
    transcript: Transcript,
    items: Iterable[ContextItem],
    *,
    past: Sequence[Past],
    known: Known,
    rules: EntryRules,
    restored: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Fill an empty transcript with the items of a session, whose journal has ``past`` (see ``SessionState``).

    ``restored``: for each item that was restored, how often the model has replied since.
    """
    entries: dict[str, Entry] = {}
    for item in items:
        entry = recorded_entry(item, known, rules)
        entries[item.id] = entry
        transcript.enter(entry)
    for item_id, replies_since in restored.items():
        held = transcript.items.get(item_id)
        if held is None or not held.pinned:  # what was pinned since stays for good
            transcript.holds.restored(item_id, replies_since=replies_since)
    reasons = {record.item_id: record.reason for record in past if isinstance(record, Replaced)}
    for item_id, reason in reasons.items():
        transcript.refers(item_id, named_by(reason))
    for item in takewhile(_is_no_reply, reversed(list(transcript.items.values()))):
        transcript.keep_for_next(named_by(reasons.get(item.id, "")))  # a line, in the next request for the first time
    if transcript.economy is not None:
        replay = _Replay(past, entries, known, rules)
        before = transcript.empty(clock=lambda: replay.at or transcript.now())
        replay.lead(before)
        transcript.resumed(before)
    transcript.plan()  # the ledger takes in the items now, not in the first request


def _is_no_reply(item: ContextItem) -> bool:
    return not isinstance(item.message, AssistantMessage)


def _change_of(record: Past) -> int | None:
    """The change that an eviction is part of; None: the record is of something else."""
    if isinstance(record, Replaced) and record.change >= 0:
        return record.change
    return None


class _Replay:
    """What leads an empty transcript through a session's past.

    ``entries``: those of the items that are in the context now, by which those enter that were never evicted.
    """

    def __init__(self, past: Sequence[Past], entries: Mapping[str, Entry], known: Known, rules: EntryRules) -> None:
        self._past = past
        self._entries = entries
        self._known = known
        self._rules = rules
        self._evictions = _evictions(past, rules.counter)
        self.at = 0.0  # when it happened, in seconds since the epoch; 0: not known

    def lead(self, transcript: Transcript) -> None:
        """Lead ``transcript`` through it. A record about an unknown item changes nothing, as in the session's state."""
        bills = {
            before.item.id: record
            for before, record in pairwise(self._past)
            if isinstance(before, ItemAdded) and isinstance(record, CallMade)
        }
        together: list[int] = []  # the places of the evictions of one change, between which contents are stored
        change: int | None = None
        for place, record in enumerate(self._past):
            if isinstance(record, Stored):
                continue
            own_change = _change_of(record)
            if own_change is None or own_change != change:
                self._evict(transcript, together)
                together = []
            change = own_change
            if own_change is not None:
                together.append(place)
                continue
            match record:
                case RequestSent():
                    self.at = max(self.at, record.sent_at)
                case ItemAdded():
                    self._enter(transcript, record, bills.get(record.item.id))
                case Replaced() | Restored():
                    self._bring_back(transcript, record)
                case Removed():
                    transcript.move([one for one in record.item_ids if one in transcript.items])
                case Pinned():
                    self._pin(transcript, record)
        self._evict(transcript, together)

    def _enter(self, transcript: Transcript, record: ItemAdded, bill: CallMade | None) -> None:
        if record.item.id in transcript.items:
            return
        if bill is not None:
            self.at = max(self.at, bill.made_at)
            transcript.billed(bill.usage)
        entry = self._entry(record)
        if record.before is None and not record.returned:
            transcript.enter(entry)
        else:
            transcript.move((), item=entry.item, before=record.before)

    def _entry(self, record: ItemAdded) -> Entry:
        """How an item entered: as it is now if it was never evicted, and else as large as it was."""
        item = record.item
        evicted = self._evictions.placeholders.get(item.id)
        trims = self._evictions.trims.get(item.id, [])
        now = self._entries.get(item.id)
        if now is not None and evicted is None:
            if now.item.pinned == item.pinned:
                return now
            return recorded_entry(replace(now.item, pinned=item.pinned), self._known, self._rules)
        if isinstance(item.message, AssistantMessage):
            # With all its arguments, also those that were evicted since, and as long as it was with them.
            all_trims = [*trims]
            if now is not None:
                all_trims += now.options.trims
                item = replace(item, message=now.item.message)
                if trims:
                    saved = sum(trim.tokens_before - trim.tokens_after for trim in trims)
                    item = replace(item, token_count=now.item.token_count + saved)
            all_trims.sort(key=attrgetter("block"))
            return Entry(item=item, options=EvictionOptions(trims=tuple(all_trims)))
        if evicted is not None and item.placeholder is None and isinstance(evicted.content, str):
            item = replace(item, placeholder=evicted.content, placeholder_tokens=evicted.token_count)
        return Entry(item=item)

    def _evict(self, transcript: Transcript, places: Iterable[int]) -> None:
        """These left together: the results, and the arguments of calls."""
        items: dict[str, ContextItem] = {}
        left: list[str] = []
        for place in places:
            record = self._past[place]
            assert isinstance(record, Replaced)
            item = items.get(record.item_id) or transcript.items.get(record.item_id)
            if item is None:
                continue
            self.at = max(self.at, record.at)
            trim = self._evictions.trim_of.get(place)
            tokens = record.token_count if trim is None else item.token_count - trim.tokens_before + trim.tokens_after
            later = None if record.placeholder is None else (record.placeholder, record.placeholder_tokens)
            items[item.id] = item.offloaded_to(
                record.path,
                record.content,
                tokens,
                destroyed=record.destroyed,
                trimmed=record.trimmed,
                later=later,
            )
            left.append(item.id if trim is None else trim.stored.id)
        transcript.rewrite(list(items.values()), left)

    def _bring_back(self, transcript: Transcript, record: Replaced | Restored) -> None:
        item = transcript.items.get(record.item_id)
        if item is None:
            return
        self.at = max(self.at, record.at)
        back = item.restored(record.content if isinstance(record, Replaced) else "")
        if record.token_count is not None:
            back = replace(back, token_count=record.token_count)
        if isinstance(back.message, ToolMessage) and isinstance(item.message.content, str):
            transcript.restore(back)
        else:
            transcript.rewrite([back], ())

    def _pin(self, transcript: Transcript, record: Pinned) -> None:
        for item_id in record.item_ids:
            item = transcript.items.get(item_id)
            if item is not None and record.pinned:
                transcript.pin(replace(item, pinned=True))
