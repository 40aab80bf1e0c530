"""The list of sessions: the rows that match, sorted. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os.path import commonprefix
from typing import Any

from ctxfs.session.listing.summary import SessionSummary

SORTS: Mapping[str, Callable[[SessionSummary], Any]] = {
    "age": lambda session: -session.changed_at,
    "name": lambda session: (session.title or session.session_id).casefold(),
    "calls": lambda session: -session.calls,
    "tokens": lambda session: -session.context_tokens,
    "size": lambda session: -session.disk_bytes,
    "cost": lambda session: -(session.cost_usd or 0.0),
    "saved": lambda session: (-(session.saved_usd or 0.0), -(session.saved_tokens or 0)),
}
"""How the list can be sorted: by name, or with the newest or largest first."""


_SHARED_CHARS = 24
"""About as many characters of a question are seen on a telephone."""


def narrow_titles(titles: Iterable[str]) -> Mapping[str, str]:
    """A short form of each title, for narrow screens: titles that begin alike are shown from where they differ."""
    ordered = sorted(set(titles))
    shown = {}
    for number, title in enumerate(ordered):
        beside = [*ordered[max(number - 1, 0) : number], *ordered[number + 1 : number + 2]]
        shared = max((len(commonprefix([title, other])) for other in beside), default=0)  # noqa: RUF071 - of characters
        least = max(0, shared - _SHARED_CHARS // 2)  # a word may be longer than there is room
        differs = title.rfind(" ", least, shared) + 1 or least
        shown[title] = title if shared < _SHARED_CHARS else f"{title[:5].rstrip()}… {title[differs:]}"
    return shown


def chosen_rows(
    found: Iterable[SessionSummary], *, matching: str = "", sort: str = "age", reverse: bool = False
) -> Sequence[SessionSummary]:
    """The sessions with ``matching`` in their question, id or model, sorted; an unknown ``sort`` is "age"."""
    wanted = matching.casefold()
    rows = [one for one in found if any(wanted in name.casefold() for name in (one.title, one.session_id, *one.models))]
    rows.sort(key=lambda one: one.session_id)
    rows.sort(key=SORTS.get(sort, SORTS["age"]), reverse=reverse)
    return rows
