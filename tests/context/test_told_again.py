"""``tell_repeats``: in each owner of a history, a result that was seen before is told by the earlier one."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs import Agent, AgentConfig, Context, History, OffloadPolicy, Part, tool
from ctxfs.context.again import SeenResults
from ctxfs.errors import ContentGone
from ctxfs.eviction.again import Earlier
from ctxfs.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from ctxfs.session import erase
from ctxfs.testing import ScriptedModel
from ctxfs.tools import Materializer
from session_items import make_item

pytestmark = pytest.mark.anyio

TELLS: dict[str, Any] = {"offload_policy": OffloadPolicy(tell_repeats=True), "pricing": None}
OLD = "".join(f"{n}: a line of the file\n" for n in range(412))
NEW = OLD.replace("200: a line", "200: another line")
SAME = "[The same as c1, 412 lines, unchanged. To read it: "
NEWER = "[The same as c1, with these lines instead of those that it had there. To read it: "
HUNK = "]\n@@ -201,1 +201,1 @@\n+200: another line of the file"


def call(call_id: str, path: str = "a.py", name: str = "look") -> AssistantMessage:
    return AssistantMessage(({"type": "tool_use", "id": call_id, "name": name, "input": {"path": path}},))


async def seen_in(context: Context, call_id: str, text: str, path: str = "a.py", **more: Any) -> Any:
    """What the next request has of a result."""
    await context.add(call(call_id, path), ToolMessage(call_id, "look", text, **more))
    return (await context.messages())[-1].content


def files_with(data: bytes, root: Path) -> list[Path]:
    """The files that have ``data``."""
    return [one for one in root.rglob("*") if one.is_file() and data in one.read_bytes()]


async def test_in_a_context(tmp_path: Path) -> None:
    async with Context("s", root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"))
        assert await seen_in(context, "c1", OLD) == OLD
        assert (await seen_in(context, "c2", OLD)).startswith(SAME)
        newer = await seen_in(context, "c3", NEW)
        assert newer.startswith(NEWER)
        assert newer.endswith(HUNK)
        assert (await seen_in(context, "c4", NEW)).startswith("[The same as c3, 412 lines, unchanged.")
        assert await seen_in(context, "c5", NEW + "x", "b.py") == NEW + "x", "another call, another text"
        assert await seen_in(context, "c6", OLD, is_error=True) == OLD
        for item_id, text in (("c2", OLD), ("c3", NEW), ("c4", NEW)):
            assert await context.fs.load(item_id) == text
        requests = await context.messages()
    async with Context("s", root_path=tmp_path, **TELLS) as context:
        assert await context.messages() == requests
        assert (await seen_in(context, "d1", OLD)).startswith("[The same as c")
        assert (await seen_in(context, "d2", NEW)).startswith("[The same as c")


async def test_what_has_left_is_still_known_after_a_restart(tmp_path: Path) -> None:
    settings = {**TELLS, "keep_recent": {"look": 1}}
    for texts in ((OLD, NEW), ("é" + OLD, "é" + NEW)):
        name = str(len(texts[0]))
        async with Context(name, root_path=tmp_path, **settings) as context:
            await context.add(UserMessage("go"))
            await seen_in(context, "c1", texts[0])
            await seen_in(context, "c2", "something else", "b.py")
            await context.messages()
            assert context.items[2].offloaded
        async with Context(name, root_path=tmp_path, **settings) as context:
            assert (await seen_in(context, "c3", texts[0])).startswith(SAME)
            assert await seen_in(context, "c4", texts[1]) == texts[1], "the older version is no longer seen whole"
            assert await context.fs.load("c3") == texts[0]


async def test_a_content_of_the_same_size_is_another_one(tmp_path: Path) -> None:
    settings = {**TELLS, "keep_recent": {"look": 1}, "preview_above_tokens": None}
    other = OLD.replace("200: a line", "200: A LINE")
    async with Context("s", root_path=tmp_path, **settings) as context:
        await context.add(UserMessage("go"))
        await seen_in(context, "c1", OLD)
        await seen_in(context, "c2", "something else", "b.py")
    async with Context("s", root_path=tmp_path, **settings) as context:
        assert await seen_in(context, "c3", other) == other
        blocks = ({"type": "text", "text": OLD}, {"type": "text", "text": other})
        assert await seen_in(context, "c4", blocks, "c.py") == blocks  # type: ignore[arg-type]


async def test_a_version_that_has_changed_throughout_is_sent_whole(tmp_path: Path) -> None:
    async with Context("s", root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"))
        await seen_in(context, "c1", OLD)
        turned = "\n".join(reversed(OLD.split("\n")))
        assert await seen_in(context, "c2", turned) == turned


def test_a_result_without_its_call_is_known_by_its_content_alone() -> None:
    message = ToolMessage("c1", "look", OLD)
    items: dict[str, Any] = {"c1": make_item("c1", message, 4_000)}
    seen = SeenResults(items)
    seen.enter(replace(items["c1"], destroyed=True))
    assert seen.before(make_item("c2", ToolMessage("c2", "look", OLD), 4_000)) is None, "nothing is known of it"
    seen.enter(items["c1"])
    assert seen.before(make_item("c2", ToolMessage("c2", "look", OLD), 4_000)) == Earlier("c1", "", is_same=True)
    assert seen.before(make_item("c3", ToolMessage("c3", "look", NEW), 4_000)) is None


async def test_results_of_one_reply_are_each_seen(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, **TELLS) as context:
        both = AssistantMessage((*call("c1").content, *call("c2").content))
        await context.add(UserMessage("go"), both, ToolMessage("c1", "look", OLD), ToolMessage("c2", "look", OLD))
        assert [one.content for one in (await context.messages())[-2:]] == [OLD, OLD]


@pytest.mark.parametrize("settings", [{}, {"offload_policy": OffloadPolicy()}, {**TELLS, "offload_enabled": False}])
async def test_it_is_off_by_default(settings: dict[str, Any], tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, **settings) as context:
        await context.add(UserMessage("go"))
        for call_id in ("c1", "c2"):
            assert await seen_in(context, call_id, OLD) == OLD


async def test_another_eager_policy_decides_about_what_is_new(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, eager=Materializer(), **TELLS) as context:
        await context.add(UserMessage("go"))
        assert (await seen_in(context, "c1", OLD)).startswith("[Output stored in full: look")
        assert (await seen_in(context, "c2", OLD)).startswith(SAME)


async def test_a_result_stays_whole_if_no_tool_of_the_requests_opens_it(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, **TELLS) as context:
        context.tools = [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}]
        await context.add(UserMessage("go"))
        for call_id in ("c1", "c2"):
            assert await seen_in(context, call_id, OLD) == OLD


@pytest.mark.parametrize("text", [OLD, NEW])
async def test_erasing_the_first_one_leaves_no_trace_and_the_second_whole(text: str, tmp_path: Path) -> None:
    secret = "200: the password is hunter2"
    first = OLD.replace("200: a line of the file", secret)
    async with Context("s", root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"))
        await seen_in(context, "c1", first)
        assert (await seen_in(context, "c2", text)).startswith("[The same as c1, with these lines")
    await erase("s", ["c1"], root_path=tmp_path, reason="a password")
    assert not await anyio.to_thread.run_sync(files_with, b"hunter2", tmp_path)
    async with Context("s", root_path=tmp_path, **TELLS) as context:
        assert await context.fs.load("c2") == text
        with pytest.raises(ContentGone):
            await context.fs.load("c1")
        again = await seen_in(context, "c3", first)
        assert not again.startswith("[The same as c1")


async def test_in_an_agent(tmp_path: Path) -> None:
    @tool("Look")
    def look(path: str) -> str:
        return OLD

    turns: list[Any] = [[ToolCall("look", {"path": "a.py"}, id=one)] for one in ("c1", "c2")]
    model = ScriptedModel([*turns, [ToolCall("Read", {"file_path": "c2"}, id="r1")], "done"])
    async with Agent(model, AgentConfig(tools=[look], offload_root_path=tmp_path, **TELLS)) as agent:
        await agent.query("go")
    last = [block for message in model.requests[3]["messages"] for block in message["content"] if "content" in block]
    assert last[0]["content"] == OLD
    assert last[1]["content"].startswith(SAME)
    assert "411: a line of the file" in last[2]["content"]


def history_of(*results: tuple[str, str, str]) -> list[Part]:
    """Calls of a tool with a path, each with its result, by the id of the call; "": the framework has none."""
    parts = [Part("user", "go", "user")]
    for number, (call_id, path, text) in enumerate(results):
        parts.append(Part("call", {"path": path}, f"call {number}", call_id, "look"))
        parts.append(Part("result", text, number, call_id, "look"))
    return parts


def sent(history: History, parts: Sequence[Part], place: int) -> Any:
    edits = history.rewrite(parts)
    assert dict(history.rewrite(parts)) == dict(edits), "the same, when it is sent again"
    return edits.get(place)


def test_in_a_history(tmp_path: Path) -> None:
    edits: dict[Any, Any] = {}
    results = [("c1", "a.py", OLD), ("c2", "a.py", OLD), ("c3", "a.py", NEW), ("c4", "b.py", NEW + "x")]
    with History("s", root_path=tmp_path, **TELLS) as history:
        for number in range(1, len(results) + 1):
            edits = dict(history.rewrite(history_of(*results[:number])))
        assert sorted(edits) == [1, 2]
        assert edits[1].startswith(SAME)
        assert edits[2].startswith(NEWER)
        assert edits[2].endswith(HUNK)
        path = re.search(r'file_path="([^"]+)"', edits[1])
        assert path is not None
        assert Path(path[1]).read_text() == OLD
        assert "411: a line of the file" in history.run_tool("Read", {"file_path": path[1]}).text
    with History("s", root_path=tmp_path, **TELLS) as history:
        assert dict(history.rewrite(history_of(*results))) == edits
        more = history_of(*results, ("c5", "a.py", NEW))
        assert sent(history, more, 4).startswith("[The same as c3, 412 lines, unchanged.")


def test_in_a_history_a_result_is_told_only_by_what_the_model_sees(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, **TELLS) as history:
        assert sent(history, history_of(("", "a.py", OLD), ("", "a.py", OLD)), 1) is None, "calls without an id"
        assert sent(history, history_of(("", "a.py", OLD), ("c2", "a.py", OLD)), 1) is None
        both = history_of(("c1", "a.py", OLD), ("c2", "a.py", OLD))
        at_once = [both[0], both[1], both[3], both[2], both[4]]
        assert sent(history, at_once, 1) is None, "results of one reply"
        orphan = [*history_of(("c1", "a.py", OLD)), Part("reply", "hm", "reply"), Part("result", NEW, 1, "c2", "look")]
        assert sent(history, orphan, 1) is None, "a result without its call"


def test_in_a_history_the_older_version_must_be_whole(tmp_path: Path) -> None:
    asked = Part("call", {"path": "a.py"}, "call 9", "c9", "look")
    with History("s", root_path=tmp_path, **TELLS) as history:
        without_result = [Part("user", "hi", "first"), asked, *history_of(("c1", "a.py", OLD))]
        assert sent(history, without_result, 0) is None
        other_tool = [*without_result, asked._replace(place="call 8", id="c8", tool="peek")]
        assert sent(history, [*other_tool, Part("result", NEW, 8, "c8", "peek")], 8) is None
        again = [*without_result, asked._replace(place="call 8", id="c8")]
        assert sent(history, [*again, Part("result", NEW, 8, "c8", "look")], 8).startswith(NEWER)
    with History("t", root_path=tmp_path, keep_recent={"look": 1}, **TELLS) as history:
        parts = [*history_of(("c1", "a.py", OLD), ("c2", "b.py", "b" * 2_000)), Part("reply", "read", "reply")]
        assert sent(history, parts, 0) is not None, "it has left"
        more = [*parts, asked, Part("result", NEW, 9, "c9", "look")]
        assert sent(history, more, 9) is None
        assert sent(history, [*more[:-1], more[-1]._replace(content=OLD)], 9).startswith(SAME)


def test_in_a_history_without_previews_and_without_a_tool_that_reads(tmp_path: Path) -> None:
    parts = history_of(("c1", "a.py", OLD), ("c2", "a.py", OLD))
    with History("s", root_path=tmp_path, preview_above_tokens=None, **TELLS) as history:
        assert dict(history.rewrite(parts, tools=["look"])) == {}
        assert sent(history, [*parts, Part("reply", "x", "r")], 1) is None, "it was seen whole, so it stays"
    with History("t", root_path=tmp_path, preview_above_tokens=None, **TELLS) as history:
        assert sent(history, parts, 1).startswith(SAME)


async def test_a_history_of_the_messages_api(tmp_path: Path) -> None:
    body = {
        "tools": [{"name": "Read", "input_schema": {}}],
        "messages": [
            {"role": "user", "content": "go"},
            *[
                {"role": role, "content": [block]}
                for one in ("c1", "c2")
                for role, block in (
                    ("assistant", {"type": "tool_use", "id": one, "name": "look", "input": {}}),
                    ("user", {"type": "tool_result", "tool_use_id": one, "content": OLD}),
                )
            ],
        ],
    }

    def rewritten() -> Any:
        with History(root_path=tmp_path, **TELLS) as history:
            return history.messages(body)

    contents = [one["content"][0] for one in (await anyio.to_thread.run_sync(rewritten))["messages"][1:]]
    assert contents[1]["content"] == OLD
    assert contents[3]["content"].startswith(SAME)
