"""An index of words, ranked by how well passages match: SQLite's FTS5, in a temporary database. Synchronous.

The database is private to its process and gone with it: it holds nothing that is not in the session, and what is erased
there does not live on in it. It grows on the disk, not in memory.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Passage", "Ranked", "WordIndex", "passages", "words_of"]

PASSAGE_LINES = 20
PASSAGE_CHARS = 2_000
MAX_WORDS = 32
_NO_SPACES = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af])")
"""Characters of scripts that put no spaces between words: each is a word, and some in a row a phrase."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_TOKEN = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Passage:
    """Some lines of an item, or a part of a long one; ``first_line`` counts from 1."""

    first_line: int
    text: str


@dataclass(frozen=True, slots=True)
class Ranked:
    """A passage that matches: the item's position in the index, and its first and last line."""

    position: int
    first_line: int
    last_line: int


class WordIndex:
    """The passages of items, found by words. Not for concurrent use."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute(
            "CREATE VIRTUAL TABLE passages USING fts5(text, content='', tokenize=\"unicode61 tokenchars '_'\")"
        )
        self._db.execute("CREATE TABLE places (id INTEGER PRIMARY KEY, position, first_line, last_line)")

    def add(self, position: int, found: Iterable[Passage]) -> None:
        """Add the passages of the item at ``position``."""
        for passage in found:
            lines = passage.text.count("\n")
            row = (position, passage.first_line, passage.first_line + lines - passage.text.endswith("\n"))
            place = self._db.execute("INSERT INTO places VALUES (NULL, ?, ?, ?)", row).lastrowid
            self._db.execute("INSERT INTO passages (rowid, text) VALUES (?, ?)", (place, _words_apart(passage.text)))

    def search(self, query: str, *, limit: int, skip: int = 0) -> list[Ranked]:
        """Return the passages with some of the words, the best first; rare words count for more than common ones."""
        words = words_of(query)
        if not words:
            return []
        match = " OR ".join(f'"{_words_apart(word)}"' for word in words)
        rows = self._db.execute(
            "SELECT position, first_line, last_line FROM places JOIN "
            "(SELECT rowid AS id, rank FROM passages WHERE passages MATCH ? ORDER BY rank LIMIT ? OFFSET ?) USING (id) "
            "ORDER BY rank",
            (match, limit, skip),
        )
        return [Ranked(*row) for row in rows]

    def close(self) -> None:
        """Remove the index."""
        self._db.close()


def words_of(query: str) -> list[str]:
    """The words of a query, each once, at most ``MAX_WORDS``; everything else in it means nothing."""
    found = _TOKEN.findall(_SURROGATE.sub(" ", query).casefold())
    return list(dict.fromkeys(found))[:MAX_WORDS]


def passages(pieces: Iterable[str]) -> Iterator[Passage]:
    """Cut text, which comes in pieces, into passages at the ends of lines; a longer line is cut anywhere."""
    number, kept, size, lines = 1, list[str](), 0, 0
    for piece in pieces:
        for part in _parts(piece):
            kept.append(part)
            size += len(part)
            lines += part.endswith("\n")
            if size >= PASSAGE_CHARS or lines >= PASSAGE_LINES:
                yield Passage(number, "".join(kept))
                number, kept, size, lines = number + lines, [], 0, 0
    if kept:
        yield Passage(number, "".join(kept))


def _parts(piece: str) -> Iterator[str]:
    for line in re.findall(r"[^\n]*\n|[^\n]+", piece):
        for start in range(0, len(line), PASSAGE_CHARS):
            yield line[start : start + PASSAGE_CHARS]


def _words_apart(text: str) -> str:
    return _NO_SPACES.sub(r" \1 ", _SURROGATE.sub("\ufffd", text))
