"""JSON as JavaScript writes it. Pure."""

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal

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
