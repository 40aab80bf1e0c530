"""Whether a text is JSON, decided such that other threads can run meanwhile or, in small steps, in between. Pure."""

import json
import re
from functools import cache
from json import JSONDecodeError
from typing import Any

import orjson
import re2

from ctxfs.steps import checkpoint

__all__ = ["is_json"]

_SMALL = 1_048_576
_MATCHED = 4 * _SMALL
_MATCHED_DEPTH = 4
_WALKED_DEPTH = 2
_SPACE = re.compile(r"[ \t\n\r]*+")
_CHARACTER = r'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))'  # of a string, as it is written
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_NO_STRING = re.compile(rf"(?:{_NUMBER}|true|false|null)[ \t\n\r]*+")
_STRING_PART = re.compile(_CHARACTER + "{0,65536}+")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def is_json(text: str) -> bool:
    """Whether the whole of ``text`` is one JSON value; a value that is nested too deeply to be read is none."""
    start = _after_space(text, 0)
    if text[start : start + 1] not in set('{["'):
        return _NO_STRING.fullmatch(text, start) is not None
    if len(text) <= _MATCHED and _is_shallow_json(text):
        return True
    if len(text) <= _SMALL and _is_plain_json(text):
        return True
    try:
        return _after_space(text, _after_value(text, start, 0)) == len(text)
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
    space, string = r"[ \t\n\r]*", f'"{_CHARACTER}*"'
    value = scalar = f"(?:{string}|{_NUMBER}|true|false|null)"
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


def _after_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    assert found is not None  # it matches nothing too
    return found.end()


def _after_value(text: str, position: int, depth: int) -> int:
    """The end of the value at ``position``. Raises ValueError or IndexError when there is none."""
    opening = text[position]
    if opening == '"':
        return _after_string(text, position)
    if depth >= _WALKED_DEPTH or opening not in "{[":
        return _DECODER.raw_decode(text, position)[1]
    closing = "}" if opening == "{" else "]"
    position = _after_space(text, position + 1)
    if text[position] == closing:
        return position + 1
    while True:
        checkpoint()
        if opening == "{":
            position = _expect(text, _after_space(text, _after_string(text, position)), ":")
        position = _after_space(text, _after_value(text, position, depth + 1))
        if text[position] == closing:
            return position + 1
        position = _expect(text, position, ",")


def _expect(text: str, position: int, character: str) -> int:
    if text[position] != character:
        raise JSONDecodeError(f"expected {character}", text, position)
    return _after_space(text, position + 1)


def _after_string(text: str, position: int) -> int:
    if text[position] != '"':
        raise JSONDecodeError("expected a string", text, position)
    position += 1
    while True:
        found = _STRING_PART.match(text, position)
        assert found is not None  # it matches nothing too
        if found.end() == position:
            if text[position] != '"':
                raise JSONDecodeError("not a string", text, position)
            return position + 1
        checkpoint()
        position = found.end()
