"""Forget whole sessions: a plan is made, shown, and carried out; each session leaves a tombstone."""

import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ctxfs.errors import CtxfsError, QuotaExceeded
from ctxfs.errors.checks import names_settings, require_int
from ctxfs.session.cleanup.policy import ForgetPlan, ForgetPolicy, Verdict, plan_forget, verdict_on
from ctxfs.session.cleanup.usage import counted_once
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.journal_writer import Commit
from ctxfs.session.listing.summary import SessionSummary
from ctxfs.session.records import SessionTagged
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.sessions import SessionStores, has_writer
from ctxfs.storage.threads import run_to_completion
from ctxfs.storage.urls import STORE_IS_ROOT_PATH, resolved_stores

Clock = Callable[[], float]

logger = logging.getLogger("ctxfs.session")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What ``forget`` did: its plan, the removed sessions, and why others of the plan could not be removed."""

    plan: ForgetPlan
    removed: tuple[Verdict, ...]
    failed: tuple[tuple[Verdict, str], ...] = ()

    @property
    def size_bytes(self) -> int:
        """The size of the removed sessions."""
        return sum(verdict.size_bytes for verdict in self.removed)


@names_settings({"store": STORE_IS_ROOT_PATH})
async def forget_plan(
    policy: ForgetPolicy,
    *,
    root_path: str | Path | SessionStores | None = None,
    clock: Clock = time.time,
) -> ForgetPlan:
    """Decide which sessions of a place a policy forgets; nothing is changed.

    A file that several sessions share, such as forks, counts for the newest of them. ``root_path``: where the sessions
    are, as for ``Context``. Raises ``ConfigError`` if it cannot be read.
    """
    return await _plan(policy, await resolved_stores(root_path), clock, running=())


async def named_plan(session_ids: Sequence[str], stores: SessionStores) -> ForgetPlan:
    """The plan that forgets these sessions, which exist, and no other. Raises ``ConfigError`` as ``forget_plan``."""
    known = {summary.session_id: summary for summary in await counted_once(stores)}
    verdicts: list[Verdict] = []
    for session_id in session_ids:
        unlisted = SessionSummary(session_id=session_id, changed_at=0.0)
        verdicts.append(verdict_on(known.get(session_id, unlisted), forget=True, reason="it was named"))
    return ForgetPlan(verdicts=tuple(verdicts))


async def _plan(policy: ForgetPolicy, stores: SessionStores, clock: Clock, *, running: Collection[str]) -> ForgetPlan:
    """Plan with sessions that must stay: ``running``, and every session that has a writer."""
    summaries = await counted_once(stores)
    names = [summary.session_id for summary in summaries]
    written = await run_to_completion(lambda: {name for name in names if has_writer(stores, name)})
    return plan_forget(summaries, policy, now=clock(), running={*written, *running})


@names_settings({"store": STORE_IS_ROOT_PATH})
async def forget(
    policy: ForgetPolicy,
    *,
    root_path: str | Path | SessionStores | None = None,
    by: str = "ctxfs.session.forget",
    clock: Clock = time.time,
) -> Forgotten:
    """Remove the sessions of a place that a policy forgets, each as a whole or not at all.

    ``by`` names who removes them, and is shown to later readers; a place other than a directory keeps no
    tombstone. A session that an agent has begun to write to is kept, and reported: in such a place, one that was
    written to within its lease. Raises ``ConfigError`` if the place cannot be read.
    """
    stores = await resolved_stores(root_path)
    plan = await forget_plan(policy, root_path=stores, clock=clock)
    return await carry_out(plan, root_path=stores, by=by, clock=clock)


@names_settings({"store": STORE_IS_ROOT_PATH})
async def carry_out(
    plan: ForgetPlan,
    *,
    root_path: str | Path | SessionStores | None = None,
    by: str = "ctxfs.session.forget",
    clock: Clock = time.time,
) -> Forgotten:
    """Remove the sessions of a plan; see ``forget``."""
    stores = await resolved_stores(root_path)
    removed: list[Verdict] = []
    failed: list[tuple[Verdict, str]] = []
    for verdict in plan.forgotten:
        tombstone = {
            "session_id": verdict.session_id,
            "removed_at": clock(),
            "by": by,
            "reason": verdict.reason,
            "contents": verdict.contents,
            "size_bytes": verdict.size_bytes,
        }
        try:
            await stores.remove(verdict.session_id, tombstone=tombstone)
        except CtxfsError as error:
            failed.append((verdict, str(error)))
        else:
            removed.append(verdict)
            logger.info("session %s was removed by %s: %s", verdict.session_id, by, verdict.reason)
    return Forgotten(plan=plan, removed=tuple(removed), failed=tuple(failed))


@names_settings()
async def keep_quota(
    max_bytes: int,
    *,
    policy: ForgetPolicy | None = None,
    root_path: str | Path | SessionStores | None = None,
    by: str = "ctxfs.session.keep_quota",
    keep: Collection[str] = (),
    clock: Clock = time.time,
) -> Forgotten | None:
    """Keep the sessions under a root within ``max_bytes``: call it before a new session is begun.

    Args:
        max_bytes: how many bytes they may take up together.
        policy: which sessions may be forgotten for that, the oldest first, and no more than needed; its own limit is
            not used. None: none may, and the quota only refuses.
        root_path: where sessions are: a directory, a URL or a ``SessionStores``; None means ``~/.agent/context``.
        by: who removes them; later readers are shown this.
        keep: ids of sessions that stay, whatever the policy says.
        clock: gives seconds since the epoch.

    Returns what was forgotten, which is also logged as a warning; None if they fit.

    Raises:
        QuotaExceeded: they take up more, even after all that may be was forgotten; those sessions are gone.
        ConfigError: a bound that cannot work, or a root that cannot be read.

    """
    require_int("max_bytes", max_bytes, at_least=0)
    stores = await resolved_stores(root_path)
    used = sum(summary.disk_bytes for summary in await counted_once(stores))
    if used <= max_bytes:
        return None
    done = None
    if policy is not None:
        bounded = replace(policy, max_size_bytes=max_bytes)
        plan = await _plan(bounded, stores, clock, running=keep)
        done = await carry_out(plan, root_path=stores, by=by, clock=clock)
        used -= done.size_bytes
        text = "%s: %d sessions were forgotten, %d bytes, to keep the quota of %d bytes"
        logger.warning(text, stores.directory or stores.url, len(done.removed), done.size_bytes, max_bytes)
    if used > max_bytes:
        raise QuotaExceeded(str(stores.directory or stores.url), used, max_bytes)
    return done


@names_settings({"store": STORE_IS_ROOT_PATH})
async def tag_session(
    session_id: str,
    *,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    root_path: str | Path | SessionStores | None = None,
) -> tuple[str, ...]:
    """Add tags to a session, remove others, and return its tags; ``ForgetPolicy`` selects sessions by them.

    In a directory, a session with a journal stays as old as it was, since a tag does not use it.

    Raises ``SessionLocked`` while another writer has it, ``SessionNotFound`` and ``WriteFailed``.
    """
    # Opening for writing adds lines to the journal: a session that has these tags already is not written to.
    async with ContextFileSystem(session_id, root_path=root_path, read_only=True) as reader:
        tags = tuple(sorted({*reader.state.tags, *add} - {*remove}))
        if tags == reader.state.tags:
            return tags
    stores = await resolved_stores(root_path)
    journal: Path | None = None
    before: os.stat_result | None = None
    if stores.directory is not None:
        journal = stores.directory / session_id / LOG_NAME
        before = await run_to_completion(partial(_status, journal))
    fs = ContextFileSystem(session_id, root_path=stores)
    await fs.open(create=False)
    try:
        tags = tuple(sorted({*fs.state.tags, *add} - {*remove}))
        if tags != fs.state.tags:
            await fs.writer.journal.commit(Commit(records=[SessionTagged(tags=tags)]))
    finally:
        await fs.close()
    if journal is not None and before is not None:
        await run_to_completion(partial(_keep_age, journal, before))
    return tags


def _status(journal: Path) -> os.stat_result | None:
    """None: the session was kept without its journal."""
    with suppress(FileNotFoundError):
        return journal.stat()
    return None


def _keep_age(journal: Path, before: os.stat_result) -> None:
    """Leave a session as old as it was: its age is that of its journal, and `forget --keep-last` and `last` go by it.

    It has no lock any more: what another writer adds while this is done makes it new.
    """
    written = journal.stat().st_size
    os.utime(journal, ns=(before.st_atime_ns, before.st_mtime_ns))
    if journal.stat().st_size != written:
        os.utime(journal)
