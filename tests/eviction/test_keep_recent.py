"""Keep-recent, against the rule written the slow way."""

from collections.abc import Collection, Mapping

from hypothesis import given
from hypothesis import strategies as st

from ctxfs.eviction.candidates import Candidates, Holds
from ctxfs.eviction.keep_recent import EphemeralLedger, unknown_tools
from ctxfs.eviction.offload_plan import Offload, Plan
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import ToolMessage, UserMessage
from session_items import make_item


def result(number: int, tool: str = "Read", *, placeholder: str | None = "gone", tokens: int = 100) -> ContextItem:
    message = ToolMessage(f"call_{number}", tool, "content")
    return make_item(f"call_{number}", message, tokens, placeholder=placeholder, placeholder_tokens=10)


class Held:
    """A ledger of keep-recent, and the candidates that it reads."""

    def __init__(self, keep_recent: Mapping[str, int]) -> None:
        self._candidates = Candidates()
        self._ledger = EphemeralLedger(keep_recent, self._candidates, Holds())

    def entered(self, item: ContextItem, position: int, path: str) -> None:
        self._candidates.enter(item, path)
        self._ledger.entered(item, position)

    def seen_up_to(self, position: int) -> None:
        self._ledger.seen_up_to(position)

    def refers(self, item_id: str, to: str) -> None:
        self._ledger.refers(item_id, to)

    def left(self, item_ids: Collection[str]) -> None:
        self._ledger.left(item_ids)
        self._candidates.left(item_ids)

    def restored(self, item: ContextItem, position: int) -> None:
        self._ledger.restored(item, position)

    def plan(self) -> Plan:
        return self._ledger.plan()


def ledger(**keep_recent: int) -> Held:
    return Held(keep_recent)


def due(value: Held, *, seen: int | None = None) -> list[str]:
    if seen is not None:
        value.seen_up_to(seen)
    return [offload.item_id for offload in value.plan().offloads]


def test_what_cannot_shrink_is_passed_over_and_the_last_n_still_stay() -> None:
    value = ledger(Read=2)
    for number in range(5):
        value.entered(result(number, placeholder=None if not number else "gone"), number, f"/s/call_{number}")
    assert due(value, seen=5) == ["call_1", "call_2"]


def test_the_last_n_stay_and_older_ones_leave() -> None:
    value = ledger(Read=2)
    for number in range(4):
        value.entered(result(number), number, f"/s/call_{number}")
    assert due(value, seen=4) == ["call_0", "call_1"]


def test_what_the_model_has_not_seen_never_leaves() -> None:
    value = ledger(Read=1)
    for number in range(4):
        value.entered(result(number), number, "/s")
    assert due(value) == []
    assert due(value, seen=4) == ["call_0", "call_1", "call_2"]


def test_tools_without_a_limit_keep_everything() -> None:
    value = ledger(Read=1)
    for number in range(4):
        value.entered(result(number, "Bash"), number, "/s")
    assert due(value, seen=4) == []


def test_what_would_not_shrink_stays_but_counts_among_the_last_n() -> None:
    value = ledger(Read=1)
    value.entered(result(0), 0, "/s")
    value.entered(result(1, placeholder=None), 1, "/s")
    assert due(value, seen=2) == ["call_0"]
    value.left({"call_0"})
    value.entered(result(2), 2, "/s")
    assert due(value, seen=3) == []


def test_a_result_that_is_sent_as_a_preview_is_one_of_the_last_n() -> None:
    value = ledger(Read=2)
    value.entered(result(0), 0, "/s")
    value.entered(result(1), 1, "/s")
    value.seen_up_to(2)
    for number in (2, 3, 4):  # three at once
        value.entered(result(number), number, "/s")
    value.left({"call_2", "call_3", "call_4"})
    assert due(value) == ["call_0", "call_1"]
    value.left({"call_0", "call_1"})
    value.entered(result(5), 5, "/s")
    assert due(value, seen=6) == []
    value.entered(result(6), 6, "/s")
    value.entered(result(7), 7, "/s")
    assert due(value, seen=8) == ["call_5"]


def test_what_one_of_the_last_n_refers_to_stays_with_it() -> None:
    value = ledger(Read=1, Bash=1)
    value.entered(result(0), 0, "/s")
    for number in range(1, 9):
        value.entered(result(number), number, "/s")
        value.refers(f"call_{number}", "call_0")
        value.left({f"call_{number}"})  # it is sent as a line
        assert due(value, seen=number + 1) == []
    value.refers("another", "call_0")
    value.entered(result(9), 9, "/s")
    value.entered(result(10, "Bash"), 10, "/s")
    value.refers("call_10", "call_9")
    assert due(value, seen=11) == ["call_0"]
    value.entered(result(11), 11, "/s")
    assert due(value, seen=12) == ["call_0"], "of another tool, too"


def test_a_line_behind_one_that_stays_is_not_examined_again() -> None:
    ledger = EphemeralLedger({"Read": 1}, Candidates(), Holds())
    for number in range(50):
        ledger.entered(result(number), number)
        ledger.refers(f"call_{number}", "call_0")
        if number:
            ledger.left({f"call_{number}"})
        assert ledger.due() == []
    assert len(ledger._held["Read"]) <= 2  # noqa: SLF001 - it shows nowhere else


def test_a_newer_result_that_cannot_leave_keeps_no_older_one_that_can() -> None:
    value = ledger(Read=2)
    for number, placeholder in enumerate(("gone", "gone", None)):
        value.entered(result(number, placeholder=placeholder), number, "/s")
    assert due(value, seen=3) == ["call_0"]


def test_a_result_that_is_restored_while_it_is_still_held_counts_once() -> None:
    value = ledger(Read=2)
    for number in range(3):
        value.entered(result(number), number, "/s")
    value.restored(result(2), 2)
    assert due(value, seen=3) == ["call_0"]
    value.restored(result(0), 0)
    assert due(value) == ["call_0"]


def test_other_items_change_nothing() -> None:
    item = make_item("msg_001", UserMessage("hello"), 1)
    value = ledger(Read=1)
    value.entered(item, 0, "/s")
    assert due(value, seen=9) == []


def test_the_plan_carries_path_placeholder_and_both_sizes() -> None:
    value = ledger(Read=1)
    for number in range(2):
        value.entered(result(number), number, f"/s/{number}")
    value.seen_up_to(2)
    plan = value.plan()
    (offload,) = plan.offloads
    assert isinstance(offload, Offload)
    assert (offload.path, offload.placeholder, offload.tokens_before, offload.tokens_after) == ("/s/0", "gone", 100, 10)
    assert plan.first_changed == "call_0"
    assert "Read keeps its last 1" in plan.explain()
    assert plan.tokens_freed == 90


def test_an_empty_plan_is_false_and_says_so() -> None:
    plan = ledger(Read=1).plan()
    assert not plan
    assert plan.first_changed is None
    assert plan.explain() == "nothing leaves"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(["A", "B", "C"]), st.booleans()),
        st.tuples(st.just("reply"), st.just(""), st.just(True)),
        st.tuples(st.just("evict"), st.just(""), st.just(True)),
    ),
    max_size=60,
)


@given(steps=STEPS, keep_a=st.integers(1, 4), keep_b=st.integers(1, 4))
def test_it_does_what_the_rule_says(steps: list[tuple[str, str, bool]], keep_a: int, keep_b: int) -> None:
    keep = {"A": keep_a, "B": keep_b}
    value = ledger(**keep)
    live: list[tuple[int, str, bool]] = []  # position, tool, can shrink
    gone: set[int] = set()
    position = seen = 0
    for action, tool, shrinks in steps:
        if action == "add":
            value.entered(result(position, tool, placeholder="p" if shrinks else None), position, "/s")
            live.append((position, tool, shrinks))
            position += 1
        elif action == "reply":
            position += 1
            seen = position
            value.seen_up_to(seen)
        else:
            plan = value.plan()
            value.left({offload.item_id for offload in plan.offloads})
            assert not value.plan()
            gone |= {int(offload.item_id.removeprefix("call_")) for offload in plan.offloads}
        recent = {p for name, n in keep.items() for p, t, _ in [x for x in live if x[1] == name][-n:]}
        expected = [p for p, t, s in live if t in keep and s and p < seen and p not in recent and p not in gone]
        assert due(value) == [f"call_{p}" for p in expected]


def test_what_cannot_shrink_is_not_kept_behind_one_that_waits() -> None:
    value = ledger(Read=2)
    for number in range(50):
        value.entered(result(number, placeholder=None if number else "gone"), number, f"/s/call_{number}")
    assert due(value) == []
    assert len(value._ledger._held["Read"]) == 3  # noqa: SLF001 - what is examined at each plan
    assert due(value, seen=50) == ["call_0"]


def test_a_tool_that_requests_do_not_have_is_named_with_the_one_that_was_meant() -> None:
    assert unknown_tools("keep_recent", ["search"], ["search", "read"]) is None
    assert unknown_tools("keep_recent", [], ["search"]) is None
    said = unknown_tools("keep_recent", ["zzz", "serch"], ["search", "read"])
    assert said is not None
    assert said.endswith("so it does nothing for them: 'serch' (did you mean 'search'?), 'zzz'")
