"""The tokens of a JSON text, and the walk from entry to entry of its containers. Pure.

A walk takes ``first``, then by turns the end of the value, which each reader finds as fast as its purpose allows, and
``following``. It goes on in steps of bounded size: no single call holds the interpreter for long, however long a string
is or however many entries there are.

Two readers are built on it: ``is_json`` says whether a text is JSON, ``json_elements`` yields the elements of an array.
One that a window of the text does not hold whole is taken apart.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from json import JSONDecodeError
from typing import Any

import orjson
import re2

from ctxfs.text.patterns import possessive
from ctxfs.text.steps import checkpoint

SPACE = r"[ \t\r\n]*+"
STRING = r'"[^"\\]*+' + possessive(r'\\.[^"\\]*+', "*") + '"'
"""A string of any length, in one call: bound the text. Needs ``re.DOTALL``."""

_SPACE = re.compile(SPACE)
_STRING_PART = re.compile(possessive(r'[^"\\]++|\\.', "{0,8192}"), re.DOTALL)
_NO_BRACKETS = re.compile(possessive(rf'[^\[\]{{}}"]|{STRING}', "+"), re.DOTALL)
_STEP_CHARS = 4_096
_OPENING = frozenset("[{")
_CLOSING = frozenset("]}")
_TOKEN = re.compile(rf'{STRING}|[\[\]{{}},:]|[^\s"\[\]{{}},:]++', re.DOTALL)


class JsonTokens:
    """Finds tokens in a text, by position.

    Every method raises ``JSONDecodeError`` where the text is not JSON; what stands between two tokens is looked at no
    closer than is needed to find them.

    Args:
        text: the JSON.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._stepped = 0

    def after_space(self, position: int) -> int:
        """Return where the white space ends that starts at ``position``."""
        if self.text[position : position + 1] not in " \t\r\n":  # by far the most frequent
            return position
        match = _SPACE.match(self.text, position)
        return position if match is None else match.end()

    def stepped(self, position: int) -> None:
        """Call ``checkpoint`` if ``position`` is a few thousand characters from where that was last done."""
        if abs(position - self._stepped) >= _STEP_CHARS:
            self._stepped = position
            checkpoint()

    def string_end(self, start: int) -> int:
        """Return where the string that starts at ``start`` ends."""
        if self.text[start : start + 1] != '"':
            raise self.fault("expected a string", start)
        position = start
        after = start + 1
        while after > position:
            self.stepped(after)
            position = after
            match = _STRING_PART.match(self.text, position)
            after = position if match is None else match.end()
            if self.text[after : after + 1] == '"':
                return after + 1
        raise self.fault("the string has no end", start)

    def first(self, start: int) -> int | None:
        """Return where the first entry of the container at ``start`` starts; None if it is empty."""
        position = self.after_space(start + 1)
        return None if self.text[position : position + 1] == _closer(self.text[start]) else position

    def after_key(self, end: int) -> int:
        """Return where the value starts whose key ends at ``end``."""
        position = self.after_space(end)
        if self.text[position : position + 1] != ":":
            raise self.fault("expected :", position)
        return self.after_space(position + 1)

    def following(self, start: int, end: int) -> int | None:
        """Return where the entry after the one that ends at ``end`` starts; None if that was the last.

        ``start`` is where their container does.
        """
        self.stepped(end)
        position = self.after_space(end)
        mark = self.text[position : position + 1]
        if mark == ",":
            return self.after_space(position + 1)
        if mark != _closer(self.text[start]):
            raise self.fault(f"expected , or {_closer(self.text[start])}", position)
        return None

    def after(self, end: int) -> int:
        """Return the position after the bracket that closes the container whose last entry ends at ``end``."""
        return self.after_space(end) + 1

    def fault(self, message: str, position: int) -> JSONDecodeError:
        """Make the error for what stands at ``position``."""
        return JSONDecodeError(message, self.text, position)


def brackets(text: str) -> str:
    """Return the brackets of a text that does not start within a string, in one call: bound the text."""
    return _NO_BRACKETS.sub("", text)


def indented(text: str) -> str:
    """The JSON ``text`` with a line for each value; keys and numbers stay as they are written, equal keys too.

    Only white space between tokens changes, and escaped characters of strings stand as they are, to be found.
    """
    parts: list[str] = []
    depth = 0
    is_open = False  # whether the last piece opened a container
    for found in _TOKEN.finditer(text):
        piece = found[0]
        if "\\u" in piece:
            piece = json.dumps(json.loads(piece), ensure_ascii=False)
        if piece in _CLOSING:
            depth -= 1
            if not is_open:
                parts.append(_line(depth))
            is_open = False
            parts.append(piece)
            continue
        if is_open:
            parts.append(_line(depth))
        is_open = piece in _OPENING
        parts.append(piece)
        if is_open:
            depth += 1
        elif piece == ",":
            parts.append(_line(depth))
        elif piece == ":":
            parts.append(" ")
    return "".join(parts)


def _line(depth: int) -> str:
    return "\n" + " " * depth


def _closer(opening: str) -> str:
    return "]" if opening == "[" else "}"


_SMALL = 1_048_576
_MATCHED = 4 * _SMALL
_MATCHED_DEPTH = 4
_WALKED_DEPTH = 2
_CHARACTER = r'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))'  # of a string, as it is written
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_NO_STRING = re.compile(rf"(?:{_NUMBER}|true|false|null){SPACE}")
_VALID_PART = re.compile(possessive(_CHARACTER, "{0,65536}"))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_STRICT_DECODER = json.JSONDecoder(parse_constant=_refuse)


def is_json(text: str) -> bool:
    """Whether the whole of ``text`` is one JSON value that is not nested too deeply to be read."""
    checker = _Checker(text)
    start = checker.after_space(0)
    if text[start : start + 1] not in set('{["'):
        return _NO_STRING.fullmatch(text, start) is not None
    # Fast paths, which tell most texts: walking is several times slower.
    if len(text) <= _MATCHED and _is_shallow_json(text):
        return True
    if len(text) <= _SMALL and _is_plain_json(text):
        return True
    try:
        return checker.after_space(checker.after_value(start, 0)) == len(text)
    except (ValueError, RecursionError, IndexError):
        return False


def _is_shallow_json(text: str) -> bool:
    """Whether it is JSON of a few levels. Builds no value, and holds up no other thread: most JSON is told by this."""
    return _shallow_json().fullmatch(text.encode("utf-8", "surrogatepass")) is not None


@cache
def _shallow_json() -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # any byte from 128 on is a part of a string
    options.never_capture = True
    options.max_mem = 16 << 20
    space = r"[ \t\n\r]*"
    string = f'"{_CHARACTER}*"'
    scalar = f"(?:{string}|{_NUMBER}|true|false|null)"
    value = scalar
    for _ in range(_MATCHED_DEPTH):
        member = f"{string}{space}:{space}{value}{space}"
        items = rf"\[{space}(?:{value}{space}(?:,{space}{value}{space})*)?\]"
        members = rf"\{{{space}(?:{member}(?:,{space}{member})*)?\}}"
        value = f"(?:{scalar}|{items}|{members})"
    return re2.compile(f"{space}{value}{space}".encode(), options)


def _is_plain_json(text: str) -> bool:
    """What a fast parser says; it knows no lone surrogates and no deep nesting."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


class _Checker(JsonTokens):
    """Walks the outer levels of a value, whose strings it checks, and leaves each deeper value to the C decoder."""

    def after_value(self, start: int, depth: int) -> int:
        """The end of the value at ``start``. Raises ValueError or IndexError when there is none."""
        opening = self.text[start]
        if opening == '"':
            return self.string_end(start)
        if depth >= _WALKED_DEPTH or opening not in "{[":
            return _STRICT_DECODER.raw_decode(self.text, start)[1]
        end = start + 1
        entry = self.first(start)
        while entry is not None:
            value = self.after_key(self.string_end(entry)) if opening == "{" else entry
            end = self.after_value(value, depth + 1)
            entry = self.following(start, end)
        return self.after(end)

    def string_end(self, start: int) -> int:
        if self.text[start] != '"':
            raise self.fault("expected a string", start)
        end = start + 1
        while (after := _after_characters(self.text, end)) > end:
            self.stepped(after)
            end = after
        if self.text[end] != '"':
            raise self.fault("not a string", end)
        return end + 1


def _after_characters(text: str, position: int) -> int:
    match = _VALID_PART.match(text, position)
    return position if match is None else match.end()


WINDOW_CHARS = 65_536
_ESCAPED_PART = re.compile(
    possessive(
        r'[^"\\]{1,1024}+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^u]',
        "{1,256}",
    ),
    re.DOTALL,
)
_DECODER = json.JSONDecoder()
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
        found = _ESCAPED_PART.match(text, position, end)
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
