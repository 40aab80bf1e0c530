"""Which stored contents of a session are still needed, and for what. Pure.

The roots, like git's references and reflog, are: the items of the context and the contents that they name, the
archives that they name with the items in them, the decisions of a framework's history, the items that were evicted so
recently that it can be undone, and contents that a program stored without an item. A name that occurs in a text keeps
its content: this may keep too much, but never too little.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.names import TERMINAL, short_name
from ctxfs.session.content.file import file_bytes
from ctxfs.session.content.stored import Stored
from ctxfs.session.records import (
    CallMade,
    Closed,
    Record,
    Removed,
    Replaced,
    RequestSent,
    Restored,
    SessionStarted,
    UnknownRecord,
    WriterOpened,
)
from ctxfs.session.state import SessionState
from ctxfs.session.timeline.lives import Lives
from ctxfs.text.jsontext import codec as json_codec

_TOKEN = re.compile(rb"[A-Za-z0-9_.~/-]+")
_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{4}|.)")
_DEPTH = 5  # of a content's name inside its session, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectable:
    """A content that nothing needs any more; ``size_bytes`` is the size of its file."""

    item_id: str
    name: str
    tool_name: str | None
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunePlan:
    """The contents of a session that can be removed, and why each of the others stays, by item id."""

    session_id: str
    collect: tuple[Collectable, ...]
    kept: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        """The space that removing them frees; less if another session shares a file."""
        return sum(one.size_bytes for one in self.collect)


def plan_prune(
    session_id: str,
    records: Iterable[Record],
    *,
    now: float,
    undo_s: float,
    grace_s: float,
    archived_s: float | None = None,
    damaged: bool = False,
) -> PrunePlan:
    """Decide which contents of a session can be removed.

    Args:
        session_id: the session's id.
        records: its whole journal, in order.
        now: the time, in seconds since the epoch.
        undo_s: items evicted less than this many seconds ago are kept, so that it can be undone; 0: none are.
        grace_s: contents stored less than this many seconds ago are kept: the placeholder may not be recorded yet.
        archived_s: items archived more than this many seconds ago can be removed, though the archive, which is kept,
            names them; None: they are kept.
        damaged: lines of the journal are lost; everything is then kept, since they may have named it.

    """
    found = _found(records)
    state = found.state
    if damaged or found.unknown or found.rebuilt:
        why = "the journal is damaged, or was lost"
        if found.unknown:
            why = "a later version of ctxfs wrote to the session"
        return PrunePlan(session_id=session_id, collect=(), kept=dict.fromkeys(state.stored, why))
    archived_since = None if archived_s is None else now - archived_s
    kept = _kept(found, now=now, undo_s=undo_s, grace_s=grace_s, archived_since=archived_since)
    collect: list[Collectable] = []
    for stored in state.stored.values():
        if stored.item_id in kept:
            continue
        reason = "nothing in the context refers to it"
        if stored.item_id in state.archived:
            reason = "only old archives name it"
        one = Collectable(
            item_id=stored.item_id,
            name=stored.name,
            tool_name=stored.tool_name,
            size_bytes=file_bytes(stored),
            reason=reason,
        )
        collect.append(one)
    return PrunePlan(session_id=session_id, collect=tuple(collect), kept=kept)


@dataclass(slots=True)
class _Found:
    """A journal that was read. ``left``: items that were removed from the context, as they were, and when."""

    reading: Lives = field(default_factory=Lives)
    left: dict[str, tuple[float, ContextItem]] = field(default_factory=dict)
    unknown: bool = False
    rebuilt: bool = False
    clock: float = 0.0

    @property
    def state(self) -> SessionState:
        return self.reading.state


def _found(records: Iterable[Record]) -> _Found:
    found = _Found()
    for record in records:
        found.clock = max(found.clock, _time_of(record))
        if isinstance(record, UnknownRecord):
            found.unknown = True
        if isinstance(record, SessionStarted):
            found.rebuilt |= record.rebuilt
        for change in found.reading.take(record).changes:
            life = found.reading.lives[change.item_id]
            found.left.pop(life.item_id, None)
            if life.removed is not None:
                found.left[life.item_id] = (change.at or found.clock, life.removed)
    return found


_TIMES: Mapping[type, str] = {
    WriterOpened: "opened_at",
    Closed: "closed_at",
    CallMade: "made_at",
    RequestSent: "sent_at",
    Replaced: "at",
    Restored: "at",
    Removed: "at",
    Stored: "offloaded_at",
}


def _time_of(record: Record) -> float:
    """When a record was made, as far as it says; 0 if it does not."""
    name = _TIMES.get(type(record))
    if name is None:
        return 0.0
    return float(getattr(record, name))


class _Kept:
    """The stored contents that stay, each with the first reason for it."""

    def __init__(self, stored: Mapping[str, Stored]) -> None:
        self._stored = stored
        self._names = _names(stored.values())
        self.reasons: dict[str, str] = {}

    def add(self, item_id: str, why: str) -> None:
        """Keep a content, if it is stored."""
        if item_id in self._stored:
            self.reasons.setdefault(item_id, why)

    def add_mentioned(self, content: object, why: str) -> None:
        """Keep the contents that a text, blocks or arguments name."""
        for item_id in mentioned(content, self._names):
            self.add(item_id, why)

    def add_item(self, item: ContextItem, own: str, named: str) -> None:
        """Keep an item's content for the reason ``own``, and the contents that it repeats or names for ``named``."""
        self.add(item.id, own)
        if item.source is not None:
            self.add(item.source.item_id, named)
        self.add_mentioned(item.message.content, named)


def _kept(found: _Found, *, now: float, undo_s: float, grace_s: float, archived_since: float | None) -> dict[str, str]:
    state = found.state
    kept = _Kept(state.stored)
    for item in state.items.values():
        kept.add_item(item, "it is in the context, or its placeholder is", "the context names it")
    for decision in state.decisions:
        kept.add(decision.item_id, "a history may show its placeholder")
        kept.add_mentioned(decision.content, "a history may show its placeholder")
    for item_id, _, _ in state.noted_sources.values():
        kept.add(item_id, "a history repeats lines of it")
    for left_at, item in found.left.values():
        if now - left_at < undo_s:
            kept.add_item(item, "it was evicted lately, and that can be undone", "what was evicted lately names it")
            kept.add(state.archived.get(item.id, ""), "what was evicted lately is in this archive")
    _keep_archived(found, kept, archived_since)
    for stored in state.stored.values():
        if now - stored.offloaded_at < grace_s:
            kept.add(stored.item_id, "it was stored lately")
        elif stored.item_id not in found.reading.lives and not _belongs_to_an_item(stored):
            kept.add(stored.item_id, "a program stored it, and may read it again")
    return kept.reasons


def _keep_archived(found: _Found, kept: _Kept, archived_since: float | None) -> None:
    """Keep the items in the archives that are kept, and in the archives inside these."""
    since = 0.0 if archived_since is None else archived_since
    recent = {item_id: item for item_id, (left_at, item) in found.left.items() if left_at >= since}
    before = -1
    while before != len(kept.reasons):
        before = len(kept.reasons)
        for item_id, archive in found.state.archived.items():
            if archive in kept.reasons and item_id in recent:
                kept.add_item(recent[item_id], f"it is in the archive {archive}", f"the archive {archive} names it")


def _belongs_to_an_item(stored: Stored) -> bool:
    """Whether it is a part of an item: large arguments of a call, or the output of a command."""
    return stored.item_type is ItemType.TOOL_INPUT or stored.name.startswith(TERMINAL)


def mentioned(content: object, names: Mapping[bytes, str]) -> Iterator[str]:
    """The ids of the contents that a text, blocks or arguments name. ``names``: the id that each name stands for."""
    text = text_of(content).encode("utf-8", "surrogatepass")
    # In JSON, the letter of an escape would be the first of a name that follows it; in a plain text it may be that.
    tokens = {*_TOKEN.findall(text), *_TOKEN.findall(_ESCAPE.sub(b" ", text))}
    for token in tokens:
        parts = token.rstrip(b".").split(b"/")
        for depth in range(1, min(len(parts), _DEPTH) + 1):
            item_id = names.get(b"/".join(parts[-depth:]))
            if item_id is not None:
                yield item_id


def _names(stored: Iterable[Stored]) -> dict[bytes, str]:
    """The names by which a text may refer to a content, with its id."""
    names: dict[bytes, str] = {}
    for entry in stored:
        for name in (entry.name, short_name(entry.item_id), entry.item_id):
            names[name.encode()] = entry.item_id
    return names


def text_of(content: object) -> str:
    """A content, or arguments, as a text."""
    if isinstance(content, str):
        return content
    return json_codec.dumps_text(list(content) if isinstance(content, Sequence) else content)
