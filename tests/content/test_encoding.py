"""Content as bytes."""

import pytest

from ctxfs.session.content.encoding import decode_blocks
from ctxfs.text.utf8 import decoded
from session_items import stored_record


def test_what_was_written_as_text_is_one_json_string() -> None:
    assert list(decode_blocks([b"caf\\u00e9", b"!"], "text", raw=False)) == ["café".encode(), b"!"]
    with pytest.raises(ValueError):
        list(decode_blocks([b'a","b'], "text", raw=False))


def test_a_character_that_is_cut_off_at_the_end_is_replaced_or_an_error() -> None:
    cut = ["naïve caf".encode(), "é".encode()[:1]]
    assert list(decoded(cut, "replace"))[-1] == "\ufffd"
    with pytest.raises(UnicodeDecodeError):
        list(decoded(cut))


def test_base64_whose_last_bits_are_not_those_that_were_written_is_damage() -> None:
    assert list(decode_blocks([b"YQ=="], "bytes", raw=False)) == [b"a"]
    with pytest.raises(ValueError, match="not the base64 that was written"):
        list(decode_blocks([b"YR=="], "bytes", raw=False))


@pytest.mark.parametrize(
    ("metadata", "missing"),
    [
        ({}, ""),
        ({"full_bytes": 1_000}, "only the first 5 of 1,000 bytes were stored"),
        ({"partial": True}, "its command had not ended"),
        ({"partial": "x"}, ""),
    ],
)
def test_what_an_output_had_beyond_its_content_is_said(metadata: dict[str, object], missing: str) -> None:
    assert stored_record(metadata=metadata).missing == missing
