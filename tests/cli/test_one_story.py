"""What evictions did to a session is told alike wherever it is told: `explain`, `sessions` and the page."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs.cli.app import run
from ctxfs.context.context import Context
from ctxfs.eviction.window import Window
from ctxfs.messages import CharsCounter
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.storage import LocalSessions
from ctxfs.view.session_page import SessionPage
from ctxfs.view.sources import OpenSession

RESULTS = 6
TOOLS = 700
"""The tokens of the definitions of tools, in each request."""
Command = Callable[..., str]


async def filled(root: Path, window: int) -> None:
    """Six results of 3,600 characters, of which the last one stays."""
    limits = Window(window_tokens=window, reply_tokens=0)
    async with Context(
        "s", root_path=root, keep_recent={"log": 1}, window=limits, pricing=None, counter=CharsCounter()
    ) as context:
        context.overhead_tokens = TOOLS
        await context.add(UserMessage("go"))
        for n in range(RESULTS):
            await context.messages()
            call = {"type": "tool_use", "id": f"c{n}", "name": "log", "input": {"n": n}}
            reply = AssistantMessage((call,))
            usage = Usage(input_tokens=900, output_tokens=20)
            await context.add(reply, ToolMessage(f"c{n}", "log", "a line of the log\n" * 200), usage=usage, model="m")
        await context.messages()
        await context.add(AssistantMessage("done"))


@pytest.fixture
def ctxfs(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Command:
    def command(*arguments: str) -> str:
        assert run([*arguments, "--root", str(tmp_path)]) == 0
        return capsysbinary.readouterr().out.decode()

    return command


async def page_of(root: Path) -> SessionPage:
    opened = await OpenSession(LocalSessions(root), "s").open()
    try:
        return await SessionPage.of(opened)
    finally:
        await opened.close()


@pytest.mark.parametrize("window", [100_000, 1_500])
def test_evictions_are_told_alike(ctxfs: Command, tmp_path: Path, window: int) -> None:
    anyio.run(filled, tmp_path, window)
    explained: dict[str, Any] = json.loads(ctxfs("explain", "s", "--json"))["effect"]
    (listed,) = json.loads(ctxfs("sessions", "--json"))
    page = anyio.run(page_of, tmp_path)
    assert page.effect is not None
    assert explained["evictions"] == page.effect.evictions == len(page.activity.account.departures)
    assert explained["tokens_freed"] == page.effect.tokens_freed == page.freed
    assert listed["saved_tokens"] == round(explained["net"]) == round(page.effect.net)
    assert listed["too_long_from"] == explained["too_long_from"] == page.effect.too_long_from
    assert page.unevicted.too_long_from == page.effect.too_long_from


def test_sizes_are_told_alike(ctxfs: Command, tmp_path: Path) -> None:
    anyio.run(filled, tmp_path, 100_000)
    explained = json.loads(ctxfs("explain", "s", "--json"))
    (listed,) = json.loads(ctxfs("sessions", "--json"))
    page = anyio.run(page_of, tmp_path)
    assert explained["context_tokens"] == listed["context_tokens"]
    assert explained["request_tokens"] == page.tokens == listed["context_tokens"] + TOOLS
    assert explained["content_tokens"] == listed["content_tokens"] == page.unevicted_tokens
    said = ctxfs("explain", "s")
    assert f"(with tools, a request has {page.tokens:,})" in said
    assert f", {page.tokens / (page.window_tokens or 0):.0%} of the" in said
    assert f"without ctxfs, the context would hold {page.unevicted_tokens:,}" in said
    assert f"without ctxfs, it would hold {page.unevicted_tokens:,}" in ctxfs("ls", "s")


def test_each_eviction_counts_once(ctxfs: Command, tmp_path: Path) -> None:
    anyio.run(filled, tmp_path, 100_000)
    assert json.loads(ctxfs("explain", "s", "--json"))["effect"]["evictions"] == RESULTS - 1
    assert "would not have fitted" not in ctxfs("explain", "s") + ctxfs("sessions")


def test_a_session_that_needed_eviction_says_so_instead_of_a_saving(ctxfs: Command, tmp_path: Path) -> None:
    anyio.run(filled, tmp_path, 1_500)
    effect = json.loads(ctxfs("explain", "s", "--json"))["effect"]
    first = effect["too_long_from"]
    assert 1 < first <= RESULTS
    assert f"without ctxfs, the session would not have fitted its window from call {first} on" in ctxfs("explain", "s")
    listed = ctxfs("sessions")
    assert f"all from {first}" in listed
    assert "the context would not have fitted its window from call N on" in listed
