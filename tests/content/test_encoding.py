"""Content as bytes."""

import pytest

from ctxfs.content.encoding import decode_blocks


def test_what_was_written_as_text_is_one_json_string() -> None:
    assert list(decode_blocks([b"caf\\u00e9", b"!"], "text", raw=False)) == ["café".encode(), b"!"]
    with pytest.raises(ValueError):
        list(decode_blocks([b'a","b'], "text", raw=False))
