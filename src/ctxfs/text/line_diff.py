"""A unified diff of two texts, in time that grows with their lines: never with the square of them. Pure.

Lines that stand once in each of the texts, and in the same order, are taken as the same line; what lies between two of
them is compared from its beginning and from its end (patience diff, without its recursion). So a diff is always right,
and may be longer than the shortest one where lines repeat.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

_CONTEXT: Final = 3
"""Unchanged lines around each change, as ``diff -u`` and git print them."""

_NO_NEWLINE: Final = "\n\\ No newline at end of file"
"""What follows the last line of a text that does not end with a newline."""


class _Change(NamedTuple):
    """Lines of the old text, by number from 0, that became lines of the new one; one of the two may be empty."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def unified_diff(old: str, new: str, *, most_chars: int) -> str | None:
    """The hunks of a unified diff from ``old`` to ``new``, without the lines that name files; "" if they are equal.

    None: it has more than ``most_chars`` characters. Only a line feed ends a line.
    """
    if len(new) - len(old) > most_chars:
        return None
    before = _lines(old)
    after = _lines(new)
    lines: list[str] = []
    chars = -1
    for hunk in _hunks(_changes(before, after)):
        for line in _printed(before, after, hunk):
            lines.append(line)
            chars += len(line) + 1
            if chars > most_chars:
                return None
    return "\n".join(lines)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    last = lines.pop()
    if last:
        lines.append(last + _NO_NEWLINE)
    return lines


def _changes(old: Sequence[str], new: Sequence[str]) -> list[_Change]:
    """What became of the old lines, in order."""
    middle = _trimmed(old, new, _Change(0, len(old), 0, len(new)))
    found: list[_Change] = []
    old_start = middle.old_start
    new_start = middle.new_start
    for old_at, new_at in [*_same_lines(old, new, middle), (middle.old_end, middle.new_end)]:
        between = _trimmed(old, new, _Change(old_start, old_at, new_start, new_at))
        if between.old_start < between.old_end or between.new_start < between.new_end:
            found.append(between)
        old_start = old_at + 1
        new_start = new_at + 1
    return found


def _trimmed(old: Sequence[str], new: Sequence[str], part: _Change) -> _Change:
    """A part without the lines that are equal at its beginning and at its end."""
    old_start, old_end, new_start, new_end = part
    while old_start < old_end and new_start < new_end and old[old_start] == new[new_start]:
        old_start += 1
        new_start += 1
    while old_start < old_end and new_start < new_end and old[old_end - 1] == new[new_end - 1]:
        old_end -= 1
        new_end -= 1
    return _Change(old_start, old_end, new_start, new_end)


def _same_lines(old: Sequence[str], new: Sequence[str], part: _Change) -> list[tuple[int, int]]:
    """The places of lines that stand once in each text of a part: the longest run of them that is in order in both."""
    old_lines = old[part.old_start : part.old_end]
    new_lines = new[part.new_start : part.new_end]
    in_old = Counter(old_lines)
    in_new = Counter(new_lines)
    places = {line: place for place, line in enumerate(new_lines, part.new_start) if in_new[line] == 1}
    pairs: list[tuple[int, int]] = []
    for place, line in enumerate(old_lines, part.old_start):
        if in_old[line] == 1 and line in places:
            pairs.append((place, places[line]))
    return _longest_rising(pairs)


def _longest_rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of pairs, whose first numbers rise, in which the second ones rise too."""
    ends: list[int] = []  # by the length of a run: the least second number with which such a run ends
    last: list[int] = []  # and which pair that is
    before: list[int] = []  # by pair: the one before it in its run, -1 for none
    for number, (_, second) in enumerate(pairs):
        length = bisect_left(ends, second)
        before.append(last[length - 1] if length else -1)
        if length == len(ends):
            ends.append(second)
            last.append(number)
        else:
            ends[length] = second
            last[length] = number
    run: list[tuple[int, int]] = []
    number = last[-1] if last else -1
    while number >= 0:
        run.append(pairs[number])
        number = before[number]
    run.reverse()
    return run


def _hunks(changes: Iterable[_Change]) -> Iterator[list[_Change]]:
    """The changes whose unchanged lines around them touch, together."""
    hunk: list[_Change] = []
    for change in changes:
        if hunk and change.old_start - hunk[-1].old_end > 2 * _CONTEXT:
            yield hunk
            hunk = []
        hunk.append(change)
    if hunk:
        yield hunk


def _printed(old: Sequence[str], new: Sequence[str], hunk: Sequence[_Change]) -> Iterator[str]:
    """The lines of a hunk; the first one says which lines of the texts it is about."""
    first = hunk[0]
    last = hunk[-1]
    above = min(_CONTEXT, first.old_start)  # the new text has the same lines above and below
    below = min(_CONTEXT, len(old) - last.old_end)
    old_range = _range(first.old_start - above, last.old_end + below)
    new_range = _range(first.new_start - above, last.new_end + below)
    yield f"@@ -{old_range} +{new_range} @@"
    at = first.old_start - above
    for change in hunk:
        for line in old[at : change.old_start]:
            yield f" {line}"
        for line in old[change.old_start : change.old_end]:
            yield f"-{line}"
        for line in new[change.new_start : change.new_end]:
            yield f"+{line}"
        at = change.old_end
    for line in old[at : at + below]:
        yield f" {line}"


def _range(start: int, end: int) -> str:
    """Lines as a hunk names them: from 1; where there are none, the line before them."""
    if end - start == 1:
        return str(end)
    return f"{start + 1 if end > start else start},{end - start}"
