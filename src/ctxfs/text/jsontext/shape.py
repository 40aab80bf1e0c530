"""The shape of a JSON text: keys, types and lengths, without its bulk. Pure and linear.

Of a text over ``PREFIX_CHARS`` only the prefix is parsed: what is open at its end is closed, and whatever was cut says
"over N" instead of N. So no single parser call holds the interpreter for long.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ctxfs.text.jsontext import codec as json_codec
from ctxfs.text.jsontext.tokens import STRING, brackets

PREFIX_CHARS = 131_072
_MERGED_ELEMENTS = 20
_KINDS = 4
"""The most kinds of elements that are named."""
_NUMBER_CHARS = 24
"""A longer number is only said to be one."""
_LAST_COMMA = re.compile(rf'(?:[^",]*+(?:(,)|{STRING}))*', re.DOTALL)
_CLOSER = {"{": "}", "[": "]"}
_PLAIN_KEY = re.compile(r"[A-Za-z_$][\w$-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """How much of a shape is shown: levels of nesting, keys of an object, characters of a sample value."""

    depth: int
    keys: int
    value_chars: int


@dataclass(frozen=True, slots=True)
class JsonPrefix:
    """A parsed text. ``open_levels``: so many values, from the root along the last elements, were cut."""

    value: Any
    open_levels: int = 0


def parse_prefix(text: str, prefix_chars: int = PREFIX_CHARS) -> JsonPrefix | None:
    """The JSON object or array that ``text`` is or, as far as its prefix tells, begins with; None if it is neither."""
    if text.lstrip(" \t\r\n")[:1] not in ("{", "["):
        return None
    if len(text) <= prefix_chars:
        return _loads(text, 0)
    for candidate, open_levels in _closed(text[:prefix_chars]):
        if (parsed := _loads(candidate, open_levels)) is not None:
            return parsed
    return None


def _loads(text: str, open_levels: int) -> JsonPrefix | None:
    try:
        value = json_codec.loads(text)
    except (ValueError, RecursionError):
        return None
    return JsonPrefix(value, open_levels) if isinstance(value, dict | list) else None


def _closed(prefix: str) -> Iterator[tuple[str, int]]:
    """Ways to make ``prefix`` whole JSON: end its unfinished string, else forget what follows its last comma."""
    match = _LAST_COMMA.match(prefix)
    assert match is not None  # it matches nothing too
    comma = match.start(1)
    unfinished = prefix.find('"', match.end())
    closers = _closers(prefix if unfinished < 0 else prefix[:unfinished])
    if closers is None:
        return
    if unfinished >= 0:
        whole = re.sub(r"\\(?:u[0-9a-fA-F]{0,3})?\Z", "", prefix)
        yield f'{whole}…"{closers}', len(closers) + 1
    if comma >= 0:
        closers = _closers(prefix[:comma]) or ""
        yield prefix[:comma] + closers, len(closers)


def _closers(text: str) -> str | None:
    """The brackets that close what is open at the end of ``text``; None if some in it close something else."""
    closers: list[str] = []
    for bracket in brackets(text):
        if bracket in _CLOSER:
            closers.append(_CLOSER[bracket])
        elif not closers or closers.pop() != bracket:
            return None
    return "".join(reversed(closers))


def shape(prefix: JsonPrefix, detail: Detail) -> str:
    """The shape in one line, such as ``{total: 1200, rows: [1200 × {id: int, name: str}]}``."""
    return _shape(prefix.value, detail, detail.depth, prefix.open_levels)


def _shape(value: Any, detail: Detail, depth: int, open_levels: int) -> str:
    if isinstance(value, Mapping):
        return _object(value, detail, depth, open_levels)
    if isinstance(value, list):
        return _array(value, detail, depth, open_levels)
    return _scalar(value, detail, cut=open_levels > 0)


def _scalar(value: Any, detail: Detail, *, cut: bool) -> str:
    if isinstance(value, str):
        if len(value) <= detail.value_chars:
            return json.dumps(value, ensure_ascii=False)
        return f"str({_length(value, cut=cut)})"
    is_shown = value is None or isinstance(value, bool) or detail.value_chars > 0
    if is_shown and len(repr(value)) <= _NUMBER_CHARS:
        return json.dumps(value)
    return type(value).__name__


def _length(value: Sized, *, cut: bool) -> str:
    return f"over {len(value):,}" if cut else f"{len(value):,}"


def _object(value: Mapping[str, Any], detail: Detail, depth: int, open_levels: int) -> str:
    if not value:
        return "{}"
    count = _length(value, cut=open_levels > 0)
    if depth <= 0:
        return f"{{{count} keys}}"
    shown: list[str] = []
    last = len(value) - 1
    for place, (key, inner) in enumerate(islice(value.items(), detail.keys)):
        open_inside = 0
        if place == last and open_levels:  # no other one can be cut
            open_inside = open_levels - 1
        shown.append(f"{_key(key)}: {_shape(inner, detail, depth - 1, open_inside)}")
    if len(value) > detail.keys or open_levels:
        shown.append(f"… {count} keys")
    return "{" + ", ".join(shown) + "}"


def _array(values: list[Any], detail: Detail, depth: int, open_levels: int) -> str:
    if not values:
        return "[]"
    count = _length(values, cut=open_levels > 0)
    if depth <= 0:
        return f"[{count} elements]"
    return f"[{count} × {_element(values, detail, depth)}]"


def _element(values: list[Any], detail: Detail, depth: int) -> str:
    """What the elements of an array have in common, judged by its first ones."""
    first = values[:_MERGED_ELEMENTS]
    types_only = Detail(depth=detail.depth, keys=detail.keys, value_chars=0)
    if all(isinstance(v, dict) for v in first):
        merged: dict[str, Any] = {}
        for element in first:
            for key, inner in element.items():
                if merged.get(key) is None:
                    merged[key] = inner
        return _object(merged, types_only, depth - 1, 0) if depth > 1 else f"{{{len(merged):,} keys}}"
    kinds = list(dict.fromkeys(_kind(v, types_only, depth) for v in first))
    if len(kinds) > _KINDS:
        kinds[_KINDS:] = ["…"]
    return " | ".join(kinds)


def _kind(value: Any, detail: Detail, depth: int) -> str:
    """The type alone of a scalar; the shape of anything else."""
    if isinstance(value, dict | list):
        return _shape(value, detail, depth - 1, 0)
    return "null" if value is None else type(value).__name__


def _key(key: str) -> str:
    if _PLAIN_KEY.fullmatch(key):
        return key
    return json.dumps(key if len(key) <= 48 else key[:47] + "…", ensure_ascii=False)
