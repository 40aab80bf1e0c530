"""The checks of ``invariants`` for one request after another of the same conversation."""

from collections.abc import Mapping, Sequence
from typing import Any

from ctxfs.errors import TranscriptError
from ctxfs.messages.messages import unchanged
from ctxfs.testing.invariants import Before, Placed, cacheable, found_after, turns_of, violations, with_breakpoint

__all__ = ["Checker"]


class Checker:
    """Checks the bodies of one conversation: finds what ``violations`` finds, but reads only what changed.

    Messages that are the same objects as in the last valid body are not read again, so they must not be changed in
    place. No rule looks further back than from a user message to the reply before it, but for two: call ids are unique,
    and breakpoints are few. What those two need is kept.
    """

    def __init__(self) -> None:
        self._messages: list[Mapping[str, Any]] = []
        self._calls: dict[str, int] = {}  # which message each call is in, in order
        self._marked: list[tuple[int, Placed]] = []  # the same for each block with a breakpoint

    def check(self, body: Mapping[str, Any]) -> None:
        """Raise ``TranscriptError`` with every violation in ``body``."""
        if found := self.violations(body):
            raise TranscriptError(found)

    def violations(self, body: Mapping[str, Any]) -> list[str]:
        """What ``invariants.violations(body)`` returns."""
        messages = body.get("messages")
        if not isinstance(messages, list):
            return violations(body)
        start = _last_reply(self._messages, unchanged(self._messages, messages))
        self._forget(start)
        before = Before(self._calls, [placed for _, placed in self._marked]) if start else None
        if found_after(before, {**body, "messages": messages[start:]}):
            return violations(body)  # with the places in the whole body
        self._remember(messages, start)
        return []

    def _forget(self, start: int) -> None:
        """Forget the messages from ``start`` on."""
        del self._messages[start:]
        while self._calls and next(reversed(self._calls.values())) >= start:
            self._calls.popitem()
        while self._marked and self._marked[-1][0] >= start:
            self._marked.pop()

    def _remember(self, messages: Sequence[Mapping[str, Any]], start: int) -> None:
        """Take in the messages from ``start`` on, which are valid."""
        for number, message in enumerate(messages[start:], start):
            turns = turns_of([message])
            self._calls |= {block["id"]: number for _, block in turns[0][1] if block["type"] == "tool_use"}
            self._marked += [(number, placed) for placed in with_breakpoint(cacheable(turns))]
            self._messages.append(message)


def _last_reply(messages: Sequence[Mapping[str, Any]], count: int) -> int:
    """Where the last run of assistant messages begins in the first ``count``; 0 if there is none."""
    for number in range(count - 1, 0, -1):
        if messages[number]["role"] == "assistant" and messages[number - 1]["role"] == "user":
            return number
    return 0
