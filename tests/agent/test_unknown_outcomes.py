"""An agent whose store does not say whether it took a commit: nothing is charged or answered that is not durable."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from ctxfs import Agent, AgentConfig, Context, tool
from ctxfs.errors import OutcomeUnknown, SessionLocked, StorageError, Unrecorded
from ctxfs.messages import ToolCall
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import AssistantMessage
from ctxfs.session import ContextFileSystem
from ctxfs.session.records import CallMade, ItemAdded
from ctxfs.storage.sessions import SessionStores
from ctxfs.testing import ScriptedModel
from ctxfs.testing.scripted import Turn
from ctxfs.tools import running_call
from storage.silent_stores import PLACES, Line, place

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

QUERIES = 2
HOUR_S = 3_600
FIRST_WRITE = {"memory": 1, "a directory": 1, "a bucket": 3, "a leased bucket": 3}
"""That of an open session: those before it take it in a bucket."""


def _charging() -> list[Turn]:
    pairs: list[Turn] = []
    for number in range(QUERIES):
        pairs += [[ToolCall("charge", {"number": number})], f"charged {number}"]
    return pairs


class Shop:
    """An agent whose tool charges, and what was durable by the time that it did."""

    def __init__(
        self,
        stores: SessionStores,
        session_id: str = "s",
        *,
        line: Line | None = None,
        turns: Sequence[Turn] | None = None,
    ) -> None:
        self.stores = stores
        self._line = line or Line()
        self._id = session_id
        self.model = ScriptedModel(_charging() * 2 if turns is None else turns)
        self.wrong: list[str] = []
        self.charged: list[int] = []
        self.writes = 0

        @tool("Charge a card", ephemeral=1)
        async def charge(number: int) -> str:
            calls = [call.id for item in await self.stored() for call in _calls(item)]
            if (call_id := running_call().call_id) not in calls:
                self.wrong.append(f"charge {number} runs by {call_id}, and the session has {calls}")
            self.charged.append(number)
            return f"charged {number}\n" * 400

        config = AgentConfig(offload_root_path=stores, session_id=session_id, tools=[charge], pricing=None)
        self.agent = Agent(self.model, config)

    def requests(self) -> str:
        """What the model was sent, without the place of the session."""
        return json.dumps(self.model.requests).replace(self.agent.context.fs.base, "")

    async def stored(self) -> tuple[ContextItem, ...]:
        """What another machine finds."""
        with self._line.on_the_server():
            async with ContextFileSystem(self._id, root_path=self.stores, read_only=True) as fs:
                return await fs.items()

    async def query(self, text: str) -> bool:
        """Whether it was answered; the answer must be durable then."""
        try:
            answer = await self.agent.query(text)
        except StorageError:
            return False
        message = (await self.stored())[-1].message
        last = message.text if isinstance(message, AssistantMessage) else message.content
        if last != answer:
            self.wrong.append(f"{answer!r} was returned, and the session ends with {last!r}")
        return True

    async def close(self) -> None:
        await self.agent.close()
        async with ContextFileSystem(self._id, root_path=self.stores) as fs:
            records = await fs.history()
            if not fs.recovery.clean:
                self.wrong.append(f"not left clean: {fs.recovery}")
        added = [record.item.id for record in records if isinstance(record, ItemAdded)]
        bills = [record.number for record in records if isinstance(record, CallMade)]
        if len(added) != len(set(added)):
            self.wrong.append(f"recorded twice: {added}")
        if bills != list(range(1, len(bills) + 1)) or len(bills) != len(self.model.requests):
            self.wrong.append(f"{len(self.model.requests)} calls were made, and these are recorded: {bills}")
        held = [(item.id, item.message) for item in self.agent.context.items]
        async with Context(self._id, root_path=self.stores) as again:
            if [(item.id, item.message) for item in again.items] != held:
                self.wrong.append("the session does not hold what the agent had")


def _calls(item: ContextItem) -> Sequence[ToolCall]:
    return item.message.tool_calls if isinstance(item.message, AssistantMessage) else ()


async def _run(kind: str, line: Line, root: Path) -> tuple[Shop, int]:
    """Run all queries; one that failed is asked again, an hour later. Returns how many failed."""
    shop = Shop(place(kind, line, root), line=line)
    failed = 0
    for number in range(QUERIES):
        while not await shop.query(f"charge {number}"):
            failed += 1
            assert line.away
            assert not await shop.query("is the store still away?")
            line.is_back_after(HOUR_S)
    shop.writes = line.writes
    await shop.close()
    return shop, failed


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("fate", ["lost", "answer lost"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # each write once: the writes are the same
async def test_the_session_is_asked_once_and_the_call_goes_on_with_the_same_bytes(
    kind: str, fate: str, tmp_path: Path
) -> None:
    undisturbed, _ = await _run(kind, Line(), tmp_path / "0")
    for at in range(FIRST_WRITE[kind], undisturbed.writes + 1):
        shop, failed = await _run(kind, Line(at=at, fate=fate), tmp_path / str(at))  # type: ignore[arg-type]
        assert (at, shop.wrong, failed) == (at, [], 0)
        assert shop.requests() == undisturbed.requests()
        assert shop.charged == undisturbed.charged == [0, 1]


@pytest.mark.both_loops
@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("fate", ["lost", "answer lost"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # each write once: the writes are the same
async def test_a_store_that_stays_away_ends_the_query_and_the_next_one_goes_on(
    kind: str, fate: str, tmp_path: Path
) -> None:
    undisturbed, _ = await _run(kind, Line(), tmp_path / "0")
    failures = 0
    for at in range(FIRST_WRITE[kind], undisturbed.writes + 1):
        shop, failed = await _run(kind, Line(at=at, fate=fate, breaks=True), tmp_path / str(at))  # type: ignore[arg-type]
        assert (at, shop.wrong) == (at, [])
        failures += failed
    assert failures > QUERIES


async def _breaking(kind: str, line: Line, root: Path, turns: Sequence[Turn]) -> Shop:
    """An open session whose model answers by ``turns``."""
    shop = Shop(place(kind, line, root), line=line, turns=turns)
    await shop.agent.open()
    return shop


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("fate", ["lost", "answer lost"])
async def test_no_tool_that_changes_something_runs_whose_call_is_not_known_to_be_durable(
    kind: str, fate: Literal["lost", "answer lost"], tmp_path: Path
) -> None:
    """The store is away just when the call would be recorded; an hour later, the model calls once more."""
    line = Line()

    def call(_: object) -> Turn:
        line.break_next(fate)
        return [ToolCall("charge", {"number": 0})]

    shop = await _breaking(kind, line, tmp_path, [call, [ToolCall("charge", {"number": 1})], "charged"])
    for text in ("charge", "is the store still away?"):
        with pytest.raises(OutcomeUnknown):
            await shop.agent.query(text)
        assert (shop.charged, len(shop.model.requests)) == ([], 1)
    line.is_back_after(HOUR_S)
    assert await shop.query("charge again")
    assert shop.charged == [1]
    await shop.close()
    assert shop.wrong == []


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("fate", ["lost", "answer lost"])
async def test_no_answer_is_returned_that_is_not_known_to_be_durable(
    kind: str, fate: Literal["lost", "answer lost"], tmp_path: Path
) -> None:
    """The store is away just when the answer would be recorded; an hour later it is in the session, once."""
    line = Line()

    def answer(_: object) -> Turn:
        line.break_next(fate)
        return "yes"

    shop = await _breaking(kind, line, tmp_path, [answer, "as I said, yes"])
    with pytest.raises(OutcomeUnknown):
        await shop.agent.query("may I?")
    line.is_back_after(HOUR_S)
    assert await shop.query("well?")
    texts = [item.message.text for item in await shop.stored() if isinstance(item.message, AssistantMessage)]
    assert texts == ["yes", "as I said, yes"]
    await shop.close()
    assert shop.wrong == []


@pytest.mark.parametrize("kind", ["a bucket", "a leased bucket"])
@pytest.mark.parametrize("fate", ["lost", "answer lost"])
async def test_no_tool_runs_of_an_agent_whose_session_another_machine_took_over_in_that_hour(
    kind: str, fate: Literal["lost", "answer lost"], tmp_path: Path
) -> None:
    line = Line()

    def call(_: object) -> Turn:
        line.break_next(fate)
        return [ToolCall("charge", {"number": 0})]

    shop = await _breaking(kind, line, tmp_path, [call])
    with pytest.raises(OutcomeUnknown):
        await shop.agent.query("charge")
    line.is_back_after(HOUR_S)
    async with Context("s", root_path=shop.stores) as other:
        await other.answer_open_calls("interrupted")
        await other.add({"role": "user", "content": "from another machine"})
    for _ in range(2):
        with pytest.raises(SessionLocked):
            await shop.agent.query("charge again")
    assert (shop.charged, len(shop.model.requests)) == ([], 1)
    with pytest.raises(Unrecorded):
        await shop.agent.close()
    assert (await shop.stored())[-1].message.content == "from another machine"
