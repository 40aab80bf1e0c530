"""Lines of a text, by number: the first, the last, those with errors, and how one is shown. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, NamedTuple

import re2

from ctxfs.text.steps import checkpoint

_SLICE_CHARS = 131_072

LINE_CHARS = 160

_SAMPLE_LINES = 24

_UNPRINTABLE = {
    **dict.fromkeys([*range(32), *range(0x7F, 0xA0), 0x2028, 0x2029], " "),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}

_ANSI = re.compile(r"\x1b\[[0-9;?]{0,32}[A-Za-z]")


def latin1_re2(pattern: bytes) -> Any:
    """An RE2 expression over bytes, which are taken as they are."""
    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(pattern, options)


ERROR: Final = (
    rb"(?im)\b(?:errors?|exception|traceback|fatal|panic|panicked|critical|fail|fails|failed|failures?|segfault|"
    rb"segmentation fault|core dumped|cannot|denied|not found|timed out|abort|aborted)\b"
    rb"|(?-i:[a-z](?:Error|Exception)\b)|^E   "
)
"""An expression for what says in a line that something went wrong."""

_ERROR = latin1_re2(ERROR)

_NO_ERROR = re.compile(r"\b(?:0|no|without)\s+(?:errors?|fail(?:ed|ures?)?|exceptions?)\b", re.IGNORECASE)

NUMBERED = r"[ \t]{0,8}\d{1,7}(?:→|\t|[:|] ?)"
_NUMBERED = re.compile(NUMBERED)


class Pick(NamedTuple):
    """A line worth showing: its number and its characters' place in the text (cut to what is ever shown)."""

    number: int
    start: int
    end: int


def error_lines(text: str, *, number: int = 1, begin: int = 0) -> Iterator[Pick]:
    """Find the lines that speak of an error, from the line ``number`` on, which begins at the character ``begin``."""
    return errors_of(text, lines_with(_ERROR, text, number=number, begin=begin))


def errors_of(text: str, lines: Iterable["Found"]) -> Iterator[Pick]:
    """Which of ``lines``, found by what says so, speak of an error."""
    last = 0
    for found in lines:
        pick = _error_pick(text, found)
        said = _NO_ERROR.search(text, pick.start, min(pick.end, pick.start + LINE_CHARS))
        if found.number > last and not said:  # a line longer than a slice is found again
            last = found.number
            yield pick


@dataclass(frozen=True, slots=True)
class Found:
    """A line with a match, which begins ``offset`` characters into it; ``end`` is behind its newline, if it has one."""

    number: int
    start: int
    end: int
    offset: int

    def pick(self, text: str, start: int) -> Pick:
        """The line from the character ``start`` on."""
        return Pick(self.number, start, self.end - 1 if text[self.end - 1] == "\n" else self.end)


def lines_with(expression: Any, text: str, *, number: int = 1, begin: int = 0) -> Iterator[Found]:
    """Find the lines with a match of an RE2 ``expression`` in one pass; see ``error_lines`` for the other parameters.

    A line that is longer than a slice is found once for each slice with a match in it.
    """
    for start, end in slices(text, begin):
        data = text[start:end].encode("utf-8", "surrogatepass")
        size = len if len(data) == end - start else _chars  # bytes are characters in ASCII
        position, char = 0, start  # the same place in bytes and in characters, always at a line's begin
        while match := expression.search(data, position):
            at = match.start()
            line_start = max(data.rfind(b"\n", position, at) + 1, position)
            line_end = data.find(b"\n", at) + 1 or len(data)
            number += data.count(b"\n", position, line_start)
            char += size(data[position:line_start])
            line_chars = size(data[line_start:line_end])
            yield Found(number, char, char + line_chars, size(data[line_start:at]))
            number += data.count(b"\n", line_end - 1, line_end)
            char += line_chars
            position = line_end
        if end < len(text):
            number += data.count(b"\n", position)


def error_in(text: str, line: Found) -> Found | None:
    """The same line, found by the first word that says that something went wrong; None if there is none."""
    data = text[line.start : line.end].encode("utf-8", "surrogatepass")
    match = _ERROR.search(data)
    return None if match is None else replace(line, offset=_chars(data[: match.start()]))


def _error_pick(text: str, found: Found) -> Pick:
    """The line from its begin or, where the error stands far to the right, from a little before the error."""
    return found.pick(text, found.start if found.offset < LINE_CHARS // 2 else found.start + found.offset - 24)


def _chars(data: bytes) -> int:
    return len(data.decode("utf-8", "surrogatepass"))


def shown(text: str, pick: Pick, width: int) -> str:
    """The line with its number, one copy of it only if the content numbers its lines itself; "" for a blank line."""
    raw = text[pick.start : min(pick.end, pick.start + 2 * width)]
    numbered = _NUMBERED.match(raw)
    if numbered and numbered[0].strip("→\t:| ") == str(pick.number):
        raw = raw[numbered.end() :]
    raw = clean_line(raw).rstrip()
    if not raw.strip():
        return ""
    cut_left = "…" if pick.start and text[pick.start - 1] != "\n" else ""
    cut_right = "…" if len(raw) > width or pick.end - pick.start > 2 * width else ""
    return f"{pick.number}: {cut_left}{raw[:width]}{cut_right}"


def clean_line(line: str) -> str:
    """One printable line: no control characters, no terminal colours, no lone surrogates."""
    return line if line.isprintable() else _ANSI.sub("", line).translate(_UNPRINTABLE)


def line_count(text: str) -> int:
    r"""How many lines the text has, as ``\n`` separates them; what follows the last one counts."""
    ends = sum(text.count("\n", i, i + _SLICE_CHARS) for i in range(0, len(text), _SLICE_CHARS))
    return ends + (not text.endswith("\n")) if text else 0


def plural(count: int, noun: str) -> str:
    """The number with its noun: "1 line", "2,000 lines", "3 replies"."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else many}"


def slices(text: str, start: int = 0) -> Iterator[tuple[int, int]]:
    """The text from ``start`` on in slices that end at a line's end, unless a line is longer than a slice."""
    while start < len(text):
        checkpoint()
        end = min(start + _SLICE_CHARS, len(text))
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield start, end
        start = end


def lines_of(text: str) -> Iterator[Pick]:
    """Every line, from the first."""
    start, number = 0, 1
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield Pick(number, start, end)
        start, number = end + 1, number + 1


def head_lines(text: str) -> Iterator[Pick]:
    """The first lines."""
    return islice(lines_of(text), _SAMPLE_LINES)


def tail_lines(text: str, lines: int) -> Iterator[Pick]:
    """The last lines, the last one first, of a text that has ``lines`` lines."""
    end = len(text) - text.endswith("\n")
    for number in range(lines, max(0, lines - _SAMPLE_LINES), -1):
        start = text.rfind("\n", 0, end) + 1
        yield Pick(number, start, end)
        end = start - 1
