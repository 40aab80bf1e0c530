"""An error that a model reads names what it can do with its tools: no commands, and no calls of this library."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from ctxfs.errors import (
    ContentGone,
    CorruptContent,
    CorruptJournal,
    CtxfsError,
    MissingExtra,
    NotStored,
    OutcomeUnknown,
    SessionClosed,
    SessionLocked,
    StorageError,
    UnknownCall,
    UnknownItem,
    WriteFailed,
)
from ctxfs.session import ContextFileSystem
from ctxfs.tools import Tool, ToolResultOffload, read_tool, recall_tools, retrieval_tools
from ctxfs.tools.base import told
from session_items import tool_result

FOR_DEVELOPERS = re.compile(r"`|ctxfs |async with|open\(|close|pip install|--\w|backup|export")


@pytest.mark.parametrize(
    "error",
    [
        UnknownItem("call_9"),
        NotStored("tool_result/run/call_1.json"),
        CorruptContent("tool_result/run/call_1.json", "its checksum differs"),
        ContentGone("call_1", "removed on 2026-11-24 by prune (nothing needs it); it held 9 bytes"),
        CorruptJournal("s", "is gone: open the session for writing once to rebuild it"),
        SessionLocked("s", "process 7"),
        SessionClosed("session s is not open: use `async with`, or await open()"),
        OutcomeUnknown("a commit", "no answer in 10 s"),
        WriteFailed("call_1", "no space left on device"),
        UnknownCall(9, 3),
        MissingExtra("openai", "openai"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_error_that_a_tool_can_meet_speaks_to_a_developer(error: CtxfsError) -> None:
    assert not FOR_DEVELOPERS.search(told(error).replace("this session is closed", ""))


def test_what_a_model_does_not_read_of_a_store_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    told(UnknownItem("call_9"))
    assert not caplog.records
    told(NotStored("a"))
    assert "`ctxfs check` lists everything missing" in caplog.text
    plain = StorageError("as it is")
    assert told(plain) == "as it is"
    assert told(ValueError("x")) == "x"


Tools = Callable[[ContextFileSystem], Iterable[Tool]]

READERS: list[tuple[Tools, str, dict[str, object], str]] = [
    (retrieval_tools, "context_read", {"ref": "call_9"}, "context_list"),
    (retrieval_tools, "context_tail", {"ref": "call_9"}, "context_list"),
    (retrieval_tools, "context_grep", {"ref": "call_9", "pattern": "x"}, "context_list"),
    (recall_tools, "history_read", {"item": "call_9"}, "history_search"),
    (recall_tools, "history_search", {"query": "x", "item": "call_9"}, "history_search"),
    (ToolResultOffload().tools, "get_knowledge_by_id", {"artifact_id": "call_9"}, "query_artifacts"),
    (
        ToolResultOffload().tools,
        "get_knowledge_by_lines",
        {"artifact_id": "call_9", "start_line": 1, "end_line": 2},
        "query_artifacts",
    ),
    (ToolResultOffload().tools, "grep_knowledge", {"artifact_id": "call_9", "pattern": "x"}, "query_artifacts"),
]


async def answer(fs: ContextFileSystem, make: Tools, name: str, arguments: dict[str, object]) -> str:
    (tool,) = [tool for tool in make(fs) if tool.name == name]
    result = await tool.run(arguments)
    assert result.is_error
    return result.text


@pytest.mark.anyio
@pytest.mark.parametrize(("make", "name", "arguments", "shows_ids"), READERS, ids=[row[1] for row in READERS])
async def test_an_unknown_id_is_answered_with_the_tool_that_shows_ids(
    make: Tools, name: str, arguments: dict[str, object], shows_ids: str, tmp_path: Path
) -> None:
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        said = await answer(fs, make, name, arguments)
    assert said == (
        "no item 'call_9' in this session: use an id or a path that a placeholder names, or an id that "
        f"{shows_ids} shows"
    )


@pytest.mark.anyio
@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"\0" * path.stat().st_size)])
async def test_a_content_that_is_missing_or_damaged_is_to_be_fetched_again(
    harm: Callable[[Path], object], tmp_path: Path
) -> None:
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        path = await fs.offload(tool_result(fs, "x\n" * 2_000, "call_1", "Bash"))
        harm(Path(path))

        def reads(session: ContextFileSystem) -> Iterable[Tool]:
            return (read_tool(session), *retrieval_tools(session))

        for name, arguments in (("Read", {"file_path": path}), ("context_read", {"ref": "call_1"})):
            said = await answer(fs, reads, name, dict(arguments))
            assert re.match(r"The stored content cannot be read: its file \S+ is (missing|damaged)", said)
            assert said.endswith(". Call the tool that gave it again only if it changes nothing.")
            assert not FOR_DEVELOPERS.search(said)
