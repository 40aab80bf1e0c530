"""What opening a session finds: a torn tail, damaged lines, files that the journal does not know, a lost index.

Nothing here writes: it returns what was found and what to do about it. Doing it twice changes nothing more.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from ctxfs.errors import NotStored
from ctxfs.messages.names import TERMINAL
from ctxfs.session.content.blocks import INDEX_SUFFIX
from ctxfs.session.content.stored import Stored
from ctxfs.session.damaged import MISSING, DamagedContent
from ctxfs.session.discovery import unknown_files
from ctxfs.session.index import INDEX_NAME, Index, parse_index, wants_index
from ctxfs.session.journal import Damage, Scan, scan
from ctxfs.session.state import SessionState, fold
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import run_to_completion

_NAMED_DAMAGES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What opening a session had to repair; all empty after an orderly close.

    ``cut_bytes``: the size of a torn last line, never acknowledged, that was truncated. ``damages``: damaged lines of
    the journal; they are skipped and kept. ``adopted``: orphans, files that the journal did not name and now does.
    ``foreign``: unknown files, which are not changed; one with the name of an item's file was renamed ``….foreign``.
    ``rebuilt_journal``, ``rebuilt_index``: they were lost or damaged. ``contents``: content files that are missing,
    and, once the items of the context were read, damaged ones. These files are not changed; after one is
    restored, its content is back when the session is opened again.
    """

    cut_bytes: int = 0
    damages: tuple[Damage, ...] = ()
    adopted: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    rebuilt_journal: bool = False
    rebuilt_index: bool = False
    contents: tuple[DamagedContent, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether there was nothing to repair."""
        return self == Recovery()

    @property
    def damage_lines(self) -> tuple[str, ...]:
        """A line for each damage of the journal and each content that is missing or damaged."""
        return (*self.journal_damage_lines, *map(str, self.contents))

    @property
    def journal_damage_lines(self) -> tuple[str, ...]:
        """A line for each damage of the journal."""
        return tuple(f"{LOG_NAME}, at byte {damage.offset:,}: {damage.reason}" for damage in self.damages)

    def first_journal_damage_lines(self, session_id: str) -> tuple[str, ...]:
        """The first ones, and how many more there are; for those who show something else than the damage."""
        lines = self.journal_damage_lines
        more = len(lines) - _NAMED_DAMAGES
        if more <= 0:
            return lines
        return (*lines[:_NAMED_DAMAGES], f"{LOG_NAME}: {more:,} more: `ctxfs check {session_id}`")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionScan:
    """A session as it was found. ``new``: there is nothing yet. ``orphans``: records that its journal lacks.

    ``name_conflicts``: foreign files under names that belong to items of the context. ``leftovers``: files of contents
    whose removal was cut short after it was recorded. ``reading``: its journal as it was read; None where nobody keeps
    it, so that a large one does not stay in memory while the session is opened.
    """

    state: SessionState
    last_seq: int
    log_end: int
    new: bool
    orphans: tuple[Stored, ...] = ()
    name_conflicts: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    recovery: Recovery = field(default_factory=Recovery)
    reading: "Reading | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A journal as it was read: the bytes of its lines, and what they hold."""

    data: bytes
    scan: Scan


NOTHING_READ: Final = Reading(data=b"", scan=scan(b""))


async def read_journal(store: ThreadedStore, known: Reading = NOTHING_READ) -> Reading:
    """Read the whole journal; the lines that ``known`` has are not decoded again."""
    data = await store.read_log()
    return await run_to_completion(lambda: _read(data, known))


def _read(data: bytes, known: Reading) -> Reading:
    if not data.startswith(known.data):  # rewritten, or another session's
        return _read(data, NOTHING_READ)
    before = known.scan
    new = scan(data[before.end :], last_seq=before.last_seq, offset=before.end)
    if new.damages and before.end:  # a line may repeat the one before it, which only a whole scan can tell
        return _read(data, NOTHING_READ)
    joined = replace(new, records=(*before.records, *new.records), damages=(*before.damages, *new.damages))
    return Reading(data=data[: new.end], scan=joined)


async def scan_session(store: ThreadedStore, *, read_only: bool, known: Reading | None = None) -> SessionScan:
    """Read a session: what is in it, and what is wrong with it.

    ``known``: what was read of its journal before; None: nothing, and what is read now is not kept.

    Raises what ``store`` raises.
    """
    # There are three cases:
    # - a reader of a session with a journal: the writer may be writing, so a torn line and files that the journal does
    #   not name yet are normal. Only the output of running commands is added;
    # - a writer of a session with a journal: files that the journal does not name are adopted or foreign, and the index
    #   is rebuilt if it is damaged or contradicts the journal;
    # - no journal: the session is new, or its journal was lost and is rebuilt from its files.
    data = await store.read_log()

    def read() -> tuple[Reading, SessionState]:
        found = _read(data, known or NOTHING_READ)
        return found, fold(SessionState(), found.scan.records)

    reading, state = await run_to_completion(read)
    log = reading.scan
    kept = None if known is None else reading
    started = log.last_seq > 0
    if read_only and started:
        names = await store.names()
        growing = await growing_logs(store, state, names)
        missing = _missing(state, names)
        recovery = Recovery(damages=log.damages, contents=missing)
        return SessionScan(
            state=state,
            last_seq=log.last_seq,
            log_end=log.end,
            new=False,
            orphans=growing,
            recovery=recovery,
            reading=kept,
        )
    index, index_is_there = await _read_index(store)
    names = [name for name in await store.names() if name != INDEX_NAME]
    adopt, foreign = await unknown_files(store, state, index, names)
    anything = bool(names) or index_is_there or bool(log.damages)
    recovery = Recovery(
        cut_bytes=log.torn_bytes,
        damages=log.damages,
        adopted=tuple(entry.name for entry in adopt),
        foreign=tuple(foreign),
        rebuilt_journal=not started and anything,
        rebuilt_index=started and wants_index(store) and (index is None or bool(contradictions(index, state))),
        contents=_missing(state, names),
    )
    claimed = {item.name for item in state.items.values() if item.id not in state.content_stored}
    return SessionScan(
        state=state,
        last_seq=log.last_seq,
        log_end=log.end,
        new=not started,
        orphans=tuple(adopt),
        name_conflicts=tuple(name for name in foreign if name in claimed),
        leftovers=_leftovers(state, names),
        recovery=recovery,
        reading=kept,
    )


async def growing_logs(store: ThreadedStore, state: SessionState, names: Iterable[str]) -> tuple[Stored, ...]:
    """Describe what commands have printed that the journal does not know of: they run, or their agent was killed.

    ``names`` are those of the session's files.

    Each is described as it is at one moment; its file may have grown since.
    """
    adopt, _ = await unknown_files(store, state, None, [name for name in names if name.startswith(TERMINAL)])
    return tuple(adopt)


async def quarantine(store: ThreadedStore, name: str) -> None:
    """Rename a foreign file that has an item's name; not a byte of it is lost."""
    await store.replace(f"{name}.foreign", await store.read(name))
    await store.delete([name])


def _missing(state: SessionState, names: list[str]) -> tuple[DamagedContent, ...]:
    """The contents that the journal names and that have no file, in whatever case its name is spelled."""
    present = {name.casefold() for name in names}
    return tuple(
        DamagedContent(item_id=entry.item_id, name=entry.name, detail=MISSING)
        for entry in state.stored.values()
        if entry.name.casefold() not in present
    )


def _leftovers(state: SessionState, names: list[str]) -> tuple[str, ...]:
    in_use = {entry.name for entry in state.stored.values()}
    gone = {entry.name for entry in state.removed.values() if entry.name not in in_use}
    return tuple(name for name in names if name in gone or name.removesuffix(INDEX_SUFFIX) in gone)


async def _read_index(store: ThreadedStore) -> tuple[Index | None, bool]:
    """Return the index, None if it is missing or damaged, and whether its file is there."""
    try:
        data = await store.read(INDEX_NAME)
        return await run_to_completion(lambda: parse_index(data)), True
    except NotStored:
        return None, False
    except ValueError:
        return None, True


def contradictions(index: Index, state: SessionState) -> list[str]:
    """The items about which the index contradicts the journal; an index that lags behind does not."""
    return [
        item_id
        for item_id, entry in index.items.items()
        if state.stored.get(item_id) != entry and item_id not in state.removed
    ]
