"""The proxy and the plug-in on sessions that are in no directory: taken up by another machine, and by two at a time."""

import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import uuid4

import anyio
import httpx2
import pytest
from mcp import Client, ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from ctxfs.adapters.serve.claude_code import HOOK, plugin_at
from ctxfs.adapters.serve.mcp import Server, reading_server
from ctxfs.adapters.serve.proxy import Proxy
from ctxfs.context.history.core import WAIT_ELSEWHERE_S
from ctxfs.errors import StorageError
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage import SessionStores, stores_at
from ctxfs.stores.answers import Terms
from ctxfs.testing import MessagesServer
from history.test_lost_leases import Disturbed, nothing, stopped_for_long
from mcp_client import client_of
from patience import HANGS_S
from serve.conversations import LOG, conversation
from serve.places import Machine, place
from serve.test_claude_code import LOG as OUTPUT
from serve.test_claude_code import event, said
from serve.test_proxy import KEEP, MODEL, run

__all__ = ["place"]


@pytest.fixture
def server() -> Iterator[MessagesServer]:
    with MessagesServer(["fine"] * 40) as server:
        yield server


def on(stores: SessionStores | str, server: MessagesServer, **settings: Any) -> Proxy:
    return Proxy(settings={**KEEP, **settings}, upstreams={"anthropic": server.url}, root_path=stores)


def ask(running: Proxy, logs: int, thread: str) -> None:
    """Send a conversation with so many tool calls."""
    url = f"{running.environment['ANTHROPIC_BASE_URL']}/v1/messages"
    body = {"model": MODEL, "max_tokens": 9, "messages": conversation(logs), "metadata": {"user_id": _user(thread)}}
    assert httpx2.post(url, headers={"x-api-key": "any"}, json=body, timeout=HANGS_S).status_code == 200


def _user(thread: str) -> str:
    return json.dumps({"session_id": thread})


def placeholders(body: Any) -> list[str]:
    shown = [message["content"][0]["content"] for message in body["messages"][2::2]]
    return [content for content in shown if content.startswith("[Content offloaded]")]


def test_another_machine_takes_the_thread_up_by_the_same_bytes(
    place: Machine, server: MessagesServer, tmp_path: Path
) -> None:
    thread = uuid4().hex
    with on(place(), server) as first:
        for logs in (2, 3):
            ask(first, logs, thread)
    with on(place(), server) as second:
        for logs in (3, 4):
            ask(second, logs, thread)
    sent = server.requests
    assert json.dumps(sent[2]) == json.dumps(sent[1]), "the provider's cache holds it"
    assert json.dumps(sent[3]["messages"][:4]) == json.dumps(sent[2]["messages"][:4])
    assert [len(placeholders(body)) for body in sent] == [1, 2, 2, 3]
    assert placeholders(sent[3])[0].startswith(
        f"[Content offloaded]\nPath: ctxfs://{thread}/tool_result/read_log/call_0.txt\nUse context_read tool"
    )
    assert str(tmp_path) not in json.dumps(sent)
    assert str(Path.home()) not in json.dumps(sent)
    assert (first.savings.problems, second.savings.problems) == ({}, {})
    assert (first.savings.heard, second.savings.heard) == (2, 2)


@pytest.mark.anyio
async def test_the_tools_of_an_mcp_server_read_what_the_proxy_stored(place: Machine, server: MessagesServer) -> None:
    thread = uuid4().hex

    def play() -> None:
        with on(place(), server) as running:
            ask(running, 3, thread)

    await anyio.to_thread.run_sync(play)
    path = f"ctxfs://{thread}/tool_result/read_log/call_1.txt"
    async with (
        ContextFileSystem(thread, root_path=place(), read_only=True) as fs,
        client_of(reading_server(fs)) as client,
    ):
        assert "log 1" in await said(client, "context_read", ref=path)
        assert "line 599 of the log" in await said(client, "context_grep", ref=path, pattern="line 599")
        assert await fs.load("call_1") == f"log 1\n{LOG}"


def test_two_proxies_serve_one_thread_in_turn(place: Machine, server: MessagesServer) -> None:
    thread = uuid4().hex
    with on(place(), server) as first, on(place(), server) as second:
        for running, logs in ((first, 2), (second, 2), (second, 3), (first, 3), (first, 4), (second, 4)):
            ask(running, logs, thread)
        assert (first.savings.problems, second.savings.problems) == ({}, {})
    for one, other in zip(server.requests[::2], server.requests[1::2], strict=True):
        assert json.dumps(one) == json.dumps(other)
    assert [len(placeholders(body)) for body in server.requests[::2]] == [1, 2, 3]


# What goes wrong -----------------------------------------------------------------------------------------------------


def test_a_proxy_that_was_taken_over_stores_nothing_and_its_request_goes_on(
    server: MessagesServer, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = Disturbed()
    with on(stopped_for_long(bucket), server) as stale, on(stopped_for_long(bucket), server) as other:
        ask(stale, 2, "t")
        # It has taken the session, and stops before it commits.
        bucket.before_writes = [nothing, lambda: ask(other, 3, "t")]
        with caplog.at_level(logging.WARNING, "ctxfs.context"):
            ask(stale, 3, "t")
        assert "session t is locked by a writer that took the session over meanwhile" in caplog.text
        ask(stale, 3, "t")
        assert stale.savings.problems == {}
    whole, fenced, after = server.requests[1:]
    assert [len(placeholders(body)) for body in (whole, fenced, after)] == [2, 1, 2]
    assert placeholders(fenced) == placeholders(whole)[:1], "what was known is sent as before"
    assert json.dumps(after) == json.dumps(whole)


def test_a_store_that_is_away_at_the_end_does_not_fail_the_program(
    server: MessagesServer, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = Disturbed()
    with (
        caplog.at_level(logging.WARNING, "ctxfs.adapters.serve"),
        on(stopped_for_long(bucket), server) as running,
    ):
        ask(running, 2, "t")
        ask(running, 2, "other")
        bucket.is_away = True
    assert "the server was not reached" in caplog.text


def test_a_store_that_is_not_reached_is_refused_before_anything_runs(server: MessagesServer) -> None:
    bucket = Disturbed()
    bucket.is_away = True
    with pytest.raises(StorageError, match="was not reached"), on(stopped_for_long(bucket), server):
        pass


def test_a_request_waits_longer_than_a_proxy_that_was_killed_holds_its_session(tmp_path: Path) -> None:
    assert Terms().ttl_s < WAIT_ELSEWHERE_S


class Meeting(dict[str, int]):
    """Settings; the threads that read them first wait for each other."""

    barrier: Barrier | None = None

    def items(self) -> Any:
        if self.barrier is not None:
            self.barrier.wait(HANGS_S)
            self.barrier = None
        return super().items()


def test_requests_that_come_together_have_one_history(tmp_path: Path, server: MessagesServer) -> None:
    settings = Meeting(read_log=1)
    with (
        Proxy(tmp_path, {**KEEP, "keep_recent": settings}, {"anthropic": server.url}) as running,
        ThreadPoolExecutor(4) as threads,
    ):
        settings.barrier = Barrier(4)
        list(threads.map(lambda _: ask(running, 2, "t"), range(4)))
    journal = (tmp_path / "t" / "journal.jsonl").read_text()
    assert journal.count(f'"model":"{MODEL}"') == 4, "the bill of each is recorded"


# Claude Code ---------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_plug_in_stores_and_reads_back_on_another_machine(place: Machine) -> None:
    conversation = uuid4().hex
    async with plugged(place()) as session:
        assert await said(session, "context_list") == "Nothing is stored yet in this conversation."
        assert await said(session, HOOK, session_id=conversation) == "{}"
        assert await said(session, "context_list") == "Nothing is stored yet in this conversation."
        assert conversation not in [one.session_id for one in await place().sessions()]
        answer = json.loads(await said(session, HOOK, **event({"stdout": OUTPUT}, conversation)))
        summary = answer["hookSpecificOutput"]["updatedToolOutput"]["stdout"]
        assert 'context_tail(ref="toolu_1", lines=200)' in summary
        assert str(Path.home()) not in summary
        assert "ERROR at last" in await said(session, "context_tail", ref="toolu_1", lines=5)
    async with plugged(place(), conversation) as session:
        assert "ERROR at last" in await said(session, "context_tail", ref="toolu_1", lines=5)
        again = json.loads(await said(session, HOOK, **event({"stdout": OUTPUT}, conversation)))
        assert again == answer


@asynccontextmanager
async def plugged(stores: SessionStores, session_id: str = "") -> AsyncIterator[Client]:
    """A client of the plug-in's server, as Claude Code starts it."""
    plugin = plugin_at(stores, session_id, preview_above_tokens=1_000)
    try:
        async with client_of(Server(plugin.tools, plugin.run)) as session:
            yield session
    finally:
        await anyio.to_thread.run_sync(plugin.histories.close)


@pytest.mark.anyio
async def test_the_user_is_told_that_the_store_is_away() -> None:
    bucket = Disturbed()
    async with plugged(stopped_for_long(bucket)) as session:
        await said(session, HOOK, **event(OUTPUT))
        bucket.is_away = True
        answer = json.loads(await said(session, HOOK, **event(OUTPUT + "more", tool_use_id="toolu_2")))
        assert list(answer) == ["systemMessage"]
        assert "the server was not reached" in answer["systemMessage"]
        bucket.is_away = False
        assert "updatedToolOutput" in await said(session, HOOK, **event(OUTPUT + "more", tool_use_id="toolu_2"))


# The commands --------------------------------------------------------------------------------------------------------

READS = """
import json, os, subprocess, sys, httpx2
from pathlib import Path
from threading import Barrier
ctxfs = [sys.executable, "-m", "ctxfs"]
subprocess.run([*ctxfs, "ls", "mine"], check=True, stdout=subprocess.DEVNULL)
body = json.loads(Path(sys.argv[1]).read_text())
httpx2.post(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", headers={"x-api-key": "any"}, json=body, timeout=None)
subprocess.run([*ctxfs, "cat", "mine", "call_0", "--lines", "1:2"], check=True)
"""


@pytest.mark.service
def test_the_program_behind_the_proxy_finds_its_session_by_the_environment(
    tmp_path: Path, server: MessagesServer
) -> None:
    (tmp_path / "bucket").mkdir()
    url = f"objects+{(tmp_path / 'bucket').as_uri()}"
    body = tmp_path / "body.json"
    named = {"user_id": _user("named by the request")}
    body.write_text(json.dumps({"model": MODEL, "max_tokens": 9, "messages": conversation(3), "metadata": named}))
    options = ("--store", url, "--session", "mine", "--keep-recent", "read_log=1")
    done = run(*options, "--", sys.executable, "-c", READS, str(body), ANTHROPIC_BASE_URL=server.url)
    out, err = done.communicate(timeout=HANGS_S)
    assert (done.returncode, out) == (0, "log 0\nline 0 of the log\n"), err
    assert "1 call, 1 with a bill; 2 contents replaced" in err
    again = run("--store", url, "--session", "last", "--", sys.executable, "-c", "print('it runs')")
    assert again.communicate(timeout=HANGS_S)[0] == "it runs\n"
    assert [one.session_id for one in anyio.run(stores_at(url).sessions)] == ["mine"]
    first, second = placeholders(server.requests[0])
    assert first.startswith(
        "[Content offloaded]\nPath: ctxfs://mine/tool_result/read_log/call_0.txt\nUse context_read tool"
    )
    assert "call_1.txt" in second


@pytest.mark.service
@pytest.mark.anyio
async def test_the_plug_in_is_started_by_its_environment(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    url = f"objects+{(tmp_path / 'bucket').as_uri()}"
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "ctxfs", "mcp", "--claude-code"],
        env={**os.environ, "CTXFS_STORE": url, "CTXFS_PREVIEW_ABOVE_TOKENS": "1000", "CLAUDE_CODE_SESSION_ID": "one"},
    )
    async with stdio_client(command) as (incoming, outgoing), ClientSession(incoming, outgoing) as session:
        await session.initialize()
        answer = await session.call_tool(HOOK, event({"stdout": OUTPUT}))
        assert "updatedToolOutput" in str(answer)
        read = await session.call_tool("context_tail", {"ref": "toolu_1", "lines": 3})
        assert "ERROR at last" in str(read)
    assert [found.session_id for found in await stores_at(url).sessions()] == ["one"]
