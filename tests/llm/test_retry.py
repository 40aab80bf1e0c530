"""Which failures are tried again, after how long, and as which error they end."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from ctxfs.agent.llm.retry import broken, classify, delay_s, retrying
from ctxfs.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    InvalidRequest,
    ModelError,
    Overloaded,
    PromptTooLong,
    RateLimited,
)
from ctxfs.messages.base import Retrying

CLASSES: list[tuple[int, type[ModelError], bool]] = [
    (400, InvalidRequest, False),
    (401, AuthenticationFailed, False),
    (402, InvalidRequest, False),
    (403, AuthenticationFailed, False),
    (404, InvalidRequest, False),
    (408, ConnectionFailed, True),
    (409, Overloaded, True),
    (413, PromptTooLong, False),
    (422, InvalidRequest, False),
    (429, RateLimited, True),
    (500, Overloaded, True),
    (502, Overloaded, True),
    (503, Overloaded, True),
    (504, ConnectionFailed, True),
    (529, Overloaded, True),
]


@pytest.mark.parametrize(("status", "error", "retryable"), CLASSES)
def test_each_status_has_its_error_and_its_chance(status: int, error: type[ModelError], retryable: bool) -> None:
    failure = classify("what happened", status=status)
    assert type(failure.error) is error
    assert failure.retryable is retryable
    assert "what happened" in str(failure.error)
    assert failure.error.status == status


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (
            "2 validation errors:\n  {'type': 'string_type', 'loc': ('body', 'messages', 3, 'content'), 'msg': '…'}",
            InvalidRequest,
        ),
        ("\nError: Jinja Exception: System message must be at the beginning.", InvalidRequest),
        ("Failed to parse tool call arguments as JSON: [json.exception.parse_error.101]", InvalidRequest),
        # A reply that the server itself cannot write: another one may be better.
        ("1 validation error:\n  {'type': 'missing', 'loc': ('response', 'choices', 0), 'msg': '…'}", Overloaded),
        ("Invalid input batch.", Overloaded),
    ],
)
def test_an_invalid_request_is_known_under_a_status_of_500(message: str, error: type[ModelError]) -> None:
    failure = classify({"message": message, "type": "internal_server_error", "code": None}, status=500)
    assert type(failure.error) is error
    assert failure.retryable is (error is Overloaded)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("overloaded_error", Overloaded),
        ("rate_limit_error", RateLimited),
        ("invalid_request_error", InvalidRequest),
        ("authentication_error", AuthenticationFailed),
        (None, Overloaded),
    ],
)
def test_an_error_in_mid_stream_goes_by_its_kind(kind: str | None, error: type[ModelError]) -> None:
    assert type(classify({"message": "x", "type": kind}).error) is error


@pytest.mark.parametrize(
    ("message", "limit", "actual"),
    [
        ("prompt is too long: 208310 tokens > 200000 maximum", 200_000, 208_310),
        ("input length and `max_tokens` exceed context limit: 197202 + 8192 > 200000, decrease", 200_000, 205_394),
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
            8192,
            9001,
        ),
        ("the request exceeds the available context size, try increasing it", None, None),
    ],
)
def test_a_prompt_that_is_too_long_tells_the_numbers(message: str, limit: int | None, actual: int | None) -> None:
    error = classify(message, status=400).error
    assert isinstance(error, PromptTooLong)
    assert (error.limit_tokens, error.actual_tokens) == (limit, actual)


def test_the_delay_doubles_up_to_its_bound() -> None:
    for attempt, longest in ((1, 0.5), (2, 1), (3, 2), (6, 16), (7, 30), (8, 30), (10_000, 30)):
        assert 0.75 * longest <= delay_s(attempt, None) <= longest


def test_delays_differ_by_chance() -> None:
    assert len({delay_s(1, None) for _ in range(20)}) > 1


def test_retry_after_is_honoured_and_capped() -> None:
    assert delay_s(1, 7) == 7
    assert delay_s(1, 3600) == 60
    assert delay_s(5, 2) >= 6  # its own delay of 8 seconds, less a quarter at most


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_seconds(headers: dict[str, str], seconds: float | None) -> None:
    assert classify("x", status=429, headers=headers).error.retry_after_s == seconds


class Flaky:
    """Attempts that fail ``failures`` times, then yield."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.slept: list[float] = []

    async def attempt(self) -> AsyncGenerator[str, None]:
        yield "begun"
        if self.failures:
            raise self.failures.pop(0)
        yield "done"

    async def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)

    async def run(self, max_retries: int = 4) -> list[object]:
        async with aclosing(retrying(self.attempt, max_retries, sleep=self.sleep)) as events:
            return [event async for event in events]


@pytest.mark.both_loops
@pytest.mark.anyio
async def test_a_failed_attempt_is_announced_waited_for_and_made_again() -> None:
    flaky = Flaky(classify("slow down", status=429, headers={"retry-after": "3"}), broken("gone"))
    events = await flaky.run()
    slept = flaky.slept
    assert events == [
        "begun",
        Retrying(attempt=1, delay_s=slept[0], reason="slow down"),
        "begun",
        Retrying(attempt=2, delay_s=slept[1], reason="gone"),
        "begun",
        "done",
    ]
    assert slept[0] == 3.0
    assert 0.75 <= slept[1] <= 1.0


@pytest.mark.both_loops
@pytest.mark.anyio
@pytest.mark.parametrize(("max_retries", "slept"), [(0, 0), (2, 2)])
async def test_retries_end(max_retries: int, slept: int) -> None:
    flaky = Flaky(*(classify("busy", status=529) for _ in range(9)))
    with pytest.raises(Overloaded, match="busy") as caught:
        await flaky.run(max_retries)
    assert caught.value.attempts == max_retries + 1
    assert len(flaky.slept) == slept


@pytest.mark.both_loops
@pytest.mark.anyio
async def test_what_cannot_be_helped_is_not_tried_again() -> None:
    flaky = Flaky(classify("no", status=400))
    with pytest.raises(InvalidRequest):
        await flaky.run()
    assert flaky.slept == []


@pytest.mark.both_loops
@pytest.mark.anyio
async def test_errors_that_are_no_failed_attempts_pass_through() -> None:
    with pytest.raises(ZeroDivisionError):
        await Flaky(ZeroDivisionError()).run()
