"""The tools that ctxfs gives an agent, in addition to the user's."""

import warnings
from collections.abc import Sequence
from pathlib import Path

from anyio import to_thread

from ctxfs.agent.config import AgentConfig
from ctxfs.errors import ConfigError
from ctxfs.eviction.budget import Budget
from ctxfs.llm.base import ChatModel, ToolSchema
from ctxfs.materialize import reading_tools
from ctxfs.recall.tools import recall_tools
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.tools.base import Tool
from ctxfs.tools.bash import bash_tool
from ctxfs.tools.read import read_tool
from ctxfs.tools.retrieval import retrieval_tools

__all__ = ["check_number", "check_status", "own_tools", "warn_of_roots"]


def own_tools(fs: ContextFileSystem, config: AgentConfig) -> list[Tool]:
    """Return the tools of ctxfs that the settings ask for, for the session ``fs``."""
    tools = [read_tool(fs, roots=[Path(r) for r in config.read_roots])]
    if config.materialize is not None or config.bash is not None:
        tools += retrieval_tools(fs)
    if config.workspace is not None:
        tools += config.workspace.tools(fs)
    if config.recall:
        tools += recall_tools(fs)
    if config.bash is not None:
        readers = reading_tools(tool.name for tool in tools)
        asks_first = config.approve is not None
        tools.append(bash_tool(fs, config.bash, asks_first=asks_first, limits=config.materialize, tools=readers))
    return tools


def check_number(schemas: Sequence[ToolSchema], llm: ChatModel, *, yours: int) -> None:
    """Raise ``ConfigError`` for more tools than a request to ``llm`` may have; ``yours`` are not ctxfs's own."""
    limit = getattr(llm, "max_tools", None)
    if limit is not None and len(schemas) > limit:
        own = len(schemas) - yours
        raise ConfigError(
            f"{len(schemas)} tools, {own} of them ctxfs's own: {llm.model} takes {limit}, so leave some out"
        )


def check_status(status_tokens: int, budget: Budget | None) -> None:
    """Raise ``ConfigError`` if the status that goes with each request leaves no room for the messages in it."""
    if budget is not None and status_tokens >= budget.limit_tokens:
        raise ConfigError(
            f"status_tokens is {status_tokens:,}, but a prompt may have {budget.limit_tokens:,} tokens in all: use a "
            "few hundred, or 0 for no status"
        )


async def warn_of_roots(roots: Sequence[str | Path]) -> None:
    """Warn of each of ``read_roots`` that is no directory now: ``Read`` finds no file in it."""
    missing = await to_thread.run_sync(lambda: [root for root in roots if not Path(root).is_dir()])
    for root in missing:
        warnings.warn(
            f"read_roots has {str(root)!r} in it, which is no directory: Read finds nothing there", stacklevel=3
        )
