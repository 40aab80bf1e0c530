"""A unified diff that is always right, and takes no longer where lines repeat."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.text.line_diff import unified_diff
from line_count import counted_lines
from line_patch import patched

NUMBERED = "".join(f"{n}\n" for n in range(1, 41))
NO_LIMIT = 10**9


def diff(old: str, new: str) -> str:
    found = unified_diff(old, new, most_chars=NO_LIMIT)
    assert found is not None
    return found


def test_a_changed_line_has_three_lines_around_it() -> None:
    found = diff(NUMBERED, NUMBERED.replace("20\n", "twenty\n"))
    assert found == "@@ -17,7 +17,7 @@\n 17\n 18\n 19\n-20\n+twenty\n 21\n 22\n 23"


def test_changes_far_apart_are_hunks_of_their_own_and_near_ones_are_one() -> None:
    far = diff(NUMBERED, NUMBERED.replace("5\n", "five\n", 1).replace("\n30\n", "\n"))
    assert [line for line in far.split("\n") if line[0] != " "] == [
        "@@ -2,7 +2,7 @@",
        "-5",
        "+five",
        "@@ -27,7 +27,6 @@",
        "-30",
    ]
    near = diff(NUMBERED, NUMBERED.replace("\n10\n", "\nten\n").replace("\n17\n", "\nseventeen\n"))
    assert near.count("@@ -") == 1


@pytest.mark.parametrize(
    ("old", "new", "hunks"),
    [
        ("a\n", "a\n", ""),
        ("", "", ""),
        ("", "a\n", "@@ -0,0 +1 @@\n+a"),
        ("a\nb\n", "", "@@ -1,2 +0,0 @@\n-a\n-b"),
        ("a\n", "a", "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file"),
        ("a\nb", "a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b"),
        ("a\r\nb\x0bc\n", "a\nb\x0bc\n", "@@ -1,2 +1,2 @@\n-a\r\n+a\n b\x0bc"),
        ("x\na\nb\nc\n", "a\nb\nc\nx\n", "@@ -1,4 +1,4 @@\n-x\n a\n b\n c\n+x"),
    ],
)
def test_it_is_what_diff_prints(old: str, new: str, hunks: str) -> None:
    assert diff(old, new) == hunks
    assert patched(old, hunks) == new


def test_one_that_is_too_long_is_none() -> None:
    new = NUMBERED.replace("20\n", "twenty\n")
    length = len(diff(NUMBERED, new))
    assert unified_diff(NUMBERED, new, most_chars=length) is not None
    assert unified_diff(NUMBERED, new, most_chars=length - 1) is None
    assert unified_diff("a\n", "a\n" + NUMBERED, most_chars=50) is None


TEXTS = st.lists(st.sampled_from(["a", "b", "c", "d", "", " ", "é\ud800", "-a", "+b", "@@ -1 +1 @@"]), max_size=14)


@given(old=TEXTS, new=TEXTS, ends=st.tuples(st.booleans(), st.booleans()))
def test_the_diff_makes_the_new_text_of_the_old_one(old: list[str], new: list[str], ends: tuple[bool, bool]) -> None:
    before = "\n".join(old) + "\n" * ends[0]
    after = "\n".join(new) + "\n" * ends[1]
    if not any("@@" in line for line in (*old, *new)):
        assert patched(before, diff(before, after)) == after
    assert (diff(before, after) == "") is (before == after)


def hard_cases(lines: int) -> list[tuple[str, str]]:
    """Texts for which other ways of comparing take the square of their lines, or more."""
    distinct = [f"{n}\n" for n in range(lines)]
    return [
        ("a\nb\n" * (lines // 2), "b\na\nc\n" * (lines // 3)),
        ("".join(distinct), "".join(reversed(distinct))),
        ("".join(distinct), "".join(f"x{line}" if n % 2 else line for n, line in enumerate(distinct))),
        ("a\n" * lines, "a\n" * (lines // 2) + "b\n" + "a\n" * (lines // 2)),
    ]


@pytest.mark.parametrize("case", range(4))
def test_the_work_grows_with_the_lines_and_not_with_their_square(case: int) -> None:
    """Lines of any file: whatever compares the texts, it is not to be difflib, whose work is cubic at worst."""
    counts: list[int] = []
    for lines in (300, 3_000):
        old, new = hard_cases(lines)[case]
        with counted_lines("") as counted:
            unified_diff(old, new, most_chars=NO_LIMIT)
        counts.append(counted.run)
    assert counts[1] < 12 * counts[0]
