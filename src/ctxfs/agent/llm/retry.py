"""Which failures of a provider are tried again, after how long, and as which error they end: for every provider."""

import random
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TypeVar

import anyio

from ctxfs.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    InvalidRequest,
    ModelError,
    Overloaded,
    RateLimited,
)
from ctxfs.messages.base import Retrying
from ctxfs.messages.overflow import error_fields, too_long

T = TypeVar("T")

STATUS_OF_KIND = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status that an error of the Messages API has when it comes in the middle of a stream, under a 200."""

RETRYABLE = (ConnectionFailed, RateLimited, Overloaded)

_INVALID = re.compile(
    r"validation errors?\b.*\('body'"  # llama-cpp-python, and what else hands on what FastAPI raises
    r"|Jinja Exception:"  # llama.cpp: the model's chat template refuses the order of the messages
    r"|Failed to parse (?:messages|tools|tool call arguments)",  # llama.cpp
    re.DOTALL,
)
"""What local servers write under a status of 500 where the request is invalid: another attempt cannot help."""


_JITTER = 0.25
"""At most this part of a delay is taken off by chance, so that clients refused together do not come back together."""

_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 30.0
"""The delay doubles up to this, which outlasts an overload."""

_MAX_RETRY_AFTER_S = 60.0
"""The longest wait, in seconds, that a provider may ask for: after a longer one it is asked again too early."""


MAX_RETRIES = 4
"""With the delays between them, an overload of some seconds is outlasted."""


def delay_s(attempt: int, retry_after_s: float | None) -> float:
    """The seconds to wait after the failed ``attempt`` (1-based): longer each time, and at least ``retry_after_s``."""
    delay = min(_FIRST_DELAY_S * 2.0 ** min(attempt - 1, 30), _LONGEST_DELAY_S)
    delay *= 1 - _JITTER * random.random()  # noqa: S311 - no secret depends on it
    return max(delay, min(retry_after_s or 0.0, _MAX_RETRY_AFTER_S))


class AttemptFailed(Exception):
    """One attempt failed: as which error it ends, and whether another may help."""

    def __init__(self, error: ModelError, *, retryable: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.retryable = retryable


def classify(error: object, *, status: int | None = None, headers: Mapping[str, str] | None = None) -> AttemptFailed:
    """The failure that a provider's answer is. ``error``: its error object with ``message`` and ``type``, or a text.

    Nothing in the object is relied on. One in the middle of a stream is known by its type, since the status was 200.
    """
    fields = error_fields(error)
    message = str(fields.get("message") or error)
    kind = fields.get("type")
    code = fields.get("code")
    if isinstance(kind, str):
        status = STATUS_OF_KIND.get(kind, status)
    if status is None and isinstance(code, int) and 400 <= code < 600:
        status = code
    refusal = too_long(error, status=status)
    if refusal is not None:
        return AttemptFailed(refusal, retryable=False)
    failed = _error_of(status)
    if failed is Overloaded and _INVALID.search(message):
        failed = InvalidRequest
    advice = " (check the API key)" if failed is AuthenticationFailed else ""
    return AttemptFailed(
        failed(message + advice, status=status, retry_after_s=_retry_after_s(headers or {})),
        retryable=failed in RETRYABLE,
    )


def _error_of(status: int | None) -> type[ModelError]:
    match status:
        case 401 | 403:
            return AuthenticationFailed
        case 408 | 504:
            return ConnectionFailed
        case 429:
            return RateLimited
        case None | 409:
            return Overloaded
    return Overloaded if status >= 500 else InvalidRequest


def broken(reason: str | Exception) -> AttemptFailed:
    """A connection that was not made, timed out or broke off; an SDK's error names the address, too."""
    address = getattr(getattr(reason, "request", None), "url", "")
    said = f"{reason} (request to {address})" if address else str(reason)
    return AttemptFailed(ConnectionFailed(said), retryable=True)


async def retrying(
    attempt: Callable[[], AsyncGenerator[T, None]],
    max_retries: int = MAX_RETRIES,
    *,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
) -> AsyncGenerator[T | Retrying, None]:
    """What ``attempt()`` yields; when it raises ``AttemptFailed``, a ``Retrying`` event, a wait and another attempt.

    ``max_retries``: 0 never retries. ``sleep`` waits for a number of seconds, for tests.

    Raises:
        ModelError: the failure cannot be retried, or the retries are used up.

    """
    number = 0
    while True:
        number += 1
        try:
            async with aclosing(attempt()) as events:
                async for event in events:
                    yield event
        except AttemptFailed as failure:
            if not failure.retryable or number > max_retries:
                failure.error.attempts = number
                raise failure.error from failure.__cause__
            waits_s = delay_s(number, failure.error.retry_after_s)
            reason = str(failure)
        else:
            return
        yield Retrying(attempt=number, delay_s=waits_s, reason=reason)
        await sleep(waits_s)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds, the only form that providers of models send; None when it is not there or a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "")
        if re.fullmatch(r"\d+(\.\d+)?", value):
            return float(value) * scale
    return None
