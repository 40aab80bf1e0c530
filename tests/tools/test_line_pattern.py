"""Searching in bounded steps: the windows' ends change nothing, and what would take too long is a typed error."""

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.errors import WorkLimitReached
from ctxfs.text.steps import Abandoned, CpuBudget, Waiting
from ctxfs.tools.search.line_pattern import LinePattern, Match, SearchStopped, prefix_pattern
from ctxfs.tools.search.lines import LineSearch, search_part

ATOMS = (
    "a",
    "b",
    "é",
    ".",
    "[ab]",
    "[^a]",
    "[]a]",
    "[[:alpha:]x]",
    r"\w",
    r"\s",
    r"\x61",
    r"\pL",
    r"\Qa.\E",
    r"\Qab\E",
)
PLACES = ("^", "$", r"\b", r"\B", "(?i)", "", r"\A", r"\z")
REPEATS = ("*", "+", "?", "{2}", "{0}", "{1,}", "{2,}", "{0,3}", "{1,2}", "*?", "+?", "{1,2}?")
GROUPS = ("(", "(?:", "(?i:", "(?P<n>")
texts = st.text(st.sampled_from("aabbAé x\n"), max_size=60)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    grouped = st.builds(lambda opening, pattern: f"{opening}{pattern})", st.sampled_from(GROUPS[:3]), inner)
    repeated = st.builds(lambda pattern, repeat: f"(?:{pattern}){repeat}", inner, st.sampled_from(REPEATS))
    joined = st.lists(inner, min_size=2, max_size=3).map("".join)
    return st.one_of(grouped, repeated, joined, st.builds("{}|{}".format, inner, inner))


simple = st.sampled_from([*ATOMS, *PLACES]) | st.builds(
    lambda atom, repeat: atom + repeat, st.sampled_from(ATOMS[:12]), st.sampled_from(REPEATS)
)
patterns = st.recursive(simple, _larger, max_leaves=6)


def all_matches(pattern: LinePattern, data: bytes) -> list[tuple[int, int, list[Match]]]:
    """Each matching line: where it starts and ends, and all matches in it."""
    return [
        (start, end, list(pattern.in_line(data, start, first.start, end)))
        for start, first, end in pattern.matches(data)
    ]


def unbounded(pattern: str, max_step_bytes: int = 1 << 20) -> LinePattern:
    return LinePattern(pattern, budget=CpuBudget(None), max_step_bytes=max_step_bytes)


@given(patterns, texts, st.integers(1, 9))
def test_a_search_in_small_windows_finds_what_one_search_finds(pattern: str, text: str, step_bytes: int) -> None:
    data = text.encode()
    expected = all_matches(unbounded(pattern), data)
    assert all_matches(unbounded(pattern, step_bytes), data) == expected


@given(patterns, texts)
def test_every_beginning_of_a_match_matches_the_prefix_pattern(pattern: str, text: str) -> None:
    options = re2.Options()
    options.never_nl = True
    options.log_errors = False
    whole = re2.compile(f"(?m){pattern}".encode(), options)
    begun = re2.compile(rf"(?m){prefix_pattern(pattern)}\z".encode(), options)
    ends = [len(text[:count].encode()) for count in range(len(text) + 1)]
    for match in whole.finditer(text.encode()):
        for end in ends:
            if match.start() <= end <= match.end():
                assert begun.search(text.encode()[:end]).start() <= match.start()


@pytest.mark.parametrize("pattern", ["(?P<n>a)b", "(?<n>a)b", r"\123a", r"\x{e9}a", r"\p{Greek}a", r"a\pLb", r"\141b"])
def test_every_syntax_has_a_prefix_pattern(pattern: str) -> None:
    text = "xab Sa αa aéb éa abc" * 3
    assert all_matches(unbounded(pattern, 1), text.encode()) == all_matches(unbounded(pattern), text.encode())


@pytest.mark.parametrize("gap", [10, 100_000, 3_000_000])
@pytest.mark.parametrize("pattern", ["begin.*end", "begin[^z]*?end", r"(?i)BEGIN\s+.*END"])
def test_a_match_of_any_length_is_found(pattern: str, gap: int) -> None:
    text = b"x" * 5_000 + b"begin " + b"y" * gap + b"end" + b"x" * 5_000
    ((start, end, (found,)),) = all_matches(unbounded(pattern), text)
    assert (start, end, found) == (0, len(text), Match(5_000, 5_000 + 6 + gap + 3))


class FakeClock:
    """CPU time that passes with the bytes that are searched."""

    def __init__(self, seconds_a_call: float) -> None:
        self.seconds_a_call = seconds_a_call
        self.calls = 0

    def __call__(self) -> float:
        self.calls += 1
        return self.calls * self.seconds_a_call


def test_a_search_ends_when_its_budget_is_used_up() -> None:
    clock = FakeClock(0.1)
    pattern = LinePattern("needle", budget=CpuBudget(1.0, clock=clock), max_step_bytes=10)
    with pytest.raises(WorkLimitReached, match=r"took the 1 s of CPU that one search may take: use a simpler pattern"):
        list(pattern.matches(b"0123456\n" * 1_000))
    assert clock.calls == 1 + 10


def test_a_search_that_ends_says_before_which_line() -> None:
    for expression in ("needle", r"needle\z"):
        pattern = LinePattern(expression, budget=CpuBudget(1.0, clock=FakeClock(0.1)), max_step_bytes=10)
        with pytest.raises(SearchStopped) as stopped:
            list(pattern.matches(b"0123456\n" * 1_000))
        assert (stopped.value.position, stopped.value.line_too_long) == (10 * 8, False)


def test_the_budget_is_one_for_all_searches_of_a_call() -> None:
    pattern = LinePattern("needle", budget=CpuBudget(1.0, clock=FakeClock(0.1)))
    for _ in range(10):
        assert not list(pattern.matches(b"hay"))
    with pytest.raises(WorkLimitReached):
        list(pattern.matches(b"hay"))


def test_a_match_that_may_be_too_long_says_how_to_ask_better() -> None:
    data = b"first\nx" + b"a" * 30_000_000
    pattern = LinePattern("(a|b)*c.{1,20}", budget=CpuBudget(0.6, clock=lambda: 0.0))
    with pytest.raises(WorkLimitReached, match=r"begins at its byte 1 may be a match of over [\d,]+ bytes\. Bound"):
        list(pattern.matches(data))
    bounded = LinePattern("(a|b){0,20}c.{1,20}", budget=CpuBudget(0.6, clock=lambda: 0.0))
    assert list(bounded.matches(data)) == []
    assert len(list(bounded.matches(data + b"cd"))) == 1


def test_a_line_with_a_match_too_long_to_be_followed_is_found() -> None:
    data = b"x" * 10 + b"begin" + b"a" * 30_000_000
    search = LineSearch(LinePattern("begin.*", budget=CpuBudget(0.6, clock=lambda: 0.0)), 10)
    search.add(search_part(search.pattern, [(0, data)], 10))
    (line,) = search.finish(1)
    assert (line.text[:15], line.unshown) == ("x" * 10 + "begin", None)


@pytest.mark.slow
def test_of_a_slow_pattern_so_many_steps_are_made_as_the_budget_has() -> None:
    clock = FakeClock(0.0625)
    pattern = LinePattern("(a{1,30}){1,30}b", budget=CpuBudget(1.0, clock=clock))
    with pytest.raises(WorkLimitReached, match="use a simpler pattern"):
        list(pattern.matches(b"a" * 10_000_000))
    assert clock.calls == 1 + 16


def test_nobody_waits_any_more_so_not_one_step_more_is_made() -> None:
    waiting = Waiting()
    clock = FakeClock(0.0)

    def tick() -> float:
        if clock.calls == 5:
            waiting.end()
        return clock()

    pattern = LinePattern("needle", budget=CpuBudget(1.0, clock=tick), max_step_bytes=100)
    with pytest.raises(Abandoned):
        waiting.run(lambda: list(pattern.matches(b"hay " * 1_000_000)))
    assert clock.calls == 6
