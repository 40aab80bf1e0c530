"""Whether a text is JSON, decided such that other threads can run meanwhile or, in small steps, in between. Pure."""

import json
import re
from functools import cache
from typing import Any

import orjson
import re2

from ctxfs.text.jsontext.tokens import SPACE, JsonTokens
from ctxfs.text.patterns import possessive

_SMALL = 1_048_576
_MATCHED = 4 * _SMALL
_MATCHED_DEPTH = 4
_WALKED_DEPTH = 2
_CHARACTER = r'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))'  # of a string, as it is written
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_NO_STRING = re.compile(rf"(?:{_NUMBER}|true|false|null){SPACE}")
_STRING_PART = re.compile(possessive(_CHARACTER, "{0,65536}"))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


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
            return _DECODER.raw_decode(self.text, start)[1]
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
    match = _STRING_PART.match(text, position)
    return position if match is None else match.end()
