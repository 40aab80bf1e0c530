"""Erase contents for good: from their files, the journal's lines, archives and everything derived from them.

The tombstones are durable first: from then on, no reader gets the contents. Then the files are deleted, and the
archives and the journal are rewritten, each in one step; each line of the journal keeps its number and its length.
After a crash between these steps the session can still be opened; erasing the same items again finishes the rest. In a
store on a server, all of this is done as its one writer, so that a writer that was silent before is refused afterwards.
"""

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio

from ctxfs.errors import ConfigError, CorruptContent, CtxfsError, NotStored, SessionNotFound, UnknownItem, WriteFailed
from ctxfs.errors.checks import names_settings
from ctxfs.session.archive import without_items
from ctxfs.session.cleanup.eraser import Eraser, Held, Quotes, checksums, equals, held, related
from ctxfs.session.cleanup.live import text_of
from ctxfs.session.content.blocks import index_name
from ctxfs.session.content.file import ContentFile
from ctxfs.session.content.reader import ContentReader
from ctxfs.session.content.stored import Stored
from ctxfs.session.derived import forget
from ctxfs.session.filesystem import ContextFileSystem, storage_of
from ctxfs.session.journal import rewritten
from ctxfs.session.journal_writer import Commit
from ctxfs.session.listing.summary import problem_of
from ctxfs.session.records import ContentRemoved, Record
from ctxfs.storage.base import read_log_now
from ctxfs.storage.port import FileSystem
from ctxfs.storage.sessions import SessionStores, session_ids
from ctxfs.storage.task_group import TaskGroup
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import run_in_steps, run_to_completion
from ctxfs.storage.urls import STORE_IS_ROOT_PATH, resolved_stores
from ctxfs.text.steps import checkpoint

logger = logging.getLogger("ctxfs.session")

_OPENED_AT_ONCE = 16
"""How many other sessions are examined at the same time."""

_PLAIN = re.compile(r"[A-Za-z0-9_.~-]+")
"""An id that is the same in JSON."""

_FIGURES = "the id, size, lines and tokens of each item: the sums of the session"
_ELSEWHERE = "sessions elsewhere, and what a framework, a provider or a log has kept"
_LEFT_IN_DIRECTORY = (
    _FIGURES,
    "exports of this session, and backups of its directory",
    _ELSEWHERE,
    "the blocks of the disk that held it, until they are written again",
)
_LEFT_IN_STORE = (
    _FIGURES,
    "exports of this session, and copies of it in a directory or another store",
    _ELSEWHERE,
    "read caches other than the one of this URL (?cache=DIR): remove their directories",
    "earlier versions, snapshots and backups of the bucket or database",
    "a database's dead rows, until it has vacuumed them",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedItem:
    """An item that is erased. ``name``: its file in the session; ``size_bytes``: what the content took."""

    item_id: str
    name: str
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """What erasing removes from a session, and what it does not reach.

    ``archives``: ids of the archives with an erased item; they are rewritten. ``quoted_in``: other items, and notes,
    that equal an erased content, or have a line or a long word of it; they are kept: erase them too if they must go.
    ``other_sessions``: those in the same place that share the content, such as forks. ``not_reached``: whatever else
    may hold it, as one line each.
    """

    session_id: str
    items: tuple[ErasedItem, ...]
    archives: tuple[str, ...]
    quoted_in: tuple[str, ...]
    other_sessions: tuple[str, ...]
    not_reached: tuple[str, ...]


@names_settings({"store": STORE_IS_ROOT_PATH})
async def erase_plan(
    session_id: str,
    item_ids: Sequence[str],
    *,
    root_path: str | Path | SessionStores | None = None,
) -> Erasure:
    """Say what ``erase`` with the same arguments would do; nothing is changed. Raises what ``erase`` raises."""
    stores = await resolved_stores(root_path)
    async with _rewritable(stores, session_id, time.time, read_only=True) as fs:
        found = await _held(fs)
        return await _with_others(await _plan(fs, found, item_ids), found, stores)


@names_settings({"store": STORE_IS_ROOT_PATH})
async def erase(
    session_id: str,
    item_ids: Sequence[str],
    *,
    root_path: str | Path | SessionStores | None = None,
    by: str = "ctxfs.session.erase",
    reason: str = "for good",
    clock: Callable[[], float] = time.time,
    fs: FileSystem | None = None,
) -> Erasure:
    """Erase contents for good: their files, and every copy in the journal, in archives and in derived data.

    The id of an item and its size remain, and a note of who erased it, why and when. All other items stay as they were.
    Erasing an item again finishes what a crash cut short.

    Args:
        session_id: the session.
        item_ids: the items, as ``ctxfs ls`` and placeholders name them; ids, file names or paths.
        root_path: where sessions are: a directory, a URL (``s3://bucket/prefix``) or a ``SessionStores``; None means
            ``~/.agent/context``. The session is taken over as by any writer. The contents are also removed from the
            ``ReadCache`` of this place.
        by: who erases them; later readers are shown this.
        reason: why, for the same readers; it stays in the session, so it must not reveal the content.
        clock: gives seconds since the epoch.
        fs: used instead of the operating system's calls, in a directory.

    Raises:
        UnknownItem: no item with that name was ever in the session; nothing is erased.
        ConfigError: no item was given, or the store is one of your own without ``rewrite``.
        SessionLocked: an agent writes to it; outside of a directory, it did so within its lease.
        SessionNotFound: there is no such session.
        WriteFailed, OutcomeUnknown: something cannot be written: erase the same items again.

    """
    stores = await resolved_stores(root_path, fs=fs)
    session = _rewritable(stores, session_id, clock)
    await session.open(create=False)
    try:
        found = await _held(session)
        plan = await _with_others(await _plan(session, found, item_ids), found, stores)
        await _carry_out(session, found, plan, by=by, reason=reason, now=clock())
    finally:
        await session.close()
    if stores.directory is not None:
        await run_to_completion(partial(forget, stores.directory, session_id))
    logger.info("session %s: %s erased %d contents", session_id, by, len(plan.items))
    return plan


async def erase_in(fs: ContextFileSystem, item_ids: Sequence[str], *, by: str, reason: str, now: float) -> Erasure:
    """Erase contents of a session that is open for writing.

    The session has to be opened again afterwards, since its state in memory still has them. Other sessions are not
    examined. Raises what ``erase`` raises.
    """
    found = await _held(fs)
    plan = await _plan(fs, found, item_ids)
    await _carry_out(fs, found, plan, by=by, reason=reason, now=now)
    return plan


def _rewritable(
    stores: SessionStores, session_id: str, clock: Callable[[], float], *, read_only: bool = False
) -> ContextFileSystem:
    fs = ContextFileSystem(session_id, root_path=stores, clock=clock, read_only=read_only)
    if not storage_of(fs).can_rewrite:
        raise ConfigError(f"{stores.url} cannot remove a content for good: its store needs `rewrite`")
    return fs


async def _held(fs: ContextFileSystem) -> Held:
    records = await fs.history()
    return await run_in_steps(lambda: held(records))


async def _with_others(plan: Erasure, found: Held, stores: SessionStores) -> Erasure:
    sharing = await _sharing(plan.session_id, found, [item.item_id for item in plan.items], stores)
    return replace(plan, other_sessions=sharing)


async def _plan(fs: ContextFileSystem, found: Held, item_ids: Sequence[str]) -> Erasure:
    asked = _asked(fs, found, item_ids)
    reasons = await run_in_steps(lambda: related(found, asked))
    contents = [await _content(fs, found, item_id) for item_id in reasons]
    quotes = await run_in_steps(lambda: Quotes(contents))
    others = [item_id for item_id in (found.items | found.stored) if item_id not in reasons]
    archives: list[str] = []
    for archive, archived_ids in found.archives.items():
        if archive not in reasons and not archived_ids.isdisjoint(reasons):
            archives.append(archive)
    quoting = await _quoting(fs, found, quotes, others, archives, equal=equals(found, reasons))
    quoting += [f"note {number}" for number, text in found.notes.items() if quotes.found_in(text)]
    not_reached: list[str] = []
    if fs.recovery.damages:
        not_reached.append(f"damaged lines of the journal ({len(fs.recovery.damages):,})")
    for archive in archives:
        if await _old(storage_of(fs), found, archive) is None:
            not_reached.append(f"the archive {archive}, which cannot be read")
    not_reached += _LEFT_IN_STORE if storage_of(fs).directory is None else _LEFT_IN_DIRECTORY
    return Erasure(
        session_id=fs.session_id,
        items=tuple(_erased(found, item_id, why) for item_id, why in reasons.items()),
        archives=tuple(archives),
        quoted_in=tuple(quoting),
        other_sessions=(),
        not_reached=tuple(not_reached),
    )


def _asked(fs: ContextFileSystem, found: Held, item_ids: Sequence[str]) -> list[str]:
    """The ids of the items that these ids, file names or paths name. Raises ``ConfigError`` and ``UnknownItem``."""
    if not item_ids:
        raise ConfigError("no item to erase: name at least one, as `ctxfs ls` shows it")
    known = found.items.keys() | found.stored.keys() | found.tombstones.keys()
    asked: list[str] = []
    for given in item_ids:
        item_id = given if given in known else fs.find(given)
        if item_id is None:
            raise UnknownItem(given)
        asked.append(item_id)
    return asked


async def _quoting(
    fs: ContextFileSystem,
    found: Held,
    quotes: Quotes,
    others: Sequence[str],
    archives: Collection[str],
    *,
    equal: Collection[str],
) -> list[str]:
    """Those of ``others`` that are ``equal``, or have a line or a long word of the erased contents, in their order."""

    def by_journal() -> set[str]:
        return {one for one in others if one in equal or _quotes_in(quotes, found.texts.get(one, []))}

    # The journal's texts are looked through in one piece of work: a thread for each of many short ones takes three
    # times as long as to look. Contents in files are loaded one by one, so that no more than one is in memory.
    quoting = await run_in_steps(by_journal)
    for item_id in others:
        if item_id in fs.state.stored and item_id not in quoting and item_id not in archives:  # these are rewritten
            text = await _content(fs, found, item_id)
            if await run_in_steps(partial(_quotes_in, quotes, [text])):
                quoting.add(item_id)
    return [item_id for item_id in others if item_id in quoting]


def _quotes_in(quotes: Quotes, texts: Sequence[str]) -> bool:
    checkpoint()
    return any(quotes.found_in(text) for text in texts)


def _erased(found: Held, item_id: str, why: str) -> ErasedItem:
    stored = found.stored.get(item_id)
    if stored is not None:
        return ErasedItem(item_id=item_id, name=stored[-1].name, size_bytes=stored[-1].size_bytes, reason=why)
    gone = found.tombstones.get(item_id)
    if gone is not None:
        return ErasedItem(item_id=item_id, name=gone.name, size_bytes=gone.size_bytes, reason=why)
    size = len(found.texts[item_id][0].encode("utf-8", "surrogatepass"))
    return ErasedItem(item_id=item_id, name=found.items[item_id].name, size_bytes=size, reason=why)


async def _content(fs: ContextFileSystem, found: Held, item_id: str) -> str:
    """The content of an item when it entered, as far as it can be read."""
    if item_id in fs.state.stored:
        try:
            return text_of(await fs.load(item_id))
        except (CorruptContent, NotStored):  # a damaged one is erased like any other
            return ""
    return found.texts.get(item_id, [""])[0]


async def _sharing(session_id: str, found: Held, item_ids: Collection[str], stores: SessionStores) -> tuple[str, ...]:
    """The other sessions of the place that have one of the contents, or the history to which it belonged."""
    digests = checksums(found, item_ids)
    marks = [digest.encode() for digest in digests] + [_mark(item_id) for item_id in item_ids]
    sharing: list[str] = []
    origins: dict[str, str] = {}  # of sessions with one of the items: the session that each is a fork of
    limit = anyio.CapacityLimiter(_OPENED_AT_ONCE)

    async def look(name: str) -> None:
        async with limit:
            if not await _may_share(stores, name, marks):
                return
            try:
                async with ContextFileSystem(name, root_path=stores, read_only=True) as other:
                    if any(stored.digest in digests for stored in other.state.stored.values()):
                        sharing.append(name)
                    elif not other.state.ids.isdisjoint(item_ids):
                        origins[name] = (await _held(other)).forked_from
            except SessionNotFound:  # it has just been removed
                return
            except Exception as error:  # noqa: BLE001 - it may share the content all the same
                sharing.append(f"{name} ({problem_of(name, error)})")

    async with TaskGroup() as group:
        for name in await session_ids(stores):
            if name != session_id:
                group.start_soon(look, name)
    # An item of the same id is the same item in a fork.
    family = _with_forks({session_id, found.forked_from} - {""}, origins)
    return tuple(sorted({*sharing, *(family & origins.keys())}))


def _with_forks(sessions: set[str], origins: Mapping[str, str]) -> set[str]:
    """``sessions``, their forks, the forks of these, and so on; ``origins``: which session each is a fork of."""
    family = set(sessions)
    while forks := {name for name, origin in origins.items() if origin in family} - family:
        family |= forks
    return family


def _mark(item_id: str) -> bytes:
    """Bytes that occur in the journal of any session with such an item."""
    if _PLAIN.fullmatch(item_id):
        return item_id.encode()
    return b""  # which is in every journal: all sessions are opened


async def _may_share(stores: SessionStores, session_id: str, marks: Sequence[bytes]) -> bool:
    """Whether a session has to be opened to know; for most, a look at the bytes of the journal rules it out."""
    if stores.directory is None:
        return True

    def look() -> bool:
        try:
            log = read_log_now(stores.store(session_id))
        except CtxfsError:
            return True
        return not log or any(mark in log for mark in marks)

    return await run_to_completion(look)


async def _carry_out(fs: ContextFileSystem, found: Held, plan: Erasure, *, by: str, reason: str, now: float) -> None:
    store = storage_of(fs)
    item_ids = [item.item_id for item in plan.items]
    archives: list[ContentFile] = []
    digests: dict[str, str] = {}
    for archive in plan.archives:
        file = await _new_archive(store, found, archive, frozenset(item_ids))
        if file is not None:
            archives.append(file)
            digests[archive] = file.stored.digest
        elif archive in found.stored:  # it has none of the items any more, or cannot be read: its last record stays
            digests[archive] = found.stored[archive][-1].digest
    log = await store.read_log()
    # What cannot be done is found before anything changes.
    await run_in_steps(lambda: rewritten(log, Eraser(item_ids, digests)))
    records: list[Record] = []
    for item in plan.items:
        gone = found.tombstones.get(item.item_id)
        if gone is None or not gone.erased:
            records.append(_tombstone(found, item, now, by, reason))
    records += [file.stored for file in archives]
    together = store.is_shared  # else a file can only be replaced after the commit
    if records:
        await fs.writer.journal.commit(Commit(records=records, replacing=archives if together else ()))
    try:
        await _remove_bytes(store, plan, digests, [] if together else archives)
    except WriteFailed as error:
        left = "no reader is given what was erased, but the place still holds it: erase the same items again"
        raise WriteFailed(plan.session_id, f"{error.reason}; {left}") from error


async def _remove_bytes(
    store: ThreadedStore, plan: Erasure, digests: Mapping[str, str], archives: Sequence[ContentFile]
) -> None:
    """Remove the contents from files, archives and log, once their tombstones are durable.

    ``digests``: those of the archives without the contents. ``archives``: the new ones that are not written yet.
    """
    gone: list[str] = []
    for item in plan.items:
        gone += (item.name, index_name(item.name))
    gone += [index_name(file.name) for file in archives]
    await store.delete(gone)
    for file in archives:
        await store.replace(file.name, file)
    log = await store.read_log()
    eraser = Eraser([item.item_id for item in plan.items], digests)
    new = await run_in_steps(lambda: rewritten(log, eraser))
    if new != log or store.is_shared:  # a server may still hold deleted bytes
        await store.rewrite(new)


def _tombstone(found: Held, item: ErasedItem, now: float, by: str, reason: str) -> ContentRemoved:
    gone = found.tombstones.get(item.item_id)
    if gone is not None:
        return replace(gone, erased=True, removed_at=now, by=by, reason=reason)
    stored = found.stored.get(item.item_id)
    if stored is not None:
        return replace(ContentRemoved.of(stored[-1], removed_at=now, by=by, reason=reason), erased=True)
    added = found.items[item.item_id]
    text = found.texts[item.item_id][0]
    return ContentRemoved(
        item_id=item.item_id,
        item_type=added.item_type,
        name=item.name,
        tool_name=added.tool_name or "",
        size_bytes=item.size_bytes,
        lines=text.count("\n") + (not text.endswith("\n")),
        removed_at=now,
        by=by,
        reason=reason,
        erased=True,
    )


async def _old(store: ThreadedStore, found: Held, archive: str) -> tuple[Stored, str] | None:
    """An archive's record and text: the last record that fits its file, which after a crash may be the one before."""
    for stored in reversed(found.stored.get(archive, [])):
        try:
            return stored, text_of(await ContentReader(store, stored).load())
        except (CorruptContent, NotStored):
            continue
    return None


async def _new_archive(
    store: ThreadedStore, found: Held, archive: str, item_ids: Collection[str]
) -> ContentFile | None:
    """The archive without the items, once it was iterated; None if there is nothing to write."""
    old = await _old(store, found, archive)
    if old is None:
        return None
    stored, text = old
    new = await run_in_steps(lambda: without_items(text, item_ids))
    if new == text and stored is found.stored[archive][-1]:
        return None
    file = ContentFile(
        new,
        item_id=archive,
        item_type=stored.item_type,
        name=stored.name,
        raw=stored.raw,
        offloaded_at=stored.offloaded_at,
        extra={name: value for name, value in stored.metadata.items() if name != "encoding"},
        compressed=bool(stored.compression),
    )
    await run_in_steps(lambda: sum(map(len, file)))
    return file
