"""Which images a provider accepts."""

import base64
from collections.abc import Callable
from typing import Any

import pytest

from ctxfs.text.media import MAX_IMAGE_CHARS, MAX_IMAGE_FILE_BYTES, image_fault, image_type
from images import gif, jpeg, png, webp, webp_extended, webp_lossless, webp_lossy

MAKERS = [
    ("image/png", png),
    ("image/gif", gif),
    ("image/jpeg", jpeg),
    ("image/webp", webp_extended),
    ("image/webp", webp_lossless),
    ("image/webp", webp_lossy),
]


def fault(media_type: Any, raw: bytes) -> tuple[str, str] | None:
    return image_fault(media_type, base64.b64encode(raw).decode())


@pytest.mark.parametrize(("media_type", "make"), MAKERS)
def test_a_whole_image_of_a_known_kind_is_accepted(media_type: str, make: Callable[[int, int], bytes]) -> None:
    assert image_type(make(3, 2)) == media_type
    assert fault(media_type, make(8000, 2)) is None
    assert fault(media_type, make(2, 8000)) is None


@pytest.mark.parametrize(("media_type", "make"), MAKERS)
def test_an_image_that_is_cut_short_is_refused(media_type: str, make: Callable[[int, int], bytes]) -> None:
    whole = make(3, 2)
    for length in (0, 1, 2, 4, 7, 12, 20, 30, len(whole) // 2, len(whole) - 1):
        assert fault(media_type, whole[:length]) in (
            ("data", "could not process image"),
            ("data", "invalid base64 data"),
        )


@pytest.mark.parametrize(("media_type", "make"), MAKERS[:4])
def test_an_image_of_too_many_pixels_is_refused(media_type: str, make: Callable[[int, int], bytes]) -> None:
    told = ("data", "image dimensions exceed the maximum of 8000 pixels: 8001 x 3")
    assert fault(media_type, make(8001, 3)) == told


@pytest.mark.parametrize(
    ("media_type", "data", "field", "reason"),
    [
        ("image/tiff", "", "media_type", "should be one of image/png, image/jpeg, image/gif, image/webp"),
        (None, "", "media_type", "should be one of"),
        ([], "", "media_type", "should be one of"),
        ("image/png", None, "data", "invalid base64 data"),
        ("image/png", "", "data", "invalid base64 data"),
        ("image/png", "%%%", "data", "invalid base64 data"),
        ("image/png", "é", "data", "invalid base64 data"),
        ("image/png", base64.b64encode(b"BM" + bytes(99)).decode(), "data", "could not process image"),
        ("image/gif", base64.b64encode(gif(0, 1)).decode(), "data", "could not process image"),
        ("image/webp", base64.b64encode(webp(b"VP9 ", bytes(20))).decode(), "data", "could not process image"),
        (
            "image/jpeg",
            base64.b64encode(png(1, 1)).decode(),
            "media_type",
            "specified as image/jpeg, but appears to be",
        ),
        ("image/png", "A" * (MAX_IMAGE_CHARS + 1), "data", "image exceeds 5 MB maximum: 5242881 bytes > 5242880"),
    ],
)
def test_what_a_provider_refuses_is_told(media_type: Any, data: Any, field: str, reason: str) -> None:
    told = image_fault(media_type, data)
    assert told is not None
    assert told[0] == field
    assert reason in told[1]


def test_the_limit_holds_for_what_is_sent() -> None:
    largest = gif(1, 1)[:-1] + bytes(MAX_IMAGE_FILE_BYTES - len(gif(1, 1))) + b";"
    assert len(base64.b64encode(largest)) == MAX_IMAGE_CHARS
    assert fault("image/gif", largest) is None
    assert fault("image/gif", largest + b";") is not None
