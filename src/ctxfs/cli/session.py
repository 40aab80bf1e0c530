"""Find and read sessions and items by what a user types; a session's writer is never disturbed."""

import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ctxfs.cli.directory import sessions_directory
from ctxfs.cli.lines import CUT, to_stderr
from ctxfs.errors import ConfigError, ContentGone, SessionNotFound, UnknownItem
from ctxfs.errors.spelling import nearest
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import readable_text
from ctxfs.session.entries import Entry, archived, entries, entry_of, inline_content
from ctxfs.session.filesystem import ContextFileSystem, reading_once
from ctxfs.session.listing.summary import changed_at
from ctxfs.session.state import check_owner
from ctxfs.storage.base import is_hidden
from ctxfs.storage.local import is_session
from ctxfs.storage.local_sessions import likely_session, likely_session_under
from ctxfs.storage.removal import forgotten_ids, forgotten_under
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threads import run_to_completion
from ctxfs.storage.urls import at_url, stores_at
from ctxfs.text.utf8 import lossless_bytes

SessionsAt = Path | SessionStores
"""Where sessions are: a directory, or somewhere else."""

_LAST = "last"
_NAMED_CANDIDATES = 4
_MOST_COMPARED = 1_000
"""Of more items only so many are compared with a misspelt id, which takes a tenth of a second."""
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_AS_IT_IS = frozenset({"text", "bytes"})
"""Encodings whose bytes are exactly what the tool returned."""


def by_change(root: Path, beginning: str = "") -> list[str]:
    """The names under ``root`` with this beginning, the last changed first; not all of them are sessions."""
    try:
        names = [
            entry.name for entry in os.scandir(root) if entry.name.startswith(beginning) and not is_hidden(entry.name)
        ]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{root} cannot hold sessions: {error.strerror}") from error
    found = [(changed, name) for name in names if (changed := _changed_at(root / name)) is not None]
    return [name for _, name in sorted(found, reverse=True)]


def _changed_at(session: Path) -> float | None:
    with suppress(OSError):
        return changed_at(session)
    return None


def sessions_at(root: Path | None, store: str | None, *, may_be_new: bool = False) -> SessionsAt:
    """The directory that holds sessions, or where else they are. ``may_be_new``: the command makes a session.

    Raises:
        ConfigError: it cannot hold sessions or does not exist, or both options are given.
        MissingExtra: a package that the store needs is not installed.

    """
    if store is None:
        return sessions_directory(root, may_be_new=may_be_new)
    if root is not None:
        raise ConfigError("--store already says where sessions are: leave out the directory, --root")
    return at_url(store)  # a directory is --root DIR


def stores_of(place: SessionsAt) -> SessionStores:
    """The stores of the sessions in this place."""
    return stores_at(place) if isinstance(place, Path) else place


async def find_session(root: SessionsAt, given: str) -> str:
    """The id of the session that ``given`` names: an id, the unique beginning of one, or "last" for the newest.

    A beginning may end with the ellipsis with which lists show it.

    Raises:
        SessionNotFound: it names no session.
        ConfigError: it names more than one.

    """
    given = given.removesuffix(CUT)
    if isinstance(root, Path):
        return await run_to_completion(lambda: _find_session(root, given))
    found = await root.sessions()
    ids = [one.session_id for one in found]
    if given == _LAST:
        newest = max(found, key=lambda one: one.changed_at, default=None)
        matching = [] if newest is None else [newest.session_id]
    else:
        matching = [given] if given in ids else [name for name in ids if name.startswith(given)]
    if matching or given == _LAST:
        return _only(given, matching, SessionNotFound(given, root.url), "sessions")
    raise SessionNotFound(given, root.url, meant=likely_session(given, ids) or _like_last(given))


async def find_history_session(root: SessionsAt, given: str) -> str:
    """The id that ``--session`` gives for what a program's requests or results leave: "last", or one that may be new.

    Raises ``ConfigError`` if a Context or an Agent has its messages there.
    """
    if given == _LAST:
        given = await find_session(root, given)
    with suppress(SessionNotFound):
        async with open_known_session(root, given) as fs:
            try:
                check_owner(given, fs.state, "History")
            except ConfigError as error:
                what = f"session {given!r} has messages of its own, which a Context or an Agent wrote"
                raise ConfigError(f"{what}: give another --session, or none") from error
    return given


@contextmanager
def session_or_file(given: str) -> Iterator[None]:
    """For commands that take a session or the file of a recording: if neither exists, the error names both.

    Raises ``ConfigError`` in that case. A session's id may look like a file's name, so the session is looked up first.
    """
    try:
        yield
    except SessionNotFound as error:
        if not error.removed and Path(given).is_dir():
            raise ConfigError(f"{given} is a folder: name one file in it, or a session under {error.root}") from error
        if error.removed or not (os.sep in given or Path(given).suffix):
            raise
        raise ConfigError(f"there is no file {given}, and no session with that name under {error.root}") from error


async def find_sessions(root: SessionsAt, given: Sequence[str]) -> list[str]:
    """The ids of the given sessions, each one once; raises what ``find_session`` raises if one is not found."""
    return list(dict.fromkeys([await find_session(root, one) for one in given]))


def require_whole_sessions(given: Sequence[str], found: Sequence[str]) -> None:
    """Raise ``ConfigError`` for the beginning of a session's id; see ``require_whole_ids``. "last" may stay."""
    require_whole_ids([one for one in given if one.removesuffix(CUT) != _LAST], found)


def require_whole_ids(given: Sequence[str], found: Sequence[str]) -> None:
    """Raise ``ConfigError`` for the beginning of an id: unasked, another one might be removed than was meant."""
    for one in given:
        name = one.removesuffix(CUT)
        if name not in found:
            whole = next(full for full in found if full.startswith(name))
            raise ConfigError(f"{one!r} is the beginning of {whole}: give the whole id, since nobody is asked")


def _find_session(root: Path, given: str) -> str:
    if given == _LAST:  # even if a session has this id, which an imported archive could bring
        newest = next((name for name in by_change(root) if is_session(root, name)), None)
        return _only(given, [] if newest is None else [newest], SessionNotFound(given, str(root)), "sessions")
    if is_session(root, given):
        return given
    matching = [name for name in by_change(root, given) if is_session(root, name)]
    if matching and given:
        return _only(given, matching, SessionNotFound(given, str(root)), "sessions")
    raise _missing(root, given)


def _missing(root: Path, given: str) -> SessionNotFound:
    """What there was under an id that no session has, or begins with; or which session was meant.

    Raises ``ConfigError`` for the beginning of several removed ones.
    """
    gone = forgotten_ids(root, given) if given else []
    if gone and given not in gone:
        given = _only(given, gone, SessionNotFound(given, str(root)), "removed sessions")
    removed = forgotten_under(root, given)
    return SessionNotFound(given, str(root), removed, meant=likely_session_under(root, given) or _like_last(given))


def _like_last(given: str) -> str:
    """The word for the newest session, if that was meant, in whatever case; else "". Only the command line has it."""
    return nearest(given.lower(), (_LAST,)) or ""


@asynccontextmanager
async def open_session(root: SessionsAt, given: str, *, with_history: bool = False) -> AsyncIterator[ContextFileSystem]:
    """``open_known_session`` of the session that ``given`` names."""
    async with open_known_session(root, await find_session(root, given), with_history=with_history) as fs:
        yield fs


@asynccontextmanager
async def shown_session(
    root: SessionsAt, given: str, *, with_history: bool = False
) -> AsyncIterator[ContextFileSystem]:
    """``open_session``, and tell which lines of the journal are damaged: what they held is missing in what is shown."""
    async with open_session(root, given, with_history=with_history) as fs:
        for line in fs.recovery.first_journal_damage_lines(fs.session_id):
            to_stderr(f"ctxfs: {line}")
        yield fs


@asynccontextmanager
async def open_known_session(
    root: SessionsAt, session_id: str, *, with_history: bool = False
) -> AsyncIterator[ContextFileSystem]:
    """Open a session for reading.

    ``with_history``: for a short command that goes through its records, too. What opening reads of the journal is then
    kept in memory for them, and not read again.
    """
    fs = ContextFileSystem(session_id, root_path=stores_of(root), read_only=True)
    if with_history:
        reading_once(fs)
    await fs.open()
    try:
        yield fs
    finally:
        await fs.close()


def _archived(item: ContextItem) -> Entry:
    return replace(entry_of(item, None), place="archive", tokens=0)


async def find_entry(fs: ContextFileSystem, given: str) -> Entry:
    """The item with that id, even in an archive, or with the only id that begins with it.

    Raises:
        UnknownItem: there is none.
        ContentGone: its content was removed on purpose.
        ConfigError: there is more than one.

    """
    given = given.removesuffix(CUT)
    if (gone := fs.state.removed.get(given)) is not None:
        raise ContentGone(given, str(gone))
    known = {entry.item_id: entry for entry in await entries(fs)}
    if given in known:
        return known[given]
    if (archive := fs.state.archived.get(given)) is not None:
        for item in await archived(fs, archive):
            if item.id == given:
                return _archived(item)
    matching = [item_id for item_id in known if item_id.startswith(given)]
    return known[_only(given, matching, _unknown_item(fs, given, known), "items")]


def _unknown_item(fs: ContextFileSystem, given: str, known: Iterable[str]) -> UnknownItem:
    """The error about an item that a session does not have, with the one that was meant."""
    newest = list(known)[-_MOST_COMPARED:]
    return UnknownItem(given, session_id=fs.session_id, meant=nearest(given, newest) or "")


async def find_item_ids(root: SessionsAt, session_id: str, given: Sequence[str]) -> list[str]:
    """For each of ``given``, the id of the only item of a session that begins with it, or of one that is gone.

    Raises ``UnknownItem`` if there is none, ``ConfigError`` if there is more than one, and what opening the session
    raises.
    """
    async with open_known_session(root, session_id) as fs:
        return await item_ids_in(fs, given)


async def item_ids_in(fs: ContextFileSystem, given: Sequence[str]) -> list[str]:
    """``find_item_ids`` of an open session."""
    every = fs.state.ids
    known = [entry.item_id for entry in await entries(fs)]
    found: list[str] = []
    for name in given:
        beginning = name.removesuffix(CUT)
        matching = [item_id for item_id in known if beginning and item_id.startswith(beginning)]
        # The id of an item that is gone is not the beginning of another one.
        if beginning in every:
            found.append(beginning)
        else:
            found.append(_only(beginning, matching, _unknown_item(fs, beginning, known), "items"))
    return found


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
        ConfigError: the item only repeated lines of another one, so it was not stored again.

    """
    stored = entry.stored
    if stored is None:
        yield lossless_bytes(readable_text(inline_content(entry)))
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
    """The first lines of a content that comes in pieces."""
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
    return _LINE.findall(lossless_bytes(readable_text(inline_content(entry))))
