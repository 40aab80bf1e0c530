"""Two web workers, one store of sessions: any worker serves any request, and is restarted in the middle of tool calls.

    pip install 'ctxfs[objects]' starlette uvicorn
    python examples/web_workers.py

ctxfs repeats no tool call: the model is told which call a restart interrupted, and checks before it calls again. The
tool gives the bank the call's idempotency key, so that a request that is sent twice is done once.
"""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from types import FrameType

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from ctxfs import Agent, AgentConfig, tool
from ctxfs.errors import SessionLocked
from ctxfs.messages import AssistantMessage, ToolCall, ToolMessage
from ctxfs.stores import ObjectSessions, open_bucket
from ctxfs.testing import ScriptedModel
from ctxfs.tools import Tool, running_call


def sessions(url: str) -> ObjectSessions:
    """Return the sessions in a bucket; with "s3://bucket/prefix" for ``url``, workers on any machine share them.

    After a kill a session is free ``ttl_s`` seconds after its last commit: 30 unless set, less here to save time.
    """
    return ObjectSessions(open_bucket(url), url=url, ttl_s=1)


# --- A worker: an agent for each request, in the session of the request's thread -------------------------------------


class Bank:
    """Charges cards, once for each idempotency key, as payment services do; ``ledger`` has a line for each charge."""

    def __init__(self, ledger: anyio.Path) -> None:
        self.ledger = ledger

    async def charges(self) -> list[tuple[int, str]]:
        """Return the orders that were charged, each with the key of its request."""
        lines = (await self.ledger.read_text()).splitlines() if await self.ledger.exists() else []
        return [(int(order), key) for order, _, key in (line.partition(" ") for line in lines)]

    async def charge(self, order: int, key: str) -> None:
        """Charge the card, unless a request with this key was done before."""
        if all(key != known for _, known in await self.charges()):
            async with await self.ledger.open("a") as lines:
                await lines.write(f"{order} {key}\n")


def payments(bank: Bank) -> list[Tool]:
    @tool("Charge the card of an order")
    async def charge(order: int) -> str:
        key = running_call().idempotency_key  # no other call of any session has it
        await bank.charge(order, key)
        if order >= 10:  # The card is charged, but the bank's answer is lost.
            print("charging", flush=True)
            await anyio.sleep_forever()
        await bank.charge(order, key)  # Asked again with the same key, as after a time-out, the bank charges nothing.
        return f"order {order} was charged"

    @tool("Look up whether an order was charged", read_only=True)
    async def find_charge(order: int) -> str:
        charged = order in [known for known, _ in await bank.charges()]
        return f"order {order} was {'charged' if charged else 'not charged'}"

    return [charge, find_charge]


def decide(body: dict[str, object]) -> str | Sequence[ToolCall]:
    """What the model does: charge what it is asked to; check before it repeats a call that was interrupted."""
    messages = body["messages"]
    assert isinstance(messages, list)
    last = json.dumps(messages[-1])
    found = re.search(r"order (\d+)", last)
    assert found
    order = int(found[1])
    if "interrupted before it had a result" in last:
        return [ToolCall("find_charge", {"order": order}, id=f"find_{order}")]
    if "was charged" in last:
        return f"Paid: {found[0]}."
    return [ToolCall("charge", {"order": order}, id=f"charge_{order}")]


class Worker(uvicorn.Server):
    """Cancels its requests when it is stopped, so that each agent closes its session: the next worker need not wait."""

    def __init__(self, url: str, ledger: str) -> None:
        app = Starlette(routes=[Route("/threads/{thread}", self.serve_thread, methods=["POST"])])
        super().__init__(uvicorn.Config(app, log_level="critical", lifespan="off"))
        self.stores = sessions(url)
        self.tools = payments(Bank(anyio.Path(ledger)))
        self.running: set[anyio.CancelScope] = set()

    async def serve_thread(self, request: Request) -> PlainTextResponse:
        """Send the request's text to the agent of its thread, and return the answer."""
        text = (await request.body()).decode()
        config = AgentConfig(offload_root_path=self.stores, session_id=request.path_params["thread"], tools=self.tools)
        with anyio.CancelScope() as scope:
            self.running.add(scope)
            try:
                async with Agent(ScriptedModel([decide] * 9), config) as agent:
                    return PlainTextResponse(await agent.query(text))
            except SessionLocked:
                return PlainTextResponse("another worker has this thread: try again", 409)
            finally:
                self.running.discard(scope)
        return PlainTextResponse("this worker stops: ask again", 503)

    async def run_until_stopped(self) -> None:
        """Print the port, and serve until a signal comes."""
        self.loop = asyncio.get_running_loop()
        listening = socket.create_server(("127.0.0.1", 0))
        print(listening.getsockname()[1], flush=True)
        await self.serve([listening])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Cancel the requests that run; the server then waits until they have answered."""
        for scope in self.running:
            self.loop.call_soon_threadsafe(scope.cancel)
        super().handle_exit(sig, frame)


# --- The front: sends each request to the next worker ----------------------------------------------------------------


class Process:
    """A worker's process."""

    def __init__(self, url: str, ledger: Path) -> None:
        command = [sys.executable, __file__, url, str(ledger)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self.line())

    def line(self) -> str:
        """Wait for the next line that the worker prints."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def stop(self, how: signal.Signals) -> None:
        """Send the signal, and wait until the process has ended."""
        with self.process:
            self.process.send_signal(how)

    def post(self, thread: str, text: str) -> tuple[int, str]:
        """Return the status and the text of the worker's answer; 502: it ended without one."""
        connection = HTTPConnection("127.0.0.1", self.port)
        try:
            connection.request("POST", f"/threads/{thread}", text)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except ConnectionError:
            return 502, "the worker is gone: ask again"
        finally:
            connection.close()


class Front:
    """Two workers, taken in turn; ``acknowledged`` has the questions and answers of each thread."""

    def __init__(self, url: str, ledger: Path) -> None:
        self.where = url, ledger
        self.workers = [Process(*self.where), Process(*self.where)]
        self.turns = count()
        self.acknowledged: dict[str, list[str]] = {}

    def ask(self, thread: str, text: str) -> int:
        """Ask the next worker, again while the session still belongs to one that was killed; return the status."""
        number = next(self.turns) % 2
        status, answer = self.workers[number].post(thread, text)
        while status == 409:
            time.sleep(0.1)
            status, answer = self.workers[number].post(thread, text)
        print(f"{thread}, worker {number + 1}: {text:22} {status} {answer}")
        if status == 200:
            self.acknowledged.setdefault(thread, []).extend([text, answer])
        return status

    def restart_during(self, thread: str, text: str, how: signal.Signals) -> int:
        """Restart the worker that is next, while a tool runs there for ``text``; return the status of that request."""
        number = (next(self.turns) + 1) % 2
        worker = self.workers[number]
        with ThreadPoolExecutor(1) as client:
            asked = client.submit(self.ask, thread, text)
            assert worker.line() == "charging"
            print(f"  {how.name} to worker {number + 1} while the tool runs")
            worker.stop(how)
            self.workers[number] = Process(*self.where)
            return asked.result()


# --- What happens ----------------------------------------------------------------------------------------------------


def rolling_restart(front: Front) -> None:
    for thread, order in (("ann", 1), ("ben", 2), ("ben", 3), ("ann", 4)):
        assert front.ask(thread, f"Charge order {order}") == 200
    assert front.restart_during("ann", "Charge order 10", signal.SIGTERM) == 503
    assert front.ask("ann", "Is order 10 paid?") == 200
    assert front.restart_during("ben", "Charge order 20", signal.SIGKILL) == 502
    assert front.ask("ben", "Is order 20 paid?") == 200
    assert front.ask("ann", "Charge order 5") == 200


async def check(url: str, thread: str, acknowledged: list[str]) -> None:
    """Read the session that the workers left."""
    async with Agent(ScriptedModel([]), AgentConfig(offload_root_path=sessions(url), session_id=thread)) as agent:
        messages = [item.message for item in agent.context.items]
    texts = iter([m.text if isinstance(m, AssistantMessage) else m.content for m in messages])
    assert all(text in texts for text in acknowledged), "what was answered is in the session, in its order"
    calls = [call.id for m in messages if isinstance(m, AssistantMessage) for call in m.tool_calls]
    results = [m for m in messages if isinstance(m, ToolMessage)]
    assert [result.tool_call_id for result in results] == calls, "each call has one result"
    assert len(set(calls)) == len(calls), "no call was run again"
    interrupted = [result.tool_call_id for result in results if result.is_error]
    assert len(interrupted) == 1, "the model was told of the call that was interrupted"
    print(f"{thread}: {len(messages)} items, calls {', '.join(calls)}")
    print(f"  the model was told that this one was interrupted: {interrupted[0]}")


def main() -> None:
    home = Path(tempfile.mkdtemp())
    (home / "bucket").mkdir()
    url, ledger = (home / "bucket").as_uri(), home / "ledger"
    front = Front(url, ledger)
    try:
        rolling_restart(front)
    finally:
        for worker in front.workers:
            worker.stop(signal.SIGTERM)
    for thread, acknowledged in front.acknowledged.items():
        asyncio.run(check(url, thread, acknowledged))
    charges = asyncio.run(Bank(anyio.Path(ledger)).charges())
    assert sorted(order for order, _ in charges) == [1, 2, 3, 4, 5, 10, 20], "each order was charged once"
    print("charged, each once, for the key of its call:")
    for order, key in charges:
        print(f"  order {order}: {key}")


if len(sys.argv) == 3:
    asyncio.run(Worker(*sys.argv[1:]).run_until_stopped())
else:
    main()
