"""What was meant by a name that does not exist: of a setting, of a module's content, of a model, of a policy."""

from collections.abc import Iterable

_LIKE = 0.6
"""How alike two names must be, from 0 to 1, for one to be the other misspelled: "session" and "session_id" are 0.82
alike, "root" and "root_path" 0.62, "budget" and "digest_tokens", which are two settings, 0.42."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of the ``known`` names that is most like ``name``; None: none is like it."""
    from difflib import get_close_matches  # noqa: PLC0415 - only a program that fails needs it

    found = get_close_matches(name, list(known), n=1, cutoff=_LIKE)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What ends an error about ``name``: ": did you mean 'tools'?"; "" if none of the ``known`` names is like it."""
    meant = nearest(name, known)
    return "" if meant is None else f": did you mean {meant!r}?"
