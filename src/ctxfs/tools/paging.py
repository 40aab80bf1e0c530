r"""Numbered lines in bounded pages: one rule for every tool that shows content. Pure.

Lines are 1-based and end at "\n" alone; characters in a line are 0-based code points.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ctxfs.messages.tokens import TokenCounter
from ctxfs.text.steps import checkpoint

MAX_LINE_CHARS = 2_000
MAX_POSITION = 10**12
"""The largest number of a line, a character, an entry or a call that a model can ask for: no content has so many."""
_FOOTER_TOKENS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line, or a part of one: ``text`` starts at character ``begin``; ``more``: the line goes on after it."""

    number: int
    text: str
    begin: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What is shown, and where to go on: at line ``next_offset`` (None: nothing is left) from its ``next_char``."""

    text: str
    first_line: int
    last_line: int
    next_offset: int | None = None
    next_char: int = 0


class LineCutter:
    """Cuts lines out of text that comes in pieces, keeping no more than is shown.

    Args:
        first: the number of the line that the text begins with.
        limit: the most lines.
        max_chars: after about how many characters to stop.
        char_offset: show line ``first`` only, from this character on; None shows whole lines, each cut to
            ``MAX_LINE_CHARS``.
    """

    def __init__(self, first: int, *, limit: int, max_chars: int, char_offset: int | None = None) -> None:
        self.lines: list[Line] = []
        self._number = first
        self._begin = char_offset or 0
        self._limit = 1 if char_offset is not None else limit
        self._line_chars = max_chars if char_offset is not None else min(MAX_LINE_CHARS, max_chars)
        self._left = max_chars
        self._single = char_offset is not None
        self._parts: list[str] = []
        self._kept = 0
        self._length = 0

    def feed(self, text: str) -> bool:
        """Take the next piece; True when no more is needed."""
        position = 0
        while not self._full():
            end = text.find("\n", position)
            self._take(text, position, len(text) if end < 0 else end)
            if end < 0:
                return self._full()
            self._end_line()
            checkpoint()
            position = end + 1
        return True

    def finish(self) -> list[Line]:
        """The lines; to be called after the last piece, or once ``feed`` said True."""
        if self._length and len(self.lines) < self._limit and self._left > 0:
            self._end_line()
        return self.lines

    def _full(self) -> bool:
        enough = self._single and self._kept >= self._line_chars and self._length > self._begin + self._kept
        return enough or len(self.lines) >= self._limit or self._left <= 0

    def _take(self, text: str, start: int, end: int) -> None:
        skipped = max(0, self._begin - self._length)
        self._length += end - start
        start += skipped
        keep = min(end - start, self._line_chars - self._kept)
        if keep > 0:
            self._parts.append(text[start : start + keep])
            self._kept += keep

    def _end_line(self) -> None:
        more = self._length > self._begin + self._kept
        self.lines.append(Line(number=self._number, text="".join(self._parts), begin=self._begin, more=more))
        self._left -= self._kept + 1
        self._number += 1
        self._parts = []
        self._kept = 0
        self._length = 0
        self._begin = 0


class LineEnds:
    """Cuts lines out of text that comes in pieces, each to its last ``MAX_LINE_CHARS`` characters.

    Args:
        first: the number of the line that the text begins with.
    """

    def __init__(self, first: int) -> None:
        self.lines: list[Line] = []
        self._number = first
        self._text = ""
        self._length = 0

    def feed(self, text: str) -> None:
        """Take the next piece."""
        *ended, rest = text.split("\n")
        for part in ended:
            self._take(part)
            self._end_line()
        self._take(rest)

    def finish(self) -> list[Line]:
        """The lines; to be called after the last piece."""
        if self._length:
            self._end_line()
        return self.lines

    def _take(self, part: str) -> None:
        self._text = (self._text + part[-MAX_LINE_CHARS:])[-MAX_LINE_CHARS:]
        self._length += len(part)

    def _end_line(self) -> None:
        self.lines.append(Line(number=self._number, text=self._text, begin=self._length - len(self._text)))
        self._number += 1
        self._text = ""
        self._length = 0


def row(line: Line, mark: str = "\t", *, offset: str = "offset") -> str:
    """The line as it is shown, with its number, and with the way to its rest if it goes on.

    ``offset``: the argument in which the tool that reads on takes a page's first line.
    """
    if not line.more:
        return f"{line.number}{mark}{line.text}"
    rest = f"{offset}={line.number}, char_offset={line.begin + len(line.text)}"
    return f"{line.number}{mark}{line.text} …[this line goes on: {rest}]"


def render_page(
    lines: Sequence[Line], *, total_lines: int | None, max_tokens: int, counter: TokenCounter, offset: str = "offset"
) -> Page:
    """As many of the lines as fit, then how to go on; ``total_lines`` None: not known, and there may be more.

    ``lines`` has at least one line, and ``max_tokens`` bounds the page as long as it has room for a footer (about 100).
    ``offset``: as for ``row``.
    """
    budget = max(1, max_tokens - _FOOTER_TOKENS)
    rows: list[str] = []
    shown: list[Line] = []
    used = 0
    for line in lines:
        fitting = line if rows else _shrunk(line, budget, counter)
        text = row(fitting, offset=offset)
        cost = counter.count(text) + 1
        if rows and used + cost > budget:
            break
        rows.append(text)
        shown.append(fitting)
        used += cost
    while len(rows) > 1 and counter.count("\n".join(rows)) > budget:
        rows.pop()
        shown.pop()
    return _with_footer(rows, shown, total_lines, offset)


def _shrunk(line: Line, budget: int, counter: TokenCounter) -> Line:
    """The line's beginning that fits the budget; at least one character of it."""
    while len(line.text) > 1 and counter.count(row(line)) + 1 > budget:
        line = Line(number=line.number, text=line.text[: len(line.text) // 2], begin=line.begin, more=True)
    return line


def _with_footer(rows: list[str], shown: list[Line], total_lines: int | None, offset: str) -> Page:
    first = shown[0]
    last = shown[-1]
    total = "" if total_lines is None else f" of {total_lines:,}"
    whole = first.number == 1 and not first.begin and last.number == total_lines
    if last.begin or (len(shown) == 1 and last.more):  # the page is a part of one line, and goes on within it
        return _inside_a_line(rows, last, total_lines, offset)
    following = None if last.number == total_lines else last.number + 1
    if not whole:
        go_on = "end" if following is None else f"next: {offset}={following}"
        several = f"lines {first.number:,}-{last.number:,}" if len(shown) > 1 else f"line {last.number:,}"
        rows = [*rows, f"[{several}{total}; {go_on}]"]
    return Page(text="\n".join(rows), first_line=first.number, last_line=last.number, next_offset=following)


def _inside_a_line(rows: list[str], line: Line, total_lines: int | None, offset: str) -> Page:
    end = line.begin + len(line.text)
    total = "" if total_lines is None else f" of {total_lines:,}"
    where = f"line {line.number:,}{total}, characters {line.begin:,}-{end:,}"
    following: int | None = line.number
    char = 0
    if line.more:
        char = end
        footer = f"[{where}; next: {offset}={line.number}, char_offset={end}]"
    else:
        following = None if line.number == total_lines else line.number + 1
        footer = f"[{where}; end of the line; {'end' if following is None else f'next: {offset}={following}'}]"
    return Page(
        text="\n".join([*rows, footer]),
        first_line=line.number,
        last_line=line.number,
        next_offset=following,
        next_char=char,
    )
