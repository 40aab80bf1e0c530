"""An agent and a history have the tools when they are asked for, and not before."""

import json
from pathlib import Path

import pytest

from ctxfs import Agent, AgentConfig, History, Part, tool
from ctxfs.errors import ConfigError
from ctxfs.messages import ToolCall
from ctxfs.testing import ScriptedModel
from ctxfs.tools.recall.past import RECALL_TOOLS


@tool("Get a log", ephemeral=1)
def log(day: int) -> str:
    return "\n".join(f"day {day} hour {hour}: {'ERROR 4711' if hour == day else 'fine'}" for hour in range(400))


def names(model: ScriptedModel) -> set[str]:
    return {schema["name"] for schema in model.requests[0]["tools"]}


@pytest.mark.anyio
async def test_an_agent_finds_what_left_its_context(tmp_path: Path) -> None:
    calls = [[ToolCall("log", {"day": day})] for day in (1, 2, 3)]
    search = [ToolCall("history_search", {"query": "ERROR 4711 day 1"})]
    note, status = [ToolCall("note", {"text": "day 1 failed"})], [ToolCall("context_status", {})]
    model = ScriptedModel([*calls, search, note, status, "done"])
    config = AgentConfig(tools=[log], offload_root_path=tmp_path, recall=True)
    async with Agent(model, config) as agent:
        await agent.query("Go")
        assert agent.context.fs.state.notes == {1: "day 1 failed"}
    results = [str(body["messages"][-1]["content"]) for body in model.requests[4:]]
    assert "'call_001:2 (call 2, tool_result of log): day 1 hour 1: ERROR 4711" in results[0]
    assert "1. day 1 failed" in results[2]
    assert names(model) >= RECALL_TOOLS


ASKED = {"ref": "call_1", "sql": "SELECT name FROM rows ORDER BY size DESC LIMIT 1"}
ANSWER = '["name"]\n["file 399"]\n[1 row]'


def listed(page: int) -> str:
    return json.dumps([{"name": f"file {n}", "size": n * page} for n in range(400)])


@tool("List the files", ephemeral=1)
def files(page: int) -> str:
    return listed(page)


@pytest.mark.anyio
async def test_an_agent_asks_what_left_its_context(tmp_path: Path) -> None:
    calls = [[ToolCall("files", {"page": page}, id=f"call_{page}")] for page in (1, 2)]
    wrong = ToolCall("context_query", {**ASKED, "sql": "SELECT weight FROM rows"})
    model = ScriptedModel([*calls, [ToolCall("context_query", ASKED)], [wrong], "done"])
    async with Agent(model, AgentConfig(tools=[files], offload_root_path=tmp_path, recall=True)) as agent:
        await agent.query("Go")
    found, refused = [body["messages"][-1]["content"][0]["content"] for body in model.requests[3:]]
    assert found == ANSWER
    assert 'no such column: weight. "rows" has the columns "name", "size"' in refused


def test_a_history_asks_what_it_replaced(tmp_path: Path) -> None:
    parts = [Part("user", "go", 0)]
    with History("s", root_path=tmp_path, keep_recent={"files": 1}, recall=True) as history:
        for page in (1, 2):
            parts.append(Part("call", {"page": page}, ("c", page), f"call_{page}", "files"))
            parts.append(Part("result", listed(page), ("r", page), f"call_{page}", "files"))
            history.rewrite(parts)
        assert history.run_tool("context_query", ASKED).text == ANSWER


@pytest.mark.anyio
async def test_they_are_off_unless_they_are_asked_for(tmp_path: Path) -> None:
    model = ScriptedModel(["done"])
    async with Agent(model, AgentConfig(offload_root_path=tmp_path)) as agent:
        await agent.query("Go")
    assert not names(model) & RECALL_TOOLS
    with History(root_path=tmp_path) as history:
        assert not {tool.name for tool in history.tools} & RECALL_TOOLS


def test_a_setting_of_another_type_is_refused(tmp_path: Path) -> None:
    wrong: dict[str, object] = {"recall": "yes"}
    with pytest.raises(ConfigError, match="recall"):
        AgentConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="recall"):
        History(root_path=tmp_path, **wrong)  # type: ignore[arg-type]


def test_a_history_finds_what_it_replaced(tmp_path: Path) -> None:
    parts = [Part("user", "go", 0)]
    with History("s", root_path=tmp_path, keep_recent={"Read": 1}, recall=True) as history:
        for n in range(3):
            parts.append(Part("reply", f"reading {n}", ("r", n)))
            parts.append(Part("call", {"path": f"/f{n}"}, ("c", n), f"c{n}", "Read"))
            parts.append(Part("result", f"words of {n}\n" * 400, ("o", n), f"c{n}", "Read"))
            history.rewrite(parts)
        assert {tool.name for tool in history.tools} >= RECALL_TOOLS
        found = history.run_tool("history_search", {"query": "words of 1"})
        assert found.text.startswith("c1:1 (")
        assert "words of 0" in history.run_tool("history_read", {"item": "c0"}).text
        assert "nothing" not in history.run_tool("history_search", {"query": "of 0$", "regex": True}).text


def test_a_history_keeps_notes_and_numbers_its_calls(tmp_path: Path) -> None:
    def exchange(n: int) -> list[Part]:
        call = Part("call", {"path": f"/f{n}"}, ("c", n), f"c{n}", "Read")
        return [call, Part("result", f"words of {n}\n" * 400, ("o", n), f"c{n}", "Read")]

    parts = [Part("user", "go", 0)]
    with History("s", root_path=tmp_path, keep_recent={"Read": 1}, recall=True) as history:
        for n in range(3):
            parts += exchange(n)
            history.rewrite(parts)
            history.replied({"input_tokens": 9, "output_tokens": 1}, "m")
        assert history.run_tool("note", {"text": "the port is 8431"}).text.startswith("[note 1 is written")
        assert history.run_tool("note", {"text": "no such", "number": 7}).is_error
        status = history.run_tool("context_status", {}).text
        assert "1. the port is 8431" in status
        assert "c1:1 (call 2," in history.run_tool("history_search", {"query": "words of 1"}).text
    with History("s", root_path=tmp_path, recall=True) as history:
        assert "; 3 calls so far" in history.run_tool("context_status", {}).text


def test_a_history_says_what_left_when_it_came_and_what_is_sent(tmp_path: Path) -> None:
    parts = [Part("user", "go", 0)]
    with History("s", root_path=tmp_path, keep_recent={"Read": 3}, window=50_000, recall=True) as history:
        for n in range(1, 6):
            edits = history.rewrite(parts)
            history.replied({"input_tokens": edits.tokens, "output_tokens": 1}, "m")
            parts.append(Part("reply", f"reading {n}", ("r", n)))
            parts.append(Part("call", {"path": f"/f{n}"}, ("c", n), f"c{n}", "Read"))
            parts.append(Part("result", f"words of {n}\n" * 400, ("o", n), f"c{n}", "Read"))
        edits = history.rewrite(parts)
        assert list(edits) == [("o", 1), ("o", 2)]
        history.replied({"input_tokens": edits.tokens, "output_tokens": 1}, "m")
        status = history.run_tool("context_status", {}).text.splitlines()
        size = history.run_tool("history_calls", {"first": 2, "last": 2}).text.splitlines()[1]
    assert status[0].startswith(f"Context: {edits.tokens:,} tokens (")
    assert status[0].endswith("in the last request; 6 calls so far.")
    tokens = size.partition("Read, ")[2].rstrip(")")
    assert size == f"-- c1 (tool_result of Read, {tokens})"
    assert f"  c1 (tool_result of Read): {tokens}, of call 2, left after call 4" in status
    assert f"  c2 (tool_result of Read): {tokens}, of call 3, left after call 5" in status
    assert "0 tokens" not in tokens.split()
