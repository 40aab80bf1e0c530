"""Finding a session and an item by what a user types, and reading them; the session's writer is never disturbed."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from ctxfs.cli.output import lossless_bytes
from ctxfs.content.readable import readable_text
from ctxfs.errors import ConfigError, SessionNotFound, UnknownItem
from ctxfs.items import ContextItem
from ctxfs.session.entries import Entry, entries, entry_of
from ctxfs.session.filesystem import ContextFileSystem, list_sessions
from ctxfs.storage.local import absolute_root
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.threads import run_to_completion

__all__ = [
    "changes",
    "content_blocks",
    "content_lines",
    "damages",
    "find_entry",
    "find_session",
    "line_count",
    "newest_first",
    "open_known_session",
    "open_session",
    "sessions_directory",
]

_NAMED_CANDIDATES = 4
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_AS_IT_IS = frozenset({"text", "bytes"})
"""Encodings whose bytes are exactly what the tool returned."""


def sessions_directory(root: Path | None) -> Path:
    """The directory that holds sessions, absolute; None is the default one."""
    return absolute_root(root)


async def newest_first(root: Path) -> list[str]:
    """The ids of the sessions under ``root``, the one that changed last first."""
    return list(await changes(root))


async def changes(root: Path) -> dict[str, float]:
    """When each session under ``root`` changed last, in seconds since the epoch; the newest first."""
    known = await list_sessions(root)
    found = await run_to_completion(lambda: [(_changed_at(root / session_id), session_id) for session_id in known])
    return {session_id: changed for changed, session_id in sorted(found, reverse=True)}


def _changed_at(session: Path) -> float:
    journal = session / LOG_NAME
    return (journal if journal.exists() else session).stat().st_mtime


async def find_session(root: Path, given: str) -> str:
    """The id of the session that ``given`` names: an id, the only beginning of one, or "last" for the newest.

    Raises:
        SessionNotFound: none does.
        ConfigError: more than one does.

    """
    if given != "last" and given in await list_sessions(root):
        return given
    known = await newest_first(root)
    # "last" is the newest one also when a session has this id: an archive could bring one.
    matching = known[:1] if given == "last" else [session_id for session_id in known if session_id.startswith(given)]
    return _only(given, matching, SessionNotFound(given, str(root)), "sessions")


@asynccontextmanager
async def open_session(root: Path, given: str) -> AsyncIterator[ContextFileSystem]:
    """Open the session that ``given`` names for reading."""
    async with open_known_session(root, await find_session(root, given)) as fs:
        yield fs


@asynccontextmanager
async def open_known_session(root: Path, session_id: str) -> AsyncIterator[ContextFileSystem]:
    """Open a session for reading."""
    fs = ContextFileSystem(session_id, root_path=root, read_only=True)
    await fs.open()
    try:
        yield fs
    finally:
        await fs.close()


def damages(fs: ContextFileSystem) -> list[str]:
    """What is damaged, as far as opening the session and reading its items has shown: a line each."""
    lines = [f"{LOG_NAME}, at byte {damage.offset:,}: {damage.reason}" for damage in fs.recovery.damages]
    return [*lines, *map(str, fs.recovery.contents)]


def _archived(item: ContextItem) -> Entry:
    return replace(entry_of(item, None), place="archive", tokens=0)


async def find_entry(fs: ContextFileSystem, given: str) -> Entry:
    """The item of that id, also in an archive, or of the only other id that begins so.

    Raises:
        UnknownItem: there is none.
        ConfigError: there is more than one.

    """
    known = {entry.item_id: entry for entry in await entries(fs)}
    if given in known:
        return known[given]
    if (archive := fs.state.archived.get(given)) is not None:
        for item in await fs.archived(archive):
            if item.id == given:
                return _archived(item)
    matching = [item_id for item_id in known if item_id.startswith(given)]
    return known[_only(given, matching, UnknownItem(given), "items")]


def _only(given: str, matching: Sequence[str], missing: Exception, what: str) -> str:
    if not matching or not given:
        raise missing
    if len(matching) > 1:
        named = ", ".join(matching[:_NAMED_CANDIDATES]) + (", …" if len(matching) > _NAMED_CANDIDATES else "")
        raise ConfigError(f"{given!r} is the beginning of {len(matching)} {what}: {named}")
    return matching[0]


async def content_blocks(fs: ContextFileSystem, entry: Entry) -> AsyncIterator[bytes]:
    """The content as bytes, in pieces; a list of content blocks as its readable text.

    Raises:
        ConfigError: the item only repeated lines of another one, and was not stored a second time.

    """
    stored = entry.stored
    if stored is None:
        yield lossless_bytes(readable_text(_inline(entry).message.content))
    elif stored.encoding in _AS_IT_IS:
        async for block in fs.reader(entry.item_id).raw_blocks():
            yield block
    else:
        yield lossless_bytes(readable_text(await fs.load(entry.item_id)))


async def content_lines(fs: ContextFileSystem, entry: Entry, first: int, last: int | None) -> bytes:
    """The lines ``first`` to ``last`` as they are in the content, each with its newline; empty if there are none.

    ``last`` None: the end. Below 1, ``first`` counts from the end: 0 is the last line.
    """
    stored = entry.stored
    if stored is None:
        lines = _inline_lines(entry)
        first = max(1, first if first > 0 else len(lines) + first)
        return b"".join(lines[first - 1 : last])
    first = max(1, first if first > 0 else stored.lines + first)
    wanted = (stored.lines if last is None else last) - first + 1
    async with aclosing(fs.reader(entry.item_id).bytes_from(first)) as blocks:
        data = await _lines_of(blocks, wanted)
    return data if stored.encoding in _AS_IT_IS else lossless_bytes(data.decode("utf-8", "surrogatepass"))


async def _lines_of(blocks: AsyncIterator[bytes], wanted: int) -> bytes:
    """The first lines of content that comes in pieces."""
    pieces: list[bytes] = []
    async for block in blocks:
        if (count := block.count(b"\n")) >= wanted:
            pieces.append(block[: len(block) - len(block.split(b"\n", wanted)[-1])])
            break
        pieces.append(block)
        wanted -= count
    return b"".join(pieces)


def line_count(entry: Entry) -> int:
    """How many lines its content has."""
    return len(_inline_lines(entry)) if entry.stored is None else entry.stored.lines


def _inline_lines(entry: Entry) -> list[bytes]:
    return _LINE.findall(lossless_bytes(readable_text(_inline(entry).message.content)))


def _inline(entry: Entry) -> ContextItem:
    item = entry.item
    assert item is not None  # what is not stored is in the context, or was in an archive
    if item.offloaded and item.source is not None:
        source = item.source
        raise ConfigError(
            f"{item.id} only repeated lines {source.first_line} to {source.last_line} of {source.item_id}: "
            f"see that item's --lines {source.first_line}:{source.last_line}"
        )
    return item
