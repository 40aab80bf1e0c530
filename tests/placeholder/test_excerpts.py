"""The passages of a text that a placeholder shows, and its lines as a terminal may see them."""

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.eviction.placeholder.excerpts import Ends, Snippets
from ctxfs.eviction.placeholder.lines import clean_line

LOG = "first\n" + "".join(f"line {n}\n" for n in range(50)) + "ValueError: no\n" + "last\n" * 20


@pytest.mark.parametrize(("lines", "size_bytes"), [(0, 1_000), (3, 0), (3, 5)])
def test_without_room_nothing_is_shown(lines: int, size_bytes: int) -> None:
    assert not any(Snippets(LOG).passages(lines=lines, size_bytes=size_bytes).values())


def test_passages_with_errors_end_where_the_room_ends() -> None:
    text = "ok\n" * 20 + "".join(f"ERROR number {n} of many that do not fit\n" for n in range(30)) + "ok\n" * 20
    shown = Snippets(text).passages(lines=3, size_bytes=200)
    assert len(shown["Lines with errors"]) == 3
    assert all("ERROR" in line for line in shown["Lines with errors"])


def test_passages_are_the_same_whatever_was_asked_for_before() -> None:
    text = "".join(f"ERROR number {n}\n" + "ok\n" * 9 for n in range(30))
    bounds = [(40, 1_800), (30, 1_400), (5, 100), (40, 1_800)]
    snippets = Snippets(text)
    asked = [snippets.passages(lines=lines, size_bytes=size) for lines, size in bounds]
    assert asked == [Snippets(text).passages(lines=lines, size_bytes=size) for lines, size in bounds]


def test_a_trace_at_the_end_of_a_text_is_shown_to_its_end() -> None:
    text = "ok\n" * 100 + "Traceback (most recent call last):\n  File x\n    y"
    errors = Snippets(text).passages(lines=1, size_bytes=200)["Lines with errors"]
    assert errors == ["101: Traceback (most recent call last):"]
    both = Snippets(text).passages(lines=2, size_bytes=200)
    assert both["Last lines"] == ["102:   File x", "103:     y"]


def test_a_short_text_is_shown_whole() -> None:
    assert Snippets("one\ntwo").passages(lines=5, size_bytes=500)["First lines"] == ["1: one", "2: two"]


def test_a_long_trace_is_shown_in_part() -> None:
    text = "ok\n" * 50 + "ValueError: no\n" + "".join(f"  at place {n}\n" for n in range(30)) + "ok\n" * 50
    shown = Snippets(text).passages(lines=40, size_bytes=400)["Lines with errors"]
    assert shown[0] == "51: ValueError: no"
    assert shown[-1] == "63:   at place 11"


@pytest.mark.parametrize("before", range(20))
def test_what_began_in_the_head_goes_on_after_it(before: int) -> None:
    text = "ok\n" * before + "ValueError: no\n" + "".join(f"  at place {n}\n" for n in range(12)) + "ok\n" * 50
    shown = Snippets(text).passages(lines=14, size_bytes=2_000)
    found = [*shown["First lines"], *shown["Lines with errors"]]
    lines = [f"{number}: {line}" for number, line in enumerate(text.splitlines(), 1)]
    assert found == lines[:14] + lines[max(14, before) : before + 13]


def test_errors_in_the_head_take_no_room_from_later_ones() -> None:
    text = "".join(f"ERROR {n}\n" for n in range(10)) + "ok\n" * 50 + "ERROR last\n" + "ok\n" * 50
    assert Snippets(text).passages(lines=10, size_bytes=1_000)["Lines with errors"] == ["61: ERROR last"]


@given(st.text())
def test_a_clean_line_has_nothing_that_a_terminal_obeys(line: str) -> None:
    shown = clean_line(line)
    assert not any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in shown)
    assert line.isprintable() <= (shown == line)


def test_what_a_terminal_would_obey_does_not_hide_the_rest() -> None:
    shown = Snippets("\x1b[0m" * 1_000 + "\nsecond").passages(lines=5, size_bytes=80)
    assert shown["Last lines"][-1] == "2: second"


def test_one_long_line_is_cut_at_both_ends() -> None:
    shown = Snippets("begin " + "x" * 10_000 + " end").passages(lines=5, size_bytes=60)
    assert shown["First lines"][0].startswith("1: begin ")
    assert shown["First lines"][0].endswith("…")
    assert shown["Last lines"][0].endswith(" end")


def test_the_ends_of_what_comes_in_pieces() -> None:
    ends = Ends(head_bytes=20, tail_bytes=20)
    for n in range(100):
        ends.feed(f"line {n}\n".encode())
    shown = ends.passages(line_count=100, lines=2, size_bytes=20)
    assert shown == {
        "First lines": ["1: line 0", "2: lin…"],
        "Lines with errors": [],
        "Last lines": ["100: line 99"],
    }
    assert ends.whole is None


@given(
    lines=st.lists(
        st.sampled_from(["ok", "ValueError: grüße", '  File "x.py"', "at main", "", "error " * 40]), max_size=60
    ),
    cuts=st.lists(st.integers(0, 2_000), max_size=9),
    ended=st.booleans(),
)
def test_the_errors_of_what_comes_in_pieces_are_those_of_the_whole(
    lines: list[str], cuts: list[int], ended: bool
) -> None:
    text = "\n".join(lines) + "\n" * ended
    data = text.encode()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    ends = Ends(head_bytes=0, tail_bytes=0, error_lines=1_000)
    for begin, end in pairwise(places):
        ends.feed(data[begin:end])
    ends.feed(b"", last=True)
    snippets = Snippets(text)
    shown = ends.passages(line_count=snippets.line_count, lines=500, size_bytes=100_000)["Lines with errors"]
    expected = dict(snippets.around_errors(1))
    assert [row.split(": ", 1)[0] for row in shown] == [str(number) for number in sorted(expected)]
    assert ends.chars == len(text)


def test_a_trace_goes_on_in_the_next_piece() -> None:
    ends = Ends(head_bytes=0, tail_bytes=0, error_lines=9)
    ends.feed(b"ok\nValueError: no\n")
    ends.feed(b"    at run (app.js:2:1)\nok\n", last=True)
    shown = ends.passages(line_count=4, lines=9, size_bytes=1_000)["Lines with errors"]
    assert shown == ["2: ValueError: no", "3:     at run (app.js:2:1)"]


def test_no_more_errors_are_kept_than_can_be_shown() -> None:
    ends = Ends(head_bytes=0, tail_bytes=0, error_lines=3)
    for n in range(1, 100):
        ends.feed(f"error {n}\n".encode())
    ends.feed(b"error " * 100_000, last=True)
    shown = ends.passages(line_count=100, lines=9, size_bytes=1_000)["Lines with errors"]
    assert shown == ["1: error 1", "2: error 2", "3: error 3"]


def test_of_a_trace_after_the_last_error_that_fits_nothing_is_kept() -> None:
    ends = Ends(head_bytes=0, tail_bytes=0, error_lines=1)
    ends.feed(b"error: a test failed\n    at main (app.js:1:1)\n    at run (app.js:2:1)\n", last=True)
    assert ends.passages(line_count=3, lines=9, size_bytes=100)["Lines with errors"] == ["1: error: a test failed"]


def test_what_fits_the_head_is_whole() -> None:
    ends = Ends(head_bytes=100, tail_bytes=0)
    ends.feed(b"short\n")
    assert ends.whole == "short\n"
    assert ends.passages(line_count=1, lines=9, size_bytes=100)["First lines"] == ["1: short"]
    ends = Ends(head_bytes=100, tail_bytes=0)
    ends.feed(b"no newline")
    assert ends.passages(line_count=1, lines=9, size_bytes=100)["First lines"] == ["1: no newline"]


def test_what_comes_in_pieces_is_read_to_its_last_line() -> None:
    ends = Ends(head_bytes=8, tail_bytes=8, error_lines=9)
    ends.feed(b'  {"a": ')
    ends.feed(b"1}\nFatal")
    ends.feed(b"Error: x\nerr")
    ends.feed(b"or: y", last=True)
    shown = ends.passages(line_count=3, lines=9, size_bytes=100)
    assert (ends.may_be_json, ends.whole) == (True, None)
    assert shown["Lines with errors"] == ["2: FatalError: x"]
    assert shown["Last lines"] == ["3: error: y"]
    assert not Ends(head_bytes=8, tail_bytes=8).may_be_json


def test_of_more_errors_than_there_is_room_for_the_first_are_shown() -> None:
    ends = Ends(head_bytes=0, tail_bytes=0, error_lines=2)
    ends.feed(b"error 1\nerror 2\nerror 3\n", last=True)
    errors = [ends.passages(line_count=3, lines=n, size_bytes=100)["Lines with errors"] for n in (1, 9)]
    assert errors == [["1: error 1"], ["1: error 1", "2: error 2"]]
