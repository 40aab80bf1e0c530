"""Errors carry their data."""

from ctxfs.errors import ArchiveTooLarge, MissingExtra, OutcomeUnknown, SessionExists


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
