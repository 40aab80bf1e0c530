"""Copying a session from one store to another: the same files, the same log.

A copy that is in two places is brought up to date, byte for byte.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from ctxfs.errors import CorruptJournal, SessionDiverged, SessionExists, SessionNotFound
from ctxfs.messages.names import check_session_id
from ctxfs.session.content.blocks import is_block_index
from ctxfs.session.index import INDEX_NAME, render_index, wants_index
from ctxfs.session.journal import scan
from ctxfs.session.state import SessionState, fold
from ctxfs.storage.base import NewFile
from ctxfs.storage.sessions import MakingStores, SessionStores
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import result_of, run_to_completion, uninterrupted
from ctxfs.storage.urls import resolved_stores, stores_at

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What was copied: the number of files, and the bytes of files and log together."""

    files: int
    size_bytes: int


@asynccontextmanager
async def making(stores: SessionStores, session_id: str) -> AsyncIterator[ThreadedStore]:
    """Yield the store of a session that appears once it is complete.

    If a place cannot do that (see ``MakingStores``), the session is made in a directory and then copied.
    """
    if isinstance(stores, MakingStores):
        async with stores.making(session_id) as store:
            yield store
        return
    directory = await result_of(lambda: tempfile.mkdtemp(prefix="ctxfs-"))
    staged = ThreadedStore(stores_at(directory).store(session_id))
    try:
        await staged.open(create=True, write=True)
        yield staged
        await _publish(staged, stores, session_id)
    finally:
        await uninterrupted(partial(_discard, staged, directory))()


async def _publish(staged: ThreadedStore, stores: SessionStores, session_id: str) -> None:
    target = ThreadedStore(stores.store(session_id))
    await target.open(create=True, write=True)
    try:
        if await target.read_log() or await target.names():
            raise SessionExists(session_id, stores.url)
        await bring_up_to_date(staged, target, session_id)
    finally:
        await uninterrupted(target.close)()


async def _discard(staged: ThreadedStore, directory: str) -> None:
    await staged.close()
    await run_to_completion(partial(shutil.rmtree, directory))


async def bring_up_to_date(source: ThreadedStore, target: ThreadedStore, session_id: str) -> Copied:
    """Copy everything in ``source`` to ``target``, which is open for writing; all of it, or nothing.

    Raises ``SessionDiverged`` if the log of ``target`` is not a prefix of that of ``source``; nothing changes then.
    """
    log = await source.read_log()
    log = log[: log.rfind(b"\n") + 1]  # the last line may be one that is being written
    known = await target.read_log()
    if not log.startswith(known):
        raise SessionDiverged(session_id)
    names = [name for name in await source.names() if name != INDEX_NAME]
    there = set(await target.names())
    new = [await _file(source, name) for name in names if name not in there]
    changed = [await _file(source, name) for name in names if name in there and not await _same(source, target, name)]
    for file in changed:  # one that grows, or that is derived
        await target.replace(file.name, file.chunks)
    if new or len(log) > len(known):
        await target.commit(new, lambda: log[len(known) :])
    if wants_index(target):
        # After the log, and from it: the index of the source may know lines that a writer added since the log was read.
        index = await run_to_completion(lambda: _index(session_id, log))
        if INDEX_NAME not in there or await target.read(INDEX_NAME) != index:
            await target.replace(INDEX_NAME, index)
    gone = sorted(there.difference(names, [INDEX_NAME]))
    if gone:
        await target.delete(gone)
    copied = [*new, *changed]
    size = len(log) - len(known)
    for file in copied:
        size += await source.size(file.name)
    return Copied(files=len(copied), size_bytes=size)


def _index(session_id: str, log: bytes) -> bytes:
    found = scan(log)
    return b"".join(render_index(session_id, found.last_seq, fold(SessionState(), found.records).stored.values()))


async def _same(source: ThreadedStore, target: ThreadedStore, name: str) -> bool:
    """Whether both have the same file of this name. Contents never change, so only a growing file differs, in size."""
    if await source.size(name) != await target.size(name):
        return False
    return not is_block_index(name) or await source.read(name) == await target.read(name)


async def _file(source: ThreadedStore, name: str) -> NewFile:
    chunks = FilePieces(source, name, await source.size(name))
    return NewFile(name=name, chunks=chunks, derived=is_block_index(name))


@dataclass(frozen=True, slots=True)
class FilePieces:
    """The bytes of a file in another store, in pieces, each read when it is asked for, in a worker thread."""

    store: ThreadedStore
    name: str
    size_bytes: int

    def __iter__(self) -> Iterator[bytes]:
        spans = ((at, _PIECE_BYTES) for at in range(0, self.size_bytes, _PIECE_BYTES))
        return self.store.pieces(self.name, spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedSession:
    """What was copied: ``files``, and the ``size_bytes`` of these and the journal; both 0: the copy was up to date."""

    session_id: str
    source: str
    target: str
    files: int
    size_bytes: int


async def copy_session(session_id: str, source: SessionStores | str, target: SessionStores | str) -> CopiedSession:
    """Bring the copy of a session in another place up to date, or create it.

    It then has the same contents and the same journal, byte for byte, and the index, if one is kept. A session that is
    being written is copied as it stood at one moment. If the copy is an earlier state of the session, what is missing
    is added. The copy appears, or changes, as a whole or not at all. ``source`` and ``target`` are URLs or
    ``SessionStores``.

    Raises:
        SessionNotFound: there is no such session in ``source``.
        SessionDiverged: both copies were written to; nothing is changed.
        SessionLocked: a writer has the copy open.
        CorruptJournal: the journal of the session is lost: opening it for writing rebuilds it.
        ConfigError, WriteFailed, OutcomeUnknown: a place cannot be used.
    """
    here = await resolved_stores(source)
    there = await resolved_stores(target)
    store = ThreadedStore(here.store(check_session_id(session_id)))
    await store.open(create=False, write=False)
    try:
        if not await store.read_log():
            raise CorruptJournal(session_id, "is gone: open the session for writing once to rebuild it")
        done = await _copied(store, there, session_id)
    finally:
        await uninterrupted(store.close)()
    return CopiedSession(
        session_id=session_id, source=here.url, target=there.url, files=done.files, size_bytes=done.size_bytes
    )


async def _copied(source: ThreadedStore, stores: SessionStores, session_id: str) -> Copied:
    target = ThreadedStore(stores.store(session_id))
    makes = isinstance(stores, MakingStores)
    try:
        await target.open(create=not makes, write=True)
    except SessionNotFound:
        assert isinstance(stores, MakingStores)
        async with stores.making(session_id) as made:
            return await bring_up_to_date(source, made, session_id)
    try:
        return await bring_up_to_date(source, target, session_id)
    finally:
        await uninterrupted(target.close)()
