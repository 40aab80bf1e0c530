"""The elements of a JSON array, one after the other, in steps of bounded size. Pure.

No single call holds the interpreter for long, however long an element is: what a window of the text does not hold whole
is taken apart.
"""

import re
from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Any

from ctxfs.steps import checkpoint

__all__ = ["json_elements", "string_end", "string_pieces"]

WINDOW_CHARS = 65_536
_SPACE = re.compile(r"[ \t\n\r]*+")
_STRING_PART = re.compile(
    r'(?:[^"\\]{1,1024}+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^u]){1,256}+',
    re.DOTALL,
)
_STRING_BODY = re.compile(r'(?:[^"\\]++|\\.){0,8192}+', re.DOTALL)
_DECODER = JSONDecoder()
_IN_NUMBERS = frozenset("0123456789+-.eE")
"""What may follow where a window cuts a number: the decoder takes what stands before "e+16" for all of it."""


def json_elements(text: str, *, window_chars: int = WINDOW_CHARS) -> Iterator[Any]:
    """Yield the elements of the array that ``text`` is, parsing at most ``window_chars`` (64 or more) at once.

    Raises ValueError when it is no array.
    """
    reader = _Reader(text, window_chars)
    start = reader.after_space(0)
    if text[start : start + 1] != "[":
        raise ValueError("not a JSON array")
    try:
        yield from reader.elements(start)
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    if reader.after_space(reader.position) != len(text):
        raise ValueError("there is more after the JSON array")


def string_pieces(text: str, start: int) -> Iterator[str]:
    """Yield the JSON string that starts at ``start`` in pieces. Raises ValueError."""
    position, end = start + 1, string_end(text, start) - 1
    while position < end:
        found = _STRING_PART.match(text, position, end)
        if found is None:
            raise JSONDecodeError("not a string", text, position)
        yield _DECODER.decode(f'"{found[0]}"')
        position = found.end()


def string_end(text: str, start: int) -> int:
    """Return where the JSON string that starts at ``start`` ends. Raises ValueError when it has no end."""
    position, after = start, start + 1
    while after > position:
        checkpoint()
        position = after
        found = _STRING_BODY.match(text, position)
        assert found is not None  # it matches nothing too
        after = found.end()
        if text[after : after + 1] == '"':
            return after + 1
    raise JSONDecodeError("the string has no end", text, start)


class _Reader:
    """Reads values; ``position`` is behind the last one."""

    def __init__(self, text: str, window_chars: int) -> None:
        self.position = 0
        self._text = text
        self._window_chars = window_chars
        self._start = 0
        self._window = text[:window_chars]

    def after_space(self, position: int) -> int:
        found = _SPACE.match(self._text, position)
        assert found is not None  # it matches nothing too
        return found.end()

    def elements(self, start: int) -> Iterator[Any]:
        position = self._first(start, "]")
        while position is not None:
            checkpoint()
            yield self._value(position)
            position = self._next("]")

    def _members(self, start: int) -> Iterator[tuple[str, Any]]:
        position = self._first(start, "}")
        while position is not None:
            key = self._value(position)
            if not isinstance(key, str):
                raise JSONDecodeError("expected a string", self._text, position)
            position = self.after_space(self.position)
            if self._text[position : position + 1] != ":":
                raise JSONDecodeError("expected :", self._text, position)
            yield key, self._value(self.after_space(position + 1))
            position = self._next("}")

    def _first(self, start: int, closing: str) -> int | None:
        """Where a container's first entry starts; None when it is empty."""
        position = self.after_space(start + 1)
        if self._text[position : position + 1] != closing:
            return position
        self.position = position + 1
        return None

    def _next(self, closing: str) -> int | None:
        """Where the next entry starts; None when there is none."""
        position = self.after_space(self.position)
        mark = self._text[position : position + 1]
        self.position = position + 1
        if mark == closing:
            return None
        if mark != ",":
            raise JSONDecodeError(f"expected , or {closing}", self._text, position)
        return self.after_space(position + 1)

    def _value(self, start: int) -> Any:
        if (short := self._short_value(start)) is not None:
            value, self.position = short
            return value
        first = self._text[start : start + 1]
        if first == '"':
            return self._string(start)
        if first == "[":
            return list(self.elements(start))
        if first == "{":
            return dict(self._members(start))
        raise JSONDecodeError("expected a value", self._text, start)

    def _short_value(self, start: int) -> tuple[Any, int] | None:
        """The value at ``start`` and its end; None when a window does not hold all of it."""
        for window_start in dict.fromkeys((self._start, start)):
            if start >= window_start + self._window_chars:
                continue
            if window_start != self._start:
                self._start, self._window = start, self._text[start : start + self._window_chars]
            try:
                value, used = _DECODER.raw_decode(self._window, start - window_start)
            except JSONDecodeError:
                continue
            end = window_start + used
            if end == len(self._text) or (used < len(self._window) and self._text[end] not in _IN_NUMBERS):
                return value, end
        return None

    def _string(self, start: int) -> str:
        pieces = list(string_pieces(self._text, start))
        self.position = string_end(self._text, start)
        return "".join(pieces)
