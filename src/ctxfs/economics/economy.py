"""The economic planner inside a context: what an item is to it, and what its decisions mean for the context. No I/O.

What leaves is decided in ``economics``. Besides tool results, the arguments of tool calls may leave: the large ones are
replaced by a placeholder, small ones stay as they are.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from ctxfs.checks import require_kind, require_number
from ctxfs.economics.features import classify, paths_of, program_of, writes
from ctxfs.economics.ledger import Ledger
from ctxfs.economics.ledger_steps import Added, Candidate, ReadBack, Replied, Step
from ctxfs.economics.parameters import EvictionParameters
from ctxfs.economics.planner import Eviction, EvictionDecision, Why, arrivals, decisions, plan
from ctxfs.economics.prices import ANTHROPIC_RATES, Rates
from ctxfs.errors import ConfigError
from ctxfs.eviction.candidates import Candidates
from ctxfs.eviction.plan import Offload, Trim
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.items import ContextItem
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


class EvictionPricing:
    """What eviction by price goes by: the planner's numbers, and what the prompt cache costs.

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
        self._arguments: dict[str, Mapping[str, Any]] = {}  # of the calls of the last reply
        self._ledger = Ledger(parameters=settings.parameters, rates=settings.terms.rates)
        self._steps: list[Step] = []  # what the ledger has yet to take in

    @property
    def ledger(self) -> Ledger:
        """What the planner knows now."""
        if self._steps:
            self._ledger, self._steps = self._ledger.after(self._steps), []
        return self._ledger

    def entered(self, item: ContextItem) -> None:
        """Take in an item at the end of the context, once the candidates know it."""
        message = item.message
        if isinstance(message, AssistantMessage):
            self._replied(item, message)
            return
        if item.source is not None:
            self._steps.append(ReadBack(item.source.item_id))
        parts = self._result(item, message) if isinstance(message, ToolMessage) else (item.token_count,)
        self._steps.append(Added(parts))

    def _replied(self, item: ContextItem, message: AssistantMessage) -> None:
        calls, trims = message.tool_calls, self._candidates.trims_of(item.id)
        self._arguments = {call.id: call.arguments for call in calls}
        inputs = [_input_candidate(trim, message) for trim in trims]
        step = Replied(
            (max(0, item.token_count - sum(i.tokens for i in inputs)), *inputs),
            paths=[p for call in calls for p in paths_of(call.arguments)],
            changed_paths=[p for call in calls if writes(call.name) for p in paths_of(call.arguments)],
            cache_expires_at=self._clock() + self._terms.ttl_s,
        )
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
        arguments = self._arguments.get(message.tool_call_id, {})
        program = program_of(arguments)
        return Candidate(
            id=item.id,
            tool=f"{message.tool_name} {program}" if program else message.tool_name,
            tool_class=classify(program or message.tool_name, is_input=False),
            tokens=tokens,
            placeholder_tokens=placeholder_tokens,
            paths=paths_of(arguments),
            pinned=message.tool_name in self.exact,
        )

    def left(self, item_ids: Collection[str], shrinkable: Mapping[str, ContextItem] = MappingProxyType({})) -> None:
        """These left, by whatever rule; ids are those of results, or of trimmed arguments.

        ``shrinkable``: those of the results whose placeholder is a long one that a short one may replace later.
        """
        ledger = self.ledger.resized(self._candidates.known_sizes(item_ids))
        longer = [item for item in shrinkable.values() if item.id in ledger.held]
        ledger = self._without(ledger, item_ids)
        for item in longer:
            assert isinstance(item.message, ToolMessage)
            ledger = ledger.added([self._placeholder(item, item.message)])
        self._ledger = ledger

    def _without(self, ledger: Ledger, item_ids: Collection[str]) -> Ledger:
        """The ledger once the later placeholders of these items have replaced them."""
        expires = ledger.cache_expires_at
        return ledger.evicted(item_ids, cold=expires is not None and self._clock() >= expires)

    def restored(self, item: ContextItem, items: Iterable[ContextItem], arguments: Mapping[str, Any]) -> None:
        """The content of ``item`` is back among ``items``, once the candidates know it.

        ``arguments`` are those of its call, if it is a result.
        """
        held = {item_id: h.candidate for item_id, h in self.ledger.held.items() if item_id != item.id}
        if isinstance(item.message, ToolMessage):
            self._arguments = {**self._arguments, item.message.tool_call_id: arguments}
            held |= {c.id: c for c in self._result(item, item.message) if isinstance(c, Candidate)}
        self._rebuilt(items, held)

    def pin(self, item_ids: Collection[str], *, pinned: bool) -> None:
        """These items stay, however well it would pay to evict them, or not any more."""
        if item_ids:
            free = [
                i for i in item_ids if i in self.ledger.held and self.ledger.held[i].candidate.tool not in self.exact
            ]
            self._ledger = self.ledger.with_pinned(free, pinned)

    def rebuilt(self, items: Iterable[ContextItem]) -> None:
        """The context was rewritten in the middle: it now holds ``items``, and nothing of it is cached."""
        self._rebuilt(items, {item_id: h.candidate for item_id, h in self.ledger.held.items()})

    def _rebuilt(self, items: Iterable[ContextItem], held: Mapping[str, Candidate]) -> None:
        parts: list[Candidate | int] = []
        for item in items:
            ids = [item.id, *(trim.stored.id for trim in self._candidates.trims_of(item.id))]
            inside = [held[one] for one in ids if one in held]
            parts += [max(0, item.token_count - sum(c.tokens for c in inside)), *inside]
        self._ledger = self.ledger.rebuilt(parts)

    def resumed(self, last_call_at: float) -> None:
        """The session was taken up again; its cache counts from its last call, in seconds of the clock (0: unknown)."""
        self._ledger = replace(self.ledger, cache_expires_at=last_call_at + self._terms.ttl_s)

    # Deciding --------------------------------------------------------------------------------------------------------

    def chosen(self) -> list[str]:
        """What would leave first, by the sizes that are known: the items, and the stored arguments of calls.

        ``plan`` is empty when this is.
        """
        return [e.item_id for e in self._possible(plan(self.ledger, now=self._clock()).evictions)]

    def leaves_unsent(self) -> bool:
        """Whether something would leave before it is ever sent, by the sizes that are known."""
        return bool(self._possible(arrivals(self.ledger)))

    def plan(self) -> tuple[Offload | Trim, ...]:
        """What leaves now because it pays, each with its reason; nothing is left that would leave right after it.

        The ledger begins with the least that a placeholder may take. The placeholders of what would leave are written,
        and it is planned again with their sizes, until all of those are known. So the plan is the same as if every
        placeholder had been written: a larger one only makes it pay less to evict its item.
        """
        now, ledger, steps = self._clock(), self.ledger, dict[str, Offload | Trim]()
        while True:
            evictions = self._possible(plan(ledger, now=now).evictions)
            sizes = self._candidates.sizes(e.item_id for e in evictions)
            if (resized := ledger.resized(sizes)) is not ledger:
                self._ledger, ledger = self._ledger.resized(sizes), resized
                continue
            made = {e.item_id: self._candidates.step(e.item_id, str(e.why)) for e in evictions}
            found = {one: step for one, step in made.items() if step is not None}
            if not found.keys() - steps.keys():
                return tuple(steps.values())
            steps.update(found)
            ledger = self._without(ledger, found)
            longer = sum(_longer(step) for step in found.values())
            ledger = ledger.added([longer]) if longer > 0 else ledger

    def _possible(self, evictions: Sequence[Eviction]) -> list[Eviction]:
        """Those of them for which a placeholder is written: not for a result that must be seen, whatever it says."""
        return [e for e in evictions if not self._candidates.must_be_seen_whole(e.item_id)]

    def decisions(self) -> tuple[EvictionDecision, ...]:
        """What the planner thinks of every item that could leave: why it leaves or stays, and when it would go."""
        self.plan()  # so that the sizes are known of what would leave
        return tuple(
            replace(v, why=Why.NEW) if v.why is Why.ARRIVAL and self._candidates.must_be_seen(v.item_id) else v
            for v in decisions(self.ledger, now=self._clock())
        )


def _longer(step: Offload | Trim) -> int:
    """How many tokens longer the placeholder is than the one that may replace it later."""
    return step.tokens_after - step.later[1] if isinstance(step, Offload) and step.later is not None else 0


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
