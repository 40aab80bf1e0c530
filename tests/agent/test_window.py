"""An agent that stays inside its window: compaction, the summary, the provider's refusal, and the end of the road."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest

from ctxfs import Agent, AgentConfig, tool
from ctxfs.agent import Done, UsageReported
from ctxfs.agent.events import AgentEvent
from ctxfs.errors import ContextOverflow, Overloaded, PromptTooLong
from ctxfs.eviction import Compacted, Evicted, SummaryFailed, Window
from ctxfs.eviction.budget import Budget
from ctxfs.messages import Retrying, ToolCall
from ctxfs.messages.base import ModelEvent, ModelRequest
from ctxfs.messages.tokens import default_counter
from ctxfs.testing import Cut, ScriptedModel
from ctxfs.testing.invariants import check
from ctxfs.testing.scripted import Turn

pytestmark = pytest.mark.anyio

WINDOW = Window(window_tokens=24_000, reply_tokens=4_000)
BUDGET = Budget(window_tokens=24_000, reply_tokens=4_000)


@tool("Produce text")
def produce(words: int, seed: str = "x") -> str:
    return " ".join(f"{seed}{n}" for n in range(words))


def produces(*words: int) -> list[ToolCall]:
    return [ToolCall("produce", {"words": n, "seed": f"seed{i}n"}) for i, n in enumerate(words)]


async def run(root: Path, turns: list[Turn], **settings: Any) -> tuple[list[AgentEvent], ScriptedModel, Agent]:
    model = ScriptedModel(turns, counter=default_counter())
    config = AgentConfig(
        **{"tools": [produce], "offload_root_path": root, "window": WINDOW, "pricing": None, **settings}
    )
    async with Agent(model, config) as agent:
        events = [event async for event in agent.stream("Do not forget: never touch main.")]
    for request in model.requests:
        check(request)
    return events, model, agent


def is_summary(request: dict[str, Any]) -> bool:
    return "Write the summary" in json.dumps(request["messages"][0])


async def test_large_old_results_leave_when_the_high_water_mark_is_passed(tmp_path: Path) -> None:
    events, _, agent = await run(tmp_path, [*(produces(520) for _ in range(12)), "done"])
    compacted = next(e for e in events if isinstance(e, Compacted))
    assert compacted.tokens_after < BUDGET.high_tokens < compacted.tokens_before
    assert compacted.steps == ("types",)
    assert isinstance(events[-1], Done)
    evicted = [e.item_id for e in events if isinstance(e, Evicted)]
    assert evicted
    for item_id in evicted:
        item = next(i for i in agent.context.items if i.id == item_id)
        assert item.offload_path is not None
        assert Path(item.offload_path).exists()  # noqa: ASYNC240


async def test_a_summary_follows_when_types_are_not_enough(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Turn:
        if is_summary(body):
            return "The plan is to go on."
        return produces(150) if "seed0n149" not in json.dumps(body)[-9000:] or len(model.requests) < 30 else "done"

    model = ScriptedModel([answer] * 60, counter=default_counter())
    config = AgentConfig(tools=[produce], offload_root_path=tmp_path, window=WINDOW, pricing=None)
    async with Agent(model, config) as agent:
        events = [event async for event in agent.stream("Do not forget: never touch main.")]
        before = agent.context.items
        summary = next(i for i in before if i.item_type == "compaction_summary")
        archive = await agent.context.fs.load(summary.id)
    assert "The plan is to go on." in str(summary.message.content)
    assert summary.offload_path == str(agent.context.fs.session_path / summary.name)
    assert summary not in [item for item in before if item.offloaded]
    assert "seed0n149" in str(archive)
    assert next(e for e in events if isinstance(e, Compacted)).steps == ("summary",)
    assert isinstance(events[-1], Done)
    last = model.requests[-1]
    assert "never touch main" in json.dumps(last["messages"])
    for request in model.requests:
        check(request)
    async with Agent(ScriptedModel([]), AgentConfig(offload_root_path=tmp_path, session_id=agent.session_id)) as again:
        assert again.context.items == before


class Flaky(ScriptedModel):
    """A scripted model whose every call fails once, as told by ``Retrying``."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        yield Retrying(attempt=1, delay_s=0, reason=f"call {len(self.requests) + 1}")
        async with aclosing(super().stream(request)) as events:
            async for event in events:
                yield event


async def test_every_call_is_told_and_on_the_bill_and_a_summarys_call_says_nothing_of_the_context(
    tmp_path: Path,
) -> None:
    def answer(body: dict[str, Any]) -> Turn:
        if is_summary(body):
            return "The plan is to go on."
        return Overloaded("busy") if "The plan is to go on." in json.dumps(body) else "answer " * 400

    model = Flaky([answer] * 30, counter=default_counter())
    settings: dict[str, Any] = {"offload_root_path": tmp_path, "window": Window(window_tokens=5_000, reply_tokens=500)}
    events: list[AgentEvent] = []
    async with Agent(model, AgentConfig(**settings)) as agent:
        with suppress(Overloaded):
            for n in range(30):
                async for event in agent.stream(f"question {n} " * 40):
                    events.append(event)  # what comes before the error is wanted too
        calls, learned = agent.context.fs.state.calls, agent.context.calibration
    *turns, last = calls
    assert is_summary(model.requests[-2])
    assert last.summary
    assert not any(call.summary for call in turns)
    assert [call.usage for call in calls] == [event.usage for event in events if isinstance(event, UsageReported)]
    assert len(calls) + 1 == len(model.requests) == len([event for event in events if isinstance(event, Retrying)])
    assert learned.base_real == turns[-1].usage.total_input_tokens
    async with Agent(model, AgentConfig(**settings, session_id=agent.session_id)) as again:
        assert again.context.calibration == learned


@pytest.mark.parametrize("failure", [Overloaded("busy"), "", "word " * 30_000, Cut("The plan is")])
async def test_a_failed_empty_longer_or_cut_summary_changes_nothing_and_the_run_goes_on(
    tmp_path: Path, failure: Any
) -> None:
    def answer(body: dict[str, Any]) -> Turn:
        return failure if is_summary(body) else produces(150)

    events, _, _ = await run(tmp_path, [*([answer] * 30), "done"], max_turns=None)
    assert any(isinstance(e, SummaryFailed) for e in events)
    assert not any("summary" in e.steps for e in events if isinstance(e, Compacted))
    assert isinstance(events[-1], Done)
    assert any("archive" in e.steps for e in events if isinstance(e, Compacted))


async def test_a_burst_that_does_not_fit_leaves_before_it_is_sent(tmp_path: Path) -> None:
    events, model, agent = await run(tmp_path, [produces(9000, 9000, 100), "done"], preview_above_tokens=None)
    sent = json.dumps(model.requests[1])
    assert default_counter().count(sent) < BUDGET.limit_tokens
    assert "[Content offloaded]" in sent
    assert "seed2n99" in sent
    (compacted,) = [e for e in events if isinstance(e, Compacted)]
    assert compacted.steps[-1] == "largest"
    stored = await _contents(agent, tmp_path)
    assert produce(9000, "seed0n") in stored


async def _contents(agent: Agent, root: Path) -> list[Any]:
    config = AgentConfig(offload_root_path=root, session_id=agent.session_id)
    async with Agent(ScriptedModel([]), config) as again:
        return [await again.context.fs.load(i.id) for i in again.context.items if i.offload_path]


async def test_what_cannot_be_reduced_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ContextOverflow) as caught:
        await run(tmp_path, ["never sent"], system_prompt="word " * 30_000)
    assert caught.value.limit_tokens == BUDGET.limit_tokens
    assert caught.value.actual_tokens > BUDGET.limit_tokens
    assert "msg_001" in caught.value.items[0]


async def test_the_providers_refusal_is_believed_and_the_call_made_again(tmp_path: Path) -> None:
    refusal = PromptTooLong("prompt is too long", limit_tokens=24_000, actual_tokens=27_000)
    turns: list[Turn] = [*(produces(520) for _ in range(12)), refusal]
    wide = Window(window_tokens=60_000, reply_tokens=4_000)
    events, model, _ = await run(tmp_path, [*turns, "done"], window=wide)
    assert isinstance(events[-1], Done)
    assert len(model.requests) == 14
    assert len(json.dumps(model.requests[13])) < len(json.dumps(model.requests[12]))
    events, model, _ = await run(tmp_path, [*turns, PromptTooLong("too long"), "done"], window=wide)
    assert isinstance(events[-1], Done)
    with pytest.raises((PromptTooLong, ContextOverflow)):  # a provider that refuses whatever it is sent
        await run(tmp_path, [*turns, *[PromptTooLong("too long")] * 9], window=wide)


async def test_nothing_is_compacted_when_offloading_is_off_and_the_window_is_guarded(tmp_path: Path) -> None:
    events, _, _ = await run(tmp_path, [*(produces(700) for _ in range(6)), "done"], offload_enabled=False)
    assert not any(isinstance(e, Compacted | Evicted) for e in events)
    with pytest.raises(PromptTooLong):
        await run(tmp_path, [PromptTooLong("too long")], offload_enabled=False)
    with pytest.raises(ContextOverflow, match="offload_enabled=False") as caught:
        await run(tmp_path, [*(produces(700) for _ in range(10)), "never sent"], offload_enabled=False)
    assert caught.value.actual_tokens > BUDGET.limit_tokens


async def test_compactions_do_not_loop(tmp_path: Path) -> None:
    """An irreducible context just under the limit is compacted once, not before every call."""
    filler = "word " * 17_500
    turns: list[Turn] = [*(produces(20) for _ in range(20)), "done", "done"]  # one goes to a prompt for a summary
    events, model, _ = await run(tmp_path, turns, system_prompt=filler)
    assert isinstance(events[-1], Done)
    assert sum(isinstance(e, Compacted) for e in events) <= 2
    assert len(model.requests) <= 21 + 2


async def test_usage_calibrates_the_estimate_and_survives_a_resume(tmp_path: Path) -> None:
    _, model, agent = await run(tmp_path, [*(produces(700) for _ in range(5)), "done"])
    learned = agent.context.calibration
    assert learned.model == "scripted"
    assert learned.ratios
    async with Agent(model, AgentConfig(offload_root_path=tmp_path, session_id=agent.session_id)) as again:
        assert again.context.calibration == learned
