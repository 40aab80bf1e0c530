"""Where the requests of a session have told the provider to cache, and where the next one should. Pure."""

from collections.abc import Sequence

from ctxfs.llm.messages import AssistantMessage, Message

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
        self.breakpoints = _breakpoints(messages, kept[-1] if kept else 0)
        self._marks = sorted({*kept, *self.breakpoints})
        self._sent = messages


def _breakpoints(messages: Sequence[Message], cached: int) -> tuple[int, ...]:
    """After how many of ``messages`` the next request is worth caching, in order; room is left for the system prompt.

    ``cached``: how many of the first messages are the unchanged beginning of an earlier request that ended there; 0 for
    none. A provider looks for what it has cached only a few blocks back from a breakpoint, so one stands there. What is
    written behind it gets one in its middle, so that a later change does not cost all of it again.
    """
    ends = [n for n, m in enumerate(messages[1:], start=1) if isinstance(m, AssistantMessage) and n > cached]
    ends.append(len(messages))
    middle = ends[(len(ends) - 1) // 2]
    return tuple(sorted({*([cached] if cached else ()), middle, len(messages)}))


def _common(before: Sequence[Message], after: Sequence[Message]) -> int:
    """How many messages from the first one on are the same values in both."""
    pairs = zip(before, after, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a is not b), min(len(before), len(after)))
