"""A regular expression in RE2's syntax that is searched for in lines, in bounded steps. Synchronous.

RE2 takes linear time, but up to 10 ns a byte for each instruction of the expression, and no call of it can be
interrupted. So a call searches a window that is small enough for that, and the window's end may cut a match. There are
three cases:

1. The window ends with a line. No match crosses that end: all is known.
2. It ends within a line, and no beginning of a match reaches that end (see below): all is known.
3. Some beginning of a match does. The next window starts where that beginning does. If that is where this window
   started, the next one is twice as large instead, as long as that stays within the budget.

What a match may begin with is an expression too. ``ab[cd]`` becomes
``(?:a(?:b(?:[cd])?)?)?``: every beginning of a match matches it. It may match more than that, never less.
"""

import re
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import re2

from ctxfs.errors import InvalidToolArguments, WorkLimitReached
from ctxfs.errors.base import quoted
from ctxfs.text.steps import CpuBudget, checkpoint

_TOKEN = re.compile(
    r"""(?P<quoted>\\Q(?P<literal>.*?)(?:\\E|\Z))
    | (?P<flags>\(\?[a-zA-Z-]+\))
    | (?P<open>\((?:\?P?<\w+>|\?[a-zA-Z-]*:)?)
    | (?P<close>\))
    | (?P<branch>\|)
    | (?P<repeat>(?:[*+?]|\{(?P<least>\d+)(?P<range>,(?P<most>\d*))?\})\??)
    | (?P<atom>\\(?:[pPx]\{[^}]*\}|[pP].|x..|[0-7]{1,3}|.) | \[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\] | .)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an expression: ``whole`` as it is, ``begun`` for its beginnings (None: no more than nothing or all)."""

    whole: str
    begun: str | None = None

    def repeated(self, match: re.Match[str]) -> "_Part":
        """Return the part with a quantifier."""
        quantifier = match["repeat"]
        whole = self.whole + quantifier
        if quantifier[0] == "?":
            return _Part(whole, self.begun)
        if match["least"] is None or (match["range"] and not match["most"]):
            return _Part(whole, f"{self.whole}*{self.begun or ''}")
        most = int(match["most"] or match["least"])
        if not most:
            return _Part(whole)
        fewer = most - 1 if self.begun is not None else most
        return _Part(whole, f"{self.whole}{{0,{fewer}}}{self.begun or ''}")


def prefix_pattern(pattern: str) -> str:
    """Return the expression that every beginning of a match of ``pattern``, a valid one, matches."""
    whole = _group(_TOKEN.finditer(pattern), "(?:")
    assert whole.begun is not None
    return whole.begun


def _group(tokens: Iterator[re.Match[str]], opening: str) -> _Part:
    """The tokens up to the closing parenthesis, as one part."""
    branches: list[list[_Part]] = [[]]
    flags = ""  # they hold to the end of the group, in the branches to come too
    for token in tokens:
        branch = branches[-1]
        if token["close"]:
            break
        if token["branch"]:
            branches.append([_Part(flags)])
        elif token["flags"]:
            flags += token["flags"]
            branch.append(_Part(token["flags"]))
        elif token["open"]:
            named = token["open"].endswith(">") or token["open"] == "("
            branch.append(_group(tokens, "(?:" if named else token["open"]))
        elif token["repeat"]:
            branch.append(branch.pop().repeated(token))
        elif token["quoted"]:
            branch += [_Part(f"\\x{{{ord(char):x}}}") for char in token["literal"]]
        else:
            branch.append(_Part(token["atom"]))
    texts = ["".join(part.whole for part in branch) for branch in branches]
    whole = "|".join(texts)
    begun = "|".join(map(_begun, branches))
    return _Part(f"{opening}{whole})", f"{opening}{begun})")


def _begun(parts: list[_Part]) -> str:
    """The beginnings of one part after the other."""
    rest = ""
    for part in reversed(parts):
        alone = "" if part.begun is None else f"{part.begun}|"
        rest = f"(?:{alone}{part.whole}{rest})?"
    return rest


MAX_PATTERN_CHARS = 1_000
MAX_CPU_S = 0.8  # with what is not charged, such as reading a line of 100 MB, a second
_COMPILING_BYTES = 1 << 20  # compiling holds the interpreter: what takes more than this takes too long
_SEARCHING_BYTES = 8 << 20
_STEP_S = 0.02
"""What a window may take at worst, in seconds of CPU."""
_MIN_STEP_BYTES = 512
_WORST_S = 10e-9
"""What a byte takes at most for each instruction, in seconds of CPU."""
_SMALL_SIZE = 12
_SMALL_WORST_S = 3e-9
"""What a byte takes at most for up to so many instructions: RE2 then has room for every state of its automaton."""
_LONGEST_STEP_S = 0.04
"""How long a step may take, by how long the last one of half the size took."""
_ONLY_LINE_BY_LINE = re.compile(r"\\[AzC]|\(\?[a-zA-Z]*-")


class Match(NamedTuple):
    """Where a match starts and ends; not ``known``: it may go on, or an earlier one may be there, past the budget."""

    start: int
    end: int
    known: bool = True

    def moved(self, by: int) -> "Match":
        """The same match in a text that has ``by`` more bytes before it."""
        return Match(self.start + by, self.end + by, self.known)


class SearchStopped(WorkLimitReached):
    """The lines before the one at byte ``position`` of the data were searched, but not that one.

    ``line_too_long``: it is too long for the expression. Else the budget is used up, and a larger one may suffice.
    """

    def __init__(self, message: str, position: int, *, line_too_long: bool = False) -> None:
        super().__init__(message)
        self.position = position
        self.line_too_long = line_too_long


class LinePattern:
    """A compiled expression.

    Args:
        pattern: the expression.
        ignore_case: whether upper and lower case match each other.
        budget: the CPU time for all searches with it; None means ``MAX_CPU_S``.
        max_step_bytes: at most so many bytes are searched at a time, unless a match may be longer.

    Raises:
        InvalidToolArguments: no valid expression; the message tells the model what is wrong.
    """

    def __init__(
        self,
        pattern: str,
        *,
        ignore_case: bool = False,
        budget: CpuBudget | None = None,
        max_step_bytes: int = 1 << 20,
    ) -> None:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise InvalidToolArguments(f"the pattern has {len(pattern):,} characters; at most {MAX_PATTERN_CHARS:,}")
        self._pattern = pattern
        self._ignore_case = ignore_case
        self.budget = budget or CpuBudget(MAX_CPU_S)
        try:
            self._compiled(pattern, _COMPILING_BYTES)  # first as it was given, so that an error shows just that
            self._regexp = self._compiled(f"(?m){pattern}", _SEARCHING_BYTES)
        except (re2.error, UnicodeEncodeError) as error:
            raise InvalidToolArguments(
                f"{quoted(pattern)} is not a valid regular expression ({_reason(error)}); the syntax is RE2's: no "
                r"look-around, no back-references; write \( for a parenthesis"
            ) from error
        self._unfinished: Any = None
        size = self._regexp.programsize
        self._worst_s = _SMALL_WORST_S if size <= _SMALL_SIZE else size * _WORST_S
        self._step_bytes = min(max_step_bytes, max(_MIN_STEP_BYTES, int(_STEP_S / self._worst_s)))
        # \A and \z mean a line's ends here, so they are only right on one line at a time
        self._line_by_line = _ONLY_LINE_BY_LINE.search(pattern) is not None

    def renewed(self) -> "LinePattern":
        """The same expression with a budget of the same size of which nothing is used."""
        other = copy(self)
        other.budget = CpuBudget(self.budget.limit_s)
        return other

    def _compiled(self, pattern: str, max_mem: int) -> Any:
        options = re2.Options()
        options.log_errors = False
        options.never_nl = True
        options.never_capture = True
        options.case_sensitive = not self._ignore_case
        options.max_mem = max_mem
        return re2.compile(pattern.encode(), options)

    def matches(self, data: bytes, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Match, int]]:
        """Each matching line from ``start`` to ``stop``: where it starts, its first match, where it ends.

        Whole lines stand between the two; ``stop`` None is the end of ``data``.

        Raises:
            SearchStopped: the budget does not suffice to search one more line; those before it were yielded.
        """
        stop = len(data) if stop is None else stop
        if self._line_by_line:
            return self._matches_by_line(data, start, stop)
        return self._matches(data, start, stop)

    def _matches(self, data: bytes, position: int, stop: int) -> Iterator[tuple[int, Match, int]]:
        while position < stop:
            found = self._search(data, position, stop)
            if found is None or (found.start == stop and data.endswith(b"\n", position, stop)):
                return
            start = max(position, data.rfind(b"\n", position, found.start) + 1)
            end = _line_end(data, found.start, stop)
            yield start, found, end
            position = end + 1

    def _matches_by_line(self, data: bytes, position: int, stop: int) -> Iterator[tuple[int, Match, int]]:
        while position < stop:
            end = _line_end(data, position, stop)
            try:
                found = self._search(data[position:end], 0, end - position)
            except SearchStopped as stopped:
                stopped.position += position
                raise
            if found is not None:
                yield position, found.moved(position), end
            position = end + 1

    def in_line(self, data: bytes, start: int, position: int, end: int) -> Iterator[Match]:
        """Each match in the line from ``start`` to ``end``, of those from ``position`` on, up to one not ``known``.

        Raises:
            SearchStopped: the budget does not suffice to know whether there is one more.
        """
        if self._line_by_line:
            for found in self._again(data[start:end], position - start, end - start):
                yield found.moved(start)
        else:
            yield from self._again(data, position, end)

    def _again(self, data: bytes, position: int, end: int) -> Iterator[Match]:
        while position < end and (found := self._search(data, position, end)) is not None:
            yield found
            if not found.known:
                return
            position = max(found.end, found.start + 1)

    def _search(self, data: bytes, position: int, end: int) -> Match | None:
        """The first match in whole lines, or in the rest of one."""
        size = self._step_bytes
        now = self.budget.now()
        while True:
            if self.budget.left_s <= 0:
                raise self._used_up(position)
            stop, whole = _window(data, position, position + size, end)
            left_s = self.budget.left_s
            found = self._step(self._regexp, data, position, stop)
            if found is not None and found.start() == stop < end:  # the next window's, which knows what follows it
                found = None
            begun = stop if whole else self._begun(data, position, stop)
            now = self.budget.charge_since(now)  # with this loop, which costs as much as a small window
            if (found is not None and found.start() < begun) or stop == end:
                return None if found is None else Match(found.start(), found.end())
            if begun - position <= (stop - position) // 2 and self._affords(2 * size, left_s - self.budget.left_s):
                size *= 2
            elif begun > position:
                position = begun
                size = self._step_bytes
            elif found is not None:
                return Match(found.start(), found.end(), known=False)
            else:
                raise self._too_long(data, position, stop)

    def _affords(self, size: int, half_took_s: float) -> bool:
        """Whether a window of ``size`` bytes is searched in time, and within the budget whatever it holds."""
        if self.budget.limit_s is None:
            return True
        return 2 * half_took_s <= _LONGEST_STEP_S and size * self._worst_s <= self.budget.left_s

    def _too_long(self, data: bytes, position: int, stop: int) -> SearchStopped:
        offset = position - data.rfind(b"\n", 0, position) - 1
        pattern = quoted(self._pattern)
        return SearchStopped(
            f"a line is too long for {pattern}: what begins at its byte {offset:,} may be a match of over "
            f"{stop - position:,} bytes. Bound what repeats: .{{0,200}} for .*, [a-z]{{1,50}} for [a-z]+; leave out .* "
            "at the ends",
            position,
            line_too_long=True,
        )

    def _used_up(self, position: int) -> SearchStopped:
        pattern = quoted(self._pattern)
        return SearchStopped(
            f"searching for {pattern} took the {self.budget.limit_s:g} s of CPU that one search may take: "
            "use a simpler pattern, with fewer and smaller repeats",
            position,
        )

    def _begun(self, data: bytes, position: int, stop: int) -> int:
        """Where the first beginning of a match starts that reaches ``stop``; ``stop`` when there is none."""
        if self._unfinished is None:
            try:
                self._unfinished = self._compiled(rf"(?m){prefix_pattern(self._pattern)}\z", _SEARCHING_BYTES)
            except re2.error as error:
                raise SearchStopped(
                    f"a line of over {self._step_bytes:,} bytes is too long for this pattern: make the pattern shorter",
                    position,
                    line_too_long=True,
                ) from error
        before = max(position - 1, 0)  # the character before decides what \b and ^ mean
        found = self._step(self._unfinished, data[before:stop], position - before, stop - before)
        return before + int(found.start())

    def _step(self, regexp: Any, data: bytes, position: int, stop: int) -> Any:
        checkpoint()
        return regexp.search(data, position, stop)


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(error)


def _line_end(data: bytes, position: int, stop: int) -> int:
    end = data.find(b"\n", position, stop)
    return stop if end < 0 else end


def _window(data: bytes, position: int, stop: int, end: int) -> tuple[int, bool]:
    """Where to end a window so as to cut no character, and no line if that can be; and whether it cuts none."""
    if stop >= end:
        return end, True
    if newline := data.rfind(b"\n", position, stop) + 1:
        return newline, True
    for shorter in range(4):
        if data[stop - shorter] & 0xC0 != 0x80:
            return stop - shorter, False
    return stop, False  # no UTF-8 in any case
