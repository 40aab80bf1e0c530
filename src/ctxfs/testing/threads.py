"""Conversations that the Messages API keeps between requests, of which each then holds only what is new."""

from collections.abc import Mapping
from typing import Any

from ctxfs.errors import InvalidRequest
from ctxfs.messages.messages import Block

__all__ = ["THREADS_BETA", "ThreadRefused", "Threads"]

THREADS_BETA = "message-threads-2026-08-12"
"""The name in the header ``anthropic-beta`` without which the field ``thread`` is unknown."""

_KEPT = ("system", "tools")
"""What a thread keeps from the request that created it, so that no other may repeat it."""


class ThreadRefused(InvalidRequest):
    """A thread cannot be continued by a request. ``code``: by which an SDK knows the reason; None: it has no code."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class Threads:
    """The threads of one server, by the id of the reply that each ends with."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[str, Any]] = {}
        self._continued: set[str] = set()

    def whole(self, request: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        """``request`` as if it held all that its thread does.

        Raises:
            ThreadRefused: there is no such thread, or it cannot be continued by this request.

        """
        thread = request.get("thread")
        if thread is None:
            return request
        if THREADS_BETA not in headers.get("anthropic-beta", ""):
            raise ThreadRefused("thread: Extra inputs are not permitted")
        match thread:
            case {"type": "create"}:
                return {key: value for key, value in request.items() if key != "thread"}
            case {"type": "continue", "previous_message_id": str(previous)}:
                return self._continuing(request, previous)
        raise ThreadRefused("thread: use {'type': 'create'}, or {'type': 'continue', 'previous_message_id': ...}")

    def _continuing(self, request: dict[str, Any], previous: str) -> dict[str, Any]:
        if previous in self._continued:
            raise ThreadRefused(f"thread: {previous} was continued already", "thread_already_continued")
        if (kept := self._ends.get(previous)) is None:
            raise ThreadRefused(f"thread: there is none that ends with {previous}", "thread_not_found")
        if repeated := [key for key in _KEPT if key in request]:
            raise ThreadRefused(f"thread: {' and '.join(repeated)} cannot be set again: the thread keeps them")
        own = {key: value for key, value in request.items() if key != "thread"}
        new = own.get("messages")
        return {**kept, **own, "messages": [*kept["messages"], *new] if isinstance(new, list) else new}

    def replied(
        self, request: Mapping[str, Any], whole: Mapping[str, Any], reply_id: str, content: list[Block]
    ) -> None:
        """Keep the thread of ``request``, if it is in one; ``whole`` is what it came to, and its reply was given."""
        if (thread := request.get("thread")) is None:
            return
        if thread["type"] == "continue":
            del self._ends[thread["previous_message_id"]]
            self._continued.add(thread["previous_message_id"])
        messages = [*whole["messages"], {"role": "assistant", "content": content}]
        self._ends[reply_id] = {**{key: whole[key] for key in _KEPT if key in whole}, "messages": messages}
