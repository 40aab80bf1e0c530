"""``ctxfs explain``: why items left or stay, what goes next as the agent itself would decide, and the bill."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs import Context, ContextFileSystem, History, Part
from ctxfs.cli.app import run
from ctxfs.eviction.economics.economy import EvictionPricing
from ctxfs.eviction.economics.ledger import read_backs_in
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.economics.plans import EvictionDecision
from ctxfs.eviction.offload_plan import Plan
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.window import Window
from ctxfs.messages.base import Usage
from ctxfs.messages.items import ItemType
from ctxfs.messages.messages import UserMessage
from ctxfs.messages.names import Layout
from ctxfs.session.records import EvictionSet
from ctxfs.session.timeline.costs import account
from ctxfs.testing.history_conformance import pricing_on
from session_items import PLACEHOLDER, claimed_item

WORDS = "what stands in a file that was read and is no longer wanted by anybody here\n"
USAGE = Usage(input_tokens=10, cache_creation_input_tokens=1_000, cache_read_input_tokens=9_000, output_tokens=40)
MODEL = "claude-sonnet-4-5"

Explain = Callable[..., tuple[int, bytes, str]]


@pytest.fixture
def explain(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Explain:
    """Run the command in this process on what is in ``tmp_path``."""

    def call(*arguments: str) -> tuple[int, bytes, str]:
        capfdbinary.readouterr()
        code = run(["explain", *arguments, "--root", str(tmp_path)])
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return call


def as_json(explain: Explain) -> Any:
    code, out, err = explain("last", "--json")
    assert code == 0, err
    return json.loads(out)


async def turn(context: Context, number: int, tool: str, content: str, arguments: dict[str, Any]) -> None:
    call = {"type": "tool_use", "id": f"call_{number}", "name": tool, "input": arguments}
    await context.add({"role": "assistant", "content": [call]}, usage=USAGE, model=MODEL)
    await context.add(
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"call_{number}", "content": content}]}
    )
    await context.messages()


async def made(root: Path | ContextFileSystem, **settings: Any) -> Context:
    """A session whose bash results are kept exactly, and which wrote a file; still to be closed."""
    fs = root if isinstance(root, ContextFileSystem) else ContextFileSystem(root_path=root)
    context = Context(fs, keep_recent={"bash": 1}, **{"pricing": None, **settings})
    await context.open()
    await context.add({"role": "user", "content": "do it"})
    await turn(context, 1, "Write", "ok", {"path": "a.py", "content": WORDS * 100})
    for number in range(2, 8):
        await turn(context, number, "bash", f"{number} {WORDS}" * 40, {"command": f"cat {number}"})
    return context


def test_it_tells_why_each_item_left_or_stays(explain: Explain, tmp_path: Path) -> None:
    async def session() -> None:
        await (await made(tmp_path)).close()

    anyio.run(session)
    told = as_json(explain)
    items = {item["item_id"]: item for item in told["items"]}
    gone = items["call_3"]
    assert (gone["place"], gone["why"], gone["left_after_reply"]) == (
        "file",
        "bash keeps its last 1 (setting: keep_recent)",
        4,
    )
    assert gone["replies_since"] == told["replies"] - 4 == 3
    assert gone["tokens"] < gone["content_tokens"]
    assert items["call_7"]["left_after_reply"] is None
    assert items["call_7"]["why"] == "stays: bash keeps its last 1 (setting: keep_recent)"
    assert items["call_1"]["why"] == "stays: results of this tool are evicted only when the window is full"
    assert all(item["why"].startswith("stays: ") for item in items.values() if item["place"] == "context")
    text = explain("last")[1].decode()
    assert "bash keeps its last 1 (setting: keep_recent)" in text
    assert re.search(r"call_3 +bash +[\d,]+ +[\d,]+ +5  bash keeps its last 1", text), "it left before call 5"


def test_of_one_item_it_says_what_its_eviction_saved_and_cost(explain: Explain, tmp_path: Path) -> None:
    async def session() -> None:
        await (await made(tmp_path, pricing=EvictionPricing())).close()

    anyio.run(session)
    told = {item["item_id"]: item for item in as_json(explain)["items"]}
    gone = told["call_3"]
    text = explain("last", "call_3")[1].decode()
    without = f"since then: 3 calls without its {gone['tokens_freed']:,} tokens saved about {gone['saved']:,.0f} input"
    assert without in text
    assert f"caching again what followed it: about {gone['rewriting']:,.0f}" in text
    assert "why before call" not in text, "keep_recent compares no costs"
    assert re.search(r"saved about [\d,]+ input tokens \(\$\S+\); its share .*: about [\d,]+ \(\$\S+\)", text)
    assert re.search(r"read back since then: never; expected of such an item in as many calls: \d\.\d times", text)
    stays = explain("last", "call_7")[1].decode()
    assert f"keeping it costs about {told['call_7']['rent']:,.0f} input tokens" in stays
    assert re.search(r"would cost about [\d,]+", stays)
    assert "keeping it" not in explain("last", "msg_001")[1].decode()


def test_of_an_item_that_left_by_its_price_it_says_why_and_why_then_with_the_figures(
    explain: Explain, tmp_path: Path
) -> None:
    """A stranger is to understand an eviction from this alone: what was compared, and what the item waited for."""

    async def session() -> None:
        async with Context(root_path=tmp_path, pricing=EvictionPricing(), window=None, model=MODEL) as context:
            await context.add({"role": "user", "content": "do it"})
            for number in range(16):
                await turn(context, number, "look", f"{number} word " * (1_500 if number % 7 == 0 else 150), {})

    anyio.run(session)
    gone = [item for item in as_json(explain)["items"] if item["weighed"]]
    reasons = {item["why"] for item in gone}
    assert len(reasons) == 2, reasons
    for item in gone:
        assert item["rule"] == item["why"]
        weighed = item["weighed"]
        text = " ".join(explain("last", item["item_id"])[1].decode().split())
        back = weighed["read_backs"] * weighed["read_back"]
        assert weighed["keeping"] > back, "that is why"
        assert (
            f"keeping it costs about {weighed['keeping']:,.0f} input tokens, reading it back about {back:,.0f}" in text
        )
        assert f"keeping: about {weighed['rent']:,.0f} in each call" in text
        assert f"reading back: {weighed['read_backs']:.2g} times in the {weighed['calls']:,.0f} calls" in text
        assert f"each about {weighed['read_back']:,.0f}" in text
        assert f"why before call {item['left_after_reply'] + 1}: " in text
        assert "3% of what all calls would have cost without evictions (max_loss)" in text
        assert "an input token counts 0.1 if it is read from the prompt cache, and 1.25 if written" in text
        if "had cost as much" in item["why"]:
            assert f"from about call {weighed['dearer_from_call']} on" in text
            assert f"what follows costs: about {weighed['rewriting']:,.0f} input tokens" in text
        else:
            assert "only one reply followed it" in text


def test_a_preview_is_one_wherever_it_is_named(explain: Explain, tmp_path: Path) -> None:
    async def session() -> None:
        async with Context(root_path=tmp_path, pricing=None) as context:
            await context.add({"role": "user", "content": "do it"})
            await turn(context, 1, "look", WORDS * 20_000, {})

    anyio.run(session)
    for arguments in (["last", "call_1"], ["last", "--changes"]):
        text = explain(*arguments)[1].decode()
        assert re.search(r"call_1 +previewed +2 ", text), text
        assert "evicted" not in text
        assert ("The model sees 1,000 tokens of it at most" in text) is ("call_1" in arguments)


def test_nothing_goes_next_where_the_requests_have_no_tool_that_reads(explain: Explain, tmp_path: Path) -> None:
    """So does the session itself: see ``LiveTranscript.why_unread``."""

    async def session() -> None:
        async with Context("s", root_path=tmp_path, pricing=None) as context:
            context.tools = [{"name": "bash", "description": "", "input_schema": {"type": "object"}}]
            await context.add({"role": "user", "content": "do it"})
            for number in range(2, 12):
                await turn(context, number, "bash", f"{number} {WORDS}" * 300, {"command": "ls"})
            await context.add({"role": "assistant", "content": "done"})
        async with Context("s", root_path=tmp_path, pricing=EvictionPricing()):
            pass

    anyio.run(session)
    told = as_json(explain)
    assert told["next"] == []
    would = [item["why"] for item in told["items"] if item["why"].startswith("stays until the window is full")]
    assert set(would) == {"stays until the window is full: of the tools, none is named 'Read'"}
    assert "evicted next: nothing" in explain("last")[1].decode()


def test_it_knows_the_rules_that_the_session_was_opened_with(explain: Explain, tmp_path: Path) -> None:
    async def session(**settings: Any) -> tuple[str, Plan]:
        context = await made(tmp_path, **settings)
        await context.add({"role": "assistant", "content": "done"})
        plan = context.plan()
        await context.close()
        return context.session_id, plan

    never = EvictionPricing(parameters=EvictionParameters(read_back_weight=1e9))
    keeps = OffloadPolicy(type_enabled={"tool_input": False})
    session_id, plan = anyio.run(lambda: session(pricing=never, offload_policy=keeps))
    told = as_json(explain)
    assert [step["item_id"] for step in told["next"]] == [step.item_id for step in plan.offloads] == []
    assert not [item for item in told["items"] if item["item_type"] == "tool_input"]

    async def reopened() -> None:
        async with Context(
            session_id, root_path=tmp_path, keep_recent={"Write": 3}, pricing=EvictionPricing()
        ) as context:
            assert context.fs.state.eviction is not None

    anyio.run(reopened)
    items = {item["item_id"]: item for item in as_json(explain)["items"]}
    assert items["call_1"]["why"] == "stays: Write keeps its last 3 (setting: keep_recent)"
    assert items["call_1.input"]["item_type"] == "tool_input"
    assert items["call_1.input"]["place"] == "context"
    assert "keeps" not in items["call_7"]["why"]


def test_what_is_due_is_said_to_leave_next(explain: Explain, tmp_path: Path) -> None:
    async def session() -> None:
        async with Context(root_path=tmp_path, keep_recent={"bash": 1}, pricing=None) as context:
            await context.add({"role": "user", "content": "do it"})
            for number in (1, 2):
                call = {"type": "tool_use", "id": f"call_{number}", "name": "bash", "input": {}}
                result = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": WORDS * 40}
                await context.add({"role": "assistant", "content": [call]}, {"role": "user", "content": [result]})
            await context.add({"role": "assistant", "content": "done"})

    anyio.run(session)
    told = as_json(explain)
    assert [step["item_id"] for step in told["next"]] == ["call_1"]
    why = {item["item_id"]: item["why"] for item in told["items"]}
    assert (why["call_1"], why["call_2"]) == (
        "evicted next: bash keeps its last 1 (setting: keep_recent)",
        "stays: bash keeps its last 1 (setting: keep_recent)",
    )


def test_rules_of_another_version_are_an_error_that_says_so(explain: Explain, tmp_path: Path) -> None:
    async def session() -> None:
        async with ContextFileSystem(root_path=tmp_path) as fs:
            await fs.writer.record_eviction(EvictionSet(parameters={"patience": 3}))

    anyio.run(session)
    code, _, err = explain("last")
    assert code != 0
    assert "another version of ctxfs recorded this session" in err
    assert "patience" in err
    assert "opening it to go on with it records today's" in err


@pytest.mark.parametrize("compresses", [True, False])
def test_nothing_is_said_to_leave_where_a_tool_named_read_cannot_open_it(
    explain: Explain, tmp_path: Path, *, compresses: bool
) -> None:
    """A user's own tool opens no compressed files, and the session knows whether it has some."""
    planned: list[Plan] = []

    async def session() -> None:
        layout = Layout("envelope", compress_from_chars=None if compresses else 0)
        fs = ContextFileSystem("s", root_path=tmp_path, layout=layout)
        async with Context(fs, keep_recent={"bash": 1}, pricing=None) as context:
            context.tools = [{"name": "Read", "description": "mine", "input_schema": {"type": "object"}}]
            await context.add({"role": "user", "content": "do it"})
            await context.messages()
            for number in (1, 2):
                call = {"type": "tool_use", "id": f"call_{number}", "name": "bash", "input": {}}
                result = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": WORDS * 40}
                await context.add({"role": "assistant", "content": [call]}, {"role": "user", "content": [result]})
            await context.add({"role": "assistant", "content": "done"})
            planned.append(await context.evict() if compresses else context.plan())

    anyio.run(session)
    told = as_json(explain)
    assert [one["item_id"] for one in told["next"]] == [one.item_id for one in planned[0].offloads]
    (why,) = [item["why"] for item in told["items"] if item["item_id"] == "call_1"]
    assert why.startswith("stays until the window is full: " if compresses else "evicted next: bash keeps its last 1")


def test_the_figures_are_those_of_the_journal(explain: Explain, tmp_path: Path) -> None:
    async def session() -> tuple[int, int]:
        context = await made(tmp_path)
        freed = sum(item.content_tokens - item.token_count for item in context.items)
        await context.close()
        return context.token_count, freed

    held, freed = anyio.run(session)
    told = as_json(explain)
    effect = told["effect"]
    assert (told["context_tokens"], told["window_tokens"]) == (held, 111_616)
    assert (effect["evictions"], effect["tokens_freed"]) == (5, freed)
    assert effect["net"] == pytest.approx(effect["saved"] - effect["rewriting"] - effect["reading_back"])
    assert effect["net_usd"] == pytest.approx(effect["net"] * 3 / 1e6)
    assert told["model"] == MODEL
    billed = told["billed"]
    assert (billed["calls"], billed["cache_read_input_tokens"], billed["output_tokens"]) == (7, 63_000, 280)
    assert billed["usd"] == pytest.approx(7 * (10 * 3 + 1_000 * 3.75 + 9_000 * 0.3 + 40 * 15) / 1e6)
    text = explain("last")[1].decode()
    assert f"freed {freed:,} tokens" in text
    full = f"{held:,} tokens of messages as ctxfs counts them, after 7 replies, {held / 111_616:.0%} of the 111,616"
    assert f"{full} that fit its window" in text
    assert text.index(full) < text.index("call_3"), "the summary comes first"
    assert text.index("before call: when it left") < text.index("call_3"), "and what the columns are"
    assert "63,000 cache read" in text


def test_without_a_known_price_there_are_no_dollars(explain: Explain, tmp_path: Path) -> None:
    async def session() -> None:
        async with Context(root_path=tmp_path, pricing=None) as context:
            await context.add({"role": "user", "content": "hello"})
            await context.add({"role": "assistant", "content": "hi"}, usage=USAGE, model="mine")

    anyio.run(session)
    told = as_json(explain)
    assert (told["effect"]["net_usd"], told["billed"]["usd"]) == (None, None)
    text = explain("last")[1].decode()
    assert "$" not in text
    assert "evicted next: nothing" in text


def test_what_goes_next_is_what_a_session_that_goes_on_would_do(explain: Explain, tmp_path: Path) -> None:
    async def session() -> tuple[Plan, tuple[EvictionDecision, ...]]:
        async with Context(root_path=tmp_path, pricing=None) as context:
            await context.add({"role": "user", "content": "do it"})
            await turn(context, 1, "Write", "ok", {"path": "a.py", "content": WORDS * 100})
            for number in range(2, 40):
                await turn(context, number, "bash", f"{number} {WORDS}" * (300 if number < 6 else 1), {"command": "ls"})
        async with Context(context.session_id, root_path=tmp_path, pricing=EvictionPricing()) as resumed:
            return resumed.plan(), resumed.decisions()

    plan, decisions = anyio.run(session)
    told = as_json(explain)
    expected = [(step.item_id, step.tokens_before, step.tokens_after, step.reason) for step in plan.offloads]
    assert len(expected) >= 4
    assert [tuple(step.values()) for step in told["next"]] == expected
    why = {item["item_id"]: item["why"] for item in told["items"]}
    said = {v.item_id: str(v.why).replace("evicted: ", "evicted next: ") for v in decisions}
    assert said.items() <= why.items()
    assert "evicted next: " in explain("last")[1].decode()
    weighed = {item["item_id"]: item["weighed"] for item in told["items"]}
    for decision in decisions:
        if not decision.why.startswith("evicted: "):
            assert weighed[decision.item_id] is None
            continue
        compared = weighed[decision.item_id]
        read_backs = read_backs_in(round(decision.age_calls), compared["calls"])
        billed = compared["billed_per_counted"]
        back = billed * decision.risk * decision.age_calls * read_backs
        assert compared["rent"] == pytest.approx(billed * decision.rent)
        assert compared["read_backs"] * compared["read_back"] == pytest.approx(back), "up to the end of its outlook"
        assert compared["together"] == len(expected)
        text = " ".join(explain("last", decision.item_id)[1].decode().split())
        assert f"input tokens, reading it back about {back:,.0f} " in text
        assert f"why before call {told['replies'] + 1}: " in text


def test_what_left_in_an_archive_is_told(explain: Explain, tmp_path: Path) -> None:
    async def session() -> None:
        context = await made(tmp_path)
        fs = context.fs
        item = claimed_item(fs, UserMessage(PLACEHOLDER), 5, kind=ItemType.COMPACTION_SUMMARY, content_tokens=500)
        item = replace(item, offload_path=str(fs.session_path / item.name))
        going = [i.id for i in context.items[1:3]]
        await fs.writer.archive(item, "all of it", going, before=context.items[3].id, reason="summarised by the model")
        await context.close()

    anyio.run(session)
    told = as_json(explain)
    archived = [item for item in told["items"] if item["place"] == "archive"]
    assert [(item["item_id"], item["why"]) for item in archived] == [
        ("msg_002", "summarised by the model"),
        ("call_1", "summarised by the model"),
    ]
    (summary,) = (item for item in told["items"] if item["item_type"] == "compaction_summary")
    assert summary["why"] == "stands for 2 messages: summarised by the model"
    assert explain("last")[1].decode().count("summarised by the model") == 1


def test_a_damaged_journal_is_explained_as_far_as_it_goes(explain: Explain, tmp_path: Path) -> None:
    async def session() -> Path:
        context = await made(tmp_path)
        await context.close()
        return tmp_path / context.session_id / "journal.jsonl"

    journal = anyio.run(session)
    journal.write_bytes(journal.read_bytes().replace(b'"command":"cat 3"', b'"command":"cat 8"'))  # the reply is lost
    told = as_json(explain)
    assert told["replies"] == 6
    assert "call_3" in {item["item_id"] for item in told["items"]}


def test_a_session_that_is_written_is_not_disturbed(explain: Explain, tmp_path: Path) -> None:
    async def session() -> tuple[int, bytes, str]:
        context = await made(tmp_path)
        before = (tmp_path / context.session_id / "journal.jsonl").read_bytes()
        told = await anyio.to_thread.run_sync(lambda: explain("last", "--json"))
        assert (tmp_path / context.session_id / "journal.jsonl").read_bytes() == before
        await context.add({"role": "assistant", "content": "done"})
        await context.close()
        return told

    code, _, err = anyio.run(session)
    assert (code, err) == (0, "")


def test_a_call_for_a_summary_is_on_the_bill_and_is_no_turn(explain: Explain, tmp_path: Path) -> None:
    """What it was asked of, and when, says nothing of the context's cache or of the session's model."""
    now = [1e9]

    async def session() -> None:
        fs = ContextFileSystem(root_path=tmp_path, clock=lambda: now[0])
        context = await made(fs, pricing=pricing_on(lambda: now[0]))
        await fs.writer.record_call(Usage(input_tokens=5), "another-model", summary=True)
        await context.close()

    anyio.run(session)
    told = as_json(explain)
    assert (told["billed"]["calls"], told["billed"]["input_tokens"]) == (8, 75)
    assert told["model"] == MODEL


def test_the_history_of_a_session_is_its_journal(tmp_path: Path) -> None:
    async def session() -> None:
        context = await made(tmp_path)
        await context.close()
        async with ContextFileSystem(context.session_id, root_path=tmp_path, read_only=True) as fs:
            assert account(await fs.history()).calls == tuple(fs.state.calls)

    anyio.run(session)


def test_a_session_that_is_not_there_is_one_line_and_2(explain: Explain) -> None:
    code, out, err = explain("nope")
    assert (code, out) == (2, b"")
    assert err.startswith("ctxfs: ")
    assert err.count("\n") == 1


def test_no_call_saves_more_than_fits_into_the_window(explain: Explain, tmp_path: Path) -> None:
    async def session() -> str:
        context = await made(tmp_path)
        await context.close()
        return context.session_id

    async def reopened(session_id: str) -> None:
        window = Window(window_tokens=700, reply_tokens=0)
        async with Context(session_id, root_path=tmp_path, keep_recent={"bash": 1}, window=window):
            pass

    session_id = anyio.run(session)
    unbounded = as_json(explain)["effect"]["saved"]
    anyio.run(reopened, session_id)
    told = as_json(explain)
    effect = told["effect"]
    assert 0 <= effect["saved"] < unbounded / 2
    for figure in ("saved", "rewriting"):
        of_items = sum(item[figure] or 0.0 for item in told["items"])
        assert of_items == pytest.approx(effect[figure]), "no item counts more calls than the session"
    text = " ".join(explain("last", "call_3")[1].decode().split())
    assert f"Counted before call {effect['too_long_from']}: without ctxfs, no more would have fitted" in text


@pytest.mark.parametrize("window", [200_000, 40_000])
@pytest.mark.parametrize("owner", ["context", "history", "source"])
def test_a_result_that_was_previewed_says_why(
    explain: Explain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int, owner: str
) -> None:
    text = WORDS * 800
    if owner == "context":

        async def session() -> None:
            async with Context(root_path=tmp_path, window=window) as context:
                await context.add({"role": "user", "content": "do it"})
                await turn(context, 1, "bash", text, {"command": "cat all"})

        anyio.run(session)
    else:
        with History(root_path=tmp_path, window=window) as history:
            parts = [Part("user", "do it", 0), Part("call", {}, 1, "call_1", "bash")]
            result = history.arrive(text, tool="bash", call_id="call_1") if owner == "source" else text
            history.rewrite([*parts, Part("result", result, 2, "call_1", "bash")])
    why = {
        200_000: "previewed: over 8,000 tokens (setting: preview_above_tokens)",
        40_000: "previewed: over 5,000 tokens, an eighth of the window (setting: preview_above_tokens)",
    }[window]
    (row,) = [item for item in as_json(explain)["items"] if item["item_type"] == "tool_result"]
    assert row["why"] == why
    assert any(line.endswith(f"  {why}") for line in explain("last")[1].decode().splitlines())


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ({"a": 1.0}, "all in tokens as ctxfs counts them: the bills do not show that the provider counts others"),
        ({"a": 1.7}, "in tokens as the provider bills them: about 1.70 for one of these"),
        ({"a": 1.7, "b": 1.0}, "in tokens as the provider bills them: by the model 1.00 to 1.70 for one of these"),
    ],
)
def test_it_says_in_which_tokens_its_figures_are(
    explain: Explain, tmp_path: Path, models: dict[str, float], said: str
) -> None:
    """By all models of the session, and not by the last one alone."""
    parts: list[Part] = []
    rules: dict[str, Any] = {"keep_recent": {"log": 1}, "pricing": None, "window": None, "preview_above_tokens": None}
    with History("s", root_path=tmp_path, **rules) as history:
        for model, factor in models.items():
            for lines in (100, 400, 50, 500, 150, 300, 80):
                call_id = f"{model}_{lines}"
                text = "".join(f"{call_id} {line}: {WORDS}" for line in range(lines))
                parts.append(Part("reply", "I read it.", len(parts)))
                parts.append(Part("call", {"lines": lines}, len(parts), call_id, "log"))
                parts.append(Part("result", text, len(parts), call_id, "log"))
                counted = history.rewrite(parts).tokens
                history.replied(Usage(input_tokens=round(factor * counted)), model=model)
    code, out, err = explain("s")
    assert code == 0, err
    assert said in " ".join(out.decode().split())
    least, most = as_json(explain)["effect"]["billed_per_counted"]
    assert (least, most) == pytest.approx((min(models.values()), max(models.values())), rel=0.01)
