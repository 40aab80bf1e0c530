"""What a replay compares with: what the recorded agent did itself, and never evicting inside of the window."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ctxfs.lab.replay.cost import Replacement, Run
from ctxfs.lab.replay.session import Item, Session
from ctxfs.messages.base import Usage

CLEARED_TOKENS: Final = 15
"""What an agent leaves of a result that it clears: "[Old tool result content cleared]"."""
SUMMARY_TOKENS: Final = 2_000


@dataclass(frozen=True, slots=True)
class AsRecorded:
    """What the recorded agent removed from its context, when it did."""

    name: str = "as-recorded"

    def start(self, session: Session) -> Run:
        """Begin with a session."""
        return _AsRecordedRun(session)


class _AsRecordedRun:
    def __init__(self, session: Session) -> None:
        self._cleared = iter([turn.cleared for turn in session.turns])
        self._sizes: dict[int, int] = {}

    def plan(self, added: Sequence[Item], _at: float) -> Sequence[Replacement]:
        self._sizes |= {item.index: item.tokens for item in added}
        due = next(self._cleared)
        return [Replacement(index, CLEARED_TOKENS) for index in due if self._sizes.get(index, 0) > CLEARED_TOKENS]

    def replied(self, reply: Sequence[Item], _billed: Usage) -> None:
        self._sizes |= {item.index: item.tokens for item in reply}

    def read_back(self, _index: int, _call: Item, _page: Item, _billed: Usage) -> None:
        """The agent did not know that it could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Nothing leaves until the context has ``limit`` tokens; then all of it becomes a summary.

    Writing the summary is not charged, and nothing that it replaced is missed: no agent does better.
    """

    name: str
    limit: int

    def start(self, _session: Session) -> Run:
        """Begin with a session."""
        return _WindowRun(self.limit)


class _WindowRun:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._total = 0
        self._kept: list[Item] = []  # what is not yet summarised

    def plan(self, added: Sequence[Item], _at: float) -> Sequence[Replacement]:
        total = self._total + sum(item.tokens for item in added)
        prefix = [item for item in self._kept if item.index < 0]
        old = [item for item in self._kept if item.index >= 0]  # the summary first, where there is one
        self._kept += added
        self._total = total
        if total <= self._limit or sum(item.tokens for item in old) <= SUMMARY_TOKENS:
            return ()  # a summary of less would be longer than what it is of
        first, *rest = old
        self._kept = [*prefix, first, *added]
        self._total = sum(item.tokens for item in (*prefix, *added)) + SUMMARY_TOKENS
        summary = Replacement(first.index, SUMMARY_TOKENS, first.quotable)
        return [summary, *(Replacement(item.index, 0, item.quotable) for item in rest)]

    def replied(self, reply: Sequence[Item], _billed: Usage) -> None:
        self._kept += reply
        self._total += sum(item.tokens for item in reply)

    def read_back(self, _index: int, _call: Item, _page: Item, _billed: Usage) -> None:
        """Nothing is read back: a summary shows what it replaced."""
