"""The planner's ledger: what it keeps up against a recount, and what calls and read-backs cost by it."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.eviction.economics.held import Candidate
from ctxfs.eviction.economics.ledger import Ledger, OpenReadBacks, read_backs_in
from ctxfs.eviction.economics.parameters import EvictionParameters, ItemKind
from ctxfs.eviction.economics.planner import plan

BOLD = EvictionParameters(max_loss=1.0, cover=0.0)


def item(item_id: str, tokens: int = 6_000, **more: Any) -> Candidate:
    return Candidate(**{"id": item_id, "kind": ItemKind.RESULT, "tokens": tokens, "placeholder_tokens": 50, **more})


def later(ledger: Ledger, calls: int, tokens: int = 5) -> Ledger:
    """So many calls in which nothing happens but talk."""
    for _ in range(calls):
        ledger.added([tokens]).replied([tokens])
    return ledger


def with_one(candidate: Candidate) -> Ledger:
    return Ledger(parameters=BOLD).added([3_000, candidate]).replied([100])


PARTS = st.lists(st.one_of(st.integers(0, 500), st.tuples(st.integers(1, 5_000))), max_size=4)


@given(turns=st.lists(st.tuples(PARTS, PARTS), max_size=25))
def test_the_ledger_agrees_with_a_recount(turns: list[tuple[Any, Any]]) -> None:
    ledger = Ledger(parameters=BOLD)
    context: list[Candidate | int] = []

    def parts(drawn: Any) -> list[Candidate | int]:
        made: list[Candidate | int] = []
        for part in drawn:
            made.append(part if isinstance(part, int) else item(str(len(context) + len(made)), part[0]))
        context.extend(made)
        return made

    left: set[str] = set()

    def sizes() -> list[int]:
        return [p if isinstance(p, int) else p.placeholder_tokens if p.id in left else p.tokens for p in context]

    for added, reply in turns:
        ledger.added(parts(added))
        decided = plan(ledger)
        assert plan(ledger) == decided
        untouched = ledger.copy()
        ledger.evicted(decided)
        left |= set(decided)
        assert plan(untouched) == decided  # a copy does not change with it
        assert ledger.total_tokens == sum(sizes())
        assert left.isdisjoint(ledger.held)
        held = [h for block in ledger.chain.blocks() for h in reversed(block.items)][::-1]
        assert held == list(ledger.held.values())
        if held:
            start = next(i for i, p in enumerate(context) if isinstance(p, Candidate) and p.id == held[0].id)
            assert sum(h.candidate.tokens + h.tokens_after for h in held) == sum(sizes()[start:])
            assert sum(b.tokens for b in ledger.chain.blocks()) == sum(sizes()[start:])
        said = parts(reply)
        ledger.replied(said)
        assert ledger.new_tokens == sum(p if isinstance(p, int) else p.tokens for p in said)


CANDIDATES = st.tuples(st.integers(60, 5_000), st.booleans(), st.booleans())  # tokens, pinned, leaves
SENT_OR_NEW = st.lists(st.one_of(st.integers(0, 500), CANDIDATES), max_size=8)


@given(sent=SENT_OR_NEW, new=SENT_OR_NEW, cold=st.booleans())
def test_whatever_leaves_is_accounted_for(sent: list[Any], new: list[Any], cold: bool) -> None:
    parts: list[Candidate | int] = [
        part if isinstance(part, int) else item(str(number), part[0], pinned=part[1])
        for number, part in enumerate([*sent, *new])
    ]
    leaving = [str(n) for n, part in enumerate([*sent, *new]) if not isinstance(part, int) and part[2]]
    before = Ledger().added(parts[: len(sent)]).replied([7]).added(parts[len(sent) :])
    after = before.copy().evicted(leaving, cold=cold)

    context: list[Candidate | int] = [*parts[: len(sent)], 7, *parts[len(sent) :]]
    sizes = [p if isinstance(p, int) else 50 if p.id in leaving else p.tokens for p in context]
    assert after.total_tokens == sum(sizes)
    assert after.new_tokens == sum(sizes[len(sent) :])
    stays = [n for n, p in enumerate(context) if isinstance(p, Candidate) and p.id not in leaving]
    followed = [sum(sizes[start + 1 : end]) for start, end in pairwise([*stays, len(context)])]
    assert [h.tokens_after for h in after.held.values()] == followed
    gone = [(n, p) for n, p in enumerate(context) if isinstance(p, Candidate) and p.id in leaving]
    assert after.gone_new_tokens == sum(p.tokens - 50 for n, p in gone if n > len(sent))
    assert after.gone_tokens == sum(p.tokens - 50 for n, p in gone if n < len(sent) and not p.pinned)
    first = min((n for n, p in gone if n < len(sent) and not p.pinned), default=len(sent))
    rewrite = 0.0 if cold else 1.15 * sum(sizes[first : len(sent)])
    assert before.saved - after.saved == pytest.approx(rewrite)
    hazards = [after.parameters.hazard(p.kind, p.tokens) for _, p in gone]
    assert sum(after.open_read_backs.sums.values()) == pytest.approx(sum(hazards))


def test_what_leaves_by_another_rule_costs_and_saves_nothing() -> None:
    pinned = later(with_one(item("a", pinned=True)), 5)
    total = pinned.total_tokens
    pinned.evicted(["a"]).replied([])
    assert (pinned.saved, pinned.gone_tokens, pinned.total_tokens) == (0, 0, total - 5_950)


def test_an_item_whose_placeholder_saves_nothing_is_held_no_longer() -> None:
    ledger = Ledger().added([item("a"), 70, item("b"), 30]).replied([100])
    assert [h.tokens_after for h in ledger.held.values()] == [70, 130]
    first = ledger.copy()
    second = ledger.copy()
    assert first.resized({"a": 6_000})
    assert second.resized({"b": 6_000})
    assert [(name, h.tokens_after) for name, h in first.held.items()] == [("b", 130)]
    assert [(name, h.tokens_after) for name, h in second.held.items()] == [("a", 70 + 6_000 + 130)]
    assert first.total_tokens == second.total_tokens == ledger.total_tokens


def test_arguments_that_were_never_sent_leave_without_a_rewrite() -> None:
    told = Ledger(parameters=BOLD).added([10_000]).replied([20, item("a", kind=ItemKind.ARGUMENTS)]).added([30])
    told.evicted(["a"])
    assert (told.gone_new_tokens, told.gone_tokens, told.saved) == (5_950, 0, 0)


def test_a_read_back_costs_the_reply_that_asks_for_it_and_the_request_that_carries_it() -> None:
    """Never evicting needs neither, and what was read back is no longer gone."""
    ledger = with_one(item("a")).added([]).evicted(["a"]).replied([120])
    spent, saved, gone = ledger.spent, ledger.saved, ledger.gone_tokens
    paid = 0.1 * ledger.total_tokens - 0.1 * 120 + 1.25 * 1_120 + 5 * 120
    ledger.read_back("a", [1_000])
    assert ledger.is_detour
    ledger.replied([50])
    assert ledger.spent == spent
    assert ledger.saved == pytest.approx(saved - paid)
    assert ledger.gone_tokens == gone - 1_120
    assert ledger.total_tokens + ledger.gone_tokens == 3_000 + 6_000 + 100 + 50


def test_a_read_back_beside_other_results_costs_its_page_alone() -> None:
    before = with_one(item("a")).added([]).evicted(["a"]).replied([120])
    for page_first in (True, False):
        ledger = before.copy()
        if page_first:
            ledger.read_back("a", [700]).added([300])
        else:
            ledger.added([300]).read_back("a", [700])
        assert not ledger.is_detour
        ledger.replied([])
        assert ledger.gone_tokens == before.gone_tokens - 700
        assert ledger.spent - before.spent == pytest.approx(0.1 * (3_000 + 6_000 + 100) + 1.25 * 420)
        assert ledger.saved - before.saved == pytest.approx(0.1 * before.gone_tokens - 1.25 * 700)


def test_what_never_left_is_read_like_anything_else() -> None:
    ledger = with_one(item("a")).read_back("b", [700])
    assert (ledger.is_detour, ledger.gone_new_tokens, ledger.new_tokens) == (False, 0, 800)


def test_a_preview_saves_what_it_hides_and_may_be_read_back() -> None:
    ledger = Ledger().added([3_000, item("a", 1_000, hidden_tokens=20_000)])
    hazard = ledger.parameters.hazard(ItemKind.RESULT, 21_000)
    assert (ledger.total_tokens, ledger.gone_new_tokens) == (4_000, 20_000)
    assert ledger.open_read_backs.sums == {0: hazard}
    ledger.replied([100])
    assert ledger.saved == pytest.approx(1.25 * 20_000)
    assert ledger.copy().read_back("a", [1_000]).is_detour
    ledger.evicted(["a"])
    assert ledger.open_read_backs.sums == {0: hazard}  # it was counted when it came


@pytest.mark.parametrize("were_sent", [True, False])
def test_a_copy_that_leaves_with_an_item_is_accounted_for_as_if_it_had_been_held(were_sent: bool) -> None:
    """It is text that stays, for the planner, and smaller from then on."""
    first, copy = item("a"), item("b")

    def before(second: Candidate | int) -> Ledger:
        new = [first, second]
        sent = Ledger().added([1_000, *(new if were_sent else [])]).replied([7])
        return sent.added([50, *([] if were_sent else new)]).evicted(["a", "b"])

    held = before(copy)
    saved = copy.tokens - copy.placeholder_tokens
    told = before(copy.tokens).recounted(
        [held.total_tokens],
        freed_tokens=saved if were_sent else 0,
        freed_new_tokens=0 if were_sent else saved,
    )
    assert (told.total_tokens, told.new_tokens) == (held.total_tokens, held.new_tokens)
    assert (told.gone_tokens, told.gone_new_tokens) == (held.gone_tokens, held.gone_new_tokens)


def test_after_a_rewrite_of_the_context_nothing_of_it_is_cached() -> None:
    ledger = later(with_one(item("a")), 60).evicted(["a"])
    calls, saved, spent = ledger.calls, ledger.saved, ledger.spent
    ledger.rebuilt([500, item("b"), 100])
    assert (ledger.total_tokens, ledger.new_tokens, list(ledger.held)) == (6_600, 6_600, ["b"])
    assert ledger.calls == calls
    ledger.replied([])
    assert ledger.spent - spent == pytest.approx(1.25 * 6_600)
    assert ledger.saved == saved


def test_after_a_rewrite_of_the_context_ages_count_on() -> None:
    ledger = with_one(item("a")).evicted(["a"]).read_back("a", [item("b", 900)]).replied([10])
    ledger.read_back("a", [item("c", 900)])
    ledger.rebuilt([3_000, item("b", 900), 10, item("c", 900), item("d")])
    assert [(held.id, held.came, held.used) for held in ledger.held.values()] == [("b", 1, 2), ("c", 2, 2), ("d", 1, 1)]


def test_what_is_back_in_the_context_cannot_be_read_back_any_more() -> None:
    ledger = with_one(item("a")).evicted(["a"])
    assert sum(ledger.open_read_backs.sums.values()) > 0
    ledger.rebuilt([3_000, item("a"), 100], unchanged_tokens=3_000)
    assert (ledger.left, sum(ledger.open_read_backs.sums.values())) == ({}, 0)


def test_many_calls_are_few_sums_and_expect_no_less() -> None:
    summed = OpenReadBacks()
    for came in range(1_000):
        summed.add(came, 0.01)
    assert len(summed.sums) <= 129
    assert sum(summed.sums.values()) == pytest.approx(10)
    exactly = sum(0.01 * read_backs_in(1_000 - came + 1, 8) for came in range(1_000))
    assert exactly <= summed.expected(1_000, 8) <= 1.1 * exactly


def test_what_stands_for_the_first_item_of_a_block_counts_with_the_last_one_of_the_block_before() -> None:
    ledger = Ledger(parameters=BOLD)
    for number in range(70):
        ledger.added([item(str(number)), 7])
    ledger.evicted(["3"])
    assert ledger.held["2"].tokens_after == ledger.held["69"].tokens_after + 50 + 7
    ledger.evicted(["64"])
    assert ledger.held["63"].tokens_after == 7 + 50 + 7
    assert ledger.held["65"].tokens_after == 7


def test_read_backs_are_expected_of_what_is_back_only_as_a_preview() -> None:
    ledger = with_one(item("a")).evicted({"a"}).replied([100])
    expected = ledger.open_read_backs.expected(ledger.calls, 10)
    assert expected > 0
    ledger.rebuilt([3_000, item("a", 1_000, hidden_tokens=5_000), 100])
    assert ledger.open_read_backs.expected(ledger.calls, 10) == pytest.approx(expected)
    ledger.rebuilt([3_000, item("a"), 100])
    assert ledger.open_read_backs.expected(ledger.calls, 10) == pytest.approx(0)
