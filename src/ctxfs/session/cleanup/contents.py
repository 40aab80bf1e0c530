"""Remove stored contents that nothing refers to, or that must be deleted. Each leaves a tombstone in the journal."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ctxfs.errors import CtxfsError, StorageError
from ctxfs.errors.checks import names_settings
from ctxfs.session.cleanup.live import Collectable, PrunePlan, plan_prune
from ctxfs.session.filesystem import ContextFileSystem, storage_of
from ctxfs.session.listing.summary import problem_of
from ctxfs.session.records import ContentRemoved
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.sessions import session_ids as all_session_ids
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import run_in_steps
from ctxfs.storage.urls import STORE_IS_ROOT_PATH, resolved_stores

UNDO_S = 30 * 86_400.0
"""How long an eviction can be undone, in seconds, unless another time is given."""
GRACE_S = 86_400.0
"""How long a stored content stays in any case, in seconds: its placeholder may not be written yet."""

Clock = Callable[[], float]

logger = logging.getLogger("ctxfs.session")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """The outcome for one session: its plan, and why it was skipped ("": the plan was carried out)."""

    plan: PrunePlan
    skipped: str = ""

    @property
    def removed(self) -> tuple[Collectable, ...]:
        """The contents that were removed."""
        return () if self.skipped else self.plan.collect


async def session_plan(
    fs: ContextFileSystem,
    *,
    undo_s: float = UNDO_S,
    grace_s: float = GRACE_S,
    archived_s: float | None = None,
    clock: Clock = time.time,
) -> PrunePlan:
    """Decide which contents of an open session can be removed; see ``plan_prune``. Nothing is changed."""
    records = await fs.history()
    damaged = bool(fs.recovery.damages)
    now = clock()
    return await run_in_steps(
        lambda: plan_prune(
            fs.session_id, records, now=now, undo_s=undo_s, grace_s=grace_s, archived_s=archived_s, damaged=damaged
        )
    )


@names_settings()
async def prune_session(
    fs: ContextFileSystem,
    *,
    undo_s: float = UNDO_S,
    grace_s: float = GRACE_S,
    archived_s: float | None = None,
    by: str = "ctxfs.session.prune",
    clock: Clock = time.time,
) -> PrunePlan:
    """Remove the contents that nothing refers to from a session that is open for writing, and return the plan.

    Raises ``SessionClosed`` if it is not open for writing, and ``WriteFailed``.
    """
    plan = await session_plan(fs, undo_s=undo_s, grace_s=grace_s, archived_s=archived_s, clock=clock)
    await remove_contents(fs, {one.item_id: one.reason for one in plan.collect}, by=by, clock=clock)
    return plan


async def remove_contents(
    fs: ContextFileSystem, reasons: dict[str, str], *, by: str, clock: Clock = time.time
) -> tuple[ContentRemoved, ...]:
    """Remove stored contents for good, whatever refers to them, and return their tombstones.

    ``reasons``: why, by item id; ids that are not stored are ignored. Raises what ``prune_session`` raises.
    """
    stored = fs.state.stored
    now = clock()
    tombstones: list[ContentRemoved] = []
    for item_id, reason in reasons.items():
        if item_id in stored:
            tombstones.append(ContentRemoved.of(stored[item_id], removed_at=now, by=by, reason=reason))
    if tombstones:
        await fs.writer.journal.remove(tombstones)
        await fs.writer.flush()
        logger.info("session %s: %s removed %d contents", fs.session_id, by, len(tombstones))
    return tuple(tombstones)


@names_settings({"store": STORE_IS_ROOT_PATH})
async def prune_plans(
    session_ids: Sequence[str] | None = None,
    *,
    root_path: str | Path | SessionStores | None = None,
    undo_s: float = UNDO_S,
    grace_s: float = GRACE_S,
    archived_s: float | None = None,
    clock: Clock = time.time,
) -> tuple[Pruned, ...]:
    """Decide what ``prune`` with the same arguments would remove; nothing is changed."""
    stores = await resolved_stores(root_path)
    found: list[Pruned] = []
    for session_id in await all_session_ids(stores) if session_ids is None else session_ids:
        fs = ContextFileSystem(session_id, root_path=stores, read_only=True)
        try:
            async with fs:
                plan = await session_plan(fs, undo_s=undo_s, grace_s=grace_s, archived_s=archived_s, clock=clock)
                found.append(Pruned(plan=plan))
        except Exception as error:  # noqa: BLE001 - what is wrong with one must not keep the others from being cleaned
            nothing = PrunePlan(session_id=session_id, collect=(), kept={})
            found.append(Pruned(plan=nothing, skipped=problem_of(session_id, error)))
    return tuple(found)


@names_settings({"store": STORE_IS_ROOT_PATH})
async def prune(
    session_ids: Sequence[str] | None = None,
    *,
    root_path: str | Path | SessionStores | None = None,
    undo_s: float = UNDO_S,
    grace_s: float = GRACE_S,
    archived_s: float | None = None,
    by: str = "ctxfs.session.prune",
    clock: Clock = time.time,
) -> tuple[Pruned, ...]:
    """Remove the contents that nothing refers to from sessions, and, in a bucket, what killed writers left.

    A session that an agent writes to is skipped; outside of a directory, one that was written to within its lease.
    A fork keeps the files that it shares: it has its own names for them.

    Args:
        session_ids: which sessions; None: all of them.
        root_path: where sessions are: a directory, a URL (``s3://bucket/prefix``) or a ``SessionStores``; None means
            ``~/.agent/context``.
        undo_s: for how many seconds an eviction can be undone; 0: not at all.
        grace_s: for how many seconds a stored content is kept in any case; 0: not at all.
        archived_s: after how many seconds an archived content is removed, though the archive names it; None: never.
        by: who removes them; later readers are shown this.
        clock: gives seconds since the epoch.

    """
    stores = await resolved_stores(root_path)
    done: list[Pruned] = []
    planned = await prune_plans(
        session_ids, root_path=stores, undo_s=undo_s, grace_s=grace_s, archived_s=archived_s, clock=clock
    )
    for one in planned:
        if one.skipped:
            done.append(one)
            continue
        if not one.plan.collect:
            done.append(await _without_orphans(ThreadedStore(stores.store(one.plan.session_id)), one))
            continue
        fs = ContextFileSystem(one.plan.session_id, root_path=stores, clock=clock)
        try:
            await fs.open(create=False)
            try:
                plan = await prune_session(
                    fs, undo_s=undo_s, grace_s=grace_s, archived_s=archived_s, by=by, clock=clock
                )
                await _free(storage_of(fs), one.plan.session_id)
                await storage_of(fs).delete_orphans()
            finally:
                await fs.close()
        except CtxfsError as error:
            done.append(Pruned(plan=one.plan, skipped=str(error)))
        else:
            done.append(Pruned(plan=plan))
    return tuple(done)


async def _without_orphans(place: ThreadedStore, one: Pruned) -> Pruned:
    """Delete what killed writers left in a bucket. A session without it is only read: nobody is locked out."""
    if not place.is_shared:  # only there it can be
        return one
    try:
        await place.open(create=False, write=False)
        try:
            has_orphans = await place.has_orphans()
        finally:
            await place.close()
        if has_orphans:
            await place.open(create=False, write=True)
            try:
                count = await place.delete_orphans()
            finally:
                await place.close()
            logger.info("session %s: removed %d objects of killed writers", one.plan.session_id, count)
    except CtxfsError as error:
        return Pruned(plan=one.plan, skipped=str(error))
    return one


async def _free(store: ThreadedStore, session_id: str) -> None:
    """Free the space of removed contents if deleting them does not, because they share objects with others."""
    if store.is_shared and store.can_rewrite:
        try:
            await store.rewrite()
        except StorageError as error:
            logger.warning("session %s: removed contents still take space, until the next time: %s", session_id, error)
