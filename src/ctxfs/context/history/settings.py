"""The settings of a session's histories, checked and complete. Pure."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ctxfs.context.entry import EntryRules
from ctxfs.context.history.views import Api
from ctxfs.context.history.wire import Body
from ctxfs.context.settings import (
    as_window,
    check_keep_recent,
    check_limits,
    check_preview,
    check_repeats,
    eviction_rules,
    preview_rule,
    priced_at,
)
from ctxfs.errors import ConfigError, ToolDefinitionError
from ctxfs.errors.checks import require_bool, require_kind, require_model
from ctxfs.eviction.budget import Budget
from ctxfs.eviction.compaction import Strategy
from ctxfs.eviction.economics.economy import EvictionPricing, ModelPricing
from ctxfs.eviction.events import ContextEvent
from ctxfs.eviction.offload_plan import EagerPolicy
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.preview import Preview, PreviewRule
from ctxfs.eviction.window import Auto, Window, WindowGuard
from ctxfs.messages.items import ItemType
from ctxfs.messages.models.known import warn_unknown
from ctxfs.messages.models.prices import CacheTtl
from ctxfs.messages.names import Layout, LayoutName, NameAllocator, as_layout, layout_of
from ctxfs.messages.rates import planning_prices
from ctxfs.messages.tokens import TokenCounter, require_counter
from ctxfs.session.records import EvictionSet
from ctxfs.session.state import SessionState
from ctxfs.tools.base import check_tool_name
from ctxfs.tools.materialization import Materialize, Materializer


@dataclass(frozen=True, kw_only=True)
class HistorySettings:
    """The settings of a ``History``, as it documents them.

    Raises:
        ConfigError: a setting of another type, one that cannot work, or two that contradict each other.

    """

    model: str
    keep_recent: Mapping[str, int] | None
    offload_policy: OffloadPolicy | None
    window: Window | int | Auto | None
    pricing: EvictionPricing | Auto | None
    materialize: Materialize | None
    layout: Layout | LayoutName
    read_tool: str
    recall: bool
    counter: TokenCounter | None
    on_event: Callable[[ContextEvent], None] | None
    preview_above_tokens: int | None
    shadow: Callable[[Api, Body, Body, Callable[[Any], None]], None] | None = None
    kept_branches: int = 64
    """How many branches are kept in memory; any other is derived again when it is next used."""
    exact: Mapping[str, int] = field(init=False)
    """The numbers of ``keep_recent``."""
    guard: WindowGuard = field(init=False)
    policy: OffloadPolicy = field(init=False)
    priced: ModelPricing | None = field(init=False)
    preview: PreviewRule | None = field(init=False)
    """From which size on new results are previewed; None: they are sent whole."""
    file_layout: Layout = field(init=False)
    """The form in which contents are stored in a new session."""

    def __post_init__(self) -> None:
        check_keep_recent(self.keep_recent)
        require_bool("recall", self.recall)
        require_model(self.model)
        require_counter(self.counter)
        require_kind("offload_policy", self.offload_policy, OffloadPolicy, "OffloadPolicy(...)")
        require_kind("materialize", self.materialize, Materialize, "Materialize(...)")
        require_kind("on_event", self.on_event, Callable, "a function of an event")
        require_kind("shadow", self.shadow, Callable, "ctxfs.lab.Shadow(...)")
        try:
            check_tool_name(self.read_tool)
        except ToolDefinitionError as error:
            raise ConfigError(f"read_tool: {error}") from error
        priced = priced_at(self.model, self.pricing)
        window = as_window(self.window)
        _check_in_place(window)
        policy = self.offload_policy or OffloadPolicy()
        guard = WindowGuard.of(window, self.model, policy)
        if self.materialize is not None:
            check_limits("materialize", policy)
        check_preview(self.preview_above_tokens, policy)
        check_repeats(self.preview_above_tokens, policy)
        object.__setattr__(self, "exact", dict(self.keep_recent or {}))
        object.__setattr__(self, "guard", guard)
        object.__setattr__(self, "policy", policy)
        object.__setattr__(self, "priced", priced)
        object.__setattr__(self, "preview", preview_rule(self.preview_above_tokens, guard.budget))
        layout = as_layout(self.layout)
        # A tool of the framework may open the files, so they are compressed only when somebody says so.
        layout = replace(layout, compress_from_chars=layout.compress_from_chars or 0)
        object.__setattr__(self, "file_layout", layout)

    def may_be_large(self, text: str) -> bool:
        """Whether a new result of this text might be replaced where it is made; it is not counted."""
        if self.materialize is not None:
            return self.materialize.is_over(text)
        return self.preview is not None and self.preview.may_be_over(text)

    def at_source(self, tools: Collection[str]) -> EagerPolicy | None:
        """What decides about a new result where it is made, if the model reads with ``tools``; None: it stays."""
        if self.materialize is not None:
            return Materializer(settings=self.materialize, tools=tools, reader=self.read_tool)
        return None if self.preview is None else Preview(rule=self.preview, tools=tools, reader=self.read_tool)

    def warn_of_model(self, sent: object) -> None:
        """Warn, once for each name, if a request names its model, and what is assumed is not that model's.

        ``sent``: the name in the request; without one, nothing is said.
        """
        if self.model or not isinstance(sent, str) or not sent:
            return
        assumed: list[str] = []
        if self.window == "auto":
            assumed.append(f"a window of {Budget.of_model('').window_tokens:,} tokens")
        if self.pricing == "auto":
            assumed.append("Anthropic's ratios of prices")
        if assumed:
            warn_unknown(
                f"the model of a History whose requests name {sent!r}",
                f"it assumes {' and '.join(assumed)}; give it the model, as History(model={sent!r})",
            )

    def can_read(self, tools: Collection[str]) -> bool:
        """Whether one of these tools of a request opens what placeholders name.

        No tools at all say nothing: such a request asks for a text. A host may put a server before a tool's name.
        """
        wanted = self.read_tool.casefold()
        names = [name.casefold() for name in tools]
        return not names or any(name == wanted or name.endswith(f"__{wanted}") for name in names)

    @property
    def clock(self) -> Callable[[], float]:
        """Gives seconds since the epoch."""
        return time.time if self.priced is None else self.priced.clock

    def pricing_for(self, ttl: CacheTtl) -> ModelPricing | None:
        """The price of a cache that keeps a prefix for that long; None: it is set already, or the model offers none."""
        pricing = EvictionPricing() if self.pricing == "auto" else self.pricing
        if pricing is None or pricing.cache_ttl is not None:
            return None
        prices = pricing.prices or planning_prices(self.model)
        if ttl not in prices.cache_ttls:
            return None
        return ModelPricing.of(replace(pricing, cache_ttl=ttl), self.model)

    def entry_rules(self, counter: TokenCounter, base: str) -> EntryRules:
        """The rules for each new message of a session with this ``base``."""
        return EntryRules(
            counter=counter,
            base=base,
            by_price=self.priced is not None,
            exact=frozenset(self.exact),
            policy=self.policy,
            reader=self.read_tool,
        )

    def names_in(self, state: SessionState) -> NameAllocator:
        """What allocates names in a session that has this state; it changes nothing there."""
        return NameAllocator(state.ids, layout=layout_of(state.layout, self.file_layout))

    @property
    def rules(self) -> EvictionSet:
        """The rules in force, as the journal records them."""
        return eviction_rules(self.exact, self.guard.budget, self.policy, self.priced)


def _check_in_place(window: Window) -> None:
    """Raise ``ConfigError`` if ``window`` says what only the owner of a history can do."""
    if window.summarize is not None:
        raise ConfigError("a history of others is not summarised here: leave out summarize")
    if window.compaction is None:
        return
    for kind, rule in window.compaction.rules.items():
        if rule is Strategy.KEEP:
            continue
        if rule is Strategy.DROP or kind is ItemType.ASSISTANT_MESSAGE:
            raise ConfigError(f"the rule {rule} for {kind} moves messages: their order is the framework's")
