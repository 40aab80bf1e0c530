"""A history as it was last seen, as items of a transcript: its size, and which parts could be replaced. Pure.

The transcript is derived: appended parts are taken in, and after any other change (a rewind, a branch, an edit, another
library's summary) it is derived again from the parts. Decisions survive that, since they are kept apart.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple

from ctxfs.context.entry import Entry, EntryRules, Known, build_entry, recorded_entry
from ctxfs.context.history.decisions import Decisions, key_of
from ctxfs.context.history.parts import NO_HOST_CACHE, HostCache, Part, Replacement, plain_content
from ctxfs.context.history.settings import HistorySettings
from ctxfs.context.history.slots import (
    BY_ANOTHER_LIBRARY,
    REPLY_KINDS,
    Seen,
    Slot,
    aligned,
    blocks_of,
    decided_by,
    groups_of,
    message_of,
    replaced_item,
    replaced_part,
    snapshot,
    trim_by,
    whole_item,
)
from ctxfs.context.transcript import Transcript
from ctxfs.eviction.economics.parameters import LEAST_SAVED_TOKENS
from ctxfs.eviction.economics.plans import needs_no_rewrite
from ctxfs.eviction.offload_plan import Offload, Plan, Trim
from ctxfs.eviction.placeholder.identifiers import IdentifierIndex
from ctxfs.eviction.preview import named_by
from ctxfs.messages.incoming import Incoming, new_item
from ctxfs.messages.items import ContentRange, ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Block, unchanged
from ctxfs.messages.tokens import count_block
from ctxfs.session.fingerprint import Key, sha256_of
from ctxfs.session.records import CallMade, Decided
from ctxfs.session.state import SessionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What must be recorded about some parts: ``contents`` are stored first, unless the session has them already."""

    contents: tuple[ContextItem, ...]
    decided: tuple[Decided, ...]


class _Change(NamedTuple):
    """What decisions change: the items in their new form, the ids that leave the ledger, and the parts by number."""

    items: tuple[ContextItem, ...]
    left: list[str]
    replaced: dict[int, Replacement]

    @property
    def sizes(self) -> dict[str, int]:
        """The tokens of the results in their new form: a preview is longer than their placeholder."""
        return {item.id: item.token_count for item in self.items if item.id in self.left}


@dataclass(slots=True)
class _Derived:
    """What follows from the parts that were taken in, and from the decisions about them.

    ``known``: the ids and identifiers of its items. ``version``: how many decisions were taken in. ``replaced``: what
    replaces parts that the history shows as they were, by the part's number. ``ends``: the number of the last part of
    each message. ``by_content`` and ``by_item``: the numbers of the parts with a content, and of those in an item.
    ``allocated``: the ids that items have here, or would be stored under. ``said``: how many parts there are up to the
    last reply's end. ``own``: the parts themselves, if nobody else can change their contents. ``due``: the numbers of
    parts that are still whole to the planner, with the decisions about them, by how many replies the history had then.
    """

    transcript: Transcript
    known: Known
    version: int
    replaced: dict[int, Replacement] = field(default_factory=dict)
    slots: list[Slot] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    by_content: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    by_item: dict[str, list[int]] = field(default_factory=dict)
    keys: set[Key] = field(default_factory=set)
    allocated: set[str] = field(default_factory=set)
    said: int = 0
    replies: int = 0
    own: tuple[Part, ...] = ()
    due: dict[int, list[tuple[int, Decided]]] = field(default_factory=dict)


@dataclass(slots=True)
class HistoryView:
    """One history of a session, or one branch of it.

    ``state``: that of the session, for the names that are taken. ``sources``: the stored lines that a content only
    repeats, by its SHA-256. ``decisions`` is the session's table. ``sent_at`` is when the history was last sent, or the
    reply came, in seconds since the epoch; None: not known. ``host``: what is asked of the prompt cache. ``bills``: of
    its requests.
    """

    settings: HistorySettings
    rules: EntryRules
    state: SessionState
    sources: Mapping[str, ContentRange]
    decisions: Decisions
    sent_at: float | None = None
    host: HostCache = NO_HOST_CACHE
    bills: list[CallMade] = field(default_factory=list)
    _derived: _Derived = field(init=False)
    _taking: bool = False
    _is_cold: bool = field(init=False)

    def __post_init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        """Derive everything again, from the next parts on."""
        self._is_cold = False
        settings = self.settings
        economy = None if settings.priced is None else replace(settings.priced, clock=self._now)
        transcript = Transcript(settings.exact, self.rules.base, economy=economy, policy=settings.policy)
        # No limit: the slots hold all texts anyway, and no event loop waits for this.
        known = Known(settings.names_in(self.state), IdentifierIndex(max_unread_chars=None))
        self._derived = _Derived(transcript, known, version=len(self.decisions))
        self._follow_host()

    @property
    def transcript(self) -> Transcript:
        """The messages of the history as they are sent."""
        return self._derived.transcript

    def follow_host(self, host: HostCache) -> None:
        """Take in what the program that sends the requests asks of the prompt cache; once seen, it counts."""
        known = self.host.then(host)
        if known != self.host:
            self.host = known
            self._follow_host()

    def _follow_host(self) -> None:
        economy = self.transcript.economy
        if economy is None or self.host == NO_HOST_CACHE:
            return
        pricing = None if self.host.ttl is None else self.settings.pricing_for(self.host.ttl)
        economy.follow_host(pricing, rewrites_all=self.host.at_end)

    def billed(self, call: CallMade) -> None:
        """Take in what the last request was billed, whose reply comes next."""
        self.bills.append(call)
        self.transcript.billed(call.usage)
        self.sent_at = self.settings.clock()

    def _now(self) -> float:
        """The time for judging whether the cache has expired: a new reply was given when the history was last sent."""
        if self._is_cold:
            return inf
        if self._taking and self.sent_at is not None:
            return self.sent_at
        return self.settings.clock()

    # Coming in -------------------------------------------------------------------------------------------------------

    def update(self, parts: Sequence[Part], *, is_own: bool = False) -> bool:
        """Take in the history as it is now; return False if it is the one seen last, and nothing new was decided.

        ``is_own``: the parts' contents cannot change, so parts that are the same objects as the last time need not be
        examined.

        Raises:
            TranscriptError: something among the parts is not one.

        """
        behind = self._derived.version < len(self.decisions)
        if behind and not self._follow():
            self._reset()
        own = self._derived.own if is_own else ()
        self._derived.own = ()  # none, until all parts were taken in: one of them may raise an error
        same = self._same(parts, unchanged(own, parts))
        if same < len(self._derived.slots) or (same < len(parts) and self._continues_reply(parts[same])):
            self._reset()
            same = 0
            behind = True
        self._take(parts[same:])
        if is_own:
            self._derived.own = tuple(parts)
        return behind or same < len(parts)

    def _same(self, parts: Sequence[Part], known: int) -> int:
        """How many parts from the first one on are those seen before, in whichever form; the first ``known`` are."""
        slots = self._derived.slots
        for number, (slot, part) in enumerate(zip(slots[known:], parts[known:], strict=False), known):
            if slot.part != part and not self._is_still(number, slot, part):
                return number
        return min(len(slots), len(parts))

    def _is_still(self, number: int, slot: Slot, part: Part) -> bool:
        """Whether ``part`` is the one in ``slot``; if it has moved, or has been replaced since, the slot is updated."""
        seen = slot.part
        if (part.kind, part.id, part.tool, part.stays) != (seen.kind, seen.id, seen.tool, seen.stays):
            return False
        content = plain_content(part)
        if content == seen.content:
            slot.part = part.with_content(seen.content)
            return True
        decided = self._decided(slot)
        sha256 = sha256_of(content)
        original = sha256 == slot.key.sha256
        if not original and (decided is None or sha256 != sha256_of(decided.content)):
            return False
        slot.original = original
        if original and decided is not None:
            self._derived.replaced[number] = decided.content
        else:
            self._derived.replaced.pop(number, None)
        slot.part = part.with_content(snapshot(content))
        return True

    def _key(self, part: Part, content: Any) -> tuple[Key, bool]:
        """A part's key, and whether the part is shown as it was; False if it is a replacement already."""
        key = Key(part.kind, part.id, sha256_of(content))
        if not self.decisions or self.decisions.of(key) is not None:
            return key, True
        replaced = self.decisions.replacing(key)
        if replaced is not None:
            return key_of(replaced), False
        return key, True

    def _decided(self, slot: Slot) -> Decided | None:
        """The decision about a part, unless it stays as it is."""
        if slot.part.stays or not self.decisions:
            return None
        return self.decisions.of(slot.key)

    def _continues_reply(self, part: Part) -> bool:
        """Whether a part belongs to the reply that was taken in last."""
        slots = self._derived.slots
        return bool(slots) and slots[-1].part.kind in REPLY_KINDS and part.kind in REPLY_KINDS

    def _take(self, parts: Sequence[Part]) -> None:
        groups = list(groups_of([self._slot(part) for part in parts]))  # may raise an error
        bills: Sequence[CallMade] = ()
        if not self._derived.replies and len(self.bills) == sum(slots[0].part.kind in REPLY_KINDS for slots in groups):
            bills = self.bills  # each reply's own; after a retry or a rewind nobody knows whose a bill is
        beside: int | None = None
        self._taking = True
        try:
            for slots in groups:
                if slots[0].part.kind in REPLY_KINDS:
                    self._leave(self._derived.replies)
                    if bills:
                        beside = self._billed_then(bills[self._derived.replies], beside)
                self._enter(slots)
            for count in sorted(self._derived.due):
                self._leave(count)
            self._hold_named()
        except BaseException:
            self._reset()
            raise
        finally:
            self._taking = False

    def _billed_then(self, bill: CallMade, before: int | None) -> int:
        """Take in ``bill`` if the reply that comes next is surely its own; return what it counted beside the parts.

        A bill does not say of which branch it is: but beside its parts, a history has what it had at the reply
        ``before``. None: this is the first reply, before which nothing is cached that could be missed.
        """
        beside = bill.counted_tokens - self.transcript.tokens
        if beside >= 0 and before in {None, beside}:
            self.transcript.billed(bill.usage)
        return beside

    def _hold_named(self) -> None:
        """Keep what lines name that no reply follows: whichever process sends the request, it has both."""
        for slot in self._derived.slots[self._derived.said :]:
            decided = self._decided(slot)
            if decided is not None:
                self.transcript.keep_for_next(named_by(decided.reason))

    # A part that was replaced enters whole, and is replaced before the reply that followed the decision. So the planner
    # knows of a history that is derived again what it knew of the one that went on: what was saved, and what may still
    # be read back.

    def _was_whole(self, slot: Slot, decided: Decided) -> bool:
        """Whether the planner can be shown the part as it was: a candidate of its own, with the id of its file."""
        derived = self._derived
        item_type = ItemType.TOOL_INPUT if slot.part.kind == "call" else ItemType.TOOL_RESULT
        return (
            derived.transcript.economy is not None
            and slot.part.kind in {"call", "result"}
            and slot.key not in derived.keys
            and (slot.key.sha256 in self.sources or decided.item_id not in derived.allocated)
            and decided.reason != BY_ANOTHER_LIBRARY
            and (decided.replies_since > 0 or not decided.sent)  # else a journal from before it was noted
            and decided.tokens_before - decided.tokens >= LEAST_SAVED_TOKENS
            and self.settings.policy.allows(item_type, decided.tokens_before)
        )

    def _leave(self, count: int) -> None:
        """Replace the parts that were replaced when the history had so many replies."""
        decided = self._derived.due.pop(count, ())
        if not decided:
            return
        self._is_cold = any(needs_no_rewrite(one.reason) for _, one in decided)
        change = self._changed(decided)
        assert change is not None  # a call is one block before and after it
        self.transcript.rewrite(change.items, change.left, change.sizes)
        self._is_cold = False

    def _slot(self, part: Part) -> Slot:
        content = plain_content(part)
        key, original = self._key(part, content)
        if content is not part.content:
            part = part.with_content(snapshot(content))
        return Slot(part, key, original)

    def _enter(self, slots: Sequence[Slot]) -> None:
        """Take in one message: a reply with its calls, a result, or a text of the user."""
        derived = self._derived
        is_reply = slots[0].part.kind in REPLY_KINDS
        entry = self._reply(slots) if is_reply else self._alone(slots[0])
        item_id = entry.item.id
        derived.allocated.update(entry.new_ids)
        derived.transcript.enter(entry)
        for number, slot in enumerate(slots, len(derived.slots)):
            key = slot.key
            slot.item_id = item_id
            slot.replies_before = derived.replies
            derived.keys.add(key)
            derived.by_item.setdefault(item_id, []).append(number)
            derived.by_content.setdefault((key.kind, key.sha256), []).append(number)
            decided = self._decided(slot)
            if decided is None:
                continue
            derived.transcript.refers(item_id, named_by(decided.reason))
            if slot.original:
                derived.replaced[number] = decided.content
            if slot.ledger_id:
                since = decided.replies_since
                if is_reply:
                    since = max(since, 1)  # not before itself: the next reply is the first one that can follow
                derived.due.setdefault(derived.replies + since, []).append((number, decided))
        derived.slots += slots
        derived.ends.append(len(derived.slots) - 1)
        if is_reply:
            derived.said = len(derived.slots)
            derived.replies += 1

    def _may_be_replaced(self, slot: Slot) -> bool:
        """Whether a new part is shown as it was, and is the first with its key: copies are replaced with it."""
        return slot.original and not slot.part.stays and slot.key not in self._derived.keys

    def _alone(self, slot: Slot) -> Entry:
        rules = self.rules
        known = self._derived.known
        incoming = Incoming(message=message_of(slot.part), source=self.sources.get(slot.key.sha256))
        decided = self._decided(slot)
        if decided is None and self._may_be_replaced(slot):
            entry = build_entry(incoming, known, rules)
            slot.ledger_id = entry.item.id
            return entry
        is_whole = decided is not None and self._was_whole(slot, decided)
        stored = self.state.stored.get(decided.item_id) if decided is not None else None
        named: tuple[str, str] | None = None
        if is_whole and incoming.source is None and stored is not None:
            # The name that it got when it came in: if it took another, all that come later would have others, too.
            named = stored.item_id, stored.name
        item = new_item(incoming, names=known.names, counter=rules.counter, named=named)
        if decided is not None and is_whole:
            if item.source is None:
                item = replace(item, id=decided.item_id)
            slot.ledger_id = item.id
            item = whole_item(item, decided)
        elif decided is not None:
            item = replaced_item(item, decided)
        return Entry(item=item)  # it stays as it is

    def _reply(self, slots: Sequence[Slot]) -> Entry:
        rules = self.rules
        known = self._derived.known
        blocks: list[Block] = []
        stays: list[int] = []
        seen: set[Key] = set()
        gone: dict[str, tuple[int, Decided]] = {}
        for slot in slots:
            first = len(blocks)
            decided = self._decided(slot)
            if decided is not None and slot.key not in seen and self._was_whole(slot, decided):
                # The last resort stores a reply as one item: only one of its calls can have that id in the ledger.
                gone.setdefault(decided.item_id, (first, decided))
            blocks += blocks_of(slot.part, slot.part.content if decided is None else decided.content)
            slot.blocks = (first, len(blocks))
            is_new = self._may_be_replaced(slot) and slot.key not in seen
            if slot.part.kind == "call" and (decided is not None or not is_new):
                stays.append(first)
            seen.add(slot.key)
        incoming = Incoming(message=AssistantMessage(tuple(blocks)))
        item = new_item(incoming, names=known.names, counter=rules.counter)
        if stays:
            item = replace(item, trimmed=tuple(stays))
        entry = recorded_entry(item, known, rules)
        if gone:
            entry = _with_arguments(entry, gone.values())
        ledger_ids = {trim.block: trim.stored.id for trim in entry.options.trims}
        for slot in slots:
            assert slot.blocks is not None
            slot.ledger_id = ledger_ids.get(slot.blocks[0], "") if slot.part.kind == "call" else ""
        return entry

    # Going out -------------------------------------------------------------------------------------------------------

    def edits(self, parts: Sequence[Part]) -> dict[Hashable, Replacement]:
        """What to replace in ``parts``, the history that was taken in last."""
        replaced = self._derived.replaced
        return {parts[number].place: replaced[number] for number in sorted(replaced)}

    @property
    def freed_tokens(self) -> int:
        """How many tokens the replacements save, in parts that the history shows as they were."""
        freed = 0
        for number in self._derived.replaced:
            decided = self._decided(self._derived.slots[number])
            if decided is not None:
                freed += decided.tokens_before - decided.tokens
        return freed

    def places_after(self, messages: Sequence[int], parts: Sequence[Part]) -> list[Hashable]:
        """For each number in ``messages``, the place in ``parts`` at which that many messages end; none for 0."""
        return [parts[self._derived.ends[count - 1]].place for count in messages if count]

    def unseen_results(self) -> list[ContextItem]:
        """The results that no reply follows yet and that may be replaced, as they are."""
        derived = self._derived
        found: list[ContextItem] = []
        for slot in derived.slots[derived.said :]:
            if slot.part.kind != "result" or not slot.original or not slot.ledger_id:
                continue
            item = derived.transcript.items[slot.item_id]
            if not item.destroyed and self.settings.policy.allows(item.item_type, item.content_tokens):
                found.append(item)
        return found

    # Deciding --------------------------------------------------------------------------------------------------------

    def decision(self, plan: Plan) -> Decision:
        """What ``plan`` means: the contents to store, and then the replacement of each part."""
        derived = self._derived
        contents: dict[str, ContextItem] = {}
        decided: list[Decided] = []
        for step in plan.offloads:
            item = derived.transcript.items[step.item_id]
            numbers = derived.by_item[item.id]
            slots = [derived.slots[number] for number in numbers]
            seen = Seen(sent=numbers[0] < derived.said, replies=derived.replies)
            if isinstance(step, Trim):
                contents[step.stored.id] = step.stored
                slot = next(s for s in slots if s.part.kind == "call" and s.blocks == (step.block, step.block + 1))
                decided.append(decided_by(slot, step, dict(step.arguments), step.stored.id, seen))
                continue
            if item.source is None:
                contents[item.id] = item
                stored_id = item.id
            else:
                stored_id = item.source.item_id
            if step.content is None:
                decided.append(decided_by(slots[0], step, step.placeholder, stored_id, seen))
            else:
                decided += self._decided_blocks(slots, step, item)
        return Decision(contents=tuple(contents.values()), decided=tuple(self._with_rewritten(plan, decided)))

    def _with_rewritten(self, plan: Plan, decided: Sequence[Decided]) -> Iterator[Decided]:
        """``decided``; the first one about a sent part has the tokens that all of them make the cache rewrite."""
        by_item = self._derived.by_item
        said = self._derived.said
        # The cache is written again from the first part that changes, up to the last one that was sent.
        first = min([said, *[by_item[step.item_id][0] for step in plan.offloads]])
        tokens = 0
        for item_id, numbers in by_item.items():
            if first <= numbers[0] < said:
                tokens += self._derived.transcript.items[item_id].token_count
        tokens -= sum(one.tokens_before - one.tokens for one in decided if one.sent)
        for one in decided:
            if one.sent:
                yield replace(one, tokens_rewritten=tokens)
                tokens = 0
            else:
                yield one

    def _decided_blocks(self, slots: Sequence[Slot], step: Offload, item: ContextItem) -> Iterator[Decided]:
        """A reply whose text and arguments are replaced: a decision for each part of it that changes."""
        old = item.message.content
        new = step.content
        counter = self.rules.counter
        assert not isinstance(old, str)
        assert isinstance(new, tuple)
        by_block = aligned(old, new)
        for slot in slots:
            assert slot.blocks is not None
            first, end = slot.blocks
            before = old[first:end]
            after = tuple(chain.from_iterable(by_block[first:end]))
            if not after or before == after or slot.part.stays or self._decided(slot) is not None:
                continue
            content: Any = after
            if slot.part.kind == "call":
                content = dict(after[0]["input"])
            elif isinstance(slot.part.content, str):
                content = after[0]["text"]
            tokens_before = sum(count_block(counter, block) for block in before)
            tokens_after = sum(count_block(counter, block) for block in after)
            sized = replace(step, tokens_before=tokens_before, tokens_after=tokens_after)
            yield decided_by(slot, sized, content, item.id, Seen(sent=True, replies=self._derived.replies))

    def _changed_by(self, decided: Sequence[Decided]) -> _Change | None:
        """What ``decided`` change in the history as it was taken in; None: it must be derived again."""
        derived = self._derived
        concerned: list[tuple[int, Decided]] = []
        for one in decided:
            own_ids: set[str] = set()
            for number in derived.by_content.get((one.kind, one.sha256), ()):
                slot = derived.slots[number]
                if slot.original and self._decided(slot) is one:
                    concerned.append((number, one))
                    own_ids |= {slot.item_id, slot.ledger_id}
            if one.item_id in derived.allocated - own_ids:
                return None  # a name that was meant for another content here is now taken
        return self._changed(concerned)

    def _changed(self, concerned: Iterable[tuple[int, Decided]]) -> _Change | None:
        """What decisions change about the parts with these numbers; None: the history must be derived again."""
        derived = self._derived
        rewritten: dict[str, ContextItem] = {}
        replaced: dict[int, Replacement] = {}
        left: list[str] = []
        for number, one in concerned:
            slot = derived.slots[number]
            before = rewritten.get(slot.item_id) or derived.transcript.items[slot.item_id]
            after = replaced_part(before, slot, one, self.rules.counter)
            if slot.blocks is not None and len(after.message.content) != len(before.message.content):
                return None  # the numbers of the blocks after it have changed
            rewritten[after.id] = after
            replaced[number] = one.content
            derived.transcript.refers(slot.item_id, named_by(one.reason))
            if slot.ledger_id:
                left.append(slot.ledger_id)
        return _Change(tuple(rewritten.values()), left, replaced)

    def _follow(self) -> bool:
        """Take in decisions made since; return False, and change nothing, if the history must be derived again."""
        change = self._changed_by(self.decisions.since(self._derived.version))
        if change is None:
            return False
        self._derived.replaced.update(change.replaced)
        self.transcript.rewrite(change.items, change.left, change.sizes)
        self._derived.version = len(self.decisions)
        self._hold_named()
        return True

    def follow(self) -> None:
        """Take in new decisions about the history that was taken in last."""
        if not self._follow():
            parts = [slot.part for slot in self._derived.slots]
            self._reset()
            self._take(parts)


def _with_arguments(entry: Entry, gone: Collection[tuple[int, Decided]]) -> Entry:
    """The reply ``entry`` as long as it was with the arguments that were replaced, given with their block."""
    trims = [*entry.options.trims, *[trim_by(decided, entry.item, block) for block, decided in gone]]
    trims.sort(key=attrgetter("block"))
    saved = sum(decided.tokens_before - decided.tokens for _, decided in gone)
    item = replace(entry.item, token_count=entry.item.token_count + saved)
    return replace(entry, item=item, options=replace(entry.options, trims=tuple(trims)))
