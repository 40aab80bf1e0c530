"""The past of an open session: it follows the journal, reads contents, and indexes words once they are searched.

Words are found by SQLite's FTS5 in a temporary database, ranked by how well passages match.

The database is private to its process and ends with it: it contains nothing that is not in the session, and erased
contents do not live on in it. It grows on the disk, not in memory.
"""

import re
import sqlite3
import unicodedata
import weakref
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from ctxfs.errors import SessionError, StorageError, UnknownItem
from ctxfs.eviction.placeholder.lines import line_count
from ctxfs.session.content.reader import ContentReader
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem, storage_of
from ctxfs.session.journal import scan
from ctxfs.session.records import Record
from ctxfs.storage.loop_lock import LoopLock
from ctxfs.storage.threads import run_in_steps, run_to_completion
from ctxfs.tools.paging import Line, LineCutter
from ctxfs.tools.recall.past import Past, PastItem, content_text
from ctxfs.tools.stored import stored_lines

PASSAGE_LINES = 20
PASSAGE_CHARS = 2_000
MAX_WORDS = 32
MAX_INDEXED_CHARS = 32_000_000
"""The most that one search indexes, which takes some seconds of CPU; the next search goes on from there."""
_AT_ONCE_CHARS = 500_000
_LINES = frozenset({"text", "surrogates", "bytes"})
"""Encodings of contents whose lines have the same numbers in a reader as here."""
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


class PastSession:
    """Everything that was ever in the session ``fs``, which is open.

    Attributes:
        past: its items, as of the last ``refresh``.

    """

    def __init__(self, fs: ContextFileSystem) -> None:
        self.fs = fs
        self.past = Past()
        self._line = 0
        self._end = 0
        self._turn = LoopLock()
        self._index: WordIndex | None = None
        self._indexed: list[str] = []

    async def refresh(self) -> Past:
        """Take in new records of the journal, and return the past as it is now."""
        async with self._turn:
            records, self._line, self._end = await _records_after(self.fs, self._line, self._end)
            if records:
                await self.fs.refresh()
                erased = self.past.erased
                await run_to_completion(lambda: self.past.take(records))
                if self.past.erased != erased:
                    await self._forget_words()
        return self.past

    async def _forget_words(self) -> None:
        """Drop the index, which contains words of erased contents; the next search makes a new one."""
        index = self._index
        self._index = None
        self._indexed = []
        if index is not None:
            await run_to_completion(index.close)

    def item(self, ref: str) -> PastItem:
        """The item whose id or file ``ref`` names. Raises ``UnknownItem``."""
        found = self.past.items.get(ref) or self.past.items.get(self.fs.find(ref) or "")
        if found is None:
            raise UnknownItem(ref)
        return found

    # Lines -----------------------------------------------------------------------------------------------------------

    async def content(self, item: PastItem) -> ContentReader | str:
        """The lines of an item, for a search. Raises what reading it raises."""
        if self.stored(item) is None:
            return await self.text(item)
        return self.fs.reader(item.item_id)

    def stored(self, item: PastItem) -> Stored | None:
        """The stored content of an item whose lines are those of its file; None: it is a text or a list of blocks."""
        if item.text is not None:
            return None
        stored = self.fs.state.stored.get(item.item_id)
        if stored is None or stored.encoding not in _LINES:
            return None
        return stored

    async def text(self, item: PastItem) -> str:
        """The text of an item of which nothing is ``stored``. Raises what ``ContextFileSystem.load`` raises."""
        if item.text is not None:
            return item.text
        return content_text(await self.fs.load(item.item_id))

    async def lines(
        self, item: PastItem, first: int, limit: int, *, max_chars: int, char_offset: int | None = None
    ) -> list[Line]:
        """At most ``limit`` lines of an item from line ``first`` on; with ``char_offset``, the rest of that line only.

        Raises what reading its file raises.
        """
        if self.stored(item) is not None:
            reader = self.fs.reader(item.item_id)
            return await stored_lines(reader, first, limit=limit, max_chars=max_chars, char_offset=char_offset)
        text = await self.text(item)
        cutter = LineCutter(first, limit=limit, max_chars=max_chars, char_offset=char_offset)
        return await run_in_steps(lambda: _lines_of(text, cutter, first))

    # Words -----------------------------------------------------------------------------------------------------------

    async def ranked(
        self, query: str, has: Callable[[PastItem], bool], *, limit: int
    ) -> tuple[Sequence[tuple[PastItem, Ranked]], int]:
        """The passages that match ``query``, the best first, and how many items are not indexed yet.

        Only items for which ``has`` says True are searched.
        """
        async with self._turn:
            left = await self._index_new()
            index = self._index
            assert index is not None
            items = [self.past.items.get(item_id) for item_id in self._indexed]
            wanted = {position: item for position, item in enumerate(items) if item is not None and has(item)}
            found = await run_to_completion(lambda: index.search(query, limit=limit, positions=wanted.keys()))
            return [(wanted[ranked.position], ranked) for ranked in found], left

    async def _index_new(self) -> int:
        """Index new items; return how many are left for the next time."""
        if self._index is None:
            self._index = await run_to_completion(WordIndex)
        known = set(self._indexed)
        new = [item for item in self.past.items.values() if item.item_id not in known]
        waiting: list[tuple[str, list[Passage]]] = []
        size = 0
        total = 0
        for place, item in enumerate(new, start=1):
            async with aclosing(self._pieces(item)) as pieces:
                cut = [piece async for piece in pieces]
            chars = sum(map(len, cut))
            waiting.append((item.item_id, list(passages(cut))))
            size += chars
            total += chars
            if size >= _AT_ONCE_CHARS or place == len(new) or total >= MAX_INDEXED_CHARS:
                await run_to_completion(partial(self._write, self._index, waiting))
                waiting = []
                size = 0
            if total >= MAX_INDEXED_CHARS:
                return len(new) - place
        return 0

    def _write(self, index: WordIndex, items: Sequence[tuple[str, Sequence[Passage]]]) -> None:
        for item_id, found in items:
            index.add(len(self._indexed), found)
            self._indexed.append(item_id)

    async def _pieces(self, item: PastItem) -> AsyncGenerator[str]:
        """Yield the text of an item; nothing if it cannot be read."""
        try:
            if self.stored(item) is None:
                yield await self.text(item)
                return
            async for piece in self.fs.reader(item.item_id).text_blocks():
                yield piece
        except (StorageError, SessionError):
            return  # whoever reads it will see why


def _lines_of(text: str, cutter: LineCutter, first: int) -> list[Line]:
    """The lines that the cutter takes from ``text``, from line ``first`` on."""
    start = 0
    for _ in range(first - 1):
        start = text.find("\n", start) + 1
        if not start:
            return []
    cutter.feed(text[start:])
    return cutter.finish()


async def _records_after(fs: ContextFileSystem, line: int, offset: int) -> tuple[tuple[Record, ...], int, int]:
    """The records after line ``line``, which ends at byte ``offset``; 0 and 0 give all of them.

    Also returns the number and the end of the last line, for the next time. Damaged records are left out.
    """
    data = await storage_of(fs).read_log(offset)
    found = await run_to_completion(lambda: scan(data, last_seq=line, offset=offset))
    return found.records, found.last_seq, found.end
