"""The definitions of tools that a loop of your own gives a context."""

import logging
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs import Context, ContextFileSystem
from ctxfs.context.settings import Readers, readers_in
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.messages.names import TEXT
from ctxfs.tools.base import Tool
from ctxfs.tools.read import read_tool
from ctxfs.tools.retrieval import retrieval_tools


@pytest.mark.parametrize(
    ("tools", "is_told"),
    [
        ([{"name": "log"}, {"name": "Read"}], False),
        ([{"type": "function", "function": {"name": "Read"}}], False),
        ([{"type": "web_search"}], False),
        ([], False),
        ([{"name": "log"}], True),
        ([{"type": "function", "function": {"name": "log"}}], True),
        ([{"functionDeclarations": [{"name": "log"}, {"name": "Read"}]}], False),
    ],
)
def test_tools_that_cannot_open_placeholders_are_warned_of(
    tmp_path: Path, tools: list[dict[str, Any]], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    context = Context("one", root_path=tmp_path)
    with caplog.at_level(logging.WARNING, "ctxfs.context"):
        context.tools = tools
    assert ("none is named 'Read'" in caplog.text) is is_told
    assert context.tools == tuple(tools)


def definition_of(made: Tool, form: str) -> dict[str, Any]:
    schema = dict(made.input_schema)
    if form == "chat":
        return {"type": "function", "function": {"name": made.name, "description": made.description}}
    if form == "gemini":
        return {"functionDeclarations": [{"name": made.name, "description": made.description}]}
    return {"name": made.name, "description": made.description, "input_schema": schema}


@pytest.mark.parametrize("form", ["messages", "chat", "gemini"])
def test_the_tools_of_ctxfs_are_known_by_what_they_are(tmp_path: Path, form: str) -> None:
    fs = ContextFileSystem("one", root_path=tmp_path)
    ours = [definition_of(made, form) for made in (read_tool(fs), *retrieval_tools(fs))]
    assert readers_in(ours) == Readers(
        names=("context_tail", "context_grep", "context_read", "context_list", "Read"), reader="Read", is_ours=True
    )
    assert readers_in(ours).why_not(has_files=False, compresses=True) is None


def test_a_tool_of_the_users_is_not_ours_because_of_its_name() -> None:
    theirs = [{"name": name, "description": "of the user's"} for name in ("Read", "context_tail", "log")]
    found = readers_in(theirs)
    assert found == Readers(names=("Read",), reader="Read", is_ours=False)
    assert found.why_not(has_files=True, compresses=False) is None
    assert "in no directory" in str(found.why_not(has_files=False, compresses=False))
    assert "compressed" in str(found.why_not(has_files=True, compresses=True))
    none = readers_in([{"name": "log"}, "no definition", {"type": "web_search"}])  # type: ignore[list-item]
    assert none == Readers(names=(), reader=None, is_ours=True)
    assert "none is named 'Read'" in str(none.why_not(has_files=True, compresses=False))


def test_a_read_of_the_users_that_cannot_open_what_is_compressed_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once the session is open: an existing one keeps its layout."""

    async def use(fs: ContextFileSystem) -> None:
        context = Context(fs)
        context.tools = [{"name": "Read"}]
        async with context:
            pass

    anyio.run(use, ContextFileSystem("text", root_path=tmp_path, layout=TEXT))
    assert caplog.text == ""
    anyio.run(use, ContextFileSystem("envelope", root_path=tmp_path))
    assert "is not the one of ctxfs, and large contents are compressed" in caplog.text


def test_what_leaves_for_a_full_window_that_no_tool_opens_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its placeholder names the file, and no tool that is not there."""

    async def use() -> str:
        async with Context("one", root_path=tmp_path, window=6_000) as context:
            context.tools = [{"name": "log"}]
            for n in range(4):
                call = {"type": "tool_use", "id": f"c{n}", "name": "log", "input": {}}
                text = f"row {n} of a log\n" * 500
                await context.add(UserMessage("go"), AssistantMessage((call,)), ToolMessage(f"c{n}", "log", text))
                await context.add(AssistantMessage("done"))
            await context.add(UserMessage("and?"))
            return str(await context.messages())

    sent = anyio.run(use)
    assert "If you have a tool that opens files, it shows the details." in sent
    assert "Use Read tool" not in sent
    assert caplog.text.count("the window is full") == 2, "once as a promise, once when it happens"
