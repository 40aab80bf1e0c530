"""Forks: sessions that continue from an earlier call of another one, and share its contents on the disk."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ctxfs.errors import CorruptJournal
from ctxfs.errors.checks import names_settings
from ctxfs.messages.names import check_session_id, new_session_id
from ctxfs.session.content.blocks import index_name
from ctxfs.session.content.stored import Stored
from ctxfs.session.copying import FilePieces, making
from ctxfs.session.index import INDEX_NAME, render_index
from ctxfs.session.journal import encode_line, scan
from ctxfs.session.records import ContentRemoved, Record, SessionStarted
from ctxfs.session.state import SessionState, fold
from ctxfs.session.timeline.timeline import Timeline
from ctxfs.storage.port import FileSystem
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import result_of, uninterrupted
from ctxfs.storage.urls import STORE_IS_ROOT_PATH, resolved_stores

_RECORDS_A_LINE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A new session. ``call``: the one that its next request repeats; ``path``: its directory, None if it has none.

    ``shared`` contents are on the disk once for both sessions, ``copied`` ones twice, because the file system cannot
    give one file two names. ``gone`` contents have been pruned or erased since that call: the fork says so of each.
    """

    session_id: str
    path: Path | None
    call: int
    shared: int
    copied: int
    gone: int = 0


@names_settings({"store": STORE_IS_ROOT_PATH})
async def fork_session(
    session_id: str,
    *,
    at: int | None = None,
    new_id: str | None = None,
    root_path: str | Path | SessionStores | None = None,
    fs: FileSystem | None = None,
) -> Forked:
    """Make a session that continues from the request of the call ``at`` of another one, which may be running.

    ``at``: None takes all of it. ``new_id``: None gives the session a generated id. Contents are immutable, so both
    sessions name the same files; either can be removed, and the other one keeps them. They are copied if a store
    cannot share them. ``root_path``: a directory, a URL or a ``SessionStores``; None is ``~/.agent/context``.
    The new session appears whole, or not at all.

    Raises:
        UnknownCall: there was no such call.
        SessionNotFound: there is no such session.
        SessionExists: there is already a session with the id ``new_id``.
        CorruptJournal: the journal is lost: opening the session for writing rebuilds it.
        ConfigError, WriteFailed: the directory cannot be used.

    """
    stores = await resolved_stores(root_path, fs=fs)
    source = ThreadedStore(stores.store(check_session_id(session_id)))
    if new_id is None:
        new_id = new_session_id(datetime.fromtimestamp(time.time(), UTC), random.SystemRandom())
    target = check_session_id(new_id)
    await source.open(create=False, write=False)
    try:
        records, call = await _history(source, session_id, target, at)
        return await _made(source, records, stores, target, call=call)
    finally:
        await uninterrupted(source.close)()


async def _history(source: ThreadedStore, session_id: str, target: str, at: int | None) -> tuple[Sequence[Record], int]:
    """The records of the fork ``target``, and the call that its next request repeats."""
    log = await source.read_log()
    found = await result_of(lambda: scan(log))
    if not found.last_seq:
        raise CorruptJournal(session_id, "is gone: open the session for writing once to rebuild it")
    started = SessionStarted(session_id=target, started_at=time.time(), forked_from=session_id, forked_at=at or 0)
    return await result_of(lambda: forked_records(found.records, started, at))


def forked_records(records: Sequence[Record], started: SessionStarted, at: int | None) -> tuple[Sequence[Record], int]:
    """The records of a fork from the request of the call ``at``, after ``started``; and that call's number. Pure.

    ``at``: None takes all. Later changes to stored contents hold in the fork too: some may have been removed, and
    archives rewritten without what was erased. Raises ``UnknownCall``.
    """
    timeline = Timeline(records)
    call = len(timeline.calls) + 1 if at is None else at
    before = timeline.records_before(at)
    state = fold(SessionState(), before)
    last_change: dict[str, Stored | ContentRemoved] = {}  # of each content, after the call
    for record in records[len(before) :]:
        if isinstance(record, Stored | ContentRemoved):
            last_change[record.item_id] = record
    later: list[Record] = []
    for item_id, change in last_change.items():
        if item_id in state.stored or _is_erased(change, state):
            later.append(change)
    layout = next((one.layout for one in before if isinstance(one, SessionStarted)), started.layout)
    rest = [one for one in before if not isinstance(one, SessionStarted)]
    return [replace(started, layout=layout), *rest, *later], call


def _is_erased(record: Stored | ContentRemoved, state: SessionState) -> bool:
    return isinstance(record, ContentRemoved) and record.erased and record.item_id in state.ids


async def _made(
    source: ThreadedStore, records: Sequence[Record], stores: SessionStores, target: str, *, call: int
) -> Forked:
    async with making(stores, target) as store:
        state = fold(SessionState(), records)
        stored = list(state.stored.values())
        copied = await _share(source, store, stored)
        log, lines = await result_of(lambda: _log(records))
        await store.commit([], lambda: log)
        await store.replace(INDEX_NAME, render_index(target, lines, stored))
    path = None if stores.directory is None else stores.directory / target
    shared = len(stored) - copied
    return Forked(session_id=target, path=path, call=call, shared=shared, copied=copied, gone=len(state.removed))


async def _share(source: ThreadedStore, store: ThreadedStore, stored: Sequence[Stored]) -> int:
    """Give the contents, with their block indexes, to the new session; return how many were copied.

    A content whose file is missing in the old session is missing in the new one too.
    """
    there = set(await source.names())
    contents = [entry.name for entry in stored]
    indexes = [index_name(entry.name) for entry in stored if entry.blocks > 1]
    names = [name for name in contents + indexes if name in there]
    refused = await store.share(names, source)
    for name in refused:
        await store.replace(name, FilePieces(source, name, await source.size(name)))
    return len(set(refused) - set(indexes))


def _log(records: Sequence[Record]) -> tuple[bytes, int]:
    """The journal of these records, and how many lines it has."""
    parts = [records[n : n + _RECORDS_A_LINE] for n in range(0, len(records), _RECORDS_A_LINE)]
    return b"".join(encode_line(number, part) for number, part in enumerate(parts, 1)), len(parts)
