"""Bytes that are no UTF-8."""

import pytest

from ctxfs.text.utf8 import lossless_bytes


@pytest.mark.parametrize("data", [b"", "naïve".encode(), b"caf\xe9", b"\xff\x00"])
def test_bytes_that_are_no_utf8_come_back_as_they_were(data: bytes) -> None:
    assert lossless_bytes(data.decode("utf-8", "surrogateescape")) == data


def test_a_surrogate_that_stands_for_no_byte_keeps_its_form() -> None:
    assert lossless_bytes("\ud800") == "\ud800".encode("utf-8", "surrogatepass")
