"""The lines of one content that match a query, as they are, with the lines around them. Synchronous."""

import re
from collections import deque
from collections.abc import Iterator, Sequence

from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.query import Query, Row


class LinesOfContent:
    """Searches one content, given in chunks of whole lines, the first of which is line ``first_line``."""

    def __init__(self, query: Query, pattern: LinePattern, *, first_line: int = 1) -> None:
        self._query = query
        self._pattern = pattern
        self._number = first_line
        self._offset = 0
        self._before: deque[Row] = deque(maxlen=query.before)
        self._after = 0
        self._last = 0
        self.found = 0
        """How many matching lines there were."""

    @property
    def done(self) -> bool:
        """Whether nothing more is wanted."""
        return self.found == self._query.max_count and not self._after

    def feed(self, chunk: bytes) -> Iterator[Row]:
        """Yield those of the next lines that are shown."""
        if self._query.invert or self._query.before or self._query.after:
            rows = self._with_context(self._lines(chunk))
        else:
            rows = self._matching(chunk)
        for row in rows:
            self._last = row.number
            yield row
        self._number += chunk.count(b"\n")
        self._offset += len(chunk)

    def _matching(self, chunk: bytes) -> Iterator[Row]:
        number = self._number
        counted = 0
        for start, _, end in self._pattern.matches(chunk):
            if self.found == self._query.max_count:
                return
            number += chunk.count(b"\n", counted, start)
            counted = start
            self.found += 1
            yield Row(number, self._offset + start, chunk[start : end + 1])

    def _lines(self, chunk: bytes) -> Iterator[Row]:
        matching = {start for start, _, _ in self._pattern.matches(chunk)}
        position = 0
        for number, text in enumerate(_split(chunk)):
            matches = (position in matching) is not self._query.invert
            yield Row(self._number + number, self._offset + position, text, matches)
            position += len(text)

    def _with_context(self, lines: Iterator[Row]) -> Iterator[Row]:
        for row in lines:
            if row.matches and self.found != self._query.max_count:
                self.found += 1
                self._after = self._query.after
                shown = [*self._before, row]
                has_context = self._query.before > 0 or self._query.after > 0
                gap = has_context and 0 < self._last < shown[0].number - 1
                yield shown[0]._replace(after_gap=gap)
                yield from shown[1:]
                self._before.clear()
            elif self._after:
                self._after -= 1
                yield row._replace(matches=False)
            else:
                self._before.append(row._replace(matches=False))


def _split(chunk: bytes) -> Sequence[bytes]:
    """Lines with their line ends; only a line feed ends one."""
    return re.findall(rb"[^\n]*\n|[^\n]+", chunk)
