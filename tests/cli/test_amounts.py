"""Spans of time, moments, sizes and shares as users type them."""

import time
from datetime import datetime

import pytest

from ctxfs.cli.options import moment, share_of, size_bytes, span_s
from ctxfs.errors import ConfigError
from ctxfs.text import figures


@pytest.mark.parametrize(("age", "seconds"), [("90m", 5_400), ("36h", 129_600), ("7d", 604_800), ("2w", 1_209_600)])
def test_an_age_is_a_moment(age: str, seconds: int) -> None:
    before = time.time()
    found = moment(age)
    assert before <= found + seconds <= time.time()


def test_a_date_is_a_moment_of_this_machine() -> None:
    assert moment("2026-11-23") == datetime(2026, 11, 23).astimezone().timestamp()
    assert moment("2026-11-23T12:00:00+00:00") == 1_795_435_200


@pytest.mark.parametrize("wrong", ["", "7", "7x", "noon", "2026-13-01", "-7d"])
def test_what_is_no_time_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="is not a time"):
        moment(wrong)


@pytest.mark.parametrize(
    ("span", "seconds"),
    [("0", 0), ("90s", 90), ("90m", 5_400), (" 36 h ", 129_600), ("2w", 1_209_600), ("1y", 31_536_000)],
)
def test_a_span_is_a_number_and_a_unit(span: str, seconds: int) -> None:
    assert span_s(span) == seconds


@pytest.mark.parametrize("wrong", ["", "7", "-7d", "7 years", "1.5d"])
def test_what_is_no_span_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="is not a span of time: write it as 90m"):
        span_s(wrong)


@pytest.mark.parametrize(
    ("size", "number"),
    [
        ("0", 0),
        ("500", 500),
        ("500b", 500),
        ("20M", 20_000_000),
        ("1.5 GB", 1_500_000_000),
        ("2KiB", 2_048),
        ("1ti", 1 << 40),
    ],
)
def test_a_size_is_a_number_and_a_unit(size: str, number: int) -> None:
    assert size_bytes(size) == number


@pytest.mark.parametrize("size", ["500 B", "1.5 kB", "20.0 MB", "150 MB", "3.0 GB", "4.0 TB"])
def test_a_size_is_typed_as_it_is_shown(size: str) -> None:
    assert figures.size(size_bytes(size)) == size


@pytest.mark.parametrize("wrong", ["", "M", "-1", "1.2345k", "5ib", "3 apples"])
def test_what_is_no_size_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="is not a size: write it as 500, 20M"):
        size_bytes(wrong)


@pytest.mark.parametrize(("given", "share"), [("5%", 0.05), ("0.05", 0.05), (" 100% ", 1.0), ("1", 1.0)])
def test_a_share_is_a_percentage_or_a_fraction(given: str, share: float) -> None:
    assert share_of(given) == share


@pytest.mark.parametrize("wrong", ["", "0", "0%", "1.5", "101%", "nan", "half"])
def test_what_is_no_share_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="is not a share: write it as 5%"):
        share_of(wrong)
