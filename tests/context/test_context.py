"""The context without an agent: messages in, messages out, nothing lost."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxfs.context import Context
from ctxfs.errors import ConfigError, SessionClosed, TranscriptError
from ctxfs.eviction import Evicted, Offloaded
from ctxfs.eviction.events import ContextEvent
from ctxfs.messages import CharsCounter, ContentRange
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.testing import strategies
from ctxfs.testing.invariants import check

pytestmark = pytest.mark.anyio

LONG = "a line of a long result\n" * 400


def call(number: int, name: str = "Read") -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": f"t{number}", "name": name, "input": {}}]}


def answer(number: int, content: object = LONG) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{number}", "content": content}]}


async def test_plain_dicts_in_plain_dicts_out(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, keep_recent={"Read": 1}) as context:
        await context.add({"role": "user", "content": "go"}, call(1), answer(1), call(2), answer(2), call(3), answer(3))
        request = await context.request(cache=False)
    results = [b for m in request["messages"] for b in m["content"] if b["type"] == "tool_result"]
    assert [r["content"].startswith("[Content offloaded]") for r in results] == [True, True, False]
    check({"model": "m", "max_tokens": 1, **request})


async def test_the_callers_own_dicts_are_not_ours(tmp_path: Path) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "before"}]}
    async with Context(root_path=tmp_path) as context:
        await context.add(message)
        message["content"][0]["text"] = "after"  # type: ignore[index]
        request = await context.request(cache=False)
    assert request["messages"] == [{"role": "user", "content": [{"type": "text", "text": "before"}]}]


@pytest.mark.parametrize(
    "wrong",
    [
        [answer(1)],
        [call(1), {"role": "user", "content": "no result"}],
        [call(1), call(2)],
        [call(1), answer(1), answer(1)],
        [{"role": "robot", "content": "x"}],
        [{"content": "x"}],
        [{"role": "user", "content": [{"type": "tool_result"}]}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": ""}],
        [UserMessage(" \n")],
        [UserMessage(())],
        [{"role": "user", "content": [{"type": "text", "text": " "}]}],
    ],
)
async def test_an_order_that_a_provider_would_refuse_adds_nothing(tmp_path: Path, wrong: list[dict[str, Any]]) -> None:
    async with Context(root_path=tmp_path) as context:
        with pytest.raises(TranscriptError):
            await context.add(*wrong)
        assert context.items == ()


@pytest.mark.parametrize("content", [None, ({"type": "text", "text": "x", "raw": b"x"},)])
async def test_a_system_prompt_is_content_too(tmp_path: Path, content: Any) -> None:
    async with Context(root_path=tmp_path) as context:
        await context.set_system_prompt("old")
        with pytest.raises(TranscriptError, match="content"):
            await context.set_system_prompt(content)
        assert [item.message.content for item in context.items] == ["old"]


@pytest.mark.parametrize("wrong", ["just a text", 7, None])
async def test_what_is_no_message_is_refused(tmp_path: Path, wrong: Any) -> None:
    async with Context(root_path=tmp_path) as context:
        with pytest.raises(TranscriptError, match="not a message"):
            await context.add(wrong)
        assert context.items == ()


async def test_nothing_is_sent_while_a_call_is_open(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path) as context:
        await context.add({"role": "user", "content": "go"}, call(1))
        assert [c.id for c in context.open_calls] == ["t1"]
        with pytest.raises(TranscriptError, match="no result"):
            await context.request()
        await context.answer_open_calls("it was interrupted")
        assert (await context.request())["messages"][-1]["content"][0]["is_error"]


async def test_before_open_and_after_close_it_says_so(tmp_path: Path) -> None:
    context = Context(root_path=tmp_path)
    with pytest.raises(SessionClosed):
        await context.add(UserMessage("x"))
    async with context:
        pass
    with pytest.raises(SessionClosed):
        await context.evict()
    await context.close()


@pytest.mark.parametrize("wrong", [{"keep_recent": {"Read": 0}}, {"preview_above_tokens": -1}])
async def test_settings_that_cannot_work(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Context(**wrong)


async def test_an_evicted_read_back_points_to_the_first_file_and_stores_no_copy(tmp_path: Path) -> None:
    events: list[ContextEvent] = []
    async with Context(root_path=tmp_path, keep_recent={"Read": 1}, on_event=events.append) as context:
        await context.add(UserMessage("go"), call(1), answer(1), call(2))
        path = str(context.fs.session_path / context.items[2].name)
        source = ContentRange(item_id="t1", path=path, first_line=5, last_line=90)
        await context.add(answer(2, "\n".join(LONG.split("\n")[4:90])), sources={"t2": source})
        await context.add(call(3), answer(3))
        await context.evict()
        files = {p.name for p in (tmp_path / context.session_id / "tool_result").rglob("*.json")}
        evicted = {item.id: item for item in context.items if item.destroyed}
    assert "t2.json" not in files
    assert evicted["t2"].offload_path == path
    text = evicted["t2"].message.content
    assert isinstance(text, str)
    assert text.startswith(f"[Content offloaded]\nPath: {path}\nUse Read tool to view details.\n")
    assert "5" in text
    assert "90" in text
    assert [e.item_id for e in events if isinstance(e, Offloaded)] == ["t1"]
    assert [e.item_id for e in events if isinstance(e, Evicted)] == ["t1", "t2"]


async def test_plan_after_evict_is_empty_and_the_prefix_before_it_is_unchanged(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, keep_recent={"Read": 1}) as context:
        await context.add({"role": "user", "content": "go"}, call(1, "Bash"), answer(1))
        for number in range(2, 6):
            await context.add(call(number), answer(number))
        before = [item.message for item in context.items]
        plan = context.plan()
        ids = [item.id for item in context.items]
        total = context.token_count
        assert await context.evict() == plan
        assert not context.plan()
        assert plan.first_changed is not None
        first = ids.index(plan.first_changed)
        assert [item.message for item in context.items][:first] == before[:first]
        assert [item.id for item in context.items] == ids
        assert context.token_count == total - plan.tokens_freed
        assert context.token_count == sum(item.token_count for item in context.items)


async def test_usage_is_recorded_and_resume_keeps_the_order(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, keep_recent={"Read": 1}) as context:
        await context.add(UserMessage("go"))
        await context.add(call(1), usage=Usage(input_tokens=10, output_tokens=3), model="m")
        await context.add(answer(1), call(2), answer(2), call(3), answer(3))
        await context.evict()
        items = context.items
    async with Context(context.session_id, root_path=tmp_path, keep_recent={"Read": 1}) as resumed:
        assert resumed.items == items
        assert not resumed.plan()
        await resumed.add(call(4), answer(4))
        assert [o.item_id for o in resumed.plan().offloads] == ["t3"]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": strategies.png(900, 900)}}
CONTENT = st.one_of(
    st.text(alphabet=st.characters(), max_size=50),
    st.sampled_from(["", LONG, "\ud800 lone", "é" * 3000, "\x00\r\n\u2028" * 900]),
    st.lists(
        st.one_of(
            st.builds(lambda t: {"type": "text", "text": t}, st.text(max_size=20)),
            st.just({"type": "text", "text": LONG}),
            st.just(IMAGE),
        ),
        min_size=1,
        max_size=3,
    ),
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=settings().max_examples // 2,
)
@given(contents=st.lists(CONTENT, min_size=1, max_size=6), keep=st.integers(1, 3), errors=st.booleans())
async def test_whatever_left_is_read_back_byte_for_byte(
    tmp_path: Path, contents: list[Any], keep: int, errors: bool
) -> None:
    originals = {}
    async with Context(root_path=tmp_path, keep_recent={"Read": keep}, counter=CharsCounter()) as context:
        await context.add(UserMessage("go"))
        for number, content in enumerate(contents):
            value = content if isinstance(content, str) else tuple(content)
            await context.add(call(number))
            (item,) = await context.add(ToolMessage(f"t{number}", "Read", value, is_error=errors))
            originals[item.id] = value
        await context.add(AssistantMessage("done"))
        await context.evict()
        for item in context.items:
            if item.offloaded:
                assert item.message.is_error is errors  # type: ignore[union-attr]
                assert await context.fs.load(item.id) == originals[item.id]
            elif item.id in originals:
                assert item.message.content == originals[item.id]
        check({"model": "m", "max_tokens": 1, **await context.request()})


@pytest.mark.both_loops
async def test_adding_from_two_tasks_keeps_every_message(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path) as context:
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(context.add, UserMessage(f"message {number}"))
        assert len({item.id for item in context.items}) == 20
        items = context.items
    async with Context(context.session_id, root_path=tmp_path) as resumed:
        assert resumed.items == items


async def test_tools_that_settings_name_and_requests_do_not_have_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Context(root_path=tmp_path, keep_recent={"serch": 1, "rules": "all"}) as context:
        for names in (("search", "rules", "Read"), ("search", "Read")):
            context.tools = [{"name": name} for name in names]
        context.tools = None
    assert caplog.text.count("keep_recent names tools that the requests do not have so far") == 1
    assert "'serch' (did you mean 'search'?)" in caplog.text
    assert "rules" not in caplog.text
