"""``OffloadPolicy(repeats=True)``: what has changed is sent of a result that the model sees, or a version of it."""

import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxfs import Agent, AgentConfig, Context, History, OffloadPolicy, Part, tool
from ctxfs.context.entry import Entry
from ctxfs.context.live import LiveTranscript
from ctxfs.context.transcript import Transcript
from ctxfs.errors import ConfigError, ContentGone
from ctxfs.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from ctxfs.messages.messages import Content, Message
from ctxfs.session import erase
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.testing import ScriptedModel
from ctxfs.tools import Materialize, Materializer, read_tool
from line_patch import patched
from session_items import make_item

pytestmark = pytest.mark.anyio

TELLS: dict[str, Any] = {"offload_policy": OffloadPolicy(repeats=True), "pricing": None}
TEXT = "".join(f"{n}: a line of the file\n" for n in range(412))
OTHER = TEXT.upper()
CHANGED = TEXT.replace("200: a line", "200: not a line")
LINE = re.compile(r'\[The same as (\S+), [\d,]+ lines?, unchanged\. To read it: Read\(file_path="([^"]+)"\)\]')


def asks(call_id: str, name: str = "look", **arguments: Any) -> AssistantMessage:
    return AssistantMessage(({"type": "tool_use", "id": call_id, "name": name, "input": arguments},))


async def sees(context: Context, call_id: str, content: Content, name: str = "look", **arguments: Any) -> Any:
    """What the next request has of a new result."""
    await context.add(asks(call_id, name, **arguments))
    await context.add(ToolMessage(call_id, name, content))
    return (await context.messages())[-1].content


def named(content: Any) -> str:
    """The call that a line names; "" if ``content`` is something else."""
    found = LINE.fullmatch(content) if isinstance(content, str) else None
    return "" if found is None else found[1]


def changed_since(content: Any) -> str:
    """The call that a diff names; empty where ``content`` is none."""
    found = re.match(r"\[Changed since (\S+): a unified diff from that result to this one, ", str(content))
    return "" if found is None else found[1]


# A context ------------------------------------------------------------------------------------------------------------


async def test_a_result_that_comes_again_is_one_line_and_can_be_read(tmp_path: Path) -> None:
    async with Context("s", root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"))
        assert await sees(context, "c1", TEXT) == TEXT
        again = await sees(context, "c2", TEXT)
        assert again.startswith("[The same as c1, 412 lines, unchanged. To read it: Read(file_path=")
        assert await context.fs.load("c2") == TEXT
        path = LINE.fullmatch(again)
        assert path is not None
        assert "411: a line of the file" in (await read_tool(context.fs).run({"file_path": path[2]})).text
        assert await sees(context, "c3", OTHER) == OTHER
        sent = await context.messages()
    async with Context("s", root_path=tmp_path, **TELLS) as context:  # as another process would
        assert await context.messages() == sent
        assert named(await sees(context, "c4", TEXT)) == "c1"
        assert (await context.restore("c4")).message.content == TEXT


async def test_of_a_newer_version_of_what_the_same_call_returned_the_diff_is_sent_and_all_of_it_can_be_read(
    tmp_path: Path,
) -> None:
    async with Context("s", root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"))
        await sees(context, "c1", TEXT, path="a", limit=500)
        again = await sees(context, "c2", CHANGED, limit=500, path="a")
        title, *hunk = again.split("\n")
        path = re.search(r"To read it whole: Read\(file_path=\"([^\"]+)\"\)\]$", title)
        assert title.startswith("[Changed since c1: a unified diff from that result to this one, 412 lines. ")
        assert hunk[0] == "@@ -198,7 +198,7 @@"
        assert hunk[4:6] == ["-200: a line of the file", "+200: not a line of the file"]
        assert path is not None
        assert await context.fs.load("c2") == CHANGED
        assert "200: not a line" in (await read_tool(context.fs).run({"file_path": path[1]})).text
        sent = await context.messages()
    async with Context("s", root_path=tmp_path, **TELLS) as context:  # as another process would
        assert await context.messages() == sent
        third = CHANGED.replace("407: a line", "407: the line")
        assert changed_since(await sees(context, "c3", third, path="a", limit=500)) == "c1", "c2 is no whole text here"
        assert (await context.restore("c2")).message.content == CHANGED


async def test_a_version_is_told_of_the_same_call_alone_and_only_where_the_diff_is_short(tmp_path: Path) -> None:
    half = TEXT.replace("1: a", "1: the").replace("3: a", "3: the")
    async with Context(root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"))
        await sees(context, "c1", TEXT, path="a")
        assert await sees(context, "c2", CHANGED, path="b") == CHANGED, "other arguments"
        third = CHANGED.replace("407: a line", "407: the line")
        assert await sees(context, "c3", third, name="list", path="a") == third, "another tool"
        assert await sees(context, "c4", half, path="a") == half, "the diff is as long as the text"
        assert await sees(context, "c5", f"{half}more\n", path="a") != half
        long = "x" * 3_000
        await sees(context, "c6", OTHER, path=long)
        fourth = OTHER.replace("200: A LINE", "200: a line")
        assert await sees(context, "c7", fourth, path=long) == fourth, "no look at something, but a text"
        many = list(range(1_000))
        page = "another " + OTHER
        await sees(context, "c8", page, numbers=many)
        page = page.replace("200: A", "200: THE")
        assert await sees(context, "c9", page, numbers=many) == page, "numbers, too"


async def test_an_equal_result_is_named_rather_than_an_earlier_version(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"))
        await sees(context, "c1", TEXT, path="b")
        await sees(context, "c2", OTHER, path="a")
        assert named(await sees(context, "c3", TEXT, path="a")) == "c1"


async def test_what_a_diff_names_stays_until_the_model_has_replied_to_it(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, keep_recent={"look": 1}, **TELLS) as context:
        await context.add(UserMessage("go"))
        await sees(context, "c1", TEXT)
        assert changed_since(await sees(context, "c2", CHANGED)) == "c1"
        assert not context.items[2].offloaded
        await sees(context, "c3", OTHER)
        assert [item.offloaded for item in context.items][2]
        await sees(context, "c4", "another\n" * 500)
        assert await sees(context, "c5", CHANGED) == CHANGED, "what it could name has left"


async def test_erasing_names_a_diff_that_has_lines_of_what_is_erased(tmp_path: Path) -> None:
    short = "".join(f"{n}\n" for n in range(412))
    async with Context("s", root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"))
        await sees(context, "c1", short.replace("200\n", "the password\n"))
        assert changed_since(await sees(context, "c2", short)) == "c1"
    assert (await erase("s", ["c1"], root_path=tmp_path)).quoted_in == ("c2",)


async def test_an_error_is_no_earlier_version(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"), asks("c1"), ToolMessage("c1", "look", TEXT, is_error=True))
        assert await sees(context, "c2", CHANGED) == CHANGED
        await context.add(asks("c3"), ToolMessage("c3", "look", TEXT, is_error=True))
        assert (await context.messages())[-1].content == TEXT


async def test_whichever_of_two_equal_results_is_erased_names_the_other_which_stays_as_it_was(tmp_path: Path) -> None:
    numbers = "".join(f"{n}\n" for n in range(412))
    for gone, left in (("c1", "c2"), ("c2", "c1")):
        async with Context(f"s-{gone}", root_path=tmp_path, **TELLS) as context:
            await context.add(UserMessage("go"))
            await sees(context, "c1", numbers)
            assert named(await sees(context, "c2", numbers)) == "c1"
            await context.fs.writer.store(context.items)
        assert (await erase(f"s-{gone}", [gone], root_path=tmp_path)).quoted_in == (left,)
        async with Context(f"s-{gone}", root_path=tmp_path, **TELLS) as context:
            assert await context.fs.load(left) == numbers
            with pytest.raises(ContentGone):
                await context.fs.load(gone)


async def test_a_reply_and_its_result_may_enter_together(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"), asks("c1"), ToolMessage("c1", "look", TEXT))
        await context.add(asks("c2"), ToolMessage("c2", "look", TEXT))
        assert named((await context.messages())[-1].content) == "c1"


async def test_a_result_that_no_reply_follows_was_not_seen(tmp_path: Path) -> None:
    both = AssistantMessage((*asks("c1").content, *asks("c2").content))
    async with Context(root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"), both)
        for call_id in ("c1", "c2"):
            await context.add(ToolMessage(call_id, "look", TEXT))
        assert [one.content for one in (await context.messages())[-2:]] == [TEXT, TEXT]


async def test_a_result_is_found_after_a_compaction_and_only_if_it_is_still_there(tmp_path: Path) -> None:
    """A compaction replaces the table of the items."""
    async with Context(root_path=tmp_path, window=40_000, **TELLS) as context:
        await context.add(UserMessage("go"))
        await sees(context, "c1", TEXT)
        for number in range(9):
            await sees(context, f"f{number}", f"{number}" + OTHER, page=number)
        items = context.items
        assert "c1" not in [item.id for item in items if not item.destroyed]
        assert await sees(context, "c2", TEXT) == TEXT
        assert named(await sees(context, "c3", TEXT)) == "c2"


async def test_what_has_left_is_not_named(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, keep_recent={"look": 1}, **TELLS) as context:
        await context.add(UserMessage("go"))
        await sees(context, "c1", TEXT)
        await sees(context, "c2", OTHER)
        assert context.items[2].offloaded
        assert await sees(context, "c3", TEXT) == TEXT


@pytest.mark.parametrize("pricing", [None, "auto"])
async def test_what_a_line_names_is_whole_in_the_first_request_that_has_the_line(pricing: Any, tmp_path: Path) -> None:
    given = {**TELLS, "pricing": pricing}
    async with Context(root_path=tmp_path, keep_recent={"look": 1}, **given) as context:
        await context.add(UserMessage("go"))
        await sees(context, "c1", TEXT)
        assert named(await sees(context, "c2", TEXT)) == "c1"
        assert not context.items[2].offloaded
        await sees(context, "c3", OTHER)
        assert context.items[2].offloaded


@pytest.mark.parametrize("pricing", [None, "auto"])
async def test_so_it_is_where_another_process_sends_that_request(pricing: Any, tmp_path: Path) -> None:
    given = {**TELLS, "pricing": pricing, "root_path": tmp_path, "keep_recent": {"look": 1}}
    async with Context("s", **given) as context:
        await context.add(UserMessage("go"), asks("c1"), ToolMessage("c1", "look", TEXT))
        await context.add(asks("c2"), ToolMessage("c2", "look", TEXT))
    async with Context("s", **given) as context:
        *_, first, _, second = await context.messages()
        assert first.content == TEXT
        assert named(second.content) == "c1"
        await context.add(AssistantMessage("done"), UserMessage("go on"))
    async with Context("s", **given) as context:
        await context.messages()
        assert not context.items[2].offloaded, "the newest result is the line, which names it"
        await sees(context, "c3", OTHER)
        assert context.items[2].offloaded


@pytest.mark.not_measured
@pytest.mark.parametrize("pricing", [None, "auto"])
@pytest.mark.parametrize("again", [TEXT, CHANGED])
async def test_the_last_results_of_keep_recent_can_be_read_in_the_context(
    pricing: Any, again: str, tmp_path: Path
) -> None:
    """The newest result is a line or a diff: it says nothing without the one that it names."""
    given = {**TELLS, "pricing": pricing, "root_path": tmp_path, "keep_recent": {"look": 1}}

    def shown(sent: Sequence[Message]) -> dict[str, Content]:
        return {one.tool_call_id: one.content for one in sent if isinstance(one, ToolMessage)}

    async with Context("s", **given) as context:
        await context.add(UserMessage("go"))
        for number in range(5):
            await sees(context, f"c{number}", again if number else TEXT)
            assert shown(await context.messages())["c0"] == TEXT
        await context.add(AssistantMessage("done"), UserMessage("go on"))
        assert shown(await context.messages())["c0"] == TEXT
    async with Context("s", **given) as context:  # as another process would
        await context.add(AssistantMessage("done"), UserMessage("go on"))
        contents = shown(await context.messages())
        assert contents["c0"] == TEXT
        assert "c0" in {named(contents["c4"]), changed_since(contents["c4"])}
        await sees(context, "c5", OTHER)
        assert str(shown(await context.messages())["c0"]).startswith("[Content offloaded]")


async def test_so_it_is_after_an_interrupt_while_the_line_is_in_memory_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    given = {**TELLS, "root_path": tmp_path, "keep_recent": {"look": 1}, "one_commit_a_turn": True}
    async with Context("s", **given) as context:
        await context.add(UserMessage("go"), asks("c1"), ToolMessage("c1", "look", TEXT))
        await context.add(asks("c2"), ToolMessage("c2", "look", TEXT))
        with monkeypatch.context() as patch:
            patch.setattr(LiveTranscript, "prepare", interrupted)
            with pytest.raises(KeyboardInterrupt):
                await context.add(UserMessage("go on"))
        *_, first, _, second = await context.messages()
        assert first.content == TEXT
        assert named(second.content) == "c1"


async def test_a_poll_is_told_however_often_it_comes(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"))
        told = [named(await sees(context, f"c{number}", TEXT)) for number in range(12)]
    assert told == ["", *["c0"] * 11]


async def test_an_error_is_sent_whole_and_never_named(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"), asks("c1"), ToolMessage("c1", "look", TEXT, is_error=True))
        assert await sees(context, "c2", TEXT) == TEXT
        await context.add(asks("c3"), ToolMessage("c3", "look", TEXT, is_error=True))
        assert (await context.messages())[-1].content == TEXT


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("cat", {"path": "{base}/tool_result/look/c2.json"}), ("sh", {"do": ["cat x/s/tool_result/look/c2.json"]})],
)
async def test_what_a_tool_of_the_host_reads_back_is_sent_whole(
    name: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    async with Context("s", root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"))
        await sees(context, "c1", TEXT)
        await sees(context, "c2", TEXT)
        given = {"path": str(arguments.get("path")).format(base=context.fs.base)} if "path" in arguments else arguments
        assert await sees(context, "c3", TEXT, name, **given) == TEXT
        assert named(await sees(context, "c4", TEXT, name, path="the file itself"))


@pytest.mark.parametrize("name", ["context_query", "mcp__ctxfs__context_read", "history_search"])
async def test_an_answer_of_a_tool_of_ctxfs_is_sent_whole(name: str, tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"))
        await sees(context, "c1", TEXT)
        assert await sees(context, "c2", TEXT, name) == TEXT


@pytest.mark.parametrize("text", ["\ud800\n" * 500, ({"type": "text", "text": "é\udfff" * 500},)])
async def test_lone_surrogates_are_compared_too(text: Content, tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"))
        assert await sees(context, "c1", text) == text
        assert named(await sees(context, "c2", text)) == "c1"
        assert await context.fs.load("c2") == text


async def test_images_short_results_and_another_shape_are_sent_whole(tmp_path: Path) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    contents: Sequence[Content] = ["short", ({"type": "text", "text": TEXT}, image)]
    async with Context(root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"))
        for number, content in enumerate(contents):
            await sees(context, f"a{number}", content)
            assert not named(await sees(context, f"b{number}", content))
        await sees(context, "c1", TEXT)
        assert not named(await sees(context, "c2", ({"type": "text", "text": TEXT},)))


@pytest.mark.parametrize("order", [("call_0", "call_1"), ("call_1", "call_0")])
@pytest.mark.parametrize("one_by_one", [False, True])
async def test_where_each_turn_has_the_same_ids_none_of_the_newest_turn_is_named(
    order: Sequence[str], one_by_one: bool, tmp_path: Path
) -> None:
    """Some providers count calls from 0 in each reply."""
    both = AssistantMessage((*asks("call_0").content, *asks("call_1").content))
    results = [ToolMessage(one, "look", OTHER if one == "call_0" else TEXT) for one in order]
    async with Context(root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"), asks("call_0"), ToolMessage("call_0", "look", TEXT), both)
        if one_by_one:
            for one in results:
                await context.add(one)
        else:
            await context.add(*results)
        assert [one.content for one in (await context.messages())[-2:]] == [one.content for one in results]


async def test_nor_is_an_id_named_that_was_used_again_in_messages_which_enter_together(tmp_path: Path) -> None:
    again: list[Message] = [ToolMessage("c1", "look", OTHER), asks("c2"), ToolMessage("c2", "look", TEXT)]
    for together in ([asks("c1"), *again], again):
        async with Context(root_path=tmp_path, **TELLS) as context:
            await context.add(UserMessage("go"), asks("c1"), ToolMessage("c1", "look", TEXT))
            if together is again:
                await context.add(asks("c1"))
            await context.add(*together)
            assert (await context.messages())[-1].content == TEXT


async def test_an_id_that_is_used_again_or_that_no_line_can_hold_is_not_named(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, **TELLS) as context:
        await context.add(UserMessage("go"))
        await sees(context, "c1", TEXT)
        assert await sees(context, "c1", TEXT) == TEXT, "its own id"
        assert await sees(context, "c2", TEXT) == TEXT, "two results have the id"
        await sees(context, "c3\n]", OTHER)
        assert await sees(context, "c4", OTHER) == OTHER


@pytest.mark.parametrize("settings", [{}, {"offload_policy": OffloadPolicy()}, {**TELLS, "offload_enabled": False}])
async def test_without_the_setting_each_is_whole(settings: dict[str, Any], tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, **settings) as context:
        await context.add(UserMessage("go"))
        for call_id in ("c1", "c2"):
            assert await sees(context, call_id, TEXT) == TEXT


@pytest.mark.parametrize("pinned", [False, True])
async def test_without_a_tool_that_opens_it_or_pinned_it_is_whole(pinned: bool, tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, keep_recent={"look": "all"} if pinned else None, **TELLS) as context:
        if not pinned:
            context.tools = [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}]
        await context.add(UserMessage("go"))
        for call_id in ("c1", "c2"):
            assert await sees(context, call_id, TEXT) == TEXT


def test_a_setting_that_has_no_effect_is_refused(tmp_path: Path) -> None:
    makers: list[Callable[..., Any]] = [
        lambda **more: Context(root_path=tmp_path, **TELLS, **more),
        lambda **more: History(root_path=tmp_path, **TELLS, **more),
        lambda **more: AgentConfig(offload_root_path=tmp_path, **TELLS, **more),
    ]
    for make in makers:
        with pytest.raises(
            ConfigError, match=r"^offload_policy's repeats has no effect with preview_above_tokens=None"
        ):
            make(preview_above_tokens=None)
    with pytest.raises(ConfigError, match=r"^offload_policy's repeats has no effect: eager decides"):
        makers[0](eager=Materializer())
    with pytest.raises(ConfigError, match=r"^offload_policy's repeats has no effect: materialize decides"):
        makers[2](materialize=Materialize())


def test_contents_are_compared_and_neither_hashed_nor_encoded() -> None:
    """Large texts are compared on the event loop."""

    class Text(str):
        __slots__ = ()

        def __hash__(self) -> int:
            raise AssertionError

        def encode(self, *_: Any, **__: Any) -> bytes:
            raise AssertionError

    transcript = Transcript({}, "/x/s", policy=OffloadPolicy(repeats=True))
    again = ToolMessage("c2", "look", Text(TEXT))
    assert transcript.seen_before(again) is None
    for item_id, message in (
        ("m1", UserMessage("go")),
        ("m2", asks("c1")),
        ("c1", ToolMessage("c1", "look", Text(TEXT))),
        ("m3", AssistantMessage("done")),
    ):
        transcript.enter(Entry(item=make_item(item_id, message)))
    assert transcript.seen_before(again) is None, "nobody asked for it"
    transcript.enter(Entry(item=make_item("m4", asks("c2"))))
    found = transcript.seen_before(again)
    assert found is not None
    assert found.id == "c1"
    transcript.keep_for_next("c1")
    transcript.keep_for_next("c1")
    assert "c1" in transcript.holds
    transcript.enter(Entry(item=make_item("m5", AssistantMessage("done"))))
    assert "c1" not in transcript.holds
    transcript.keep_for_next("another")
    assert "another" not in transcript.holds


async def test_in_an_agent(tmp_path: Path) -> None:
    @tool("Look")
    def look() -> str:
        return TEXT

    turns: list[Any] = [[ToolCall("look", {}, id=one)] for one in ("c1", "c2")]
    model = ScriptedModel([*turns, [ToolCall("Read", {"file_path": "c2"}, id="r1")], "done"])
    async with Agent(model, AgentConfig(tools=[look], offload_root_path=tmp_path, **TELLS)) as agent:
        await agent.query("go")
    last = [block for message in model.requests[3]["messages"] for block in message["content"] if "content" in block]
    assert last[0]["content"] == TEXT
    assert named(last[1]["content"]) == "c1"
    assert "411: a line of the file" in last[2]["content"]


# A history ------------------------------------------------------------------------------------------------------------


def history_of(*results: tuple[str, Content], **arguments: Any) -> list[Part]:
    """Calls, each with its result, by the id of the call; "": the framework has none."""
    parts = [Part("user", "go", "user")]
    for number, (call_id, text) in enumerate(results):
        parts.append(Part("call", arguments, f"call {number}", call_id, "look"))
        parts.append(Part("result", text, number, call_id, "look"))
    return parts


def rewritten(history: History, parts: Sequence[Part], **given: Any) -> dict[Any, Any]:
    edits = dict(history.rewrite(parts, **given))
    assert dict(history.rewrite(parts, **given)) == edits, "the same, when it is sent again"
    return edits


def test_in_a_history(tmp_path: Path) -> None:
    results: list[tuple[str, Content]] = [("c1", TEXT), ("c2", TEXT), ("c3", OTHER), ("c4", TEXT)]
    edits: dict[Any, Any] = {}
    with History("s", root_path=tmp_path, **TELLS) as history:
        for number in range(1, len(results) + 1):
            edits = rewritten(history, history_of(*results[:number]))
        assert {place: named(line) for place, line in edits.items()} == {1: "c1", 3: "c1"}
        path = LINE.fullmatch(edits[1])
        assert path is not None
        assert Path(path[2]).read_text() == TEXT
        assert "411: a line of the file" in history.run_tool("Read", {"file_path": path[2]}).text
    with History("s", root_path=tmp_path, **TELLS) as history:  # as another process would
        assert rewritten(history, history_of(*results)) == edits
        back = rewritten(history, history_of(*results[:1], ("c9", TEXT)))
        assert named(back[1]) == "c1", "it was rewound"
        assert rewritten(history, history_of(*results[1:3], ("c8", TEXT))) == {0: edits[1]}, "the first one is gone"


def test_a_diff_in_a_history(tmp_path: Path) -> None:
    results: list[tuple[str, Content]] = [("c1", TEXT), ("c2", CHANGED), ("c3", OTHER)]
    with History("s", root_path=tmp_path, **TELLS) as history:
        rewritten(history, history_of(*results[:1]))
        edits = rewritten(history, history_of(*results[:2]))
        assert {place: changed_since(text) for place, text in edits.items()} == {1: "c1"}
        assert rewritten(history, history_of(*results)) == edits
    with History("s", root_path=tmp_path, **TELLS) as history:  # as another process would
        assert rewritten(history, history_of(*results)) == edits


@pytest.mark.parametrize("pricing", [None, "auto"])
def test_what_a_line_names_is_whole_in_a_history_whichever_process_sends_the_request(
    pricing: Any, tmp_path: Path
) -> None:
    given = {**TELLS, "pricing": pricing, "root_path": tmp_path, "keep_recent": {"look": 1}}
    twice = history_of(("c1", TEXT), ("c2", TEXT))
    with History("s", **given) as one, History("s", **given) as other:
        for history in (one, other):
            assert rewritten(history, twice[:3]) == {}
        for history in (one, other, one):
            edits = rewritten(history, twice)
            assert list(edits) == [1]
            assert named(edits[1]) == "c1"
    with History("s", **given) as resumed:
        assert rewritten(resumed, twice) == edits
        kept = [*twice[:-1], twice[-1].with_content(edits[1])]
        assert rewritten(resumed, kept) == {}, "a framework may keep the line"
        assert list(rewritten(resumed, [*twice, Part("reply", "done", "r")])) == [1], "the newest one names it"
    more = history_of(("c1", TEXT), ("c2", TEXT), ("c3", OTHER))
    with History("s", **given) as resumed:
        assert list(rewritten(resumed, more)) == [0, 1]


def test_the_ids_of_a_history_are_those_of_the_request_and_what_is_stored_is_reserved(tmp_path: Path) -> None:
    async def stored(fs: ContextFileSystem) -> dict[str, Any]:
        return {item_id: await fs.load(item_id) for item_id in fs.state.stored}

    with History("s", root_path=tmp_path, **TELLS) as history:
        rewritten(history, history_of(("c1", TEXT), ("c2", TEXT)))
        assert history.read(stored) == {"c2": TEXT}
    with History("s", root_path=tmp_path, keep_recent={"look": 1}, **TELLS) as history:
        more = rewritten(history, history_of(("c1", TEXT), ("c2", TEXT), ("c1", OTHER), ("c5", TEXT)))
        assert named(more[1]) == "c1"
        assert 3 not in more, "two calls have the id, and the first result with it has left"


def test_in_a_history_a_result_is_told_only_where_a_line_says_what_is_so(tmp_path: Path) -> None:
    twice = history_of(("c1", TEXT), ("c2", TEXT))
    with History(root_path=tmp_path, **TELLS) as history:
        assert rewritten(history, history_of(("", TEXT), ("", TEXT))) == {}, "calls without an id"
        assert rewritten(history, [twice[0], twice[1], twice[3], twice[2], twice[4]]) == {}, "results of one reply"
        assert rewritten(history, [*twice[:3], Part("reply", "hm", "r"), twice[4]]) == {}, "a result without its call"
        assert rewritten(history, [*twice, Part("reply", "x", "r")]) == {}, "it was seen whole, so it stays"
        assert rewritten(history, twice, tools=["context_list"]) == {}
    with History(root_path=tmp_path, read_tool="context_read", **TELLS) as history:
        read = rewritten(history, twice, tools=["mcp__ctxfs__context_read"])
        assert read[1].endswith('To read it: mcp__ctxfs__context_read(ref="c2", offset=1)]')


def test_what_the_reader_of_a_host_reads_back_stays_whole_in_a_history(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, **TELLS) as history:
        results: list[tuple[str, Content]] = [("c1", TEXT), ("c2", TEXT)]
        path = LINE.fullmatch(rewritten(history, history_of(*results))[1])
        assert path is not None
        results.append(("c3", TEXT))
        assert list(rewritten(history, history_of(*results, path=path[2]))) == [1]


def test_a_mark_of_an_error_stays_beside_the_line(tmp_path: Path) -> None:
    """A framework marks an error beside the content, and that mark is sent as it is."""
    results: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": "c1", "content": TEXT},
        {"type": "tool_result", "tool_use_id": "c2", "content": TEXT, "is_error": True},
    ]
    messages: list[Any] = [{"role": "user", "content": "go"}]
    for one in results:
        call = {"type": "tool_use", "id": one["tool_use_id"], "name": "look", "input": {}}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [one]}]
    with History(root_path=tmp_path, **TELLS) as history:
        body = history.messages({"tools": [{"name": "Read", "input_schema": {}}], "messages": messages})
    last = body["messages"][-1]["content"][0]
    assert named(last["content"]) == "c1"
    assert last["is_error"] is True


# Properties -----------------------------------------------------------------------------------------------------------

TEXTS = [f"{n}\n" + "".join(f"{n}.{line} is what it says\n" for line in range(60)) for n in range(3)]
TEXTS += [TEXTS[0].replace("30 is", "30 was"), TEXTS[0].replace("0.7 is what it says\n", "")]
TOLD = re.compile(
    r"\[(?:The same as|Changed since) ([^\s,:]+)[,:] [^\n]*To read it(?: whole)?: "
    r'Read\(file_path="([^"]+)"\)\](?:\n(.*))?',
    re.DOTALL,
)
"""A line or a diff: the call that it names, the file, and the hunks."""
STEPS = st.lists(
    st.one_of(
        st.integers(0, len(TEXTS) - 1),
        st.sampled_from(["undo", "again", "restore", "other reader"]),
    ),
    max_size=14,
)


async def opened(given: dict[str, Any]) -> Context:
    context = Context("s", **given)
    await context.open()
    return context


async def _lines_can_be_read(context: Context, returned: dict[str, Content], first_seen: set[str]) -> None:
    sent = await context.messages()
    contents = {one.tool_call_id: one.content for one in sent if isinstance(one, ToolMessage)}
    for call_id, content in contents.items():
        found = TOLD.fullmatch(content) if isinstance(content, str) else None
        if found is None:
            continue
        assert patched(str(returned[found[1]]), found[3] or "") == returned[call_id]
        read = await read_tool(context.fs).run({"file_path": found[2]})
        assert all(line in read.text for line in str(returned[call_id]).splitlines())
        if call_id not in first_seen:
            assert contents[found[1]] == returned[found[1]], "whole, in the first request that has the line"
        first_seen.add(call_id)


EACH = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
NUMBERS = itertools.count()
"""Each example has a directory of its own."""


@EACH
@given(
    steps=STEPS,
    more=st.sampled_from([{}, {"keep_recent": {"look": 2}}, {"window": 4_000}, {"pricing": "auto"}]),
)
async def test_each_line_of_a_context_names_what_can_be_read(
    steps: list[int | str], more: dict[str, Any], tmp_path: Path
) -> None:
    given = {**TELLS, **more, "root_path": tmp_path / str(next(NUMBERS))}
    returned: dict[str, Content] = {}
    first_seen: set[str] = set()
    context = await opened(given)
    await context.add(UserMessage("go"))
    for number, step in enumerate(steps):
        if step == "again":
            await context.close()
            context = await opened(given)
        elif step == "undo":
            if any(item.offloaded for item in context.items) and "window" not in given:
                await context.undo()
        elif step == "restore":
            evicted = [item.id for item in context.items if item.destroyed]
            if evicted and "window" not in given:
                await context.restore(evicted[0])
        else:
            text = TEXTS[step] if isinstance(step, int) else TEXTS[0]
            arguments = {} if isinstance(step, int) else {"path": f"{context.fs.base}/tool_result/look/x.json"}
            returned[f"c{number}"] = text
            content = await sees(context, f"c{number}", text, **arguments)
            assert isinstance(step, int) or content == text
        await _lines_can_be_read(context, returned, first_seen)
    await context.close()


@EACH
@given(
    steps=st.lists(st.one_of(st.integers(0, len(TEXTS) - 1), st.sampled_from(["again", "rewind", "cut"])), max_size=14)
)
def test_each_line_of_a_history_names_what_can_be_read(steps: list[int | str], tmp_path: Path) -> None:
    results: list[tuple[str, Content]] = []
    returned: dict[str, Content] = {}
    first_seen: set[str] = set()
    given = {**TELLS, "keep_recent": {"look": 3}, "root_path": tmp_path / str(next(NUMBERS))}
    history = History("s", **given)
    for number, step in enumerate(steps):
        if step == "again":
            history.close()
            history = History("s", **given)
        elif step == "rewind":
            results = results[:-1]
        elif step == "cut":
            results = results[1:]
        elif isinstance(step, int):
            results.append((f"c{number}", TEXTS[step]))
            returned[f"c{number}"] = TEXTS[step]
        edits = rewritten(history, history_of(*results))
        for place, line in edits.items():
            found = TOLD.fullmatch(line)
            if found is None:
                continue
            call_id = results[place][0]
            assert patched(str(returned[found[1]]), found[3] or "") == returned[call_id]
            read = history.run_tool("Read", {"file_path": found[2]})
            assert all(one in read.text for one in str(returned[call_id]).splitlines())
            if call_id not in first_seen:
                shown = {one: edits.get(n, text) for n, (one, text) in enumerate(results)}
                assert shown[found[1]] == returned[found[1]], "whole, in the first request that has the line"
            first_seen.add(call_id)
    history.close()
