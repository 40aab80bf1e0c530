"""Which sessions may have a match, by the bytes of their files: the others need not be opened.

Words of ASCII letters and digits stand in JSON as they are, so a session whose files do not have them has no line with
them. A file that this cannot be said of counts as one that has them. So does a session whose files are not as they were
when it was last read: what is damaged could have had the words, and opening it says so.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ctxfs.cli.item_search import Query
from ctxfs.content.compression import MAX_ARCHIVE_WINDOW, SUFFIX, zstd
from ctxfs.listing.summary import file_stats
from ctxfs.session.index import INDEX_NAME
from ctxfs.session.journal import is_whole
from ctxfs.storage.lock_file import LOCK_NAME
from ctxfs.storage.log_file import LOG_NAME

__all__ = ["may_match", "needed_words"]

_CHUNK_BYTES = 1 << 20
_CLOCK_STEP_S = 2.0
"""Some file systems know the time of a change no better than this, and a copy of a session takes a moment."""
_SHORTEST = 3
_OF_SEVERAL = frozenset("|([{\\")
"""In a pattern with one of these, what is left of it is not needed, or is no text."""
_PHRASE = re.compile(r"[A-Za-z0-9_ =/-]+")
_OUR_WORDS = ("calls", "bytes", "of", "JSON", "unknown")
"""What stands for a block of a content has these words and its size, and they are in no file."""
_OURS = re.compile(rf"\b(?:{'|'.join(_OUR_WORDS)})\b")
_IN_BASE64 = (b'"encoding":"bytes"', b"surrogates")
"""What the journal says of contents whose words are not in their files."""


def needed_words(query: Query) -> bytes | None:
    """Words that each matching line has, in a row, in lower case if case does not count; None: there are none."""
    if query.invert or (not query.fixed and not _OF_SEVERAL.isdisjoint(query.pattern)):
        return None
    phrases = list[str]()
    for found in _PHRASE.finditer(query.pattern):
        after = query.pattern[found.end() : found.end() + 1]
        optional = not query.fixed and after in ("*", "?")
        phrases += _of_contents(found[0][:-1] if optional else found[0])
    if query.ignore_case:  # in Unicode, two more letters are a k and an s
        phrases = [part.lower().strip() for phrase in phrases for part in re.split("[ksKS]", phrase)]
    phrases = [phrase for phrase in phrases if len(phrase) >= _SHORTEST and any(map(str.isalpha, phrase))]
    return max(phrases, key=len).encode() if phrases else None


def _of_contents(phrase: str) -> list[str]:
    """The parts of a phrase that can only be found where a content has them, and in none of our own words."""
    parts = list[str]()
    for part in _OURS.split(phrase):
        words = part.split(" ")
        while words and any(word.endswith(words[0]) for word in _OUR_WORDS):
            del words[0]
        while words and any(word.startswith(words[-1]) for word in _OUR_WORDS):
            del words[-1]
        kept = " ".join(words).strip()
        parts += [] if any(kept in word for word in _OUR_WORDS) else [kept]
    return parts


def may_match(session: Path, words: bytes, *, ignore_case: bool, disk_bytes: int) -> bool:
    """Whether a session's files have these words, cannot tell, or changed. A file is read until they are found.

    Synchronous. ``disk_bytes``: what the files held together when the session was last read.
    """
    try:
        return any(_has(file, words, ignore_case) for file in _files(session)) or _changed(session, disk_bytes)
    except (OSError, ValueError, zstd.ZstdError):
        return True  # opening the session will say what is wrong


def _changed(session: Path, disk_bytes: int) -> bool:
    """Whether the files look damaged: a content is written before the journal says so, and never changes."""
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
    end = b""
    for chunk in _unpacked(file.path) if file.name.endswith(SUFFIX) else _chunks(file.path):
        data = end + chunk
        if words in (data.lower() if ignore_case else data) or (is_log and any(mark in data for mark in _IN_BASE64)):
            return True
        end = data[-64 - len(words) :]
    return False


def _chunks(path: str) -> Iterator[bytes]:
    with Path(path).open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _unpacked(path: str) -> Iterator[bytes]:
    """What a file of zstd frames holds. Raises ``ZstdError``."""
    decompressor = zstd.ZstdDecompressor(options=MAX_ARCHIVE_WINDOW)
    for chunk in _chunks(path):
        left = chunk
        while left:
            yield decompressor.decompress(left)
            left = decompressor.unused_data if decompressor.eof else b""
            if decompressor.eof:
                decompressor = zstd.ZstdDecompressor(options=MAX_ARCHIVE_WINDOW)
