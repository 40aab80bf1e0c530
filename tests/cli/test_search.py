"""Searching by lines agrees with splitting at every newline and asking for each line."""

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.cli.search import compile_pattern, matching_lines
from ctxfs.errors import ConfigError

PATTERNS = ["a", "^a", "b$", "^$", "a.b", "[^a]", r"a\s+b", "x*", "(?i)A", r"\bb", "^", "$", ".*"]


@given(pattern=st.sampled_from(PATTERNS), text=st.text(alphabet="ab \n\u2028é", max_size=40))
def test_each_line_by_itself(pattern: str, text: str) -> None:
    lines = text.encode().split(b"\n")
    if lines[-1] == b"":
        lines.pop()  # a newline ends a line and begins none
    alone = re2.compile(pattern.encode())
    expected = [(number, line) for number, line in enumerate(lines, start=1) if alone.search(line)]
    assert list(matching_lines(compile_pattern(pattern), text.encode())) == expected


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "a(?=b)", "x{5000}", "["])
def test_what_is_no_pattern_says_so(pattern: str) -> None:
    with pytest.raises(ConfigError, match="not a pattern"):
        compile_pattern(pattern)


def test_bytes_that_are_no_utf8_are_searched_too() -> None:
    assert list(matching_lines(compile_pattern("caf"), b"\xff\nx caf\xe9\n")) == [(2, b"x caf\xe9")]
