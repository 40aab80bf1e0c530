"""The economic planner inside a context: what an item is to it, and what its decisions mean for the context. No I/O.

What leaves is decided in ``economics``. Besides tool results, the arguments of tool calls may leave: the large ones are
replaced by a placeholder, small ones stay as they are.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings, require_bool, require_kind
from ctxfs.eviction.candidates import Candidates
from ctxfs.eviction.economics.held import Candidate
from ctxfs.eviction.economics.ledger import Billed, Ledger
from ctxfs.eviction.economics.parameters import EvictionParameters, ItemKind, kind_of_result, program_of
from ctxfs.eviction.economics.planner import decisions, next_start, plan
from ctxfs.eviction.economics.plans import EvictionDecision, Why
from ctxfs.eviction.keep_recent import KeepRecentCost
from ctxfs.eviction.offload_plan import Offload, Trim
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import AssistantMessage, ToolMessage
from ctxfs.messages.models.known import model_or_relative
from ctxfs.messages.models.prices import TTL_SECONDS, CacheTtl, Prices
from ctxfs.messages.rates import ANTHROPIC_RATES, Rates, planning_prices


@names_settings(
    {
        "rates": "give prices=Prices(...); only their ratios count",
        "terms": "give prices=Prices(...) and cache_ttl",
        "ttl_s": "give cache_ttl, such as '1h'",
        "clock": "a subclass may say in its method now() what time it is",
    }
)
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvictionPricing:
    """How it is decided that evicting something pays.

    Args:
        prices: what the model's tokens cost; None takes them from the table of models, and warns of an unknown one.
        cache_ttl: how long the provider keeps a cached prefix: "5m" or "1h" (Anthropic), "30m" or "12h" (OpenAI),
            "auto"; the value that the model's client was made with. None: the provider's default.
        parameters: the planner's numbers.
        host_breakpoints: the program sets prompt-cache breakpoints of its own, only at the end of its requests: each
            eviction then makes the provider write everything again, so fewer pay.

    Raises:
        ConfigError: one of them is something else. Where it is used, ``UnsupportedCacheTtl`` is raised for a time that
            the provider of the model does not offer.
    """

    prices: Prices | None = None
    cache_ttl: CacheTtl | None = None
    parameters: EvictionParameters = field(default_factory=EvictionParameters)
    host_breakpoints: bool = False

    def __post_init__(self) -> None:
        require_kind("prices", self.prices, Prices, "Prices(...)")
        if self.cache_ttl is not None and self.cache_ttl not in tuple(TTL_SECONDS):
            raise ConfigError(f"cache_ttl is {self.cache_ttl!r}: use one of {', '.join(TTL_SECONDS)}")
        if not isinstance(self.parameters, EvictionParameters):
            raise ConfigError(f"parameters is {self.parameters!r}: use EvictionParameters(...)")
        require_bool("host_breakpoints", self.host_breakpoints)

    def now(self) -> float:
        """Seconds since the epoch, by which the prompt cache expires. A test may answer with a time of its own."""
        return time.time()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelPricing:
    """``EvictionPricing`` at the prices of one model: what the planner works with.

    ``rates``: what a token costs. ``ttl_s``: for how many seconds the provider keeps a prefix; 0: it keeps none.
    """

    clock: Callable[[], float] = time.time
    parameters: EvictionParameters = field(default_factory=EvictionParameters)
    rates: Rates = ANTHROPIC_RATES
    ttl_s: float = 300.0

    @classmethod
    def of(cls, pricing: EvictionPricing, model: str) -> "ModelPricing":
        """``pricing`` at the prices of ``model``. Raises ``UnsupportedCacheTtl`` for a time that they do not offer."""
        prices = pricing.prices or planning_prices(model)
        ttl = prices.ttl(pricing.cache_ttl, model=model)
        info, _ = model_or_relative(model)
        least = info.cached_prefix_tokens if info is not None else None
        rates = Rates.of(prices, ttl, least_cached_tokens=least or 0)
        return cls(
            clock=pricing.now,
            parameters=pricing.parameters,
            rates=replace(rates, rewrites_all=pricing.host_breakpoints),
            ttl_s=TTL_SECONDS[ttl],
        )


class SessionPricing:
    """The ledger of one session, and what the planner says to it.

    ``candidates``: how the items of the context can be evicted; their owner updates them first when an item
    enters, and last when one is evicted. ``exact``: tools whose results are evicted by another rule; they are counted,
    and never evicted by price. ``policy``: what may be evicted at all; None means the default.
    """

    def __init__(
        self,
        settings: ModelPricing,
        candidates: Candidates,
        *,
        exact: Collection[str] = (),
        policy: OffloadPolicy | None = None,
    ) -> None:
        self.parameters = settings.parameters
        self.exact = frozenset(exact)
        self._pricing = settings
        self._clock = settings.clock
        self._policy = policy or OffloadPolicy()
        self._candidates = candidates
        self._programs: dict[str, str] = {}  # of the last reply: what each call of a shell runs, or ""
        self.ledger = Ledger(parameters=settings.parameters, rates=settings.rates)
        self._planned: tuple[int, bool, dict[str, Why]] | None = None
        self._billed: Billed | None = None  # of the request whose reply comes next
        self._exact_items: set[str] = set()
        self.keep_recent_cost = KeepRecentCost()

    def billed(self, usage: Usage) -> None:
        """Take in what the last request was billed, before its reply enters: what the cache holds really."""
        self._billed = Billed.of(usage, charges_writes=self._pricing.rates.write > 1)

    def entered(self, item: ContextItem) -> None:
        """Take in an item at the end of the context, once the candidates know it."""
        message = item.message
        if isinstance(message, AssistantMessage):
            self._replied(item, message)
            return
        parts = self._result(item, message) if isinstance(message, ToolMessage) else (item.token_count,)
        if item.source is None:
            self.ledger.added(parts)
        else:
            self.ledger.read_back(item.source.item_id, parts)

    def _replied(self, item: ContextItem, message: AssistantMessage) -> None:
        self._programs = {call.id: program_of(call.arguments) for call in message.tool_calls}
        inputs = [
            Candidate(
                id=trim.stored.id,
                kind=ItemKind.ARGUMENTS,
                tokens=trim.tokens_before,
                placeholder_tokens=trim.tokens_after,
            )
            for trim in self._candidates.trims_of(item.id)
        ]
        text = max(0, item.token_count - sum([i.tokens for i in inputs]))
        expires_at = self._clock() + self._pricing.ttl_s
        self.ledger.replied((text, *inputs), cache_expires_at=expires_at, billed=self._billed)
        self.keep_recent_cost.called(self.ledger.rates)
        self._billed = None

    def _result(self, item: ContextItem, message: ToolMessage) -> tuple[Candidate | int, ...]:
        if item.can_shrink:
            return (item.placeholder_tokens, self._placeholder(item, message))
        placeholder_tokens = self._candidates.known_tokens(item.id)
        if placeholder_tokens is None or not self._policy.allows(item.item_type, item.content_tokens):
            return (item.token_count,)
        return (self._candidate(item, message, item.token_count, placeholder_tokens),)

    def _placeholder(self, item: ContextItem, message: ToolMessage) -> Candidate:
        """How much longer the placeholder of an evicted result is than the short one that may replace it."""
        return self._candidate(item, message, item.token_count - item.placeholder_tokens, 0)

    def _candidate(self, item: ContextItem, message: ToolMessage, tokens: int, placeholder_tokens: int) -> Candidate:
        program = self._programs.get(message.tool_call_id, "")
        # What was read back was needed once more than the rest: it counts as a file, whatever printed it.
        kind = ItemKind.FILE if item.source is not None else kind_of_result(program or message.tool_name)
        is_exact = message.tool_name in self.exact
        if is_exact:
            self._exact_items.add(item.id)
        return Candidate(
            id=item.id,
            kind=kind,
            tokens=tokens,
            placeholder_tokens=placeholder_tokens,
            hidden_tokens=max(0, item.content_tokens - item.token_count),
            pinned=is_exact,
        )

    def left(
        self,
        item_ids: Collection[str],
        shrinkable: Mapping[str, ContextItem] = MappingProxyType({}),
        sizes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """These left, by whatever rule; ids are those of results, or of trimmed arguments.

        ``shrinkable``: those of the results whose placeholder is a long one that a short one may replace later.
        ``sizes``: the tokens of what replaced them, where another text than their placeholder did.
        """
        ledger = self.ledger
        ledger.resized({**self._candidates.sizes(item_ids), **sizes})
        placeholders = [
            replace(self._placeholder(item, item.message), is_counted=True)
            for item in shrinkable.values()
            if item.id in ledger.held and isinstance(item.message, ToolMessage)
        ]
        cold = ledger.is_cold(self._clock())
        self._keep_recent_evicts(item_ids, cold=cold)
        ledger.evicted(item_ids, cold=cold)
        if placeholders:
            ledger.surplus(placeholders)

    def _keep_recent_evicts(self, item_ids: Collection[str], *, cold: bool) -> None:
        """Count what it costs that those of these leave which keep-recent evicts."""
        ledger = self.ledger
        exact = {one for one in item_ids if one in self._exact_items and one in ledger.held}
        if exact:
            leaving = list(ledger.chain.with_tokens(exact))
            freed = sum([held.saved_tokens for held, _ in leaving])
            _, from_oldest = leaving[-1]
            rewritten = 0 if cold else max(0, from_oldest - freed - ledger.new_tokens)
            self.keep_recent_cost.evicted(freed, rewritten, ledger.rates)

    def restored(self, item: ContextItem, items: Collection[ContextItem], arguments: Mapping[str, Any]) -> None:
        """The content of ``item`` is back among ``items``, once the candidates know it.

        ``arguments`` are those of its call, if it is a result.
        """
        held = self._known()
        held.pop(item.id, None)
        if isinstance(item.message, ToolMessage):
            self._programs = {**self._programs, item.message.tool_call_id: program_of(arguments)}
            held |= {c.id: c for c in self._result(item, item.message) if isinstance(c, Candidate)}
        self._rebuilt(list(items), held, unchanged=[one.id for one in items].index(item.id))

    def pin(self, item_ids: Collection[str], *, pinned: bool) -> None:
        """These items stay, however well it would pay to evict them, or not any more."""
        self.ledger.pin([one for one in item_ids if one not in self._exact_items], pinned=pinned)

    def rebuilt(self, items: Iterable[ContextItem], *, unchanged: int) -> None:
        """The context was rewritten in the middle: it now holds ``items``, of which the first ones are unchanged."""
        self._rebuilt(list(items), self._known(), unchanged)

    def recounted(self, items: Iterable[ContextItem], *, freed_tokens: int, freed_new_tokens: int) -> None:
        """What stays is smaller, such as a copy of an item that left: see ``Ledger``; these are all items now."""
        parts = self._parts(items, self._known())
        self.ledger.recounted(parts, freed_tokens=freed_tokens, freed_new_tokens=freed_new_tokens)

    def _known(self) -> dict[str, Candidate]:
        return {item_id: held.candidate for item_id, held in self.ledger.held.items()}

    def _rebuilt(self, items: Sequence[ContextItem], held: Mapping[str, Candidate], unchanged: int) -> None:
        same = sum(item.token_count for item in items[:unchanged])
        self.ledger.rebuilt(self._parts(items, held), unchanged_tokens=same)

    def _parts(self, items: Iterable[ContextItem], held: Mapping[str, Candidate]) -> list[Candidate | int]:
        """``items`` as the ledger takes them, with those of ``held`` that are in them."""
        parts: list[Candidate | int] = []
        for item in items:
            ids = [item.id, *(trim.stored.id for trim in self._candidates.trims_of(item.id))]
            inside = [held[one] for one in ids if one in held]
            parts += [max(0, item.token_count - sum(c.tokens for c in inside)), *inside]
        return parts

    def follow_host(self, pricing: ModelPricing | None, *, rewrites_all: bool) -> None:
        """A host sets the cache's breakpoints: at another ``pricing``, or where a change rewrites all of a request."""
        pricing = pricing or self._pricing
        rates = replace(pricing.rates, rewrites_all=rewrites_all or pricing.rates.rewrites_all)
        self._pricing = replace(pricing, rates=rates)
        self.ledger.rates = rates
        self.ledger.changes += 1

    def resumed(self, before: "SessionPricing") -> None:
        """The session was taken up again with these items: ``before`` was led through all that happened to them."""
        known = before.ledger
        free = {item_id for item_id, held in self.ledger.held.items() if not held.candidate.pinned}
        self.keep_recent_cost = before.keep_recent_cost
        if known.total_tokens != self.ledger.total_tokens or not free <= known.held.keys():
            # The journal was damaged, the counter is another one, or messages came back as a whole.
            self.ledger.going_on_from(known)
            return
        known.pin(known.held.keys() - free, pinned=True)
        known.pin(free, pinned=False)
        self.ledger = known
        self._planned = None

    # Deciding --------------------------------------------------------------------------------------------------------

    def chosen(self) -> list[str]:
        """What would leave first, by the sizes that are known: the items, and the stored arguments of calls.

        ``plan`` is empty when this is.
        """
        return list(self._decided(self._clock()))

    def plan(self) -> tuple[Offload | Trim, ...]:
        """What leaves now because it pays, each with its reason; nothing is left that would leave right after it.

        The ledger begins with the least that a placeholder may take. The placeholders of what would leave are written,
        and it is planned again with their sizes, until all of those are known. So the plan is the same as if every
        placeholder had been written: a larger one only makes it pay less to evict its item.
        """
        now = self._clock()
        steps: dict[str, Offload | Trim] = {}
        tried: Ledger | None = None  # what the ledger would be without what leaves
        while True:
            decided = self._decided(now) if tried is None else plan(tried, now=now)
            self._candidates.write(decided)
            sizes = self._candidates.sizes(decided)
            is_news = self.ledger.resized(sizes)
            if tried is not None:
                is_news = tried.resized(sizes)
            if is_news:
                continue
            found = {item_id: self._candidates.step(item_id, str(why)) for item_id, why in decided.items()}
            if not found.keys() - steps.keys():
                return tuple(steps.values())
            steps.update(found)
            tried = self.ledger.copy() if tried is None else tried
            tried.evicted(found, cold=tried.is_cold(now))

    def _decided(self, now: float) -> dict[str, Why]:
        """What the planner says to the ledger: what it said the last time, if nothing has changed since."""
        cold = self.ledger.is_cold(now)
        if self._planned is None or self._planned[:2] != (self.ledger.changes, cold):
            self._planned = self.ledger.changes, cold, plan(self.ledger, now=now)
        return self._planned[2]

    def next_start(self) -> str | None:
        """The item at which the next batch will begin, as far as one can say; None: nothing is near."""
        found = next_start(self.ledger)
        return None if found is None else self._candidates.owner(found)

    def decisions(self) -> tuple[EvictionDecision, ...]:
        """What the planner thinks of every item that could leave: why it leaves or stays, and when it would go."""
        self.plan()  # so that the sizes are known of what would leave
        return decisions(self.ledger, now=self._clock())
