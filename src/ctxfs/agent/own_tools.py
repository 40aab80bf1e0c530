"""The tools that ctxfs gives an agent, in addition to the user's.

Each is imported when a setting asks for it: their schemas are made with pydantic, and all of them together would be a
third of an agent's import.
"""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from ctxfs.agent.config import AgentConfig
from ctxfs.errors import ConfigError
from ctxfs.eviction.budget import Budget
from ctxfs.eviction.placeholder.text import READ_TOOL, SHORT_HEADER, reading_tools
from ctxfs.messages.base import ChatModel, ToolSchema
from ctxfs.messages.items import ContextItem
from ctxfs.messages.names import is_compressed
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.threads import run_in_steps
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.base import Tool
from ctxfs.tools.materialization import Materialize


def tools_of(fs: ContextFileSystem, config: AgentConfig) -> dict[str, Tool]:
    """Return an agent's tools by name: those of ctxfs that its settings ask for, for ``fs``, and the user's.

    A tool of the user's that is named ``Read`` takes the place of ours, and opens the files that placeholders name.

    Raises:
        ConfigError: a tool of the user's has the name of one that a setting needs, or cannot open what is stored.

    """
    yours = {tool.name: tool for tool in config.tools}
    tools: dict[str, Tool] = {}
    if not config.reads_itself:
        from ctxfs.tools.read import read_tool  # noqa: PLC0415

        tools[READ_TOOL] = read_tool(fs, roots=[Path(r) for r in config.read_roots])
    elif fs.stores.directory is None and config.offload_enabled:
        raise ConfigError(
            f"your tool {READ_TOOL!r} replaces ours, and cannot open what is stored at {fs.stores.url}: rename it, or "
            "give offload_root_path a directory"
        )
    for setting, added in _by_setting(fs, config, tuple(tools)):
        for tool in added:
            if tool.name in yours:
                raise ConfigError(
                    f"your tool {tool.name!r} has the name of one that {setting} gives the model: rename it, or leave "
                    f"{setting} out"
                )
            tools[tool.name] = tool
    return {**tools, **yours}


def _by_setting(
    fs: ContextFileSystem, config: AgentConfig, before: Sequence[str]
) -> Iterator[tuple[str, Sequence[Tool]]]:
    """The tools that each setting gives the model, in their order; ``before``: the names of those that come first."""
    names = list(before)
    offload = config.materialize
    limits = offload if isinstance(offload, Materialize) else None
    if limits is not None or config.bash is not None:
        from ctxfs.tools.retrieval import retrieval_tools  # noqa: PLC0415

        retrieval = retrieval_tools(fs)
        names += [tool.name for tool in retrieval]
        yield "bash" if limits is None else "materialize", retrieval
    if offload is not None and not isinstance(offload, Materialize):
        yield "materialize", offload.tools(fs)
    if config.recall:
        from ctxfs.tools.recall.tools import recall_tools  # noqa: PLC0415

        yield "recall", recall_tools(fs)
    if config.bash is not None:
        from ctxfs.tools.bash import bash_tool  # noqa: PLC0415

        readers = reading_tools(names)
        yield "bash", [bash_tool(fs, config.bash, asks_first=True, limits=limits, tools=readers)]


def check_readable(items: Sequence[ContextItem], session_id: str) -> None:
    """Raise ``ConfigError`` if a placeholder of a resumed session names what only our own ``Read`` can open."""
    for item in items:
        text = json_codec.dumps_text(item.message.content) if item.offloaded or item.trimmed else ""
        if SHORT_HEADER in text or is_compressed(item.offload_path or ""):
            raise ConfigError(
                f"session {session_id} has placeholders that only the {READ_TOOL} tool of ctxfs can open, such as that "
                f"of {item.id}, and your tool {READ_TOOL!r} replaces it: rename yours"
            )


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
    missing = await run_in_steps(lambda: [root for root in roots if not Path(root).is_dir()])
    for root in missing:
        warnings.warn(
            f"read_roots has {str(root)!r} in it, which is no directory: Read finds nothing there", stacklevel=3
        )
