"""What is taken as usage: ours, that of three APIs as their SDKs give it, and dicts of those shapes."""

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic.types import CacheCreation
from anthropic.types import Usage as MessagesUsage
from openai.types import CompletionUsage
from openai.types.completion_usage import PromptTokensDetails
from openai.types.responses import ResponseUsage

from ctxfs.errors import InvalidReply, ModelError
from ctxfs.messages import AssistantMessage, Reply, Usage

MESSAGES = MessagesUsage(
    input_tokens=5, output_tokens=7, cache_read_input_tokens=20, cache_creation_input_tokens=30,
    cache_creation=CacheCreation(ephemeral_5m_input_tokens=10, ephemeral_1h_input_tokens=20),
)  # fmt: skip
CHAT = CompletionUsage(
    prompt_tokens=55, completion_tokens=7, total_tokens=62, prompt_tokens_details=PromptTokensDetails(cached_tokens=20)
)
RESPONSES = ResponseUsage.model_validate(
    {
        "input_tokens": 55,
        "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 30},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 62,
    }
)
WHOLE = Usage(input_tokens=5, cache_creation_input_tokens=30, cache_read_input_tokens=20, output_tokens=7)
UNWRITTEN = Usage(input_tokens=35, cache_read_input_tokens=20, output_tokens=7)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (WHOLE, WHOLE),
        (MESSAGES, WHOLE),
        (MESSAGES.to_dict(), WHOLE),
        ({**MESSAGES.to_dict(), "cache_creation_input_tokens": None}, WHOLE),
        (MessagesUsage(input_tokens=5, output_tokens=7), Usage(input_tokens=5, output_tokens=7)),
        (CHAT, UNWRITTEN),
        (CHAT.to_dict(), UNWRITTEN),
        (RESPONSES, WHOLE),
        (RESPONSES.to_dict(), WHOLE),
        (SimpleNamespace(input_tokens=3, output_tokens=None), Usage(input_tokens=3)),
        ({"prompt_tokens": 4.0, "completion_tokens": None}, Usage(input_tokens=4)),
        ({"prompt_tokens": 4, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(cache_read_input_tokens=4)),
        (None, Usage()),
        ({}, Usage()),
    ],
)  # fmt: skip
def test_usage_of_every_api_is_taken_as_it_is(usage: Any, expected: Usage) -> None:
    assert Usage.of(usage) == expected
    assert Reply(message=AssistantMessage("x"), usage=usage, stop_reason="end_turn", model="m").usage == expected


@pytest.mark.parametrize("usage", ["12", 12, [12], {"tokens": 12}, object(), True])
def test_what_is_no_usage_is_refused_with_what_to_write(usage: Any) -> None:
    with pytest.raises(InvalidReply, match=r"pass the SDK's `reply.usage`, a dict with input_tokens"):
        Usage.of(usage)


@pytest.mark.parametrize("count", [-1, 1.5, float("nan"), float("inf"), "7", True, 10**400, b"7", [], Fraction(7)])
@pytest.mark.parametrize("name", ["input_tokens", "cache_read_input_tokens", "output_tokens"])
def test_a_count_that_is_none_is_refused_by_name(name: str, count: Any) -> None:
    with pytest.raises(InvalidReply, match=f"{name} is .*: use a whole number of tokens"):
        Usage(**{name: count})
    with pytest.raises(InvalidReply, match=f"{name} is .*: use a whole number of tokens"):
        Usage.of({"input_tokens": 1, name: count})


@pytest.mark.parametrize("count", [None, 0.0, 0])
def test_no_count_is_zero_and_a_whole_float_an_int(count: Any) -> None:
    usage = Usage(input_tokens=count, output_tokens=3.0)  # type: ignore[arg-type]
    assert (usage.input_tokens, usage.output_tokens) == (0, 3)
    assert all(type(value) is int for value in (usage.input_tokens, usage.output_tokens, usage.total_input_tokens))


@pytest.mark.parametrize(("field", "value"), [("message", "text"), ("message", None), ("model", 5), ("usage", "many")])
def test_a_reply_that_is_none_is_refused_where_it_is_made(field: str, value: Any) -> None:
    given: dict[str, Any] = {
        "message": AssistantMessage("x"),
        "usage": Usage(),
        "stop_reason": "end_turn",
        "model": "m",
    }
    with pytest.raises(InvalidReply, match=field) as raised:
        Reply(**{**given, field: value})
    assert isinstance(raised.value, ModelError)
    assert isinstance(raised.value, ValueError)


def test_a_model_without_a_name_has_the_empty_one() -> None:
    reply = Reply(message=AssistantMessage("x"), usage=Usage(), stop_reason="end_turn", model=None)  # type: ignore[arg-type]
    assert reply.model == ""
