"""Addressing a part of a JSON text by path, without parsing the rest: in one pass, in bounded steps. Synchronous.

The syntax: ``$``, then any of ``.key``, ``["any key"]``, ``[3]``, ``[-1]``, ``[10:20]``, ``[*]`` and ``.*``.
"""

import re
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from json import JSONDecodeError
from typing import NamedTuple

from ctxfs.errors import InvalidToolArguments, WorkLimitReached
from ctxfs.errors.base import quoted
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.text.jsontext.places import ELEMENTS_AT_ONCE, JsonPlaces, Place
from ctxfs.text.jsontext.read_stream import string_pieces
from ctxfs.text.patterns import possessive
from ctxfs.text.steps import CpuBudget, checkpoint

MAX_PATH_CHARS = 1_000
MAX_STEPS = 64
MAX_RESULTS = 100_000
MAX_CPU_S = 0.9  # with reading 12 MiB, a second
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
    if quoted := match["quoted"]:
        return PathStep(key=quoted[1:-1] if quoted[0] == "'" else _unquoted(quoted))
    if match["index"] is not None:
        index = int(match["index"])
        return PathStep(start=index, stop=index + 1 if index != -1 else None, single=True)
    start, stop = match["start"], match["stop"]
    return PathStep(start=int(start) if start else None, stop=int(stop) if stop else None)


def _unquoted(string: str) -> str:
    try:
        return str(json_codec.loads(string))
    except ValueError as error:
        raise InvalidToolArguments(f"{quoted(string)} in the path is not a JSON string") from error


def select_lines(text: str, path: str, *, budget: CpuBudget | None = None) -> Iterator[str]:
    r"""What ``path`` means in the JSON ``text``, as lines (each with its "\n"), in pieces that end anywhere.

    A string gives its own lines, an array or several values one element a line, an object one key a line.

    Args:
        text: the JSON.
        path: see above.
        budget: the CPU time for it; None means ``MAX_CPU_S``.

    Raises:
        InvalidToolArguments: no valid path, nothing there (the message says what is), or no JSON.
        WorkLimitReached: the budget is used up.
    """
    steps = parse_path(path)
    allowed = budget or CpuBudget(MAX_CPU_S)

    def step() -> None:
        checkpoint()
        if allowed.tick() <= 0:
            raise WorkLimitReached(
                f"{quoted(path)} takes more than the {allowed.limit_s:g} s of CPU that one call may take: use a path "
                "to a smaller part, such as [0:100] for [*], or read it by lines"
            )

    places = JsonPlaces(text, step)
    try:
        found = _Selection(places, steps).run(path)
    except JSONDecodeError as error:
        raise _no_json(error) from error
    return _lines(places, found, several=any(map(_is_many, steps)))


def _lines(places: JsonPlaces, found: Sequence[int], *, several: bool) -> Iterator[str]:
    try:
        if not several:
            yield from _lines_of(places, (found[0], found[1]))
        else:
            for number in range(0, len(found), 2):
                yield f"{_one_line(places, (found[number], found[number + 1]))}\n"
    except JSONDecodeError as error:
        raise _no_json(error) from error


class _Many(NamedTuple):
    """``ELEMENTS_AT_ONCE`` elements, the first of which starts there."""

    start: int


_Element = int | tuple["array[int]", Place | None]
"""Where an element starts; of one that was read at once, what was found in it and what is missing there."""


def _size(element: "_Element | _Many") -> int:
    return ELEMENTS_AT_ONCE if isinstance(element, _Many) else 1


def _is_many(step: PathStep) -> bool:
    return step.key is None and not step.single


class _Selection:
    """One pass over a text that finds the values that the steps mean."""

    def __init__(self, places: JsonPlaces, steps: tuple[PathStep, ...]) -> None:
        self._places = places
        self._text = places.text
        self._steps = steps
        # where very many values start and end, as plain numbers: the garbage collector would look at all objects
        self._found = array("q")
        self._missing: Place | None = (
            None  # where a value starts that has not what a step means, and that step's number
        )
        self._strict = next((number for number, step in enumerate(steps) if _is_many(step)), len(steps))

    def run(self, path: str) -> Sequence[int]:
        """The starts and ends of the values found, by turns."""
        places = self._places
        end = self._select(places.after_space(0), 0)
        if (rest := places.after_space(end)) < len(self._text):
            raise JSONDecodeError("something follows", self._text, rest)
        if self._missing is not None:
            start, number = self._missing
            name = _name(self._steps[number])
            raise InvalidToolArguments(f"there is no {name} at step {number + 1}: {_describe(places, start)}")
        if len(self._found) > 2 * MAX_RESULTS:
            raise InvalidToolArguments(f"{quoted(path)} means over {MAX_RESULTS:,} values: narrow it, such as [0:100]")
        return self._found

    def _select(self, start: int, number: int) -> int:
        """Find what the steps from ``number`` on mean in the value at ``start``; return where that value ends."""
        if number == len(self._steps):
            end = self._places.end_of(start)
            self._found.extend((start, end))
            return end
        step, opening = self._steps[number], self._text[start : start + 1]
        if opening == "{" and step.key is not None:
            return self._in_object(start, number, step.key)
        if (opening == "[" and step.key is None) or (opening == "{" and _is_many(step)):
            return self._in_elements(start, number, step)
        self._miss(start, number)
        return self._places.end_of(start)

    def _miss(self, start: int, number: int) -> None:
        """The value of the step is missing; after a step that selects several values, this is allowed."""
        if number < self._strict:
            self._missing = start, number

    def _in_object(self, start: int, number: int, wanted: str) -> int:
        """The last of equal keys counts, as in every JSON parser."""
        places, before, present, end = self._places, len(self._found), False, start + 1
        position = places.first(start)
        while position is not None:
            position, ended = places.after_others(position, wanted)
            if ended:
                end = position
                break
            key, position = places.key(start, position, 0)
            if key == wanted:
                present, self._missing = True, None
                del self._found[before:]
                end = self._select(position, number + 1)
            else:
                end = places.end_of(position)
            position = places.following(start, end)
        if not present:
            self._miss(start, number)
        return places.after(end)

    def _in_elements(self, start: int, number: int, step: PathStep) -> int:
        if step.start is not None and step.start < 0:
            return self._in_last_elements(start, number, step, -step.start)
        return self._in_first_elements(start, number, step)

    def _in_last_elements(self, start: int, number: int, step: PathStep, last: int) -> int:
        """Select in the last elements: in a large one as it comes, since it would have to be read twice."""
        places, before, end, count = self._places, len(self._found), start + 1, 0
        latest = deque[_Element | _Many](maxlen=last)
        position = places.first(start)
        while position is not None:
            if (after := self._after_many(start, position, count)) is not None:
                latest.append(_Many(position))
                position, count = after, count + ELEMENTS_AT_ONCE
                continue
            _, position = places.key(start, position, count)
            near = places.near_end_of(position)
            if near is None:
                self._missing = None
                end = self._select(position, number + 1)
                latest.append((self._found[before:], self._missing))
                del self._found[before:]
            else:
                latest.append(position)
                end = near
            position, count = places.following(start, end), count + 1
        meant = range(count)[step.start : step.stop]
        if not meant:
            self._miss(start, number)
        surplus = max(0, sum(map(_size, latest)) - last)
        for element in islice(self._each(start, latest, surplus), len(meant)):
            if isinstance(element, int):
                self._missing = None
                self._select(element, number + 1)
            else:
                found, self._missing = element
                self._found.extend(found)
        return places.after(end)

    def _after_many(self, start: int, position: int, count: int) -> int | None:
        """Where the element after the next ``ELEMENTS_AT_ONCE`` of an array starts, if these are easily passed over."""
        if count % ELEMENTS_AT_ONCE or self._text[start] != "[":  # so that trying costs little
            return None
        return self._places.after_elements(position)

    def _each(self, start: int, latest: Iterable[_Element | _Many], skip: int) -> Iterator[_Element]:
        """The elements one by one, after the first ``skip`` of them."""
        for element in latest:
            if skip >= _size(element):
                skip -= _size(element)
            elif isinstance(element, _Many):
                yield from islice(self._one_by_one(start, element.start), skip, ELEMENTS_AT_ONCE)
                skip = 0
            else:
                yield element

    def _one_by_one(self, start: int, element: int) -> Iterator[int]:
        position: int | None = element
        while position is not None:
            yield position
            position = self._places.following(start, self._places.end_of(position))

    def _in_first_elements(self, start: int, number: int, step: PathStep) -> int:
        """Select in each element that may be meant, and drop the last ones once their number is known."""
        places, end = self._places, start + 1
        low, high = step.start or 0, step.stop
        begins = array("q")  # of what was found, for each of these elements
        position, count = places.first(start), 0
        while position is not None:
            _, position = places.key(start, position, count)
            if count >= low and (high is None or high < 0 or count < high):
                begins.append(len(self._found))
                end = self._select(position, number + 1)
            elif count < low:
                if count + ELEMENTS_AT_ONCE <= low and (after := self._after_many(start, position, count)) is not None:
                    position, count = after, count + ELEMENTS_AT_ONCE
                    continue
                end = places.end_of(position)
            else:
                return places.rest_of(position)
            position, count = places.following(start, end), count + 1
        meant = range(count)[step.start : step.stop]
        if len(meant) < len(begins):
            del self._found[begins[len(meant)] :]
        if not meant:
            self._miss(start, number)
        return places.after(end)


def _lines_of(places: JsonPlaces, place: Place) -> Iterator[str]:
    start, end = place
    first = places.text[start]
    if first == '"':
        yield from string_pieces(places.text, start)
    elif first == "[":
        for _, child in places.children(start):
            yield f"{_one_line(places, child)}\n"
    elif first == "{":
        for key, child in places.children(start):
            yield f"{json_codec.dumps(key).decode()}: {_one_line(places, child)}\n"
    else:
        yield places.text[start:end]


def _one_line(places: JsonPlaces, place: Place) -> str:
    value = places.text[place[0] : place[1]]
    return re.sub(r"\r?\n[ \t\r]*+", " ", value) if "\n" in value else value


def _name(step: PathStep) -> str:
    return f"key {step.key!r}" if step.key is not None else f"element {step.start}"


def _describe(places: JsonPlaces, start: int) -> str:
    """What is there instead, for the error about a step that does not fit."""
    opening = places.text[start]
    if opening == "{":
        keys = [str(key) for key, _ in islice(places.children(start), 21)]
        listed = ", ".join(key[:48] for key in keys[:20]) + (", …" if len(keys) > 20 else "")
        return f"the keys are {listed}" if keys else "the object is empty"
    if opening == "[":
        return f"it is an array of {places.length(start):,}"
    return "it is neither an object nor an array"


def _no_json(error: JSONDecodeError) -> InvalidToolArguments:
    return InvalidToolArguments(f"the content is not JSON at character {error.pos:,}: read it by lines instead")
