"""Images and documents: the model sees each one before it leaves, and again when it reads back what left."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.context import Context
from ctxfs.context.economics import Why
from ctxfs.context.economics_features import ToolClass
from ctxfs.context.economics_parameters import EvictionParameters
from ctxfs.context.economy import Economy
from ctxfs.context.fs import ContextFileSystem
from ctxfs.llm.messages import AssistantMessage, Block, Content, ToolMessage, UserMessage, has_media
from ctxfs.materialize import Materialize, Materializer
from ctxfs.testing import MemoryStore
from ctxfs.testing.strategies import pdf, png
from ctxfs.tokens import CharsCounter

pytestmark = pytest.mark.anyio

EAGER = EvictionParameters(
    needs_by_class=dict.fromkeys(ToolClass, 0.001), arrival_tokens=1, arrival_caution=0.0, caution=0.0, max_loss=100.0
)
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


def context_with(*, economy: Economy | None = None, **settings: Any) -> Context:
    fs = ContextFileSystem("s1", root_path="/memory", store=MemoryStore("s1"))
    return Context(fs=fs, economy=economy, counter=CharsCounter(), **settings)


def media_sent(request: Mapping[str, Any]) -> list[Block]:
    """The images and documents in a request, wherever they stand."""
    blocks = [b for m in request["messages"] for b in m["content"]]
    blocks += [b for block in blocks if isinstance(block.get("content"), list) for b in block["content"]]
    return [b for b in blocks if b["type"] in ("image", "document")]


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
    eviction=st.sampled_from(["auto", "exact", "economic"]),
    materialize=st.booleans(),
    new_prompts=st.booleans(),
)
async def test_every_image_that_a_tool_returned_stood_in_a_request(
    batches: list[list[Content]], eviction: str, materialize: bool, new_prompts: bool
) -> None:
    keep_recent = {} if eviction == "economic" else {"show": 1}
    economy = None if eviction == "exact" else Economy(parameters=EAGER, exact=keep_recent)
    arrival = Materializer(settings=Materialize(max_inline_chars=10)) if materialize else None
    async with context_with(economy=economy, keep_recent=keep_recent, arrival=arrival) as context:
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
    async with context_with(economy=Economy(parameters=EAGER)) as context:
        await context.add(UserMessage("go"), call(1), ToolMessage("c1", "show", (image(1_000),)))
        await context.request()
        assert [v.why for v in context.verdicts()] == [Why.NEW]
        await context.add(call(2), ToolMessage("c2", "show", "next"))
        assert media_sent(await context.request()) == []
        assert await context.fs.load("c1") == (image(1_000),)
