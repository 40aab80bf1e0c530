"""JSON in and out, exact: what was dumped loads equal, lone surrogates and integers of any size included."""

import json
from typing import Any

import orjson

__all__ = ["dumps", "dumps_text", "loads"]

_FIRST_INEXACT = 2.0**63


def dumps(value: Any) -> bytes:
    """Encode ``value`` as compact JSON, keys in their order; the same value gives the same bytes.

    Raises TypeError or ValueError for what JSON cannot hold.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        # orjson refuses lone surrogates, integers over 64 bits and deep nesting; the standard library escapes them
        return _dumps_slowly(value)


def _dumps_slowly(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")
    except RecursionError:
        raise ValueError("the value is nested too deep to be JSON") from None


def dumps_text(value: Any) -> str:
    """Encode ``value`` as compact JSON text in which every character but the necessary stands as it is."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def loads(data: bytes | bytearray | memoryview | str) -> Any:
    """Decode JSON. Raises ValueError when ``data`` is not JSON."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return _loads_slowly(data)
    # orjson reads integers over 64 bits as floats
    return _loads_slowly(data) if _has_huge_float(value) else value


def _loads_slowly(data: bytes | bytearray | memoryview | str) -> Any:
    try:
        return json.loads(data if isinstance(data, str) else bytes(data))
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None


def _has_huge_float(value: Any) -> bool:
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, dict):
            stack.extend(top.values())
        elif isinstance(top, list):
            stack.extend(top)
        elif isinstance(top, float) and not -_FIRST_INEXACT < top < _FIRST_INEXACT:
            return True
    return False
