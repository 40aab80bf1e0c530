"""Content as bytes."""

import pytest

from ctxfs.session.content.encoding import decode_blocks
from ctxfs.text.utf8 import decoded


def test_what_was_written_as_text_is_one_json_string() -> None:
    assert list(decode_blocks([b"caf\\u00e9", b"!"], "text", raw=False)) == ["café".encode(), b"!"]
    with pytest.raises(ValueError):
        list(decode_blocks([b'a","b'], "text", raw=False))


def test_a_character_that_is_cut_off_at_the_end_is_replaced_or_an_error() -> None:
    cut = ["naïve caf".encode(), "é".encode()[:1]]
    assert list(decoded(cut, "replace"))[-1] == "\ufffd"
    with pytest.raises(UnicodeDecodeError):
        list(decoded(cut))
