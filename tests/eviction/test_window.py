"""The window step by step, all of it values: what is estimated, when room is made, and how."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxfs.context.commit import evicted
from ctxfs.errors import ConfigError, ContextOverflow, ModelError, Overloaded, PromptTooLong
from ctxfs.eviction.budget import Budget, Calibration
from ctxfs.eviction.compaction import ArchiveSlot, SelectiveCompaction, Strategy, View, archive_of
from ctxfs.eviction.events import Compacted, ContextEvent, SummaryFailed
from ctxfs.eviction.offload_plan import Offload, Plan
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.reduction import AskForSummary, Done, LastResort, Reduction, largest_first, summary_text
from ctxfs.eviction.window import CompactionController, Window, WindowGuard
from ctxfs.messages import CharsCounter
from ctxfs.messages.base import Reply, Usage
from ctxfs.messages.items import ContentRange, ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.messages.tokens import count_content
from session_items import make_item

BUDGET = Budget(window_tokens=11_000, reply_tokens=1_000, high_water=0.8, low_water=0.5)
SLOT = ArchiveSlot(item_id="msg_999", name="compaction_summary/msg_999.json", path="/s/msg_999.json")


Answer = Callable[[str], Reply | ModelError]
"""What a model answers to a prompt for a summary."""


def view_of(items: Sequence[ContextItem], *, counted_tokens: int = 0, pinned: Sequence[str] = ()) -> View:
    paths = {item.id: f"/s/{item.id}" for item in items}
    return View(
        items=items,
        counted_tokens=counted_tokens,
        paths=paths,
        slot=SLOT,
        with_placeholder=lambda item: item,
        pinned=pinned,
    )


def last_resort(items: Sequence[ContextItem], *, pinned: Sequence[str] = ()) -> LastResort:
    return LastResort(view=view_of(items, pinned=pinned), policy=OffloadPolicy(), counter=CharsCounter())


class Holder:
    """Items, and what is sent with every call; does what a reduction says, as a context would."""

    def __init__(self, items: Sequence[ContextItem], base_tokens: int = 0, *, broken: bool = False) -> None:
        self.items = list(items)
        self.base_tokens = base_tokens
        self.events: list[ContextEvent] = []
        self.plans: list[Plan] = []
        self.broken = broken

    @property
    def counted_tokens(self) -> int:
        return self.base_tokens + sum(item.token_count for item in self.items)

    def view(self) -> View:
        return view_of(self.items, counted_tokens=self.counted_tokens)

    def fit(self, controller: CompactionController, answer: Answer | None = None) -> None:
        self.reduce(controller, controller.fit(self.counted_tokens, CharsCounter()), answer)

    def refused(self, controller: CompactionController, error: PromptTooLong) -> None:
        self.reduce(controller, controller.refused(error, self.counted_tokens, CharsCounter()))

    def reduce(
        self, controller: CompactionController, reduction: Reduction | None, answer: Answer | None = None
    ) -> None:
        said: Reply | ModelError | None = None
        while reduction is not None:
            step = reduction.next_step(self.view(), said)
            said = None
            match step:
                case Plan():
                    self.carry_out(step)
                case AskForSummary():
                    assert answer is not None
                    said = answer(step.prompt)
                case SummaryFailed():
                    self.events.append(step)
                case Done():
                    controller.settled(step)
                    if step.compacted is not None:
                        self.events.append(step.compacted)
                    if step.error is not None:
                        raise step.error
                    return

    def carry_out(self, plan: Plan) -> None:
        self.plans.append(plan)
        if self.broken:
            return
        offloads = {step.item_id: step for step in plan.offloads if isinstance(step, Offload)}
        self.items = [evicted(i, offloads[i.id]) if i.id in offloads else i for i in self.items]
        if plan.archive is not None:
            gone = set(plan.archive.item_ids)
            summary = UserMessage(plan.archive.placeholder)
            item = make_item(plan.archive.item_id, summary, plan.archive.tokens_after, kind=ItemType.COMPACTION_SUMMARY)
            self.items = [item, *(i for i in self.items if i.id not in gone)]


def replied(text: str, stop_reason: str = "end_turn") -> Reply:
    return Reply(message=AssistantMessage(text), usage=Usage(input_tokens=7), stop_reason=stop_reason, model="m")


def exchanges(count: int, tokens: int, *, may_leave: bool = True) -> list[ContextItem]:
    """A user's message, so many replies with one call and its result each, and a last reply."""
    items = [make_item("u", UserMessage("go"), 10)]
    for n in range(count):
        reply = AssistantMessage(({"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {}},))
        items.append(make_item(f"a{n}", reply, 20))
        result = ToolMessage(f"t{n}", "Read", "x")
        items.append(make_item(f"t{n}", result, tokens, 50 if may_leave else None))
    return [*items, make_item("end", AssistantMessage("so far"), 10)]


async def never(_: str) -> Reply:
    raise AssertionError("a test answers by itself")


def window(budget: Budget | None = BUDGET, *, asks: bool = False) -> CompactionController:
    """A window that has learned that a counted token is a billed one."""
    policy = OffloadPolicy(token_threshold=500)
    made = CompactionController(
        WindowGuard(budget=budget, model="gpt-4o", policy=policy, summarize=never if asks else None)
    )
    assert made.calibration.factor == 1.0
    return made


def offloaded(context: Holder) -> list[str]:
    return [item.id for item in context.items if item.offloaded]


def test_no_summary_is_asked_for_that_could_not_be_smaller_than_what_it_replaces() -> None:
    items: list[ContextItem] = []
    for number in range(9):
        items += [make_item(f"u{number}", UserMessage("x"), 1_000), make_item(f"a{number}", AssistantMessage("y"), 1)]
    context = Holder(items)
    context.fit(window(asks=True))  # without an answer: asking fails
    assert context.counted_tokens == 9_009
    assert context.plans == []


def test_nothing_happens_up_to_the_high_water_mark() -> None:
    items = exchanges(7, 1_000)
    context = Holder(items, base_tokens=8_000 - sum(i.token_count for i in items))
    assert context.counted_tokens == BUDGET.high_tokens
    context.fit(window())
    assert (context.plans, context.events) == ([], [])
    context.base_tokens += 1
    context.fit(window())
    assert offloaded(context) == ["t0", "t1"]
    assert context.events == [Compacted(tokens_before=8_001, tokens_after=6_101, steps=("types",))]


def test_without_a_budget_nothing_is_ever_reduced() -> None:
    context = Holder(exchanges(50, 10_000))
    context.fit(window(None))
    assert context.plans == []
    with pytest.raises(PromptTooLong):
        context.refused(window(None), PromptTooLong("too long"))


def test_what_did_not_help_is_tried_again_only_after_a_tenth_more() -> None:
    context = Holder(exchanges(0, 0), base_tokens=8_500)
    made = window()
    context.fit(made)
    tried = len(context.plans)
    context.base_tokens = 9_000
    context.fit(made)
    assert len(context.plans) == tried
    context.items = exchanges(7, 1_000)
    context.base_tokens = 9_371 - (context.counted_tokens - context.base_tokens)
    context.fit(made)
    assert offloaded(context) == []
    context.base_tokens += 1  # of 8,520 a tenth more is 9,372
    context.fit(made)
    assert offloaded(context) == ["t0", "t1"]


def test_above_the_limit_it_is_tried_however_little_it_grew() -> None:
    context = Holder(exchanges(0, 0), base_tokens=9_900)
    made = window()
    context.fit(made)
    context.base_tokens = 10_000
    with pytest.raises(ContextOverflow) as caught:
        context.fit(made)
    assert (caught.value.limit_tokens, caught.value.actual_tokens) == (10_000, 10_020)


def test_an_overflow_names_the_five_largest_that_cannot_leave() -> None:
    items = [make_item(f"u{n}", UserMessage("x"), 2_000 + n) for n in range(7)]
    items[3] = replace(items[3], destroyed=True)
    with pytest.raises(ContextOverflow) as caught:
        Holder(items).fit(window())
    assert caught.value.items == tuple(f"u{n} ({2_000 + n:,} tokens)" for n in (6, 5, 4, 2, 1))


@pytest.mark.parametrize(("pinned", "said"), [(5, True), (4, False)])
def test_an_overflow_says_so_when_the_largest_are_all_pinned(pinned: int, said: bool) -> None:
    items = [make_item(f"u{n}", UserMessage("x"), 3_000 - n) for n in range(6)]
    items = [replace(item, pinned=n < pinned) for n, item in enumerate(items)]
    with pytest.raises(ContextOverflow) as caught:
        Holder(items).fit(window())
    assert ("unpin one" in str(caught.value)) is said


def test_exactly_the_limit_is_no_overflow() -> None:
    Holder([], base_tokens=10_000).fit(window())


def test_a_burst_that_was_not_seen_leaves_largest_first_and_only_as_far_as_needed() -> None:
    items = [make_item(f"t{n}", ToolMessage(f"t{n}", "Read", "x"), 1_000 * n, 50) for n in range(1, 6)]
    context = Holder(items)
    context.fit(window())
    assert offloaded(context) == ["t4", "t5"]
    after = context.counted_tokens
    assert 6_000 < after < 6_100
    assert context.events == [Compacted(tokens_before=15_000, tokens_after=after, steps=("largest",))]
    context = Holder(items, base_tokens=-50)
    context.fit(window())
    assert offloaded(context) == ["t5"]


def test_an_image_that_was_not_seen_leaves_after_everything_else() -> None:
    shot: Any = ({"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},)
    image = make_item("image", ToolMessage("image", "show", shot), 8_000, 50)
    text = make_item("text", ToolMessage("text", "show", "x"), 3_000, 50)
    context = Holder([image, text])
    context.fit(window())
    assert offloaded(context) == ["text"]
    context = Holder([*exchanges(2, 2_000, may_leave=False), image])
    context.fit(window())
    assert offloaded(context) == []
    assert [plan.archive is not None for plan in context.plans] == [True]
    context = Holder([image, text], base_tokens=3_000)
    context.fit(window())
    assert offloaded(context) == ["image", "text"]
    after = context.counted_tokens
    assert 3_000 < after < 3_100
    assert context.events == [Compacted(tokens_before=14_000, tokens_after=after, steps=("largest", "largest"))]


def test_old_exchanges_go_into_an_archive_when_nothing_in_them_can_leave() -> None:
    context = Holder(exchanges(8, 1_100, may_leave=False))
    context.fit(window())
    (event,) = context.events
    assert isinstance(event, Compacted)
    assert event.steps == ("archive",)
    kept = [f"{kind}{n}" for n in (4, 5, 6, 7) for kind in "at"]  # only what is needed leaves
    assert [i.id for i in context.items] == ["msg_999", "u", *kept, "end"]


def test_the_last_exchanges_too_go_into_the_archive_when_nothing_else_fits() -> None:
    context = Holder(exchanges(2, 6_000, may_leave=False))
    context.fit(window())
    (event,) = context.events
    assert isinstance(event, Compacted)
    assert event.steps == ("archive",)
    assert [i.id for i in context.items] == ["msg_999", "u", "a1", "t1", "end"]
    context = Holder(exchanges(2, 11_000, may_leave=False))
    context.fit(window())
    assert [i.id for i in context.items] == ["msg_999", "u", "end"]


def test_a_step_that_changes_nothing_is_not_told_as_one() -> None:
    context = Holder(exchanges(7, 1_300))
    context.broken = True
    context.fit(window())
    assert context.plans
    assert context.events == []


def test_a_step_that_was_not_carried_out_is_taken_again() -> None:
    context = Holder(exchanges(7, 1_300))
    reduction = window().fit(context.counted_tokens, CharsCounter())
    assert reduction is not None
    step = reduction.next_step(context.view())
    reduction.again()
    assert reduction.next_step(context.view()) == step
    assert isinstance(step, Plan)
    context.carry_out(step)
    assert reduction.next_step(context.view()) == Done(
        compacted=Compacted(tokens_before=9_260, tokens_after=6_760, steps=("types",)), counted_tokens=6_760
    )


def test_no_model_is_asked_once_the_high_water_mark_is_reached() -> None:
    asked: list[str] = []

    def summarize(text: str) -> Reply:
        asked.append(text)
        return replied("The plan is to go on.")

    def fitted(above: int) -> list[str]:
        items = [*exchanges(7, 400), make_item("end_2", AssistantMessage("so far"), 10)]
        items[2] = make_item("t0", ToolMessage("t0", "Read", "x"), 3_000, 50)
        context = Holder(items)
        context.base_tokens = BUDGET.high_tokens + above + 2_950 - context.counted_tokens
        context.fit(window(asks=True), summarize)
        return offloaded(context)

    assert (fitted(0), len(asked)) == (["t0"], 0)
    assert (fitted(1), len(asked)) == ([], 1)  # t0 is in the summary's archive now


def test_a_summary_takes_the_place_of_what_it_replaces() -> None:
    def summarize(text: str) -> Reply:
        return replied("The plan is to go on.")

    context = Holder(exchanges(8, 1_100, may_leave=False))
    context.fit(window(asks=True), summarize)
    (event,) = context.events
    assert isinstance(event, Compacted)
    assert event.steps == ("summary",)
    assert "The plan is to go on." in str(context.items[0].message.content)
    (plan,) = context.plans
    assert plan.archive is not None
    assert plan.archive.reason == "summarised by the model"
    assert plan.first_changed == plan.archive.item_ids[0]
    assert plan.archive.tokens_before == sum(20 + 1_100 for _ in range(len(plan.archive.item_ids) // 2)) + (
        10 if len(plan.archive.item_ids) % 2 else 0
    )


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (replied(""), "nothing"),
        (replied(" \n"), "nothing"),
        (replied("long " * 10_000), "tokens, what it replaces only"),
        (replied("The plan is to", "max_tokens"), "it ended with 'max_tokens'"),
        (replied("I will not", "refusal"), "it ended with 'refusal'"),
        (Overloaded("busy"), "failed: Overloaded"),
        (PromptTooLong("too long"), "does not fit the window"),
    ],
)
def test_a_summary_that_does_not_help_is_told_and_done_without(answer: Reply | ModelError, told: str) -> None:
    def summarize(text: str) -> Reply | ModelError:
        return answer

    context = Holder(exchanges(8, 1_100, may_leave=False))
    context.fit(window(asks=True), summarize)
    failed, compacted = context.events
    assert isinstance(failed, SummaryFailed)
    assert told in failed.reason
    assert isinstance(compacted, Compacted)
    assert compacted.steps == ("archive",)


@pytest.mark.not_measured
@pytest.mark.parametrize("spared", [0, 1])
def test_a_summary_must_be_smaller_than_what_it_replaces(spared: int) -> None:
    items = exchanges(8, 1_100, may_leave=False)
    first = Holder(items)
    first.fit(window(asks=True), lambda _: replied("Go on."))
    assert first.plans[0].archive is not None
    replaced = [item for item in items if item.id in first.plans[0].archive.item_ids]
    before = sum(item.token_count for item in replaced)
    counter, length = CharsCounter(), 0
    while counter.count(summary_text("s" * length, replaced, SLOT.path)) < before - spared:
        length += 1
    context = Holder(items)
    context.fit(window(asks=True), lambda _: replied("s" * length))
    failed = [event.reason for event in context.events if isinstance(event, SummaryFailed)]
    assert failed == [f"the summary has {before} tokens, what it replaces only {before}"][spared:]


def test_no_prompt_for_a_summary_is_larger_than_the_window() -> None:
    asked: list[int] = []

    def summarize(text: str) -> Reply:
        asked.append(CharsCounter().count(text))
        return replied("The plan is to go on.")

    context = Holder(
        [
            replace(i, message=ToolMessage(i.id, "Read", "word " * 1_600)) if isinstance(i.message, ToolMessage) else i
            for i in exchanges(8, 1_100, may_leave=False)
        ]
    )
    context.fit(window(asks=True), summarize)
    assert len(asked) == 1
    assert 5_000 < asked[0] <= BUDGET.limit_tokens


def test_a_prompt_for_a_summary_fits_by_what_the_provider_bills() -> None:
    asked: list[int] = []

    def summarize(text: str) -> Reply:
        asked.append(CharsCounter().count(text))
        return replied("The plan is to go on.")

    items = [
        replace(i, message=ToolMessage(i.id, "Read", "word " * 1_600)) if isinstance(i.message, ToolMessage) else i
        for i in exchanges(8, 1_100, may_leave=False)
    ]
    made = CompactionController(
        WindowGuard(budget=BUDGET, model="claude-x", compaction=SelectiveCompaction(), summarize=never)
    )
    assert made.calibration.factor == 1.35
    Holder(items).fit(made, summarize)
    assert [5_000 < count * 1.35 <= BUDGET.limit_tokens for count in asked] == [True]


def test_a_summary_is_asked_for_shorter_when_the_first_prompt_is_refused() -> None:
    asked: list[int] = []

    def summarize(text: str) -> Reply | ModelError:
        asked.append(len(text))
        return PromptTooLong("too long") if len(asked) == 1 else replied("Short.")

    items = [
        replace(i, message=ToolMessage(i.id, "Read", "words " * 4_000)) if i.item_type is ItemType.TOOL_RESULT else i
        for i in exchanges(4, 2_100, may_leave=False)
    ]
    Holder(items).fit(window(asks=True), summarize)
    assert len(asked) == 2
    assert asked[1] < asked[0]


def test_a_refusal_that_names_figures_is_believed() -> None:
    context = Holder(exchanges(7, 1_000))
    made = window()
    assert context.counted_tokens == 7_160
    context.refused(made, PromptTooLong("too long", actual_tokens=12_000, limit_tokens=9_000))
    assert made.budget is not None
    assert (made.budget.window_tokens, made.budget.reply_tokens) == (9_000, 1_000)
    assert (made.calibration.base_real, made.calibration.base_counted) == (12_000, 7_160)
    (event,) = context.events
    assert isinstance(event, Compacted)
    assert event.tokens_before == 12_000
    assert event.tokens_after <= 8_000


def test_a_small_limit_leaves_the_reply_a_quarter_at_most() -> None:
    made = window()
    Holder([]).refused(made, PromptTooLong("too long", actual_tokens=100, limit_tokens=2_000))
    assert made.budget is not None
    assert (made.budget.window_tokens, made.budget.reply_tokens) == (2_000, 500)


def test_a_larger_limit_than_ours_changes_nothing() -> None:
    budget = replace(BUDGET, reply_tokens=4_000)
    made = window(budget)
    for limit in (11_000, 20_000):
        Holder([]).refused(made, PromptTooLong("too long", actual_tokens=100, limit_tokens=limit))
        assert made.budget == budget


def test_each_refusal_without_figures_takes_a_quarter() -> None:
    context = Holder(exchanges(9, 800))
    made = window()
    for _ in range(5):
        before, largest = context.counted_tokens, max(i.token_count for i in context.items)
        context.refused(made, PromptTooLong("too long"))
        assert 0.75 * before - largest < context.counted_tokens <= 0.75 * before
    assert made.budget == BUDGET


def test_what_was_refused_without_figures_is_not_sent_again_before_as_much_was_accepted() -> None:
    context = Holder(exchanges(6, 900))
    made = window()
    refused = context.counted_tokens
    context.refused(made, PromptTooLong("too long"))
    # What the provider bills says that there is room; what it refused says more.
    made.observe(Usage(input_tokens=context.counted_tokens), "gpt-4o", context.counted_tokens)
    context.items.append(make_item("more", ToolMessage("more", "Read", "x"), 3_000, 50))
    context.fit(made)
    assert context.counted_tokens < refused
    made.observe(Usage(input_tokens=refused), "gpt-4o", refused)
    assert made.fit(refused, CharsCounter()) is None


def test_no_summary_is_asked_for_while_nobody_knows_how_long_the_prompt_may_be() -> None:
    context = Holder(exchanges(8, 1_100, may_leave=False))
    context.refused(window(asks=True), PromptTooLong("too long"))  # without an answer: asking fails
    (event,) = context.events
    assert isinstance(event, Compacted)
    assert event.steps == ("archive",)


def test_both_water_marks_are_those_of_what_was_refused() -> None:
    counter, made = CharsCounter(), window()
    made.refused(PromptTooLong("too long"), 5_000, counter)
    made.observe(Usage(input_tokens=3_000), "gpt-4o", 3_000)
    assert made.fit(3_999, counter) is None  # four fifths of 4,999
    assert made.fit(4_000, counter) is not None
    late = {f"t{n}" for n in range(6, 11)}  # which stay
    context = Holder([replace(i, token_count=100) if i.id in late else i for i in exchanges(11, 600)])
    assert context.counted_tokens == 4_340
    context.fit(made)
    assert offloaded(context) == ["t0", "t1", "t2", "t3"]  # until no more than half of 4,999 is left


def test_a_refusal_when_nothing_can_be_reduced_is_an_overflow() -> None:
    for error in (PromptTooLong("too long"), PromptTooLong("too long", actual_tokens=10_900, limit_tokens=11_000)):
        context = Holder([make_item("u", UserMessage("x"), 9_000)])
        with pytest.raises(ContextOverflow) as caught:
            context.refused(window(), error)
        assert caught.value.items == ("u (9,000 tokens)",)


def test_room_is_made_by_the_measure_that_it_is_judged_by() -> None:
    # A model that nobody knows: 1.35 billed tokens are expected for each counted one, and one is billed.
    calls = tuple({"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {}} for n in range(8))
    items = [make_item("u", UserMessage("go"), 10)]
    items.append(make_item("a", AssistantMessage(calls), 20))
    items += [make_item(f"t{n}", ToolMessage(f"t{n}", "Read", "x"), 5_400, 240) for n in range(8)]
    context = Holder(items)
    controller = CompactionController(WindowGuard(budget=Budget(window_tokens=128_000), model="my-model"))
    context.refused(controller, PromptTooLong("too long", actual_tokens=43_500, limit_tokens=32_000))
    assert 32_000 * 0.4 < context.counted_tokens <= 32_000 - 8_000
    assert offloaded(context)


@given(
    sizes=st.lists(st.tuples(st.sampled_from(("result", "user", "reply")), st.integers(1, 9_000)), max_size=12),
    refusals=st.lists(st.none() | st.integers(1, 60_000), max_size=4),
    ratio=st.sampled_from((None, 0.7, 2.0)),
)
def test_an_overflow_means_that_nothing_can_be_reduced(
    sizes: list[tuple[str, int]], refusals: list[int | None], ratio: float | None
) -> None:
    context, controller = Holder(burst(sizes)), window()
    if ratio is not None:
        controller.calibration = replace(controller.calibration, ratios=(ratio,))
    try:
        for actual in refusals:
            context.refused(controller, PromptTooLong("too long", actual_tokens=actual))
            context.fit(controller)
        context.fit(controller)
    except ContextOverflow:
        whole = [i for i in context.items if not i.destroyed]
        assert [i.id for i in whole if i.placeholder is not None] == []
        assert last_resort(whole).replies() == []


def burst(sizes: Sequence[tuple[str, int]]) -> list[ContextItem]:
    """Messages of these kinds and sizes; each result has a call before it."""
    items = []
    for n, (kind, tokens) in enumerate(sizes):
        placeholder_tokens = 50 if tokens > 50 else None
        if kind == "user":
            items.append(make_item(f"u{n}", UserMessage("x"), tokens, placeholder_tokens))
        elif kind == "reply":
            items.append(make_item(f"a{n}", AssistantMessage("x" * 4 * tokens), tokens))
        else:
            call = AssistantMessage(({"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {}},))
            items.append(make_item(f"a{n}", call, 20))
            result = ToolMessage(f"t{n}", "Read", "x")
            items.append(make_item(f"t{n}", result, tokens, placeholder_tokens))
    return items


def test_a_last_reply_larger_than_the_window_leaves_its_calls_and_says_how_it_begins() -> None:
    calls: Any = (
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "The first line.\n" + "More words.\n" * 4_000},
        {"type": "tool_use", "id": "t", "name": "Write", "input": {"path": "a.py", "text": "x = 1\n" * 4_000}},
    )
    items = [
        make_item("u", UserMessage("go"), 10),
        make_item("a", AssistantMessage(calls), 18_000),
        make_item("t", ToolMessage("t", "Write", "written"), 10),
    ]
    context = Holder(items)
    context.fit(window())
    (reply,) = [i for i in context.items if i.id == "a"]
    thinking, text, call = cast("tuple[Any, ...]", reply.message.content)
    assert thinking == calls[0]
    assert str(text["text"]).startswith("[Content offloaded]\nPath: /s/a\n")
    assert "The first line." in text["text"]
    assert call["id"] == "t"
    assert call["input"]["path"] == "a.py"
    assert call["input"]["text"].startswith("[Content offloaded]\nPath: /s/a\n")
    assert (reply.offloaded, reply.offload_path, reply.trimmed) == (True, "/s/a", (2,))
    assert context.events[0].steps == ("largest",)  # type: ignore[union-attr]


def test_what_must_not_leave_stays_when_nothing_else_fits() -> None:
    policy = OffloadPolicy(type_enabled={"tool_result": False, "tool_input": False})
    controller = CompactionController(WindowGuard(budget=BUDGET, policy=policy, model="gpt-4o"))
    context = Holder([make_item("t", ToolMessage("t", "Read", "x"), 20_000, 50)])
    with pytest.raises(ContextOverflow):
        context.fit(controller)
    assert offloaded(context) == []
    write: Any = ({"type": "tool_use", "id": "w", "name": "Write", "input": {"text": "x" * 90_000}},)
    context = Holder([make_item("w", AssistantMessage(write), 20_000)])
    with pytest.raises(ContextOverflow):
        context.fit(controller)


def thinking_reply(call_id: str, *more: Any) -> AssistantMessage:
    thinking = [{"type": kind, "thinking": "Hm. " * 4_000, "data": "x" * 9, "signature": "s"} for kind in THOUGHTS]
    calls: list[Any] = [{"type": "tool_use", "id": call_id, "name": "Read", "input": {}}] if call_id else []
    return AssistantMessage((*thinking, *more, *calls))


THOUGHTS = ("thinking", "redacted_thinking")
SAID: Any = {"type": "text", "text": "I look. " * 4_000}


@pytest.mark.parametrize(("last", "kept"), [("c", True), ("", False)])
def test_thinking_of_replies_leaves_at_last_but_not_before_calls_that_were_just_answered(last: str, kept: bool) -> None:
    replies = [thinking_reply("a", SAID), thinking_reply("b"), thinking_reply(last, SAID)]
    items = [make_item("u", UserMessage("q"))]
    for call_id, reply in zip(("a", "b", last), replies, strict=True):
        items.append(make_item(f"r_{call_id}", reply, count_content(CharsCounter(), reply.content)))
        items += [make_item(call_id, ToolMessage(call_id, "Read", "x"))] if call_id else []
    offloads = last_resort(items).replies()
    kinds = [[block["type"] for block in cast("Any", o.content)] for o in offloads]
    assert kinds[:2] == [["text", "tool_use"], ["text", "tool_use"]]
    assert [o.content[0]["text"].splitlines()[1] for o in cast("Any", offloads[:2])] == ["Path: /s/r_a", "Path: /s/r_b"]
    assert kinds[2] == ([*THOUGHTS, "text", "tool_use"] if kept else ["text"])
    assert all(o.tokens_after < 300 for o in offloads[:2])


def test_what_nobody_has_seen_says_how_it_begins_without_digests_too() -> None:
    bare = "[Content offloaded]\nPath: /s/t\nUse Read tool to view details."
    result = ToolMessage("t", "Read", "The first line.\n" + "More words.\n" * 5_000)
    item = replace(make_item("t", result, 15_000, 30), placeholder=bare)
    context = Holder([item])
    context.fit(window())
    assert "The first line." in str(context.items[0].message.content)


def test_a_description_that_is_not_smaller_than_the_content_is_left_out() -> None:
    item = make_item("t", ToolMessage("t", "Read", "a line\n" * 10), 12, 11)
    (offload,) = last_resort([item]).contents([item])
    assert offload.placeholder == item.placeholder
    assert offload.tokens_after == 11


def test_pinned_replies_are_left_alone_and_so_are_those_that_left_already() -> None:
    replies = [make_item(n, AssistantMessage("I look. " * 4_000), 9_000) for n in ("a", "b", "c")]
    replies[1] = replace(replies[1], destroyed=True)
    offloads = last_resort(replies, pinned=["a"]).replies()
    assert [offload.item_id for offload in offloads] == ["c"]


def test_many_small_questions_go_into_an_archive_before_the_end() -> None:
    items = [make_item(f"u{n}", UserMessage("x"), 100) for n in range(200)]
    context = Holder([*items, make_item("a", AssistantMessage("x"), 10)])
    context.fit(window())
    assert [i.id for i in context.items] == ["msg_999", "a"]
    policy = OffloadPolicy(type_enabled={"user_message": False})
    kept = CompactionController(WindowGuard(budget=BUDGET, policy=policy, model="gpt-4o"))
    with pytest.raises(ContextOverflow):
        Holder(items).fit(kept)


def test_what_was_billed_is_learned() -> None:
    made = window()
    usage = Usage(input_tokens=700, cache_read_input_tokens=200, cache_creation_input_tokens=100)
    made.observe(usage, "gpt-4o", 500)
    assert (made.calibration.base_real, made.calibration.base_counted) == (1_000, 500)


# ---- the budget


@pytest.mark.parametrize(
    ("model", "window_tokens"),
    [
        ("claude-opus-4-1", 200_000),
        ("gpt-3.5-turbo", 16_385),
        ("gpt-4", 8_192),
        ("gpt-4-turbo-2024", 128_000),
        ("gpt-4o", 128_000),
        ("gpt-4.1-mini", 1_047_576),
        ("gpt-5", 400_000),
        ("o1", 200_000),
        ("o3-mini", 200_000),
        ("o4-mini", 200_000),
        ("gemini-2.5-pro", 1_048_576),
        ("deepseek-chat", 128_000),
        ("", 128_000),
    ],
)
def test_windows_as_the_providers_state_them(model: str, window_tokens: int) -> None:
    assert Budget.of_model(model).window_tokens == window_tokens


@pytest.mark.parametrize(("model", "factor"), [("claude-x", 1.35), ("gpt-x", 1), ("o1", 1), ("o3", 1), ("o4", 1)])
def test_before_anything_was_billed_the_factor_is_the_models(model: str, factor: float) -> None:
    assert Calibration(model=model).factor == factor


def test_marks_at_their_edges() -> None:
    assert Budget(window_tokens=100, reply_tokens=0, high_water=1, low_water=0.99).high_tokens == 100
    assert Budget(window_tokens=1_001, reply_tokens=1_000).limit_tokens == 1
    for wrong in ({"reply_tokens": 100}, {"reply_tokens": -1}, {"low_water": 0.0}, {"high_water": 1.01}):
        with pytest.raises(ConfigError):
            Window(**{"window_tokens": 100, "reply_tokens": 0, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("grown", "billed", "learned"),
    [
        (200, 200, (1.0,)),
        (199, 199, ()),
        (1_000, 500, (0.5,)),
        (1_000, 499, ()),
        (1_000, 3_000, (3.0,)),
        (1_000, 3_001, ()),
    ],
)
def test_what_teaches_a_factor(grown: int, billed: int, learned: tuple[float, ...]) -> None:
    value = Calibration(model="m", base_real=5_000, base_counted=4_000)
    assert value.observed(model="m", counted=4_000 + grown, real=5_000 + billed).ratios == learned


def test_the_last_fifteen_samples_count() -> None:
    value = Calibration(model="m")
    for n in range(1, 20):
        value = value.observed(model="m", counted=1_000 * n, real=1_000 * n + n)
    assert len(value.ratios) == 15
    assert value.ratios[-1] == pytest.approx(1.001)


def test_an_estimate_is_never_negative_and_a_sure_one_never_dearer() -> None:
    value = Calibration(model="claude-x", base_real=100, base_counted=1_000)
    assert value.estimate(0) == value.at_least(0) == 0
    assert value.estimate(1_100) == 235
    assert value.at_least(1_100) == 200
    assert value.at_least(1_000) == 100
    assert value.at_least(999) == 99
    learned = Calibration(model="m", base_real=1_000, base_counted=1_000, ratios=(2.0,))
    assert learned.at_least(1_100) == 1_200
    assert learned.at_least(500) == 0
    assert Calibration(model="m", base_real=900, base_counted=1_000, ratios=(0.5,)).at_least(500) == 450
    dearer = replace(learned, base_real=3_000)
    assert dearer.estimate(900) == 2_801  # 199.5 are freed at least: the ratio may be 0.005 lower
    assert learned.counted_for(1_100) == 1_049  # one short of 100 / 2.0, since the ratio was learned from whole numbers


@example(ratio=1.35, growths=[226, 257, 366, 1381, 286], change=6_916)
@given(
    ratio=st.floats(0.6, 2.8),
    growths=st.lists(st.integers(200, 5_000), min_size=1, max_size=20),
    change=st.integers(-20_000, 100_000),
)
def test_what_is_billed_at_one_ratio_is_never_more_than_the_estimate(
    ratio: float, growths: list[int], change: int
) -> None:
    """However the bills were rounded that the ratio was learned from."""
    value, counted = Calibration(model="m"), 0
    for growth in growths:
        counted += growth
        value = value.observed(model="m", counted=counted, real=ceil(ratio * counted))
    counted = max(0, counted + change)
    assert value.estimate(counted) >= ceil(ratio * counted - 1e-6)


@given(
    base=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    ratios=st.lists(st.floats(0.5, 3.0), max_size=3),
    counted=st.integers(0, 10**6),
    real=st.integers(0, 10**6),
)
def test_an_estimate_is_inverted_and_never_less_than_what_is_sure(
    base: tuple[int, int], ratios: list[float], counted: int, real: int
) -> None:
    value = Calibration(model="m", base_real=base[0], base_counted=base[1], ratios=tuple(ratios))
    assert value.at_least(counted) <= value.estimate(counted)
    if fits := value.counted_for(real):
        assert value.estimate(fits) <= real < value.estimate(fits + 2)


@given(
    bills=st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 40_000)), max_size=8),
    rate=st.floats(0.4, 3.2),
    marks=st.tuples(st.floats(0.001, 0.5), st.floats(0.5, 1.0, exclude_min=True)),
    beside=st.integers(-3, 3),
)
def test_room_is_made_from_where_the_goal_says(
    bills: list[tuple[int, int]], rate: float, marks: tuple[float, float], beside: int
) -> None:
    """Two estimates alone say of most contexts that they are small."""
    low, high = marks
    budget = Budget(window_tokens=40_000, reply_tokens=8_000, low_water=low, high_water=high)
    made = window(budget)
    for counted, real in bills:
        made.observe(Usage(input_tokens=real), "gpt-4o", counted)
        made.observe(Usage(input_tokens=round(rate * (counted + 900))), "gpt-4o", counted + 900)
    goal = made._goal(budget)  # noqa: SLF001 - what is decided by, however it is decided
    for size in (0, goal.low, goal.enough, goal.limit, made.calibration.base_counted):
        counted = max(0, size + beside)
        assert (made.fit(counted, CharsCounter()) is None) == (counted <= goal.enough)


# ---- compaction


def compacted(items: Sequence[ContextItem], free: int, rules: Mapping[ItemType, Strategy | int] | None = None) -> Plan:
    compaction = SelectiveCompaction() if rules is None else SelectiveCompaction(rules=rules)
    return compaction.plan(view_of(items), policy=OffloadPolicy(), free_tokens=free, counter=CharsCounter())


def test_largest_first_takes_as_few_as_free_enough_in_the_order_of_the_context() -> None:
    items = [
        make_item("small", ToolMessage("small", "Read", "x"), 100, 50),
        make_item("large", ToolMessage("large", "Read", "x"), 900, 50),
        make_item("kept", ToolMessage("kept", "Read", "x"), 5_000),
        make_item("middle", ToolMessage("middle", "Read", "x"), 800, 50),
        make_item("larger", ToolMessage("larger", "Read", "x"), 1_000, 300),
    ]

    def chosen(free: int) -> list[str]:
        may_leave = [Offload.of(i, f"/s/{i.id}", "") for i in items if i.placeholder is not None]
        plan = largest_first(may_leave, free_tokens=free)
        assert plan.first_changed == (plan.offloads[0].item_id if plan.offloads else None)
        return [step.item_id for step in plan.offloads]

    assert chosen(0) == []
    assert chosen(1) == chosen(850) == ["large"]
    assert chosen(851) == chosen(850 + 750) == ["large", "middle"]
    assert chosen(850 + 750 + 1) == ["large", "middle", "larger"]
    assert chosen(9_999) == ["small", "large", "middle", "larger"]


def test_an_archive_is_made_only_when_it_is_smaller() -> None:
    items = [make_item("a", AssistantMessage("x"), 5_000)]
    archive = archive_of(items, view=view_of(items), counter=CharsCounter())
    assert archive is not None
    same = [replace(items[0], token_count=archive.tokens_after)]
    assert archive_of(same, view=view_of(items), counter=CharsCounter()) is None
    larger = [replace(same[0], token_count=archive.tokens_after + 1)]
    assert archive_of(larger, view=view_of(items), counter=CharsCounter())


def test_exchanges_are_whole_and_the_last_ones_stay() -> None:
    items = exchanges(4, 1_000)
    for keep, moved in ((0, 4), (1, 3), (3, 1), (4, 0), (9, 0)):
        rules = {ItemType.ASSISTANT_MESSAGE: keep}
        plan = compacted(items, 99_999, rules)
        ids = plan.archive.item_ids if plan.archive else ()
        assert ids == tuple(name for n in range(moved) for name in (f"a{n}", f"t{n}"))
        assert plan.first_changed == (ids[0] if ids else None)
    dropped = compacted(items, 99_999, {ItemType.ASSISTANT_MESSAGE: Strategy.DROP})
    assert dropped.archive is not None
    assert len(dropped.archive.item_ids) == 8


def test_results_before_the_first_reply_belong_to_no_exchange() -> None:
    early = make_item("early", ToolMessage("early", "Read", "x"), 1_000)
    rules = {ItemType.ASSISTANT_MESSAGE: Strategy.DROP}
    plan = compacted([early, *exchanges(2, 1_000)], 99_999, rules)
    assert plan.archive is not None
    assert "early" not in plan.archive.item_ids


def test_types_are_compacted_in_their_order_until_enough_is_free() -> None:
    user = make_item("large", UserMessage("x"), 4_000, 50)
    items = [user, *exchanges(2, 3_000)]
    rules = {
        ItemType.TOOL_RESULT: 1,
        ItemType.USER_MESSAGE: 0,
    }
    assert [o.item_id for o in compacted(items, 2_950, rules).offloads] == ["t0"]
    assert [o.item_id for o in compacted(items, 2_951, rules).offloads] == ["large", "t0"]
    assert not compacted(items, 0, rules)
    both: dict[ItemType, Strategy | int] = {**rules, ItemType.ASSISTANT_MESSAGE: Strategy.DROP}
    plan = compacted(items, 99_999, both)
    assert [o.item_id for o in plan.offloads] == ["large"]
    assert plan.archive is not None
    assert plan.first_changed == "large"
    assert plan.tokens_freed == 3_950 + plan.archive.tokens_before - plan.archive.tokens_after
    *earlier, reply, result = exchanges(3, 3_000)
    plan = compacted([*earlier, user, reply, result], 99_999, both)
    assert [o.item_id for o in plan.offloads] == ["large"]
    assert plan.first_changed == "a0", "the archive begins before the other item"


def test_a_read_back_that_nobody_has_seen_keeps_the_placeholder_that_names_its_range() -> None:
    source = ContentRange(item_id="c", path="/s/c", first_line=1, last_line=9)
    item = make_item("t", ToolMessage("t", "Read", "More words.\n" * 5_000), 15_000, 30, source=source)
    context = Holder([item])
    context.fit(window())
    assert context.items[0].message.content == item.placeholder
