"""The arguments of the model's tools have bounds, and no error repeats more than a line of what it was given."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxfs import Agent, AgentConfig, Context, History
from ctxfs.errors import ConfigError, CtxfsError, TranscriptError
from ctxfs.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from ctxfs.session import ContextFileSystem
from ctxfs.testing import ScriptedModel
from ctxfs.tools import Tool, ToolResultOffload, read_tool, recall_tools, retrieval_tools
from session_items import tool_result

pytestmark = pytest.mark.anyio

LONG = "9" * 100_000
HOSTILE: tuple[Any, ...] = (2**70, 2**63, 10**12, 0, -1, 1.5, 1e308, True, None, [], {"a": LONG}, "x", LONG)
RESULT_CHARS = 40_000
"""More than results of 4,000 tokens have."""
ERROR_CHARS = 4_100


def tools_of(fs: ContextFileSystem) -> list[Tool]:
    offload = ToolResultOffload().tools(fs)
    return [read_tool(fs), *retrieval_tools(fs), *recall_tools(fs), *offload]


def kinds_of(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema of a property, and those of its alternatives."""
    yield schema
    for alternative in schema.get("anyOf", ()):
        yield from kinds_of(alternative)


async def size_of_answer(tool: Tool, arguments: dict[str, Any]) -> tuple[int, int]:
    """How many characters the answer has, and may have; an error that is not of ctxfs is raised."""
    try:
        result = await tool.run(arguments)
    except CtxfsError as error:
        return len(str(error)), ERROR_CHARS
    return len(result.text), ERROR_CHARS if result.is_error else RESULT_CHARS


async def test_every_whole_number_has_bounds(tmp_path: Path) -> None:
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        for tool in tools_of(fs):
            for name, given in tool.input_schema["properties"].items():
                for kind in kinds_of(given):
                    if kind.get("type") == "integer":
                        assert {"minimum", "maximum"} <= kind.keys(), f"{tool.name}: {name}"


async def test_whatever_a_model_asks_for_is_answered_in_bounds(tmp_path: Path) -> None:
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        await fs.offload(tool_result(fs, "a row\n" * 300, "call_1"))
        good: dict[str, Any] = {"ref": "call_1", "item": "call_1", "artifact_id": "call_1", "file_path": "call_1"}
        good |= {"pattern": "row", "query": "row", "start_line": 1, "end_line": 2, "first": 1, "text": "a note"}
        for tool in tools_of(fs):
            required = tool.input_schema.get("required", ())
            arguments = {name: value for name, value in good.items() if name in required}
            for name in (*tool.input_schema["properties"], "unknown", LONG):
                for value in HOSTILE:
                    size, limit = await size_of_answer(tool, {**arguments, name: value})
                    assert size < limit, (tool.name, name[:20])


async def test_an_agent_is_told_of_a_tool_that_is_none_in_one_line(tmp_path: Path) -> None:
    model = ScriptedModel([[ToolCall("z" * 60 + LONG, {})], "done"])
    async with Agent(model, AgentConfig(offload_root_path=tmp_path)) as agent:
        await agent.query("go")
    results = model.requests[1]["messages"][-1]
    assert len(json.dumps(results)) < ERROR_CHARS


async def test_an_error_about_a_call_repeats_no_more_than_a_line_of_what_a_model_made_up(tmp_path: Path) -> None:
    async with Context("c", root_path=tmp_path, model="", window=None, pricing=None) as context:
        await context.add(UserMessage("question"))
        with pytest.raises(TranscriptError) as no_call:
            await context.add(ToolMessage(LONG, "log", "a result"))
        await context.add(AssistantMessage(({"type": "tool_use", "id": LONG, "name": "log", "input": {}},)))
        with pytest.raises(TranscriptError) as no_result:
            await context.add(UserMessage("another"))
    for error in (no_call, no_result):
        assert len(str(error.value)) < ERROR_CHARS


def test_so_does_an_error_about_a_tool_that_a_history_does_not_have(tmp_path: Path) -> None:
    with History("h", root_path=tmp_path) as history, pytest.raises(ConfigError) as no_tool:
        history.run_tool(LONG, {})
    assert len(str(no_tool.value)) < ERROR_CHARS
