"""Which sessions a user wants to see, and in which order. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import islice

from ctxfs.session.listing.summary import SessionSummary


class SortKey(StrEnum):
    """By what sessions are sorted, the greatest first; by age: the newest first."""

    AGE = "age"
    SIZE = "size"
    TOKENS = "tokens"
    COST = "cost"


_KEYS: dict[SortKey, Callable[[SessionSummary], float]] = {
    SortKey.AGE: lambda session: session.changed_at,
    SortKey.SIZE: lambda session: session.disk_bytes,
    SortKey.TOKENS: lambda session: session.context_tokens,
    SortKey.COST: lambda session: session.cost_usd or 0.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Sessions that meet every condition that is set.

    ``since``: they changed then or later, in seconds since the epoch. ``model``: a model was called whose name is this
    one, or matches it with ``*`` and ``?``. ``damaged``: they cannot be read whole. ``running``: an agent writes to
    them now. ``limit``: how many at most; None: all.
    """

    sort: SortKey = SortKey.AGE
    reverse: bool = False
    since: float | None = None
    model: str | None = None
    damaged: bool = False
    running: bool = False
    limit: int | None = None

    def of(self, sessions: Iterable[SessionSummary], is_running: Callable[[str], bool]) -> list[SessionSummary]:
        """Return those of ``sessions`` that are selected, sorted; ``is_running`` is asked only about those in question.

        Where two are alike, the newer one comes first.
        """
        found = [session for session in sessions if self._meets(session)]
        found.sort(key=_KEYS[SortKey.AGE], reverse=True)
        found.sort(key=_KEYS[self.sort], reverse=not self.reverse)
        wanted = (session for session in found if not self.running or is_running(session.session_id))
        return list(islice(wanted, self.limit))

    def _meets(self, session: SessionSummary) -> bool:
        if self.since is not None and session.changed_at < self.since:
            return False
        if self.model is not None and not any(fnmatchcase(model, self.model) for model in session.models):
            return False
        return session.is_damaged or not self.damaged
