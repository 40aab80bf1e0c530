"""An index of words, ranked by how well passages match: SQLite's FTS5, in a temporary database. Synchronous.

The database is private to its process and ends with it: it contains nothing that is not in the session, and erased
contents do not live on in it. It grows on the disk, not in memory.
"""

import re
import sqlite3
import unicodedata
import weakref
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from ctxfs.eviction.placeholder.lines import line_count

PASSAGE_LINES = 20
PASSAGE_CHARS = 2_000
MAX_WORDS = 32
_NO_SPACES = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af])")
"""Characters of scripts without spaces between words: each is a word, and several in a row are a phrase."""
_ACCENT = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_TOKEN = re.compile(r"\w+")
_CUT_CHARS = 100
_PART = re.compile(
    rf"[^\n]{{0,{PASSAGE_CHARS - 1}}}\n"
    rf"|[^\n]{{{PASSAGE_CHARS - _CUT_CHARS},{PASSAGE_CHARS}}}(?!\w)|[^\n]{{1,{PASSAGE_CHARS}}}"
)
"""A line, or a part of a long one: it ends between words if a word ends in its last ``_CUT_CHARS`` characters."""


@dataclass(frozen=True, slots=True)
class Passage:
    """Some lines of an item, or a part of a long one; ``first_line`` counts from 1.

    ``begin``: the character of that line with which the text begins; if more than 0, all of the text is in that line.
    """

    first_line: int
    begin: int
    text: str


@dataclass(frozen=True, slots=True)
class Ranked:
    """A passage that matches: the item's position in the index, its lines, and where in the first of them it begins."""

    position: int
    first_line: int
    last_line: int
    begin: int


class WordIndex:
    """The passages of items, found by words. Not for concurrent use."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._closing = weakref.finalize(self, self._db.close)  # no session has to remember its index
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute(
            "CREATE VIRTUAL TABLE passages USING fts5(text, content='', tokenize=\"unicode61 tokenchars '_'\")"
        )
        self._db.execute("CREATE TABLE places (id INTEGER PRIMARY KEY, position, first_line, last_line, begin)")

    def add(self, position: int, found: Iterable[Passage]) -> None:
        """Add the passages of the item at ``position``."""
        for passage in found:
            last_line = passage.first_line + line_count(passage.text) - 1
            row = (position, passage.first_line, last_line, passage.begin)
            place = self._db.execute("INSERT INTO places VALUES (NULL, ?, ?, ?, ?)", row).lastrowid
            self._db.execute("INSERT INTO passages (rowid, text) VALUES (?, ?)", (place, _words_apart(passage.text)))

    def search(self, query: str, *, limit: int, positions: Collection[int]) -> list[Ranked]:
        """Return the passages of the items at ``positions`` with some of the words, the best first.

        Rare words count for more than common ones.
        """
        words = words_of(query)
        if not words:
            return []
        match = " OR ".join(f'"{_words_apart(word)}"' for word in words)
        rows = self._db.execute(
            "SELECT position, first_line, last_line, begin FROM passages JOIN places ON places.id = passages.rowid "
            "WHERE passages MATCH ? AND position IN (SELECT value FROM json_each(?)) ORDER BY rank LIMIT ?",
            (match, str(list(positions)), limit),
        )
        return [Ranked(*row) for row in rows]

    def close(self) -> None:
        """Remove the index; one that is dropped is removed too."""
        self._closing()


def words_of(query: str) -> list[str]:
    """The words of a query, each once, at most ``MAX_WORDS``; everything else is ignored."""
    found = _TOKEN.findall(folded(_SURROGATE.sub(" ", query)))
    return list(dict.fromkeys(found))[:MAX_WORDS]


def folded(text: str) -> str:
    """A text without case and accents, since a search ignores both."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", text.casefold())))


def passages(pieces: Iterable[str]) -> Iterator[Passage]:
    """Cut text, which comes in pieces, into passages at the ends of lines; a longer line is cut between words."""
    number = 1
    begin = 0
    kept: list[str] = []
    size = 0
    lines = 0
    column = 0  # of the next part, in its line
    for part in _parts(pieces):
        kept.append(part)
        size += len(part)
        ends = part.endswith("\n")
        if ends:
            lines += 1
            column = 0
        else:
            column += len(part)
        if size >= PASSAGE_CHARS - _CUT_CHARS or lines >= PASSAGE_LINES or (begin and ends):
            yield Passage(number, begin, "".join(kept))
            number += lines
            begin = column
            kept = []
            size = 0
            lines = 0
    if kept:
        yield Passage(number, begin, "".join(kept))


def _parts(pieces: Iterable[str]) -> Iterator[str]:
    """The lines, and the parts of long ones, wherever the pieces end."""
    rest = ""
    for piece in pieces:
        *parts, last = _PART.findall(rest + piece) or [""]
        yield from parts
        if last.endswith("\n"):
            yield last
            last = ""
        rest = last
    if rest:
        yield rest


def _words_apart(text: str) -> str:
    return _NO_SPACES.sub(r" \1 ", folded(_SURROGATE.sub("\ufffd", text)))
