"""Searching by lines agrees with splitting at every newline and asking for each line."""

import re2
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.text.steps import CpuBudget
from ctxfs.tools.search.search import LinesOfContent, Query

PATTERNS = ["a", "^a", "b$", "^$", "a.b", "[^a]", r"a\s+b", "x*", "(?i)A", r"\bb", "^", "$", ".*"]


def matching_lines(pattern: str, data: bytes) -> list[tuple[int, bytes]]:
    query = Query(pattern=pattern)
    lines = LinesOfContent(query, query.compiled(CpuBudget(None)))
    return [(row.number, row.text.removesuffix(b"\n")) for row in lines.feed(data)]


@given(pattern=st.sampled_from(PATTERNS), text=st.text(alphabet="ab \n\u2028é", max_size=40))
def test_each_line_by_itself(pattern: str, text: str) -> None:
    lines = text.encode().split(b"\n")
    if lines[-1] == b"":
        lines.pop()  # a newline ends a line and begins none
    alone = re2.compile(pattern.encode())
    expected = [(number, line) for number, line in enumerate(lines, start=1) if alone.search(line)]
    assert matching_lines(pattern, text.encode()) == expected


def test_bytes_that_are_no_utf8_are_searched_too() -> None:
    assert matching_lines("caf", b"\xff\nx caf\xe9\n") == [(2, b"x caf\xe9")]
