"""Where the requests of a session have told the provider to cache, and where the next one should. Pure."""

from collections.abc import Sequence

from ctxfs.llm.messages import Message
from ctxfs.llm.serialize import breakpoints

__all__ = ["CacheMarks"]


class CacheMarks:
    """Follows what is sent: the provider can still read what was marked and has not changed since."""

    def __init__(self) -> None:
        self._sent: tuple[Message, ...] = ()
        self._marks: list[int] = []
        self.breakpoints: tuple[int, ...] = ()
        """After how many messages of the last request a breakpoint stands."""

    def sent(self, messages: tuple[Message, ...]) -> None:
        """Take in the next request."""
        unchanged = _common(self._sent, messages)
        kept = [mark for mark in self._marks if mark <= unchanged]
        self.breakpoints = breakpoints(messages, kept[-1] if kept else 0)
        self._marks = sorted({*kept, *self.breakpoints})
        self._sent = messages


def _common(before: Sequence[Message], after: Sequence[Message]) -> int:
    """How many messages from the first one on are the same values in both."""
    pairs = zip(before, after, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a is not b), min(len(before), len(after)))
