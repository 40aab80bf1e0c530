"""Why each item was evicted or kept, what is evicted next, what that saved and what the calls cost: as a value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from math import ceil, isinf
from pathlib import Path
from typing import Final, NamedTuple

import anyio.to_thread

from ctxfs.context.entry import EntryRules, Known
from ctxfs.context.repair import repaired
from ctxfs.context.replayed import fill
from ctxfs.context.settings import ASSUMED, readers_in
from ctxfs.context.transcript import Transcript
from ctxfs.errors.checks import names_settings
from ctxfs.eviction.candidates import RESTORED_REPLIES
from ctxfs.eviction.economics.economy import ModelPricing, SessionPricing
from ctxfs.eviction.economics.ledger import Ledger, read_backs_in
from ctxfs.eviction.economics.parameters import ItemKind, kind_of_result, program_of
from ctxfs.eviction.economics.planner import Terms
from ctxfs.eviction.economics.plans import EvictionDecision, Why
from ctxfs.eviction.keep_recent import keep_recent_reason
from ctxfs.eviction.offload_plan import Plan, Trim
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.preview import PREVIEWED
from ctxfs.messages.base import Usage
from ctxfs.messages.items import ItemType, unevicted_tokens
from ctxfs.messages.messages import AssistantMessage, ToolMessage
from ctxfs.messages.models.prices import Prices
from ctxfs.messages.names import ENVELOPE, NameAllocator, layout_of
from ctxfs.messages.rates import ANTHROPIC_RATES, Rates
from ctxfs.messages.tokens import load_counter
from ctxfs.session.damaged import counted
from ctxfs.session.entries import Entry, Place, entries
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import CallMade, ContentRemoved, EvictionSet, ItemAdded, Record
from ctxfs.session.timeline.costs import Account, Departure, account_of
from ctxfs.session.timeline.effect import (
    DEFAULT_RULES,
    Effect,
    Paid,
    compared_window,
    effect,
    known_window,
    recorded_parameters,
    recorded_rates,
)
from ctxfs.session.timeline.lives import Lives
from ctxfs.session.timeline.reading import read_timeline
from ctxfs.session.timeline.timeline import Timeline
from ctxfs.tools.read import read_tool

_STAYS = {
    ItemType.SYSTEM_PROMPT: "stays: the system prompt is never evicted",
    ItemType.TOOL_RESULT: "stays: its placeholder would hardly be smaller",
    ItemType.COMPACTION_SUMMARY: "the summary of the messages in its file",
}
_MESSAGE_STAYS = "stays: messages are evicted only when the window is full"
_BY_PRICE: Final = frozenset([Why.SEEN, Why.BATCH, Why.STEP, Why.EXPIRED])
"""Reasons of the planner; another rule compares no costs."""
_NO_RULE_STAYS = "stays: results of this tool are evicted only when the window is full"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedItem:
    """One item: where it is and why. Sizes in tokens.

    ``item_type`` None: it is in an archive only. ``tokens``: what it takes in the context now. ``content_tokens``: what
    its content took; None: not known. ``left_after_reply``: the model's replies before its eviction, and
    ``replies_since`` the replies since then; None: it was never evicted. ``ripe_in_calls``: the calls until it may be;
    None: unknown.

    Costs are in uncached input tokens, as estimated from token counts. Of an item that was evicted: ``tokens_freed``:
    what each call since carried less; ``saved``: what that saved; ``rewriting``: its share of what caching again cost;
    ``read_backs`` since then, and ``read_backs_expected`` in as many calls; the first is None also where somebody else
    owns the messages, so that they are not recorded. ``saved`` and ``rewriting`` count no call from which the session
    would not have fitted its window without evictions. ``rule``: why the planner evicted it, or evicts it next; None:
    it does not. ``weighed``: what it compared then, or compares now (below); None: no ``rule``, or its numbers are not
    known. ``is_preview``: the model sees a preview of it, for which nothing is compared. Of one that could be evicted:
    what a call pays to keep it, ``rent``, and what its absence would be expected to cost one, ``risk``. None: not of
    this item, or unknown.

    ``weighed`` has ``calls``: how many were to expect from then on; ``rent``: what keeping the item would cost each of
    them, and ``keeping``: all of them, or until a batch took it; ``read_backs``: how many to expect in these calls;
    ``read_back``: what one costs; ``dearer_from_call``: the first call to which keeping it cost more than its
    read-backs; ``together``: so many items left with it, itself included; ``rewriting``: what caching again what
    followed them cost; ``max_loss``: all evictions may cost what they saved, and this share of what the session would
    have cost without them; ``billed_per_counted``: how many tokens were billed then for one that ctxfs counts.
    """

    item_id: str
    item_type: ItemType | None
    tool_name: str | None
    place: Place
    tokens: int
    content_tokens: int | None
    why: str
    left_after_reply: int | None
    replies_since: int | None
    ripe_in_calls: float | None
    tokens_freed: int | None = None
    saved: float | None = None
    rewriting: float | None = None
    read_backs: int | None = None
    read_backs_expected: float | None = None
    rent: float | None = None
    risk: float | None = None
    rule: Why | None = None
    weighed: Mapping[str, float] | None = None
    is_preview: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What the provider billed for ``calls`` calls, in tokens; ``usd`` by list prices, None: they are not known."""

    calls: int
    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What there is to say about a session.

    ``model``: the one of the last call on the context; empty when no call was recorded. ``replies``: how often a model
    has replied. ``context_tokens``: the context now, and ``request_tokens`` with what a request has beside it, such as
    the definitions of tools; ``content_tokens``: what the context would hold, had nothing left it. ``items``: the
    context in order, then what is only stored, the arguments of calls that may be evicted, and what is archived.
    ``next``: what the session would evict if it continued. ``rates``: what a cached token costs in all these figures.
    ``window_tokens``: the largest prompt that the session can send; None: not known.
    """

    session_id: str
    session_path: str
    model: str
    replies: int
    context_tokens: int
    request_tokens: int
    content_tokens: int
    items: tuple[ExplainedItem, ...]
    next: Plan
    effect: Effect
    billed: Bill
    rates: Rates
    window_tokens: int | None


@names_settings()
async def explain(
    fs: ContextFileSystem, *, prices: Prices | None = None, timeline: Timeline | None = None
) -> Explanation:
    """Explain the session of ``fs``, which is open, perhaps for reading only. Nothing of it changes.

    What is evicted next is decided by the rules that the session was last opened with, or by the defaults when it
    recorded none. Dollars are at ``prices``; None means the list prices of the models, which are today's.
    ``timeline``: the result of ``read_timeline``, if it is used for more than this; None reads the journal.

    Raises:
        ConfigError: another version recorded the rules, and they cannot be read.
        SessionClosed: ``fs`` is not open.
    """
    timeline = await read_timeline(fs) if timeline is None else timeline
    records = timeline.records_before()
    lives = timeline.lives
    costs = account_of(lives)
    rules = fs.state.eviction or DEFAULT_RULES
    unit = next(reversed(costs.units), 1.0)
    next_ = await _next(fs, rules, unit)  # reads the items, and so finds what is damaged
    held = await entries(fs)
    paid = Paid(prices, ttl_s=rules.ttl_s)
    reasons = _Reasons(
        rules,
        costs,
        figures=_Figures(rules, records, lives, costs),
        next_=next_,
        restored=fs.state.replies_since_restored(),
        removed=fs.state.removed,
        unit=unit,
    )
    return Explanation(
        session_id=fs.session_id,
        session_path=fs.base,
        model=costs.model,
        replies=costs.replies,
        context_tokens=_context_tokens(held, costs),
        request_tokens=costs.request_tokens(sum(entry.tokens for entry in held if entry.item is not None)),
        content_tokens=unevicted_tokens(fs.state.items.values()),
        items=reasons.items(held),
        next=next_.plan,
        effect=effect(costs, rules, prices=prices),
        billed=_bill(costs.calls, paid),
        rates=recorded_rates(rules) or ANTHROPIC_RATES,
        window_tokens=known_window(rules, costs.model),
    )


def _context_tokens(held: Sequence[Entry], costs: Account) -> int:
    """What the context takes; of a history that a framework owns, what it took in the last call that was billed."""
    if costs.requests and all(entry.item is None for entry in held):
        return costs.requests[-1].tokens
    return sum(entry.tokens for entry in held)


# What goes next -----------------------------------------------------------------------------------------------------


class _Next(NamedTuple):
    """What a session that goes on now would evict, and what the planner says of each item.

    ``unread``: why nothing is evicted before the window is full; None: the model can open what is. ``weighed``: by id,
    what the planner compares of what is evicted by price.
    """

    plan: Plan
    decisions: Mapping[str, EvictionDecision]
    unread: str | None
    weighed: Mapping[str, Mapping[str, float]]


async def _next(fs: ContextFileSystem, rules: EvictionSet, unit: float) -> _Next:
    """Plan as a session that goes on now would, without being its writer; ``unit``: billed tokens for a counted one."""
    counter = await load_counter()
    items = counted(await fs.items(), counter)
    taken = {item.id for item in items} | fs.state.stored.keys()
    names = NameAllocator(taken, layout=layout_of(fs.state.layout, ENVELOPE))
    policy = OffloadPolicy.from_mapping(rules.policy or {}, digest_tokens=rules.digest_tokens)
    economy = _economy(rules)
    transcript = Transcript(rules.keep_recent, fs.base, economy=economy, policy=policy)
    sent = fs.state.request
    tools = None if sent is None else fs.state.tools.get(sent.tools)
    read_tool(fs)  # a process knows the tools of ctxfs by their descriptions once it has made one
    readers = ASSUMED if tools is None else readers_in(tools)
    unread = readers.why_not(has_files=Path(fs.base).is_absolute(), compresses=rules.compresses)
    entry_rules = EntryRules(
        counter=counter,
        base=fs.base,
        by_price=economy is not None,
        exact=frozenset(rules.keep_recent),
        policy=policy,
        reader=readers.reader,
        by_path=readers.by_path,
    )

    def plan() -> _Next:
        going_on = repaired(items, names=names, counter=counter).items
        fill(
            transcript,
            going_on,
            past=fs.state.past,
            known=Known(names),
            rules=entry_rules,
            restored=fs.state.replies_since_restored(),
        )
        decisions = transcript.economy.decisions() if transcript.economy is not None else ()
        by_id = {decision.item_id: decision for decision in decisions}
        going = transcript.plan() if unread is None else Plan()
        weighed = {} if transcript.economy is None else _weighed_now(transcript.economy, going, unit, transcript.now())
        return _Next(going, by_id, unread, weighed)

    return await anyio.to_thread.run_sync(plan)


def _economy(rules: EvictionSet) -> ModelPricing | None:
    """The planner by these rules. Raises ``ConfigError`` when another version's numbers cannot be read."""
    parameters = recorded_parameters(rules)
    if parameters is None:
        return None
    return ModelPricing(parameters=parameters, rates=recorded_rates(rules) or ANTHROPIC_RATES, ttl_s=rules.ttl_s)


def _weighed_now(economy: SessionPricing, going: Plan, unit: float, now: float) -> dict[str, Mapping[str, float]]:
    """For each item that leaves by price now: the figures that the planner compares, from its own ledger."""
    ledger = economy.ledger
    cold = ledger.is_cold(now)
    reasons = {step.stored.id if isinstance(step, Trim) else step.item_id: step.reason for step in going.offloads}
    by_price = {one for one, reason in reasons.items() if reason in _BY_PRICE and one in ledger.held}
    rewriting = ledger.saved - ledger.copy().evicted(by_price, cold=cold).saved
    terms = Terms(ledger, cold=cold)
    found: dict[str, Mapping[str, float]] = {}
    for held, tokens in ledger.chain.with_tokens(by_price):
        found[held.id] = _compared(
            terms,
            hazard=held.hazard,
            used=held.used,
            tokens=held.saved_tokens,
            keeps=_keeping(terms, reasons[held.id], sent=tokens > ledger.new_tokens),
            unit=unit,
            rest={
                "together": len(reasons),
                "rewriting": unit * rewriting,
                "max_loss": economy.parameters.max_loss,
            },
        )
    return found


def _keeping(terms: Terms, reason: str, *, sent: bool) -> float:
    """What a token costs that stays, as the planner counts it for this reason."""
    if reason == Why.SEEN:
        return terms.stay_cost + (0.0 if sent else terms.write)
    return terms.read * terms.horizon


def _compared(
    terms: Terms, *, hazard: float, used: int, tokens: int, keeps: float, unit: float, rest: Mapping[str, float]
) -> Mapping[str, float]:
    """See ``ExplainedItem.weighed``; ``tokens``: what leaving saves, ``keeps``: what each costs that stays."""
    dearer_at_age = hazard * terms.weight / (terms.read * max(1, tokens))
    return {
        "calls": terms.horizon,
        "rent": terms.read * unit * tokens,
        "keeping": keeps * unit * tokens,
        "read_backs": hazard * terms.at(used).read_backs,
        "read_back": unit * terms.weight,
        "dearer_from_call": used + max(1, ceil(dearer_at_age)),
        **rest,
        "billed_per_counted": unit,
    }


# Why ----------------------------------------------------------------------------------------------------------------


class _Reasons:
    """Says of each item why it left or stays."""

    def __init__(
        self,
        rules: EvictionSet,
        costs: Account,
        *,
        figures: "_Figures",
        next_: _Next,
        restored: Mapping[str, int],
        removed: Mapping[str, ContentRemoved],
        unit: float,
    ) -> None:
        self._rules = rules
        self._restored = restored
        self._removed = removed
        self._costs = costs
        self._figures = figures
        self._due = {offload.item_id for offload in next_.plan.offloads}
        self._decisions = next_.decisions
        self._unread = next_.unread
        self._weighed = next_.weighed
        self._unit = unit
        self._departures: dict[str, Departure] = {}
        for departure in costs.departures:  # of an item that was archived later, the first counts
            for item_id in departure.item_ids:
                self._departures.setdefault(item_id, departure)
        self._archives = {d.archive: d for d in reversed(costs.departures) if d.archive is not None}

    def items(self, held: Sequence[Entry]) -> tuple[ExplainedItem, ...]:
        """The entries in order, then what could leave of replies, and what is archived."""
        known = {entry.item_id for entry in held}
        inputs = [decision for item_id, decision in self._decisions.items() if item_id not in known]
        known |= {decision.item_id for decision in inputs}
        archived = [(i, d) for i, d in self._departures.items() if i not in known and d.archive is not None]
        return (*map(self._entry, held), *map(self._input, inputs), *(self._archived(i, d) for i, d in archived))

    def _entry(self, entry: Entry) -> ExplainedItem:
        return self._item(
            entry.item_id,
            self._why(entry),
            item_type=entry.item_type,
            tool_name=entry.tool_name,
            place=entry.place,
            tokens=entry.tokens,
            content_tokens=entry.content_tokens,
        )

    def _input(self, decision: EvictionDecision) -> ExplainedItem:
        return self._item(
            decision.item_id,
            self._decided(decision),
            item_type=ItemType.TOOL_INPUT,
            place="context",
            tokens=decision.tokens,
            content_tokens=decision.tokens,
        )

    def _archived(self, item_id: str, departure: Departure) -> ExplainedItem:
        return self._item(item_id, departure.reason, item_type=None, place="archive", tokens=0, content_tokens=None)

    def _item(
        self,
        item_id: str,
        why: str,
        *,
        item_type: ItemType | None,
        place: Place,
        tokens: int,
        content_tokens: int | None,
        tool_name: str | None = None,
    ) -> ExplainedItem:
        departure, decision = self._departures.get(item_id), self._decisions.get(item_id)
        explained = ExplainedItem(
            item_id=item_id,
            item_type=item_type,
            tool_name=tool_name,
            place=place,
            tokens=tokens,
            content_tokens=content_tokens,
            why=why,
            left_after_reply=None if departure is None else departure.after_call,
            replies_since=None if departure is None else self._costs.calls_since(departure),
            ripe_in_calls=None if decision is None or isinf(decision.ripe_in_calls) else decision.ripe_in_calls,
            rent=None if decision is None else self._unit * decision.rent,
            risk=None if decision is None else self._unit * decision.risk,
            rule=decision.why if decision is not None and item_id in self._weighed else None,
            weighed=self._weighed.get(item_id),
        )
        if departure is None or departure.archive is not None:
            return explained
        return self._figures.of(explained, departure)

    def _why(self, entry: Entry) -> str:
        tombstone = self._removed.get(entry.item_id)
        if tombstone is not None:
            return str(tombstone)
        departure = self._departures.get(entry.item_id)
        if departure is not None:
            then = f"; then {departure.shortened_because}" if departure.shortened_because else ""
            damaged = "" if entry.damaged is None else f"; damaged: {entry.damaged}"
            return f"{departure.reason}{then}{damaged}"
        if entry.damaged is not None:
            return f"damaged: {entry.damaged}"
        if entry.item is None:
            return "stored, and not in the context"
        archived = self._archives.get(entry.item_id)
        if archived is not None:
            return f"stands for {len(archived.item_ids)} messages: {archived.reason}"
        return self._why_here(entry)

    def _decided(self, decision: EvictionDecision) -> str:
        """Why an item that is in the context stays, or would be evicted next."""
        if decision.why not in _BY_PRICE:
            return decision.why.value
        if self._unread is not None:
            return f"stays until the window is full: {self._unread}"
        return decision.why.replace("evicted", "evicted next", 1)

    def _why_here(self, entry: Entry) -> str:
        """Why an item is in the context."""
        replies_left = RESTORED_REPLIES - self._restored.get(entry.item_id, RESTORED_REPLIES)
        if replies_left > 0:
            return f"stays: it was restored, {replies_left} more replies"
        keep = self._rules.keep_recent.get(entry.tool_name or "")
        if keep is not None:
            reason = keep_recent_reason(entry.tool_name or "", keep)
            if self._unread is not None:
                return f"stays until the window is full: {self._unread}"
            return f"{'evicted next' if entry.item_id in self._due else 'stays'}: {reason}"
        if (decision := self._decisions.get(entry.item_id)) is not None:
            return self._decided(decision)
        if entry.item_type is ItemType.TOOL_RESULT and self._rules.parameters is None:
            return _NO_RULE_STAYS
        return _STAYS.get(entry.item_type, _MESSAGE_STAYS)


# What an item's eviction saved and cost ------------------------------------------------------------------------------


class _Figures:
    """What the eviction of one item saved and cost since, and what was expected of it."""

    def __init__(self, rules: EvictionSet, records: Sequence[Record], lives: Lives, costs: Account) -> None:
        self._costs = costs
        self._rates = recorded_rates(rules) or ANTHROPIC_RATES
        self._parameters = recorded_parameters(rules)
        self._came: dict[str, int] = {}
        self._programs: dict[str, str] = {}  # by the item of a result: what its call ran in a shell, or ""
        calls: dict[str, str] = {}
        for record in records:
            if not isinstance(record, ItemAdded):
                continue
            item = record.item
            if isinstance(item.message, AssistantMessage):
                calls.update((call.id, program_of(call.arguments)) for call in item.message.tool_calls)
            elif isinstance(item.message, ToolMessage) and item.message.tool_call_id in calls:
                self._programs[item.id] = calls[item.message.tool_call_id]
        for life in lives.lives.values():
            self._came[life.item_id] = life.entered - 1
        for change in lives.changes:
            for content in change.contents:  # arguments came with their reply
                self._came.setdefault(content, self._came.get(change.item_id, change.after_call))
        self._rewriting = costs.rewriting_by_call(self._rates)
        self._unsent_prices = costs.written_again_prices(self._rates)
        self._prices = [0.0, *accumulate(costs.token_prices(self._rates))]  # of a token, in the calls up to each
        self._units = costs.units
        too_long = costs.too_long_from(compared_window(rules, costs.model))
        # From that call on there is no session without evictions to compare with.
        self._counted = costs.replies if too_long is None else too_long - 1
        self._freed: dict[int, int] = {}  # by the call before which it left
        self._together: dict[int, int] = {}
        for departure in costs.departures:
            if _came_short(departure):
                continue
            before = self._freed.get(departure.after_call, 0)
            self._freed[departure.after_call] = before + departure.tokens_freed
            items = self._together.get(departure.after_call, 0)
            self._together[departure.after_call] = items + len(departure.item_ids)

    def of(self, item: ExplainedItem, departure: Departure) -> ExplainedItem:
        """The item with its figures."""
        calls = self._costs.calls_since(departure)
        is_counted = departure.after_call < self._counted
        rewriting = self._rewriting[departure.after_call] if is_counted else 0.0
        freed = 0 if _came_short(departure) else self._freed[departure.after_call]
        share = departure.tokens_freed / freed if freed else 0.0
        left_at = min(departure.after_call, self._counted)
        saved = departure.tokens_freed * (self._prices[self._counted] - self._prices[left_at])
        if is_counted and not departure.sent:
            saved += self._unsent_prices[departure.after_call] * departure.tokens_freed
        read_backs = [
            back
            for back in self._costs.read_backs
            if back.source.item_id == item.item_id and back.after_call > departure.after_call
        ]
        return replace(
            item,
            tokens_freed=departure.tokens_freed,
            saved=saved,
            rewriting=rewriting * share,
            read_backs=None if self._costs.is_elsewhere else len(read_backs),
            read_backs_expected=self._expected(item, departure, calls),
            rule=Why(departure.reason) if departure.reason in _BY_PRICE else None,
            weighed=self._weighed(item, departure),
            is_preview=departure.reason.startswith(PREVIEWED) and not departure.shortened_because,
        )

    def _weighed(self, item: ExplainedItem, departure: Departure) -> Mapping[str, float] | None:
        """What the planner compared, by the formulas that it has: None where it did not, or its numbers are unknown."""
        kind = self._kind_of(item)
        calls = departure.after_call
        requests = self._costs.requests
        if self._parameters is None or kind is None or departure.reason not in _BY_PRICE or not requests:
            return None
        is_sent_since = calls < len(requests)
        prompt = requests[calls].tokens + self._freed[calls] if is_sent_since else requests[-1].tokens
        ledger = Ledger(parameters=self._parameters, rates=self._rates)
        ledger.calls = calls
        ledger.total_tokens = prompt
        terms = Terms(ledger, cold=departure.reason == Why.EXPIRED)
        used = self._came.get(item.item_id, calls)
        hazard = self._parameters.hazard(kind, departure.tokens_before)
        return _compared(
            terms,
            hazard=hazard,
            used=used,
            tokens=departure.tokens_freed,
            keeps=_keeping(terms, departure.reason, sent=departure.sent),
            unit=self._units[min(calls, len(self._units) - 1)],
            rest={
                "together": self._together[calls],
                "rewriting": self._rewriting[calls] if is_sent_since else 0.0,
                "max_loss": self._parameters.max_loss,
            },
        )

    def _kind_of(self, item: ExplainedItem) -> ItemKind | None:
        if item.item_type is ItemType.TOOL_INPUT:
            return ItemKind.ARGUMENTS
        program = self._programs.get(item.item_id)
        if program is None and self._costs.is_elsewhere:  # its call is in no journal: the tool has to do
            program = ""
        return None if program is None else kind_of_result(program or item.tool_name or "")

    def _expected(self, item: ExplainedItem, departure: Departure, calls: int) -> float | None:
        """The read-backs to expect in so many calls since it was evicted; None: the planner had no numbers.

        None also for a result whose call is not in the journal itself, since its reply was large: its kind is unknown.
        """
        kind = self._kind_of(item)
        if self._parameters is None or kind is None:
            return None
        age = departure.after_call - self._came.get(item.item_id, departure.after_call) + 1
        return self._parameters.hazard(kind, departure.tokens_before) * read_backs_in(max(1, age), calls)


def _came_short(departure: Departure) -> bool:
    """Whether the model never saw all of it: as a preview, or as a line that names an earlier result.

    The context never held the rest, so nothing is cached again for it, and it left with no other.
    """
    return not departure.sent and departure.reason not in _BY_PRICE


# What it saved and cost ---------------------------------------------------------------------------------------------


def _bill(calls: Sequence[CallMade], paid: Paid) -> Bill:
    counts = {field.name: sum(getattr(call.usage, field.name) for call in calls) for field in fields(Usage)}
    return Bill(calls=len(calls), **counts, usd=paid.usd(calls))
