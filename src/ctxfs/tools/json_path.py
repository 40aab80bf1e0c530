"""Addressing a part of a JSON text by path, without parsing the rest. Synchronous, linear, in many short steps.

The syntax: ``$``, then any of ``.key``, ``["any key"]``, ``[3]``, ``[-1]``, ``[10:20]``, ``[*]`` and ``.*``.
"""

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from ctxfs import json_codec
from ctxfs.context.json_elements import string_end, string_pieces
from ctxfs.errors import InvalidToolArguments

__all__ = ["PathStep", "parse_path", "select_lines"]

MAX_PATH_CHARS = 1_000
MAX_STEPS = 64
MAX_RESULTS = 100_000
_SPACE = re.compile(r"[ \t\r\n]*+")
_SCALAR = re.compile(r"true|false|null|-?\d[\d.eE+-]*+")
_TO_BRACKET = re.compile(
    r'[^\[\]{}"]*+(?:"[^"\\]{0,512}+(?:\\.[^"\\]{0,512}+){0,16}+"[^\[\]{}"]*+){0,64}+([\[\]{}])?', re.DOTALL
)  # over up to 64 strings at once that are not long, so that no single step is long
_STEP = re.compile(
    r"\.(?P<key>[\w-]+|\*)|\[[ ]*(?:(?P<quoted>\"(?:[^\"\\]|\\.)*+\"|'[^'\\]*')|(?P<all>\*)"
    r"|(?P<index>-?\d{1,12})|(?P<start>(?:-?\d{1,12})?)[ ]*:[ ]*(?P<stop>(?:-?\d{1,12})?))[ ]*\]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """One step into a value: by ``key``, or the elements ``start`` to ``stop``. ``single``: one element, not a list."""

    key: str | None = None
    start: int | None = None
    stop: int | None = None
    single: bool = False


_Span = tuple[int, int]  # where a value starts and ends


class _Spans:
    """Very many spans, kept as plain numbers: objects would make the garbage collector stop every thread for long."""

    def __init__(self, spans: Iterable[_Span]) -> None:
        self._numbers = array("q", chain.from_iterable(spans))

    def __len__(self) -> int:
        return len(self._numbers) // 2

    def __iter__(self) -> Iterator[_Span]:
        numbers = iter(self._numbers)
        return zip(numbers, numbers, strict=True)

    def sliced(self, start: int | None, stop: int | None) -> Iterator[_Span]:
        picked = range(len(self))[start:stop]
        return islice(self, picked.start, picked.stop)


def parse_path(path: str) -> tuple[PathStep, ...]:
    """The steps of ``path``.

    Raises:
        InvalidToolArguments: no valid path; the message says where it breaks off.
    """
    if len(path) > MAX_PATH_CHARS:
        raise InvalidToolArguments(f"the path has {len(path):,} characters; at most {MAX_PATH_CHARS:,}")
    if not path.startswith("$"):
        raise InvalidToolArguments(f"{path!r} is no path: it starts with $, such as $.rows[10:20].name")
    steps: list[PathStep] = []
    position = 1
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None or len(steps) >= MAX_STEPS:
            raise InvalidToolArguments(
                f"{path!r} is no path from character {position} on ({path[position : position + 12]!r}): use .key, "
                '["any key"], [3], [10:20] or [*]'
            )
        steps.append(_step(match))
        position = match.end()
    return tuple(steps)


def _step(match: re.Match[str]) -> PathStep:
    if match["all"] or match["key"] == "*":
        return PathStep()
    if match["key"] is not None:
        return PathStep(key=match["key"])
    if quoted := match["quoted"]:
        return PathStep(key=quoted[1:-1] if quoted[0] == "'" else _unquoted(quoted))
    if match["index"] is not None:
        index = int(match["index"])
        return PathStep(start=index, stop=index + 1 if index != -1 else None, single=True)
    start, stop = match["start"], match["stop"]
    return PathStep(start=int(start) if start else None, stop=int(stop) if stop else None)


def _unquoted(quoted: str) -> str:
    try:
        return str(json_codec.loads(quoted))
    except ValueError as error:
        raise InvalidToolArguments(f"{quoted} in the path is no JSON string") from error


def select_lines(text: str, path: str) -> Iterator[str]:
    r"""What ``path`` means in the JSON ``text``, as lines (each with its "\n"), in pieces that end anywhere.

    A string gives its own lines, an array or several values one element a line, an object one key a line.

    Raises:
        InvalidToolArguments: no valid path, nothing there (the message says what is), or no JSON.
    """
    steps = parse_path(path)
    whole = _value(text, 0)
    if _skip_space(text, whole[1]) < len(text):
        raise _no_json(whole[1])
    spans = _Spans([whole])
    many = False
    for number, step in enumerate(steps):
        many = many or not (step.single or step.key is not None)
        found = (child for span in spans for child in _children_of(text, span, step, strict=not many, number=number))
        spans = _Spans(islice(found, MAX_RESULTS + 1))
        if len(spans) > MAX_RESULTS:
            raise InvalidToolArguments(f"{path!r} means over {MAX_RESULTS:,} values: narrow it, such as [0:100]")
    if many:
        return (f"{_one_line(text, span)}\n" for span in spans)
    return _lines_of(text, next(iter(spans)))


def _lines_of(text: str, span: _Span) -> Iterator[str]:
    first = text[span[0]]
    if first == '"':
        yield from _string_lines(text, span)
    elif first == "[":
        for _, child in _children(text, span):
            yield f"{_one_line(text, child)}\n"
    elif first == "{":
        for key, child in _children(text, span):
            yield f"{json_codec.dumps(key).decode()}: {_one_line(text, child)}\n"
    else:
        yield text[span[0] : span[1]]


def _string_lines(text: str, span: _Span) -> Iterator[str]:
    try:
        yield from string_pieces(text, span[0])
    except ValueError as error:
        raise _no_json(span[0]) from error


def _one_line(text: str, span: _Span) -> str:
    return re.sub(r"\r?\n[ \t\r]*+", " ", text[span[0] : span[1]])


def _children_of(text: str, span: _Span, step: PathStep, *, strict: bool, number: int) -> Iterable[_Span]:
    """The children that the step means; when not ``strict``, a value that has none is passed over."""
    is_object = text[span[0]] == "{"
    is_array = text[span[0]] == "["
    found: Iterable[_Span] = ()
    if step.key is not None and is_object:
        # the last of equal keys counts, as in every JSON parser
        found = [child for key, child in _children(text, span) if key == step.key][-1:]
    elif step.key is None and (is_array or (is_object and not step.single)):
        children = (child for _, child in _children(text, span))
        found = _sliced(children, step.start, step.stop)
    if not strict or not (step.key is not None or step.single):
        return found
    if not (single := list(found)):
        raise InvalidToolArguments(f"there is no {_name(step)} at step {number + 1}: {_describe(text, span)}")
    return single


def _sliced(children: Iterator[_Span], start: int | None, stop: int | None) -> Iterator[_Span]:
    if (start or 0) >= 0 and (stop is None or stop >= 0):
        return islice(children, start or 0, stop)
    return _Spans(children).sliced(start, stop)


def _name(step: PathStep) -> str:
    return f"key {step.key!r}" if step.key is not None else f"element {step.start}"


def _describe(text: str, span: _Span) -> str:
    """What stands there instead, for whoever asked for something else."""
    if text[span[0]] == "{":
        keys = [str(key) for key, _ in islice(_children(text, span), 21)]
        listed = ", ".join(key[:48] for key in keys[:20]) + (", …" if len(keys) > 20 else "")
        return f"the keys are {listed}" if keys else "the object is empty"
    if text[span[0]] == "[":
        return f"it is an array of {sum(1 for _ in _children(text, span)):,}"
    return "it is neither an object nor an array"


def _children(text: str, span: _Span) -> Iterator[tuple[str | int, _Span]]:
    """The keys or indices of a container, each with its value's place."""
    is_object = text[span[0]] == "{"
    position = _skip_space(text, span[0] + 1)
    index = 0
    while position < span[1] - 1:
        key: str | int = index
        if is_object:
            key_end = _string_end(text, position)
            raw = text[position + 1 : key_end - 1]
            key = raw if "\\" not in raw else str(_loads(text, (position, key_end)))
            position = _skip_space(text, key_end)
            if text[position : position + 1] != ":":
                raise _no_json(position)
            position += 1
        child = _value(text, position)
        yield key, child
        index += 1
        position = _skip_space(text, child[1])
        if text[position] not in ",]}":
            raise _no_json(position)
        position = _skip_space(text, position + 1)


def _value(text: str, position: int) -> _Span:
    """The place of the value that starts at ``position``, perhaps after white space."""
    start = _skip_space(text, position)
    first = text[start : start + 1]
    if first in ("[", "{"):
        return start, _container_end(text, start)
    if first == '"':
        return start, _string_end(text, start)
    match = _SCALAR.match(text, start)
    if match is None:
        raise _no_json(start)
    return start, match.end()


def _container_end(text: str, start: int) -> int:
    depth, position = 0, start
    while position < len(text):
        match = _TO_BRACKET.match(text, position)
        assert match is not None  # it matches nothing too
        position = match.end()
        if bracket := match[1]:
            depth += 1 if bracket in "[{" else -1
            if not depth:
                return position
        elif text[position : position + 1] == '"':
            position = _string_end(text, position)
    raise _no_json(position)


def _string_end(text: str, start: int) -> int:
    if text[start : start + 1] != '"':
        raise _no_json(start)
    try:
        return string_end(text, start)
    except ValueError as error:
        raise _no_json(start) from error


def _skip_space(text: str, position: int) -> int:
    if text[position : position + 1] not in " \t\r\n":  # by far the most frequent
        return position
    match = _SPACE.match(text, position)
    return match.end() if match is not None else position


def _loads(text: str, span: _Span) -> object:
    try:
        return json_codec.loads(text[span[0] : span[1]])
    except ValueError as error:
        raise _no_json(span[0]) from error


def _no_json(position: int) -> InvalidToolArguments:
    return InvalidToolArguments(f"the content is no JSON at character {position:,}: read it by lines instead")
