"""What an economy makes of items, at the edges: which arguments are large, and what a placeholder mentions."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.context.commit import trimmed
from ctxfs.context.entry import Entry, EntryRules, Known, new_entry, recorded_entry
from ctxfs.errors import ConfigError
from ctxfs.eviction.candidates import Candidates, EvictionOptions
from ctxfs.eviction.economics.economy import ModelPricing, SessionPricing
from ctxfs.eviction.economics.held import Candidate
from ctxfs.eviction.economics.ledger import Ledger
from ctxfs.eviction.economics.parameters import ItemKind
from ctxfs.eviction.placeholder.attach import digest_budget, digest_of
from ctxfs.eviction.placeholder.identifiers import identifiers_in
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.preview import Preview, PreviewRule
from ctxfs.messages import CharsCounter
from ctxfs.messages.items import ContentRange, ContextItem
from ctxfs.messages.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ctxfs.messages.names import NameAllocator, short_name
from ctxfs.messages.rates import ANTHROPIC_RATES, Rates
from ctxfs.messages.tokens import count_content
from ctxfs.text.jsontext import codec as json_codec
from session_items import make_item

COUNTER = CharsCounter()
WORDS = " ".join(f"identifier_{n:05d}" for n in range(1500))


def item(message: Message, item_id: str = "x", source: ContentRange | None = None) -> ContextItem:
    content = message.content
    tokens = COUNTER.count(content if isinstance(content, str) else str(content))
    return make_item(item_id, message, tokens, source=source, name=f"{item_id}.json")


def rules(exact: frozenset[str] = frozenset(), *, by_price: bool = True) -> EntryRules:
    policy = OffloadPolicy(digest_tokens=200)
    return EntryRules(counter=COUNTER, base="/s", policy=policy, by_price=by_price, exact=exact)


def entry(message: Message, known: Known | None = None) -> Entry:
    """What ``message`` enters as, into a session that knows ``known``, and from now on this too."""
    known = known or Known(NameAllocator())
    return new_entry(item(message), known, rules())


class Session:
    """An economy, and the candidates that it reads."""

    def __init__(self, settings: ModelPricing | None = None) -> None:
        self.candidates = Candidates()
        self.economy = SessionPricing(settings or ModelPricing(), self.candidates)

    def entered(self, item: ContextItem, options: EvictionOptions, path: str) -> None:
        self.candidates.enter(item, path, options)
        self.economy.entered(item)

    def left(self, item: ContextItem) -> None:
        shrinkable = {item.id: item} if item.can_shrink else {}
        self.economy.left([item.id], shrinkable)
        self.candidates.left([item.id], shrinkable)


def call(**arguments: Any) -> AssistantMessage:
    return AssistantMessage(({"type": "tool_use", "id": "c", "name": "Write", "input": arguments},))


@pytest.mark.parametrize(("chars", "large"), [(200, False), (201, True)])
def test_an_argument_of_more_than_two_hundred_characters_is_large(chars: int, large: bool) -> None:
    text = entry(call(text="word " * (chars // 5) + "x" * (chars % 5)))
    assert bool(text.options.trims) == large
    as_json = entry(call(data=["x" * (chars - 4)]))  # counted as JSON, with ["…"]
    assert bool(as_json.options.trims) == large


def test_only_large_arguments_leave_and_the_first_says_where_they_are() -> None:
    (trim,) = entry(call(path="a.py", old="o " * 500, new="n " * 500, times=3)).options.trims
    assert list(trim.arguments) == ["path", "old", "new", "times"]
    assert (trim.arguments["path"], trim.arguments["times"]) == ("a.py", 3)
    assert str(trim.arguments["old"]).startswith(f"[Content offloaded: Read {short_name('c.input')}]")
    assert "old" in str(trim.arguments["new"])
    assert trim.tokens_after < trim.tokens_before
    keeps = replace(rules(), policy=OffloadPolicy(type_enabled={"tool_input": False}))
    assert new_entry(item(call(old="o " * 500)), Known(NameAllocator()), keeps).options.trims == ()


@pytest.mark.parametrize(
    "value", ["\ud800" + "ü" * 500, [["\ud800", "ü" * 500]], [1e22, 1e-7] * 50], ids=["text", "list", "floats"]
)
def test_arguments_are_counted_as_they_were_when_they_entered(value: Any) -> None:
    message = call(value=value, path="ü")
    reply = replace(item(message), token_count=count_content(COUNTER, message.content))
    (trim,) = new_entry(reply, Known(NameAllocator()), rules()).options.trims
    assert trim.tokens_before == reply.token_count - COUNTER.count("Write")
    left = trimmed(reply, trim)
    assert left.token_count == count_content(COUNTER, left.message.content)
    stored = trim.stored.message.content[0]
    assert isinstance(stored, dict)
    assert (json_codec.loads(stored["text"]) if stored["json"] else stored["text"]) == value


def test_a_reply_of_a_session_that_had_another_counter_is_counted_again() -> None:
    message = call(text="word " * 500)
    made = recorded_entry(replace(item(message), token_count=7), Known(NameAllocator()), rules())
    left = trimmed(made.item, made.options.trims[0])
    assert left.token_count == count_content(COUNTER, left.message.content)


def test_what_a_call_wrote_is_weighed_as_what_was_written() -> None:
    session = Session()
    message = call(path="a.py", content="n " * 2_000)
    session.entered(item(message), entry(message).options, "/s/x.json")
    (held,) = session.economy.ledger.held.values()
    assert held.candidate.kind is ItemKind.ARGUMENTS


def test_a_placeholder_mentions_what_was_not_known_before() -> None:
    known = Known(NameAllocator())
    entry(UserMessage("look at identifier_00000 first"), known=known)
    entry(AssistantMessage(({"type": "text", "text": "I look at identifier_00001"},)), known=known)
    entry(call(text="identifier_00002"), known=known)
    placeholder = entry(ToolMessage("c", "Read", WORDS), known=known).options.placeholder
    assert placeholder is not None
    assert "\nMentions: identifier_00003…01499" in placeholder.write()[0]
    again = entry(ToolMessage("c", "Read", WORDS), known=known).options.placeholder
    assert again is not None
    assert "Mentions" not in again.write()[0]


def test_what_is_only_decided_is_not_known() -> None:
    known = Known(NameAllocator())
    reply, result = call(text="identifier_00001 " * 50), ToolMessage("c", "Read", WORDS)
    messages: list[Message] = [UserMessage("identifier_00000"), reply, result]
    draft = known.draft()
    decided = [new_entry(item(message), draft, rules()) for message in messages]
    other = known.draft()
    assert decided == [new_entry(item(message), other, rules()) for message in messages]
    assert decided[1].new_ids == ("x", "c.input")
    assert all(known.names.is_free(item_id) for item_id in decided[1].new_ids)
    known.take(draft)
    assert not known.names.is_free("C.input")
    assert known.identifiers.bring([WORDS]).names() == []


def test_what_a_preview_hides_is_not_known() -> None:
    text = "\n".join(WORDS.split())
    preview = Preview(rule=PreviewRule(preview_above_tokens=1_000), tools=("Read",))
    known = Known(NameAllocator())
    made = new_entry(item(ToolMessage("c", "Bash", text)), known, replace(rules(), eager=preview))
    assert made.eager is not None
    assert "identifier_00000" in made.eager.offload.placeholder
    assert known.identifiers.bring(["identifier_00000 identifier_00700"]).names() == ["identifier_00700"]


def test_messages_and_results_of_exact_tools_are_not_evicted_by_their_price() -> None:
    known, exact = Known(NameAllocator()), rules(frozenset({"Bash"}))
    for message in (UserMessage(WORDS), ToolMessage("c", "Bash", WORDS), AssistantMessage("text")):
        made = new_entry(item(message), known, exact)
        assert made.options.trims == ()
        assert made.options.placeholder is None or "Mentions" not in made.options.placeholder.write()[0]


def written(rules: EntryRules, source: ContentRange | None = None) -> tuple[str, EvictionOptions]:
    made = new_entry(item(ToolMessage("c", "Read", WORDS), source=source), Known(NameAllocator()), rules)
    assert made.options.placeholder is not None
    return made.options.placeholder.write()[0], made.options


def test_what_leaves_by_its_price_is_listed() -> None:
    placeholder, _ = written(rules())
    assert placeholder == f"[Content offloaded: Read {short_name('x')}]\nMentions: identifier_00000…01499"


def test_everything_else_is_described_or_points_to_the_lines_that_it_repeats() -> None:
    source = ContentRange(item_id="first", path="/s/first.json", first_line=3, last_line=7)
    for placeholder, options, told in (
        (*written(rules(by_price=False)), "1 line"),
        (*written(rules(), source), f"[Content offloaded: Read {short_name('first')}, offset=3, limit=5]"),
        (*written(replace(rules(), by_path=True), source), "/s/first.json"),
    ):
        assert told in placeholder
        assert "Mentions" not in placeholder
        assert options.trims == ()


def test_a_reply_that_is_all_arguments_counts_once_when_the_context_is_rewritten() -> None:
    session = Session()
    message = call(path="a.py", content="n " * 2_000)
    options = entry(message).options
    (trim,) = options.trims
    reply = replace(item(message), token_count=trim.tokens_before)
    session.entered(reply, options, "/s/x.json")
    session.economy.rebuilt([reply], unchanged=0)
    assert session.economy.ledger.total_tokens == reply.token_count


@given(st.text(st.sampled_from("abAZ09_./:- \n,ü→😀"), max_size=200))
def test_identifiers_are_runs_of_twelve_characters_or_more_in_order(text: str) -> None:
    assert list(identifiers_in(text)) == list(dict.fromkeys(re.findall(r"[A-Za-z0-9_./:-]{12,}", text)))


@pytest.mark.parametrize(("lines", "low", "high"), [(80, 0.17, 0.2), (400, 0.05, 1 / 16)])
def test_a_digest_takes_nearly_a_fifth_of_its_content_and_a_long_one_a_sixteenth(
    lines: int, low: float, high: float
) -> None:
    text = "".join(f"{n}: error number {n * 7919} in module_{n}.py\n" for n in range(lines))
    result = item(ToolMessage("c", "Read", text))
    digest = digest_of(result, counter=COUNTER, digest_tokens=10**6)
    assert low < COUNTER.count(digest) / result.content_tokens <= high


@pytest.mark.parametrize(
    ("content", "set_to", "budget"),
    [
        (999, 1_000, 199),
        (1_000, 1_000, 200),
        (3_215, 1_000, 200),
        (3_216, 1_000, 201),
        (9_600, 1_000, 600),
        (99_000, 1_000, 1_000),
        (99_000, 1_600, 1_600),
        (99_000, 200, 200),  # as in sessions that recorded the former default
        (99_000, 0, 0),
    ],
)
def test_how_long_a_digest_may_be(content: int, set_to: int, budget: int) -> None:
    assert digest_budget(content, set_to) == budget


@pytest.mark.parametrize(("lines", "digest_tokens"), [(4, 1_000), (12, 1_000), (400, 1_000), (400, 60), (400, 0)])
def test_a_digest_takes_a_fifth_of_its_content_at_most(lines: int, digest_tokens: int) -> None:
    text = "".join(f"{n}: error number {n * 7919} in module_{n}.py\n" for n in range(lines))
    result = item(ToolMessage("c", "Read", text))
    digest = digest_of(result, counter=COUNTER, digest_tokens=digest_tokens)
    assert COUNTER.count(digest) <= min(digest_tokens, result.content_tokens // 5)
    if lines == 400 and digest_tokens:
        assert digest


@pytest.mark.parametrize("wrong", [{"read": 0}, {"write": 0.05}, {"output": 0}, {"output": -1}, {"read": -0.1}])
def test_prices_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"prices are positive|use a number, 0 or more"):
        Rates.from_mapping({"read": 0.1, "write": 1.25, "output": 5.0, **wrong})


STEPPED = replace(
    ANTHROPIC_RATES, steps=((200, Rates(read=2, write=3, output=4)), (100, Rates(read=1, write=2, output=3)))
)


def test_above_a_step_its_rates_count() -> None:
    assert [STEPPED.at(tokens).read for tokens in (0, 100, 101, 200, 201)] == [0.1, 0.1, 1, 1, 2]
    assert [above_tokens for above_tokens, _ in STEPPED.steps] == [100, 200]


@pytest.mark.parametrize(
    "rates",
    [
        ANTHROPIC_RATES,
        STEPPED,
        replace(ANTHROPIC_RATES, least_cached_tokens=4_096),
        replace(ANTHROPIC_RATES, rewrites_all=True),
    ],
)
def test_rates_are_read_as_they_are_written(rates: Rates) -> None:
    written = rates.to_mapping()
    assert Rates.from_mapping(json.loads(json.dumps(written))) == rates
    assert ("steps" in written) == bool(rates.steps)
    assert ("least_cached_tokens" in written) == bool(rates.least_cached_tokens)


@pytest.mark.parametrize(
    "wrong",
    [
        {"discount": 1},
        {"steps": [1]},
        {"steps": {"many": {"read": 1, "write": 1, "output": 1}}},
        {"steps": {"0": {"read": 1, "write": 1, "output": 1}}},
        {"steps": {"7": {}}},
        {"least_cached_tokens": -1},
        {"least_cached_tokens": 0.5},
        {"rewrites_all": 1},
    ],
)
def test_rates_in_another_form_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"rates|step|least_cached_tokens|rewrites_all"):
        Rates.from_mapping({**ANTHROPIC_RATES.to_mapping(), **wrong})


@pytest.mark.parametrize("steps", [None, {100: ANTHROPIC_RATES}, (100,), ((100,),), ((100, None),), ((100, 0.1),)])
def test_steps_are_pairs(steps: Any) -> None:
    with pytest.raises(ConfigError, match="pairs of a number of tokens and the Rates"):
        replace(ANTHROPIC_RATES, steps=steps)


def test_a_price_may_rise_from_the_second_token_on_and_not_from_the_first() -> None:
    first = Rates(read=1, write=2, output=3)
    assert replace(ANTHROPIC_RATES, steps=((1, first),)).steps == ((1, first),)
    with pytest.raises(ConfigError, match="a step"):
        replace(ANTHROPIC_RATES, steps=((0, first),))


def test_what_was_never_sent_is_saved_again_with_every_call() -> None:
    candidate = Candidate(id="a", kind=ItemKind.ARGUMENTS, tokens=6_000, placeholder_tokens=50)
    gone = Ledger().added([1_000, candidate]).evicted(["a"]).replied([]).added([10])
    rates, twice = gone.rates, gone.copy().replied([])
    assert twice.saved - gone.saved == pytest.approx(rates.read * 5_950)
    assert twice.spent - gone.spent == pytest.approx(rates.read * (1_000 + 6_000) + rates.write * 10)
