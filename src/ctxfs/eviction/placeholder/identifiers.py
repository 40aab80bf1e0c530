"""Which identifiers each item of a session brought in, and which of them a placeholder names. Pure.

What an item brings in depends on the texts before it alone, whenever they are read. They are read in their order, and
not before somebody asks what one of them brings in: about most items nobody ever does.

A model goes on to use the names of paths, symbols and errors; it hardly ever uses a timestamp, a measurement or a
random id, and of ``test_case_0`` to ``test_case_399`` the family is enough.
"""

import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from ctxfs.messages.tokens import TokenCounter, chunks
from ctxfs.text.patterns import possessive

# What stands before an identifier is passed over with it, so that no character is looked at twice; "" ends the text.
_IDENTIFIER = re.compile(
    r"[^A-Za-z0-9_./:-]*+"
    + possessive(r"[A-Za-z0-9_./:-]{1,11}+(?:[^A-Za-z0-9_./:-]++|\Z)", "*")
    + r"([A-Za-z0-9_./:-]{12,}+|\Z)"
)

MAX_IDENTIFIER_CHARS: Final = 40
"""Longer ones (hashes, long paths) are hardly ever quoted, and cost more."""

_MAPPINGS = (dict, Mapping)  # the class of most first: others take many times as long to ask for
_SEQUENCES = (list, Sequence)
MAX_UNREAD_CHARS: Final = 1_048_576
"""Reading so many characters takes a few milliseconds, for which an event loop may have to wait."""


def identifiers_in(text: str) -> dict[str, None]:
    """What a model can only quote if it has seen it, in order: runs of 12 or more of ``[A-Za-z0-9_./:-]``."""
    found = dict.fromkeys(_IDENTIFIER.findall(text))
    found.pop("", None)
    return found


def strings_of(value: Any) -> list[str]:
    """All strings in a JSON value, as the model wrote them (unescaped), keys left out."""
    texts: list[str] = []
    _add_strings(value, texts)
    return texts


def _add_strings(value: Any, texts: list[str]) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, _MAPPINGS):
        for inner in value.values():
            _add_strings(inner, texts)
    elif isinstance(value, _SEQUENCES):
        for inner in value:
            _add_strings(inner, texts)


@dataclass(slots=True, eq=False)
class Brought:
    """What some texts bring into a session. ``found``: all of it, once they are read; ``texts`` is empty then.

    ``chars``: how many characters they have, or had: what was read in a draft waits in what it was a draft of, too.
    """

    index: "IdentifierIndex"
    texts: Sequence[str]
    found: Sequence[str] | None = None
    chars: int = field(init=False)

    def __post_init__(self) -> None:
        self.chars = sum(map(len, self.texts))

    def names(self) -> list[str]:
        """The identifiers that no earlier text had, in order, but for those that are too long to list."""
        return [name for name in self.index.found_in(self) if len(name) <= MAX_IDENTIFIER_CHARS]


class IdentifierIndex:
    """The identifiers that a session has brought in so far; the first item that brings one in lists it.

    ``max_unread_chars``: when more characters wait to be read, the oldest are read; None: there is no limit.
    ``before``: what a draft was made of; None for what is none. ``known`` are the identifiers that were read here.
    """

    __slots__ = ("_drafted", "_max_unread_chars", "_unread", "_unread_chars", "before", "known", "lock")

    def __init__(
        self, *, max_unread_chars: int | None = MAX_UNREAD_CHARS, before: "IdentifierIndex | None" = None
    ) -> None:
        self._max_unread_chars = max_unread_chars
        self.before = before
        self.known: set[str] = set()
        self.lock: AbstractContextManager[Any] = threading.RLock() if before is None else before.lock
        self._unread: deque[Brought] = deque()
        self._unread_chars = 0
        self._drafted: list[Brought] = []  # everything that came into a draft

    def draft(self) -> "IdentifierIndex":
        """Return an index to take in more texts on trial: what they bring in is known here only by ``take``."""
        return IdentifierIndex(max_unread_chars=self._max_unread_chars, before=self)

    def bring(self, texts: Sequence[str]) -> Brought:
        """Take in texts."""
        brought = Brought(self, texts)
        self._wait(brought)
        if self._max_unread_chars is not None:
            self.read_down_to(self._max_unread_chars)
        return brought

    def take(self, draft: "IdentifierIndex") -> None:
        """Take in what came into a draft of this, or into a draft of that."""
        for brought in draft._drafted:  # noqa: SLF001 - one of these
            brought.index = self
            self._wait(brought)

    def found_in(self, brought: Brought) -> Sequence[str]:
        """All identifiers that ``brought`` was the first to bring in, in order."""
        with self.lock:
            while brought.found is None:
                self._read_next()
        return brought.found

    def read_down_to(self, chars: int) -> None:
        """Read until at most so many characters wait, here and in what this is a draft of."""
        if self.before is not None:
            self.before.read_down_to(chars)
        if self._unread_chars > chars:
            with self.lock:
                while self._unread_chars > chars:
                    self._read_next()

    def _wait(self, brought: Brought) -> None:
        self._unread.append(brought)
        self._unread_chars += brought.chars
        if self.before is not None:
            self._drafted.append(brought)

    def _read_next(self) -> None:
        if self.before is not None:
            self.before.read_down_to(0)
        brought = self._unread[0]
        found = self._new_in(brought.texts) if brought.found is None else brought.found
        self._unread.popleft()
        self._unread_chars -= brought.chars
        self.known.update(found)
        brought.found = found
        brought.texts = ()

    def _new_in(self, texts: Sequence[str]) -> Sequence[str]:
        """The identifiers in these texts that are not known, here or in what this is a draft of."""
        names: dict[str, None] = {}
        for text in texts:
            for part in chunks(text):  # so that other threads can run in between
                names |= identifiers_in(part)
        found = list(names)
        layer: IdentifierIndex | None = self
        while layer is not None:
            known = layer.known
            found = [name for name in found if name not in known]
            layer = layer.before
        return found


_TITLE = "Mentions:"
_FAMILY = 3
_SIMILAR_CHARS = 8
"""Of two names whose lengths differ by less, the one that comes first in the content is listed first."""

_MAX_EXAMINED = 4_000
"""Of a log with a random id in every line, this many are looked at: examining all would cost more than it is worth."""

_NUMBER = re.compile(r"([0-9]+)")
_PART = re.compile(r"[A-Za-z0-9]+")
_HEX = re.compile(r"(?=.*[0-9])(?=.*[a-f])[0-9a-f]{7,}|(?=.*[0-9])(?=.*[A-F])[0-9A-F]{7,}")
_RUN = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_WORD_CHARS = 3
_WORD = re.compile(rf"[A-Za-z]{{{_WORD_CHARS}}}")
_RANDOM_CHARS = 8
_RANDOM_RUN_CHARS = 2.5
"""A part of this many characters or more is random when its runs of one case, or of digits, are shorter than this."""


def worth_naming(name: str) -> bool:
    """Whether most of ``name`` is words: not a time, a number, a hash or a random id."""
    noise = chars = 0
    has_word = False
    for part in _PART.findall(name):
        chars += len(part)
        if part.isdigit():
            noise += len(part)
        elif part.isalpha() and (part.islower() or part.isupper()):
            has_word = has_word or len(part) >= _WORD_CHARS
        elif _is_random(part):
            noise += len(part)
        else:
            noise += sum(map(str.isdigit, part))
            has_word = has_word or _WORD.search(part) is not None
    return has_word and 2 * noise < chars


def _is_random(part: str) -> bool:
    """Whether ``part``, which mixes cases or letters and digits, is a hash or a random id."""
    if _HEX.fullmatch(part):
        return True
    return len(part) >= _RANDOM_CHARS and len(part) < _RANDOM_RUN_CHARS * len(_RUN.findall(part))


def entries_of(names: Iterable[str], *, limit: int) -> tuple[str, ...]:
    """At most ``limit`` entries for those of ``names`` that are worth it: short ones first, since more of them fit.

    Three names or more that differ in numbers only are one entry: ``test_case_0…399``.
    """
    worth = filter(worth_naming, islice(names, _MAX_EXAMINED))
    return tuple(sorted(_families(list(worth)), key=lambda entry: len(entry) // _SIMILAR_CHARS)[:limit])


def mentions(entries: Sequence[str], *, budget_tokens: int, counter: TokenCounter) -> str:
    """One line with the first of ``entries``, as many as the budget allows; "" when there are none."""
    fit, too_many = 0, min(len(entries), max(0, budget_tokens)) + 1  # an entry has a token at least
    while too_many - fit > 1:
        middle = (fit + too_many) // 2
        if counter.count(_listed(entries[:middle])) <= budget_tokens:
            fit = middle
        else:
            too_many = middle
    return _listed(entries[:fit]) if fit else ""


def _listed(entries: Sequence[str]) -> str:
    return " ".join([_TITLE, *entries])


def _families(names: Sequence[str]) -> Iterator[str]:
    """The names in order, a family where its first name was."""
    families: dict[tuple[str, ...], list[list[str]]] = {}
    for name in names:
        pieces = _NUMBER.split(name)
        families.setdefault(tuple(pieces[::2]), []).append(pieces[1::2])
    for words, numbers in families.items():
        if len(numbers) >= _FAMILY:
            yield _joined(words, [_range(column) for column in zip(*numbers, strict=True)])
        else:
            yield from (_joined(words, one) for one in numbers)


def _range(numbers: Sequence[str]) -> str:
    first, last = min(numbers, key=int), max(numbers, key=int)
    return first if first == last else f"{first}…{last}"


def _joined(words: Sequence[str], numbers: Sequence[str]) -> str:
    return "".join(word + number for word, number in zip(words, [*numbers, ""], strict=True))
