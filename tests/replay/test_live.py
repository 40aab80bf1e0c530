"""A recorded session run live costs what its replay says: the same evictions, and the same bill within 2 %.

Live means the real SDK against a real server on loopback that answers with the recorded turns and accounts a prompt
cache. The recording's strings are not looked for, so that no read-backs are charged: a recorded model makes none.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anthropic
import anyio
import anyio.to_thread
import pytest

from ctxfs.context import Context
from ctxfs.eviction import Evicted
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.lab.recordings.formats.table import load
from ctxfs.lab.replay.cost import Cost, replay_session
from ctxfs.lab.replay.economic import Economic
from ctxfs.lab.replay.session import Item, Session, Turn, prepare
from ctxfs.messages import CharsCounter
from ctxfs.messages.messages import AssistantMessage, SystemMessage
from ctxfs.messages.rates import ANTHROPIC_RATES
from ctxfs.testing import MessagesServer
from ctxfs.testing.history_conformance import pricing_on

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.service]

COUNTER = CharsCounter()
RATES = ANTHROPIC_RATES
PARAMETERS = EvictionParameters()
LARGEST_BYTES = 260_000


def unquotable(session: Session) -> Session:
    """The session without what a reply could have missed."""

    def bare(items: Sequence[Item]) -> tuple[Item, ...]:
        return tuple(replace(item, quotable=()) for item in items)

    return replace(session, turns=tuple(Turn(bare(t.added), bare(t.reply)) for t in session.turns), vocabulary={})


def replayed(path: Path, session_path: str) -> Cost:
    """The bill of a replay."""
    session = unquotable(prepare(load(path)[0], COUNTER.count))
    policy = Economic(
        name="economic", rates=RATES, count=COUNTER.count, parameters=PARAMETERS, session_path=session_path
    )
    return replay_session(session, policy, RATES)


async def run_live(messages: Sequence[dict[str, Any]], system: str | None, root: Path) -> tuple[float, int, str]:
    """The bill for the input, how many things left, and where the session lies."""
    evicted: set[str] = set()  # a placeholder that shrinks later is no second eviction
    billed = 0.0
    replies = [AssistantMessage(_blocks(m["content"])) for m in messages if m["role"] == "assistant"]
    context = Context(
        root_path=root,
        pricing=pricing_on(lambda: 0.0, parameters=PARAMETERS),
        counter=COUNTER,
        on_event=lambda event: evicted.add(event.item_id) if isinstance(event, Evicted) else None,
    )
    async with context, MessagesServer(replies, counter=COUNTER) as server:
        client = anthropic.AsyncAnthropic(base_url=server.url, api_key="test", max_retries=0)
        if system:
            await context.add(SystemMessage(system))
        for message in messages:
            if message["role"] == "user":
                await context.add(message)
                continue
            request = await context.request()
            reply = await client.messages.create(model="claude-test", max_tokens=1000, **request)
            usage = reply.usage
            billed += RATES.read * (usage.cache_read_input_tokens or 0)
            billed += RATES.write * ((usage.cache_creation_input_tokens or 0) + usage.input_tokens)
            await context.add(AssistantMessage(_blocks(message["content"])))
        await client.close()
    return billed, len(evicted), str(context.fs.session_path)


def _blocks(content: Any) -> tuple[dict[str, Any], ...]:
    return ({"type": "text", "text": content},) if isinstance(content, str) else tuple(content)


def recording(tmp_path: Path) -> Path:
    """A session of our own: reads, writes, and commands that print a lot."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "Mend the build."}]}]
    for n in range(100):
        name, arguments, result = [
            ("Read", {"file_path": f"src/module_{n}.py"}, "\n".join(f"line_{n}_{i} = value({i})" for i in range(100))),
            ("Bash", {"command": "make test"}, "\n".join(f"test_case_number_{n}_{i} ... ok" for i in range(80))),
            ("Write", {"file_path": f"src/new_{n}.py", "content": f"value_{n} = 1\n" * 150}, "written"),
        ][n % 3]
        call = {"type": "tool_use", "id": f"toolu_{n:03}", "name": name, "input": arguments}
        said = {"type": "text", "text": f"Step {n}."}
        messages.append({"role": "assistant", "content": [said, call]})
        answer = {"type": "tool_result", "tool_use_id": f"toolu_{n:03}", "content": result}
        messages.append({"role": "user", "content": [answer]})
    messages.append({"role": "assistant", "content": [{"type": "text", "text": "Done."}]})
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"id": "own", "model": "m", "system": "Be brief.", "messages": messages}))
    return path


async def compare(path: Path, root: Path, *, within: float = 0.02) -> Cost:
    document = json.loads(await anyio.Path(path).read_text())
    billed, evictions, session_path = await run_live(document["messages"], document.get("system"), root)
    expected = await anyio.to_thread.run_sync(replayed, path, session_path)
    assert evictions == expected.evictions
    assert billed == pytest.approx(expected.cost, rel=within)
    return expected


async def test_a_session_of_our_own(tmp_path: Path) -> None:
    # A hundred results leave unseen and shrink in batches: without a breakpoint where these begin it is 3 % more.
    cost = await compare(recording(tmp_path), tmp_path / "sessions", within=0.005)
    assert cost.evictions > 20
    assert cost.prefix_breaks > 0


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what is evicted depends on no event loop
async def test_recorded_sessions(tmp_path: Path, traces: list[Path]) -> None:
    # Thinking without a signature, as most of it was recorded, is not sent to a provider, but a replay counts it.
    small = [p for p in traces if p.stat().st_size < LARGEST_BYTES and '"type": "thinking"' not in p.read_text()]
    # A run of 20 calls, of which 14 evict, is 10 % above where no breakpoint stands behind a reply.
    assert sum([(await compare(path, tmp_path / path.stem)).evictions for path in small]) > 10
