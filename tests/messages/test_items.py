"""An item's content out and in again, and its message with it."""

from typing import Any

import pytest

from ctxfs.errors import InvalidRecord
from ctxfs.messages.items import ContentRange, ContextItem
from ctxfs.messages.messages import AssistantMessage, Message, ToolMessage, UserMessage, check_message
from session_items import make_item

PATH = "/s/tool_result/Read/a.json"


def result() -> ContextItem:
    return make_item("a", ToolMessage("a", "Read", "the content"), 100)


def test_a_result_says_where_its_content_went_and_so_does_its_message() -> None:
    out = result().offloaded_to(PATH, "placeholder", 7)
    assert (out.offloaded, out.destroyed, out.offload_path, out.token_count, out.content_tokens) == (
        *(True, True, PATH, 7, 100),
    )
    assert out.message == ToolMessage("a", "Read", "placeholder", offloaded=True, offload_path=PATH)
    assert out.restored("the content") == result()


def test_a_file_that_moved_is_named_by_item_and_message() -> None:
    out = result().offloaded_to(PATH, "placeholder", 7)
    moved = out.moved_to("/t/a.json")
    assert (moved.offload_path, moved.message.offload_path) == ("/t/a.json", "/t/a.json")  # type: ignore[union-attr]
    assert moved.moved_to(PATH) == out
    assert out.moved_to(PATH) is out
    assert result().moved_to(None) == result()


def test_a_reply_without_its_large_arguments_is_not_in_a_file() -> None:
    reply = make_item("m", AssistantMessage("text"), 10)
    out = reply.offloaded_to(None, "shorter", 3, destroyed=False, trimmed=(1,))
    assert (out.offloaded, out.destroyed, out.offload_path, out.trimmed) == (False, False, None, (1,))
    assert out.message == AssistantMessage("shorter")
    assert out.restored("text").message == reply.message
    assert reply.with_content("other").message == AssistantMessage("other")


@pytest.mark.parametrize(
    ("wrong", "use"),
    [({"item_id": 1}, "a text"), ({"path": None}, "a text"), ({"first_line": "1"}, "a number")],
)
def test_each_part_of_a_range_has_its_type(wrong: dict[str, Any], use: str) -> None:
    right = {"item_id": "call_1", "path": "/s/call_1.json", "first_line": 1, "last_line": 2}
    assert ContentRange(**right).last_line == 2  # type: ignore[arg-type]
    with pytest.raises(InvalidRecord, match=f"{next(iter(wrong))} of a ContentRange is .*: use {use}"):
        ContentRange(**{**right, **wrong})


def test_a_range_that_no_journal_could_hold_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="first_line of a ContentRange is '1': use"):
        ContentRange(item_id="call_1", path="/s/call_1.json", first_line="1", last_line=2)  # type: ignore[arg-type]


def test_a_message_is_taken_as_a_resumed_session_gives_it_back() -> None:
    text = {"type": "text", "text": "x"}
    assert check_message(UserMessage([text])) == UserMessage((text,))  # type: ignore[arg-type]
    message = UserMessage("x")
    assert check_message(message) is message
    given = ToolMessage("a", "Read", [text], is_error=None, offload_path="/s/a.json")  # type: ignore[arg-type]
    assert check_message(given) == ToolMessage("a", "Read", (text,), offload_path="/s/a.json")
    with pytest.raises(ValueError, match="offload_path is 5"):
        check_message(ToolMessage("a", "Read", "x", offload_path=5))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a message"):
        check_message({"role": "user"})


@pytest.mark.parametrize(
    ("message", "belongs"),
    [
        (UserMessage(({"type": "tool_use", "id": "a", "name": "ls", "input": {}},)), "an assistant's"),
        (UserMessage(({"type": "thinking", "thinking": "hm", "signature": "s"},)), "an assistant's"),
        (AssistantMessage(({"type": "tool_result", "tool_use_id": "a", "content": "x"},)), "a user's"),
    ],
)
def test_a_block_that_every_provider_refuses_there_says_where_it_belongs(message: Message, belongs: str) -> None:
    with pytest.raises(ValueError, match=f"belongs in {belongs} message"):
        check_message(message)
