"""Addressing a part of a JSON text by path, without building the rest. Synchronous.

The syntax: ``$``, then any of ``.key``, ``["any key"]``, ``[3]``, ``[-1]``, ``[10:20]``, ``[*]`` and ``.*``.

The parser opens one level at each step of the path, and gives what is in it as the text that it is.
"""

import re
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Any

import msgspec

from ctxfs.errors import InvalidToolArguments, WorkLimitReached
from ctxfs.errors.base import quoted
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.text.jsontext.tokens import string_pieces
from ctxfs.text.patterns import possessive
from ctxfs.text.steps import CpuBudget, checkpoint

MAX_PATH_CHARS = 1_000
MAX_STEPS = 64
MAX_RESULTS = 100_000
MAX_CPU_S = 0.9  # with reading 12 MiB, a second
_VALUES_A_STEP = 1_024
# The parser lets no other thread run meanwhile. Below these numbers of commas it makes the entries of a container in
# some 100 ms; a container with more of them is opened in parts.
_COMMAS_OF_ARRAY = 2_000_000
_COMMAS_OF_OBJECT = 250_000
_PART_BYTES = 262_144
_CUTS_TRIED = 8
_KEYS_SHOWN = 20
_STEP = re.compile(
    r"\.(?P<key>[\w-]+|\*)|\[[ ]*(?:(?P<quoted>\"" + possessive(r"[^\"\\]|\\.", "*") + r"\"|'[^'\\]*')|(?P<all>\*)"
    r"|(?P<index>-?\d{1,12})|(?P<start>(?:-?\d{1,12})?)[ ]*:[ ]*(?P<stop>(?:-?\d{1,12})?))[ ]*\]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """One step into a value: by ``key``, or the elements ``start`` to ``stop``. ``single``: one element, not a list."""

    key: str | None = None
    start: int | None = None
    stop: int | None = None
    single: bool = False


def parse_path(path: str) -> tuple[PathStep, ...]:
    """The steps of ``path``.

    Raises:
        InvalidToolArguments: no valid path; the message says where it breaks off.
    """
    if len(path) > MAX_PATH_CHARS:
        raise InvalidToolArguments(f"the path has {len(path):,} characters; at most {MAX_PATH_CHARS:,}")
    if not path.startswith("$"):
        raise InvalidToolArguments(f"{quoted(path)} is not a path: a path starts with $, such as $.rows[10:20].name")
    steps: list[PathStep] = []
    position = 1
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None or len(steps) >= MAX_STEPS:
            raise InvalidToolArguments(
                f"{quoted(path)} cannot be read as a path from character {position} on "
                f"({path[position : position + 12]!r}): "
                'use .key, ["any key"], [3], [10:20] or [*]'
            )
        steps.append(_step(match))
        position = match.end()
    return tuple(steps)


def _step(match: re.Match[str]) -> PathStep:
    if match["all"] or match["key"] == "*":
        return PathStep()
    if match["key"] is not None:
        return PathStep(key=match["key"])
    if in_quotes := match["quoted"]:
        return PathStep(key=in_quotes[1:-1] if in_quotes[0] == "'" else _unquoted(in_quotes))
    if match["index"] is not None:
        index = int(match["index"])
        after = None if index == -1 else index + 1  # what follows the last element is the end
        return PathStep(start=index, stop=after, single=True)
    start = match["start"]
    stop = match["stop"]
    return PathStep(start=int(start) if start else None, stop=int(stop) if stop else None)


def _unquoted(string: str) -> str:
    try:
        return str(json_codec.loads(string))
    except ValueError as error:
        raise InvalidToolArguments(f"{quoted(string)} in the path is not a JSON string") from error


def select_lines(text: str, path: str, *, budget: CpuBudget | None = None) -> Iterator[str]:
    r"""What ``path`` means in the JSON ``text``, as lines (each with its "\n"), in pieces that end anywhere.

    A string gives its own lines, an array or several values one element a line, an object one key a line. The last of
    equal keys counts.

    Args:
        text: the JSON.
        path: see above.
        budget: the CPU time for it; None means ``MAX_CPU_S``.

    Raises:
        InvalidToolArguments: no valid path, nothing there (the message says what is), no JSON, or one that is nested
            too deeply for the parser (some hundred levels).
        WorkLimitReached: the budget is used up.
    """
    steps = parse_path(path)
    try:
        document = _Document(text, path, budget or CpuBudget(MAX_CPU_S))
        lines = document.select(steps)
    except RecursionError:
        raise _too_deep() from None
    return _not_too_deep(lines)


def _is_many(step: PathStep) -> bool:
    return step.key is None and not step.single


class _Document:
    """A JSON text, and what a path means in it; ``budget`` bounds the CPU time of both."""

    def __init__(self, text: str, path: str, budget: CpuBudget) -> None:
        self._path = path
        self._budget = budget
        self._step()
        self._has_marks = False
        self._data = self._checked(text)

    def select(self, steps: tuple[PathStep, ...]) -> Iterator[str]:
        """Return the lines of what ``steps`` mean."""
        value = self._data
        for number, step in enumerate(steps):
            if _is_many(step):
                return self._one_a_line(self._several(value, steps[number:]))
            found = next(self._inside(value, step), None)
            if found is None:
                name = f"key {step.key!r}" if step.key is not None else f"element {step.start}"
                raise InvalidToolArguments(f"there is no {name} at step {number + 1}: {self._described(value)}")
            value = found
        return self._lines_of(value)

    def _step(self) -> None:
        """Called between pieces of work; it may raise."""
        checkpoint()
        if self._budget.tick() <= 0:
            raise WorkLimitReached(
                f"{quoted(self._path)} takes more than the {self._budget.limit_s:g} s of CPU that one call may take: "
                "use a path to a smaller part, such as [0:100] for [*], or read it by lines"
            )

    def _checked(self, text: str) -> bytes:
        """The text of the one value that ``text`` is, as the parser takes it."""
        try:
            return bytes(_ANY.decode(text.encode()))
        except UnicodeEncodeError:
            pass
        except msgspec.DecodeError as error:
            if "\\ud" not in text and "\\uD" not in text:
                raise self._no_json(text.encode(), error) from error
        self._has_marks = True
        data = "".join(self._marked_parts(text)).encode()
        try:
            return bytes(_ANY.decode(data))
        except msgspec.DecodeError as error:
            raise self._no_json(data, error) from error

    def _marked_parts(self, text: str) -> Iterator[str]:
        start = 0
        while start < len(text):
            self._step()
            end = text.find(",", start + _PART_BYTES)  # no escape has one in it
            if end < 0:
                end = len(text)
            yield _TO_MARK.sub(_marked, text[start:end])
            start = end

    def _no_json(self, data: bytes, error: msgspec.DecodeError) -> InvalidToolArguments:
        at_byte = re.search(r"byte (\d+)", str(error))  # it has none if the text ends too early
        before = data if at_byte is None else data[: int(at_byte[1])]
        position = len(self._text(before))
        return InvalidToolArguments(f"the content is not JSON at character {position:,}: read it by lines instead")

    def _text(self, value: bytes) -> str:
        """The text of a value, as it was given."""
        text = value.decode(errors="ignore")
        if not self._has_marks:
            return text
        return _unmarked(re.sub(f"{_MARK}u(....)", r"\\u\1", text))

    def _several(self, value: bytes, steps: tuple[PathStep, ...]) -> list[bytes]:
        """All that ``steps`` mean in ``value``, which may be nothing."""
        found: Iterator[bytes] = iter((value,))
        for step in steps:
            found = self._inside_each(found, step)
        values = list(islice(found, MAX_RESULTS + 1))
        if len(values) > MAX_RESULTS:
            raise InvalidToolArguments(
                f"{quoted(self._path)} means over {MAX_RESULTS:,} values: narrow it, such as [0:100]"
            )
        return values

    def _inside_each(self, values: Iterator[bytes], step: PathStep) -> Iterator[bytes]:
        for number, value in enumerate(values):
            if number % _VALUES_A_STEP == 0:
                self._step()
            yield from self._inside(value, step)

    def _inside(self, value: bytes, step: PathStep) -> Iterator[bytes]:
        """What one step means in ``value``."""
        opening = value[:1]
        if step.key is not None:
            if opening == b"{" and (found := self._value_of(value, step.key)) is not None:
                yield found
        elif opening == b"[" or (opening == b"{" and not step.single):
            yield from self._sliced(value, step)

    def _value_of(self, value: bytes, key: str) -> bytes | None:
        if _NOT_IN_FIELD.search(key) is not None:
            entries = self._entries(value)
            return bytes(entries[key]) if key in entries else None
        if len(value) > _PART_BYTES:
            self._step()
        return bytes(_field(key).decode(value).value) or None

    def _sliced(self, value: bytes, step: PathStep) -> Iterator[bytes]:
        """The elements of a container that a step means; they are decoded twice if it counts from the end."""
        start = step.start or 0
        stop = step.stop
        if start < 0 or (stop is not None and stop < 0):
            count = sum(map(len, self._elements(value)))
            if step.single and start < -count:
                return
            start, stop, _ = slice(step.start, step.stop).indices(count)
        yield from map(bytes, islice(chain.from_iterable(self._elements(value)), start, stop))

    def _elements(self, value: bytes) -> Iterator[Collection[Any]]:
        """The elements of an array, or the values of an object, some at a time."""
        if value[:1] == b"{":
            yield self._entries(value).values()
            return
        for part in self._parts(value, _COMMAS_OF_ARRAY):
            yield _ARRAY.decode(part)

    def _entries(self, value: bytes, enough: int = sys.maxsize) -> dict[str, Any]:
        """The values of an object by key; of a large one only ``enough`` or a few more."""
        entries: dict[str, Any] = {}
        for part in self._parts(value, _COMMAS_OF_OBJECT):
            entries |= _OBJECT.decode(part)
            if len(entries) >= enough:
                break
        if self._has_marks:
            return {_unmarked(key): inner for key, inner in entries.items()}
        return entries

    def _parts(self, value: bytes, most_commas: int) -> Iterator[bytes]:
        """A container; one with more commas than that in parts, which are such containers with some of its entries."""
        if len(value) > _PART_BYTES:
            self._step()
        if value.count(b",") <= most_commas:
            yield value
            return
        start = 1
        while start < len(value):
            end = self._cut(value, start)
            yield value[:1] + value[start:end] + value[-1:]
            start = end + 1

    def _cut(self, value: bytes, start: int) -> int:
        """Where a part that begins at ``start`` ends: at a comma of the container itself, else at its end.

        A comma within an entry leaves that entry open: then the part is no container.
        """
        size = _PART_BYTES
        while start + size < len(value) - 1:
            comma = start + size
            for _ in range(_CUTS_TRIED):
                self._step()
                comma = value.rfind(b",", start, comma)
                if comma < 0:
                    break
                if _is_whole(value[:1] + value[start:comma] + value[-1:]):
                    return comma
            size *= 4
        return len(value) - 1

    def _described(self, value: bytes) -> str:
        """What is there instead, for the error about a step that does not fit."""
        opening = value[:1]
        if opening == b"{":
            entries = self._entries(value, _KEYS_SHOWN + 1)
            if not entries:
                return "the object is empty"
            listed = [key[:48] for key in islice(entries, _KEYS_SHOWN)]
            if len(entries) > _KEYS_SHOWN:
                listed.append("…")
            return f"the keys are {', '.join(listed)}"
        if opening == b"[":
            return f"it is an array of {sum(map(len, self._elements(value))):,}"
        return "it is neither an object nor an array"

    def _lines_of(self, value: bytes) -> Iterator[str]:
        opening = value[:1]
        if opening == b'"':
            yield from string_pieces(self._text(value), 0)
        elif opening == b"[":
            yield from self._one_a_line(map(bytes, chain.from_iterable(self._elements(value))))
        elif opening == b"{":
            for number, (key, inner) in enumerate(self._entries(value).items()):
                if number % _VALUES_A_STEP == 0:
                    self._step()
                yield f"{json_codec.dumps(key).decode()}: {self._one_line(bytes(inner))}\n"
        else:
            yield self._text(value)

    def _one_a_line(self, values: Iterable[bytes]) -> Iterator[str]:
        for number, value in enumerate(values):
            if number % _VALUES_A_STEP == 0:
                self._step()
            yield f"{self._one_line(value)}\n"

    def _one_line(self, value: bytes) -> str:
        text = self._text(value)
        return re.sub(r"\r?\n[ \t\r]*+", " ", text) if "\n" in text else text


_ANY = msgspec.json.Decoder(msgspec.Raw)
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
# Lone surrogates are no UTF-8, and the parser refuses them even when they are escaped. In a text that has some, each
# stands as this character and five more; so does the character itself.
_MARK = "\ue000"
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_OTHERS = possessive(r"\\(?!u[dDeE]).[^\\\ud800-\udfff\ue000]*+", "+")  # other escapes, with what stands between them
_TO_MARK = re.compile(
    rf"{_PAIR}|{_OTHERS}|\\u(?P<escaped>[dD][89a-fA-F][0-9a-fA-F]{{2}}|[eE]000)|(?P<raw>[\ud800-\udfff\ue000])",
    re.DOTALL,
)
_NOT_IN_FIELD = re.compile(r'[\x00-\x1f"\\\ud800-\udfff\ue000]')
"""A key with one of these has no decoder of its own."""


@lru_cache(maxsize=64)
def _field(key: str) -> Any:
    """A decoder that reads the value of ``key`` in an object and passes over the others, which is much faster."""
    fields = [("value", msgspec.Raw, msgspec.Raw())]
    return msgspec.json.Decoder(msgspec.defstruct("_Field", fields, rename={"value": key}))


def _marked(found: re.Match[str]) -> str:
    if found["escaped"]:
        return f"{_MARK}u{found['escaped']}"
    if found["raw"]:
        return f"{_MARK}r{ord(found['raw']):04x}"
    return found[0]


def _unmarked(text: str) -> str:
    """The text with the characters that are marked in it, each as it is."""
    return re.sub(f"{_MARK}[ur](....)", lambda found: chr(int(found[1], 16)), text)


def _is_whole(data: bytes) -> bool:
    try:
        _ANY.decode(data)
    except msgspec.DecodeError:
        return False
    return True


def _not_too_deep(lines: Iterator[str]) -> Iterator[str]:
    try:
        yield from lines
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> InvalidToolArguments:
    return InvalidToolArguments("the JSON is nested too deeply to be read by path: read it by lines instead")
