"""The bill, added up by hand: one token a character, reading 0.1, writing 1.25, output 5."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxfs.lab.recordings.recording import Message, Recording, Role
from ctxfs.lab.replay.cost import Cached, Policy, Replacement, Run, replay_session
from ctxfs.lab.replay.economic import Economic
from ctxfs.lab.replay.policies import LAB_POLICIES, Never, oracle_cost, policy_named
from ctxfs.lab.replay.session import Item, Session, distinctive, prepare
from ctxfs.messages.base import Usage
from ctxfs.messages.rates import ANTHROPIC_RATES, Rates
from replay_samples import call, chars, recordings, result, session, text

NAMES = [
    *LAB_POLICIES,
    "eager-100",
    "exact-1",
    "clear-500-keep-1",
    "clear-500-keep-0-clear-at-least-200",
    "patient-8",
]


FEWER = settings(max_examples=settings().max_examples // 3)
"""An example is replayed under each of the policies: twenty of them are 200 replays."""


def policies() -> list[Policy]:
    """One of each kind. A property tries all of them on each recording that it draws, which is what costs."""
    return [policy_named(name, rates=ANTHROPIC_RATES, count=chars) for name in NAMES]


@dataclass
class Scripted:
    """Replaces the item of an index at a call, and remembers what it was told."""

    at: dict[int, Replacement]
    name: str = "scripted"
    pages: list[tuple[int, Item]] = field(default_factory=list)
    billed: list[tuple[int, int]] = field(default_factory=list)
    calls: int = 0

    def start(self, _session: Session) -> Run:
        self.calls = 0
        return self

    def plan(self, _added: Sequence[Item], _at: float) -> Sequence[Replacement]:
        self.calls += 1
        return [self.at[self.calls]] if self.calls in self.at else ()

    def replied(self, _reply: Sequence[Item], billed: Usage) -> None:
        self.billed.append((billed.cache_read_input_tokens, billed.cache_creation_input_tokens))

    def read_back(self, index: int, call: Item, page: Item, billed: Usage) -> None:
        self.replied((), billed)
        self.pages.append((index, page))


def reading(content: str, reply: str) -> Session:
    return session(
        [
            text(Role.USER, "u" * 100),
            call(1, "Read", {"path": "a"}),
            result(1, "Read", content),
            text(Role.ASSISTANT, "b" * 50),
            text(Role.USER, "c" * 10),
            text(Role.ASSISTANT, reply),
        ]
    )


CALL = len('Read{"path":"a"}')


def test_without_eviction_each_token_is_written_once_and_read_from_then_on() -> None:
    cost = replay_session(reading("r" * 1000, "end"), Never(), ANTHROPIC_RATES)
    second = 0.1 * 100 + 1.25 * (CALL + 1000)
    third = 0.1 * (100 + CALL + 1000) + 1.25 * (50 + 10)
    assert [c.cost for c in cost.calls] == pytest.approx([125, second, third])
    assert [c.context_tokens for c in cost.calls] == [100, 1100 + CALL, 1160 + CALL]
    assert (cost.prefix_breaks, cost.evictions, cost.read_backs) == (0, 0, 0)


def test_an_eviction_rewrites_what_stands_behind_it() -> None:
    policy = Scripted({3: Replacement(2, 40)})
    cost = replay_session(reading("r" * 1000, "end"), policy, ANTHROPIC_RATES)
    assert cost.calls[2].cost == pytest.approx(0.1 * (100 + CALL) + 1.25 * (40 + 50 + 10))
    assert (cost.prefix_breaks, cost.evictions, cost.stored_bytes) == (1, 1, 1000)


def test_a_later_use_is_hidden_if_it_is_visible_nowhere_as_the_reply_begins() -> None:
    content = "a_name_of_a_kind\nanother_name_here\n"
    used = reading(content, "a_name_of_a_kind and another_name_here, a_name_of_a_kind")
    whole = replay_session(used, Never(), ANTHROPIC_RATES)
    assert (whole.later_uses, whole.hidden_uses) == (2, 0)
    gone = replay_session(used, Scripted({3: Replacement(2, 40)}), ANTHROPIC_RATES)
    assert (gone.later_uses, gone.hidden_uses, gone.read_backs) == (2, 2, 1)  # the page that is read brings both
    shown = used.vocabulary["a_name_of_a_kind"]
    named = replay_session(used, Scripted({3: Replacement(2, 40, shown=(shown,))}), ANTHROPIC_RATES)
    assert (named.later_uses, named.hidden_uses) == (2, 1)


def test_what_a_user_or_a_reply_wrote_is_no_later_use() -> None:
    said = session([text(Role.USER, "a_name_of_a_kind"), text(Role.ASSISTANT, "a_name_of_a_kind")])
    cost = replay_session(said, Never(), ANTHROPIC_RATES)
    assert (cost.later_uses, cost.hidden_uses) == (0, 0)


@pytest.mark.parametrize(("cached", "known"), [("prefix", 100 + CALL + 1_000), ("ends", 100), ("tail", 100)])
def test_a_cache_may_give_back_only_what_ended_with_a_request(cached: Cached, known: int) -> None:
    together = session(
        [
            text(Role.USER, "u" * 100),
            call(1, "Read", {"path": "a"}),
            result(1, "Read", "r" * 1_000),
            text(Role.USER, "d" * 200),
            text(Role.ASSISTANT, "b" * 50),
            text(Role.USER, "c" * 10),
            text(Role.ASSISTANT, "end"),
        ]
    )
    cost = replay_session(together, Scripted({3: Replacement(3, 40)}), ANTHROPIC_RATES, cached=cached)
    assert cost.calls[2].cost == pytest.approx(0.1 * known + 1.25 * (100 + CALL + 1_000 + 40 + 50 + 10 - known))
    assert cost.calls[1].cost == pytest.approx(0.1 * 100 + 1.25 * (CALL + 1_200))


def exchanges(number: int) -> Session:
    """A question, and so many exchanges of two blocks, of 10 tokens each."""
    said = [text(role, "x" * 10) for _ in range(number) for role in (Role.ASSISTANT, Role.USER)]
    return session([text(Role.USER, "u" * 10), *said, text(Role.ASSISTANT, "end")])


@pytest.mark.parametrize(("changed", "known"), [(2, 0), (6, 0), (7, 7), (9, 9), (24, 23), (25, 25)])
def test_a_hosts_breakpoint_finds_what_was_cached_a_few_blocks_back(changed: int, known: int) -> None:
    of = exchanges(13)  # the 13th request has 25 blocks; the 14th request ended with 27
    policy = Scripted({14: Replacement(changed, 4)})
    cost = replay_session(of, policy, ANTHROPIC_RATES, cached="tail")
    assert cost.calls[13].cost == pytest.approx(0.1 * 10 * known + 1.25 * (10 * (27 - known) - 6))


def test_above_a_step_every_token_of_a_request_costs_more() -> None:
    stepped = replace(ANTHROPIC_RATES, steps=((1_100 + CALL, Rates(read=1, write=2, output=3)),))
    cost = replay_session(reading("r" * 1000, "end"), Never(), stepped)
    assert cost.calls[1].cost == pytest.approx(0.1 * 100 + 1.25 * (CALL + 1000))
    assert cost.calls[2].cost == pytest.approx(1 * (1100 + CALL) + 2 * 60)


def test_a_pause_as_long_as_the_caches_time_to_live_loses_all_of_it() -> None:
    of = reading("r" * 1000, "end")
    timed = replace(of, turns=tuple(replace(t, at=at) for t, at in zip(of.turns, (50, 349, 649), strict=True)))
    cost = replay_session(timed, Never(), ANTHROPIC_RATES, ttl_s=300)
    assert cost.calls[1].cost == pytest.approx(0.1 * 100 + 1.25 * (CALL + 1000))
    assert cost.calls[2].cost == pytest.approx(1.25 * (1160 + CALL))


def test_keep_recent_waits_until_the_model_has_seen_a_result() -> None:
    parallel = Recording(
        name="parallel",
        messages=(
            text(Role.USER, "read all of them"),
            call(1, "Read", {"path": "a"}),
            Message(Role.USER, tuple(result(1, "Read", letter * 100).blocks[0] for letter in "abc")),
            text(Role.ASSISTANT, "seen"),
            text(Role.USER, "and now?"),
            text(Role.ASSISTANT, "done"),
        ),
    )
    policy = policy_named("exact-1", rates=ANTHROPIC_RATES, count=chars)
    contexts = [c.context_tokens for c in replay_session(prepare(parallel, chars), policy, ANTHROPIC_RATES).calls]
    assert contexts[1] - contexts[0] == CALL + 3 * 100
    assert contexts[2] - contexts[1] == len("seen") + len("and now?") - 2 * (100 - 40)


@pytest.mark.slow
@FEWER
@given(recording=recordings())
def test_a_cache_that_gives_back_less_costs_more_once_something_leaves(recording: Recording) -> None:
    ready = prepare(recording, chars)
    for policy in policies():
        prefix = replay_session(ready, policy, ANTHROPIC_RATES)
        ends = replay_session(ready, policy, ANTHROPIC_RATES, cached="ends")
        if not isinstance(policy, Economic):  # which evicts something else where it sees that less is given back
            assert ends.cost >= prefix.cost - 1e-6, policy.name
        if not prefix.prefix_breaks:
            assert ends == prefix, policy.name


def test_what_leaves_before_it_is_sent_breaks_nothing() -> None:
    policy = Scripted({2: Replacement(2, 40)})
    cost = replay_session(reading("r" * 1000, "end"), policy, ANTHROPIC_RATES)
    assert cost.calls[1].cost == pytest.approx(0.1 * 100 + 1.25 * (CALL + 40))
    assert cost.prefix_breaks == 0


def test_a_quote_of_something_evicted_is_a_read_back() -> None:
    content = "x" * 500 + " secret_identifier " + "y" * 481
    policy = Scripted({3: Replacement(2, 40)})
    cost = replay_session(reading(content, "it is secret_identifier"), policy, ANTHROPIC_RATES)
    context = 100 + CALL + 40 + 50 + 10
    assert cost.read_backs == 1
    assert cost.read_back_cost == pytest.approx(0.1 * context + 5 * 120 + 1.25 * (120 + 1000))
    (index, page), *more = policy.pages
    assert (index, page.tokens, page.page_of, more) == (2, 1000, 2, [])
    asked_at, read = 100, context
    assert policy.billed == [
        (0, 100),
        (100, CALL + 1000),
        (asked_at + CALL, context - asked_at - CALL),
        (read, 120 + 1000),
    ]


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        ("it is secret", ()),  # too short to be distinctive
        ("it is another_identifier", ()),  # stands nowhere
        ("it is secret_identifier", (0,)),  # the placeholder says it
    ],
)
def test_what_is_not_quoted_or_still_visible_is_none(reply: str, shown: tuple[int, ...]) -> None:
    content = "x" * 5 + " secret_identifier\n" + "y" * 981
    policy = Scripted({3: Replacement(2, 40, shown)})
    assert replay_session(reading(content, reply), policy, ANTHROPIC_RATES).read_backs == 0


def test_a_placeholder_that_shrinks_is_no_second_eviction() -> None:
    content = "x" * 5 + " secret_identifier\n" + "y" * 981
    policy = Scripted({2: Replacement(2, 400, (0,)), 3: Replacement(2, 40)})
    cost = replay_session(reading(content, "it is secret_identifier"), policy, ANTHROPIC_RATES)
    assert (cost.evictions, cost.prefix_breaks, cost.stored_bytes) == (1, 1, len(content))
    assert [c.context_tokens for c in cost.calls] == [100, 100 + CALL + 400, 100 + CALL + 40 + 50 + 10]
    assert cost.read_backs == 1


def test_a_page_is_part_of_a_large_item_and_holds_what_was_looked_for() -> None:
    filler = "\n".join(f"line number {n} of the file" for n in range(400))
    policy = Scripted({3: Replacement(2, 40)})
    replay_session(reading(f"{filler}\nsecret_identifier\n{filler}", "secret_identifier"), policy, ANTHROPIC_RATES)
    ((_, page),) = policy.pages
    assert page.tokens == 1000
    assert "secret_identifier" in page.text
    assert len(page.text) <= 1000


def test_what_was_read_back_is_in_the_context_from_then_on() -> None:
    secret = "x" * 500 + " secret_identifier " + "y" * 481
    quotes = [
        text(Role.ASSISTANT, "secret_identifier"),
        text(Role.USER, "and?"),
        text(Role.ASSISTANT, "secret_identifier"),
    ]
    of = session([text(Role.USER, "u"), call(1, "Read", {"path": "a"}), result(1, "Read", secret), *quotes])
    cost = replay_session(of, Scripted({2: Replacement(2, 40)}), ANTHROPIC_RATES)
    assert cost.read_backs == 1
    assert cost.calls[2].context_tokens == 1 + CALL + 40 + 120 + 1000 + len("secret_identifier") + 4


def test_what_a_reply_can_only_know_from_the_context() -> None:
    found = distinctive('  12→    def method_name(self):\n    12\tshort\nhttps://a.b/c "x"\n')
    assert list(found) == ["https://a.b/c", "def method_name(self):"]


def test_the_oracle_keeps_what_is_used_until_its_last_use() -> None:
    used = reading("x" * 981 + "\nsecret_identifier", "it is secret_identifier")
    unused = reading("x" * 981 + "\nsecret_identifier", "no")
    saved = oracle_cost(used, ANTHROPIC_RATES, tool_inputs=False) - oracle_cost(
        unused, ANTHROPIC_RATES, tool_inputs=False
    )
    assert saved == pytest.approx(0.1 * 999)
    inputs = oracle_cost(unused, ANTHROPIC_RATES, tool_inputs=True)
    assert oracle_cost(unused, ANTHROPIC_RATES, tool_inputs=False) - inputs == pytest.approx((1.25 + 0.1) * CALL)


def test_the_oracle_forgets_what_something_else_says_too() -> None:
    def bound(said: str) -> float:
        content = "x" * 981 + "\nsecret_identifier"
        told = [text(Role.USER, said), call(1, "Read", {"path": "a"}), result(1, "Read", content)]
        of = session(
            [*told, text(Role.ASSISTANT, "b"), text(Role.USER, "c"), text(Role.ASSISTANT, "secret_identifier")]
        )
        return oracle_cost(of, ANTHROPIC_RATES, tool_inputs=False)

    assert bound("other_identifier_") - bound("secret_identifier") == pytest.approx(0.1 * 999)


@given(recording=recordings(), warm_items=st.integers(0, 1), tool_inputs=st.booleans())
def test_the_oracle_is_a_bound_also_where_the_cache_was_warm(
    recording: Recording, warm_items: int, tool_inputs: bool
) -> None:
    of = replace(prepare(recording, chars), warm_items=warm_items)
    bound = oracle_cost(of, ANTHROPIC_RATES, tool_inputs=tool_inputs)
    assert bound <= replay_session(of, Never(), ANTHROPIC_RATES).cost + 1e-6


class Checked:
    """A policy whose run is watched: each change makes the context smaller, and only what it holds changes."""

    def __init__(self, inner: Policy) -> None:
        self.inner, self.name = inner, inner.name
        self.sizes: dict[int, int] = {}

    def start(self, of: Session) -> Run:
        self.sizes, self.run = {}, self.inner.start(of)
        return self

    def plan(self, added: Sequence[Item], at: float) -> Sequence[Replacement]:
        self.replied_or_added(added)
        found = self.run.plan(added, at)
        after = {r.index: r.tokens for r in found}
        before = {index: self.sizes[index] for index in after}
        assert not found or sum(after.values()) < sum(before.values())
        grown = [index for index in after if after[index] >= before[index]]
        # Of what a summary or an archive replaces it stands in the place of one item, and may be longer than that one.
        assert len(grown) <= self.name.startswith("window")
        assert not any(after[index] for index in after if grown and index > grown[0])
        self.sizes |= after
        return found

    def replied(self, reply: Sequence[Item], billed: Usage) -> None:
        self.replied_or_added(reply)
        self.run.replied(reply, billed)

    def read_back(self, index: int, call: Item, page: Item, billed: Usage) -> None:
        self.sizes |= {call.index: call.tokens, page.index: page.tokens}
        self.run.read_back(index, call, page, billed)

    def replied_or_added(self, items: Sequence[Item]) -> None:
        self.sizes |= {i.index: i.tokens for i in items}


@pytest.mark.slow
@FEWER
@given(recording=recordings())
def test_nothing_grows_under_any_policy(recording: Recording) -> None:
    ready = prepare(recording, chars)
    never = replay_session(ready, Never(), ANTHROPIC_RATES)
    for policy in policies():
        cost = replay_session(ready, Checked(policy), ANTHROPIC_RATES)
        assert len(cost.calls) == sum(m.role is Role.ASSISTANT for m in recording.messages), policy.name
        if not cost.read_backs:
            assert cost.peak_tokens <= never.peak_tokens, policy.name


@pytest.mark.slow
@FEWER
@given(recording=recordings(), share=st.floats(0.1, 1))
def test_no_policy_sees_what_comes(recording: Recording, share: float) -> None:
    cut = Recording(name="cut", messages=recording.messages[: max(2, int(share * len(recording.messages)))])
    ready, cut_ready = prepare(recording, chars), prepare(cut, chars)
    for policy in policies():
        whole = replay_session(ready, policy, ANTHROPIC_RATES)
        part = replay_session(cut_ready, policy, ANTHROPIC_RATES)
        assert part.calls == whole.calls[: len(part.calls)], policy.name


@given(recording=recordings())
def test_without_a_cache_every_call_pays_the_whole_context(recording: Recording) -> None:
    rates = Rates(read=1, write=1, output=5)
    cost = replay_session(prepare(recording, chars), Never(), rates)
    assert cost.cost == pytest.approx(sum(c.context_tokens for c in cost.calls))
