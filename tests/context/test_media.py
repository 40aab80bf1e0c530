"""Images and documents: the model sees each one before it leaves, and again when it reads back what left."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.context import Context
from ctxfs.eviction.economics.economy import EvictionPricing
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.economics.plans import Why
from ctxfs.messages import CharsCounter
from ctxfs.messages.items import ContentRange
from ctxfs.messages.messages import AssistantMessage, Block, Content, ToolMessage, UserMessage, has_media
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage import MemoryStore
from ctxfs.testing.strategies import pdf, png
from ctxfs.tools import Materialize, Materializer, Tool, read_tool, retrieval_tools
from session_items import tool_result

pytestmark = [pytest.mark.anyio, pytest.mark.not_measured]

EAGER = EvictionParameters(read_back_weight=0.0, max_loss=100.0)
LOG = "".join(f"line {n} of the page\n" for n in range(600))
TEXT = {"type": "text", "text": LOG}


def image(width: int) -> Block:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png(width, 900)}}


def document(pages: int) -> Block:
    return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": pdf(pages)}}


def tool_use(number: int, tool: str = "show") -> Block:
    return {"type": "tool_use", "id": f"c{number}", "name": tool, "input": {}}


def call(number: int, tool: str = "show") -> AssistantMessage:
    return AssistantMessage((tool_use(number, tool),))


def context_with(*, economy: EvictionPricing | None = None, **settings: Any) -> Context:
    fs = ContextFileSystem("s1", root_path="/memory", store=MemoryStore("s1"))
    return Context(fs, pricing=economy, counter=CharsCounter(), **settings)


def media_sent(request: Mapping[str, Any]) -> list[Block]:
    """The images and documents in a request, wherever they stand."""
    blocks = [b for m in request["messages"] for b in m["content"]]
    blocks += [b for block in blocks if isinstance(block.get("content"), list) for b in block["content"]]
    return [b for b in blocks if b["type"] in ("image", "document")]


def page_text(content: Content) -> str:
    """The text of a page that brings media."""
    assert isinstance(content, tuple)
    return str(content[0]["text"])


def test_images_and_documents_are_media_and_nothing_else_is() -> None:
    assert has_media((TEXT, image(9)))
    assert has_media((document(1),))
    assert not has_media((TEXT, {"type": "search_result", "content": []}, {"no": "type"}))
    assert not has_media(LOG)


RESULTS: st.SearchStrategy[Content] = st.one_of(
    st.just(LOG),
    st.lists(
        st.one_of(st.just(TEXT), st.integers(1, 1_500).map(image), st.integers(1, 5).map(document)),
        min_size=1,
        max_size=3,
    ).map(tuple),
)


@given(
    batches=st.lists(st.lists(RESULTS, min_size=1, max_size=3), min_size=1, max_size=4),
    eviction=st.sampled_from(["both", "exact", "economic"]),
    materialize=st.booleans(),
    new_prompts=st.booleans(),
)
async def test_every_image_that_a_tool_returned_stood_in_a_request(
    batches: list[list[Content]], eviction: str, materialize: bool, new_prompts: bool
) -> None:
    keep_recent = {} if eviction == "economic" else {"show": 1}
    economy = None if eviction == "exact" else EvictionPricing(parameters=EAGER)
    eager = Materializer(settings=Materialize(max_inline_chars=10)) if materialize else None
    async with context_with(economy=economy, keep_recent=keep_recent, eager=eager) as context:
        await context.add(UserMessage("go"))
        number = 0
        for batch in batches:
            tools = [("show", "look")[n % 2] for n in range(len(batch))]
            await context.add(AssistantMessage(tuple(tool_use(number + n, tool) for n, tool in enumerate(tools))))
            answers = zip(tools, batch, strict=True)
            await context.add(*(ToolMessage(f"c{number + n}", tool, c) for n, (tool, c) in enumerate(answers)))
            number += len(batch)
            if new_prompts:
                await context.set_system_prompt(f"prompt {number}")  # the context is rewritten in the middle
            sent = media_sent(await context.request())
            for content in batch:
                assert [b for b in content if isinstance(b, dict) and b["type"] != "text" and b not in sent] == []
        await context.add(AssistantMessage("done"))


async def test_an_image_may_leave_once_it_was_seen_and_until_then_the_planner_says_so() -> None:
    async with context_with(economy=EvictionPricing(parameters=EAGER)) as context:
        await context.add(UserMessage("go"), call(1), ToolMessage("c1", "show", (image(1_000),)))
        await context.request()
        assert [v.why for v in context.decisions()] == [Why.NEW]
        await context.add(call(2), ToolMessage("c2", "show", "next"))
        assert media_sent(await context.request()) == []
        assert await context.fs.load("c1") == (image(1_000),)


# Seen again -----------------------------------------------------------------------------------------------------------


async def stored(fs: ContextFileSystem, content: Content) -> str:
    return await fs.offload(tool_result(fs, content, tool="show"))


@pytest.fixture
async def fs() -> AsyncIterator[ContextFileSystem]:
    async with ContextFileSystem("s1", root_path="/memory", store=MemoryStore("s1")) as opened:
        yield opened


def readers(fs: ContextFileSystem, max_tokens: int) -> list[tuple[Tool, str]]:
    """The tools that read a page, each with the name of its argument for what to read."""
    settings: dict[str, Any] = {"max_tokens": max_tokens, "counter": CharsCounter()}
    return [(read_tool(fs, **settings), "file_path"), (retrieval_tools(fs, **settings)[0], "ref")]


async def test_a_page_brings_the_images_and_documents_on_its_lines(fs: ContextFileSystem) -> None:
    first, second, third = image(10), document(2), image(20)
    path = await stored(fs, ({"type": "text", "text": "a\nb\n"}, first, second, {"type": "text", "text": "c"}, third))
    for tool, name in readers(fs, 8_000):
        page = (await tool.run({name: path})).content
        assert page[0] == {"type": "text", "text": page_text(page)}
        assert page_text(page).startswith("1\ta\n2\tb\n3\t\n4\t[image: image/png, ")
        assert page[1:] == (first, second, third)
        assert (await tool.run({name: path, "limit": 3})).content == "1\ta\n2\tb\n3\t\n[lines 1-3 of 7; next: offset=4]"
        assert (await tool.run({name: path, "offset": 4, "limit": 1})).content[1:] == (first,)
        assert (await tool.run({name: path, "offset": 5, "limit": 2})).content[1:] == (second,)
        assert (await tool.run({name: path, "offset": 7})).content[1:] == (third,)
        assert (await tool.run({name: path, "offset": 4, "char_offset": 1})).content[1:] == (first,)
        assert (await tool.run({name: path, "offset": 6})).source == ContentRange(
            item_id="call_1", path=path, first_line=6, last_line=7
        )


async def test_what_has_no_room_beside_the_page_says_how_to_see_it(fs: ContextFileSystem) -> None:
    large = [image(900 + n) for n in range(7)]  # about 1,100 tokens each
    path = await stored(fs, (*large, document(100)))
    for tool, name in readers(fs, 2_400):
        page = (await tool.run({name: path})).content
        assert page[1:] == (large[0], large[1])
        assert page_text(page).endswith(
            "\n[not shown with this page: line 3: offset=3; line 4: offset=4; "
            "line 5: offset=5; line 6: offset=6; line 7: offset=7; and 1 more]"
        )
        for number, block in enumerate(large, 1):
            assert (await tool.run({name: path, "offset": number})).content[1] == block
        page = (await tool.run({name: path, "offset": 8})).content
        assert page[1:] == ()
        assert page_text(page).endswith("\n[not shown with this page: line 8: 240,000 tokens are too many to be shown]")


async def test_small_ones_are_bounded_too(fs: ContextFileSystem) -> None:
    path = await stored(fs, tuple(image(1) for _ in range(30)))
    for tool, name in readers(fs, 4_000):
        assert len((await tool.run({name: path})).content) == 1 + 20


@given(
    blocks=st.lists(
        st.one_of(
            st.text("ab\n", max_size=8).map(lambda text: {"type": "text", "text": text}),
            st.integers(1, 99).map(image),
            st.just({"type": "search_result", "title": "x"}),
        ),
        max_size=8,
    ),
    limit=st.integers(1, 4),
)
async def test_following_the_pages_shows_every_image_once_and_in_order(blocks: list[Block], limit: int) -> None:
    async with ContextFileSystem("s1", root_path="/memory", store=MemoryStore("s1")) as fs:
        path = await stored(fs, tuple(blocks))
        lines = fs.state.stored["call_1"].lines
        for tool, name in readers(fs, 8_000):
            pages = [(await tool.run({name: path, "offset": n, "limit": limit})) for n in range(1, lines + 1, limit)]
            shown = [b for page in pages if not isinstance(page.content, str) for b in page.content[1:]]
            assert shown == [b for b in blocks if b["type"] == "image"]


async def test_an_image_that_was_read_back_leaves_for_the_lines_it_came_from_and_survives_a_restart() -> None:
    store = MemoryStore("s1")
    shot = image(1_000)
    shot["source"]["data"] += "A" * 40_000  # too much for the journal

    def context(disk: MemoryStore) -> Context:
        opened = ContextFileSystem("s1", root_path="/memory", store=disk)
        return Context(opened, keep_recent={"show": 1, "Read": 1}, counter=CharsCounter())

    async with context(store) as first:
        await first.add(UserMessage("go"), call(1), ToolMessage("c1", "show", (TEXT, shot)))
        await first.add(call(2), ToolMessage("c2", "show", "next"), call(3, "Read"))
        path = str(first.fs.session_path / "tool_result/show/c1.json.zst")
        await first.evict()
        page = await read_tool(first.fs, counter=CharsCounter()).run({"file_path": path, "offset": 601})
        assert page.source is not None
        await first.add(ToolMessage("c3", "Read", page.content), sources={"c3": page.source})
        assert media_sent(await first.request()) == [shot]
    async with context(store.peer()) as second:
        assert media_sent(await second.request()) == [shot]
        files = second.fs.state.stored.keys()
        assert files == {"c1", "c3"}
        await second.add(call(4, "Read"), ToolMessage("c4", "Read", "y"), call(5), ToolMessage("c5", "show", "z"))
        request = await second.request()
        assert media_sent(request) == []
        assert f"Path: {path}\nUse Read tool to view details.\nLines 601-602 of it were here" in str(request).replace(
            "\\n", "\n"
        )
        assert second.fs.state.stored.keys() - files == set()
