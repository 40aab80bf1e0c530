"""Possessive groups match as documented in every Python, and are made in one place."""

import re
from pathlib import Path

import pytest

import ctxfs
from ctxfs.text.patterns import possessive

PACKAGE = Path(ctxfs.__file__).parent


@pytest.mark.parametrize(
    ("body", "times", "text", "end"),
    [
        ("ab?c", "*", "aca", 2),
        ("ab?c", "+", "aca", 2),
        ("ab?c", "{1,3}", "aca", 2),
        ("ab?c", "?", "a", 0),
        ("a(?:bc|b++d)", "*", "abcabbbx", 3),
        ('"[^"]*+"', "*", '"one""two', 5),
    ],
)
def test_a_repetition_that_fails_takes_nothing(body: str, times: str, text: str, end: int) -> None:
    found = re.match(possessive(body, times), text)
    assert found is not None
    assert found.end() == end


def test_what_was_taken_is_not_given_back() -> None:
    assert re.match(possessive("a|ab", "+") + "b", "ab") is not None
    assert re.match(possessive("ab|a", "+") + "b", "ab") is None
    assert re.match(possessive("a", "{2}"), "a") is None


def test_no_other_place_repeats_a_group_possessively() -> None:
    group = re.compile(r"\)(?:[*+?]|\{[^{}]*\}|\{\{[^{}]*\}\})\+|\(\?>")
    found = [path.name for path in sorted(PACKAGE.rglob("*.py")) if group.search(path.read_text())]
    assert found == ["patterns.py"]
