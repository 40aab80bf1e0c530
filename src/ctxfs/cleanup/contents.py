"""Remove stored contents that nothing refers to, or that must be deleted. Each leaves a tombstone in the journal."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ctxfs.cleanup.live import Collectable, PrunePlan, plan_prune
from ctxfs.errors import CtxfsError
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import ContentRemoved
from ctxfs.steps import run_in_steps
from ctxfs.storage.local import list_sessions
from ctxfs.storage.roots import resolved_root

__all__ = ["GRACE_S", "UNDO_S", "Pruned", "prune", "prune_plans", "prune_session", "remove_contents", "session_plan"]

UNDO_S = 30 * 86_400.0
"""How long an eviction can be undone, in seconds, unless another time is given."""
GRACE_S = 86_400.0
"""How long a stored content stays in any case, in seconds: its placeholder may not be written yet."""

Clock = Callable[[], float]

logger = logging.getLogger("ctxfs.cleanup")


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
    records, damaged = await fs.history(), bool(fs.recovery.damages)
    now = clock()
    return await run_in_steps(
        lambda: plan_prune(
            fs.session_id, records, now=now, undo_s=undo_s, grace_s=grace_s, archived_s=archived_s, damaged=damaged
        )
    )


async def prune_session(
    fs: ContextFileSystem,
    *,
    undo_s: float = UNDO_S,
    grace_s: float = GRACE_S,
    archived_s: float | None = None,
    by: str = "ctxfs.cleanup.prune",
    clock: Clock = time.time,
) -> PrunePlan:
    """Remove the contents that nothing refers to from a session that is open for writing, and return the plan.

    Raises ``SessionClosed`` when it is not, and ``WriteFailed``.
    """
    plan = await session_plan(fs, undo_s=undo_s, grace_s=grace_s, archived_s=archived_s, clock=clock)
    await remove_contents(fs, {one.item_id: one.reason for one in plan.collect}, by=by, clock=clock)
    return plan


async def remove_contents(
    fs: ContextFileSystem, reasons: dict[str, str], *, by: str, clock: Clock = time.time
) -> tuple[ContentRemoved, ...]:
    """Remove stored contents for good, whatever refers to them, and return their tombstones.

    ``reasons`` say why, by item id; ids of what is not stored are left out. Raises as ``prune_session``.
    """
    stored, now = fs.state.stored, clock()
    tombstones = tuple(
        ContentRemoved.of(stored[item_id], removed_at=now, by=by, reason=reason)
        for item_id, reason in reasons.items()
        if item_id in stored
    )
    if tombstones:
        await fs.writer.journal.remove(tombstones)
        await fs.writer.flush()
        logger.info("session %s: %s removed %d contents", fs.session_id, by, len(tombstones))
    return tombstones


async def prune_plans(
    session_ids: Sequence[str] | None = None,
    *,
    root_path: str | Path | None = None,
    undo_s: float = UNDO_S,
    grace_s: float = GRACE_S,
    archived_s: float | None = None,
    clock: Clock = time.time,
) -> tuple[Pruned, ...]:
    """Decide what ``prune`` with the same arguments would remove; nothing is changed."""
    root, found = await resolved_root(root_path), list[Pruned]()
    for session_id in await list_sessions(root) if session_ids is None else session_ids:
        fs = ContextFileSystem(session_id, root_path=root, read_only=True)
        try:
            async with fs:
                plan = await session_plan(fs, undo_s=undo_s, grace_s=grace_s, archived_s=archived_s, clock=clock)
                found.append(Pruned(plan=plan))
        except CtxfsError as error:  # one damaged session must not keep the others from being cleaned
            found.append(Pruned(plan=PrunePlan(session_id=session_id, collect=(), kept={}), skipped=str(error)))
    return tuple(found)


async def prune(
    session_ids: Sequence[str] | None = None,
    *,
    root_path: str | Path | None = None,
    undo_s: float = UNDO_S,
    grace_s: float = GRACE_S,
    archived_s: float | None = None,
    by: str = "ctxfs.cleanup.prune",
    clock: Clock = time.time,
) -> tuple[Pruned, ...]:
    """Remove the contents that nothing refers to from sessions.

    A session that an agent writes to is skipped. A fork keeps the files that it shares: it has its own names for them.

    Args:
        session_ids: which sessions; None: all under the root.
        root_path: the directory that holds sessions; None means ``~/.agent/context``.
        undo_s: for how many seconds an eviction can be undone; 0: not at all.
        grace_s: for how many seconds a stored content is kept in any case; 0: not at all.
        archived_s: after how many seconds an archived content is removed, though the archive names it; None: never.
        by: who removes it; a later reader is shown it.
        clock: gives seconds since the epoch.

    """
    done = list[Pruned]()
    planned = await prune_plans(
        session_ids, root_path=root_path, undo_s=undo_s, grace_s=grace_s, archived_s=archived_s, clock=clock
    )
    for one in planned:
        if one.skipped or not one.plan.collect:
            done.append(one)
            continue
        fs = ContextFileSystem(one.plan.session_id, root_path=root_path, clock=clock)
        try:
            await fs.open(create=False)
            try:
                plan = await prune_session(
                    fs, undo_s=undo_s, grace_s=grace_s, archived_s=archived_s, by=by, clock=clock
                )
            finally:
                await fs.close()
        except CtxfsError as error:
            done.append(Pruned(plan=one.plan, skipped=str(error)))
        else:
            done.append(Pruned(plan=plan))
    return tuple(done)
