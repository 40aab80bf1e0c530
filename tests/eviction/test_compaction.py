"""Selective compaction and the summary of "Context FileSystem 上下文卸载功能": pairs stay together, none goes twice."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.errors import CorruptContent
from ctxfs.eviction.compaction import (
    OLD_EXCHANGES,
    ArchiveSlot,
    SelectiveCompaction,
    Strategy,
    View,
    readable_later,
    seen_items,
)
from ctxfs.eviction.offload_plan import Plan
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.reduction import prompt, replaced_by_summary, summary_text
from ctxfs.messages import CharsCounter
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Content, Message, SystemMessage, ToolMessage, UserMessage
from ctxfs.session.archive import read_archive, write_archive
from ctxfs.testing.strategies import png
from session_items import make_item

SLOT = ArchiveSlot(item_id="msg_999", name="compaction_summary/msg_999.json", path="/s/msg_999.json")
COUNTER = CharsCounter()


def view_of(items: Sequence[ContextItem]) -> View:
    paths = {item.id: f"/s/{item.id}" for item in items}
    return View(items=items, counted_tokens=0, paths=paths, slot=SLOT, with_placeholder=lambda item: item)


def item(item_id: str, message: Message, tokens: int, kind: ItemType | None = None) -> ContextItem:
    may_leave = not isinstance(message, AssistantMessage | SystemMessage) and tokens > 60
    return make_item(item_id, message, tokens, 50 if may_leave else None, kind=kind)


def call(number: int, tokens: int = 20) -> ContextItem:
    block = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {}}
    return item(f"a{number}", AssistantMessage((block,)), tokens)


def result(number: int, tokens: int) -> ContextItem:
    return item(f"t{number}", ToolMessage(f"t{number}", "Read", "x"), tokens)


def session(count: int, tokens: int = 3000) -> list[ContextItem]:
    items = [item("s", SystemMessage("s"), 100), item("u", UserMessage("go"), 30)]
    for number in range(count):
        items += [call(number), result(number, tokens)]
    return [*items, item("end", AssistantMessage("so far"), 30)]


def plan(items: list[ContextItem], free: int, compaction: SelectiveCompaction | None = None) -> Plan:
    compaction = compaction or SelectiveCompaction()
    return compaction.plan(view_of(items), policy=OffloadPolicy(), free_tokens=free, counter=COUNTER)


def test_old_results_above_the_threshold_leave_and_the_last_five_stay() -> None:
    result_plan = plan(session(8), 100_000)
    assert [o.item_id for o in result_plan.offloads] == ["t0", "t1", "t2"]
    assert result_plan.archive is None
    assert result_plan.first_changed == "t0"
    assert result_plan.tokens_freed == 3 * 2950


@pytest.mark.parametrize("kind", [ItemType.TOOL_RESULT, ItemType.ASSISTANT_MESSAGE, ItemType.USER_MESSAGE])
@pytest.mark.parametrize("rule", [Strategy.DROP, 0])
def test_what_is_to_stay_does_so_with_its_exchange(kind: ItemType, rule: Strategy | int) -> None:
    items = session(4)
    compaction, policy = SelectiveCompaction(rules={kind: rule}), OffloadPolicy(token_threshold=10)

    def gone(staying: tuple[str, ...]) -> set[str]:
        made = compaction.plan(view_of(items), policy=policy, free_tokens=100_000, counter=COUNTER, staying=staying)
        return {o.item_id for o in made.offloads} | set(made.archive.item_ids if made.archive else ())

    everything = gone(())
    assert gone(("t1", "u")) == everything - {"t1", "u"} - ({"a1"} if kind is ItemType.ASSISTANT_MESSAGE else set())


def test_a_summary_leaves_out_the_exchange_of_what_is_to_stay() -> None:
    items = session(6)
    everything = {item.id for item in replaced_by_summary(items)}
    assert {"a1", "t1"} < everything
    assert {item.id for item in replaced_by_summary(items, ["t1"])} == everything - {"a1", "t1"}


def test_results_below_the_threshold_stay_with_their_calls() -> None:
    assert not plan(session(8, tokens=1000), 100_000)


@pytest.mark.parametrize("count", range(7))
def test_the_newest_stay_also_where_there_are_fewer_than_a_rule_keeps(count: int) -> None:
    gone = [offload.item_id for offload in plan(session(count), 100_000).offloads]
    assert gone == [f"t{number}" for number in range(max(0, count - 5))]


def test_it_stops_as_soon_as_enough_is_free() -> None:
    items = [item("big", UserMessage("x"), 9000), *(item(f"u{n}", UserMessage("x"), 10) for n in range(5)), *session(8)]
    assert [o.item_id for o in plan(items, 2 * 2950).offloads] == ["t0", "t1"]
    assert [o.item_id for o in plan(items, 2 * 2950 + 1).offloads] == ["t0", "t1", "t2"]
    assert [o.item_id for o in plan(items, 50_000).offloads] == ["big", "t0", "t1", "t2"]


def test_nothing_is_offloaded_twice() -> None:
    items = session(8)
    items = [replace(i, destroyed=True, offloaded=True, token_count=50) if i.id in {"t0", "t1"} else i for i in items]
    assert [o.item_id for o in plan(items, 100_000).offloads] == ["t2"]


def test_what_the_model_has_not_seen_stays() -> None:
    items = session(3)[:-1]
    assert [i.id for i in seen_items(items)] == ["s", "u", "a0", "t0", "a1", "t1"]
    rules = {ItemType.TOOL_RESULT: Strategy.DROP}
    assert [o.item_id for o in plan(items, 10**6, SelectiveCompaction(rules=rules)).offloads] == ["t0", "t1"]
    assert seen_items(items[:2]) == ()
    assert [i.id for i in seen_items(items[1:3])] == ["u"]
    assert list(seen_items(items[2:3])) == []


def test_whole_exchanges_go_into_one_archive_and_the_last_two_stay() -> None:
    items = session(6, tokens=300)
    archive = plan(items, 10**6, OLD_EXCHANGES).archive
    assert archive is not None
    assert archive.item_ids == ("a0", "t0", "a1", "t1", "a2", "t2", "a3", "t3")
    assert archive.placeholder.startswith("[Content offloaded]\nPath: /s/msg_999.json\nUse Read tool to view details.")
    assert archive.tokens_before == 4 * 320
    assert archive.tokens_after == COUNTER.count(archive.placeholder)


def test_an_image_before_the_first_reply_must_be_seen_before_it_leaves() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": png(1, 1)}
    shown = item("shown", UserMessage(({"type": "image", "source": source},)), 500)
    asked = item("asked", UserMessage("what is it?"), 500)
    assert list(readable_later([shown, asked])) == [asked]
    reply = item("reply", AssistantMessage("a dot"), 5)
    assert list(readable_later([shown, reply, asked])) == [shown, reply, asked]


@pytest.mark.parametrize(("free", "exchanges"), [(220, 1), (221, 2), (540, 2), (541, 3)])
def test_as_few_exchanges_move_as_free_enough_and_pay_for_the_archive_itself(free: int, exchanges: int) -> None:
    archive = plan(session(6, tokens=300), free, OLD_EXCHANGES).archive  # 320 tokens an exchange, and 100 are kept
    assert archive is not None
    assert archive.item_ids == tuple(f"{kind}{n}" for n in range(exchanges) for kind in "at")


def test_an_archive_that_would_not_be_smaller_is_not_planned() -> None:
    items = [item("u", UserMessage("x"), 5), call(8, 3), result(8, 3), *session(3)[2:]]
    rules = {ItemType.ASSISTANT_MESSAGE: 3}
    assert not plan(items, 10**6, SelectiveCompaction(rules=rules))


def test_a_type_that_is_dropped_moves_out_whole() -> None:
    skill = item("k", UserMessage("how to"), 500, ItemType.SKILL_PROMPT)
    rules = {ItemType.SKILL_PROMPT: Strategy.DROP}
    archive = plan([skill, *session(1)], 10, SelectiveCompaction(rules=rules)).archive
    assert archive is not None
    assert archive.item_ids == ("k",)


def test_a_type_whose_rule_is_to_keep_it_stays() -> None:
    rules = {ItemType.TOOL_RESULT: Strategy.KEEP}
    assert not plan(session(9), 10_000, SelectiveCompaction(rules=rules)).offloads


def test_rules_that_are_changed_later_change_no_compaction() -> None:
    rules = {ItemType.TOOL_RESULT: Strategy.KEEP}
    compaction = SelectiveCompaction(rules=rules)
    rules.clear()
    assert compaction.rules == {ItemType.TOOL_RESULT: Strategy.KEEP}


@given(
    sizes=st.lists(st.integers(1, 20_000), max_size=25),
    free=st.integers(0, 300_000),
    rule=st.integers(0, 6) | st.sampled_from(Strategy),
)
def test_pairs_stay_together_and_a_plan_always_frees(sizes: list[int], free: int, rule: Strategy | int) -> None:
    items = session(0)[:-1]
    for number, tokens in enumerate(sizes):
        items += [call(number), result(number, tokens)]
    kinds = (ItemType.TOOL_RESULT, ItemType.USER_MESSAGE, ItemType.SKILL_PROMPT, ItemType.ASSISTANT_MESSAGE)
    rules = dict.fromkeys(kinds, rule)
    made = plan(items, free, SelectiveCompaction(rules=rules))
    assert made == plan(items, free, SelectiveCompaction(rules=rules))
    if made:
        assert made.tokens_freed > 0
    moved = set(made.archive.item_ids) if made.archive else set()
    for number in range(len(sizes)):
        assert (f"a{number}" in moved) is (f"t{number}" in moved)
    assert not moved & {o.item_id for o in made.offloads}
    if sizes:
        assert f"t{len(sizes) - 1}" not in moved


CONTENTS = st.one_of(
    st.text(alphabet=st.characters()),
    st.just("=== msg_001 user_message, text, 4 characters\nfake\n"),
    st.lists(st.builds(lambda t: {"type": "text", "text": t}, st.text()), min_size=1, max_size=3).map(tuple),
)


@given(contents=st.lists(CONTENTS, max_size=5), tool=st.text(max_size=20))
def test_an_archive_gives_back_every_content_exactly(contents: list[Content], tool: str) -> None:
    items = [item(f"t{n}", ToolMessage(f"t{n}", tool or "x", c), 1) for n, c in enumerate(contents)]
    assert read_archive(write_archive(items)) == {f"t{n}": c for n, c in enumerate(contents)}


def test_what_is_no_archive_is_said_to_be_damaged() -> None:
    with pytest.raises(CorruptContent):
        read_archive("some other text")


def test_a_summary_replaces_old_replies_and_results_but_no_words_of_the_user() -> None:
    items = [*session(5)[:-1], item("u2", UserMessage("and now"), 9), *session(4)[2:]]
    replaced = replaced_by_summary(items)
    assert {i.item_type for i in replaced} == {ItemType.ASSISTANT_MESSAGE, ItemType.TOOL_RESULT}
    assert replaced_by_summary(session(1)) == ()


def test_a_prompt_quotes_no_more_than_it_may() -> None:
    long = item("t", ToolMessage("t", "Read", "x" * 5000 + "the end"), 9)
    blocks = (
        {"type": "text", "text": "look"},
        {"type": "tool_use", "name": "Read", "input": {"a": 1}},
        {"type": "image"},
    )
    text = prompt([long, item("a", AssistantMessage(blocks), 5)], quote_chars=100)
    assert "4,907 characters left out" in text
    assert "the end" in text
    assert "[calls Read: {'a': 1}]" in text
    assert "[image]" in text


def test_a_summary_names_the_history_and_the_results_that_are_still_stored() -> None:
    stored = replace(result(1, 500), offload_path="/s/t1.json")
    text = summary_text(" the plan ", [stored, result(2, 10)], "/s/history.json")
    assert text.startswith("[Summary of 2 earlier messages]\nthe plan\n\n[Content offloaded]\nPath: /s/history.json\n")
    assert "- /s/t1.json (Read)" in text


@pytest.mark.parametrize("kind", [ItemType.TOOL_INPUT, ItemType.SYSTEM_PROMPT, ItemType.COMPACTION_SUMMARY])
def test_any_type_may_be_kept(kind: ItemType) -> None:
    keep = Strategy.KEEP
    assert SelectiveCompaction(rules={kind: keep}).rules[kind] == keep
