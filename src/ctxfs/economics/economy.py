"""The economic planner inside a context: what an item is to it, and what its decisions mean for the context. No I/O.

What leaves is decided in ``economics``. Besides tool results, the arguments of tool calls may leave: the large ones are
replaced by a placeholder, small ones stay as they are.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from ctxfs.checks import names_settings, require_kind, require_number
from ctxfs.economics.features import ToolClass, classify, paths_of, program_of, writes
from ctxfs.economics.ledger import Ledger
from ctxfs.economics.ledger_steps import Added, Billed, Candidate, Left, ReadBack, Replied, Step
from ctxfs.economics.next_batch import next_start
from ctxfs.economics.parameters import EvictionParameters
from ctxfs.economics.planner import EconomicPlan, EvictionDecision, decisions, next_plan
from ctxfs.economics.prices import ANTHROPIC_RATES, Rates
from ctxfs.economics.ripening import Ripening
from ctxfs.errors import ConfigError
from ctxfs.eviction.candidates import Candidates
from ctxfs.eviction.plan import Offload, Trim
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.items import ContextItem
from ctxfs.llm.base import Usage
from ctxfs.llm.messages import AssistantMessage, ToolMessage

__all__ = ["CacheTerms", "EvictionPricing", "SessionPricing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTerms:
    """What a token costs, and for how many seconds the provider keeps a prefix; 0 means that it keeps none."""

    rates: Rates = ANTHROPIC_RATES
    ttl_s: float = 300.0

    def __post_init__(self) -> None:
        require_kind("rates", self.rates, Rates, "Rates(...)")
        require_number("ttl_s", self.ttl_s, at_least=0)


@names_settings()
class EvictionPricing:
    """The settings of eviction by price: the planner's numbers, and what the prompt cache costs.

    ``clock`` gives seconds since the epoch; the prompt cache expires by it.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        parameters: EvictionParameters | None = None,
        terms: CacheTerms | None = None,
    ) -> None:
        require_kind("parameters", parameters, EvictionParameters, "EvictionParameters(...)")
        require_kind("terms", terms, CacheTerms, "CacheTerms(...)")
        if not callable(clock):
            raise ConfigError(f"clock is {clock!r}: use a function that gives seconds")
        self._terms = terms or CacheTerms()
        self._parameters = parameters or EvictionParameters()
        self._clock = clock

    @property
    def clock(self) -> Callable[[], float]:
        """The time, in seconds since the epoch."""
        return self._clock

    @property
    def parameters(self) -> EvictionParameters:
        """The planner's numbers."""
        return self._parameters

    @property
    def terms(self) -> CacheTerms:
        """What a token costs, and how long the cache holds."""
        return self._terms


@dataclass(frozen=True, slots=True)
class _Call:
    """What the planner knows of a result by its call: the program of a shell's command, or "", and the files named."""

    program: str
    paths: tuple[str, ...]

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> "_Call":
        return cls(program_of(arguments), paths_of(arguments))


_UNKNOWN_CALL = _Call("", ())

_READ_BACK = ToolClass.FILE
"""What was read back was needed once more than the rest: it counts as read from a file, whatever printed it."""


class SessionPricing:
    """The ledger of one session, and what the planner says to it.

    ``candidates``: how the items of the context can be evicted; their owner updates them first when an item
    enters, and last when one is evicted. ``exact``: tools whose results are evicted by another rule; they are counted,
    and never evicted by price. ``policy``: what may be evicted at all; None means the default.
    """

    def __init__(
        self,
        settings: EvictionPricing,
        candidates: Candidates,
        *,
        exact: Collection[str] = (),
        policy: OffloadPolicy | None = None,
    ) -> None:
        self.parameters = settings.parameters
        self.exact = frozenset(exact)
        self._terms = settings.terms
        self._clock = settings.clock
        self._policy = policy or OffloadPolicy()
        self._candidates = candidates
        self._calls: dict[str, _Call] = {}  # of the last reply
        self._ledger = Ledger(parameters=settings.parameters, rates=settings.terms.rates)
        self._steps: list[Step] = []  # what the ledger has yet to take in
        self._planned: tuple[Ledger, bool, EconomicPlan] | None = None
        self._ripening = Ripening()
        self._billed: Billed | None = None  # of the request whose reply comes next

    @property
    def ledger(self) -> Ledger:
        """What the planner knows now."""
        if self._steps:
            self._ledger, self._steps = self._ledger.after(self._steps), []
        return self._ledger

    def billed(self, usage: Usage) -> None:
        """Take in what the last request was billed, before its reply enters: what the cache holds really."""
        self._billed = Billed.of(usage, charges_writes=self._charges_writes)

    @property
    def _charges_writes(self) -> bool:
        return self._terms.rates.write > 1

    def entered(self, item: ContextItem) -> None:
        """Take in an item at the end of the context, once the candidates know it."""
        message = item.message
        if isinstance(message, AssistantMessage):
            self._replied(item, message)
            return
        parts = self._result(item, message) if isinstance(message, ToolMessage) else (item.token_count,)
        self._steps.append(Added(parts) if item.source is None else ReadBack(item.source.item_id, parts))

    def _replied(self, item: ContextItem, message: AssistantMessage) -> None:
        calls, trims = message.tool_calls, self._candidates.trims_of(item.id)
        self._calls = {call.id: _Call.of(call.arguments) for call in calls}
        inputs = [_input_candidate(trim, message) for trim in trims]
        paths = [(path, call.name) for call in calls for path in self._calls[call.id].paths]
        step = Replied(
            (max(0, item.token_count - sum([i.tokens for i in inputs])), *inputs),
            paths=[path for path, _ in paths],
            changed_paths=[path for path, tool in paths if writes(tool)],
            cache_expires_at=self._clock() + self._terms.ttl_s,
            billed=self._billed,
        )
        self._billed = None
        self._steps.append(step)

    def _result(self, item: ContextItem, message: ToolMessage) -> tuple[Candidate | int, ...]:
        if item.can_shrink:
            return (item.placeholder_tokens, self._placeholder(item, message))
        placeholder_tokens = self._candidates.known_tokens(item.id)
        if placeholder_tokens is None or not self._policy.allows(item.item_type, item.content_tokens):
            return (item.token_count,)
        return (self._candidate(item, message, item.token_count, placeholder_tokens),)

    def _placeholder(self, item: ContextItem, message: ToolMessage) -> Candidate:
        """What the placeholder of an evicted result has more than the short one."""
        longer = self._candidate(item, message, item.token_count - item.placeholder_tokens, 0)
        return replace(longer, is_placeholder=True)

    def _candidate(self, item: ContextItem, message: ToolMessage, tokens: int, placeholder_tokens: int) -> Candidate:
        call = self._calls.get(message.tool_call_id, _UNKNOWN_CALL)
        shown = call.program or message.tool_name
        return Candidate(
            id=item.id,
            tool=f"{message.tool_name} {call.program}" if call.program else message.tool_name,
            tool_class=_READ_BACK if item.source is not None else classify(shown, is_input=False),
            tokens=tokens,
            placeholder_tokens=placeholder_tokens,
            paths=call.paths,
            pinned=message.tool_name in self.exact,
        )

    def left(self, item_ids: Collection[str], shrinkable: Mapping[str, ContextItem] = MappingProxyType({})) -> None:
        """These left, by whatever rule; ids are those of results, or of trimmed arguments.

        ``shrinkable``: those of the results whose placeholder is a long one that a short one may replace later.
        """
        ledger = self.ledger.resized(self._candidates.known_sizes(item_ids))
        longer = [item for item in shrinkable.values() if item.id in ledger.held]
        added = [self._placeholder(item, item.message) for item in longer if isinstance(item.message, ToolMessage)]
        self._ledger = self._without(ledger, item_ids, added)

    def _without(self, ledger: Ledger, item_ids: Collection[str], longer: Sequence[Candidate | int]) -> Ledger:
        """The ledger once placeholders have replaced these items; they are ``longer`` than the later ones."""
        cold = ledger.is_cold(self._clock())
        return ledger.after([Left(item_ids, cold, longer)]) if longer else ledger.evicted(item_ids, cold=cold)

    def restored(self, item: ContextItem, items: Collection[ContextItem], arguments: Mapping[str, Any]) -> None:
        """The content of ``item`` is back among ``items``, once the candidates know it.

        ``arguments`` are those of its call, if it is a result.
        """
        held = {item_id: h.candidate for item_id, h in self.ledger.held.items() if item_id != item.id}
        if isinstance(item.message, ToolMessage):
            self._calls = {**self._calls, item.message.tool_call_id: _Call.of(arguments)}
            held |= {c.id: c for c in self._result(item, item.message) if isinstance(c, Candidate)}
        self._rebuilt(list(items), held, unchanged=[one.id for one in items].index(item.id))

    def pin(self, item_ids: Collection[str], *, pinned: bool) -> None:
        """These items stay, however well it would pay to evict them, or not any more."""
        if item_ids:
            free = [
                i for i in item_ids if i in self.ledger.held and self.ledger.held[i].candidate.tool not in self.exact
            ]
            self._ledger = self.ledger.with_pinned(free, pinned)

    def rebuilt(self, items: Iterable[ContextItem], *, unchanged: int) -> None:
        """The context was rewritten in the middle: it now holds ``items``, of which the first ones are unchanged."""
        self._rebuilt(list(items), {item_id: h.candidate for item_id, h in self.ledger.held.items()}, unchanged)

    def going_on_from(self, before: "SessionPricing", *, unchanged_tokens: int) -> None:
        """What was entered here is the context of ``before`` up to ``unchanged_tokens``; what that knew is known."""
        self._ledger = self.ledger.going_on_from(before.ledger, unchanged_tokens=unchanged_tokens)

    def _rebuilt(self, items: Sequence[ContextItem], held: Mapping[str, Candidate], unchanged: int) -> None:
        parts: list[Candidate | int] = []
        for item in items:
            ids = [item.id, *(trim.stored.id for trim in self._candidates.trims_of(item.id))]
            inside = [held[one] for one in ids if one in held]
            parts += [max(0, item.token_count - sum(c.tokens for c in inside)), *inside]
        same = sum(item.token_count for item in items[:unchanged])
        self._ledger = self.ledger.rebuilt(parts, unchanged_tokens=same)

    def follow_host(self, terms: CacheTerms | None, *, rewrites_all: bool) -> None:
        """A host sets the cache's breakpoints: at other ``terms``, or where a change rewrites all of a request."""
        terms = terms or self._terms
        rates = replace(terms.rates, rewrites_all=rewrites_all or terms.rates.rewrites_all)
        self._terms = replace(terms, rates=rates)
        self._ledger = replace(self.ledger, rates=rates)

    def resumed(self, last_call_at: float, usage: Usage) -> None:
        """The session was taken up again; its cache counts from its last call, in seconds of the clock (0: unknown).

        ``usage``: what that call was billed; nothing where it is not known.
        """
        ledger = self.ledger
        billed = Billed.of(usage, charges_writes=self._charges_writes)
        if billed.prompt and billed.held is not None:
            share = (billed.prompt - billed.held) / billed.prompt
            ledger = ledger.lost(round(share * (ledger.total_tokens - ledger.new_tokens)))
        self._ledger = replace(ledger, cache_expires_at=last_call_at + self._terms.ttl_s)

    # Deciding --------------------------------------------------------------------------------------------------------

    def chosen(self) -> list[str]:
        """What would leave first, by the sizes that are known: the items, and the stored arguments of calls.

        ``plan`` is empty when this is.
        """
        return [e.item_id for e in self._decided(self.ledger, self._clock()).evictions]

    def plan(self) -> tuple[Offload | Trim, ...]:
        """What leaves now because it pays, each with its reason; nothing is left that would leave right after it.

        The ledger begins with the least that a placeholder may take. The placeholders of what would leave are written,
        and it is planned again with their sizes, until all of those are known. So the plan is the same as if every
        placeholder had been written: a larger one only makes it pay less to evict its item.
        """
        now, ledger, steps = self._clock(), self.ledger, dict[str, Offload | Trim]()
        while True:
            evictions = self._decided(ledger, now).evictions
            sizes = self._candidates.sizes(e.item_id for e in evictions)
            if (resized := ledger.resized(sizes)) is not ledger:
                self._ledger = resized if ledger is self._ledger else self._ledger.resized(sizes)
                ledger = resized
                continue
            found = {e.item_id: self._candidates.step(e.item_id, str(e.why)) for e in evictions}
            if not found.keys() - steps.keys():
                return tuple(steps.values())
            steps.update(found)
            ledger = self._without(ledger, found, ())

    def _decided(self, ledger: Ledger, now: float) -> EconomicPlan:
        """What the planner says to ``ledger``: what it said the last time, if nothing has changed since."""
        cold = ledger.is_cold(now)
        if self._planned is None or self._planned[0] is not ledger or self._planned[1] != cold:
            self._planned = ledger, cold, next_plan(ledger, self._ripening, now=now)
        return self._planned[2]

    def next_start(self) -> str | None:
        """The item at which the next batch will begin, as far as one can say; None: nothing is near."""
        found = next_start(self.ledger, self._ripening)
        return None if found is None else self._candidates.owner(found)

    def decisions(self) -> tuple[EvictionDecision, ...]:
        """What the planner thinks of every item that could leave: why it leaves or stays, and when it would go."""
        self.plan()  # so that the sizes are known of what would leave
        return decisions(self.ledger, now=self._clock())


def _input_candidate(trim: Trim, message: AssistantMessage) -> Candidate:
    block = message.content[trim.block]
    assert isinstance(block, dict)
    return Candidate(
        id=trim.stored.id,
        tool=block["name"],
        tool_class=classify(block["name"], is_input=True),
        tokens=trim.tokens_before,
        placeholder_tokens=trim.tokens_after,
        paths=paths_of(block["input"]),
    )
