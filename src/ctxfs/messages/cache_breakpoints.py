"""Where the requests of a session have told the provider to cache, and where the next one should. Pure."""

from collections.abc import Sequence

from ctxfs.messages.messages import AssistantMessage, Message, unchanged


class CacheMarks:
    """Follows what is sent: the provider can still read what was marked and has not changed since."""

    def __init__(self) -> None:
        self._sent: tuple[Message, ...] = ()
        self._marks: list[int] = []
        self.breakpoints: tuple[int, ...] = ()
        """After how many messages of the last request a breakpoint stands."""

    def sent(self, messages: tuple[Message, ...], *, spare: int | None = None) -> None:
        """Take in the next request.

        ``spare``: how many messages precede what is expected to change next; None: that is not known; 0: none do, so
        that there is nothing to cache before it.
        """
        same = unchanged(self._sent, messages)
        kept = [mark for mark in self._marks if mark <= same]
        self.breakpoints = _breakpoints(messages, kept[-1] if kept else 0, spare)
        self._marks = sorted({*kept, *self.breakpoints})
        self._sent = messages


def _breakpoints(messages: Sequence[Message], cached: int, spare: int | None) -> tuple[int, ...]:
    """After how many of ``messages`` the next request is worth caching, in order; room is left for the system prompt.

    ``cached``: how many of the first messages are the unchanged beginning of an earlier request that ended there; 0 for
    none. A provider looks for what it has cached only a few blocks back from a breakpoint, so one stands there. The
    ``spare`` one stands before what is expected to change next, with each request, so that it stays alive. Without one,
    what is written behind ``cached`` gets one in its middle, so that a later change does not cost all of it.
    """
    wanted = {len(messages)}
    if cached:
        wanted.add(cached)
    if spare:
        wanted.add(spare)
    else:
        first = cached + 1
        ends = [n for n, m in enumerate(messages[first:], first) if isinstance(m, AssistantMessage)]
        ends.append(len(messages))
        wanted.add(ends[(len(ends) - 1) // 2])
    return tuple(sorted(wanted))
