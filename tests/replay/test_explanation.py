"""``explain`` as a function: what ``ctxfs explain`` prints, as a value, of a session that is open in any way."""

from math import log
from pathlib import Path

import pytest

from ctxfs import Context, ContextFileSystem, ItemType
from ctxfs.errors import SessionClosed
from ctxfs.eviction import EvictionPricing
from ctxfs.eviction.economics.ledger import read_backs_in
from ctxfs.eviction.economics.parameters import EvictionParameters, ItemKind
from ctxfs.eviction.economics.plans import EvictionDecision, Why
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.lab import ExplainedItem, Explanation, explain
from ctxfs.messages import ContentRange, Layout, Prices, Usage
from ctxfs.messages.rates import planning_prices
from ctxfs.testing.history_conformance import pricing_on
from ctxfs.tools.base import READING_DESCRIPTIONS
from ctxfs.tools.read import read_tool

pytestmark = pytest.mark.anyio

WITHOUT_RISK = EvictionParameters(read_back_weight=0.0, cover=0.0)
LARGE = "a line of a file that is large\n" * 500

_Explained = tuple[dict[str, ExplainedItem], dict[str, ExplainedItem]]


async def made(root: Path, lines: int = 400) -> Context:
    """An open session whose bash results are kept exactly: all but the last one have left."""
    context = Context(root_path=root, keep_recent={"bash": 1}, pricing=None)
    await context.open()
    await context.add({"role": "user", "content": "do it"})
    for number in range(3):
        call = {"type": "tool_use", "id": f"call_{number}", "name": "bash", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": f"{number} of it\n" * lines}
        await context.add({"role": "assistant", "content": [call]}, {"role": "user", "content": [result]})
        await context.messages()
    return context


async def reopened(root: Path, session_id: str, *, read_only: bool) -> Explanation:
    async with ContextFileSystem(session_id, root_path=root, read_only=read_only) as fs:
        return await explain(fs)


async def test_it_says_why_the_preview_of_an_item_left_too(tmp_path: Path) -> None:
    context = await made(tmp_path, lines=4_000)
    await context.close()
    items = (await reopened(tmp_path, context.session_id, read_only=True)).items
    why = {item.item_id: item.why for item in items}
    previewed = "previewed: over 8,000 tokens (setting: preview_above_tokens)"
    assert why["call_0"] == f"{previewed}; then bash keeps its last 1 (setting: keep_recent)"
    assert why["call_2"] == previewed
    assert [item.item_id for item in items if item.is_preview] == ["call_2"], "the others are shorter by now"


@pytest.mark.parametrize("is_ours", [False, True])
async def test_what_goes_next_has_the_placeholders_that_the_agent_makes(tmp_path: Path, *, is_ours: bool) -> None:
    description = read_tool(ContextFileSystem("none", root_path=tmp_path)).description
    own = [{"name": "Read", "description": description if is_ours else "Opens any file.", "input_schema": {}}]
    layout = Layout("envelope", compress_from_chars=0)
    fs = ContextFileSystem("own", root_path=tmp_path, layout=layout)
    async with Context(fs, pricing=None, window=None, preview_above_tokens=None) as context:
        context.tools = own
        await context.add({"role": "user", "content": "do it"})
        for number in range(40):
            text = f"{number} {LARGE}" if number < 6 else "ok"
            await context.add(
                {"role": "assistant", "content": [_call(f"call_{number}", "bash")]},
                {"role": "user", "content": [_result(f"call_{number}", text)]},
            )
            await context.messages()
    fs = ContextFileSystem("own", root_path=tmp_path, layout=layout)
    resumed = Context(fs, window=None, preview_above_tokens=None)
    resumed.tools = own
    async with resumed:
        expected = [(step.item_id, step.tokens_after) for step in resumed.plan().offloads]
    known = set(READING_DESCRIPTIONS)
    READING_DESCRIPTIONS.clear()  # as in a process that made no tools
    try:
        explained = await reopened(tmp_path, "own", read_only=True)
    finally:
        READING_DESCRIPTIONS.update(known)
    assert expected
    assert [(step.item_id, step.tokens_after) for step in explained.next.offloads] == expected


async def test_it_says_of_each_item_where_it_is_and_why(tmp_path: Path) -> None:
    context = await made(tmp_path)
    await context.close()
    explained = await reopened(tmp_path, context.session_id, read_only=True)
    items = {item.item_id: item for item in explained.items}
    assert [items[f"call_{number}"].place for number in range(3)] == ["file", "file", "context"]
    assert items["call_0"].why == "bash keeps its last 1 (setting: keep_recent)"
    assert items["call_2"].why == "stays: bash keeps its last 1 (setting: keep_recent)"
    assert items["call_2"].item_type is ItemType.TOOL_RESULT
    assert (items["call_2"].left_after_reply, items["call_2"].replies_since) == (None, None)
    assert explained.context_tokens == context.token_count
    assert explained.effect.evictions == 2
    assert explained.effect.net_usd is None
    assert explained.billed.calls == 0
    assert not explained.next


async def test_what_came_as_a_line_has_no_share_of_what_an_eviction_cost(tmp_path: Path) -> None:
    """It names an equal result before the same call as another result leaves: only that one is cached again for."""
    policy = OffloadPolicy(repeats=True)
    async with Context(root_path=tmp_path, keep_recent={"bash": 1}, pricing=None, offload_policy=policy) as context:
        await context.add({"role": "user", "content": "do it"})
        for number in range(4):
            calls = [_call(f"look_{number}", "look"), _call(f"bash_{number}", "bash", command=str(number))]
            results = [_result(f"look_{number}", LARGE), _result(f"bash_{number}", f"{number} {LARGE}")]
            await context.add({"role": "assistant", "content": calls}, {"role": "user", "content": results})
            await context.messages()
        await context.add({"role": "assistant", "content": "done"})
    explained = await reopened(tmp_path, context.session_id, read_only=True)
    items = {item.item_id: item for item in explained.items}
    line, left = items["look_2"], items["bash_1"]
    assert line.why == "the same as look_0 (setting: repeats)"
    assert line.left_after_reply == left.left_after_reply
    assert line.saved
    assert line.rewriting == 0
    assert sum(item.rewriting or 0 for item in explained.items) == pytest.approx(explained.effect.rewriting)


async def test_it_says_what_the_eviction_of_an_item_saved_and_cost(tmp_path: Path) -> None:
    context = await made(tmp_path)
    source = ContentRange(item_id="call_0", path="stored/call_0", first_line=1, last_line=9)
    for number, sources in ((3, {"call_3": source}), (4, {})):
        call = {"type": "tool_use", "id": f"call_{number}", "name": "Read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": "0 of it\n" * 9}
        await context.add({"role": "assistant", "content": [call]})
        await context.add({"role": "user", "content": [result]}, sources=sources)
        await context.messages()
    await context.close()
    explained = await reopened(tmp_path, context.session_id, read_only=True)
    items = {item.item_id: item for item in explained.items}
    gone = items["call_0"]
    freed = gone.tokens_freed
    assert freed == (gone.content_tokens or 0) - gone.tokens > 0
    assert gone.replies_since == 3
    assert gone.saved == pytest.approx(0.1 * freed * 3)
    assert gone.read_backs == 1
    assert gone.read_backs_expected is None  # no price decided
    assert (items["call_1"].read_backs, items["call_3"].tokens_freed) == (0, None)
    rewriting = sum(item.rewriting or 0 for item in explained.items)
    assert rewriting == pytest.approx(explained.effect.rewriting)
    assert sum(item.saved or 0 for item in explained.items) == pytest.approx(explained.effect.saved)


def _call(call_id: str, name: str, **arguments: str) -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def _result(call_id: str, content: str) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


async def _after_an_hour(root: Path, calls: list[dict[str, object]], results: list[dict[str, object]]) -> _Explained:
    """The items, before and after they left by price, since the cache had expired."""
    now = [1_000_000.0]
    async with Context(root_path=root, pricing=pricing_on(lambda: now[0], parameters=WITHOUT_RISK)) as context:
        await context.add({"role": "user", "content": "go"}, {"role": "assistant", "content": calls})
        await context.add({"role": "user", "content": results}, {"role": "assistant", "content": "I see."})
        await context.add({"role": "user", "content": "go on"})
        before = {item.item_id: item for item in (await explain(context.fs)).items}
        now[0] += 3_600
        await context.request(cache=False)
        await context.add({"role": "assistant", "content": "done"}, {"role": "user", "content": "more"})
        return before, {item.item_id: item for item in (await explain(context.fs)).items}


def _expected(kind: ItemKind, item: ExplainedItem) -> object:
    """The read-backs to expect within a call of an item that was two calls old."""
    assert item.content_tokens is not None
    return pytest.approx(WITHOUT_RISK.hazard(kind, item.content_tokens) * log(3 / 2), rel=0.2)


async def test_it_says_what_was_expected_of_an_item_that_left_by_its_price(tmp_path: Path) -> None:
    before, after = await _after_an_hour(
        tmp_path, [_call("call_0", "Bash", command="cat a.py")], [_result("call_0", LARGE)]
    )
    staying = before["call_0"]
    assert staying.tokens_freed is None
    assert staying.rent is not None
    assert staying.rent > 0
    assert staying.risk == 0.0
    gone = after["call_0"]
    assert gone.rule is Why.EXPIRED
    assert gone.replies_since == 1
    assert gone.read_backs_expected == _expected(ItemKind.FILE, gone)


@pytest.mark.parametrize(("longest", "within"), [(150, 1e-6), (6_000, 0.1)])
async def test_what_was_compared_is_what_the_planner_had_compared(tmp_path: Path, longest: int, within: float) -> None:
    """The figures come from the journal alone, and are those of the planner before the request that evicted.

    Where previews are shortened in the same call, what they free is not counted.
    """
    planned: dict[tuple[str, int], EvictionDecision] = {}
    async with Context(
        root_path=tmp_path, pricing=EvictionPricing(), window=None, model="claude-sonnet-4-5"
    ) as context:
        await context.add({"role": "user", "content": "go"})
        for number in range(25):
            await context.add({"role": "assistant", "content": [_call(f"call_{number}", "look")]})
            words = {0: 1_500, 3: longest}.get(number % 7, 150)
            await context.add({"role": "user", "content": [_result(f"call_{number}", f"{number} word " * words)]})
            planned.update({(decision.item_id, number + 1): decision for decision in context.decisions()})
            await context.messages()
        await context.add({"role": "assistant", "content": "done"})
        explained = await explain(context.fs)
    compared = 0
    for item in explained.items:
        decision = planned.get((item.item_id, item.left_after_reply or 0))
        if item.weighed is None or decision is None:
            continue
        compared += 1
        hazard_and_price = decision.risk * decision.age_calls
        read_backs = read_backs_in(round(decision.age_calls), int(item.weighed["calls"]))
        assert item.weighed["rent"] == pytest.approx(decision.rent)
        assert item.weighed["read_backs"] * item.weighed["read_back"] == pytest.approx(
            hazard_and_price * read_backs, rel=within
        )
    assert compared > 15


async def test_the_read_backs_of_a_result_are_unknown_if_its_call_is_in_a_file(tmp_path: Path) -> None:
    calls = [_call("call_0", "Write", path="a", content=LARGE), _call("call_1", "Bash", command="cat a.py")]
    _, after = await _after_an_hour(tmp_path, calls, [_result("call_0", "ok"), _result("call_1", LARGE)])
    assert after["call_1"].replies_since == 1
    assert after["call_1"].read_backs_expected is None


async def test_reading_only_writing_and_a_context_that_goes_on_are_explained_alike(tmp_path: Path) -> None:
    context = await made(tmp_path)
    while_open = await explain(context.fs)
    journal = (Path(while_open.session_path) / "journal.jsonl").read_bytes()
    assert await reopened(tmp_path, context.session_id, read_only=True) == while_open
    assert (Path(while_open.session_path) / "journal.jsonl").read_bytes() == journal
    await context.close()
    assert await reopened(tmp_path, context.session_id, read_only=False) == while_open


async def test_a_session_that_is_not_open_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SessionClosed):
        await explain(ContextFileSystem(root_path=tmp_path))


async def billed(root: Path, *calls: tuple[str, Usage], pricing: EvictionPricing | None = None) -> Context:
    """An open session with these billed calls."""
    context = Context(root_path=root, pricing=pricing)
    await context.open()
    for number, (model, usage) in enumerate(calls):
        await context.add({"role": "user", "content": f"question {number}"})
        await context.add({"role": "assistant", "content": "answer"}, usage=usage, model=model)
    return context


def call(new: int, written: int, read: int, output: int) -> Usage:
    return Usage(
        input_tokens=new,
        cache_creation_input_tokens=written,
        cache_read_input_tokens=read,
        output_tokens=output,
    )


SHORT, LONG = call(2_000, 20_000, 250_000, 1_000), call(2_000, 20_000, 300_000, 1_000)


async def test_each_call_is_billed_at_the_prices_of_its_model_and_of_its_length(tmp_path: Path) -> None:
    async with await billed(tmp_path, ("gpt-6.1-sol", SHORT), ("gpt-6.1-sol", LONG), ("gpt-4.1", SHORT)) as context:
        explained = await explain(context.fs)
    by_hand = (0.004 + 0.05 + 0.025 + 0.01) + (0.008 + 0.1 + 0.06 + 0.015) + (0.004 + 0.04 + 0.125 + 0.008)
    assert explained.billed.usd == pytest.approx(by_hand)


async def test_writes_are_billed_for_as_long_as_the_session_keeps_its_cache(tmp_path: Path) -> None:
    pricing = EvictionPricing(cache_ttl="12h", prices=planning_prices("gpt-6.1-sol"))
    async with await billed(tmp_path, ("gpt-6.1-sol", SHORT), pricing=pricing) as context:
        assert (await explain(context.fs)).billed.usd == pytest.approx(0.004 + 0.1 + 0.025 + 0.01)


async def test_one_call_at_unknown_prices_leaves_the_bill_open(tmp_path: Path) -> None:
    async with await billed(tmp_path, ("gpt-6.1-sol", SHORT), ("mine", SHORT), ("gpt-6.1-sol", SHORT)) as context:
        assert (await explain(context.fs)).billed.usd is None


async def test_prices_of_ones_own_go_first(tmp_path: Path) -> None:
    mine = Prices(input=1, output=2, cache_read=0.5)
    async with await billed(tmp_path, ("gpt-6.1-sol", SHORT), ("mine", LONG)) as context:
        explained = await explain(context.fs, prices=mine)
    assert explained.billed.usd == pytest.approx(2 * (0.022 + 0.002) + 0.125 + 0.15)
    assert explained.effect.net_usd == 0


@pytest.mark.parametrize(("cached", "price"), [(9_000, 0.1), (0, 1.0)])
async def test_an_item_saves_the_full_price_where_bills_say_that_nothing_was_cached(
    tmp_path: Path, cached: int, price: float
) -> None:
    usage = {"input_tokens": 1_000, "cache_read_input_tokens": cached}
    async with Context(root_path=tmp_path, keep_recent={"Read": 1}) as context:
        await context.add({"role": "user", "content": "go"})
        for number in range(4):
            call = _call(f"call_{number}", "Read", path="a")
            await context.add({"role": "assistant", "content": [call]}, usage=usage)
            await context.add({"role": "user", "content": [_result(f"call_{number}", LARGE)]})
            await context.request(cache=False)
        await context.add({"role": "assistant", "content": "done"}, usage=usage)
        explained = await explain(context.fs)
    gone = {item.item_id: item for item in explained.items if item.tokens_freed}
    first = gone["call_0"]
    assert first.replies_since
    assert first.tokens_freed
    assert first.saved == pytest.approx(price * first.tokens_freed * first.replies_since)
    assert sum(item.saved or 0.0 for item in gone.values()) == pytest.approx(explained.effect.saved)
    assert (explained.effect.rewriting == 0.0) is (cached == 0)
