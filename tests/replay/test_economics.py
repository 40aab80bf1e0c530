"""The planner: what its ledger keeps up against a recount, and each of its rules with and without."""

from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.economics.features import ToolClass, classify, paths_of, program_of, writes
from ctxfs.economics.held import Outcome
from ctxfs.economics.ledger import ITEMS_PER_FILE, Ledger
from ctxfs.economics.ledger_steps import Added, Candidate, Left, ReadBack, Replied, Step
from ctxfs.economics.parameters import EvictionParameters
from ctxfs.economics.planner import EconomicPlan, Why, decisions, plan
from ctxfs.economics.prices import ANTHROPIC_RATES, Rates
from ctxfs.errors import ConfigError


def item(
    item_id: str,
    tokens: int = 6_000,
    *,
    tool_class: ToolClass = ToolClass.OTHER,
    paths: tuple[str, ...] = (),
    pinned: bool = False,
) -> Candidate:
    return Candidate(
        id=item_id,
        tool="Bash",
        tool_class=tool_class,
        tokens=tokens,
        placeholder_tokens=50,
        paths=paths,
        pinned=pinned,
    )


def later(ledger: Ledger, calls: int, tokens: int = 5) -> Ledger:
    """So many calls in which nothing happens but talk."""
    for _ in range(calls):
        ledger = ledger.added([tokens]).replied([tokens])
    return ledger


def with_one(candidate: Candidate, **parameters: Any) -> Ledger:
    return Ledger(parameters=EvictionParameters(**parameters)).added([3_000, candidate]).replied([100])


def leaves_after(ledger: Ledger, limit: int = 400) -> int:
    """The number of quiet calls after which the plan is not empty any more."""
    for calls in range(limit):
        if plan(ledger):
            return calls
        ledger = later(ledger, 1)
    return limit


PARTS = st.lists(
    st.one_of(st.integers(0, 500), st.tuples(st.integers(1, 5_000), st.sampled_from(("a", "b")), st.booleans())),
    max_size=4,
)


@given(turns=st.lists(st.tuples(PARTS, PARTS, st.booleans()), max_size=25))
def test_the_ledger_agrees_with_a_recount(turns: list[tuple[Any, Any, bool]]) -> None:
    ledger, context, number = Ledger(), [], 0

    def parts(drawn: Any) -> list[Candidate | int]:
        nonlocal number
        made: list[Candidate | int] = []
        for part in drawn:
            number += 1
            made.append(part if isinstance(part, int) else item(str(number), part[0], paths=(part[1],)))
        context.extend(made)
        return made

    def sizes(left: set[str]) -> list[int]:
        return [p if isinstance(p, int) else p.placeholder_tokens if p.id in left else p.tokens for p in context]

    left: set[str] = set()
    for added, reply, touches in turns:
        ledger = ledger.added(parts(added))
        decided = plan(ledger)
        assert plan(ledger) == decided
        behind = [h.tokens + h.tokens_after for h in ledger.held.values()]
        ledger = ledger.evicted(decided.item_ids)
        left |= set(decided.item_ids)
        assert not plan(ledger).evictions or plan(ledger).item_ids != decided.item_ids
        assert ledger.total_tokens == sum(sizes(left))
        assert sum(behind) <= sum(sizes(left)) + decided.tokens_freed
        assert left.isdisjoint(ledger.held)
        if ledger.held:
            first = next(iter(ledger.held))
            start = next(i for i, p in enumerate(context) if isinstance(p, Candidate) and p.id == first)
            assert sum(h.tokens + h.tokens_after for h in ledger.held.values()) == sum(sizes(left)[start:])
        said = parts(reply)
        ledger = ledger.replied(said, paths=["a"] if touches else [], changed_paths=["a"] if touches else [])
        assert ledger.new_tokens == sum(p if isinstance(p, int) else p.tokens for p in said)


STEPS = st.lists(
    st.one_of(
        st.builds(Added, PARTS),
        st.builds(Replied, PARTS, st.just(("a",)), st.sampled_from(((), ("a",)))),
        st.builds(ReadBack, st.sampled_from(("1", "2"))),
        st.builds(Left, st.sampled_from((("1",), ("2", "3"), ("4", "6", "unknown"))), st.booleans()),
    ),
    max_size=12,
)


def test_a_ledger_of_a_long_session_is_as_good_as_a_new_one() -> None:
    ledger = Ledger().added([item("a")]).replied([100]).evicted(["a"]).added([item("b")])
    for _ in range(5_000):  # tables of tables would end in a RecursionError
        ledger = ledger.replied([1])
    assert ledger.memory[ledger.left["a"]] == Outcome(left=1)
    assert plan(ledger).item_ids == ("b",)


def test_work_on_a_file_changes_nothing_about_what_left_of_it() -> None:
    ledger = Ledger().added([item("a", paths=("x",)), item("b", paths=("x",))]).replied([100]).evicted(["a"])
    worked_on = later(ledger, 9).replied([1], paths=["x"], changed_paths=["x"])
    assert list(worked_on.held) == ["b"]
    assert worked_on.held["b"].changed


@given(first=STEPS, steps=STEPS)
def test_steps_taken_in_together_are_the_same_as_one_by_one(first: list[Step], steps: list[Step]) -> None:
    number = 0

    def real(step: Step) -> Step:
        nonlocal number
        if isinstance(step, ReadBack | Left):
            return step
        drawn: list[Any] = list(step.parts)
        made: list[Candidate | int] = []
        for part in drawn:
            number += 1
            made.append(part if isinstance(part, int) else item(str(number), part[0], paths=(part[1],)))
        return replace(step, parts=made)

    start = Ledger().after(map(real, first)).evicted(["1", "2"])
    kept, made = replace(start, held=MappingProxyType(dict(start.held))), list(map(real, steps))
    one_by_one = start
    for step in made:
        one_by_one = one_by_one.after([step])
    assert start.after(made) == one_by_one
    assert list(start.after(made).held) == list(one_by_one.held)
    assert start == kept


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
    after = before.evicted(leaving, cold=cold)

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
    assert sum(outcome.left for outcome in after.memory.values()) == len(leaving)


def test_a_plan_goes_on_until_nothing_more_pays() -> None:
    ledger = later(with_one(item("a")), 60)
    assert plan(ledger).item_ids == ("a",)
    assert not plan(ledger.evicted(["a"]))


def test_an_old_item_leaves_and_a_young_one_stays() -> None:
    ledger = (
        later(with_one(item("old"), max_loss=1), 60)
        .added([item("young", 900, tool_class=ToolClass.FILE)])
        .replied([100])
    )
    assert plan(ledger).item_ids == ("old",)
    assert [v.why for v in decisions(ledger)] == [Why.BATCH, Why.YOUNG]


def test_what_was_read_from_a_file_stays_longer_than_what_a_command_printed() -> None:
    file = with_one(item("a", tool_class=ToolClass.FILE))
    assert leaves_after(file) > leaves_after(with_one(item("a")))


def test_the_dearer_a_read_back_the_longer_all_stay() -> None:
    large = replace(with_one(item("a"), seen_tokens=0), total_tokens=200_000)
    assert leaves_after(large) > leaves_after(with_one(item("a"), seen_tokens=0))
    careful, bold = (with_one(item("a"), seen_tokens=0, caution=caution) for caution in (50, 1))
    assert leaves_after(careful) > leaves_after(bold)


def test_where_cached_tokens_cost_less_nothing_stays_longer_for_it() -> None:
    def ripe_in(read: float) -> float:
        file = replace(with_one(item("a", tool_class=ToolClass.FILE)), rates=replace(ANTHROPIC_RATES, read=read))
        held = {name: h.with_pinned(False, file.parameters, file.rates) for name, h in file.held.items()}
        return decisions(replace(file, held=MappingProxyType(held)))[0].ripe_in_calls

    assert 0 < ripe_in(0.025) < ripe_in(0.05) < ripe_in(0.1)
    assert ripe_in(0.1) > ripe_in(0.5)


def test_a_rewrite_waits_for_its_rent() -> None:
    ledger = with_one(item("a"), rent_share=0.1, max_loss=1).added([30_000]).replied([100])
    patient = replace(ledger, parameters=EvictionParameters(rent_share=1.0, max_loss=1))
    assert leaves_after(ledger) < leaves_after(patient) < 400


@pytest.mark.parametrize(
    ("horizon_calls", "company_factor", "leaving"),
    [(20, 8, ("old", "nearly")), (20, 1, ("old",)), (2, 8, ("old",))],
    ids=["pays", "never early", "read-backs would cost more"],
)
def test_what_is_nearly_ripe_joins_a_batch_where_that_pays(
    horizon_calls: float, company_factor: float, leaving: tuple[str, ...]
) -> None:
    old = with_one(item("old"), horizon_calls=horizon_calls, horizon_growth=0, company_factor=company_factor)
    ledger = later(later(old, 60).added([item("nearly", 3_000)]).replied([100]), 6)
    without_cache = replace(ledger, rates=Rates(read=1, write=1, output=5))
    assert [verdict.ripe_in_calls > 0 for verdict in decisions(without_cache)] == [False, True]
    assert plan(without_cache).item_ids == leaving


def test_without_a_share_of_rent_a_batch_goes_as_soon_as_it_pays() -> None:
    ledger = later(with_one(item("a", tool_class=ToolClass.FILE), rent_share=0, max_loss=1), 8)
    assert decisions(replace(ledger, parameters=EvictionParameters(rent_share=0.01)))[0].why is Why.YOUNG
    assert decisions(ledger)[0].ripe_in_calls > 0
    assert plan(ledger).item_ids == ("a",)


def test_a_rewrite_never_costs_more_than_the_session_can_bear() -> None:
    ledger = later(with_one(item("a"), rent_share=0, max_loss=1).added([30_000]).replied([100]), 60)
    decided = plan(ledger)
    share = decided.rewrite_cost / ledger.spent
    assert plan(replace(ledger, parameters=EvictionParameters(rent_share=0, max_loss=share * 1.01))) == decided
    poor = replace(ledger, parameters=EvictionParameters(rent_share=0, max_loss=share * 0.99))
    assert not plan(poor)
    assert plan(replace(poor, saved=decided.rewrite_cost)) == decided


@given(sizes=st.lists(st.integers(1_000, 20_000), min_size=1, max_size=30), max_loss=st.floats(0, 0.2))
def test_a_session_that_ends_has_lost_no_more_than_the_parameter_allows(sizes: list[int], max_loss: float) -> None:
    parameters = EvictionParameters(max_loss=max_loss, rent_share=0, caution=0.1)
    ledger, paid, never = Ledger(parameters=parameters), 0.0, 0.0
    for number, size in enumerate(sizes):
        before = ledger.added([item(str(number), size)])
        decided = plan(before)
        now = before.evicted(decided.item_ids)
        cached, gone = now.total_tokens - now.new_tokens, before.gone_tokens
        paid += 0.1 * cached + 1.25 * now.new_tokens + decided.rewrite_cost
        never += 0.1 * (before.total_tokens - before.new_tokens + gone) + 1.25 * before.new_tokens
        ledger = now.replied([100])
        assert ledger.spent == pytest.approx(never)
        assert ledger.spent - ledger.saved == pytest.approx(paid)
        assert paid <= never * (1 + max_loss) + 1e-6


def test_what_leaves_by_another_rule_is_not_weighed() -> None:
    free, pinned = with_one(item("a")), with_one(item("a", pinned=True))
    assert leaves_after(free) < leaves_after(pinned) == 400
    assert not plan(Ledger().added([item("a", 8_000, pinned=True)]))
    assert decisions(pinned)[0].why is Why.PINNED
    after = later(pinned, 5).evicted(["a"]).replied([100])
    assert (after.saved, after.gone_tokens, after.total_tokens) == (0, 0, later(pinned, 5).total_tokens - 5_850)


def test_an_item_whose_placeholder_saves_nothing_is_held_no_longer() -> None:
    ledger = Ledger().added([item("a"), 70, item("b"), 30]).replied([100])
    assert [h.tokens_after for h in ledger.held.values()] == [70, 130]
    first, second = ledger.resized({"a": 6_000}), ledger.resized({"b": 6_000})
    assert [(name, h.tokens_after) for name, h in first.held.items()] == [("b", 130)]
    assert [(name, h.tokens_after) for name, h in second.held.items()] == [("a", 70 + 6_000 + 130)]
    assert first.total_tokens == second.total_tokens == ledger.total_tokens


def test_what_stands_behind_decides_what_is_worth_a_rewrite() -> None:
    ledger = later(with_one(item("a")).added([item("b", 400)]).replied([100]), 30)
    held = ledger.held | {"a": replace(ledger.held["a"], tokens_after=10_000_000)}
    behind = replace(ledger, held=MappingProxyType(held))
    assert plan(ledger).item_ids == ("a", "b")
    assert plan(behind).item_ids == ("b",)


@pytest.mark.parametrize(
    ("rates", "expires_at"),
    [(ANTHROPIC_RATES, 10.0), (Rates(read=1, write=1, output=5), None)],
    ids=["cold", "no cache"],
)
def test_without_a_warm_cache_a_rewrite_costs_nothing(rates: Rates, expires_at: float | None) -> None:
    ledger = Ledger(rates=rates).added([item("a")]).replied([100]).added([50_000]).replied([10])
    ledger = replace(later(ledger, 12), cache_expires_at=expires_at)
    decided = plan(ledger, now=11.0)
    assert (decided.item_ids, decided.rewrite_cost) == (("a",), 0)
    if expires_at:
        assert decided.evictions[0].why is Why.EXPIRED
        assert not plan(ledger, now=9.0)


def test_arguments_that_were_never_sent_leave_without_a_rewrite() -> None:
    written = item("a", tool_class=ToolClass.EDIT)
    careless = EvictionParameters(caution=0.01)
    told = Ledger(parameters=careless).added([10_000]).replied([20, written]).added([30])
    assert (plan(told).item_ids, plan(told).rewrite_cost) == (("a",), 0)
    after = told.evicted(["a"])
    assert (after.gone_new_tokens, after.gone_tokens, after.saved) == (5_950, 0, 0)
    assert after.memory[after.left["a"]] == Outcome(left=1)
    assert after.left["a"] == "edit:Bash"


def test_what_the_model_has_not_seen_never_leaves_otherwise() -> None:
    ledger = later(with_one(item("a")), 60).added([item("b", 400)])
    assert plan(ledger).item_ids == ("a",)
    assert [v.why for v in decisions(ledger)] == [Why.BATCH, Why.NEW]


def test_not_even_what_is_ripe_at_once_leaves_unseen() -> None:
    careless = EvictionParameters(caution=0, rent_share=0, max_loss=1)
    ledger = Ledger(parameters=careless).added([item("a")])
    assert not plan(ledger)
    assert plan(ledger.replied([1])).item_ids == ("a",)


def test_what_no_request_has_carried_stays_after_a_rewrite_of_the_context_too() -> None:
    careless = EvictionParameters(caution=0, rent_share=0, max_loss=1)
    ledger = Ledger(parameters=careless).added([item("a")]).replied([1]).added([item("b")])
    rebuilt = ledger.rebuilt([item("a"), 1, item("b")])
    assert plan(rebuilt).item_ids == ("a",)
    assert plan(rebuilt.replied([1])).item_ids == ("a", "b")


def test_work_on_a_file_keeps_what_is_known_of_it() -> None:
    quiet = later(with_one(item("a", paths=("x.py",), tool_class=ToolClass.FILE)), 8)
    busy = quiet.replied([100], paths=["x.py"])
    assert leaves_after(busy) > leaves_after(quiet.replied([100], paths=["y.py"]))
    assert leaves_after(busy) > leaves_after(quiet.replied([100], paths=["x.py"], changed_paths=["x.py"]))
    unmoved = replace(quiet, parameters=EvictionParameters(activity_factor=1.0))
    assert leaves_after(unmoved.replied([100], paths=["x.py"])) == leaves_after(unmoved.replied([100]))


def test_work_on_a_file_keeps_its_newest_items_that_are_still_here() -> None:
    ledger = Ledger()
    for number in range(ITEMS_PER_FILE + 3):
        ledger = ledger.added([item(str(number), paths=("a",))]).replied([5])
    ledger = ledger.evicted([str(ITEMS_PER_FILE + 1)]).added([item("last", paths=("a", "b"))]).replied([5])
    worked = ledger.replied([5], paths=["a"])
    younger = [i for i, held in worked.held.items() if held.born > ledger.held[i].born]
    assert younger == [*map(str, range(3, ITEMS_PER_FILE + 1)), str(ITEMS_PER_FILE + 2), "last"]
    assert len(younger) == ITEMS_PER_FILE


def test_a_tool_whose_results_are_never_missed_teaches_patience_and_the_reverse() -> None:
    ledger = with_one(item("a"), seen_tokens=0)
    lesson = ledger.held["a"].lesson
    loved = replace(ledger, memory=MappingProxyType({lesson: Outcome(left=10, read_back=40)}))
    forgotten = replace(ledger, memory=MappingProxyType({lesson: Outcome(left=40, read_back=0)}))
    assert leaves_after(forgotten) < leaves_after(ledger) < leaves_after(loved)
    untaught = EvictionParameters(memory_weight=0, seen_tokens=0)
    assert leaves_after(replace(loved, parameters=untaught)) == leaves_after(replace(ledger, parameters=untaught))


def test_a_tool_that_taught_nothing_is_as_careful_as_without_memory() -> None:
    with_memory, without = (decisions(with_one(item("a"), memory_weight=weight))[0] for weight in (5, 0))
    assert with_memory.risk == pytest.approx(without.risk)
    assert with_memory.ripe_in_calls == pytest.approx(without.ripe_in_calls)


def test_what_left_and_came_back_is_remembered() -> None:
    ledger = with_one(item("seen")).added([item("new", 8_000)]).evicted(["seen", "new", "unknown"])
    ledger = ledger.read_back("new").read_back("new").read_back("unknown")
    assert dict(ledger.memory) == {
        "other:Bash": Outcome(left=2, read_back=2),
    }


def test_a_read_back_costs_the_reply_that_asks_for_it_and_the_request_that_carries_it() -> None:
    """Never evicting needs neither, and what was read back is no longer gone."""
    ledger = with_one(item("a")).added([]).evicted(["a"]).replied([120])
    back = ledger.read_back("a", [1_000])
    assert (back.is_detour, back.spent_then) == (True, ledger.spent)
    after = back.replied([50])
    paid = 0.1 * ledger.total_tokens - 0.1 * 120 + 1.25 * 1_120 + 5 * 120
    assert after.spent == ledger.spent
    assert after.saved == pytest.approx(ledger.saved - paid)
    assert after.read_back_cost == pytest.approx(paid)
    assert after.gone_tokens == ledger.gone_tokens - 1_120
    assert after.total_tokens + after.gone_tokens == 3_000 + 6_000 + 100 + 50


def test_a_read_back_beside_other_results_costs_its_page_alone() -> None:
    ledger = with_one(item("a")).added([]).evicted(["a"]).replied([120])
    for both in (ledger.read_back("a", [700]).added([300]), ledger.added([300]).read_back("a", [700])):
        assert not both.is_detour
        after = both.replied([])
        assert after.gone_tokens == ledger.gone_tokens - 700
        assert after.spent - ledger.spent == pytest.approx(0.1 * (3_000 + 6_000 + 100) + 1.25 * 420)
        assert after.saved - ledger.saved == pytest.approx(0.1 * ledger.gone_tokens - 1.25 * 700)


def test_what_never_left_is_read_like_anything_else() -> None:
    ledger = with_one(item("a"))
    assert ledger.read_back("b", [700]) == ledger.added([700])


def test_what_read_backs_lost_does_not_stop_a_batch_that_pays() -> None:
    ledger = later(with_one(item("a"), max_loss=0.1), 60)
    assert plan(ledger).item_ids == ("a",)
    assert not plan(replace(ledger, saved=-50_000.0))
    assert plan(replace(ledger, saved=-50_000.0, read_back_cost=50_000.0)).item_ids == ("a",)


def test_after_a_rewrite_of_the_context_nothing_of_it_is_cached() -> None:
    ledger = later(with_one(item("a")), 60).evicted(["a"])
    rebuilt = ledger.rebuilt([500, item("b"), 100])
    assert (rebuilt.total_tokens, rebuilt.new_tokens, list(rebuilt.held)) == (6_600, 6_600, ["b"])
    assert (rebuilt.calls, rebuilt.memory) == (ledger.calls, ledger.memory)
    unseen = ledger.added([item("c", 8_000)]).evicted(["c"])
    for before in (rebuilt, unseen.rebuilt([500, item("b"), 100])):
        after = before.replied([])
        assert after.spent - before.spent == pytest.approx(1.25 * 6_600)
        assert after.saved == before.saved
    decided = plan(replace(rebuilt, parameters=EvictionParameters(caution=0)))
    assert (decided.item_ids, decided.rewrite_cost) == (("b",), 0)


def test_a_placeholder_that_saves_nothing_is_no_use_whatever_the_parameter() -> None:
    parameters = EvictionParameters(min_saved_tokens=0)
    assert [parameters.could_leave(10, placeholder) for placeholder in (9, 10, 11)] == [True, False, False]
    assert not EvictionParameters(min_saved_tokens=2).could_leave(10, 9)


def test_a_placeholder_that_saves_too_little_is_never_planned() -> None:
    ledger = later(with_one(item("a", 59)), 300)
    assert (dict(ledger.held), plan(ledger)) == ({}, EconomicPlan())


def test_a_plan_explains_itself() -> None:
    decided = plan(later(with_one(item("a")), 60))
    assert decided.first_changed == "a"
    assert decided.tokens_freed == 5_950
    assert "a: 6,000 -> 50 tokens, evicted: reading it back" in decided.explain()
    assert "in all 5,950 tokens leave, from a on" in decided.explain()
    assert plan(Ledger()).explain() == "nothing leaves"


def test_a_verdict_says_when_an_item_will_be_ripe() -> None:
    ledger = with_one(item("a", tool_class=ToolClass.FILE))
    (verdict,) = decisions(ledger)
    assert verdict.risk > verdict.rent == pytest.approx(595)
    (ripe,) = decisions(replace(ledger, calls=ledger.calls + int(verdict.ripe_in_calls) + 1))
    assert ripe.risk < ripe.rent
    assert ripe.ripe_in_calls == 0


def test_parameters_come_from_a_table() -> None:
    values = {"caution": 2.5, "needs_by_class": {"file": 0.7}, "tool_inputs": False}
    parameters = EvictionParameters.from_mapping(values)
    assert (parameters.caution, parameters.tool_inputs) == (2.5, False)
    assert parameters.needs(ToolClass.FILE, 500) == pytest.approx(0.7)
    assert parameters.needs(ToolClass.EDIT, 500) == EvictionParameters().needs(ToolClass.EDIT, 500)


@pytest.mark.parametrize(
    "values",
    [
        {"cauton": 1},
        {"caution": -1},
        {"caution": float("nan")},
        {"caution": "much"},
        {"age_exponent": 1},
        {"company_factor": 0.5},
        {"needs_by_class": {"pictures": 1}},
        {"needs_by_class": {"file": -1}},
        {"needs_by_class": 3},
    ],
)
def test_parameters_that_cannot_work_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        EvictionParameters.from_mapping(values)


@pytest.mark.parametrize("table", ["needs_by_class", "seen_needs_by_class"])
@pytest.mark.parametrize("value", [None, ["file"], {"pictures": 1.0}])
def test_a_table_of_classes_that_cannot_work_is_refused(table: str, value: Any) -> None:
    with pytest.raises(
        ConfigError, match=rf"^{table} is .*: use a number for each of file, search, other, whole, edit$"
    ):
        EvictionParameters(**{table: value})


def test_a_class_without_needs_is_named() -> None:
    needs: dict[ToolClass, float] = {c: 0.1 for c in ToolClass if c not in (ToolClass.WHOLE, ToolClass.EDIT)}
    with pytest.raises(ConfigError, match=r"^needs_by_class has no number for whole, edit: give each class one$"):
        EvictionParameters(needs_by_class=needs)
    assert EvictionParameters(seen_needs_by_class={}).seen_needs_by_class == {}


@pytest.mark.parametrize(("calls", "rent"), [(1, 0.1 * (10 + 1.65)), (100, 1.3 * (1.25 - 0.1))])
def test_the_risk_of_an_eviction_counts_what_the_page_costs_until_it_leaves_again(calls: int, rent: float) -> None:
    ledger = Ledger(parameters=EvictionParameters(caution=50)).added([3_000, item("a", 2_000)])
    for _ in range(calls):
        ledger = ledger.replied([20]).added([20])
    (found,) = decisions(ledger)
    expected = ledger.parameters.needs(ToolClass.OTHER, 2_000) * (calls + 1) ** -ledger.parameters.age_exponent
    price = ledger.read_back_price() + ledger.parameters.page_tokens * rent
    assert found.risk == pytest.approx(50 * expected * price)


def test_parameters_are_written_as_they_are_read() -> None:
    parameters = EvictionParameters(caution=2.5, needs_by_class={**EvictionParameters().needs_by_class}, max_loss=0.5)
    assert EvictionParameters.from_mapping(parameters.to_mapping()) == parameters
    assert parameters.to_mapping()["needs_by_class"]["file"] == 0.1


def test_a_parameter_that_is_not_known_is_named_and_so_are_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"^unknown parameters cauton, size: use needs_by_class, .*caution, "):
        EvictionParameters.from_mapping({"size": 1, "cauton": 1})


def caching_from(tokens: int, added: list[Candidate | int]) -> Ledger:
    return Ledger(rates=replace(ANTHROPIC_RATES, least_cached_tokens=tokens)).added(added)


def test_no_batch_leaves_that_makes_the_context_too_short_for_the_cache() -> None:
    def left(least: int) -> tuple[str, ...]:
        seen = EvictionParameters()
        ledger = replace(caching_from(least, []), parameters=seen).added([3_000, item("a"), item("b")]).replied([100])
        ledger = later(ledger, 150)
        return plan(ledger).item_ids

    total = 3_000 + 2 * 50 + 100 + 150 * 10
    assert left(total) == ("a", "b")
    assert left(total + 1) == ("b",)
    assert left(total + 6_000) == ()


def test_calls_tell_which_files_they_are_about() -> None:
    patch = "*** Begin Patch\n*** Update File: src/a.py\n@@\n*** Add File: b.py\n"
    assert paths_of({"input": patch}) == ("src/a.py", "b.py")
    assert paths_of({"file_path": "x", "content": "y", "path": "x"}) == ("x",)
    assert writes("Edit")
    assert writes("apply_patch")
    assert not writes("Read")
    assert not writes("write_stdin")


@pytest.mark.parametrize(
    ("arguments", "program"),
    [
        ({"command": "cat src/a.py"}, "cat"),
        ({"cmd": ["bash", "-lc", "cd x && nl -ba a.py | sed -n 1,40p"]}, "nl"),
        ({"cmd": []}, ""),
        ({"command": "cat > a.py <<'EOF'\nvalue = 1\nEOF"}, ""),
        ({"command": "python - <<'EOF'\ncat\nEOF"}, "python"),
        ({"command": "FOO=1 /usr/bin/pytest -q; echo done"}, "pytest"),
        ({"command": "make || git diff"}, "git"),
        ({"command": "cd x && git show HEAD:a.py"}, "git show"),
        ({"command": "export A=1\ngrep -n x a.py"}, "grep"),
        ({"command": ""}, ""),
        ({"path": "a.py"}, ""),
    ],
)
def test_a_shell_shows_what_its_last_command_prints(arguments: dict[str, Any], program: str) -> None:
    assert program_of(arguments) == program


@pytest.mark.parametrize(
    ("tool", "is_input", "expected"),
    [
        ("Read", False, ToolClass.FILE),
        ("Grep", False, ToolClass.SEARCH),
        ("exec_command", False, ToolClass.OTHER),
        ("sed", False, ToolClass.FILE),
        ("git show", False, ToolClass.FILE),
        ("rg", False, ToolClass.SEARCH),
        ("Write", True, ToolClass.WHOLE),
        ("Edit", True, ToolClass.EDIT),
    ],
)
def test_tools_are_told_apart_by_name(tool: str, is_input: bool, expected: ToolClass) -> None:
    assert classify(tool, is_input=is_input) is expected


def test_reading_from_the_cache_is_never_dearer_than_writing_to_it() -> None:
    with pytest.raises(ConfigError):
        Rates(read=2, write=1, output=1)
