"""Errors carry their data."""

import re

import ctxfs.errors
from ctxfs.errors import ArchiveTooLarge, MissingExtra, OutcomeUnknown, SessionExists


def test_the_tree_in_the_docstring_shows_every_error_below_its_base() -> None:
    drawn = list[tuple[str, str]]()
    above = ["", "CtxfsError"]
    for line in re.findall(r"^    ((?:│   |    )*)[├└]── (\w+)", ctxfs.errors.__doc__ or "", re.MULTILINE):
        depth, name = len(line[0]) // 4 + 2, line[1]
        above[depth:] = [name]
        drawn.append((name, above[depth - 1]))
    errors = {name: getattr(ctxfs.errors, name) for name in ctxfs.errors.__all__}
    assert sorted(drawn) == sorted(
        (name, error.__bases__[0].__name__) for name, error in errors.items() if name != "CtxfsError"
    )


def test_errors_carry_what_they_speak_of() -> None:
    missing = MissingExtra("openai", "openai")
    assert (missing.extra, missing.package) == ("openai", "openai")
    assert "pip install 'ctxfs[openai]'" in str(missing)
    exists = SessionExists("session_1", "/root")
    assert (exists.session_id, exists.root) == ("session_1", "/root")
    assert ArchiveTooLarge("bytes", 4_096).limit == 4_096


def test_an_unknown_outcome_says_what_to_do() -> None:
    said = str(OutcomeUnknown("a commit", "no answer in 10 s"))
    assert (
        said == "no answer says whether a commit was stored (no answer in 10 s): close the session, and open it again"
    )
