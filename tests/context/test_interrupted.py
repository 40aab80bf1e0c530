"""An interrupt or a take-over during a commit: what was acknowledged is there, and nothing is there twice."""

import asyncio
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from ctxfs import Agent, AgentConfig, Context, tool
from ctxfs.context.transcript import Transcript
from ctxfs.errors import OutcomeUnknown, SessionLocked, Unrecorded
from ctxfs.messages import ToolCall
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.session import ContextFileSystem
from ctxfs.session.records import ItemAdded
from ctxfs.session.state import SessionState
from ctxfs.storage.sessions import SessionStores
from ctxfs.testing import ScriptedModel
from ctxfs.testing.scripted import Turn
from storage.silent_stores import Line, place

ROUNDS = 2  # in the second one something is evicted; each more is the same again, and takes its square


async def _use(context: Context, acknowledged: list[str]) -> None:
    async with context:
        try:
            for number in range(ROUNDS):
                call = {"type": "tool_use", "id": f"c{number}", "name": "log", "input": {}}
                result = ToolMessage(f"c{number}", "log", f"row {number}\n" * 500)
                reply = AssistantMessage((call,))
                items = await context.add(UserMessage("go"), reply, result, AssistantMessage("done"))
                acknowledged += [item.id for item in items]
                await context.messages()
        finally:
            (last,) = await context.add(UserMessage("stopped here"))
            acknowledged.append(last.id)


async def _wrong(stores: SessionStores, context: Context, acknowledged: list[str]) -> list[str]:
    async with ContextFileSystem("s", root_path=stores) as fs:
        added = [record.item.id for record in await fs.history() if isinstance(record, ItemAdded)]
        wrong = list(fs.recovery.damage_lines)
    wrong += [f"{item_id} was acknowledged and is not there" for item_id in acknowledged if item_id not in added]
    if sorted(added) != sorted(set(added)):
        wrong.append(f"recorded twice: {added}")
    async with Context("s", root_path=stores, keep_recent={"log": 1}) as again:
        held = [(item.id, item.message) for item in context.items]
        if [(item.id, item.message) for item in again.items] != held:
            wrong.append("the session does not hold what the context had")
    return wrong


@pytest.mark.not_measured
@pytest.mark.parametrize("kind", ["memory", "a directory"])
@pytest.mark.parametrize("fate", ["lost", "answer lost"])
def test_an_interrupt_at_any_commit(kind: str, fate: str, tmp_path: Path) -> None:
    """The second Ctrl-C is raised wherever Python code runs, and the loop cancels what is left over."""
    for at in range(1, 100):
        line = Line(at=at, fate=fate, interrupt=True)  # type: ignore[arg-type]
        stores = place(kind, line, tmp_path / str(at))
        context = Context("s", root_path=stores, keep_recent={"log": 1})
        acknowledged: list[str] = []
        with suppress(KeyboardInterrupt):
            asyncio.run(_use(context, acknowledged))
        was_interrupted = line.writes >= at
        line.at = 0
        assert (at, asyncio.run(_wrong(stores, context, acknowledged))) == (at, [])
        if not was_interrupted:
            break
    assert at > ROUNDS
    assert not was_interrupted, "no commit is left out"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_interrupt_between_the_commit_and_what_it_changes(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is half folded, or the transcript does not know yet: both are made from the log again."""
    for place_of, name in (SessionState, "apply"), (Transcript, "rewrite"):
        for at in range(1, 100):
            left = [at]
            real = getattr(place_of, name)

            def cut(*given: object, left: list[int] = left, real: object = real) -> object:
                left[0] -= 1
                if not left[0]:
                    raise KeyboardInterrupt
                return real(*given)  # type: ignore[operator]

            stores = place("a directory", Line(), tmp_path / f"{name}-{at}")
            context = Context("s", root_path=stores, keep_recent={"log": 1})
            acknowledged: list[str] = []
            with monkeypatch.context() as patch, suppress(KeyboardInterrupt, BaseExceptionGroup):
                patch.setattr(place_of, name, cut)
                anyio.run(_use, context, acknowledged, backend=backend)
            wrong = anyio.run(_wrong, stores, context, acknowledged, backend=backend)
            assert (name, at, wrong) == (name, at, [])
            if left[0] > 0:  # it was not called so often
                break
        assert ROUNDS < at < 99


@pytest.mark.both_loops
@pytest.mark.anyio
async def test_a_writer_that_took_over_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    line = Line()
    stores = place("a bucket", line, tmp_path)
    context = Context("s", root_path=stores)
    await context.open()
    await context.add(UserMessage("first"))
    line.at, line.breaks = line.writes + 1, True
    with pytest.raises(OutcomeUnknown):
        await context.add(UserMessage("second"))
    line.away = False
    async with Context("s", root_path=stores) as other:
        await other.add(UserMessage("of another writer"))
    for _ in range(2):
        with pytest.raises(SessionLocked):
            await context.add(UserMessage("third"))
    with pytest.raises(Unrecorded):
        await context.close()
    async with Context("s", root_path=stores) as other:
        assert [item.message.content for item in other.items] == ["first", "of another writer"]


@pytest.mark.both_loops
@pytest.mark.anyio
async def test_a_tool_that_changes_something_does_not_run_when_the_disk_takes_no_more(tmp_path: Path) -> None:
    charged: list[int] = []

    @tool("Charge a card")
    async def charge(number: int) -> str:
        charged.append(number)
        return "charged"

    turns: list[Turn] = [[ToolCall("charge", {"number": 1})], "one", [ToolCall("charge", {"number": 2})], "two"]
    async with Agent(
        ScriptedModel(turns), AgentConfig(offload_root_path=tmp_path, session_id="s", tools=[charge])
    ) as agent:
        assert await agent.query("Charge 1") == "one"
        journal, away = tmp_path / "s" / "journal.jsonl", tmp_path / "away"
        journal.rename(away)
        with pytest.raises(Unrecorded) as raised:
            await agent.query("Charge 2")
        assert "they are only in the context's `items`" in str(raised.value)
        assert charged == [1]
        away.rename(journal)
        assert await agent.query("And now?") == "two"
        assert agent.context.unrecorded == ()
