"""The workspace as one setting of an agent: items keep their ids, and the model reads artifacts by them."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ctxfs import Agent, AgentConfig, Context, tool
from ctxfs.errors import ConfigError, TranscriptError
from ctxfs.messages import ToolCall
from ctxfs.messages.names import Layout
from ctxfs.testing import ScriptedModel
from ctxfs.testing.scripted import Turn
from ctxfs.tools import (
    ArtifactInfo,
    KnowledgeService,
    ToolCallResult,
    ToolResult,
    ToolResultOffload,
    ToolResultOffloadOp,
)

pytestmark = pytest.mark.anyio

ROWS = "".join(f"row {i}\n" for i in range(9_000))


@tool("List rows")
def rows() -> str:
    return ROWS


@tool("List rows as blocks")
def blocks() -> list[dict[str, Any]]:
    return [{"type": "text", "text": ROWS[:30_000]}, {"type": "text", "text": ROWS[30_000:]}]


@pytest.mark.parametrize("source", [rows, blocks])
async def test_a_large_result_is_an_artifact_with_the_id_of_its_call(tmp_path: Path, source: Any) -> None:
    turns: list[Turn] = [
        [ToolCall(source.name, {})],
        [ToolCall("get_knowledge_by_lines", {"artifact_id": "call_001", "start_line": 5, "end_line": 6})],
        [ToolCall("get_tool_result_offload_info", {})],
        "ok",
    ]
    config = AgentConfig(tools=[source], materialize=ToolResultOffload(), offload_root_path=tmp_path, pricing=None)
    async with Agent(ScriptedModel(turns), config) as agent:
        await agent.query("go")
        item, page, info = [item for item in agent.context.items if item.tool_name]
        assert (item.id, item.offloaded, list(agent.context.fs.state.stored)) == ("call_001", True, ["call_001"])
        assert str(item.message.content).startswith('<knowledge_list>\n<knowledge id="call_001" tool=')
        assert "5\trow 4\n6\trow 5" in str(page.message.content)
        assert "call_001" in str(info.message.content)
        session_id = agent.session_id
    async with KnowledgeService(tmp_path) as service:
        (found,) = await service.query_artifacts({"context_type": "tool_result", "biz_id": "call_001"})
        assert (found.artifact_id, found.session_id, found.tool_name) == ("call_001", session_id, source.name)


async def test_it_decides_in_a_loop_of_your_own_too(tmp_path: Path) -> None:
    offload = ToolResultOffload()
    async with Context(root_path=tmp_path, eager=offload) as context:
        call = {"type": "tool_use", "id": "c1", "name": "rows", "input": {}}
        await context.add({"role": "user", "content": "go"}, {"role": "assistant", "content": [call]})
        result = {"type": "tool_result", "tool_use_id": "c1", "content": ROWS}
        (item,) = await context.add({"role": "user", "content": [result]})
        assert str(item.message.content).startswith('<knowledge_list>\n<knowledge id="c1" tool=')
        by_lines = next(tool for tool in offload.tools(context.fs) if tool.name == "get_knowledge_by_lines")
        page = await by_lines.run({"artifact_id": "c1", "start_line": 5, "end_line": 6})
        assert "5\trow 4\n6\trow 5" in str(page.content)
        assert await context.fs.load("c1") == ROWS


async def test_what_is_said_to_be_data_is_stored_with_all_its_digits_and_keys_or_as_the_text_that_it_is(
    tmp_path: Path,
) -> None:
    raw = r'{"a": 0.1000000000000000055, "a": [], "b": {"c": "x: [1, \u00fc\\u]"}, "d": [1e400, "' + "y" * 9_000 + '"]}'
    lines = [
        "{", ' "a": 0.1000000000000000055,', ' "a": [],', ' "b": {', r'  "c": "x: [1, ü\\u]"', " },",
        ' "d": [', "  1e400,", f'  "{"y" * 9_000}"', " ]", "}",
    ]  # fmt: skip
    for text, stored, kind in ((raw, "\n".join(lines), "json"), ("no JSON\n" * 900, "no JSON\n" * 900, "text")):
        offload = ToolResultOffload(threshold_tokens=10, inline_limit_chars=0)
        async with Context(root_path=tmp_path, eager=offload) as context:
            call = {"type": "tool_use", "id": "c1", "name": "rows", "input": {}}
            await context.add({"role": "user", "content": "go"}, {"role": "assistant", "content": [call]})
            result = {"type": "tool_result", "tool_use_id": "c1", "content": text}
            (item,) = await context.add({"role": "user", "content": [result]}, data=["c1"])
            assert f'type="{kind}"' in str(item.message.content)
            assert await context.fs.load("c1") == stored


async def test_a_small_result_stays_and_an_allowed_one_goes(tmp_path: Path) -> None:
    for settings, offloaded in (
        ({"threshold_tokens": None}, False),
        ({"inline_limit_chars": 1_000_000}, False),
        ({"threshold_tokens": None, "allow_list": ["rows"]}, True),
        ({"threshold_tokens": 1_000_000, "allow_list": ["blocks"]}, False),
    ):
        config = AgentConfig(
            tools=[rows], materialize=ToolResultOffload(**settings), offload_root_path=tmp_path, pricing=None
        )
        async with Agent(ScriptedModel([[ToolCall("rows", {})], "ok"]), config) as agent:
            await agent.query("go")
            (item,) = [item for item in agent.context.items if item.tool_name]
            assert item.offloaded is offloaded, settings


@tool("Say little")
def little() -> str:
    return "fifty or so characters, which any list would exceed"


@tool("Say a little more than a list")
def lines() -> str:
    return "line\n" * 60


async def test_what_its_list_would_not_make_smaller_stays(tmp_path: Path) -> None:
    settings = ToolResultOffload(threshold_tokens=0, inline_limit_chars=0, allow_list=["little"])
    config = AgentConfig(tools=[little, lines], materialize=settings, offload_root_path=tmp_path)
    turns: list[Turn] = [[ToolCall("little", {}), ToolCall("lines", {})], "ok"]
    async with Agent(ScriptedModel(turns), config) as agent:
        await agent.query("go")
        small, large = [item for item in agent.context.items if item.tool_name]
        assert (small.offloaded, str(small.message.content)[:8]) == (False, "fifty or")
        assert large.offloaded
        assert len(large.message.content) < 300


async def test_log_names_context_type_and_biz_id(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = AgentConfig(tools=[rows], materialize=ToolResultOffload(), offload_root_path=tmp_path)
    with caplog.at_level(logging.INFO, "ctxfs"):
        async with Agent(ScriptedModel([[ToolCall("rows", {})], "ok"]), config) as agent:
            await agent.query("go")
            (info,) = await _found(tmp_path)
    (record,) = [record for record in caplog.records if record.getMessage().startswith("offloaded")]
    assert f"context_type={info.context_type} biz_id={info.biz_id!r}" in record.getMessage()
    for name in ("context_type", "biz_id", "artifact_id", "session_id"):
        assert vars(record)[name] == getattr(info, name)


async def _found(root: Path) -> list[ArtifactInfo]:
    async with KnowledgeService(root) as service:
        return list(await service.query_artifacts())


@pytest.mark.parametrize(
    "settings",
    [
        {"allow_list": "rows"},
        {"allow_list": 5},
        {"threshold_tokens": -1},
        {"inline_limit_chars": "4"},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ToolResultOffload(**settings)


def test_one_setting_decides_about_new_results() -> None:
    with pytest.raises(TypeError, match="'workspace': give materialize=ToolResultOffload"):
        AgentConfig(workspace=ToolResultOffload())  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="ToolResultOffload"):
        AgentConfig(materialize=True)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="ToolResultOffload"):
        AgentConfig(materialize=ToolResultOffload)  # type: ignore[arg-type]


@pytest.mark.parametrize(("layout", "name"), [("envelope", "call_001.json"), ("text", "call_001.txt")])
async def test_the_layout_of_a_new_session_is_a_setting(tmp_path: Path, layout: Any, name: str) -> None:
    config = AgentConfig(
        tools=[rows],
        materialize=ToolResultOffload(),
        layout=Layout(layout, 0),
        offload_root_path=tmp_path,
        session_id="s",
    )
    async with Agent(ScriptedModel([[ToolCall("rows", {})], "ok"]), config) as agent:
        await agent.query("go")
    written = (tmp_path / "s" / "tool_result" / "rows" / name).read_text()
    assert (written == ROWS) is (layout == "text")
    with pytest.raises(ConfigError, match="envelope, text"):
        AgentConfig(layout="xml")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "content",
    [{"rows": [{"n": n, "name": f"grüße {n}\ud800"} for n in range(4_000)]}, [{"type": "text", "text": ROWS}] * 2],
)
async def test_json_data_is_stored_with_a_line_for_each_value(tmp_path: Path, content: Any) -> None:
    async with KnowledgeService(tmp_path, inline_limit_chars=0) as service:
        op = ToolResultOffloadOp(service, session_id="s", threshold_tokens=0)
        await op.process(ToolCallResult(tool_call_id="c", tool_name="t", content=content))
        stored = (await service.get_knowledge_by_id("c")).content
        assert json.loads(stored) == content
        assert stored.count("\n") >= 2 * len(content)
        (info,) = await service.query_artifacts()
        assert info.lines == stored.count("\n") + 1


TABLE = {"rows": [{"n": n, "name": f"grüße {n}"} for n in range(3_000)], "big": 10**30, "text": "a\nb \ud800"}


@tool("List rows as data")
def data() -> dict[str, Any]:
    return TABLE


@tool("List rows as a text that is JSON")
def text() -> str:
    return json.dumps(TABLE)


@tool("List rows as bytes that are JSON")
def as_bytes() -> bytes:
    return json.dumps(TABLE).encode()


@tool("List rows as JSON that the tool wrote and calls data")
def called_data() -> ToolResult:
    return ToolResult(json.dumps(TABLE), is_data=True)


def reads(first: int, last: int) -> list[Turn]:
    page = {"artifact_id": "call_001", "start_line": first, "end_line": last}
    return [[ToolCall("get_knowledge_by_lines", page)], "ok"]


@pytest.mark.parametrize("source", [data, called_data])
@pytest.mark.parametrize("layout", ["envelope", "text"])
async def test_data_is_stored_with_a_line_for_each_value_and_paged_by_lines(
    tmp_path: Path, source: Any, layout: Any
) -> None:
    config = AgentConfig(tools=[source], materialize=ToolResultOffload(), offload_root_path=tmp_path, layout=layout)
    async with Agent(ScriptedModel([[ToolCall(source.name, {})], *reads(7, 10)]), config) as agent:
        await agent.query("go")
        item, page = [item for item in agent.context.items if item.tool_name]
        stored = await agent.context.fs.load("call_001")
        assert (item.offloaded, item.is_data) == (True, True)
        assert item.content_tokens == agent.context.counter.count(str(stored))
        assert 'type="json"' in str(item.message.content)
        assert json.loads(str(stored).encode("utf-8", "surrogatepass")) == TABLE
        assert '7\t  {\n8\t   "n": 1,\n9\t   "name": "grüße 1"\n10\t  }' in str(page.message.content)
        items = agent.context.items
        session_id = agent.session_id
    async with Context(session_id, root_path=tmp_path) as again:
        assert again.items == items


@pytest.mark.parametrize("source", [text, as_bytes])
async def test_a_text_that_happens_to_be_json_is_stored_as_it_is(tmp_path: Path, source: Any) -> None:
    config = AgentConfig(tools=[source], materialize=ToolResultOffload(), offload_root_path=tmp_path)
    async with Agent(ScriptedModel([[ToolCall(source.name, {})], "ok"]), config) as agent:
        await agent.query("go")
        (item,) = [item for item in agent.context.items if item.tool_name]
        assert (item.offloaded, item.is_data) == (True, False)
        assert await agent.context.fs.load("call_001") == json.dumps(TABLE)


async def test_data_that_redact_changes_is_data_no_more(tmp_path: Path) -> None:
    def redact(_: object, content: Any) -> Any:
        return str(content).replace("rows", "[redacted]: {")

    config = AgentConfig(tools=[data], materialize=ToolResultOffload(), redact=redact, offload_root_path=tmp_path)
    async with Agent(ScriptedModel([[ToolCall("data", {})], "ok"]), config) as agent:
        await agent.query("go")
        (item,) = [item for item in agent.context.items if item.tool_name]
        assert (item.offloaded, item.is_data) == (True, False)
        assert "[redacted]: {" in str(await agent.context.fs.load("call_001"))


async def test_small_data_stays_as_it_came(tmp_path: Path) -> None:
    @tool("One row")
    def one() -> dict[str, Any]:
        return {"n": 1, "names": ["a", "b"]}

    config = AgentConfig(tools=[one], materialize=ToolResultOffload(threshold_tokens=0), offload_root_path=tmp_path)
    async with Agent(ScriptedModel([[ToolCall("one", {})], "ok"]), config) as agent:
        await agent.query("go")
        (item,) = [item for item in agent.context.items if item.tool_name]
        assert (item.is_data, item.message.content) == (True, '{"n":1,"names":["a","b"]}')


async def test_data_in_a_loop_of_your_own_is_named_by_its_call(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, eager=ToolResultOffload()) as context:
        calls: list[Any] = [{"type": "tool_use", "id": name, "name": "rows", "input": {}} for name in ("c1", "c2")]
        await context.add({"role": "user", "content": "go"}, {"role": "assistant", "content": calls})
        results = [{"type": "tool_result", "tool_use_id": name, "content": json.dumps(TABLE)} for name in ("c1", "c2")]
        await context.add({"role": "user", "content": results}, data=["c2"])
        stored = [str(await context.fs.load(name)) for name in ("c1", "c2")]
        assert [content.count("\n") > 3_000 for content in stored] == [False, True]
        with pytest.raises(TranscriptError, match="collection of call ids"):
            await context.add({"role": "user", "content": "more"}, data="c2")
