"""Content blocks as JSON in pieces of bounded size, so that no single call holds the interpreter for long. Pure."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from ctxfs.text.jsontext import codec as json_codec
from ctxfs.text.steps import checkpoint

BLOCK = 262_144

_PLAIN = frozenset({int, float, bool, type(None)})


def is_longer(value: Any, limit_chars: int) -> bool:
    """Estimate whether the JSON of ``value`` is longer than the limit; stops reading as soon as it is."""
    if isinstance(value, str):
        return len(value) > limit_chars
    left = limit_chars
    stack: list[Iterator[Any]] = [iter((value,))]
    while stack and left >= 0:
        for top in stack[-1]:
            left -= 4
            kind = type(top)
            if kind is str:
                left -= len(top)
            elif kind in _PLAIN:
                pass
            elif kind is dict or isinstance(top, Mapping):
                keys = map(str, islice(top, max(0, left)))  # keys that are not strings are refused elsewhere
                left -= sum(map(len, keys))
                stack.append(iter(top.values()))
                break
            elif isinstance(top, list | tuple):
                stack.append(iter(top))
                break
            elif isinstance(top, str):
                left -= len(top)
            if left < 0:
                break
        else:
            stack.pop()
    return left < 0


def has_surrogates(value: Any) -> bool:
    """Tell whether a lone surrogate is in a text, or in any text of JSON data."""
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            if not top.isascii() and _has_surrogates(top):
                return True
        elif type(top) in _PLAIN:
            continue
        elif type(top) is dict or isinstance(top, Mapping):
            if not all(map(str.isascii, map(str, top))):
                stack.extend(top)
            stack.extend(top.values())
        elif isinstance(top, (list, tuple)):
            stack.extend(top)
    return False


def _has_surrogates(text: str) -> bool:
    try:
        for start in range(0, len(text), BLOCK):
            text[start : start + BLOCK].encode()
    except UnicodeEncodeError:
        return True
    return False


def json_pieces(blocks: tuple[Mapping[str, Any], ...]) -> Iterator[bytes]:
    """Yield the JSON of content blocks; lone surrogates are encoded as they are (``surrogatepass``)."""
    dump = json_codec.dumps_exact if has_surrogates(blocks) else json_codec.dumps
    return _pieces(list(blocks), dump)


def _pieces(value: Any, dump: Any) -> Iterator[bytes]:
    checkpoint()
    if not is_longer(value, BLOCK):
        yield dump(value)
    elif isinstance(value, str):
        yield b'"'
        for start in range(0, len(value), BLOCK):
            yield dump(value[start : start + BLOCK])[1:-1]
        yield b'"'
    elif isinstance(value, Mapping):
        for number, (key, entry) in enumerate(value.items()):
            yield (b"," if number else b"{") + dump(key) + b":"
            yield from _pieces(entry, dump)
        yield b"}"
    else:  # a list: numbers, booleans and null are never this long
        for number, entry in enumerate(value):
            yield b"," if number else b"["
            yield from _pieces(entry, dump)
        yield b"]"
