"""Lines that match a pattern, with their numbers."""

from collections.abc import Iterator

from ctxfs.tools.line_pattern import LinePattern


def matching_lines(pattern: LinePattern, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number (from 1) and the bytes of each line of ``data`` that matches; only a newline ends a line."""
    number, counted = 1, 0
    for start, _, end in pattern.matches(data):
        number += data.count(b"\n", counted, start)
        counted = start
        yield number, data[start:end]
