"""Where the values of a JSON text stand, found without parsing them: in one pass, in steps of bounded size. Pure."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from json import JSONDecodeError

from ctxfs.jsontext import codec as json_codec
from ctxfs.jsontext.read_stream import string_end

__all__ = ["JsonPlaces", "Place"]

Place = tuple[int, int]
"""Where a value starts and ends."""

_SPACE = re.compile(r"[ \t\r\n]*+")
_PLAIN_KEY = re.compile(r'"([^"\\]{0,512}+)"[ \t\r\n]*+:[ \t\r\n]*+')
_IN_STRING = r'(?:[^"\\]|\\.)*+'
# values that are told at once: numbers and the like, strings that are not long, containers of a few such
_SHORT_VALUE = (
    r'"[^"\\]{0,512}+"|true|false|null|-?\d[\d.eE+-]*+'
    r'|[\[{][^\[\]{}"]{0,4096}+(?:"[^"\\]{0,512}+"[^\[\]{}"]{0,4096}+){0,64}+[\]}]'
)
_SHORT = re.compile(_SHORT_VALUE)
_ENTRIES_AT_ONCE = 16  # of up to 300 KB each: some milliseconds
_WHOLE_STRINGS = re.compile(r'[^"]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"]*+)*+', re.DOTALL)
_NO_BRACKETS = re.compile(rf'(?:[^\[\]{{}}"]|"{_IN_STRING}")++', re.DOTALL)
_BRACKET = re.compile(rf'(?:[^\[\]{{}}"]|"{_IN_STRING}")*+([\[\]{{}}])', re.DOTALL)
_FEWEST_CHARS = 256
_MOST_CHARS = 65_536
_FEWEST_BRACKETS = 8
_PAIRS_DEPTH = 8


class JsonPlaces:
    """The places of values in a text.

    Every method raises ``JSONDecodeError`` where the text is no JSON; a value is looked at no closer than is needed to
    find its end. ``step`` is called every few thousand characters, and may raise.
    """

    def __init__(self, text: str, step: Callable[[], None]) -> None:
        self.text = text
        self._step = step
        self._children_passed = 0

    def after_space(self, position: int) -> int:
        """Return where the white space ends that starts at ``position``."""
        if self.text[position : position + 1] not in " \t\r\n":  # by far the most frequent
            return position
        match = _SPACE.match(self.text, position)
        return position if match is None else match.end()

    def end_of(self, start: int) -> int:
        """Return where the value that starts at ``start`` ends."""
        if (short := _SHORT.match(self.text, start)) is not None:
            return short.end()
        first = self.text[start : start + 1]
        if first == '"':
            return self._string_end(start)
        if first and first in "[{":
            return self.rest_of(start + 1)
        raise _no_json(self.text, start)

    def children(self, start: int) -> Iterator[tuple[str | int, Place]]:
        """Yield the keys or indexes of a container, each with the place of its value."""
        position, index = self.first(start), 0
        while position is not None:
            key, position = self.key(start, position, index)
            end = self.end_of(position)
            yield key, (position, end)
            position, index = self.following(start, end), index + 1

    def first(self, start: int) -> int | None:
        """Return where the first entry of the container at ``start`` starts; None if it is empty."""
        position = self.after_space(start + 1)
        return None if self.text[position : position + 1] == _closer(self.text[start]) else position

    def after_others(self, position: int, wanted: str) -> tuple[int, bool]:
        """Pass over entries of an object, from the one at ``position`` on, that are told at once not to be ``wanted``.

        Return where the first one starts that may be, or, and True, where the last entry ends.
        """
        match = _others(wanted).match(self.text, position)
        if match is None:
            return position, False
        if match.end() - position > _FEWEST_CHARS:
            self._step()
        return match.end(), match[1] is not None

    def key(self, start: int, position: int, index: int) -> tuple[str | int, int]:
        """Return the key of the entry at ``position``, in an array its ``index``, and where its value starts."""
        if self.text[start] == "[":
            return index, position
        if (plain := _PLAIN_KEY.match(self.text, position)) is not None:
            return plain[1], plain.end()
        if self.text[position : position + 1] != '"':
            raise _no_json(self.text, position)
        end = self._string_end(position)
        raw = self.text[position + 1 : end - 1]
        colon = self.after_space(end)
        if self.text[colon : colon + 1] != ":":
            raise _no_json(self.text, colon)
        return raw if "\\" not in raw else self._unescaped(position, end), self.after_space(colon + 1)

    def following(self, start: int, end: int) -> int | None:
        """Return where the entry after the one that ends at ``end`` starts; None if that was the last."""
        self._children_passed += 1
        if not self._children_passed % 256:
            self._step()
        position = self.after_space(end)
        mark = self.text[position : position + 1]
        if mark == ",":
            return self.after_space(position + 1)
        if mark != _closer(self.text[start]):
            raise _no_json(self.text, position)
        return None

    def after(self, end: int) -> int:
        """Return the position after the bracket that closes the container whose last entry ends at ``end``."""
        return self.after_space(end) + 1

    def rest_of(self, position: int) -> int:
        """Return where the container ends of which ``position`` lies between two entries."""
        if (end := self._closing(position, len(self.text))) is None:
            raise _no_json(self.text, len(self.text))
        return end

    def near_end_of(self, start: int) -> int | None:
        """As ``end_of``; None if it is a container of more than ``_MOST_CHARS``."""
        if self.text[start : start + 1] not in ("[", "{") or _SHORT.match(self.text, start) is not None:
            return self.end_of(start)
        return self._closing(start + 1, start + _MOST_CHARS)

    def _unescaped(self, start: int, end: int) -> str:
        try:
            return str(json_codec.loads(self.text[start:end]))
        except ValueError as error:
            raise _no_json(self.text, start) from error

    def _string_end(self, start: int) -> int:
        return string_end(self.text, start)

    def _closing(self, position: int, stop: int) -> int | None:
        """Return the position after the bracket that closes what is open at ``position``; None if ``stop`` comes first.

        The first few brackets are walked one by one. Then they are counted a segment at a time: where a segment,
        without the pairs in it, closes fewer than are open, it need not be looked at closer. Else a smaller one is, and
        the smallest are walked.
        """
        position, depth = self._walked(position, position + _FEWEST_CHARS, 1, brackets=_FEWEST_BRACKETS)
        if not depth:
            return position
        size, text = _FEWEST_CHARS, self.text
        while position < stop:
            self._step()
            end = self._segment_end(position, size)
            if end == position:
                position = self._string_end(position)
                continue
            brackets = _unpaired(_NO_BRACKETS.sub("", text[position:end]), depth)
            closed = _closed(brackets)
            if closed < depth:
                depth += len(brackets) - 2 * closed
                position, size = end, min(2 * size, _MOST_CHARS)
            elif size > _FEWEST_CHARS:
                size //= 4
            else:
                position, depth = self._walked(position, end, depth, brackets=size)
                if not depth:
                    return position
                position = end
        return None

    def _segment_end(self, position: int, size: int) -> int:
        """Where a segment of at most ``size`` ends, in no string; ``position`` if a longer string starts there."""
        match = _WHOLE_STRINGS.match(self.text, position, position + size)
        return position if match is None else match.end()

    def _walked(self, position: int, end: int, depth: int, *, brackets: int) -> tuple[int, int]:
        """Go from bracket to bracket until ``end``, or until all are closed; where that is, and the depth there."""
        for _ in range(brackets):
            if not depth or (match := _BRACKET.match(self.text, position, end)) is None:
                break
            position = match.end()
            depth += 1 if match[1] in "[{" else -1
        return position, depth


@lru_cache(maxsize=64)
def _others(wanted: str) -> re.Pattern[str]:
    """Some short entries without an escape in their keys, which are not ``wanted``; group 1: they are the last ones."""
    entry = rf'"(?!{re.escape(wanted)}")[^"\\]{{0,512}}+"[ \t\r\n]*+:[ \t\r\n]*+(?:{_SHORT_VALUE})[ \t\r\n]*+'
    return re.compile(rf"(?:{entry},[ \t\r\n]*+){{0,{_ENTRIES_AT_ONCE}}}+(?:{entry}(?=(\}})))?+")


def _unpaired(brackets: str, depth: int) -> str:
    """The brackets without pairs that stand side by side, as far as that is of use."""
    for _ in range(_PAIRS_DEPTH):
        if _closed(brackets) < depth:
            break
        brackets = brackets.replace("[]", "").replace("{}", "")
    return brackets


def _closed(brackets: str) -> int:
    return brackets.count("]") + brackets.count("}")


def _closer(opening: str) -> str:
    return "]" if opening == "[" else "}"


def _no_json(text: str, position: int) -> JSONDecodeError:
    return JSONDecodeError("no JSON", text, position)
