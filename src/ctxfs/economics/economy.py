"""The economic planner inside a context: what an item is to it, and what its decisions mean for the context. No I/O.

What leaves is decided in ``economics``. Besides tool results, the arguments of tool calls may leave: the large ones are
replaced by a placeholder, small ones stay as they are.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import Any

from ctxfs.checks import require_kind, require_number
from ctxfs.economics.features import classify, paths_of, writes
from ctxfs.economics.ledger import Added, Candidate, Ledger, ReadBack, Replied, Step
from ctxfs.economics.parameters import EvictionParameters
from ctxfs.economics.planner import Eviction, EvictionDecision, Why, decisions, plan
from ctxfs.economics.prices import ANTHROPIC_RATES, Rates
from ctxfs.errors import ConfigError
from ctxfs.eviction.options import EvictionOptions
from ctxfs.eviction.plan import Offload, Trim
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.items import ContextItem, ItemType
from ctxfs.llm.messages import AssistantMessage, ToolMessage

__all__ = ["CacheTerms", "EvictionPricing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTerms:
    """What a token costs, and for how many seconds the provider keeps a prefix; 0 means that it keeps none."""

    rates: Rates = ANTHROPIC_RATES
    ttl_s: float = 300.0

    def __post_init__(self) -> None:
        require_kind("rates", self.rates, Rates, "Rates(...)")
        require_number("ttl_s", self.ttl_s, at_least=0)


class EvictionPricing:
    """Keeps the ledger of one session.

    A ``Context`` keeps its own, with the settings of the one that it is given. ``clock`` gives seconds since the epoch;
    the prompt cache expires by it.
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
        self._exact: frozenset[str] = frozenset()
        self._policy = OffloadPolicy()
        self._arguments: dict[str, Mapping[str, Any]] = {}
        self._prepared: dict[str, Trim] = {}
        self._offloads: dict[str, Offload] = {}
        self._unseen: dict[str, tuple[str, int] | None] = {}  # None: it may not leave before the model has seen it
        self._ledger = Ledger(parameters=self._parameters, rates=self._terms.rates)
        self._steps: list[Step] = []  # what the ledger has yet to take in

    def for_session(self, exact: Collection[str], policy: OffloadPolicy | None = None) -> "EvictionPricing":
        """One with the same settings that has seen nothing yet.

        ``exact``: tools whose results leave by another rule; they are counted, and never leave because it pays.
        ``policy``: what may leave at all; None means the default.
        """
        economy = EvictionPricing(clock=self._clock, parameters=self._parameters, terms=self._terms)
        economy._exact = frozenset(exact)
        economy._policy = policy or OffloadPolicy()
        return economy

    @property
    def parameters(self) -> EvictionParameters:
        """The planner's numbers."""
        return self._parameters

    @property
    def clock(self) -> Callable[[], float]:
        """Gives seconds since the epoch."""
        return self._clock

    @property
    def exact(self) -> frozenset[str]:
        """The tools whose results are evicted by another rule."""
        return self._exact

    @property
    def terms(self) -> CacheTerms:
        """What the planner reckons with."""
        return self._terms

    @property
    def ledger(self) -> Ledger:
        """What the planner knows now."""
        if self._steps:
            self._ledger, self._steps = self._ledger.after(self._steps), []
        return self._ledger

    def entered(self, item: ContextItem, options: EvictionOptions, path: str) -> None:
        """Take in an item at the end of the context; ``path`` is the file that it would go to (absolute)."""
        message = item.message
        if isinstance(message, AssistantMessage):
            self._replied(item, message, options.trims)
            return
        if item.source is not None:
            self._steps.append(ReadBack(item.source.item_id))
        if item.item_type is ItemType.TOOL_RESULT:
            self._unseen[item.id] = options.eager_placeholder
        parts = self._result(item, message, path) if isinstance(message, ToolMessage) else (item.token_count,)
        self._steps.append(Added(parts))

    def _replied(self, item: ContextItem, message: AssistantMessage, trims: Sequence[Trim]) -> None:
        self._unseen.clear()
        calls = message.tool_calls
        self._arguments = {call.id: call.arguments for call in calls}
        parts: list[Candidate | int] = [max(0, item.token_count - sum(t.tokens_before for t in trims))]
        for trim in trims:
            self._prepared[trim.stored.id] = trim
            parts.append(_candidate_of(trim, message))
        step = Replied(
            parts,
            paths=[p for call in calls for p in paths_of(call.arguments)],
            changed_paths=[p for call in calls if writes(call.name) for p in paths_of(call.arguments)],
            cache_expires_at=self._clock() + self._terms.ttl_s,
        )
        self._steps.append(step)

    def _result(self, item: ContextItem, message: ToolMessage, path: str) -> tuple[Candidate | int, ...]:
        if item.can_shrink:
            return (item.placeholder_tokens, self._placeholder(item, message, path))
        allowed = self._policy.allows(item.item_type, item.content_tokens)
        if item.placeholder is None or item.destroyed or not allowed:
            return (item.token_count,)
        return (
            self._candidate(item, message, path, tokens=item.token_count, placeholder_tokens=item.placeholder_tokens),
        )

    def _placeholder(self, item: ContextItem, message: ToolMessage, path: str) -> Candidate:
        """What the placeholder of an evicted result has more than the short one."""
        longer = self._candidate(
            item, message, path, tokens=item.token_count - item.placeholder_tokens, placeholder_tokens=0
        )
        return replace(longer, is_placeholder=True)

    def _candidate(
        self, item: ContextItem, message: ToolMessage, path: str, *, tokens: int, placeholder_tokens: int
    ) -> Candidate:
        self._offloads[item.id] = Offload.of(item, path, str(Why.BATCH))
        return Candidate(
            id=item.id,
            tool=message.tool_name,
            tool_class=classify(message.tool_name, is_input=False),
            tokens=tokens,
            placeholder_tokens=placeholder_tokens,
            paths=paths_of(self._arguments.get(message.tool_call_id, {})),
            pinned=message.tool_name in self._exact,
        )

    def left(self, item_ids: Collection[str], shrinkable: Mapping[str, ContextItem] = MappingProxyType({})) -> None:
        """These left, by whatever rule; ids are those of results, or of trimmed arguments.

        ``shrinkable``: those of the results whose placeholder is a long one that a short one may replace later.
        """
        self._ledger = self._without(self.ledger, item_ids, shrinkable)
        paths = {item_id: self._offloads[item_id].path for item_id in shrinkable if item_id in self._offloads}
        known: tuple[dict[str, Any], ...] = (self._offloads, self._prepared, self._unseen)
        for table, item_id in product(known, item_ids):
            table.pop(item_id, None)
        for item_id, path in paths.items():
            item = shrinkable[item_id]
            assert isinstance(item.message, ToolMessage)
            self._unseen[item_id] = None
            self._ledger = self._ledger.added([self._placeholder(item, item.message, path)])

    def _without(self, ledger: Ledger, item_ids: Collection[str], shrinkable: Collection[str] = ()) -> Ledger:
        """The ledger once these have left; what the long placeholders of ``shrinkable`` take is not in it."""
        expires = ledger.cache_expires_at
        eager = {i: found for i in item_ids if (found := self._unseen.get(i)) and i in self._offloads}
        longer = sum(tokens - self._offloads[i].tokens_after for i, (_, tokens) in eager.items() if i not in shrinkable)
        ledger = ledger.evicted(item_ids, cold=expires is not None and self._clock() >= expires)
        return ledger.added([longer]) if longer > 0 else ledger

    def rebuilt(self, items: Iterable[ContextItem]) -> None:
        """The context was rewritten in the middle: it now holds ``items``, and nothing of it is cached."""
        parts: list[Candidate | int] = []
        held = {item_id: h.candidate for item_id, h in self.ledger.held.items()}
        trims: dict[str, list[Trim]] = {}
        for trim in self._prepared.values():
            trims.setdefault(trim.item_id, []).append(trim)
        for item in items:
            inside = [held[t.stored.id] for t in trims.get(item.id, ()) if t.stored.id in held]
            if item.id in held:
                inside = [held[item.id]]
            parts += [max(0, item.token_count - sum(c.tokens for c in inside)), *inside]
        self._ledger = self.ledger.rebuilt(parts)
        self._offloads = {k: v for k, v in self._offloads.items() if k in self.ledger.held}
        self._prepared = {k: v for k, v in self._prepared.items() if k in self.ledger.held}

    def resumed(self, last_call_at: float) -> None:
        """The session was taken up again; its cache counts from its last call, in seconds of the clock (0: unknown)."""
        self._ledger = replace(self.ledger, cache_expires_at=last_call_at + self._terms.ttl_s)

    # Deciding --------------------------------------------------------------------------------------------------------

    def plan(self) -> tuple[Offload | Trim, ...]:
        """What leaves now because it pays, each with its reason; nothing is left that would leave right after it."""
        now = self._clock()
        ledger, steps = self.ledger, dict[str, Offload | Trim]()
        while True:
            found = {e.item_id: step for e in plan(ledger, now=now).evictions if (step := self._step(e)) is not None}
            if not found.keys() - steps.keys():
                return tuple(steps.values())
            steps.update(found)
            ledger = self._without(ledger, found)

    def _step(self, eviction: Eviction) -> Offload | Trim | None:
        step = self._offloads.get(eviction.item_id) or self._prepared[eviction.item_id]
        if eviction.item_id in self._unseen:
            described = self._unseen[eviction.item_id]
            if described is None:
                return None
            assert isinstance(step, Offload)
            step = replace(step, placeholder=described[0], tokens_after=described[1])
        return step if step.reason == eviction.why else replace(step, reason=str(eviction.why))

    def decisions(self) -> tuple[EvictionDecision, ...]:
        """What the planner thinks of every item that could leave: why it leaves or stays, and when it would go."""
        return tuple(
            replace(v, why=Why.NEW) if v.why is Why.ARRIVAL and self._unseen.get(v.item_id) is None else v
            for v in decisions(self.ledger, now=self._clock())
        )


def _candidate_of(trim: Trim, message: AssistantMessage) -> Candidate:
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
