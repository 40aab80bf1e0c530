"""What an agent can be told, with its defaults.

Follows "Context FileSystem 上下文卸载功能", Agent configuration.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from ctxfs.checks import require_bool, require_int, require_kind
from ctxfs.context.settings import agreed_policy, economy_for, window_for
from ctxfs.economics.economy import EvictionPricing
from ctxfs.economics.parameters import EvictionParameters
from ctxfs.economics.prices import TTL_SECONDS, CacheTtl, Prices
from ctxfs.errors import ConfigError
from ctxfs.eviction.budget import Budget
from ctxfs.eviction.compaction import SelectiveCompaction
from ctxfs.eviction.eager import EagerPolicy
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.window import Summarize, Window
from ctxfs.items import ItemType
from ctxfs.llm.messages import Content, ToolCall
from ctxfs.materialize import Materialize
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.names import LAYOUTS
from ctxfs.tools.base import Tool
from ctxfs.tools.bash import Bash

__all__ = ["AgentConfig", "Approve", "Eviction", "Redact", "ResultOffload"]

Approve = Callable[[ToolCall], "bool | str | Awaitable[bool | str]"]
"""True lets the call run; False denies it; a text denies it and tells the model why. May be a coroutine function."""

Eviction = Literal["auto", "exact", "economic"]

Redact = Callable[[ToolCall, Content], "Content | Awaitable[Content]"]
"""Gets a tool's result (or its error text) and returns what everything else may see. May be a coroutine function."""


@runtime_checkable
class ResultOffload(EagerPolicy, Protocol):
    """Decides which results are evicted before they are sent, and has the tools that read them back."""

    def tools(self, fs: ContextFileSystem) -> Sequence[Tool]:
        """The tools for the model, for the session ``fs``."""


_AT_LEAST: Mapping[str, int] = {
    "offload_token_threshold": 0,
    "digest_tokens": 0,
    "ephemeral_keep_recent": 1,
    "max_turns": 1,
}
"""Settings that are whole numbers, and the lowest that works."""

_KINDS: Mapping[str, tuple[Any, str]] = {
    "system_prompt": (str, "a text"),
    "offload_root_path": (str | Path, "a path"),
    "session_id": (str, "a session's id"),
    "approve": (Callable, "a function of a tool call"),
    "redact": (Callable, "a function of a tool call and its result"),
    "offload_policy": (OffloadPolicy, "OffloadPolicy(...)"),
    "eviction_parameters": (EvictionParameters, "EvictionParameters(...)"),
    "prices": (Prices, "Prices(...)"),
    "budget": (Budget, "Budget(...)"),
    "compaction": (SelectiveCompaction, "SelectiveCompaction(...)"),
    "materialize": (Materialize, "Materialize(...)"),
    "bash": (Bash, "Bash(...)"),
}
"""Settings of other types, all of which may be None, and what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """The settings of an agent.

    tools: what the model can call, next to ``Read``; made with ``@tool``.
    system_prompt: None means none (a resumed session then keeps its own).
    offload_enabled: False is the main switch: whatever else is set, nothing leaves. The session is recorded all the
        same, and the window is still guarded: ``ContextOverflow`` before a request that cannot fit.
    offload_token_threshold: items of at most so many tokens do not leave alone, except by ``ephemeral=n``. None leaves
        it to the price, and compaction gives a file of its own to what has over 2,000.
    offload_root_path: the directory that holds sessions; None means ``~/.agent/context``. The session's own directory
        is ``<root>/{session_id}``.
    offload_policy: the per-type table, which every rule but ``ephemeral=n`` asks; None means the default table with
        ``offload_token_threshold``.
    ephemeral_keep_recent: overrides the n of every tool that has one; None leaves each tool its own.
    digest_tokens: the longest digest in a placeholder, in tokens; 0 means none, and then nothing leaves because it pays
        before the model has seen it.
    session_id: an existing session goes on where it stood; None starts a new one.
    eviction: "auto": results of tools with ``ephemeral=n`` leave exactly when due, and everything else when that pays;
        "exact": only the former leave; "economic": the former too are held back until it pays.
    eviction_parameters: the few numbers of the economic planner; None means the defaults.
    prices: what the model's tokens cost; None takes them from a table, or Anthropic's ratios for an unknown model.
    cache_ttl: how long the provider keeps a prefix, as the model was told: "5m" or "1h".
    budget: the window, the reply's share and the water marks; None takes the model's window from a table.
    compaction: what is compacted, and how, when the high-water mark is passed; None means the default rules. Its policy
        is the one above, or counts as if it was given above.
    materialize: tool output over these limits goes to an artifact before it is ever sent, and the model gets the tools
        ``context_read``, ``context_tail``, ``context_grep`` and ``context_list``; None means off.
    workspace: ``ctxfs.workspace.ToolResultOffload()`` lets the tool results that it chooses go to artifacts before they
        are ever sent, and gives the model the tools that read them; None means off. Not together with ``materialize``.
    layout: the files of a new session: "envelope", JSON with metadata, or "text", the content as it is, for tools that
        are not ours. A session that exists keeps its layout.
    bash: gives the model the tool ``Bash``, with these settings, and the reading tools as above; None means off. Needs
        ``approve``, or settings that allow commands nobody was asked about. Not together with ``redact``: output is on
        the disk before the command ends.
    max_turns: model calls in one query; None means no limit.
    read_roots: directories whose files the ``Read`` tool may show, next to what the session stored.
    approve: asked before every tool call; None approves all.
    redact: sees every tool result before anything else does; None changes nothing.

    Raises:
        ConfigError: a value of another type or one that cannot work, settings that contradict each other or have no
            effect together, or two tools of one name.
    """

    tools: Sequence[Tool] = ()
    system_prompt: str | None = None
    offload_enabled: bool = True
    offload_token_threshold: int | None = None
    offload_root_path: str | Path | None = None
    offload_policy: OffloadPolicy | None = None
    ephemeral_keep_recent: int | None = None
    digest_tokens: int = 200
    session_id: str | None = None
    eviction: Eviction = "auto"
    eviction_parameters: EvictionParameters | None = None
    prices: Prices | None = None
    cache_ttl: CacheTtl = "5m"
    budget: Budget | None = None
    compaction: SelectiveCompaction | None = None
    materialize: Materialize | None = None
    workspace: ResultOffload | None = None
    layout: Literal["envelope", "text"] = "envelope"
    bash: Bash | None = None
    max_turns: int | None = 100
    read_roots: Sequence[str | Path] = field(default=())
    approve: Approve | None = None
    redact: Redact | None = None

    def __post_init__(self) -> None:
        for name, at_least in _AT_LEAST.items():
            if (value := getattr(self, name)) is not None or name == "digest_tokens":
                require_int(name, value, at_least=at_least)
        require_bool("offload_enabled", self.offload_enabled)
        for name, (kinds, use) in _KINDS.items():
            require_kind(name, getattr(self, name), kinds, use)
        for name in ("tools", "read_roots"):
            if isinstance(getattr(self, name), str) or not isinstance(getattr(self, name), Sequence):
                raise ConfigError(f"{name} is {getattr(self, name)!r}: use a list")
        for root in self.read_roots:
            if not isinstance(root, str | Path):
                raise ConfigError(f"read_roots has {root!r} in it: use paths")
        self._check_storing()
        if self.bash is not None:
            self.bash.check_approval(asks_first=self.approve is not None)
            if self.redact is not None:
                raise ConfigError("redact cannot see what bash streams to the disk: use one of the two")
        if self.eviction not in get_args(Eviction):
            raise ConfigError(f"eviction is {self.eviction!r}: use one of {', '.join(get_args(Eviction))}")
        if self.cache_ttl not in TTL_SECONDS:
            raise ConfigError(f"cache_ttl is {self.cache_ttl!r}: use one of {', '.join(TTL_SECONDS)}")
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
            raise ConfigError("ephemeral_keep_recent has no effect: no tool is declared with @tool(..., ephemeral=n)")
        for setting, name, is_set in (("read_roots", "Read", self.read_roots), ("bash", "Bash", self.bash)):
            if is_set and name in names:
                raise ConfigError(f"{setting} has no effect: your tool {name!r} replaces ours, so rename it")

    def _check_storing(self) -> None:
        if self.layout not in LAYOUTS:
            raise ConfigError(f"layout is {self.layout!r}: use one of {', '.join(LAYOUTS)}")
        workspace: object = self.workspace  # a class has the methods too
        if isinstance(workspace, type) or not isinstance(workspace, ResultOffload | None):
            raise ConfigError(f"workspace is {self.workspace!r}: use ctxfs.workspace.ToolResultOffload(...) or None")
        if self.workspace is not None and self.materialize is not None:
            raise ConfigError("workspace and materialize both decide about new results: use one of the two")

    def _check_combinations(self) -> None:
        """Raise ``ConfigError`` for settings that contradict each other, or of which one has no effect."""
        replace(self.compaction or SelectiveCompaction(), policy=self.policy)
        for name in ("materialize", "workspace"):
            if getattr(self, name) is not None and not self.policy.type_enabled[ItemType.TOOL_RESULT]:
                raise ConfigError(
                    f"{name} evicts tool results, but type_enabled says that they stay: change one of them"
                )
        without_effect = {
            "exact": ("eviction_parameters", "prices"),
            "economic": ("ephemeral_keep_recent",),
        }
        for name in without_effect.get(self.eviction, ()):
            if getattr(self, name) is not None:
                raise ConfigError(f"{name} has no effect with eviction={self.eviction!r}: leave one of them out")
        if self.eviction == "exact" and self.cache_ttl != "5m":
            raise ConfigError("cache_ttl has no effect with eviction='exact': leave one of them out")

    @property
    def policy(self) -> OffloadPolicy:
        """The per-type table in force."""
        return agreed_policy(self.offload_policy, self.compaction, threshold_tokens=self.offload_token_threshold)

    def window(self, model: str, summarize: Summarize) -> Window:
        """The window of ``model`` and what to do when it is full."""
        compaction = replace(self.compaction or SelectiveCompaction(), policy=self.policy)
        return replace(window_for(model, self.budget or "auto"), compaction=compaction, summarize=summarize)

    def pricing(self, model: str) -> EvictionPricing | None:
        """What leaves when it pays; None when nothing does."""
        if self.eviction == "exact":
            return None
        return economy_for(model, parameters=self.eviction_parameters, prices=self.prices, cache_ttl=self.cache_ttl)

    def keep_recent(self) -> dict[str, int]:
        """How many results each tool keeps exactly; tools that are not in it keep all, or what pays."""
        if self.eviction == "economic":
            return {}
        return {
            tool.name: self.ephemeral_keep_recent or tool.keep_recent
            for tool in self.tools
            if tool.keep_recent is not None
        }
