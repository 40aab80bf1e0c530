"""Errors of models and their providers."""

from ctxfs.errors.base import CtxfsError


class ModelError(CtxfsError):
    """Base of the errors of a model or its provider.

    ``status`` is the HTTP status of the last response (for an error in mid-stream, the status of its type) and
    ``retry_after_s`` its Retry-After in seconds; None if there was none. ``attempts`` is how often the call was made; 0
    if that is unknown, or if it was not made.
    """

    def __init__(
        self, message: str, *, status: int | None = None, retry_after_s: float | None = None, attempts: int = 0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self.attempts = attempts


class MissingApiKey(ModelError):
    """No API key was given, and none is in the environment."""


class AuthenticationFailed(ModelError):
    """The provider refused the key (401, 403)."""


class RateLimited(ModelError):
    """The provider answered 429, even after all retries."""


class Overloaded(ModelError):
    """The provider answered 5xx or "overloaded", even after all retries."""


class ConnectionFailed(ModelError):
    """The network failed or a time-out passed, even after all retries."""


class PromptTooLong(ModelError):
    """The prompt exceeds the provider's limit; ``limit_tokens`` and ``actual_tokens`` are None if it gave none."""

    def __init__(
        self,
        message: str,
        *,
        limit_tokens: int | None = None,
        actual_tokens: int | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message, status=status)
        self.limit_tokens = limit_tokens
        self.actual_tokens = actual_tokens


class InvalidRequest(ModelError):
    """The provider refused the request (4xx); the message is the provider's."""


class InvalidReply(ModelError, ValueError):
    """A reply whose usage or model name cannot be recorded; the message says what to write instead."""


class ReplyIncomplete(ModelError):
    """The reply was truncated by the token limit or interrupted; ``stop_reason`` is the provider's, if it gave one."""

    def __init__(self, message: str, *, stop_reason: str | None = None) -> None:
        super().__init__(message)
        self.stop_reason = stop_reason


class InvalidFunctionCall(ModelError):
    """The model wrote a call in text form that cannot be parsed, even when asked again; nothing was run."""


class BudgetSpent(ModelError):
    """A call that could exceed its budget was refused before it was sent; nothing was spent on it."""
