"""What a session is as a whole: its size, its age, its tokens, its models, what its calls cost and what is damaged.

A ``Selection`` says which sessions a user wants to see, and in which order.
"""

import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ctxfs.errors import ConfigError, ContentGone, CtxfsError
from ctxfs.messages.items import ItemType, unevicted_tokens
from ctxfs.messages.messages import TITLE_CHARS, readable_text, title_of
from ctxfs.session.damaged import DamagedContent, detail_of
from ctxfs.session.filesystem import ContextFileSystem, storage_of
from ctxfs.session.records import CallMade, ItemAdded, Record, WriterOpened
from ctxfs.session.timeline.costs import account
from ctxfs.session.timeline.effect import Effect, Paid, effect
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.sessions import ListingStores, SessionFound, SessionStores
from ctxfs.storage.threads import run_in_steps, run_to_completion

_TITLE_LINES = 5

logger = logging.getLogger("ctxfs.session")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A session as it was when its journal or its files changed last.

    ``changed_at`` is in seconds since the epoch. ``error``: why it cannot be read, and nothing else is known then; else
    None. ``calls`` counts the calls of a model, ``items`` what the context holds: ``context_tokens`` now,
    ``content_tokens`` without evictions. Where a framework owns the history there are no items, and both are the tokens
    of the last prompt that was billed. ``stored`` contents have ``stored_bytes``; ``disk_bytes`` is what all its files
    hold. ``cost_usd``: what the calls cost at list prices; None if those of a model are not known.
    ``saved_tokens``: what evictions saved, less what they cost, in uncached input tokens, and ``saved_usd`` the same in
    dollars; None: nothing was evicted, or it is not known. ``too_long_from``: the first call whose context would not
    have fitted the window without eviction, so that savings are counted up to there; None: all would have fitted.
    ``title``: the beginning of the first question, on one line and not trusted; empty: none is recorded.
    ``shadow_runs`` counts requests that were compared with their original, ``shadow_differs`` those after which the
    model did something else.
    ``paid_by_writer``: what the calls of each writer cost at list prices, in dollars; see ``paid_usd``.
    ``damages``: a line for each that was found; contents outside of the context were only checked to exist.
    """

    session_id: str
    changed_at: float
    error: str | None = None
    calls: int = 0
    items: int = 0
    context_tokens: int = 0
    content_tokens: int = 0
    stored: int = 0
    stored_bytes: int = 0
    disk_bytes: int = 0
    models: tuple[str, ...] = ()
    cost_usd: float | None = None
    saved_tokens: int | None = None
    saved_usd: float | None = None
    too_long_from: int | None = None
    damages: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    title: str = ""
    shadow_runs: int = 0
    shadow_differs: int = 0
    paid_by_writer: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_damaged(self) -> bool:
        """Whether it cannot be read, or something in it is damaged."""
        return self.error is not None or bool(self.damages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What a session's directory shows: when it changed, what its files hold, and the directories in it, relative."""

    changed_at: float
    disk_bytes: int
    directories: tuple[str, ...]


def looked_at(session: Path) -> Outside:
    """Look at a session's directory. Raises OSError when it is not there."""
    inside: list[str] = []
    size = 0
    for entry in _entries(str(session)):
        if _is_directory(entry):
            inside.append(entry.path[len(str(session)) + 1 :])
            continue
        status = _status(entry)
        if status is not None:
            size += status.st_size
    return Outside(changed_at=changed_at(session), disk_bytes=size, directories=tuple(sorted(inside)))


async def summarize(root: Path, session_id: str, outside: Outside | None = None) -> SessionSummary:
    """Read a session; one that cannot be read has an ``error``. Raises OSError when it is not there.

    ``outside``: what ``looked_at`` returned, if that is known.
    """
    if outside is None:
        outside = await run_to_completion(lambda: looked_at(root / session_id))
    fs = ContextFileSystem(session_id, root_path=root, read_only=True)
    try:
        async with fs:
            return await _summary(fs, outside.changed_at, outside.disk_bytes)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one session must not hide the others
        return SessionSummary(
            session_id=session_id,
            changed_at=outside.changed_at,
            error=problem_of(session_id, error),
            disk_bytes=outside.disk_bytes,
        )


async def summarize_in(stores: SessionStores, found: SessionFound) -> SessionSummary:
    """Read a session that is in no directory; one that cannot be read has an ``error``."""
    try:
        if isinstance(stores, ListingStores):
            session = ContextFileSystem(found.session_id, store=stores.snapshot(found.session_id), read_only=True)
        else:
            session = ContextFileSystem(found.session_id, root_path=stores, read_only=True)
        async with session as fs:
            files = storage_of(fs)
            size = len(await files.read_log())
            for name in await files.names():
                size += await files.size(name)
            return await _summary(fs, found.changed_at, size)
    except Exception as error:  # noqa: BLE001 - as above
        problem = problem_of(found.session_id, error)
        return SessionSummary(session_id=found.session_id, changed_at=found.changed_at, error=problem)


def problem_of(session_id: str, error: Exception) -> str:
    """What is wrong with one session of many, in one line, for a command that goes on with the others.

    Anything but an error of ours is a defect of ctxfs: it is logged with its traceback, and the line says so.
    """
    if isinstance(error, CtxfsError):
        return str(error)
    logger.error("session %s cannot be read, because of a defect of ctxfs", session_id, exc_info=error)
    what = f"a defect of ctxfs ({type(error).__name__})"
    return f"session {session_id} cannot be read, because of {what}; its journal and files are as they were"


async def _summary(fs: ContextFileSystem, changed: float, disk_bytes: int) -> SessionSummary:
    held = await fs.items(load=False)
    last_prompt = 0
    if fs.state.calls and not held:
        last_prompt = fs.state.calls[-1].usage.total_input_tokens
    stored = fs.state.stored.values()
    eviction = fs.state.eviction
    records = await fs.history()
    did = await _effect(fs, records)
    paid = Paid(None, ttl_s=0.0 if eviction is None else eviction.ttl_s)
    cost_usd = paid.usd(fs.state.calls)
    return SessionSummary(
        session_id=fs.session_id,
        changed_at=changed,
        calls=len(fs.state.calls),
        items=len(held),
        context_tokens=last_prompt + sum(item.token_count for item in held),
        content_tokens=last_prompt + unevicted_tokens(held),
        stored=len(stored),
        stored_bytes=sum(content.size_bytes for content in stored),
        disk_bytes=disk_bytes,
        models=tuple(sorted({call.model for call in fs.state.calls if call.model})),
        cost_usd=cost_usd,
        saved_tokens=None if did is None else round(did.net),
        saved_usd=None if did is None else did.net_usd,
        too_long_from=None if did is None else did.too_long_from,
        damages=(*fs.recovery.damage_lines, *[str(found) async for found in _damaged(fs)]),
        tags=fs.state.tags,
        title=(await first_question(fs, records) or Question("", "")).title,
        shadow_runs=len(fs.state.shadowed),
        shadow_differs=sum(one.differs for one in fs.state.shadowed),
        paid_by_writer={} if cost_usd is None else _paid_by_writer(fs.session_id, records, paid),
    )


def _paid_by_writer(session_id: str, records: Iterable[Record], paid: Paid) -> Mapping[str, float]:
    """What the calls that each writer recorded cost; their prices are known."""
    by_writer: dict[str, float] = {}
    writer = session_id  # no writer was recorded before the first call
    for record in records:
        if isinstance(record, WriterOpened):
            writer = f"{record.opened_at} {record.path}"
        elif isinstance(record, CallMade):
            by_writer[writer] = by_writer.get(writer, 0.0) + (paid.usd([record]) or 0.0)
    return by_writer


def paid_usd(summaries: Iterable[SessionSummary]) -> float:
    """What the calls of these sessions cost at list prices, in dollars; what was paid once counts once.

    A fork or an import begins with the calls of another session, and the writers that recorded them. A writer writes to
    one session, so all its calls are in the one that has most of them.
    """
    most: dict[str, float] = {}
    for summary in summaries:
        for writer, usd in summary.paid_by_writer.items():
            most[writer] = max(usd, most.get(writer, 0.0))
    return sum(most.values())


class Question(NamedTuple):
    """A session's first text of a user, by which people know it.

    ``title``: its beginning on one line, not trusted; empty: it cannot be read any more, and no later text is taken.
    """

    item_id: str
    title: str


async def first_question(fs: ContextFileSystem, records: Iterable[Record]) -> Question | None:
    """The first text of a user in ``records``; None: there is none in them."""
    for record in records:
        if isinstance(record, ItemAdded) and record.item.item_type is ItemType.USER_MESSAGE:
            text = readable_text(record.item.message.content)
            is_in_file = not text and record.content_stored
            if is_in_file:
                text = await _beginning(fs, record.item.id)
            line = title_of(text)
            if line or is_in_file:
                return Question(record.item.id, line)
    return None


async def _beginning(fs: ContextFileSystem, item_id: str) -> str:
    """The first lines of a stored content; empty: they cannot be read."""
    try:
        return "\n".join(await fs.reader(item_id).lines(1, _TITLE_LINES, max_chars=4 * TITLE_CHARS))
    except CtxfsError:  # what is wrong with it is said beside the title
        return ""


async def _effect(fs: ContextFileSystem, records: Sequence[Record]) -> Effect | None:
    """What evictions did; None: nothing was evicted, or another version recorded the prices."""
    try:
        did = await run_in_steps(lambda: effect(account(records), fs.state.eviction))
    except ConfigError:
        return None
    return did if did.evictions else None


async def _damaged(fs: ContextFileSystem) -> AsyncIterator[DamagedContent]:
    """The contents of the context that cannot be read, but for those whose file is known to be missing."""
    known = {found.item_id for found in fs.recovery.contents}
    for item_id in list(fs.state.items):
        if item_id in known or item_id not in fs.state.content_stored:
            continue
        try:
            await fs.reader(item_id).check()
        except ContentGone:
            continue
        except CtxfsError as error:
            detail = detail_of(error)
            if detail is None:
                raise
            yield DamagedContent(item_id=item_id, name=fs.state.items[item_id].name, detail=detail)


def changed_at(session: Path) -> float:
    """When the session in this directory changed last, in seconds since the epoch."""
    journal = session / LOG_NAME
    if journal.exists():
        return journal.stat().st_mtime
    return session.stat().st_mtime


def file_stats(session: Path) -> Iterator[os.stat_result]:
    """What the system knows of each file of a session."""
    for entry in _entries(str(session)):
        if not _is_directory(entry) and (status := _status(entry)) is not None:
            yield status


def _status(entry: "os.DirEntry[str]") -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # a file that its writer has put another one in the place of
        return None


def _entries(directory: str) -> Iterator["os.DirEntry[str]"]:
    """Everything in a directory and those in it; nothing is followed out of it."""
    try:
        listed = list(os.scandir(directory))
    except OSError:  # removed meanwhile, or not ours to read
        return
    for entry in listed:
        yield entry
        if _is_directory(entry):
            yield from _entries(entry.path)


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    return entry.is_dir(follow_symlinks=False)


class SortKey(StrEnum):
    """By what sessions are sorted, the greatest first; by age: the newest first."""

    AGE = "age"
    SIZE = "size"
    TOKENS = "tokens"
    COST = "cost"


_KEYS: dict[SortKey, Callable[[SessionSummary], float]] = {
    SortKey.AGE: lambda session: session.changed_at,
    SortKey.SIZE: lambda session: session.disk_bytes,
    SortKey.TOKENS: lambda session: session.context_tokens,
    SortKey.COST: lambda session: session.cost_usd or 0.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Sessions that meet every condition that is set.

    ``since``: they changed then or later, in seconds since the epoch. ``model``: a model was called whose name is this
    one, or matches it with ``*`` and ``?``. ``damaged``: they cannot be read whole. ``running``: an agent writes to
    them now. ``limit``: how many at most; None: all.
    """

    sort: SortKey = SortKey.AGE
    reverse: bool = False
    since: float | None = None
    model: str | None = None
    damaged: bool = False
    running: bool = False
    limit: int | None = None

    def of(self, sessions: Iterable[SessionSummary], is_running: Callable[[str], bool]) -> list[SessionSummary]:
        """Return those of ``sessions`` that are selected, sorted; ``is_running`` is asked only about those in question.

        Where two are alike, the newer one comes first.
        """
        found = [session for session in sessions if self._meets(session)]
        found.sort(key=_KEYS[SortKey.AGE], reverse=True)
        found.sort(key=_KEYS[self.sort], reverse=not self.reverse)
        wanted = (session for session in found if not self.running or is_running(session.session_id))
        return list(islice(wanted, self.limit))

    def _meets(self, session: SessionSummary) -> bool:
        if self.since is not None and session.changed_at < self.since:
            return False
        if self.model is not None and not any(fnmatchcase(model, self.model) for model in session.models):
            return False
        return session.is_damaged or not self.damaged
