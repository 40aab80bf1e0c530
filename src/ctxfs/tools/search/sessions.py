"""Searching one of many sessions: opened only if its files may hold a match; an error is yielded.

Whether they may is found in the bytes of their files.

JSON does not escape ASCII letters and digits. So if no file of a session contains words that every match needs, no line
of the session matches. A file with any other encoding is assumed to contain them. So is a session whose files
changed since it was last read: the damaged part may have had the words, and opening the session reports the damage.
"""

import os
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from ctxfs.messages.names import COMPRESSED_SUFFIX
from ctxfs.session.content.compression import MAX_ARCHIVE_WINDOW, zstd
from ctxfs.session.entries import Entry, entries
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.index import INDEX_NAME
from ctxfs.session.journal import is_whole
from ctxfs.session.listing.summary import file_stats, problem_of
from ctxfs.storage.lock_file import LOCK_NAME
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threads import run_to_completion
from ctxfs.tools.search.search import Hit, Holdings, Matcher, Query, Searched, Unread, search

_CHUNK_BYTES = 1 << 20
_CLOCK_STEP_S = 2.0
"""Some file systems record times no more exactly than this, and copying a session takes a moment."""
_SHORTEST = 3
_OF_SEVERAL = frozenset("|([{\\")
"""A pattern with one of these may match lines without its other characters, or these are not plain text."""
_PHRASE = re.compile(r"[A-Za-z0-9_ =/-]+")
_OUR_WORDS = ("calls", "bytes", "of", "json", "unknown")
"""Words of our own, in lower case, in the text that stands for a block, such as an image; these, and its size, are in
no file. They are found in any case: a search that ignores case may be given in capitals."""
_OURS = re.compile(rf"\b(?:{'|'.join(_OUR_WORDS)})\b", re.IGNORECASE)
_IN_BASE64 = (b'"encoding":"bytes"', b"surrogates")
"""Marks in the journal of contents whose files do not contain their words literally."""


def needed_words(query: Query) -> bytes | None:
    """The longest phrase that every matching line contains, in lower case if case is ignored; None: there is none."""
    if query.invert or (not query.fixed and not _OF_SEVERAL.isdisjoint(query.pattern)):
        return None
    phrases = list[str]()
    for found in _PHRASE.finditer(query.pattern):
        after = query.pattern[found.end() : found.end() + 1]
        optional = not query.fixed and after in ("*", "?")
        phrases += _of_contents(found[0][:-1] if optional else found[0])
    if query.ignore_case:
        # Unicode has two more letters that match a k and an s, so no phrase may have one.
        parts: list[str] = []
        for phrase in phrases:
            parts += re.split("[ksKS]", phrase)
        phrases = [part.lower().strip() for part in parts]
    needed = [phrase for phrase in phrases if len(phrase) >= _SHORTEST and any(map(str.isalpha, phrase))]
    if not needed:
        return None
    return max(needed, key=len).encode()


def _of_contents(phrase: str) -> list[str]:
    """The parts of a phrase that can only come from a content, and not from words of our own."""
    parts = list[str]()
    for part in _OURS.split(phrase):
        words = part.split(" ")
        while words and any(word.endswith(words[0].lower()) for word in _OUR_WORDS):
            del words[0]
        while words and any(word.startswith(words[-1].lower()) for word in _OUR_WORDS):
            del words[-1]
        kept = " ".join(words).strip()
        if not any(kept.lower() in word for word in _OUR_WORDS):  # nor is nothing, which is in each of them
            parts.append(kept)
    return parts


def may_match(session: Path, words: bytes, *, ignore_case: bool, disk_bytes: int) -> bool:
    """Whether a session must be opened: its files have these words, may have them, or changed since it was read.

    Blocks. ``disk_bytes``: the size of all files together when the session was last read.
    """
    try:
        return any(_has(file, words, ignore_case) for file in _files(session)) or _changed(session, disk_bytes)
    except (OSError, ValueError, zstd.ZstdError):
        return True  # opening the session will report what is wrong


def _changed(session: Path, disk_bytes: int) -> bool:
    """Whether the files look damaged: contents are written before the journal records them, and never change."""
    journal = session / LOG_NAME
    written_at = journal.stat().st_mtime + _CLOCK_STEP_S
    return (
        sum(status.st_size for status in file_stats(session)) != disk_bytes
        or any(file.stat().st_mtime > written_at for file in _files(session))
        or not is_whole(journal.read_bytes())
    )


def _files(directory: Path | str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(directory) as listed:
        for entry in listed:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif not entry.name.endswith(".idx") and entry.name not in (INDEX_NAME, LOCK_NAME):
                yield entry


def _has(file: os.DirEntry[str], words: bytes, ignore_case: bool) -> bool:
    is_log = file.name.endswith(LOG_NAME)
    chunks = _unpacked(file.path) if file.name.endswith(COMPRESSED_SUFFIX) else _chunks(file.path)
    end = b""
    for chunk in chunks:
        data = end + chunk
        if words in (data.lower() if ignore_case else data):
            return True
        if is_log and any(mark in data for mark in _IN_BASE64):
            return True
        end = data[-64 - len(words) :]  # what is cut in two by the end of a chunk: the words, or a mark
    return False


def _chunks(path: str) -> Iterator[bytes]:
    with Path(path).open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _unpacked(path: str) -> Iterator[bytes]:
    """Yield the content of a file of zstd frames. Raises ``ZstdError``."""
    decompressor = zstd.ZstdDecompressor(options=MAX_ARCHIVE_WINDOW)
    for chunk in _chunks(path):
        left = chunk
        while left:
            yield decompressor.decompress(left)
            left = decompressor.unused_data if decompressor.eof else b""
            if decompressor.eof:
                decompressor = zstd.ZstdDecompressor(options=MAX_ARCHIVE_WINDOW)


L = TypeVar("L")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a session, or with a part of it, in words."""

    text: str


async def search_held(
    fs: ContextFileSystem, query: Query, matcher: Matcher[L], *, only: Entry | None = None
) -> AsyncGenerator[Hit[Entry, L] | Searched[Entry] | Problem, None]:
    """Search all that an open session holds and that the query is about; what cannot be read is a ``Problem``.

    ``only``: search this item alone, whatever types and tools the query names.
    """
    held = Holdings(fs)
    if only is not None:
        where = [only]
    else:
        where = [entry for entry in await entries(fs) if query.searches(entry)]
        for line in fs.recovery.first_journal_damage_lines(fs.session_id):
            yield Problem(line)
    async with aclosing(search(held, matcher, where)) as found:
        async for one in found:
            yield Problem(str(one.error)) if isinstance(one, Unread) else one


async def search_session(
    stores: SessionStores, session_id: str, query: Query, matcher: Matcher[L], *, disk_bytes: int | None = None
) -> AsyncGenerator[Hit[Entry, L] | Searched[Entry] | Problem, None]:
    """Search a session that is not open; an error is a ``Problem`` too, so that others can be searched after it.

    ``disk_bytes``: the size of all its files when it was last read and not damaged. If they still have it, the session
    is not opened unless its files may hold a match. None: it is opened.
    """
    try:
        if not await run_to_completion(partial(_may_match, stores, session_id, query, disk_bytes)):
            return
        fs = ContextFileSystem(session_id, root_path=stores, read_only=True)
        async with fs, aclosing(search_held(fs, query, matcher)) as found:
            async for one in found:
                yield Problem(f"session {session_id}: {one.text}") if isinstance(one, Problem) else one
    except Exception as error:  # noqa: BLE001 - what is wrong with one must not hide what others hold
        yield Problem(problem_of(session_id, error))


def _may_match(stores: SessionStores, session_id: str, query: Query, disk_bytes: int | None) -> bool:
    words = needed_words(query)
    if stores.directory is None or disk_bytes is None or words is None:
        return True
    return may_match(stores.directory / session_id, words, ignore_case=query.ignore_case, disk_bytes=disk_bytes)
