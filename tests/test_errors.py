"""Errors carry their data."""

from ctxfs.errors import ArchiveTooLarge, MissingExtra, SessionExists


def test_errors_carry_what_they_speak_of() -> None:
    missing = MissingExtra("openai", "openai")
    assert (missing.extra, missing.package) == ("openai", "openai")
    assert "pip install 'ctxfs[openai]'" in str(missing)
    exists = SessionExists("session_1", "/root")
    assert (exists.session_id, exists.root) == ("session_1", "/root")
    assert ArchiveTooLarge("bytes", 4_096).limit == 4_096
