"""Lines of a text, by number: the first, the last, those with errors, and how one is shown. Pure."""

import re
from collections.abc import Iterable, Iterator
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


def rest_of_line_re2(pattern: bytes) -> Any:
    """An expression for ``lines_with``: its matches go on to the end of the line, so that a line has one match."""
    return latin1_re2(rb"(?:" + pattern + rb")[^\n]*")


ERROR: Final = (
    rb"(?im)\b(?:errors?|exception|traceback|fatal|panic|panicked|critical|fail|fails|failed|failures?|segfault|"
    rb"segmentation fault|core dumped|cannot|denied|not found|timed out|abort|aborted)\b"
    rb"|(?-i:[a-z](?:Error|Exception)\b)|^E   "
)
"""An expression for what says in a line that something went wrong."""

_ERROR = rest_of_line_re2(ERROR)

# A set of characters comes first, for which Python looks four times as fast as for a boundary of words.
_NO_ERROR = re.compile(
    r"(?-i:[0nNwW])(?:(?<=\b0)|(?<=\bn)o|(?<=\bw)ithout)\s+(?:errors?|fail(?:ed|ures?)?|exceptions?)\b", re.IGNORECASE
)

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
    """Which of ``lines``, found by what says so, speak of an error.

    Each is shown from its begin or, where the error stands far to the right, from a little before the error.
    """
    last = 0
    for number, line_start, end, offset in lines:
        if number == last:
            continue  # a line longer than a slice is found again
        start = line_start
        if offset >= LINE_CHARS // 2:
            start += offset - 24
        if not _NO_ERROR.search(text, start, min(end, start + LINE_CHARS)):
            last = number
            yield Pick(number, start, end)


class Found(NamedTuple):
    """A line with a match, which begins ``offset`` characters into it; ``end`` is before its newline."""

    number: int
    start: int
    end: int
    offset: int


def lines_with(expression: Any, text: str, *, number: int = 1, begin: int = 0) -> Iterator[Found]:
    """Find the lines with a match of an ``expression`` in one pass; see ``error_lines`` for the other parameters.

    ``expression``: of ``rest_of_line_re2``. A line that is longer than a slice is found once for each slice with a
    match in it.
    """
    for start, end in slices(text, begin):
        data = text[start:end].encode("utf-8", "surrogatepass")
        size = len if len(data) == end - start else _chars  # bytes are characters in ASCII
        position = 0  # where the last line begins that was found, and has this number
        char = start  # the same place in characters
        for match in expression.finditer(data):
            at, line_end = match.span()
            line_start = data.rfind(b"\n", position, at) + 1 or position
            number += data.count(b"\n", position, line_start)
            char += size(data[position:line_start])
            position = line_start
            yield Found(number, char, char + size(data[line_start:line_end]), size(data[line_start:at]))
        if end < len(text):
            number += data.count(b"\n", position)


def error_in(text: str, line: Found) -> Found | None:
    """The same line, found by the first word that says that something went wrong; None if there is none."""
    data = text[line.start : line.end].encode("utf-8", "surrogatepass")
    match = _ERROR.search(data)
    return None if match is None else line._replace(offset=_chars(data[: match.start()]))


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
