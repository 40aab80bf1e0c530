"""The elements of a JSON array, one after the other, in steps of bounded size. Pure.

No single call holds the interpreter for long, however long an element is: what a window of the text does not hold whole
is taken apart.
"""

import re
from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Any

from ctxfs.text.jsontext.tokens import JsonTokens
from ctxfs.text.patterns import possessive

WINDOW_CHARS = 65_536
_STRING_PART = re.compile(
    possessive(
        r'[^"\\]{1,1024}+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^u]',
        "{1,256}",
    ),
    re.DOTALL,
)
_DECODER = JSONDecoder()
_IN_NUMBERS = frozenset("0123456789+-.eE")
"""What may follow where a window cuts a number: the decoder takes what stands before "e+16" for all of it."""


def json_elements(text: str, *, window_chars: int = WINDOW_CHARS) -> Iterator[Any]:
    """Yield the elements of the array that ``text`` is, parsing at most ``window_chars`` (64 or more) at once.

    Raises ValueError if it is not an array.
    """
    reader = _Reader(text, window_chars)
    start = reader.after_space(0)
    if text[start : start + 1] != "[":
        raise ValueError("not a JSON array")
    try:
        yield from reader.elements(start)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    if reader.after_space(reader.position) != len(text):
        raise ValueError("there is more after the JSON array")


def string_pieces(text: str, start: int) -> Iterator[str]:
    """Yield the JSON string that starts at ``start`` in pieces. Raises ValueError."""
    position = start + 1
    end = JsonTokens(text).string_end(start) - 1
    while position < end:
        found = _STRING_PART.match(text, position, end)
        if found is None:
            raise JSONDecodeError("not a string", text, position)
        yield _DECODER.decode(f'"{found[0]}"')
        position = found.end()


class _Reader(JsonTokens):
    """Reads values; ``position`` is behind the last one."""

    def __init__(self, text: str, window_chars: int) -> None:
        super().__init__(text)
        self.position = 0
        self._window_chars = window_chars
        self._start = 0
        self._window = text[:window_chars]

    def elements(self, start: int) -> Iterator[Any]:
        self.position = start + 1
        entry = self.first(start)
        while entry is not None:
            yield self._value(entry)
            entry = self.following(start, self.position)
        self.position = self.after(self.position)

    def _members(self, start: int) -> Iterator[tuple[str, Any]]:
        self.position = start + 1
        entry = self.first(start)
        while entry is not None:
            key = self._value(entry)
            if not isinstance(key, str):
                raise self.fault("expected a string", entry)
            yield key, self._value(self.after_key(self.position))
            entry = self.following(start, self.position)
        self.position = self.after(self.position)

    def _value(self, start: int) -> Any:
        # A window's values come from the C decoder: it is many times as fast as tokens, and a window bounds its time.
        short = self._in_window(start)
        if short is None and start > self._start:  # the next window begins with it
            self._start = start
            self._window = self.text[start : start + self._window_chars]
            short = self._in_window(start)
        if short is not None:
            value, self.position = short
            return value
        first = self.text[start : start + 1]
        if first == '"':
            return self._string(start)
        if first == "[":
            return list(self.elements(start))
        if first == "{":
            return dict(self._members(start))
        raise self.fault("expected a value", start)

    def _in_window(self, start: int) -> tuple[Any, int] | None:
        """The value at ``start`` and its end; None when the window does not hold all of it."""
        if start >= self._start + self._window_chars:
            return None
        try:
            value, used = _DECODER.raw_decode(self._window, start - self._start)
        except JSONDecodeError:
            return None
        end = self._start + used
        if end == len(self.text) or (used < len(self._window) and self.text[end] not in _IN_NUMBERS):
            return value, end
        return None

    def _string(self, start: int) -> str:
        pieces = list(string_pieces(self.text, start))
        self.position = self.string_end(start)
        return "".join(pieces)
