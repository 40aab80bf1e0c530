import random
import re

import pytest
import re2
from hypothesis import example, given
from hypothesis import strategies as st

from ctxfs.errors import InvalidToolArguments
from ctxfs.text.steps import CpuBudget
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.lines import (
    CHUNK_BYTES,
    MOST_COUNTED,
    FoundLine,
    LineChunks,
    LineSearch,
    SearchedPart,
    search_part,
)

PATTERNS = (
    [
        "a",
        "^a",
        "b$",
        "^$",
        "a*",
        "[^x]",
        r"\s",
        r"a\sb",
        "a|^b",
        r"\bab\b",
        "(a|b)+c",
        ".",
        "..$",
        "\n",
        "ü",
        r"\W",
        "$",
        "^",
    ],
    [r"\Aa", r"b\z", "(?i)A", "(?-m)^a", r"\x0a", "a\nb", "[[:^alpha:]]", r"\PL", "(?s)a.b", "(a)(b)"],
)
patterns = st.sampled_from([pattern for row in PATTERNS for pattern in row])
line_texts = st.text(st.sampled_from("abcxü \r\u2028\ud800A"), max_size=8)


def reference(pattern: str, text: str) -> list[int]:
    """The numbers of matching lines, one line at a time."""
    options = re2.Options()
    options.log_errors = False
    options.never_nl = True
    compiled = re2.compile(f"(?m){pattern}", options)
    lines = text.removesuffix("\n").split("\n") if text else []
    return [n for n, line in enumerate(lines, 1) if compiled.search(line.encode("utf-8", "surrogatepass"))]


def pattern_of(pattern: str, *, ignore_case: bool = False) -> LinePattern:
    """A pattern whose search ends, however slow the machine is."""
    return LinePattern(pattern, ignore_case=ignore_case, budget=CpuBudget(None))


def search(
    pattern: LinePattern, data: bytes, *, piece_bytes: int = 1 << 18, part_pieces: int = 4, max_matches: int = 10**9
) -> list[FoundLine]:
    """Search ``data`` in parts, as threads would that take one part after the other."""
    cuts = range(0, len(data), piece_bytes)
    pieces = [(data.count(b"\n", 0, start), data[start : start + piece_bytes]) for start in cuts]
    lines = LineSearch(pattern, max_matches)
    _search_parts(lines, pieces, part_pieces)
    return lines.finish(data.count(b"\n") + 1)


def _search_parts(lines: LineSearch, pieces: list[tuple[int, bytes]], part_pieces: int) -> None:
    for first in range(0, len(pieces), part_pieces):
        part = pieces[first : first + part_pieces]
        if lines.add(search_part(lines.pattern, part, lines.max_matches, starts_line=not first)):
            lines.search_shared()
        if lines.done:
            break


class Meter:
    """A clock on which half a second passes at each reading of it: a charge costs that much."""

    def __init__(self) -> None:
        self.readings = 0

    def __call__(self) -> float:
        self.readings += 1
        return self.readings / 2


@given(
    patterns,
    st.lists(line_texts, max_size=12),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(1, 30),
)
def test_a_search_whose_budget_is_used_up_is_right_up_to_where_it_stopped_and_goes_on_from_there(
    pattern: str, lines: list[str], piece_bytes: int, part_pieces: int, budget: int
) -> None:
    text = "\n".join(lines)
    data = text.encode("utf-8", "surrogatepass")
    found: list[int] = []
    first = 1
    while first <= len(lines):
        start = sum(len(line.encode("utf-8", "surrogatepass")) + 1 for line in lines[: first - 1])
        pieces = [
            (data.count(b"\n", 0, cut), data[cut : cut + piece_bytes]) for cut in range(start, len(data), piece_bytes)
        ]
        search = LineSearch(LinePattern(pattern, budget=CpuBudget(budget / 2, clock=Meter())), 10**9)
        _search_parts(search, pieces, part_pieces)
        found += [line.number for line in search.finish(data.count(b"\n") + 1)]
        if search.stopped is None:
            break
        assert all(number < search.stopped.number for number in found)
        assert found == [number for number in reference(pattern, text) if number < search.stopped.number]
        if search.stopped.number == first:
            assert not search.stopped.error.line_too_long
            budget *= 2  # one line costs as many charges as it has pieces
        first = search.stopped.number
    assert found == reference(pattern, text)


def found(pattern: str, text: str, piece_bytes: int = 1 << 18, part_pieces: int = 4) -> list[int]:
    data = text.encode("utf-8", "surrogatepass")
    lines = search(pattern_of(pattern), data, piece_bytes=piece_bytes, part_pieces=part_pieces)
    return [line.number for line in lines]


@given(
    patterns,
    st.lists(line_texts, max_size=12),
    st.sampled_from(["", "\n"]),
    st.sampled_from([1, 3, 7, 1 << 18]),
    st.integers(1, 4),
)
def test_the_same_lines_match_as_one_by_one_wherever_the_text_is_cut(
    pattern: str, lines: list[str], end: str, piece_bytes: int, part_pieces: int
) -> None:
    text = "\n".join(lines) + end
    assert found(pattern, text, piece_bytes, part_pieces) == reference(pattern, text)


@given(patterns, st.lists(line_texts, max_size=12), st.integers(1, 9), st.integers(1, 4), st.integers(1, 5))
def test_the_first_matches_are_found_and_one_more(
    pattern: str, lines: list[str], piece_bytes: int, part_pieces: int, max_matches: int
) -> None:
    text = "\n".join(lines)
    data = text.encode("utf-8", "surrogatepass")
    first = search(pattern_of(pattern), data, piece_bytes=piece_bytes, part_pieces=part_pieces, max_matches=max_matches)
    assert [line.number for line in first] == reference(pattern, text)[: max_matches + 1]


@pytest.mark.parametrize("pattern", [pattern for row in PATTERNS for pattern in row])
def test_the_same_lines_match_at_ends_and_around_empty_lines(pattern: str) -> None:
    for text in ("x\na\nb\nab\n\nb", "a\n\na\n", "\n", "b\na", "xb\nab\n"):
        assert found(pattern, text) == reference(pattern, text)


@pytest.mark.parametrize("shift", [-6, -3, -1, 0])
def test_a_match_on_a_windows_edge_is_found(shift: int) -> None:
    text = "x" * (1_048_576 + shift) + "needle" + "x" * 2_000_000
    assert found("needle", text) == [1]
    assert found("^needle|needle$", text) == []


def test_the_same_lines_match_across_chunks() -> None:
    pick = random.Random(7)
    lines = [f"{'ü' * pick.randrange(60)} {'needle' if pick.random() < 0.01 else 'hay'}" for _ in range(60_000)]
    text = "\n".join(lines)
    assert len(text.encode()) > 3 * CHUNK_BYTES
    assert found("needle$", text, piece_bytes=262_144) == reference("needle$", text)


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_chunks_are_whole_lines_and_lose_nothing(pieces: list[bytes]) -> None:
    chunks = LineChunks()
    made = [chunk for piece in pieces if (chunk := chunks.feed(piece * 30_000)) is not None]
    assert all(chunk.endswith(b"\n") for chunk in made)
    assert b"".join([*made, chunks.finish()]) == b"".join(piece * 30_000 for piece in pieces)


def test_a_line_of_many_megabytes_is_searched_to_its_end() -> None:
    text = "first\n" + "x" * 3_000_000 + "needle" + "y" * 10 + "\nlast needle"
    long, last = search(pattern_of("needle"), text.encode(), max_matches=10)
    assert (long.number, long.begin, long.more) == (2, 3_000_000 - 100, False)
    assert long.text == "x" * 100 + "needle" + "y" * 10
    assert (last.number, last.text) == (3, "last needle")
    assert search(pattern_of("^x+needle"), ("x" * 900 + "needle").encode())[0].number == 1


def test_a_long_line_is_cut_around_its_match_by_characters() -> None:
    (line,) = search(pattern_of("needle"), ("ü" * 1_000 + "needle" + "é" * 1_000).encode())
    assert (line.number, line.begin, line.more) == (1, 900, True)
    assert line.text == "ü" * 100 + "needle" + "é" * 294


@pytest.mark.parametrize("pattern", ["needle", r"\Aneedle|needle"])  # the second one is searched line by line
@given(
    gaps=st.lists(st.sampled_from([0, 1, 90, 380, 395, 400, 500, 3_000]), max_size=40), fill=st.sampled_from("aü\ufffd")
)
@example(gaps=[0, 380, 380, 380, 500, 0, 0, 0, 0, 90], fill="\ufffd")
def test_of_a_long_line_every_match_is_shown_or_counted(pattern: str, gaps: list[int], fill: str) -> None:
    text = "needle".join(fill * gap for gap in [*gaps, 500])
    lines = search(pattern_of(pattern), f"first\n{text}\nlast".encode())
    if not gaps:
        assert lines == []
        return
    (line,) = lines
    parts = [line, *line.later]
    starts = [match.start() for match in re.finditer("needle", text)]
    assert all(text[part.begin : part.begin + len(part.text)] == part.text for part in parts)
    assert len(parts) <= 5
    end = parts[-1].begin + len(parts[-1].text)
    behind = [start for start in starts if start >= end]
    shown = [start for start in starts if any(p.begin <= start < p.begin + len(p.text) for p in parts)]
    assert sorted(shown + behind) == starts
    assert line.unshown == min(len(behind), MOST_COUNTED)
    assert not line.unshown or len(parts) == 5


@pytest.mark.parametrize("fill", [b"\xff", b"\xe2\x82", b"\xf0\x9f\x98"], ids=["1 byte", "2 bytes", "3 bytes"])
def test_in_bytes_that_are_no_utf8_no_match_is_counted_that_is_shown(fill: bytes) -> None:
    gaps = [0, 380, 380, 380, 500, 0, 0, 0, 0, 90, 500]
    (line,) = search(pattern_of("needle"), b"needle".join(fill * gap for gap in gaps))
    parts = [line, *line.later]
    text = "needle".join("\ufffd" * gap for gap in gaps)
    assert all(text[part.begin : part.begin + len(part.text)] == part.text for part in parts)
    end = parts[-1].begin + len(parts[-1].text)
    assert line.unshown == sum(match.start() >= end for match in re.finditer("needle", text))


def test_a_part_with_enough_matches_ends_the_search() -> None:
    pieces = iter([(0, b"x\na\nb\na\na\na\n"), (6, b"is never read")])
    lines = LineSearch(pattern_of("a"), 2)
    lines.add(search_part(lines.pattern, pieces, 2))
    assert next(pieces) == (6, b"is never read")
    assert lines.done
    assert [line.number for line in lines.finish(9)] == [2, 4, 5]


def test_lines_that_parts_share_are_searched_as_soon_as_they_are_whole() -> None:
    lines = LineSearch(pattern_of("a"), 1)
    assert not lines.add(SearchedPart(found=[], head=None, tail=b"x", line_ended=False))
    assert lines.add(SearchedPart(found=[], head=(1, b"a\n"), tail=b"a"))
    lines.search_shared()
    assert not lines.add(SearchedPart(found=[], head=None, tail=b"b", line_ended=False))
    assert [line.number for line in lines.finish(2)] == [1, 2]


def test_a_part_that_starts_with_a_line_searches_that_too() -> None:
    pattern = LinePattern("a", budget=CpuBudget(1.0, clock=Meter()))
    part = search_part(pattern, [(0, b"a\nb\na\nb\na\n")], 10, starts_line=True)
    assert ([line.number for line in part.found], part.head) == ([1], None)
    assert part.stopped is not None
    assert part.stopped.number == 2


def test_reading_a_line_that_goes_on_is_not_charged() -> None:
    budget = CpuBudget(1.0, clock=Meter())
    search_part(LinePattern("a", budget=budget), [(0, b"x")] * 100, 10)
    assert budget.left_s == 1.0
    search_part(LinePattern("a", budget=budget), [(0, b"x\n")], 10)
    assert budget.left_s == 0.5


def test_a_line_that_was_found_is_kept_when_the_budget_does_not_suffice_for_the_rest_of_it() -> None:
    data = b"needle" + b"x" * 1_000 + b"needle"
    pattern = LinePattern("needle", budget=CpuBudget(0.5, clock=Meter()))
    part = search_part(pattern, [(0, data)], 10)
    search = LineSearch(pattern, 10)
    search.add(part)
    (line,) = search.finish(1)
    assert (line.text[:6], line.unshown, search.stopped) == ("needle", None, None)


def test_bytes_that_are_no_utf8_can_be_searched() -> None:
    (line,) = search(pattern_of("caf"), b"caf\xe9 \xff\n")
    assert line.text == "caf\ufffd \ufffd"


def test_case_can_be_ignored() -> None:
    assert search(pattern_of("ERROR", ignore_case=True), b"an error\n")
    assert not search(pattern_of("ERROR"), b"an error\n")


@pytest.mark.parametrize("pattern", ["(a", "a{9999}", "(?=a)", r"(a)\1", "[", "\ud800", "*"])
def test_an_invalid_pattern_says_what_is_wrong(pattern: str) -> None:
    with pytest.raises(InvalidToolArguments, match=r"not a valid regular expression .*RE2"):
        LinePattern(pattern)


def test_the_reason_shows_the_pattern_as_it_was_given() -> None:
    with pytest.raises(InvalidToolArguments) as raised:
        LinePattern("(abc")
    assert "(missing ): (abc)" in str(raised.value)


def test_a_pattern_is_bounded() -> None:
    with pytest.raises(InvalidToolArguments, match="at most 1,000"):
        LinePattern("a" * 1_001)


@pytest.mark.parametrize("pattern", ["(a|aa)+$", "(a*)*b", "(.*)(.*)(.*)(.*)b", "(x+x+)+y"])
def test_a_hostile_pattern_ends(pattern: str) -> None:
    text = "a" * 200_000 + "\n" + "x" * 200_000
    assert found(pattern, text) == reference(pattern, text)


def test_numbers_count_only_newlines() -> None:
    assert found("z", "a\rb\u2028c\x85d\x0ce\nz") == [2]
    assert not re.search("z", "")


def test_lines_after_one_that_could_not_be_searched_are_not_found() -> None:
    pattern = LinePattern("a", budget=CpuBudget(1.0, clock=Meter()))
    part = search_part(pattern, [(0, b"a\na\nb\na\n")], 10)
    search = LineSearch(pattern, 10)
    assert ([line.number for line in part.found], search.add(part)) == ([2], True)
    search.search_shared()
    assert search.finish(5) == []
    assert search.stopped is not None
    assert search.stopped.number == 1
