"""The settings of an agent, with their defaults.

Follows "Context FileSystem 上下文卸载功能", Agent configuration.
"""

import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from ctxfs.agent.telemetry.telemetry import Telemetry
from ctxfs.context.settings import (
    KeepRecent,
    as_window,
    check_limits,
    check_pinned_users,
    check_preview,
    check_repeats,
    policy_with,
)
from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings, require_bool, require_int, require_kind
from ctxfs.eviction.compaction import SelectiveCompaction
from ctxfs.eviction.economics.economy import EvictionPricing
from ctxfs.eviction.offload_plan import EagerPolicy
from ctxfs.eviction.placeholder.text import READ_TOOL
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.preview import DEFAULT_PREVIEW_ABOVE_TOKENS
from ctxfs.eviction.window import Auto, Summarize, Window
from ctxfs.messages.messages import Content, ToolCall
from ctxfs.messages.names import Layout, LayoutName, as_layout
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.urls import stores_at
from ctxfs.tools.base import Tool
from ctxfs.tools.bash import Bash
from ctxfs.tools.materialization import Materialize

Approve = Callable[[ToolCall], "bool | str | Awaitable[bool | str]"]
"""True lets the call run; False denies it; a text denies it, as the reason that the model gets. May be async."""

Redact = Callable[[ToolCall, Content], "Content | Awaitable[Content]"]
"""Gets a tool's result (or its error text) and returns what is recorded, sent and logged instead. May be async."""


@runtime_checkable
class ResultOffload(EagerPolicy, Protocol):
    """Decides which results are evicted before they are sent, and has the tools that read them back."""

    def tools(self, fs: ContextFileSystem) -> Sequence[Tool]:
        """The tools for the model, for the session ``fs``."""


_AT_LEAST: Mapping[str, int] = {
    "offload_token_threshold": 0,
    "ephemeral_keep_recent": 1,
    "max_turns": 1,
}
"""Settings that are whole numbers or None, and the lowest that works."""

_KINDS: Mapping[str, tuple[Any, str]] = {
    "system_prompt": (str, "a text"),
    "offload_root_path": (str | Path | SessionStores, "the path of a directory, a URL or a SessionStores"),
    "session_id": (str, "a session's id"),
    "approve": (Callable, "a function of a tool call"),
    "redact": (Callable, "a function of a tool call and its result"),
    "offload_policy": (OffloadPolicy, "OffloadPolicy(...)"),
    "bash": (Bash, "Bash(...)"),
    "telemetry": (Telemetry, "Telemetry(...)"),
}
"""Settings of other types, all of which may be None, and what to write."""


@names_settings(
    {
        "keep_recent": "give n for each tool, as in @tool(..., ephemeral=n)",
        "llm": "give the model to Agent(llm, config)",
        "model": "give the model to Agent(llm, config)",
        "budget": "it is window here, which takes a Window",
        "compaction": "give window=Window(compaction=...)",
        "compress_from_chars": "give layout=Layout('envelope', compress_from_chars=...)",
        "workspace": "give materialize=ToolResultOffload(...)",
        "digest_tokens": "give offload_policy=OffloadPolicy(digest_tokens=...)",
        "cache_ttl": "give pricing=EvictionPricing(cache_ttl=...)",
        "eviction": 'pricing=None is what "exact" was; for "economic", leave out ephemeral=n',
        "eviction_parameters": "give pricing=EvictionPricing(parameters=...)",
        "host_breakpoints": "give pricing=EvictionPricing(host_breakpoints=True)",
        "prices": "give pricing=EvictionPricing(prices=...)",
        "on_open": "call it before you open the agent: await keep_quota(2 << 30, root_path=..., keep=[session_id])",
        "on_close": "call it before you close the agent, as in await prune_session(agent.context.fs)",
        "root_path": "it is offload_root_path here",
        "store": "give it as offload_root_path, which takes a path, a URL or a SessionStores",
    }
)
@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """The settings of an agent.

    Raises:
        ConfigError: a value of another type or one that cannot work, settings that contradict each other or have no
            effect together, or two tools of one name. What ``offload_enabled=False`` switches off is not refused, so
            that an agent can be compared with and without it.

    """

    tools: Sequence[Tool] = ()
    """The tools that the model can call, next to ``Read``; made with ``@tool``. One named ``Read`` takes its place, and
    must open files: placeholders then name paths, and nothing is compressed."""

    system_prompt: str | None = None
    """None means none; a resumed session then keeps its own."""

    offload_enabled: bool = True
    """The main switch: False evicts nothing, whatever else is set. The session is still recorded, and the window is
    still guarded: ``ContextOverflow`` is raised before a request that cannot fit."""

    offload_token_threshold: int | None = None
    """Items of at most this many tokens get no file of their own, except by ``ephemeral=n``. None: the price decides,
    and a compaction gives files to items of over 2,000 tokens."""

    offload_root_path: str | Path | SessionStores | None = None
    """Where sessions are: a directory, in which each is ``<root>/{session_id}``; or a URL (``s3://bucket/prefix``,
    ``gs://…``, ``az://…``, ``postgresql://…``) or a ``ctxfs.storage.SessionStores``: any machine that reaches it can
    continue a session. None means the directory ``~/.agent/context``."""

    offload_policy: OffloadPolicy | None = None
    """Which types of items may be evicted, which every rule but ``ephemeral=n`` asks, and how long digests are. None
    means the default table with ``offload_token_threshold``."""

    pin_user_messages: bool = False
    """What the user says is pinned: it is never evicted, whatever the window needs."""

    ephemeral_keep_recent: int | None = None
    """Overrides the n of every tool with ``ephemeral=n``; None keeps each tool's own n."""

    session_id: str | None = None
    """The session to resume, or the id of a new one; None starts a new session with an id of its own."""

    pricing: EvictionPricing | Auto | None = "auto"
    """Evicts what ``ephemeral=n`` does not govern if that pays: "auto" at the model's prices, or an
    ``EvictionPricing`` with your numbers; None: nothing is evicted by price. Making an agent raises
    ``UnsupportedCacheTtl`` for a time that the provider of its model does not offer."""

    window: Window | int | Auto | None = "auto"
    """The size that the context may reach: "auto" for the model's window, a number of tokens, or a ``Window``
    with more settings, such as what is compacted when it is full, and how; None means no limit."""

    preview_above_tokens: int | None = DEFAULT_PREVIEW_ABOVE_TOKENS
    """A new result of up to so many tokens, or an eighth of the window if that is less, is sent whole. A larger one is
    stored, and the model sees a preview of up to 1,000 tokens. None: always whole while it fits. Where ``materialize``
    decides about new results, it decides alone."""

    materialize: Materialize | ResultOffload | None = None
    """Tool output over the limits of ``Materialize(...)`` goes to an artifact before it is ever sent, and the model
    gets the tools ``context_read``, ``context_tail``, ``context_grep`` and ``context_list``. With
    ``ToolResultOffload(...)`` the model gets a list of what went, and tools that query it. None means off."""

    layout: Layout | LayoutName = "envelope"
    """The files of a new session: "envelope" is JSON with metadata, "text" is the content as it is, for tools that are
    not part of ctxfs. A ``Layout`` also says from which size on contents are compressed. An existing session keeps its
    layout."""

    bash: Bash | None = None
    """Gives the model the tool ``Bash`` with these settings, and the four reading tools; None means off. Needs
    ``approve``. Cannot be combined with ``redact``: output is on the disk before the command ends."""

    recall: bool = False
    """Gives the model ``history_search``, ``history_read`` and ``history_calls``, which find everything that was ever
    in the session, ``context_status``, which shows what the context holds, and ``note``, whose notes stay."""

    telemetry: Telemetry | None = None
    """Traces and metrics for OpenTelemetry: a span for each call of the model and of a tool, events. None: nothing."""

    status_tokens: int = 0
    """With each request the model is shown what its context holds, in up to about this many tokens: how full the window
    is, the largest items, what was evicted, and its notes. It is sent after the cached prefix and is not part of the
    next request, so its tokens are paid in full each time. 0 shows nothing."""

    one_commit_a_turn: bool = False
    """A query writes to the session once, when it has its answer, and where something is evicted; for stores that bill
    each request. A crash before that loses the query, though its model calls were billed and its tools may have changed
    something; requests are recorded without their tools and cache breakpoints. False: what is sent, what is answered,
    and each call of a tool that is not ``read_only`` is durable before."""

    max_turns: int | None = 100
    """The most model calls in one query; None means no limit."""

    read_roots: Sequence[str | Path] = field(default=())
    """Directories whose files ``Read`` may show, besides the content that the session stored."""

    approve: Approve | None = None
    """Called before every tool call; None approves all."""

    redact: Redact | None = None
    """Gets every tool result before anything else, and returns what everything else may see; None changes nothing. If a
    query is cancelled while it runs, it is called again; a coroutine then has up to five seconds. A result that it
    fails for is lost."""

    def __post_init__(self) -> None:
        for name, at_least in _AT_LEAST.items():
            value = getattr(self, name)
            if value is not None:
                require_int(name, value, at_least=at_least)
        require_int("status_tokens", self.status_tokens, at_least=0)
        require_bool("offload_enabled", self.offload_enabled)
        require_bool("recall", self.recall)
        require_bool("one_commit_a_turn", self.one_commit_a_turn)
        for name, (kinds, use) in _KINDS.items():
            require_kind(name, getattr(self, name), kinds, use)
        for name in ("tools", "read_roots"):
            value = getattr(self, name)
            if isinstance(value, str) or not isinstance(value, Sequence):
                raise ConfigError(f"{name} is of type {type(value).__name__}: use a list")
        for root in self.read_roots:
            if not isinstance(root, str | Path):
                raise ConfigError(f"read_roots has {root!r} in it: use paths")
        self._check_storing()
        if self.bash is not None:
            if self.approve is None:
                raise ConfigError("the Bash tool needs approve=..., which is asked before every call")
            if self.redact is not None:
                raise ConfigError("redact cannot see what bash streams to the disk: use one of the two")
        if self.pricing != "auto":
            require_kind("pricing", self.pricing, EvictionPricing, 'EvictionPricing(...), "auto"')
        self._check_combinations()
        self._check_tools()

    def _check_tools(self) -> None:
        names: set[str] = set()
        for tool in self.tools:
            if not isinstance(tool, Tool):
                raise ConfigError(f"{tool!r} is not a tool: decorate the function with @tool('what it does')")
            if tool.name in names:
                raise ConfigError(f"two tools are named {tool.name!r}: rename one (@tool(..., name=...))")
            names.add(tool.name)
        if self.ephemeral_keep_recent is not None and all(tool.keep_recent is None for tool in self.tools):
            # One configuration may serve agents with different tools, so this is no error.
            warnings.warn(
                "ephemeral_keep_recent has no effect: no tool is declared with @tool(..., ephemeral=n)", stacklevel=3
            )
        if not self.reads_itself:
            return
        if self.read_roots:
            raise ConfigError(f"read_roots has no effect: your tool {READ_TOOL!r} replaces ours, so rename it")
        if as_layout(self.layout).compress_from_chars:
            raise ConfigError(
                f"your tool {READ_TOOL!r} replaces ours, and cannot open compressed files: rename it, or leave out "
                "compress_from_chars of layout"
            )

    def _check_storing(self) -> None:
        stores_at(self.offload_root_path)
        as_layout(self.layout)
        offload: object = self.materialize  # a class has the methods too
        if isinstance(offload, type) or not isinstance(offload, Materialize | ResultOffload | None):
            raise ConfigError(f"materialize is {offload!r}: use Materialize(...), ToolResultOffload(...) or None")

    def _check_combinations(self) -> None:
        """Raise ``ConfigError`` for settings that contradict each other, or of which one has no effect."""
        compaction = as_window(self.window).compaction or SelectiveCompaction()
        compaction.check_policy(self.policy)
        check_pinned_users(compaction, self.pin_user_messages)
        if self.materialize is not None:
            check_limits("materialize", self.policy)
        decides = "" if self.materialize is None else "materialize"
        check_preview(self.preview_above_tokens, self.policy, decides=decides)
        check_repeats(self.preview_above_tokens, self.policy, decides=decides)

    @property
    def file_layout(self) -> Layout:
        """In which form contents are stored in a new session: uncompressed, if a tool of the user's opens its files."""
        layout = as_layout(self.layout)
        return replace(layout, compress_from_chars=0) if self.reads_itself else layout

    @property
    def reads_itself(self) -> bool:
        """Whether a tool of the user's takes the place of our ``Read``: placeholders then name files by their paths."""
        return any(tool.name == READ_TOOL for tool in self.tools)

    @property
    def policy(self) -> OffloadPolicy:
        """The per-type table in force."""
        return policy_with(self.offload_policy, self.offload_token_threshold)

    def window_with(self, summarize: Summarize) -> Window:
        """``window``, which asks ``summarize`` for summaries unless it says otherwise."""
        window = as_window(self.window)
        if window.window_tokens is None or window.summarize is not None:
            return window
        return replace(window, summarize=summarize)

    def keep_recent(self) -> KeepRecent:
        """How many results each tool keeps exactly; tools that are not in it keep what pays."""
        kept: dict[str, int | Literal["all"]] = {}
        for tool in self.tools:
            if tool.pin:
                kept[tool.name] = "all"
            elif tool.keep_recent is not None:
                kept[tool.name] = self.ephemeral_keep_recent or tool.keep_recent
        return kept
