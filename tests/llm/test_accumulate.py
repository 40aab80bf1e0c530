"""The events of a stream put together: what the loopback server never sends stands here."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.agent.llm.accumulate import INVALID_JSON, ReplyBuilder, parse_arguments
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import check_content

DEEP = '{"a":' * 200 + "1" + "}" * 200


def built(*events: dict[str, Any]) -> ReplyBuilder:
    builder = ReplyBuilder()
    for event in events:
        list(builder.feed(event))
    return builder


def start(block: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(kind: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


@given(pieces=st.lists(st.tuples(st.sampled_from(["text", "thinking", "signature", "input"]), st.text(max_size=3))))
def test_pieces_are_joined_in_their_order_however_blocks_interleave(pieces: list[tuple[str, str]]) -> None:
    kinds = {
        "text": lambda piece: delta("text_delta", 0, text=piece),
        "thinking": lambda piece: delta("thinking_delta", 1, thinking=piece),
        "signature": lambda piece: delta("signature_delta", 1, signature=piece),
        "input": lambda piece: delta("input_json_delta", 2, partial_json=piece),
    }
    starts = (
        start({"type": "text", "text": "Begun: "}, 0),
        start({"type": "thinking", "thinking": "Hm. "}, 1),
        start({"type": "tool_use", "id": "a", "name": "Read", "input": {}}, 2),
    )
    content = built(*starts, *(kinds[kind](piece) for kind, piece in pieces)).reply().message.content
    assert not isinstance(content, str)
    text, thinking, call = content
    joined = {kind: "".join(piece for k, piece in pieces if k == kind) for kind in kinds}
    assert text["text"] == "Begun: " + joined["text"]
    assert thinking["thinking"] == "Hm. " + joined["thinking"]
    assert thinking.get("signature", "") == joined["signature"]
    assert call["input"] == parse_arguments(joined["input"])


def test_a_block_may_go_on_after_its_end() -> None:
    end = {"type": "content_block_stop", "index": 0}
    first, second = delta("text_delta", text="a"), delta("text_delta", text="b")
    assert built(start({"type": "text", "text": ""}), first, end, end, second).reply().message.text == "ab"


def test_citations_are_kept() -> None:
    text = start({"type": "text", "text": "", "citations": None})
    reply = built(text, *(delta("citations_delta", citation={"n": n}) for n in (1, 2))).reply()
    assert reply.message.content[0] == {"type": "text", "text": "", "citations": [{"n": 1}, {"n": 2}]}


def test_blocks_and_fields_that_are_not_known_are_kept() -> None:
    block = {"type": "of_next_year", "anything": [1]}
    assert built({"type": "nobody_knows"}, start(block), delta("unknown_delta", x=1)).reply().message.content == (
        block,
    )


def test_a_call_that_never_ended_keeps_the_text_of_its_arguments() -> None:
    call = start({"type": "tool_use", "id": "a", "name": "Read", "input": {}})
    reply = built(call, delta("input_json_delta", partial_json='{"pa')).reply()
    assert reply.message.tool_calls[0].arguments == {INVALID_JSON: '{"pa'}


def test_blocks_stand_in_the_order_of_their_index() -> None:
    reply = built(start({"type": "text", "text": "b"}, 1), start({"type": "text", "text": "a"}, 0)).reply()
    assert reply.message.text == "ab"


def test_the_last_count_of_each_kind_holds() -> None:
    message = {"model": "m", "usage": {"input_tokens": 5, "cache_read_input_tokens": None, "output_tokens": 1}}
    builder = built(
        {"type": "message_start", "message": message},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_delta", "delta": {"stop_reason": None}},
    )
    assert builder.reply().usage == Usage(input_tokens=5, output_tokens=9)
    assert builder.reply().stop_reason == "end_turn"
    assert not builder.finished


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        (" ", {}),
        ('{"a": "\\ud800"}', {"a": "\ud800"}),
        ("[1]", {INVALID_JSON: "[1]"}),
        ("{", {INVALID_JSON: "{"}),
        ('{"loss": NaN}', {INVALID_JSON: '{"loss": NaN}'}),
        ('{"n": 1e400}', {INVALID_JSON: '{"n": 1e400}'}),
        (DEEP, {INVALID_JSON: DEEP}),
    ],
)
def test_arguments_are_an_object_whatever_the_model_wrote(text: str, arguments: dict[str, Any]) -> None:
    assert parse_arguments(text) == arguments
    check_content([{"type": "tool_use", "id": "a", "name": "b", "input": arguments}])


def test_counts_that_are_missing_are_zero() -> None:
    assert Usage.of({}) == Usage()
