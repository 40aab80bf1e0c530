"""The settings of a context, checked and complete; and what follows from them for ``Context`` and ``History``. Pure.

From its tools follows how a model reads what was evicted (``Readers``).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from ctxfs.context.entry import EntryRules
from ctxfs.errors import ConfigError
from ctxfs.errors.checks import require_bool, require_int, require_kind, require_method, require_model, require_text
from ctxfs.eviction.budget import Budget
from ctxfs.eviction.candidates import Pins
from ctxfs.eviction.compaction import SelectiveCompaction, Strategy
from ctxfs.eviction.economics.economy import EvictionPricing, ModelPricing
from ctxfs.eviction.events import ContextEvent
from ctxfs.eviction.offload_plan import EagerPolicy
from ctxfs.eviction.placeholder.attach import DEFAULT_DIGEST_TOKENS
from ctxfs.eviction.placeholder.text import READ_TOOL, reading_tools
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.preview import DEFAULT_PREVIEW_ABOVE_TOKENS, Preview, PreviewRule, check_preview_above
from ctxfs.eviction.window import Auto, Window, WindowGuard
from ctxfs.messages.items import ItemType
from ctxfs.messages.tokens import TokenCounter, require_counter
from ctxfs.messages.wire_names import named_definitions
from ctxfs.session.records import EvictionSet
from ctxfs.tools.base import READING_DESCRIPTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """The tools of the requests that read what was stored.

    ``names``: of those that previews may name. ``reader``: the tool that opens a file by its path; None: there is none,
    as far as the definitions say. ``is_ours``: it is the one of ctxfs, which finds short names too, opens compressed
    files, and reads what is stored on a server.
    """

    names: tuple[str, ...]
    reader: str | None
    is_ours: bool

    @property
    def by_path(self) -> bool:
        """Whether placeholders name files by their paths: no tool of ctxfs opens them by short names."""
        return self.reader is None or not self.is_ours

    def why_not(self, *, has_files: bool, compresses: bool) -> str | None:
        """Why the model cannot open what placeholders name, as one says to a user; None: it can."""
        if self.reader is None:
            return f"of the tools, none is named {READ_TOOL!r}"
        if self.is_ours:
            return None
        if not has_files:
            return f"the tool {self.reader!r} is not the one of ctxfs, and the session is in no directory"
        if compresses:
            return f"the tool {self.reader!r} is not the one of ctxfs, and large contents are compressed (layout=TEXT)"
        return None

    def without_files(self) -> "Readers":
        """These, if none of them opens a file by its path."""
        names = tuple(name for name in self.names if name != self.reader)
        return replace(self, names=names, reader=None)


ASSUMED: Final = Readers(names=(READ_TOOL,), reader=READ_TOOL, is_ours=True)
"""What is assumed where the tools of the requests are not known."""


def readers_in(tools: Sequence[Mapping[str, Any]]) -> Readers:
    """Find them in the definitions of a request's tools, by what they are: a user's tool may have any name."""
    reading: list[str] = []
    others: list[str] = []
    for one in named_definitions(tools):
        is_known = str(one.get("description")) in READING_DESCRIPTIONS
        (reading if is_known else others).append(one["name"])
    is_ours = READ_TOOL in reading
    if not is_ours and READ_TOOL in others:  # the user's own, which opens files by their path
        return Readers(names=reading_tools([*reading, READ_TOOL]), reader=READ_TOOL, is_ours=False)
    return Readers(names=reading_tools(reading), reader=READ_TOOL if is_ours else None, is_ours=True)


KeepRecent = Mapping[str, int | Literal["all"]]
"""How many results of each tool stay; "all": they are pinned."""

_DEFAULT_TABLE = OffloadPolicy().to_mapping()
"""A session that may evict what the default table allows records none."""


@dataclass(frozen=True, kw_only=True)
class ContextSettings:
    """The settings of a ``Context``, as it documents them; what its main switch turns off is empty or None.

    ``exact``: the numbers of ``keep_recent``. ``guard``: the window, with the policy in force. ``policy``: what may be
    evicted at all. ``priced``: ``pricing``, resolved. ``preview``: from which size on new results are previewed; None:
    they are sent whole.

    Raises:
        ConfigError: a setting of another type, one that cannot work, or two that contradict each other.

    """

    model: str
    keep_recent: KeepRecent | None
    offload_enabled: bool
    offload_policy: OffloadPolicy | None
    on_event: Callable[[ContextEvent], None] | None
    counter: TokenCounter | None
    window: Window | int | Auto | None
    eager: EagerPolicy | None
    pricing: EvictionPricing | Auto | None
    pin_user_messages: bool
    one_commit_a_turn: bool = False
    preview_above_tokens: int | None = DEFAULT_PREVIEW_ABOVE_TOKENS
    exact: Mapping[str, int] = field(init=False)
    pins: Pins = field(init=False)
    guard: WindowGuard = field(init=False)
    policy: OffloadPolicy = field(init=False)
    priced: ModelPricing | None = field(init=False)
    preview: PreviewRule | None = field(init=False)

    def __post_init__(self) -> None:
        pinned = {tool for tool, keep in _items_of(self.keep_recent) if keep == "all"}
        exact: dict[str, Any] = {tool: keep for tool, keep in _items_of(self.keep_recent) if tool not in pinned}
        check_keep_recent(exact)
        require_bool("pin_user_messages", self.pin_user_messages)
        require_bool("offload_enabled", self.offload_enabled)
        require_bool("one_commit_a_turn", self.one_commit_a_turn)
        require_model(self.model)
        require_kind("offload_policy", self.offload_policy, OffloadPolicy, "OffloadPolicy(...)")
        require_kind("on_event", self.on_event, Callable, "a function of an event")
        require_counter(self.counter)
        require_method("eager", self.eager, "decide", "a policy with a method decide, such as Materializer()")
        priced = priced_at(self.model, self.pricing)
        policy = self.offload_policy or OffloadPolicy()
        guard = WindowGuard.of(as_window(self.window), self.model, policy)
        # keep_recent asks the policy for the digests in its placeholders, and for nothing else.
        describes = bool(exact) and policy.digest_tokens != DEFAULT_DIGEST_TOKENS
        asking = (guard.budget, priced, self.eager, self.preview_above_tokens)
        is_asked = describes or policy.repeats or any(rule is not None for rule in asking)
        if self.offload_policy is not None and self.offload_enabled and not is_asked:
            raise ConfigError(
                "offload_policy (or an agent's offload_token_threshold) has no effect: window, pricing, previews and "
                "eager, which ask it, are off"
            )
        decides = ""
        if self.eager is not None:
            decides = "eager"
            check_results_may_leave("eager", policy)
        check_preview(self.preview_above_tokens, policy, decides=decides)
        if not isinstance(self.eager, Preview):
            check_repeats(self.preview_above_tokens, policy, decides=decides)
        check_pinned_users(guard.compaction, self.pin_user_messages)
        rule = preview_rule(self.preview_above_tokens, guard.budget)
        previews = self.offload_enabled and self.eager is None
        object.__setattr__(self, "preview", rule if previews else None)
        object.__setattr__(self, "exact", exact if self.offload_enabled else {})
        object.__setattr__(self, "pins", Pins(tools=frozenset(pinned), user_messages=self.pin_user_messages))
        object.__setattr__(self, "eager", self.eager if self.offload_enabled else None)
        object.__setattr__(self, "guard", guard)
        object.__setattr__(self, "policy", policy)
        object.__setattr__(self, "priced", priced if self.offload_enabled else None)

    def entry_rules(self, counter: TokenCounter, base: str, readers: Readers = ASSUMED) -> EntryRules:
        """The rules for each new message of a session with this ``base``, which ``readers`` read back."""
        eager = self.eager
        if eager is None and self.preview is not None:
            eager = Preview(rule=self.preview, tools=readers.names)
        return EntryRules(
            counter=counter,
            base=base,
            by_price=self.priced is not None,
            exact=frozenset(self.exact),
            policy=self.policy,
            eager=eager,
            reader=readers.reader,
            by_path=readers.by_path,
            pins=self.pins,
        )

    def rules(self, budget: Budget | None) -> EvictionSet:
        """The rules in force, as the journal records them; ``budget`` is the window's current one."""
        return eviction_rules(self.exact, budget, self.policy, self.priced)


def _items_of(keep_recent: KeepRecent | None) -> Collection[tuple[str, int | Literal["all"]]]:
    """What ``keep_recent`` says of each tool. Raises ``ConfigError`` if it is not a mapping, or a name is not text."""
    if keep_recent is not None and not isinstance(keep_recent, Mapping):
        raise ConfigError(f'keep_recent is {keep_recent!r}: give a number for each tool, as in {{"search": 2}}')
    items = (keep_recent or {}).items()
    for tool, _ in items:
        require_text("a tool in keep_recent", tool)
    return items


def check_pinned_users(compaction: SelectiveCompaction, pin_user_messages: bool) -> None:
    """Raise ``ConfigError`` if a rule that somebody wrote evicts the user's messages, although all are pinned."""
    rule = compaction.rules.get(ItemType.USER_MESSAGE)
    if not pin_user_messages or compaction.has_default_rules or rule in (None, Strategy.KEEP):
        return
    raise ConfigError(f"rules say {rule} for user_message, but pin_user_messages keeps them all: change one of them")


def check_results_may_leave(name: str, policy: OffloadPolicy) -> None:
    """Raise ``ConfigError`` if the setting ``name`` evicts tool results, which ``policy`` keeps."""
    if not policy.type_enabled[ItemType.TOOL_RESULT]:
        raise ConfigError(
            f"{name} evicts tool results, but offload_policy's type_enabled says that they stay: change one of them"
        )


def check_limits(name: str, policy: OffloadPolicy) -> None:
    """Raise ``ConfigError`` if ``policy`` forbids what the setting ``name`` evicts by limits of its own."""
    check_results_may_leave(name, policy)
    if threshold := policy.threshold(ItemType.TOOL_RESULT):
        raise ConfigError(
            f"{name} has its own limits for tool results, but offload_policy or offload_token_threshold keeps those of "
            f"at most {threshold:,} tokens: leave out the threshold, or let it govern the other types alone, with "
            'OffloadPolicy(token_threshold=..., type_thresholds={"tool_result": 0})'
        )


def check_preview(preview_above_tokens: int | None, policy: OffloadPolicy, *, decides: str = "") -> None:
    """Raise ``ConfigError`` for a limit of somebody's own that has no effect.

    ``decides``: the setting that decides about new results in its place; "": none does.
    """
    check_preview_above(preview_above_tokens)
    if preview_above_tokens in (None, DEFAULT_PREVIEW_ABOVE_TOKENS):
        return
    if decides:
        raise ConfigError(f"preview_above_tokens has no effect: {decides} decides about new results, so leave it out")
    check_results_may_leave("preview_above_tokens", policy)


def check_repeats(preview_above_tokens: int | None, policy: OffloadPolicy, *, decides: str = "") -> None:
    """Raise ``ConfigError`` if ``policy`` tells repeats, and nothing asks it; ``decides``: as for ``check_preview``."""
    if not policy.repeats:
        return
    if decides:
        raise ConfigError(
            f"offload_policy's repeats has no effect: {decides} decides about new results, so leave one out"
        )
    if preview_above_tokens is None:
        raise ConfigError("offload_policy's repeats has no effect with preview_above_tokens=None: leave one out")


def preview_rule(preview_above_tokens: int | None, budget: Budget | None) -> PreviewRule | None:
    """From which size on new results are previewed; None: never."""
    if preview_above_tokens is None:
        return None
    window_tokens = None if budget is None else budget.window_tokens
    return PreviewRule(preview_above_tokens=preview_above_tokens, window_tokens=window_tokens)


def check_keep_recent(keep_recent: Mapping[str, int] | None) -> None:
    """Raise ``ConfigError`` unless it says for single tools how many results each keeps."""
    for tool, keep in _items_of(keep_recent):
        if isinstance(keep, str):
            said = 'use a whole number, 1 or more, or in a Context "all", which pins'
            raise ConfigError(f"keep_recent[{tool!r}] is {keep!r}: {said}")
        require_int(f"keep_recent[{tool!r}]", keep, at_least=1)


def as_window(window: Window | int | Auto | None) -> Window:
    """The setting ``window`` as a ``Window``. Raises ``ConfigError`` if it is something else."""
    match window:
        case Window():
            return window
        case None | "auto":
            return Window(window)
        case int() if not isinstance(window, bool):
            require_int("window", window, at_least=1)
            return Window(window)
    ways = 'a number of tokens, Window(...), "auto" for the model\'s own, or None for no limit'
    raise ConfigError(f"window is {window!r}: use {ways}")


def priced_at(model: str, pricing: EvictionPricing | Auto | None) -> ModelPricing | None:
    """The setting ``pricing`` at the prices of ``model``; None: nothing is evicted by price."""
    if pricing is None:
        return None
    wanted = EvictionPricing() if pricing == "auto" else pricing
    require_kind("pricing", wanted, EvictionPricing, 'EvictionPricing(...), "auto"')
    return ModelPricing.of(wanted, model)


def eviction_rules(
    keep_recent: Mapping[str, int],
    budget: Budget | None,
    policy: OffloadPolicy,
    pricing: ModelPricing | None,
) -> EvictionSet:
    """The rules in force, as the journal records them."""
    table = policy.to_mapping()
    rules = EvictionSet(
        keep_recent=keep_recent,
        window_tokens=None if budget is None else budget.limit_tokens,
        policy=None if table == _DEFAULT_TABLE else table,
        digest_tokens=policy.digest_tokens,
    )
    if pricing is None:
        return rules
    parameters = pricing.parameters.to_mapping()
    return replace(rules, parameters=parameters, rates=pricing.rates.to_mapping(), ttl_s=pricing.ttl_s)


def policy_with(policy: OffloadPolicy | None, threshold_tokens: int | None) -> OffloadPolicy:
    """``policy``, or the default one, with this threshold. Raises ``ConfigError`` if it has another one."""
    agreed = policy or OffloadPolicy()
    if threshold_tokens is None or agreed.token_threshold == threshold_tokens:
        return agreed
    if agreed.token_threshold is not None:
        raise ConfigError(
            f"offload_token_threshold is {threshold_tokens}, the token_threshold of offload_policy "
            f"{agreed.token_threshold}: give one of them"
        )
    return replace(agreed, token_threshold=threshold_tokens)
