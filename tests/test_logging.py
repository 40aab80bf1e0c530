"""The log: one logger a room, a run's story at INFO, its reasons at DEBUG, and no content."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from ctxfs import Agent, AgentConfig, tool
from ctxfs.cli.app import run
from ctxfs.context import History, Part
from ctxfs.context.context import Context
from ctxfs.errors import StorageError, WriteFailed
from ctxfs.eviction.events import (
    Compacted,
    ContentRestored,
    ContextEvent,
    OffloadFailed,
    RecordFailed,
    SummaryFailed,
    story,
)
from ctxfs.messages import ToolCall
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.testing import MessagesServer, ScriptedModel

SOURCE = Path(__file__).resolve().parent.parent / "src" / "ctxfs"
NAMED = re.compile(r"logging\.getLogger\((.*?)\)")


def test_each_room_has_one_logger() -> None:
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).with_suffix("").parts[0]
        if room != "cli":  # which sets up where the log goes
            assert set(NAMED.findall(path.read_text())) <= {f'"ctxfs.{room}"'}, path


@tool("Read a chapter", ephemeral=1)
async def chapter(n: int) -> str:
    if n == 9:
        raise ValueError("there is no chapter 9")
    return f"Chapter {n}\n" + "It was a dark and stormy night.\n" * 400


@pytest.mark.anyio
async def test_a_run_is_told_at_info_and_explained_at_debug(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    turns: list[Any] = [[ToolCall("chapter", {"n": n})] for n in (1, 2, 9)]
    config = AgentConfig(tools=[chapter], offload_root_path=tmp_path, session_id="s1")
    with caplog.at_level(logging.DEBUG, "ctxfs"):
        async with Agent(ScriptedModel([*turns, "Stormy."]), config) as agent:
            await agent.query("How is the weather?")
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert told[0].startswith("session s1: opened with 0 items")
    for part in (
        "session s1: scripted read a prompt of",
        "call 'call_001' of the tool 'chapter' gave 12,810 characters",
        "of the tool 'chapter' gave an error of",
        "session s1: evicted call_001 (of 'chapter'): 3,6",
        "chapter keeps its last 1 (setting: keep_recent)",
    ):
        assert any(part in line for line in told), part
    why = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert any("planned: call_001: 3,6" in line for line in why)
    assert any("keeps" in line or "stays" in line for line in why)
    assert "stormy" not in caplog.text.lower()


@pytest.mark.anyio
async def test_what_is_evicted_for_room_is_explained(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[dict[str, Any]] = [{"type": "tool_use", "id": f"c{n}", "name": "t", "input": {}} for n in (1, 2)]
    async with Context(
        "s", root_path=tmp_path, model="", window=4_000, pricing=None, preview_above_tokens=None
    ) as context:
        await context.add(UserMessage("read"), AssistantMessage(tuple(calls)))
        with caplog.at_level(logging.DEBUG, "ctxfs.context"):
            await context.add(*(ToolMessage(call["id"], "t", "a line of the log\n" * 30_000) for call in calls))
            assert not any("planned: " in line for line in caplog.messages)
            await context.request()
    assert ["planned: c1: " in line for line in caplog.messages].count(True) == 1


def test_a_history_tells_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = "a line of the log\n" * 500
    parts = [Part("call", {}, 0, "c1", "t"), Part("result", content, 1, "c1", "t"), Part("reply", "ok", 2)]
    parts += [Part("call", {}, 3, "c2", "t"), Part("result", "short", 4, "c2", "t"), Part("reply", "ok", 5)]
    with caplog.at_level(logging.DEBUG, "ctxfs"), History("s", root_path=tmp_path, keep_recent={"t": 1}) as history:
        path = str(history.rewrite(parts)[1]).splitlines()[1].removeprefix("Path: ")
        history.run_tool("Read", {"file_path": path, "limit": 2})
    assert f"session s: stored c1: {len(content):,} bytes in {path}" in caplog.messages
    assert any(line.startswith("session s: evicted c1 (of 't'):") for line in caplog.messages)
    assert any(line.startswith("session s: planned: c1: ") for line in caplog.messages)
    assert any(line.startswith("session s: read back lines 1-2 of c1:") for line in caplog.messages)
    assert any(line.startswith("session s, branch '': 6 parts take") for line in caplog.messages)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            Compacted(tokens_before=9_000, tokens_after=3, steps=("types",)),
            "compacted the context: 9,000 -> 3 tokens, by t",
        ),
        (ContentRestored(item_id="a", tokens=5, reason="a\nb"), "restored a: 5 tokens; 'a\\nb'"),
        (SummaryFailed(reason="it is empty"), "there is no summary: it is empty"),
        (OffloadFailed(item_id="a", error=WriteFailed("p", "full")), "full"),
        (RecordFailed(item_ids=("a",), error=StorageError("full")), "full"),
    ],
)
def test_every_event_is_a_sentence(event: ContextEvent, said: str) -> None:
    assert said in story(event)


@pytest.mark.service
def test_the_command_line_logs_where_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = ["chat", "Hello?", "--root", str(tmp_path / "chat")]
    with MessagesServer([[ToolCall("list_dir", {"path": "."})], *["Hello."] * 3]) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        assert run(["-vv", *chat]) == 0
        debug = capsys.readouterr().err
        assert run(["-v", *chat]) == 0
        info = capsys.readouterr().err
        assert run(chat) == 0  # last: what is logged is set for the process
    assert "INFO    ctxfs.context: session session_" in debug
    assert "DEBUG   ctxfs.context: session session_" in debug
    assert "INFO    ctxfs.context: session session_" in info
    assert "DEBUG" not in info
    assert not re.search(r"INFO|DEBUG", capsys.readouterr().err)
