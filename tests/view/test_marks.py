"""What a search matched in a line: marked where it is, whatever the line holds and wherever it was cut."""

import pytest

from ctxfs.text.steps import CpuBudget
from ctxfs.tools.paging import Line
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.view.content import MOST_MARKS, pieces


def marked(pattern: str, text: str, *, begin: int = 0, more: bool = False, budget: CpuBudget | None = None) -> str:
    found = pieces(LinePattern(pattern, budget=budget), Line(number=1, text=text, begin=begin, more=more))
    assert "".join(piece.text for piece in found) == text
    assert all(piece.text for piece in found)
    return "".join(f"[{piece.text}]" if piece.is_match else piece.text for piece in found)


@pytest.mark.parametrize(
    ("pattern", "text", "shown"),
    [
        ("needle", "a needle, and a needle", "a [needle], and a [needle]"),
        ("^a|y$", "a day", "[a] da[y]"),
        ("é+", "café éé <b>", "caf[é] [éé] <b>"),
        ("x*", "axxb", "a[xx]b"),
        ("b", "\ud800b\U0001f600b", "\ud800[b]\U0001f600[b]"),
        (r"\C", "é", "[é]"),
        ("nothing", "a line", "a line"),
        ("x*", "", ""),
    ],
)
def test_matches_are_marked(pattern: str, text: str, shown: str) -> None:
    assert marked(pattern, text) == shown


def test_a_cut_is_no_end_of_the_line() -> None:
    assert marked("^b|b$", "bab") == "[b]a[b]"
    assert marked("^b|b$", "bab", begin=7) == "ba[b]"
    assert marked("^b|b$", "bab", more=True) == "[b]ab"
    assert marked("b.*", "abc", begin=7, more=True) == "a[bc]", (
        "a match that goes on behind the cut is marked up to the cut"
    )


def test_only_so_many_matches_are_marked() -> None:
    assert marked("b", "b" * (MOST_MARKS + 5)).count("[") == MOST_MARKS


def test_without_budget_the_line_is_shown_as_it_is() -> None:
    spent = CpuBudget(0.0)
    assert marked("(a|aa)+b?" * 20, "a" * 400, budget=spent).replace("[", "").replace("]", "") == "a" * 400
