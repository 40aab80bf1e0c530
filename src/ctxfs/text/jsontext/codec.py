"""JSON in and out, exact: what was dumped loads equal, lone surrogates and integers over 64 bits included."""

import copy
import json
import math
import re
import reprlib
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import orjson

MAX_DEPTH = 200
"""How deeply lists and dicts may be nested in input, so that all later code can walk it to the bottom."""

MAX_RECORD_DEPTH = 248
"""The same for a record when it is read: it nests the input a few levels deeper, and may be written again."""

_DUMPED_DEPTH = MAX_RECORD_DEPTH + 2  # records may stand in a batch; orjson reads and writes as many
_FIRST_INEXACT = 2.0**63
_BOUND = 10**4300  # Python reads back no more digits; nan and the infinities do not lie within it either
_STR = frozenset({str})
_ALWAYS_JSON = frozenset({str, bool, type(None)})
_NUMBERS = frozenset({int, float})
_ATOMS = _ALWAYS_JSON | _NUMBERS


def json_copy(value: Any) -> Any:
    """Copy what is probably JSON, several times faster than ``copy.deepcopy``, which copies what is not."""
    try:
        return _copied(value)
    except RecursionError:  # it holds itself
        return copy.deepcopy(value)


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: one if type(one) in _ATOMS else _copied(one) for key, one in value.items()}
    if kind is list:
        return [one if type(one) in _ATOMS else _copied(one) for one in value]
    return value if kind in _ATOMS else copy.deepcopy(value)


def check_json(value: Any, place: str = "value", *, max_depth: int = MAX_DEPTH) -> None:
    """Raise ValueError, naming what is wrong at which place in ``value``, unless it is JSON that loads equal.

    That is None, bool, str, a finite float, an int of at most 4,300 digits, and lists and dicts of these whose keys are
    str, at most ``max_depth`` in each other. Tuples are rejected, because they would load as lists. Long text
    costs nothing.
    """
    _check(value, place, max_depth, list)


def _check(value: Any, place: str, max_depth: int, arrays: Any) -> None:
    stack: list[tuple[Any, tuple[Any, ...]]] = [(value, ())]
    while stack:
        top, path = stack.pop()
        entries: Iterable[tuple[Any, Any]] | None = None
        if isinstance(top, dict):
            fault = _key_fault(top)
            entries = top.items()
        elif isinstance(top, arrays):
            fault = ""
            entries = enumerate(top)
        else:
            fault = _fault(top)
        if len(path) >= max_depth and entries is not None:
            fault = f"is nested too deep: at most {max_depth} lists and dicts in each other"
        if fault:
            raise ValueError(f"{_spelled(place, path)} {fault}")
        for key, entry in entries or ():
            kind = type(entry)
            if kind not in _ALWAYS_JSON and not (kind in _NUMBERS and -_BOUND < entry < _BOUND):
                stack.append((entry, (*path, key)))


def _key_fault(value: dict[Any, Any]) -> str:
    if _STR.issuperset(map(type, value)):
        return ""
    for key in value:
        if not isinstance(key, str):
            return f"has the key {reprlib.repr(key)}: use strings"
    return ""


def _fault(value: Any) -> str:
    """What is wrong with something that is neither list nor dict; "" for nothing."""
    if value is None or isinstance(value, str):
        return ""
    if not isinstance(value, int | float):
        return f"is of type {type(value).__name__}: JSON is str, int, float, bool, None, list and dict"
    if -_BOUND < value < _BOUND:
        return ""
    if isinstance(value, float):
        return f"is {value}: use a finite number"
    return "has more than 4,300 digits: use a str"


def _spelled(place: str, path: tuple[Any, ...]) -> str:
    more = "…" if len(path) > 8 else ""
    return place + "".join(f"[{reprlib.repr(key)}]" for key in path[:8]) + more


def dumps(value: Any, *, indented: bool = False) -> bytes:
    """Encode ``value`` as compact JSON, keys in their order; the same value gives the same bytes.

    ``indented``: with a line for each value, for people.

    A tuple loads as a list, and two lone surrogates side by side as the character that they are together. Raises
    ValueError for anything else that would not load equal, see ``check_json``.
    """
    _check(value, "value", _DUMPED_DEPTH, (list, tuple))
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 if indented else None)
    except TypeError:
        # orjson refuses lone surrogates, integers over 64 bits and some subclasses; the standard library escapes them
        text = json.dumps(value, indent=2) if indented else json.dumps(value, separators=(",", ":"))
        return text.encode("ascii")


def dumps_unchecked(value: Any) -> bytes:
    """Encode ``value`` like ``dumps``, for callers that load the outcome and compare it with the input.

    What ``dumps`` refuses may come out as something else. Raises ValueError for what cannot be encoded.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return dumps(value)


def dumps_text(value: Any) -> str:
    """Encode ``value`` as compact JSON text in which every character but the necessary stands as it is.

    Raises ValueError like ``dumps``.
    """
    _check(value, "value", _DUMPED_DEPTH, (list, tuple))
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def dumps_exact(value: Any) -> bytes:
    """Encode ``value`` as compact JSON in which lone surrogates stand as they are (UTF-8, passed through).

    Not every reader of JSON takes that; ``loads`` does, and gives two of them side by side back as two. Raises
    ValueError like ``dumps``.
    """
    return dumps_text(value).encode("utf-8", "surrogatepass")


def loads(data: bytes | bytearray | memoryview | str) -> Any:
    """Decode JSON. Raises ValueError when ``data`` is not JSON."""
    value, depth = _loads_fast(data)
    return value if depth is not None else _loads_slowly(data)


def loads_record(data: bytes, place: str) -> Any:
    """Decode a record, which may have to be written again.

    Raises ValueError when ``data`` is not JSON, or not what ``check_json`` takes, to ``MAX_RECORD_DEPTH``.
    """
    value, depth = _loads_fast(data)
    if depth is not None and depth <= MAX_RECORD_DEPTH:  # of what orjson reads exactly, nothing else is to be checked
        return value
    if depth is None:
        value = _loads_slowly(data)
    check_json(value, place, max_depth=MAX_RECORD_DEPTH)
    return value


def _loads_fast(data: bytes | bytearray | memoryview | str) -> tuple[Any, int | None]:
    """What orjson reads, and how deep it is nested; the depth is None where that may not be what ``data`` says."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None, None
    return value, _depth_of(value)


def _loads_slowly(data: bytes | bytearray | memoryview | str) -> Any:
    try:
        return json.loads(data if isinstance(data, str) else bytes(data))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _depth_of(value: Any) -> int | None:
    """How many lists and dicts stand in each other; None where a float may be an integer over 64 bits."""
    level: list[Iterable[Any]] = [(value,)]
    depth = -1
    while level:
        below: list[Iterable[Any]] = []
        for entries in level:
            for entry in entries:
                kind = type(entry)
                if kind is dict:
                    below.append(entry.values())
                elif kind is list:
                    below.append(entry)
                elif kind is float and not -_FIRST_INEXACT < entry < _FIRST_INEXACT:
                    return None
        level = below
        depth += 1
    return depth


_SURROGATE = re.compile("[\ud800-\udfff]")


def stringify(value: object) -> str:
    """JSON as JavaScript's ``JSON.stringify`` writes it: compact, characters as they are, numbers in its form.

    Integers keep all their digits, and keys their order. Raises TypeError, ValueError or RecursionError for what JSON
    cannot hold.
    """
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a key is not text")
        return "{" + ",".join(f"{_quoted(key)}:{stringify(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(stringify, value)) + "]"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        return _js_number(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))


def _js_number(value: float) -> str:
    """ECMAScript's Number::toString, from the same shortest digits that Python finds."""
    if not math.isfinite(value):
        return "null"
    sign, raw_digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    digits = "".join(map(str, raw_digits))
    assert isinstance(exponent, int)  # finite
    point = len(digits) + exponent
    minus = "-" if sign and value else ""
    if len(digits) <= point <= 21:
        return minus + digits + "0" * exponent
    if 0 < point <= 21:
        return f"{minus}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0" if not value else f"{minus}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{minus}{digits[0]}{fraction}e{point - 1:+d}"
