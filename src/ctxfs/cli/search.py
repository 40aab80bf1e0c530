"""Lines that match a pattern, in linear time whatever the pattern: patterns come from models and users."""

from collections.abc import Iterator
from typing import Any

import re2

from ctxfs.errors import ConfigError

__all__ = ["compile_pattern", "matching_lines"]

_SHOWN_PATTERN_CHARS = 100


def compile_pattern(pattern: str, *, ignore_case: bool = False) -> Any:
    """Compile an RE2 ``pattern`` that is matched line by line (``^`` and ``$`` are a line's ends).

    Raises:
        ConfigError: it is no RE2 pattern (look-around and back references are not).

    """
    options = re2.Options()
    options.log_errors = False
    options.never_nl = True
    options.case_sensitive = not ignore_case
    try:
        return re2.compile(b"(?m)" + pattern.encode("utf-8", "surrogateescape"), options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        reason = reason.replace("(?m)", "", 1)
        raise ConfigError(f"not a pattern ({reason}): {pattern[:_SHOWN_PATTERN_CHARS]!r}") from error


def matching_lines(pattern: Any, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number (from 1) and the bytes of each line of ``data`` that matches; only a newline ends a line."""
    number, counted, position = 1, 0, 0
    while position < len(data):
        match = pattern.search(data, position)
        if match is None or (match.start() == len(data) and data.endswith(b"\n")):
            return
        start = data.rfind(b"\n", 0, match.start()) + 1
        end = data.find(b"\n", match.start())
        end = len(data) if end < 0 else end
        number += data.count(b"\n", counted, start)
        counted = start
        yield number, data[start:end]
        position = end + 1
