import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.messages.tokens import default_counter
from ctxfs.tools.paging import MAX_LINE_CHARS, Line, LineCutter, LineEnds, Page, render_page

COUNTER = default_counter()

line_texts = st.one_of(
    st.text(st.characters(codec=None, exclude_characters="\n"), max_size=30),
    st.integers(0, 3 * MAX_LINE_CHARS).map("x".__mul__),
    st.sampled_from(["", "\r", "\u2028", "[lines 1-2 of 3; end]"]),
)
texts = st.builds(
    lambda lines, end: "\n".join(lines) + end, st.lists(line_texts, max_size=30), st.sampled_from(["", "\n"])
)


def lines_of(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def cut(text: str, first: int, piece_chars: int, **settings: int | None) -> list[Line]:
    """Lines from ``first`` on, with the text fed in pieces."""
    rest = "\n".join(text.split("\n")[first - 1 :])
    cutter = LineCutter(first, **{"limit": 100, "max_chars": 10_000, "char_offset": None, **settings})  # type: ignore[arg-type]
    for start in range(0, len(rest), piece_chars):
        if cutter.feed(rest[start : start + piece_chars]):
            break
    return cutter.finish()


def next_in(page: Page) -> tuple[int, int] | None:
    """Where the page's own text says to go on: what a model can see."""
    footer = page.text.rsplit("\n", 1)[-1]
    found = re.fullmatch(r"\[.*; next: offset=(\d+)(?:, char_offset=(\d+))?\]", footer)
    return (int(found[1]), int(found[2] or 0)) if found else None


@given(texts, st.integers(1, 50), st.integers(1, 40))
def test_lines_are_cut_alike_however_the_pieces_fall(text: str, piece_chars: int, limit: int) -> None:
    found = cut(text, 1, piece_chars, limit=limit, max_chars=10**9)
    expected = lines_of(text)[:limit]
    assert [line.text for line in found] == [line[:MAX_LINE_CHARS] for line in expected]
    assert [line.more for line in found] == [len(line) > MAX_LINE_CHARS for line in expected]
    assert [line.number for line in found] == list(range(1, len(expected) + 1))


@given(texts, st.integers(1, 5_000), st.integers(1, 9))
def test_the_ends_of_lines_are_cut_alike_however_the_pieces_fall(text: str, piece_chars: int, first: int) -> None:
    ends = LineEnds(first)
    for start in range(0, len(text), piece_chars):
        ends.feed(text[start : start + piece_chars])
    found, expected = ends.finish(), lines_of(text)
    assert [line.text for line in found] == [line[-MAX_LINE_CHARS:] for line in expected]
    assert [line.begin for line in found] == [max(0, len(line) - MAX_LINE_CHARS) for line in expected]
    assert [line.number for line in found] == list(range(first, first + len(expected)))


@given(texts, st.integers(200, 600), st.integers(1, 20), st.integers(100, 5_000))
def test_following_the_pages_shows_every_line_exactly_once(
    text: str, max_tokens: int, limit: int, max_chars: int
) -> None:
    total = len(lines_of(text))
    shown: list[int] = []
    offset: int | None = 1 if total else None
    while offset is not None:
        lines = cut(text, offset, 777, limit=limit, max_chars=max_chars)
        page = render_page(lines, total_lines=total, max_tokens=max_tokens, counter=COUNTER)
        assert COUNTER.count(page.text) <= max_tokens
        shown.extend(range(page.first_line, page.last_line + 1))
        offset = page.next_offset
        if page.next_char:  # it is about the rest of one line: the lines go on after it
            offset = page.last_line + 1 if page.last_line < total else None
    assert shown == list(range(1, total + 1))


@given(
    st.text(st.characters(exclude_characters="\n"), min_size=1, max_size=5_000),
    st.integers(200, 400),
    st.integers(50, 3_000),
)
def test_following_a_long_line_shows_every_character_exactly_once(text: str, max_tokens: int, max_chars: int) -> None:
    content = f"before\n{text}\nafter"
    parts: list[str] = []
    at = (2, 0)
    while at[0] == 2:
        lines = cut(content, 2, 501, max_chars=max_chars, char_offset=at[1])
        page = render_page(lines, total_lines=3, max_tokens=max_tokens, counter=COUNTER)
        assert (page.first_line, page.last_line) == (2, 2)
        assert COUNTER.count(page.text) <= max_tokens
        following = next_in(page)
        assert following is not None
        assert following == (page.next_offset, page.next_char)
        at = following
        end = at[1] if at[0] == 2 else len(text)
        parts.append(text[lines[0].begin : end])
        assert page.text.startswith(f"2\t{parts[-1]}")
    assert "".join(parts) == text
    assert at == (3, 0)


def test_a_line_over_the_budget_is_cut_to_it() -> None:
    lines = cut("\u4e00\u9fa5" * 900 + "\nb", 1, 99)
    page = render_page(lines, total_lines=2, max_tokens=200, counter=COUNTER)
    assert COUNTER.count(page.text) <= 200
    assert "this line goes on: offset=1, char_offset=" in page.text


class NewlineHeavy:
    """A counter to which the whole is more than the sum of its lines."""

    def count(self, text: str) -> int:
        return len(text) + 20 * text.count("\n")


def test_the_bound_holds_for_the_page_as_a_whole() -> None:
    page = render_page(cut("abc\n" * 50, 1, 999), total_lines=50, max_tokens=148, counter=NewlineHeavy())
    assert page.last_line == page.text.count("\n") == 4


def test_the_whole_content_needs_no_footer() -> None:
    page = render_page(cut("a\nb\n", 1, 9), total_lines=2, max_tokens=200, counter=COUNTER)
    assert page == Page(text="1\ta\n2\tb", first_line=1, last_line=2)


@pytest.mark.parametrize(
    ("first", "limit", "total", "footer"),
    [
        (1, 2, 5, "[lines 1-2 of 5; next: offset=3]"),
        (3, 9, 5, "[lines 3-5 of 5; end]"),
        (5, 1, 5, "[line 5 of 5; end]"),
        (2, 1, None, "[line 2; next: offset=3]"),
    ],
)
def test_a_page_says_how_to_go_on(first: int, limit: int, total: int | None, footer: str) -> None:
    page = render_page(cut("a\nb\nc\nd\ne", first, 9, limit=limit), total_lines=total, max_tokens=200, counter=COUNTER)
    assert page.text.split("\n")[-1] == footer


def test_a_long_line_says_how_to_get_its_rest() -> None:
    page = render_page(cut("a\n" + "x" * 9_000 + "\nb", 1, 99), total_lines=3, max_tokens=5_000, counter=COUNTER)
    rows = page.text.split("\n")
    assert rows[1] == "2\t" + "x" * 2_000 + " …[this line goes on: offset=2, char_offset=2000]"
    assert rows[2] == "3\tb"


def test_past_the_end_of_a_line_is_its_end() -> None:
    lines = cut("abc\nd", 1, 9, char_offset=9)
    page = render_page(lines, total_lines=2, max_tokens=200, counter=COUNTER)
    assert page.text == "1\t\n[line 1 of 2, characters 9-9; end of the line; next: offset=2]"
