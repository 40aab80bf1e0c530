"""A session as one file, to be kept or moved to another machine; see ``transfer.archive`` for the form."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio

from ctxfs.errors import ArchiveDamaged, ArchiveUnsafe, ConfigError, CorruptContent, CorruptJournal, UnsafePath
from ctxfs.errors.checks import names_settings
from ctxfs.messages.names import TERMINAL, check_session_id
from ctxfs.session.content.blocks import index_name
from ctxfs.session.content.compression import ZSTD
from ctxfs.session.content.file import file_bytes
from ctxfs.session.content.stored import Stored
from ctxfs.session.copying import making
from ctxfs.session.index import INDEX_NAME, render_index, wants_index
from ctxfs.session.journal import Scan, encode_line, scan
from ctxfs.session.records import SessionStarted, WriterOpened
from ctxfs.session.recovery import growing_logs
from ctxfs.session.state import SessionState, fold
from ctxfs.session.transfer.archive import CHUNK_BYTES, ArchiveReader, ArchiveWriter
from ctxfs.session.verify import check_file
from ctxfs.storage.base import check_name, is_hidden
from ctxfs.storage.local import MAX_DEPTH
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.port import FileSystem, OsFileSystem
from ctxfs.storage.roots import absolute_root
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import result_of, run_to_completion, uninterrupted
from ctxfs.storage.urls import STORE_IS_ROOT_PATH, resolved_stores

MAX_BYTES = 16 << 30
MAX_FILES = 1_000_000

ENCODINGS = frozenset({"text", "blocks", "surrogates", "blocks+surrogates", "bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Transferred:
    """What was exported or imported: ``files`` contents, and ``size_bytes`` of them and the journal together.

    ``path`` is the archive after an export, and the session's directory after an import; if the session is not in a
    directory, it is the archive again. ``store`` is the directory or the URL where the session is.
    """

    session_id: str
    path: Path
    store: str
    files: int
    size_bytes: int


# ---- export


@names_settings({"store": STORE_IS_ROOT_PATH})
async def export_session(
    session_id: str,
    file: str | Path,
    *,
    root_path: str | Path | SessionStores | None = None,
    compress: bool = False,
    fs: FileSystem | None = None,
) -> Transferred:
    """Write a session into ``file``, which must not exist yet (mode 0600); ``compress``: with zstd.

    A session that is being written is exported as it stood at one moment. Output of a command that has not ended, or
    whose agent was killed, is exported as far as it goes, marked as partial. Every content is checked on the way: one
    that is damaged or missing is never exported as if it were whole. ``root_path``: where the session
    is: a directory, a URL or a ``SessionStores``; None means ``~/.agent/context``.

    Raises ``SessionNotFound``, ``NameTaken`` (the file is there), ``CorruptContent`` (it names the file: restore it),
    ``CorruptJournal`` (it is lost: opening the session for writing rebuilds it) and ``WriteFailed``; then no file is
    left behind.
    """
    target = await run_to_completion(lambda: absolute_root(file))
    port: FileSystem = fs if fs is not None else OsFileSystem()
    stores = await resolved_stores(root_path, fs=fs)
    source = ThreadedStore(stores.store(check_session_id(session_id)))
    await source.open(create=False, write=False)
    try:
        held = await _held(source, session_id)
        writer = await result_of(lambda: ArchiveWriter.create(target, port, compressed=compress))
        try:
            size = await _write_archive(source, writer, held)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await result_of(partial(writer.abandon, error))
            raise
        return Transferred(
            session_id=session_id, path=target, store=stores.url, files=writer.files - 1, size_bytes=size
        )
    finally:
        await uninterrupted(source.close)()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A session at one moment: its journal, and contents by name. Files in ``growing`` may still become longer."""

    session_id: str
    log: Sequence[bytes]
    stored: Sequence[Stored]
    growing: frozenset[str]


async def _held(store: ThreadedStore, session_id: str) -> _Held:
    log = await store.read_log()
    found = await result_of(lambda: scan(log))
    if not found.last_seq:
        raise CorruptJournal(session_id, "is gone: open the session for writing once to rebuild it")
    if found.damages:
        damage = found.damages[0]
        where = f"is damaged at byte {damage.offset:,} ({damage.reason})"
        raise CorruptJournal(session_id, f"{where}: it is not exported; copy its directory, or `ctxfs copy` it")
    state = await result_of(lambda: fold(SessionState(), found.records))
    growing = await growing_logs(store, state, await store.names(TERMINAL))
    fold(state, growing)
    lines = [log[: found.end]]
    if growing:
        # Opening the session for writing would add this line; importing then need not add anything to the journal.
        lines.append(encode_line(found.last_seq + 1, growing))
    return _Held(
        session_id=_started_as(found) or session_id,
        log=lines,
        stored=_by_name(state),
        growing=frozenset(entry.name for entry in growing),
    )


async def _write_archive(store: ThreadedStore, writer: ArchiveWriter, held: _Held) -> int:
    await result_of(lambda: writer.begin(held.session_id, len(held.stored)))
    await result_of(lambda: writer.part(LOG_NAME, held.log, sum(map(len, held.log))))
    for entry in held.stored:
        await check_file(store, entry, grows=entry.name in held.growing)
        size = file_bytes(entry)
        await result_of(partial(writer.open_part, entry.name, size))
        for offset in range(0, size, CHUNK_BYTES):
            piece = await store.read(entry.name, offset, min(CHUNK_BYTES, size - offset))
            await result_of(partial(writer.write, piece))
        await result_of(writer.close_part)
    return await result_of(writer.end)


# ---- import


@names_settings({"store": STORE_IS_ROOT_PATH})
async def import_session(
    file: str | Path,
    *,
    root_path: str | Path | SessionStores | None = None,
    session_id: str | None = None,
    max_bytes: int = MAX_BYTES,
    max_files: int = MAX_FILES,
    fs: FileSystem | None = None,
) -> Transferred:
    """Make a session from an exported one; it appears whole, under one name, or not at all.

    ``session_id``: None keeps its id. ``max_bytes`` limits the contents and the journal together, compressed contents
    by their decompressed size; ``max_files`` limits the number of contents. Every checksum is checked, those of the
    contents against the journal. Paths in the session's history, which name the place where it was, lead to the
    imported session's files. Nothing is added to its journal. ``root_path``: where it is created, as in
    ``export_session``.

    Raises ``SessionExists`` (give it another ``session_id``), ``ArchiveError`` (``ArchiveDamaged``, ``ArchiveUnsafe``,
    ``ArchiveTooLarge``), ``ConfigError`` and ``WriteFailed``; then nothing is left behind.
    """
    archive = await run_to_completion(lambda: absolute_root(file))
    stores = await resolved_stores(root_path, fs=fs)
    source = await result_of(lambda: ArchiveReader.open(archive, max_bytes, max_files))
    try:
        target = check_session_id(source.session_id) if session_id is None else check_session_id(session_id)
    except ConfigError as error:
        source.close()
        if session_id is None:
            raise ArchiveUnsafe(f"the archive's session id is invalid: {error}") from error
        raise
    try:
        async with making(stores, target) as made:
            stored = await _take_in(source, made, target)
        path = archive if stores.directory is None else stores.directory / target
        return Transferred(
            session_id=target, path=path, store=stores.url, files=len(stored), size_bytes=source.size_bytes
        )
    finally:
        with anyio.CancelScope(shield=True):
            await result_of(source.close)


async def _take_in(source: ArchiveReader, store: ThreadedStore, session_id: str) -> Sequence[Stored]:
    """Write the contents of the archive into the store, and check all of them."""
    log = await result_of(source.journal)
    found, stored = await result_of(lambda: _examine(log))
    if _started_as(found) not in (None, source.session_id):
        raise ArchiveUnsafe("the archive and its journal are not of the same session")
    source.check_size(sum(entry.size_bytes for entry in stored if entry.compression))
    if len(stored) != source.files:
        raise ArchiveUnsafe(f"the archive announces {source.files} contents, and its journal {len(stored)}")
    await store.commit([], lambda: log)
    for entry in stored:
        size = await result_of(partial(source.open_part, entry.name))
        expected = file_bytes(entry)
        if size != expected:
            raise ArchiveUnsafe(
                f"the archive contradicts itself: {entry.name} has {size:,} bytes, by the journal {expected:,}"
            )
        await store.replace(entry.name, source.part(entry.name, size))
        try:
            index = await check_file(store, entry)
        except CorruptContent as error:
            raise ArchiveUnsafe(f"the archive contradicts itself: {error}") from error
        if entry.blocks > 1:
            await store.replace(index_name(entry.name), index.to_bytes())
    await result_of(source.end)
    if wants_index(store):
        await store.replace(INDEX_NAME, render_index(session_id, found.last_seq, stored))
    return stored


def _examine(log: bytes) -> tuple[Scan, Sequence[Stored]]:
    """Read an archive's journal, and check that no name in it can do harm."""
    try:
        found = scan(log, stops_at_damage=True)
        if not found.last_seq or found.torn_bytes:
            raise ArchiveDamaged("the archive's journal cannot be read")
        if found.damages:  # an export has none
            damage = found.damages[0]
            raise ArchiveUnsafe(f"the archive's journal is damaged at byte {damage.offset:,}: {damage.reason}")
        state = fold(SessionState(), found.records)
        for record in found.records:
            if isinstance(record, WriterOpened) and not (_all_are(int, record.epoch) and _all_are(str, record.path)):
                raise ArchiveUnsafe("the archive's journal has a writer with an invalid number")
        stored = _by_name(state)
        _check_names(stored)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ArchiveUnsafe(f"the archive's journal holds an invalid record: {error}") from error
    return found, stored


def _check_names(stored: Sequence[Stored]) -> None:
    """Check every file that the journal refers to: that its place is safe, and its figures are numbers."""
    seen: set[str] = set()
    directories: set[str] = set()
    for entry in stored:
        numbers = (entry.size_bytes, entry.chars, entry.lines, entry.blocks, entry.content_offset, entry.content_length)
        if not _all_are(int, *numbers, entry.offloaded_at) or min(numbers) < 0:
            raise ArchiveUnsafe(f"{entry.name!r} has an invalid size")
        known = entry.encoding in ENCODINGS and entry.compression in ("", ZSTD)
        known = known and _all_are(bool, entry.raw) and _all_are(dict, entry.metadata)
        if not known or not _all_are(str, entry.item_id, entry.digest):
            raise ArchiveUnsafe(f"{entry.name!r} has an invalid record")
        try:
            parts = check_name(entry.name)
        except UnsafePath as error:
            raise ArchiveUnsafe(str(error)) from error
        name = entry.name.casefold()
        if is_hidden(entry.name) or len(parts) > MAX_DEPTH or name in {LOG_NAME, INDEX_NAME}:
            raise ArchiveUnsafe(f"{entry.name!r} is not the name of a content")
        if name in seen:
            raise ArchiveUnsafe(f"{entry.name!r} appears twice")
        seen.add(name)
        directories.update("/".join(parts[:depth]).casefold() for depth in range(1, len(parts)))
    clash = sorted(seen & directories) or sorted(name for name in seen if index_name(name) in seen)
    if clash:
        raise ArchiveUnsafe(f"{clash[0]!r} conflicts with another file")


def _all_are(kind: type, *values: object) -> bool:
    """Whether the values have the types that a record declares: the JSON may come from anybody."""
    return all(type(value) is kind for value in values)


def _by_name(state: SessionState) -> Sequence[Stored]:
    return sorted(state.stored.values(), key=lambda entry: entry.name)


def _started_as(found: Scan) -> str | None:
    """Return the session's first id, even if it was imported under another one; None if it is lost."""
    return next((record.session_id for record in found.records if isinstance(record, SessionStarted)), None)
