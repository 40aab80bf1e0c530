"""Which identifiers of a content are worth naming in its placeholder, and how they are listed. Pure.

A model goes on to use the names of paths, symbols and errors; it hardly ever uses a timestamp, a measurement or a
random id, and of ``test_case_0`` to ``test_case_399`` the family is enough.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from ctxfs.messages.tokens import TokenCounter

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
