"""Every placeholder in a request can be opened by a tool that is in the same request, as a model would do it."""

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ctxfs import Agent, AgentConfig, Context, ContextFileSystem, tool
from ctxfs.errors import ConfigError
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.messages import ToolCall, Usage
from ctxfs.messages.names import ENVELOPE, TEXT, Layout
from ctxfs.storage.memory import MemorySessions
from ctxfs.testing import ScriptedModel
from ctxfs.tools import Materialize, ToolResultOffload
from ctxfs.tools.base import Tool
from ctxfs.tools.read import read_tool
from ctxfs.tools.recall.tools import recall_tools
from ctxfs.tools.retrieval import retrieval_tools

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

TURNS = 6
ANY_TOOL = "any"
"""Of a placeholder that says that it is not known which tool opens it."""


@tool("Read a file")
def Read(path: str) -> str:  # noqa: N802 - as users name it
    return Path(path).read_text()


def own(name: str) -> Tool:
    @tool("A tool of the user's", name=name)
    def theirs(ref: str = "") -> str:
        raise AssertionError(f"{name} of the user's is not for placeholders: {ref}")

    return theirs


@tool("Run the tests", ephemeral=1)
def run_tests(n: int) -> str:
    return content(n)


BY_PRICE = replace(run_tests, keep_recent=None)
"""The same tool, whose results leave when that pays."""


@tool("Fetch a page")
def fetch(n: int, *, body: str = "") -> str:
    return content(n)


def definition_of(made: Tool) -> dict[str, Any]:
    return {"name": made.name, "description": made.description, "input_schema": made.input_schema}


def content(n: int) -> str:
    """What the n-th call returns: it names itself in each line."""
    return "".join(
        f"content-{n} of test {i} passed quickly, as it should\n" for i in range(900 if n == 3 else 30 + 320 * (n % 2))
    )


def contents(body: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """The results in a request, and the arguments of its calls: the number of the call, and its text."""
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_result":
                given = block["content"]
                text = given if isinstance(given, str) else "".join(part.get("text", "") for part in given)
                yield int(block["tool_use_id"].removeprefix("call_")), text
            if block["type"] == "tool_use" and "body" in block["input"]:
                yield int(block["id"].removeprefix("call_")), block["input"]["body"]


def summaries(body: Mapping[str, Any]) -> Iterator[str]:
    """The texts in a request that stand for earlier messages, and name the file that holds them."""
    for message in body["messages"]:
        blocks = message["content"]
        texts = [blocks] if isinstance(blocks, str) else [block.get("text", "") for block in blocks]
        yield from (text for text in texts if "[Content offloaded" in text)


def call_in(text: str) -> tuple[str, dict[str, Any]] | None:
    """The call that a placeholder tells the model to make; None: the text is no placeholder."""
    if found := re.match(r"\[Content offloaded\]\nPath: (.+)\nIf you have a tool that opens files", text):
        return ANY_TOOL, {"path": found[1]}
    if found := re.match(r"\[Content offloaded\]\nPath: (.+)\nUse (\w+) tool to view details\.", text):
        return found[2], {"path": found[1]}
    if found := re.match(r"\[Content offloaded: (\w+) (stored/\w+)", text):
        return found[1], {"path": found[2]}
    if text.startswith("[Output stored in full"):
        found = re.search(r'first (\w+)\((?:ref|file_path)="([^"]+)"', text)
        assert found is not None, text[:300]
        return found[1], {"ref": found[2]}
    if text.startswith("<knowledge_list>"):
        found = re.search(r'Read it with (\w+)\("([^"]+)"\)', html.unescape(text))
        assert found is not None, text[:300]
        return found[1], {"artifact_id": found[2]}
    assert not text.startswith("[Content"), text[:300]
    return None


def call_of_summary(text: str) -> tuple[str, dict[str, Any]]:
    call = call_in(text[text.index("[Content offloaded") :])
    assert call is not None
    return call


async def opened(name: str, arguments: Mapping[str, Any], tools: Mapping[str, Tool]) -> str:
    """What the tool answers."""
    chosen = tools[name]
    field = next(iter(chosen.input_schema["properties"]))
    result = await chosen.run({field: next(iter(arguments.values()))})
    assert not result.is_error, result.text[:300]
    return result.text


def move(body: Mapping[str, Any]) -> Any:
    """What the model does: a call after the other, then an answer; a request without tools asks for a summary."""
    if not body.get("tools"):
        return "A summary."
    n = move.made = move.made + 1  # type: ignore[attr-defined]
    if n > TURNS:
        return "done"
    if n % 3:
        return [ToolCall("run_tests", {"n": n}, id=f"call_{n}")]
    return [ToolCall("fetch", {"n": n, "body": content(n)}, id=f"call_{n}")]


def script() -> list[Any]:
    move.made = 0  # type: ignore[attr-defined]
    return [move] * 40


OWN = ("Read", "context_tail", "get_knowledge_by_id", "history_read")
SETTINGS = st.fixed_dictionaries(
    {
        "tools": st.sets(st.sampled_from(OWN), max_size=2) | st.just({"Read"}),
        "layout": st.sampled_from(["envelope", "text"]),
        "compress": st.none() | st.sampled_from([0, 500]),
        "pricing": st.sampled_from(["auto", None]),
        "exact": st.booleans(),
        "offload_token_threshold": st.sampled_from([None, 100]),
        "offload_policy": st.sampled_from([OffloadPolicy(digest_tokens=0), None]),
        "arrival": st.sampled_from([None, "materialize", "workspace"]),
        "recall": st.booleans(),
        "window": st.sampled_from([None, 14_000]),
        "in_memory": st.sampled_from([False, False, True]),
    }
)
PLAIN: dict[str, Any] = {
    "tools": set(),
    "layout": "envelope",
    "compress": None,
    "pricing": "auto",
    "exact": False,
    "offload_token_threshold": None,
    "offload_policy": None,
    "arrival": None,
    "recall": False,
    "window": None,
    "in_memory": False,
}


ARRIVALS: dict[str | None, Materialize | ToolResultOffload | None] = {
    None: None,
    "materialize": Materialize(max_inline_chars=3_000),
    "workspace": ToolResultOffload(threshold_tokens=1_000, inline_limit_chars=0),
}


def config_of(chosen: dict[str, Any], root: Path) -> AgentConfig:
    chosen = dict(chosen)
    names, arrival, window = chosen.pop("tools"), chosen.pop("arrival"), chosen.pop("window")
    place: dict[str, Any] = {"offload_root_path": MemorySessions() if chosen.pop("in_memory") else root}
    if arrival is not None:  # with a threshold beside its own limits it is refused
        del chosen["offload_token_threshold"]
    theirs = [Read if name == "Read" else own(name) for name in sorted(names)]
    return AgentConfig(
        tools=[*theirs, run_tests if chosen.pop("exact") else BY_PRICE, fetch],
        materialize=ARRIVALS[arrival],
        window="auto" if window is None else window,
        layout=Layout(chosen.pop("layout"), chosen.pop("compress")),
        **place,
        **chosen,
    )


@given(SETTINGS)
@example(PLAIN)
@example({**PLAIN, "tools": {"Read"}})
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
async def test_each_placeholder_is_opened_by_a_tool_of_its_request(
    tmp_path_factory: pytest.TempPathFactory, chosen: dict[str, Any]
) -> None:
    model = ScriptedModel(script())
    root = tmp_path_factory.mktemp("s")
    if refused(chosen):
        with pytest.raises(ConfigError, match="your tool"):
            Agent(model, config_of(chosen, root))
        return
    agent = Agent(model, config_of(chosen, root))
    async with agent:
        await agent.query("go")
        fs = agent.context.fs
        ours = [read_tool(fs), *retrieval_tools(fs), *recall_tools(fs)]
        if isinstance(agent.config.materialize, ToolResultOffload):
            ours += agent.config.materialize.tools(fs)
        tools = {each.name: each for each in [*ours, *agent.config.tools]}
        seen: set[tuple[int, str]] = set()
        for body in model.requests:
            offered = {each["name"] for each in body.get("tools", ())}
            if not offered:  # it asks for a summary
                continue
            for n, text in contents(body):
                call = call_in(text)
                if call is None or (n, text) in seen:
                    continue
                seen.add((n, text))
                assert call[0] in offered, text[:300]
                assert f"content-{n} of test" in await opened(*call, tools), text[:300]
            for text in summaries(body):
                name, arguments = call_of_summary(text)
                assert name in offered, text[:300]
                assert "msg_" in await opened(name, arguments, tools), text[:300]


def refused(chosen: Mapping[str, Any]) -> bool:
    """Whether these settings cannot keep the promise."""
    names = chosen["tools"]
    needed: Mapping[str, Sequence[str]] = {
        "context_tail": ["materialize"],
        "get_knowledge_by_id": ["workspace"],
        "history_read": ["recall"] if chosen["recall"] else [],
    }
    if any(chosen["arrival"] in needed[name] for name in names - {"Read", "history_read"}):
        return True
    if "history_read" in names and chosen["recall"]:
        return True
    return "Read" in names and (chosen["in_memory"] or bool(chosen["compress"]))


async def test_a_session_whose_placeholders_only_our_read_opens_is_not_resumed_with_another(tmp_path: Path) -> None:
    config = AgentConfig(tools=[fetch, BY_PRICE], offload_root_path=tmp_path)
    async with Agent(ScriptedModel(script()), config) as one:
        await one.query("go")
    journal = (tmp_path / one.session_id / "journal.jsonl").read_bytes()
    assert b"[Content offloaded: Read stored/" in journal
    again = AgentConfig(tools=[Read, fetch, run_tests], offload_root_path=tmp_path, session_id=one.session_id)
    with pytest.raises(ConfigError, match="only the Read tool of ctxfs can open"):
        await Agent(ScriptedModel(["more"]), again).open()
    assert (tmp_path / one.session_id / "journal.jsonl").read_bytes().startswith(journal)


async def test_a_session_with_a_users_read_is_resumed_with_it_and_with_ours(tmp_path: Path) -> None:
    config = AgentConfig(tools=[Read, fetch, run_tests], offload_root_path=tmp_path)
    async with Agent(ScriptedModel(script()), config) as one:
        await one.query("go")
        assert json.dumps([str(item.message.content) for item in one.context.items]).count("Path: ") > 1
    for theirs in ([Read], []):
        config = AgentConfig(tools=[*theirs, fetch, run_tests], offload_root_path=tmp_path, session_id=one.session_id)
        async with Agent(ScriptedModel(["more"]), config) as again:
            assert await again.query("and?") == "more"


async def test_what_a_users_read_opens_is_not_compressed(tmp_path: Path) -> None:
    big = tool("Fetch", ephemeral=1)(fetch_much)
    config = AgentConfig(tools=[Read, big], offload_root_path=tmp_path, preview_above_tokens=None)
    turns = [[ToolCall("fetch_much", {"n": n}, id=f"call_{n}")] for n in (1, 2)]
    model = ScriptedModel([*turns, "done"])
    async with Agent(model, config) as agent:
        await agent.query("go")
    (call,) = [call for _, text in contents(model.requests[-1]) if (call := call_in(text)) is not None]
    assert "line 1 of a long page" in await opened(*call, {"Read": Read})


def fetch_much(n: int) -> str:
    return f"line {n} of a long page\n" * 3_000


OFFERED = st.none() | st.sets(st.sampled_from(["Read", "their Read", "their context_tail", "log"]), max_size=3)


BARE = st.fixed_dictionaries(
    {
        "offered": OFFERED,
        "keep_recent": st.sampled_from([{}, {"run_tests": 1}]),
        "offload_policy": st.sampled_from([OffloadPolicy(digest_tokens=0), None]),
        "window": st.sampled_from([None, 14_000]),
        "layout": st.sampled_from([ENVELOPE, TEXT]),
        "in_memory": st.booleans(),
    }
)
PLAIN_BARE: dict[str, Any] = {
    "offered": {"Read"},
    "keep_recent": {"run_tests": 1},
    "offload_policy": None,
    "window": None,
    "layout": ENVELOPE,
    "in_memory": False,
}


@given(BARE)
@example(PLAIN_BARE)
@example({**PLAIN_BARE, "offered": {"log"}})
@example({**PLAIN_BARE, "offered": {"log"}, "window": 14_000})
@example({**PLAIN_BARE, "offered": {"their Read"}})
@example({**PLAIN_BARE, "offered": {"their Read"}, "layout": TEXT})
@example({**PLAIN_BARE, "offered": {"their Read"}, "layout": TEXT, "keep_recent": {}, "window": 14_000})
@example({**PLAIN_BARE, "offered": {"their Read"}, "in_memory": True, "window": 14_000})
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
async def test_each_placeholder_of_a_bare_context_is_opened_by_a_tool_of_its_request(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture, chosen: dict[str, Any]
) -> None:
    """Whoever made the tool.

    What must leave to fit the window may be opened by none: it says then that it is not known which tool does.
    """
    chosen = dict(chosen)
    offered, layout, in_memory = (chosen.pop(name) for name in ("offered", "layout", "in_memory"))
    if offered is not None and {"Read", "their Read"} <= offered:
        offered = offered - {"Read"}  # a request has one tool of a name
    place: dict[str, Any] = {"root_path": MemorySessions() if in_memory else tmp_path_factory.mktemp("s")}
    fs = ContextFileSystem("s", layout=layout, **place)
    caplog.clear()
    async with Context(fs, **chosen) as context:
        ours = {each.name: each for each in [read_tool(fs), *retrieval_tools(fs)]}
        theirs = {"their Read": Read, "their context_tail": own("context_tail"), "log": own("log")}
        tools = {name: theirs.get(name) or ours[name] for name in offered or ()}
        by_name = ours if offered is None else {tool.name: tool for tool in tools.values()}
        if offered is not None:
            context.tools = [definition_of(tool) for tool in tools.values()]
        await context.add({"role": "user", "content": "go"})
        evicted = 0
        for n in range(1, 3 * TURNS):
            call: dict[str, Any] = {
                "type": "tool_use",
                "id": f"call_{n}",
                "name": "run_tests" if n % 3 else "fetch",
                "input": {},
            }
            await context.add({"role": "assistant", "content": [call]}, usage=Usage(input_tokens=1_000), model="m")
            result = {"type": "tool_result", "tool_use_id": f"call_{n}", "content": content(n)}
            await context.add({"role": "user", "content": [result]})
            body = dict(await context.request())
            for number, text in contents(body):
                found = call_in(text)
                if found is None:
                    continue
                evicted += 1
                if found[0] == ANY_TOOL:
                    assert chosen["window"] is not None, "nothing leaves that need not"
                    assert "the window is full" in caplog.text
                    continue
                assert found[0] in by_name, text[:300]
                assert f"content-{number} of test" in await opened(*found, by_name)
    can_open = offered is None or "Read" in offered or ("their Read" in offered and layout is TEXT and not in_memory)
    if chosen["keep_recent"]:
        assert bool(evicted) or not can_open, "where the model can read it back, it leaves"


@pytest.mark.parametrize("theirs", [False, True])
async def test_tools_that_are_set_after_a_session_was_resumed_count_for_what_is_there(
    tmp_path: Path, *, theirs: bool
) -> None:
    """What leaves from then on names a path for a Read of the user's, and a short name for that of ctxfs."""
    layout = replace(ENVELOPE, compress_from_chars=0)
    async with Context(ContextFileSystem("s", root_path=tmp_path, layout=layout)) as context:
        await context.add({"role": "user", "content": "go"})
        for n in range(1, 8, 2):
            call: Any = {"type": "tool_use", "id": f"call_{n}", "name": "run_tests", "input": {}}
            result = {"type": "tool_result", "tool_use_id": f"call_{n}", "content": content(1)}
            await context.add({"role": "assistant", "content": [call]}, {"role": "user", "content": [result]})
        await context.add({"role": "assistant", "content": "done"}, {"role": "user", "content": "again"})
    async with Context("s", root_path=tmp_path, window=14_000) as context:
        context.tools = [definition_of(Read if theirs else read_tool(context.fs))]
        found = [call for _, text in contents(dict(await context.request())) if (call := call_in(text)) is not None]
    assert found
    assert all(Path(call[1]["path"]).is_absolute() is theirs for call in found)


@pytest.mark.both_loops
@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("doing", ["opens", "adds"])
async def test_tools_that_are_set_while_another_task_is_in_the_middle_of_a_call_count_for_what_is_there(
    doing: str, steps: int, tmp_path: Path
) -> None:
    def new() -> Context:
        fs = ContextFileSystem("s", root_path=tmp_path, layout=replace(ENVELOPE, compress_from_chars=0))
        made = Context(fs, window=14_000, preview_above_tokens=None)
        made.tools = [definition_of(Read)]
        return made

    async def add(first: int, last: int) -> None:
        await context.add({"role": "user", "content": "go"})
        for n in range(first, last):
            call: Any = {"type": "tool_use", "id": f"call_{n}", "name": "run_tests", "input": {}}
            result = {"type": "tool_result", "tool_use_id": f"call_{n}", "content": content(n) * 4}
            await context.add({"role": "assistant", "content": [call]}, {"role": "user", "content": [result]})
        await context.add({"role": "assistant", "content": "done"})

    async def set_tools() -> None:
        while not context.fs.is_open:
            await anyio.lowlevel.checkpoint()
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        context.tools = [definition_of(read_tool(context.fs))]

    context = new()
    async with context:
        await add(1, 4)
        if doing == "opens":
            await context.close()
            context = new()
        async with anyio.create_task_group() as group:
            if doing == "opens":
                group.start_soon(context.open)
            else:
                group.start_soon(add, 4, 6)
            group.start_soon(set_tools)
        await context.add({"role": "user", "content": "and?"})
        found = [call for _, text in contents(dict(await context.request())) if (call := call_in(text)) is not None]
        await context.close()
    assert found
    assert not any(Path(call[1]["path"]).is_absolute() for call in found), "a short name, for the Read of ctxfs"
