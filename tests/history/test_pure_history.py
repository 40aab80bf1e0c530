"""Corners of the pure part: fingerprints, the table of decisions, remembered counts, records."""

from typing import Any

import pytest

from ctxfs.context.history.counting import NotingCounter
from ctxfs.context.history.decisions import Decisions, key_of
from ctxfs.context.history.parts import Part
from ctxfs.context.history.slots import Slot, replaced_part
from ctxfs.errors import InvalidRecord
from ctxfs.messages import CharsCounter
from ctxfs.messages.messages import AssistantMessage
from ctxfs.messages.tokens import count_content
from ctxfs.session.fingerprint import Key, sha256_of
from ctxfs.session.journal import encode_line, scan
from ctxfs.session.record_json import from_json, to_json
from ctxfs.session.records import Decided, PartsNoted
from ctxfs.session.state import SessionState, fold
from session_items import make_item


def decided(content: Any = "[Content offloaded]", **changes: Any) -> Decided:
    values: dict[str, Any] = {
        "kind": "result",
        "call_id": "c1",
        "sha256": sha256_of("text"),
        "item_id": "c1",
        "content": content,
        "tokens_before": 10,
        "tokens": 5,
        "reason": "because",
        "tool": "Read",
    }
    return Decided(**{**values, **changes})


def test_a_text_its_block_and_another_order_of_keys_are_one_content() -> None:
    assert sha256_of("text") == sha256_of(({"type": "text", "text": "text"},))
    assert sha256_of({"a": 1, "b": 2}) == sha256_of({"b": 2, "a": 1})
    assert sha256_of("\ud800") != sha256_of("\ud801")
    assert sha256_of(({"type": "text", "text": "a"}, {"type": "text", "text": "b"})) != sha256_of("ab")


def test_the_first_decision_about_a_part_counts() -> None:
    table = Decisions([decided()])
    table.take([decided("another"), decided("other", call_id="c2")])
    assert [one.content for one in table.since(0)] == ["[Content offloaded]", "other"]
    assert table.of(key_of(decided())) == decided()
    assert len(table) == 2


def test_decisions_that_are_taken_in_again_are_not_new() -> None:
    table = Decisions([decided()])
    table.take([*table.since(0), decided("other", call_id="c2")])
    assert [one.content for one in table.since(1)] == ["other"]


def test_a_part_without_an_id_is_known_by_its_content() -> None:
    table = Decisions([decided()])
    assert table.of(Key("result", "", sha256_of("text"))) == decided()
    assert table.of(Key("result", "c9", sha256_of("text"))) is None
    assert table.of(Key("user", "", sha256_of("text"))) is None
    without = Decisions([decided(call_id="")])
    assert without.of(Key("result", "c9", sha256_of("text"))) == decided(call_id="")


def test_a_replacement_is_known_by_the_whole_of_it() -> None:
    table = Decisions([decided()])
    for call_id in ("c1", "", "c9"):
        found = table.replacing(Key("result", call_id, sha256_of("[Content offloaded]")))
        assert found == decided()
    assert table.replacing(Key("result", "c1", sha256_of("[Content offloaded] "))) is None
    assert Decisions([decided("")]).replacing(Key("result", "c1", sha256_of(""))) is None  # what is empty says nothing


def test_counts_of_long_texts_are_remembered() -> None:
    counter = NotingCounter(CharsCounter(), {})
    long, short = "x" * 4_000, "y"
    assert (counter.count(long), counter.count(short)) == (1_000, 1)
    (digest,) = counter.new
    assert counter.new == {digest: 1_000}
    other = NotingCounter(CharsCounter(), {digest: 7})
    assert other.count(long) == 7
    assert not other.new
    third = NotingCounter(CharsCounter(), {})
    third.learn({digest: 8})
    assert third.count(long) == 8


RECORDS: list[Decided | PartsNoted] = [
    decided(),
    decided(({"type": "text", "text": "x"},), kind="reply"),
    decided({"text": "[Content offloaded]"}, kind="call"),
    PartsNoted(tokens={"ab": 3}, sources={"cd": ["c1", 1, 2]}),
]


@pytest.mark.parametrize("record", RECORDS)
def test_records_are_read_as_they_were_written(record: Decided | PartsNoted) -> None:
    assert from_json(to_json(record)) == record
    assert scan(encode_line(1, [record])).records == (record,)


@pytest.mark.parametrize(
    "data",
    [
        {**to_json(decided()), "content": 5},
        {**to_json(decided({}, kind="call")), "content": "x"},
        {**to_json(decided()), "tokens": "5"},
        {"type": "decided"},
        {"type": "parts_noted", "tokens": {"ab": -1}},
        {"type": "parts_noted", "sources": {"ab": ["c1", "1", 2]}},
    ],
)
def test_records_that_lack_something_are_damage(data: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, InvalidRecord)):
        from_json(data)


def test_a_session_learns_what_was_decided_and_noted() -> None:
    state = fold(SessionState(), RECORDS)
    assert state.decisions == RECORDS[:3]
    assert state.noted_tokens == {"ab": 3}
    assert state.noted_sources == {"cd": ("c1", 1, 2)}


def test_a_decision_by_another_counter_leaves_the_size_of_the_rest_as_it_is() -> None:
    text, call = {"type": "text", "text": "I write it."}, {"type": "tool_use", "id": "c", "name": "Write", "input": {}}
    item = make_item("msg_1", AssistantMessage((text, {**call, "input": {"text": "word " * 20}})), 30)
    part = Part("call", {"text": "word " * 20}, "call", "c", "Write")
    slot = Slot(part, Key("call", "c", "a" * 64), True, item_id="msg_1", blocks=(1, 2))
    one = decided({"text": "gone"}, kind="call", tokens_before=5_000, tokens=1_000)
    replaced = replaced_part(item, slot, one, CharsCounter())
    assert replaced.message.content == (text, {**call, "input": {"text": "gone"}})
    assert replaced.token_count == count_content(CharsCounter(), replaced.message.content)
