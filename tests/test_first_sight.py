"""What the model sees of a new result in the first request that has it: whole up to a limit, above it a preview."""

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs import Agent, AgentConfig, Context, History, Part, tool
from ctxfs.context import Histories
from ctxfs.errors import ConfigError
from ctxfs.eviction import Evicted, EvictionParameters
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.preview import PREVIEW_TOKENS
from ctxfs.messages import AssistantMessage, CharsCounter, ToolCall, ToolMessage, UserMessage
from ctxfs.messages.tokens import default_counter
from ctxfs.testing import ScriptedModel
from ctxfs.testing.history_conformance import pricing_on
from ctxfs.testing.strategies import png
from ctxfs.tools import Materializer, read_tool

pytestmark = pytest.mark.anyio

LIMIT = 8_000
KINDS: Mapping[str, Callable[[int], str]] = {
    "log": lambda n: "".join(f"unit::test_{i} passed quickly in {i % 7}.{i % 10} s\n" for i in range(n)),
    "failures": lambda n: "".join(
        f"run {i}: {'ERROR: lost' if i % 97 == 50 else 'ok'} after {i} s\n" for i in range(n)
    ),
    "prose": lambda n: "".join(
        f"The revenue of region {i} was {i * 37} million, up {i % 9} percent.\n" for i in range(n)
    ),
    "json": lambda n: json.dumps([{"id": i, "name": f"user{i}", "mail": f"u{i}@x.org", "ok": True} for i in range(n)]),
    "code": lambda n: "".join(f"def handler_{i}(request, store):\n    return store.get({i})\n" for i in range(n)),
    "table": lambda n: "name,place,total\n" + "".join(f"item {i},north,{i * 3}\n" for i in range(n)),
    "one line": lambda n: " ".join(f"word{i}" for i in range(n)),
}
SIZES = (1, 20, 150, 500, 700, 1_000, 3_500)
COUNT = default_counter().count
LARGE = KINDS["log"](1_000)

Sent = Callable[[str, str, str, Path], Any]
"""What is sent first of a result: of its text, its tool's name, the model and a directory."""


async def by_context(text: str, name: str, model: str, root: Path, **settings: Any) -> Any:
    async with Context(root_path=root, model=model, **settings) as context:
        call = {"type": "tool_use", "id": "c1", "name": name, "input": {}}
        await context.add(UserMessage("go"), AssistantMessage((call,)), ToolMessage("c1", name, text))
        return (await context.messages())[-1].content


async def by_agent(text: str, name: str, model: str, root: Path) -> Any:
    @tool("Look", name=name)
    def look() -> str:
        return text

    scripted = ScriptedModel([[ToolCall(name, {}, id="c1")], "done"], model=model or "scripted")
    async with Agent(scripted, AgentConfig(tools=[look], offload_root_path=root)) as agent:
        await agent.query("go")
    return scripted.requests[1]["messages"][-1]["content"][0]["content"]


async def by_parts(text: str, name: str, model: str, root: Path) -> Any:
    return await anyio.to_thread.run_sync(parts_sent, text, name, model, root)


def parts_sent(text: str, name: str, model: str, root: Path) -> Any:
    with History(root_path=root, model=model) as history:
        parts = [Part("user", "go", 0), Part("call", {}, 1, "c1", name), Part("result", text, 2, "c1", name)]
        sent = history.rewrite(parts).get(2, text)
        assert history.rewrite(parts).get(2, text) == sent, "it is the same when it is sent again"
        return sent


async def by_wire(text: str, name: str, model: str, root: Path) -> Any:
    return await anyio.to_thread.run_sync(wire_sent, text, name, model, root)


def wire_sent(text: str, name: str, model: str, root: Path) -> Any:
    with History(root_path=root, model=model) as history:
        return history.messages(request(text, name))["messages"][-1]["content"][0]["content"]


def request(text: Any, name: str, tools: Sequence[str] = ("Read", "context_grep")) -> dict[str, Any]:
    call = {"type": "tool_use", "id": "c1", "name": name, "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": text}
    return {
        "tools": [{"name": one, "input_schema": {}} for one in tools],
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ],
    }


SURFACES: Mapping[str, Any] = {"context": by_context, "agent": by_agent, "parts": by_parts, "wire": by_wire}


EACH_KIND = [("context", kind) for kind in KINDS]
EACH_SURFACE = [(surface, kind) for surface in SURFACES if surface != "context" for kind in ("log", "one line")]
"""A preview is made in one place: what it shows of a kind does not depend on who sends it."""


@pytest.mark.parametrize(("surface", "kind"), [*EACH_KIND, *EACH_SURFACE])
async def test_a_result_is_seen_whole_up_to_the_limit_and_above_it_as_a_preview(
    surface: str, kind: str, tmp_path: Path
) -> None:
    for n in SIZES:
        text = KINDS[kind](n)
        sent = await SURFACES[surface](text, "look", "claude-sonnet-5-5", tmp_path)
        if COUNT(text) <= LIMIT:
            assert sent == text
            continue
        assert PREVIEW_TOKENS / 2 < COUNT(sent) <= PREVIEW_TOKENS
        assert f"{COUNT(text):,} tokens" in sent
        assert "If you need more of it: first " in sent
        lines = text.rstrip("\n").split("\n")
        assert f"1: {lines[0][:20]}" in sent
        assert f"\n{len(lines)}: " in sent
        assert lines[-1][-20:] in sent


@pytest.mark.slow
@pytest.mark.parametrize("surface", SURFACES)
async def test_neither_the_tools_name_nor_the_model_nor_its_prices_change_what_is_seen(
    surface: str, tmp_path: Path
) -> None:
    names = ("look", "read_file", "Bash", "web_search", "get_order")
    models = ("", "claude-opus-5", "claude-sonnet-5-5", "gpt-6.1", "deepseek-v4", "gemini-3.5-pro")
    each = [*zip(names, models, strict=False), *zip(names, models[3:] + models[:3], strict=False), ("look", models[5])]
    for n in (20, 500, 1_000):
        text = KINDS["log"](n)
        seen = set()
        for name, model in each:
            sent = await SURFACES[surface](text, name, model, tmp_path)
            shown = sent.replace(name, "TOOL").split("\n")
            seen.add("\n".join(line for line in shown if not line.startswith("If you need more of it")))
        assert len(seen) == 1


async def test_a_preview_shows_what_the_kind_has_to_show(tmp_path: Path) -> None:
    async def seen(kind: str) -> str:
        return str(await by_context(KINDS[kind](1_000), "look", "", tmp_path))

    assert "51: run 50: ERROR: lost" in (await seen("failures")).split("Lines with errors:")[1]
    assert re.search(r"JSON: \[[≥\d,+ ]*× \{id: int, name: str", await seen("json"))
    assert "1: def handler_0(request, store):" in (await seen("code")).split("First lines:")[0]
    assert "Comma-separated table, 3 columns:" in await seen("table")


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({}, LIMIT),
        ({"preview_above_tokens": 2_000}, 2_000),
        ({"preview_above_tokens": 20_000, "window": 200_000}, 20_000),
        ({"window": 40_000}, 5_000),
        ({"window": 4_000}, PREVIEW_TOKENS),
        ({"window": None}, LIMIT),
        ({"pricing": None}, LIMIT),
        ({"keep_recent": {"look": 1}}, LIMIT),
        ({"offload_policy": OffloadPolicy(digest_tokens=0)}, LIMIT),
    ],
)
async def test_the_limit_is_the_setting_or_an_eighth_of_the_window(
    settings: dict[str, Any], limit: int, tmp_path: Path
) -> None:
    for tokens, whole in ((limit, True), (limit + 1, False)):
        text = "x" * (4 * tokens)
        assert (await by_context(text, "look", "", tmp_path, counter=CharsCounter(), **settings) == text) is whole


async def test_none_sends_everything_whole_and_materialize_decides_alone(tmp_path: Path) -> None:
    text = LARGE
    assert await by_context(text, "look", "", tmp_path, preview_above_tokens=None) == text
    assert await by_context(text, "look", "", tmp_path, offload_enabled=False) == text
    stored = await by_context(KINDS["log"](500), "look", "", tmp_path, eager=Materializer())
    assert str(stored).startswith("[Output stored in full: look")


def test_none_leaves_a_history_whole(tmp_path: Path) -> None:
    text = LARGE
    with History(root_path=tmp_path, preview_above_tokens=None) as history:
        assert history.arrive(text, tool="look") == text
        assert history.messages(request(text, "look")) == request(text, "look")


async def test_images_are_seen_whole_and_what_was_read_back_is_not_previewed_again(tmp_path: Path) -> None:
    text = LARGE
    source = {"type": "base64", "media_type": "image/png", "data": png(40, 40)}
    blocks = ({"type": "text", "text": text}, {"type": "image", "source": source})
    assert await by_context(blocks, "look", "", tmp_path) == blocks  # type: ignore[arg-type]
    assert await by_context(text, "mcp__ctxfs__context_read", "", tmp_path) == text
    events: list[Any] = []
    async with Context("s", root_path=tmp_path, on_event=events.append, window=40_000) as context:
        call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
        await context.add(UserMessage("go"), AssistantMessage((call,)), ToolMessage("c1", "look", text))
        page = await read_tool(context.fs, max_tokens=6_000).run({"file_path": "c1"})
        assert COUNT(page.text) > 5_000
        await context.add(AssistantMessage(({**call, "id": "c2", "name": "Read"},)))
        assert page.source is not None
        await context.add(ToolMessage("c2", "Read", page.text), sources={"c2": page.source})
        assert (await context.messages())[-1].content == page.text
        assert await context.fs.load("c1") == text
    (evicted,) = [event for event in events if isinstance(event, Evicted)]
    assert evicted.reason == "previewed: over 5,000 tokens, an eighth of the window (setting: preview_above_tokens)"


async def test_a_preview_leaves_like_anything_else(tmp_path: Path) -> None:
    now = [0.0]
    pricing = pricing_on(lambda: now[0], parameters=EvictionParameters(read_back_weight=0.0))
    async with Context("s", root_path=tmp_path, pricing=pricing, window=None) as context:
        call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
        await context.add(UserMessage("go"), AssistantMessage((call,)), ToolMessage("c1", "look", LARGE))
        await context.messages()
        await context.add(AssistantMessage("I see."), UserMessage("go on"))
        now[0] = 100_000.0
        await context.messages()
        await context.add(AssistantMessage("And so on."), UserMessage("go on"))
        now[0] = 200_000.0
        assert "[Content offloaded" in str((await context.messages())[2].content)


@pytest.mark.parametrize("tools", [("Bash",), ("Bash", "look")])
async def test_without_a_tool_that_opens_it_a_result_stays_whole_and_a_warning_says_so(
    tools: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = LARGE
    history = History(root_path=tmp_path)
    body = request(text, "look", tools)
    for _ in range(2):
        assert await history.amessages(body) == body
    await history.aclose()
    async with Context(root_path=tmp_path) as context:
        context.tools = [{"name": name, "input_schema": {}} for name in tools]
        call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
        await context.add(UserMessage("go"), AssistantMessage((call,)), ToolMessage("c1", "look", text))
        assert (await context.messages())[-1].content == text
    told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert sum("requests have no tool 'Read'" in text for text in told) == 1
    assert sum("no tool of the request opens" in text for text in told) == 1


def test_a_tool_of_ctxfs_counts_under_the_name_that_a_host_gives_it(tmp_path: Path) -> None:
    with History(root_path=tmp_path, read_tool="context_read") as history:
        body = history.messages(request(LARGE, "look", ["mcp__ctxfs__context_read"]))
        assert 'mcp__ctxfs__context_read(ref="c1"' in body["messages"][-1]["content"][0]["content"]


def test_what_a_model_has_seen_whole_is_not_previewed_later(tmp_path: Path) -> None:
    """As where a program that already runs begins to use a history."""
    text = LARGE
    parts = [Part("call", {}, 1, "c1", "look"), Part("result", text, 2, "c1", "look"), Part("reply", "I see.", 3)]
    with History(root_path=tmp_path, pricing=None) as history:
        assert dict(history.rewrite(parts)) == {}


def test_at_the_source_the_limit_is_the_same(tmp_path: Path) -> None:
    with Histories(tmp_path) as histories:
        history = histories.of("one")
        for n in SIZES:
            text = KINDS["prose"](n)
            kept = history.arrive(text, tool="look", call_id=f"c{n}")
            assert (kept == text) is (COUNT(text) <= LIMIT)
            assert history.may_be_large(text) or kept == text


@pytest.mark.parametrize("value", [0, 999, -1, True, "8000", 1.5])
def test_a_limit_that_cannot_work_is_refused(value: Any, tmp_path: Path) -> None:
    for made in (
        lambda: AgentConfig(preview_above_tokens=value),
        lambda: Context(preview_above_tokens=value, root_path=tmp_path),
        lambda: History(preview_above_tokens=value, root_path=tmp_path),
    ):
        with pytest.raises(ConfigError, match="preview_above_tokens"):
            made()
