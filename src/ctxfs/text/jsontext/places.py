"""Where the values of a JSON text stand, found without parsing them: in one pass, in steps of bounded size. Pure."""

import re
from collections.abc import Iterator
from functools import lru_cache

from ctxfs.text.jsontext import codec as json_codec
from ctxfs.text.jsontext.tokens import NUMBER, SPACE, STRING, JsonTokens, brackets
from ctxfs.text.patterns import possessive

Place = tuple[int, int]
"""Where a value starts and ends."""

_SHORT_STRING = r'"[^"\\]{0,512}+"'
_PLAIN_KEY = re.compile(rf'"([^"\\]{{0,512}}+)"{SPACE}:{SPACE}')
# Fast paths, since a token at a time would be several times slower. The first: values that are found at once, which are
# numbers and the like, strings that are not long, and containers of a few such.
_SHORT_SCALAR = rf"{_SHORT_STRING}|true|false|null|{NUMBER}"
_SHORT_VALUE = (
    rf'{_SHORT_SCALAR}|[\[{{][^\[\]{{}}"]{{0,4096}}+'
    + possessive(rf'{_SHORT_STRING}[^\[\]{{}}"]{{0,4096}}+', "{0,64}")
    + r"[\]}]"
)
_SHORT = re.compile(_SHORT_VALUE)
ELEMENTS_AT_ONCE = 64
_SHORT_SCALARS = re.compile(possessive(f"(?:{_SHORT_SCALAR}){SPACE},{SPACE}", f"{{{ELEMENTS_AT_ONCE}}}"))
_ENTRIES_AT_ONCE = 16  # of up to 300 KB each: some milliseconds
_WHOLE_STRINGS = re.compile('[^"]*+' + possessive(f'{STRING}[^"]*+', "*"), re.DOTALL)
_BRACKET = re.compile(possessive(rf'[^\[\]{{}}"]|{STRING}', "*") + r"([\[\]{}])", re.DOTALL)
_FEWEST_CHARS = 256
_MOST_CHARS = 65_536
_FEWEST_BRACKETS = 8
_PAIRS_DEPTH = 8


class JsonPlaces(JsonTokens):
    """The places of values in a text; a value is looked at no closer than is needed to find its end."""

    def end_of(self, start: int) -> int:
        """Return where the value that starts at ``start`` ends."""
        if (short := _SHORT.match(self.text, start)) is not None:
            return short.end()
        first = self.text[start : start + 1]
        if first == '"':
            return self.string_end(start)
        if first and first in "[{":
            return self.rest_of(start + 1)
        raise self.fault("expected a value", start)

    def children(self, start: int) -> Iterator[tuple[str | int, Place]]:
        """Yield the keys or indexes of a container, each with the place of its value."""
        position, index = self.first(start), 0
        while position is not None:
            key, position = self.key(start, position, index)
            end = self.end_of(position)
            yield key, (position, end)
            position, index = self.following(start, end), index + 1

    def after_elements(self, position: int) -> int | None:
        """Pass over ``ELEMENTS_AT_ONCE`` elements of an array, from the one at ``position`` on, that are short scalars.

        Return where the next one starts; None if these are fewer, or others.
        """
        match = _SHORT_SCALARS.match(self.text, position)
        if match is None:
            return None
        self.stepped(match.end())
        return match.end()

    def length(self, start: int) -> int:
        """Count the elements of the array at ``start``."""
        count, position = 0, self.first(start)
        while position is not None:
            if not count % ELEMENTS_AT_ONCE and (after := self.after_elements(position)) is not None:
                position, count = after, count + ELEMENTS_AT_ONCE
            else:
                position, count = self.following(start, self.end_of(position)), count + 1
        return count

    def after_others(self, position: int, wanted: str) -> tuple[int, bool]:
        """Pass over entries of an object, from the one at ``position`` on, that are told at once not to be ``wanted``.

        Return where the first one starts that may be, or, and True, where the last entry ends.
        """
        match = _others(wanted).match(self.text, position)
        if match is None:
            return position, False
        if match.end() - position > _FEWEST_CHARS:
            self.step()
        return match.end(), match[1] is not None

    def key(self, start: int, position: int, index: int) -> tuple[str | int, int]:
        """Return the key of the entry at ``position``, in an array its ``index``, and where its value starts."""
        if self.text[start] == "[":
            return index, position
        if (plain := _PLAIN_KEY.match(self.text, position)) is not None:
            return plain[1], plain.end()
        end = self.string_end(position)
        raw = self.text[position + 1 : end - 1]
        return raw if "\\" not in raw else self._unescaped(position, end), self.after_key(end)

    def rest_of(self, position: int) -> int:
        """Return where the container ends of which ``position`` lies between two entries."""
        if (end := self._closing(position, len(self.text))) is None:
            raise self.fault("a container has no end", len(self.text))
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
            raise self.fault("not a string", start) from error

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
            self.step()
            end = self._segment_end(position, size)
            if end == position:
                position = self.string_end(position)
                continue
            unpaired = _unpaired(brackets(text[position:end]), depth)
            closed = _closed(unpaired)
            if closed < depth:
                depth += len(unpaired) - 2 * closed
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
    entry = rf'"(?!{re.escape(wanted)}")[^"\\]{{0,512}}+"{SPACE}:{SPACE}(?:{_SHORT_VALUE}){SPACE}'
    return re.compile(possessive(f"{entry},{SPACE}", f"{{0,{_ENTRIES_AT_ONCE}}}") + rf"(?:{entry}(?=(\}})))?")


def _unpaired(found: str, depth: int) -> str:
    """The brackets without pairs that stand side by side, as far as that is of use."""
    for _ in range(_PAIRS_DEPTH):
        if _closed(found) < depth:
            break
        found = found.replace("[]", "").replace("{}", "")
    return found


def _closed(found: str) -> int:
    return found.count("]") + found.count("}")
