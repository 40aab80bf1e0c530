"""What a context takes the provider's cache to hold: by its bills, and after undo, pin, restore, resume and fork."""

from pathlib import Path
from typing import Any

import pytest

from ctxfs.context import Context
from ctxfs.eviction.economics.ledger import Ledger
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.economics.plans import Why
from ctxfs.messages import CharsCounter
from ctxfs.messages.base import Usage
from ctxfs.testing.history_conformance import pricing_on

pytestmark = pytest.mark.anyio

PRINTED = "".join(f"line {n} of the log\n" for n in range(1_200))


def context_in(root: Path, session_id: str | None = None, **settings: Any) -> Context:
    pricing = pricing_on(lambda: 0.0, parameters=EvictionParameters())
    return Context(session_id, root_path=root, pricing=pricing, counter=CharsCounter(), window=None, **settings)


def ledger_of(context: Context) -> Ledger:
    economy = context._live.transcript.economy  # noqa: SLF001 - what it believes shows nowhere else
    assert economy is not None
    return economy.ledger


async def with_old_result(context: Context, talk: int = 70, usage: Usage | None = None) -> None:
    """An old result in front of a long text, and so much talk since; ``usage``: of the last call."""
    call = {"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "make"}}
    await context.add({"role": "user", "content": "go"}, {"role": "assistant", "content": [call]})
    result = {"type": "tool_result", "tool_use_id": "c", "content": PRINTED}
    await context.add({"role": "user", "content": [result, {"type": "text", "text": "why? " * 48_000}]})
    for n in range(talk):
        billed = usage if n == talk - 1 else None
        await context.add({"role": "assistant", "content": "so"}, usage=billed)
        await context.add({"role": "user", "content": "and"})


@pytest.mark.not_measured
async def test_what_a_provider_did_not_cache_costs_no_rewrite(tmp_path: Path) -> None:
    async with context_in(tmp_path) as context:
        await with_old_result(context, usage=Usage(cache_read_input_tokens=65_000, cache_creation_input_tokens=10))
        assert not context.plan()
    async with context_in(tmp_path) as context:
        await with_old_result(context, usage=Usage(input_tokens=65_010))
        assert [step.reason for step in context.plan().offloads] == [str(Why.EXPIRED)]


@pytest.mark.slow
async def test_a_resumed_session_believes_the_last_bill(tmp_path: Path) -> None:
    for usage, replaced in ((Usage(cache_read_input_tokens=65_000), 0), (Usage(input_tokens=65_000), 1)):
        async with context_in(tmp_path) as context:
            await with_old_result(context, usage=usage)
        async with context_in(tmp_path, context.session_id) as resumed:
            assert len(resumed.plan().offloads) == replaced
        async with context_in(tmp_path) as parent:
            await with_old_result(parent, usage=usage)
            forked = await parent.fork()
        async with context_in(tmp_path, forked.session_id) as fork:
            assert len(fork.plan().offloads) == replaced


async def test_before_what_came_back_the_cache_is_warm(tmp_path: Path) -> None:
    async with context_in(tmp_path, keep_recent={"Bash": 1}) as context:
        await context.add({"role": "user", "content": "why? " * 10_000})
        for n in range(3):
            call = {"type": "tool_use", "id": f"c{n}", "name": "Bash", "input": {}}
            result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"{n} {PRINTED}"}
            await context.add({"role": "assistant", "content": [call]}, {"role": "user", "content": [result]})
            await context.messages()
        await context.add({"role": "assistant", "content": "so"})
        first = context.items[0].token_count
        assert ledger_of(context).left
        for back in (context.undo, lambda: context.pin("c1"), lambda: context.restore("c0")):
            spent = ledger_of(context).spent
            await back()
            ledger = ledger_of(context)
            assert first <= ledger.total_tokens - ledger.new_tokens < ledger.total_tokens
            assert ledger.spent == spent
            await context.add({"role": "user", "content": "and"}, {"role": "assistant", "content": "so"})


@pytest.mark.parametrize("durable", [True, False])
async def test_a_bill_is_believed_when_the_tools_are_others_before_it_is_recorded(
    durable: bool, tmp_path: Path
) -> None:
    async with context_in(tmp_path) as context:
        await context.add({"role": "user", "content": "why? " * 10_000})
        await context.messages()
        await context.add({"role": "assistant", "content": "so"}, usage=Usage(input_tokens=12_500), durable=durable)
        assert ledger_of(context).new_tokens == ledger_of(context).total_tokens
        context.tools = [{"name": "log"}]
        await context.add({"role": "user", "content": "and"}, durable=False)
        assert ledger_of(context).new_tokens == ledger_of(context).total_tokens


@pytest.mark.not_measured
async def test_a_context_whose_tools_are_others_knows_what_left_before(tmp_path: Path) -> None:
    def known() -> tuple[int, bool, int]:
        ledger = ledger_of(context)
        return ledger.gone_tokens, ledger.reply_is_last, ledger.total_tokens - ledger.new_tokens

    async with context_in(tmp_path) as context:
        await with_old_result(context, usage=Usage(input_tokens=65_010))
        await context.messages()
        await context.add({"role": "assistant", "content": "so"})
        before = known()
        assert before[0] > 0
        assert before[1]
        context.tools = [{"name": "log"}]
        await context.record()
        assert known() == before
