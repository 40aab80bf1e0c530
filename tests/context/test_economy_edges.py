"""What an economy makes of items, at the edges: which arguments are large, and what a placeholder mentions."""

from dataclasses import replace
from typing import Any

import pytest

from ctxfs.context.economics import Why, plan
from ctxfs.context.economics_features import ToolClass
from ctxfs.context.economics_ledger import Candidate, Ledger
from ctxfs.context.economics_parameters import EvictionParameters
from ctxfs.context.economics_prices import ANTHROPIC_RATES, Rates, prices_for
from ctxfs.context.economy import NOTHING_PREPARED, Economy, Prepared, with_placeholders
from ctxfs.context.ingest import digest_of
from ctxfs.context.items import ContentRange, ContextItem, ItemType
from ctxfs.context.layout import Names
from ctxfs.context.plan import Offload
from ctxfs.errors import ConfigError
from ctxfs.llm.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ctxfs.tokens import CharsCounter

COUNTER = CharsCounter()
WORDS = " ".join(f"identifier_{n:05d}" for n in range(1500))


def item(message: Message, item_id: str = "x", source: ContentRange | None = None) -> ContextItem:
    content = message.content
    tokens = COUNTER.count(content if isinstance(content, str) else str(content))
    kind = ItemType.TOOL_RESULT if isinstance(message, ToolMessage) else ItemType.ASSISTANT_MESSAGE
    return ContextItem(
        id=item_id,
        item_type=kind,
        message=message,
        name=f"{item_id}.json",
        token_count=tokens,
        content_tokens=tokens,
        source=source,
    )


def prepare(economy: Economy, message: Message) -> Prepared:
    names = Names()
    return economy.prepare(item(message), claim=names.claim, path_of=lambda name: f"/s/{name}", counter=COUNTER)


def call(**arguments: Any) -> AssistantMessage:
    return AssistantMessage(({"type": "tool_use", "id": "c", "name": "Write", "input": arguments},))


@pytest.mark.parametrize(("chars", "large"), [(200, False), (201, True)])
def test_an_argument_of_more_than_two_hundred_characters_is_large(chars: int, large: bool) -> None:
    economy = Economy(parameters=EvictionParameters(min_saved_tokens=0))
    trims = prepare(economy, call(text="word " * (chars // 5) + "x" * (chars % 5))).trims
    assert bool(trims) == large
    as_json = prepare(economy, call(data=["x" * (chars - 4)])).trims  # counted as JSON, with ["…"]
    assert bool(as_json) == large


def test_only_large_arguments_leave_and_the_first_says_where_they_are() -> None:
    (trim,) = prepare(Economy(), call(path="a.py", old="o " * 500, new="n " * 500, times=3)).trims
    assert list(trim.arguments) == ["path", "old", "new", "times"]
    assert (trim.arguments["path"], trim.arguments["times"]) == ("a.py", 3)
    assert str(trim.arguments["old"]).startswith("[Content offloaded]\nPath: /s/tool_input/Write/c.input.json")
    assert "old" in str(trim.arguments["new"])
    assert trim.tokens_after < trim.tokens_before
    off = Economy(parameters=EvictionParameters(tool_inputs=False))
    assert prepare(off, call(old="o " * 500)).trims == ()


def test_what_a_call_wrote_is_weighed_as_what_was_written() -> None:
    economy = Economy()
    message = call(path="a.py", content="n " * 2_000)
    economy.entered(item(message), prepare(economy, message), "/s/x.json")
    (held,) = economy.ledger.held.values()
    assert (held.candidate.tool_class, held.candidate.paths) == (ToolClass.WHOLE, ("a.py",))


def test_a_placeholder_mentions_what_was_not_known_before() -> None:
    economy = Economy()
    prepare(economy, UserMessage("look at identifier_00000 first"))
    prepare(economy, AssistantMessage(({"type": "text", "text": "I look at identifier_00001"},)))
    prepare(economy, call(text="identifier_00002"))
    digest = prepare(economy, ToolMessage("c", "Read", WORDS)).digest
    assert digest is not None
    assert digest.startswith("Mentions: identifier_00003 identifier_00004 ")
    assert prepare(economy, ToolMessage("c", "Read", "nothing new")).digest == ""


def test_messages_and_results_of_exact_tools_are_not_prepared() -> None:
    economy = Economy().for_session({"Bash"})
    assert prepare(economy, UserMessage(WORDS)) == NOTHING_PREPARED
    assert prepare(economy, ToolMessage("c", "Bash", WORDS)) == NOTHING_PREPARED
    assert prepare(economy, AssistantMessage("text")) == NOTHING_PREPARED
    assert prepare(economy, ToolMessage("c", "Read", WORDS)) != NOTHING_PREPARED


def written(economy: Economy | None, prepared: Prepared, source: ContentRange | None = None) -> tuple[str, Prepared]:
    result = item(ToolMessage("c", "Read", WORDS), source=source)
    made, after = with_placeholders(
        result, prepared, economy=economy, path="/s/c.json", counter=COUNTER, digest_tokens=200
    )
    assert made.placeholder is not None
    return made.placeholder, after


def test_who_leaves_by_its_price_is_listed_and_who_leaves_unseen_is_described_too() -> None:
    economy = Economy()
    prepared = Prepared(digest="Mentions: a b")
    placeholder, after = written(economy, prepared)
    assert placeholder.endswith("\nMentions: a b")
    assert "1 line" not in placeholder
    assert after.unseen is not None
    text, tokens = after.unseen
    assert text.startswith("[Content offloaded]\nPath: /s/c.json\n")
    assert "1 line" in text
    assert text.endswith("\nMentions: a b")
    assert tokens == COUNTER.count(text)


def test_everything_else_is_described_or_points_to_the_lines_that_it_repeats() -> None:
    economy = Economy()
    source = ContentRange(item_id="x", path="/s/first.json", first_line=1, last_line=1)
    for placeholder, after, told in (
        (*written(None, Prepared(digest="Mentions: a b")), "1 line"),
        (*written(economy, NOTHING_PREPARED), "1 line"),
        (*written(economy, Prepared(digest="Mentions: a b"), source), "/s/first.json"),
    ):
        assert told in placeholder
        assert "Mentions" not in placeholder
        assert after.unseen is None


@pytest.mark.parametrize(("arrival_tokens", "may_leave_unseen"), [(0, False), (100, True), (10**9, False)])
def test_a_result_leaves_unseen_only_above_the_parameter(arrival_tokens: int, may_leave_unseen: bool) -> None:
    economy = Economy(parameters=EvictionParameters(arrival_tokens=arrival_tokens))
    assert (written(economy, Prepared(digest="Mentions: a b"))[1].unseen is not None) == may_leave_unseen
    size = item(ToolMessage("c", "Read", WORDS)).content_tokens
    exactly = Economy(parameters=EvictionParameters(arrival_tokens=size))
    assert written(exactly, Prepared(digest="Mentions: a b"))[1].unseen is None


@pytest.mark.parametrize(("tokens", "leaves"), [(999, False), (1_000, False), (1_001, True)])
def test_an_unseen_result_of_the_arrival_size_stays(tokens: int, leaves: bool) -> None:
    candidate = Candidate(
        id="a", tool="Bash", tool_class=ToolClass.OTHER, tokens=tokens, placeholder_tokens=10, paths=(), pinned=False
    )
    ledger = Ledger(parameters=EvictionParameters(arrival_tokens=1_000, arrival_caution=0.0)).added([500, candidate])
    assert [eviction.why for eviction in plan(ledger).evictions] == ([Why.ARRIVAL] if leaves else [])
    pinned = ledger.parameters
    other = Ledger(parameters=pinned).added([500, replace(candidate, pinned=True)])
    assert not plan(other)


def test_a_result_that_left_unseen_counts_with_its_longer_placeholder() -> None:
    economy = Economy()
    before = economy.ledger.total_tokens
    result = replace(item(ToolMessage("c", "Read", WORDS), "c"), placeholder="short", placeholder_tokens=5)
    economy.entered(result, Prepared(digest="", unseen=("a longer placeholder", 40)), "/s/c.json")
    assert economy.ledger.total_tokens == before + result.token_count
    (step,) = economy.plan()
    assert isinstance(step, Offload)
    assert (step.placeholder, step.tokens_after, step.path) == ("a longer placeholder", 40, "/s/c.json")
    economy.left(["c"])
    assert economy.ledger.total_tokens == before + 40
    assert economy.plan() == ()


def test_a_reply_that_is_all_arguments_counts_once_when_the_context_is_rewritten() -> None:
    economy = Economy()
    message = call(path="a.py", content="n " * 2_000)
    prepared = prepare(economy, message)
    (trim,) = prepared.trims
    reply = replace(item(message), token_count=trim.tokens_before)
    economy.entered(reply, prepared, "/s/x.json")
    economy.rebuilt([reply])
    assert economy.ledger.total_tokens == reply.token_count


def test_a_digest_of_much_takes_nearly_a_fifth_of_it() -> None:
    text = "".join(f"{n}: error number {n * 7919} in module_{n}.py\n" for n in range(400))
    result = item(ToolMessage("c", "Read", text))
    digest = digest_of(result, counter=COUNTER, digest_tokens=10**6)
    assert 0.17 < COUNTER.count(digest) / result.content_tokens <= 0.2


@pytest.mark.parametrize(("lines", "digest_tokens"), [(4, 1_000), (12, 1_000), (400, 1_000), (400, 60), (400, 0)])
def test_a_digest_takes_a_fifth_of_its_content_at_most(lines: int, digest_tokens: int) -> None:
    text = "".join(f"{n}: error number {n * 7919} in module_{n}.py\n" for n in range(lines))
    result = item(ToolMessage("c", "Read", text))
    digest = digest_of(result, counter=COUNTER, digest_tokens=digest_tokens)
    assert COUNTER.count(digest) <= min(digest_tokens, result.content_tokens // 5)
    if lines == 400 and digest_tokens:
        assert digest


def test_what_the_planner_reckons_with_is_what_the_list_says() -> None:
    prices = prices_for("claude-sonnet-4-5")
    assert prices is not None
    assert (prices.input, prices.output) == (3.0, 15.0)
    assert ratios(prices.rates()) == pytest.approx((0.1, 1.25, 5.0))
    assert ratios(ANTHROPIC_RATES) == pytest.approx((0.1, 1.25, 5.0))
    assert ratios(prices.rates("1h")) == pytest.approx((0.1, 2.0, 5.0))
    automatic = prices_for("gpt-4o")
    assert automatic is not None
    assert ratios(automatic.rates()) == ratios(automatic.rates("1h")) == pytest.approx((0.5, 1.0, 4.0))
    cheap = prices_for("claude-3-5-haiku")
    assert cheap is not None
    assert (cheap.cache_read, cheap.cache_write_5m, cheap.cache_write_1h) == pytest.approx((0.08, 1.0, 1.6))


@pytest.mark.parametrize("wrong", [{"read": 0}, {"write": 0.05}, {"output": 0}, {"output": -1}, {"read": -0.1}])
def test_prices_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="prices are positive"):
        Rates(**{"read": 0.1, "write": 1.25, "output": 5.0, **wrong})


def ratios(rates: Rates) -> tuple[float, float, float]:
    return rates.read, rates.write, rates.output
