"""A session in two places: bringing a copy up to date, byte for byte."""

from dataclasses import dataclass

from ctxfs.errors import CorruptJournal, SessionNotFound
from ctxfs.messages.names import check_session_id
from ctxfs.session.copying import Copied, bring_up_to_date
from ctxfs.storage.sessions import MakingStores, SessionStores
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import uninterrupted
from ctxfs.storage.urls import resolved_stores


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
