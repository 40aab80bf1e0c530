"""Errors carry their data."""

import re

import pytest

import ctxfs.errors
from ctxfs.errors import (
    AmbiguousItem,
    ArchiveTooLarge,
    CorruptJournal,
    MissingExtra,
    NameTaken,
    NotRestorable,
    OutcomeUnknown,
    SessionDiverged,
    SessionExists,
    SessionNotFound,
    TurnLimitReached,
)


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
    assert NameTaken("tool_result/t/c1.json").name == "tool_result/t/c1.json"
    missing = MissingExtra("openai", "openai")
    assert (missing.extra, missing.package) == ("openai", "openai")
    assert "pip install 'ctxfs[openai]'" in str(missing)
    exists = SessionExists("session_1", "/root")
    assert (exists.session_id, exists.root) == ("session_1", "/root")
    assert ArchiveTooLarge("bytes", 4_096).limit == 4_096


def test_an_unknown_outcome_says_what_to_do() -> None:
    said = str(OutcomeUnknown("a commit", "no answer in 10 s"))
    assert said == (
        "it is unknown whether a commit was stored (no answer in 10 s): the next change of the session finds out"
    )


def test_what_cannot_be_done_is_said_with_what_to_do() -> None:
    stopped, many = TurnLimitReached(3), AmbiguousItem("call_1", list("abcdef"))
    assert stopped.max_turns == 3
    assert str(stopped) == "stopped at max_turns=3: query again to continue, or raise max_turns"
    assert (many.item_id, many.sessions) == ("call_1", tuple("abcdef"))
    assert "6 sessions have an item 'call_1' (a, b, c, d, e, …): choose one" in str(many)
    assert "(a, b): choose" in str(AmbiguousItem("call_1", ["a", "b"]))
    diverged, stays = SessionDiverged("s"), NotRestorable("call_1", "it is there", done="undone")
    assert (diverged.session_id, "keep one" in str(diverged)) == ("s", True)
    damaged = CorruptJournal("s", "ends too early")
    assert (damaged.session_id, damaged.reason) == ("s", "ends too early")
    assert (stays.item_id, str(stays)) == ("call_1", "call_1 cannot be undone: it is there")


@pytest.mark.parametrize(
    ("root", "removed", "said"),
    [
        ("/root", "", "no session 's' under /root: `ctxfs sessions` lists what is there; --root DIR or CTXFS_ROOT"),
        ("this object store", "", "`ctxfs sessions --store URL` lists what is in a store"),
        ("s3://a bucket", "", "`ctxfs sessions --store 's3://a bucket'` lists what is there"),
        ("/root", "removed on Monday", "session s was removed on Monday"),
    ],
)
def test_a_session_that_is_not_there_is_looked_for_where_it_may_be(root: str, removed: str, said: str) -> None:
    assert said in str(SessionNotFound("s", root, removed))
