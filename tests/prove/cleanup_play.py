"""A random history of a session that is used, compacted, undone, pruned, erased, forked, forgotten and killed.

Nothing live ever dangles. What is live is found by another way than the code's: by what a model could ask for. Each
path in the texts of the context must be readable, each content that is in its file, and so on into every archive. What
was erased must say so instead, and must be nowhere in the session; what a fork names that is gone since must say so.
The sessions that a history forks, exports and imports are a family: a policy forgets some of them, in a real directory,
and it goes on with any that is left.
"""

import random
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ctxfs.context import Context
from ctxfs.errors import ContentGone, ContextOverflow, CtxfsError, NotRestorable, UnknownItem
from ctxfs.eviction.compaction import SelectiveCompaction, Strategy
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.window import Window
from ctxfs.messages import CharsCounter
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Content, ToolMessage, UserMessage
from ctxfs.messages.names import ENVELOPE
from ctxfs.session import export_session, import_session
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.journal import encode_line, scan
from ctxfs.session.records import ContentRemoved, Record, SessionStarted
from ctxfs.session.state import SessionState, fold
from ctxfs.session.timeline.timeline import Timeline
from ctxfs.storage.local import LocalStore
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.memory import MemoryDisk, MemoryStore
from ctxfs.text.jsontext import codec as json_codec
from prove.cleanup_family import (
    FAST,
    Exported,
    Member,
    lay_out,
    random_policy,
    read_back,
    wrong_after,
)
from prove.cleanup_ways import WatchedStore, Ways, copied

__all__ = [
    "OPERATIONS",
    "play",
]

_COUNTER = CharsCounter()
_PATH = re.compile(r"/memory/s[0-9]*/[A-Za-z0-9_./~-]+[A-Za-z0-9_]")
_DROP = SelectiveCompaction(
    rules=dict.fromkeys((ItemType.TOOL_RESULT, ItemType.USER_MESSAGE), Strategy.DROP)
    | {ItemType.ASSISTANT_MESSAGE: Strategy.DROP},
)
_BUDGET = Window(window_tokens=2_000, reply_tokens=200)
_DROPS: dict[str, Any] = {
    "window": replace(_BUDGET, compaction=_DROP),
    "offload_policy": OffloadPolicy(token_threshold=50),
}
_ARCHIVES: dict[str, Any] = {"window": _BUDGET, "offload_policy": OffloadPolicy(token_threshold=200)}
_SETTINGS: tuple[dict[str, Any], ...] = (
    {"keep_recent": {"Read": 1}, "window": None, "pricing": None},
    {**_DROPS, "pricing": None},
    {**_DROPS, "keep_recent": {"Read": 2}, "pricing": None},
    {**_ARCHIVES, "pricing": None},
    {**_ARCHIVES, "keep_recent": {"Read": 1}, "pricing": None},
    {"keep_recent": {"Read": 3}, "offload_policy": OffloadPolicy(repeats=True), "window": None, "pricing": None},
    {"offload_policy": OffloadPolicy(token_threshold=50, repeats=True), "window": _BUDGET, "pricing": None},
)
OPERATIONS: tuple[str, ...] = (
    *("exchange",) * 6,
    *("request", "undo", "pin", "restore", "prune", "prune", "erase", "reopen", "kill", "fork", "forget", "wait"),
)
_FAMILY = 4  # sessions, at most
_STEPS = (6, 20)
_REFUSED = (NotRestorable, UnknownItem, ContentGone, ContextOverflow)


@dataclass(slots=True)
class _Play:
    rng: random.Random
    ways: Ways
    now: float = 1e9
    store: MemoryStore = field(default_factory=lambda: MemoryStore("s"))
    settings: dict[str, Any] = field(default_factory=dict)
    context: Context | None = None
    calls: int = 0
    same_as: dict[str, str] = field(default_factory=dict)
    """By call: the first call with the same result."""
    counted: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    excused: set[str] = field(default_factory=set)
    """Ids of contents that were erased, and in a fork of those that were removed since: they say that they are gone."""
    others: dict[str, Member] = field(default_factory=dict)
    """The rest of the family, by session id."""
    exported: Exported | None = None
    named: int = 0
    """How many sessions the family had."""

    async def open(self) -> Context:
        if self.context is None:
            self.context = Context(self._fs(self.store), counter=_COUNTER, **self.settings)
            await self.context.open()
        return self.context

    @property
    def _tells_repeats(self) -> bool:
        policy = self.settings.get("offload_policy")
        return policy is not None and policy.repeats

    def _fs(self, store: MemoryStore | LocalStore, session_id: str = "") -> ContextFileSystem:
        return ContextFileSystem(
            session_id or self.store.session_id,
            root_path="/memory",
            store=store,
            clock=lambda: self.now,
            inline_limit_chars=300,
            layout=ENVELOPE,
        )

    async def step(self, name: str) -> None:
        self.counted[name] += 1
        self.now += 1
        try:
            await getattr(self, f"_{name}")(await self.open())
        except CtxfsError as error:
            self.wrong.append(f"{name}: {error}")
            return
        if self.context is not None:
            found = await dangling(self.context.fs, self.context.items, self.excused)
            self.wrong += [f"after {name}: {what}" for what in found]

    async def _exchange(self, context: Context) -> None:
        self.calls += 1
        call_id, size = f"call_{self.calls}", self.rng.choice((1, 30, 150, 300))
        call = {"type": "tool_use", "id": call_id, "name": "Read", "input": {"n": self.calls}}
        if self._tells_repeats:
            same = self.rng.choice((call_id, *self.same_as.values()))
            size = 150
        else:
            same = call_id
        self.same_as[call_id] = same
        result = "".join(f"line {n} of {same}\n" for n in range(size))
        try:
            await context.add(
                UserMessage(f"question {self.calls}"), AssistantMessage((call,)), ToolMessage(call_id, "Read", result)
            )
            sent = await context.request()
            self.counted["told"] += "[The same as" in str(sent["messages"][-1])
            await context.add(AssistantMessage(f"answer {self.calls}"))
        except ContextOverflow:
            self.counted["overflow"] += 1

    async def _request(self, context: Context) -> None:
        try:
            await context.add(UserMessage("go on"))
            await context.request()
            await context.add(AssistantMessage("yes"))
        except ContextOverflow:
            self.counted["overflow"] += 1

    async def _undo(self, context: Context) -> None:
        try:
            self.counted["undone"] += bool(await context.undo())
        except _REFUSED as error:
            self.counted[f"undo: {type(error).__name__}"] += 1

    async def _pin(self, context: Context) -> None:
        if context.items:
            try:
                await context.pin(self.rng.choice(context.items).id)
            except _REFUSED as error:
                self.counted[f"pin: {type(error).__name__}"] += 1

    async def _restore(self, context: Context) -> None:
        known = sorted(context.fs.state.ids)
        if known:
            try:
                await context.restore(self.rng.choice(known))
            except _REFUSED as error:
                self.counted[f"restore: {type(error).__name__}"] += 1

    async def _prune(self, context: Context) -> None:
        before, removed = dict(self.store.disk.files), set(context.fs.state.removed)
        undo_s, grace_s = self.rng.choice((0.0, 0.0, 50.0, 1e9)), self.rng.choice((0.0, 0.0, 50.0))
        archived_s = self.rng.choice((None, 0.0, 50.0))
        await self.ways.prune(
            context.fs, self.store.disk, undo_s=undo_s, grace_s=grace_s, archived_s=archived_s, clock=lambda: self.now
        )
        gone = set(context.fs.state.removed) - removed
        self.counted["removed"] += len(gone)
        if gone and self.rng.random() < 0.3:  # killed after the tombstone, before its file went
            self.counted["killed within a removal"] += 1
            for item_id in gone:
                name = context.fs.state.removed[item_id].name
                self.store.disk.files[name] = before[name]
            await self._kill(context)

    async def _reopen(self, context: Context) -> None:
        await context.close()
        self.context = None
        await self.open()

    async def _kill(self, context: Context) -> None:
        """The process dies: what was committed is there, and nothing says that the session ended."""
        await self._go_on_with(copied(self.store.disk), context)

    async def _go_on_with(self, disk: MemoryDisk, context: Context | None) -> Context:
        if context is not None:
            await context.close()
        self.store, self.context = MemoryStore(self.store.session_id, disk), None
        return await self.open()

    async def _erase(self, context: Context) -> None:
        """Erase one item; sometimes the process dies within that, the session is opened, and it is erased again."""
        known = sorted(context.fs.state.ids)
        results = [one for one in known if one in self.same_as]
        if results and self._tells_repeats and self.rng.random() < 0.7:
            known = results
        item_id = self.rng.choice(known or [""])
        if not item_id:
            return
        await context.close()
        watched = WatchedStore(self.store.session_id, copied(self.store.disk))
        async with self._fs(watched) as fs:
            equal = self._equal_to(item_id, fs.state)
            gone = fs.state.removed.get(item_id)
            erased_before = gone is not None and gone.erased  # then nothing tells what it was equal to
            watched.crashed.clear()
            named = set(await self.ways.erase(fs, [item_id], self.now))
            if not erased_before:
                self.wrong += [f"{item_id} was erased, and {one} is not named" for one in equal if one not in named]
        item_ids = [item_id]
        if named and self.rng.random() < 0.5:  # else what has a line of it goes on
            self.counted["erased with what quotes it"] += 1
            item_ids += sorted(named)
            async with self._fs(watched) as fs:
                await self.ways.erase(fs, sorted(named), self.now)
        if watched.crashed and self.rng.random() < 0.3:
            self.counted["killed within an erasing"] += 1
            between = await self._go_on_with(self.rng.choice(watched.crashed), None)
            await between.close()
            watched = WatchedStore(self.store.session_id, copied(self.store.disk))
            async with self._fs(watched) as fs:
                await self.ways.erase(fs, item_ids, self.now)
        state = (await self._go_on_with(watched.disk, None)).fs.state
        self.excused |= {gone.item_id for gone in state.removed.values() if gone.erased}
        self.counted["erased"] += 1
        if named <= set(item_ids) and not (erased_before and equal):
            mark = self.same_as.get(item_id, item_id)
            self.wrong += [f"{mark} was erased, and is in {where}" for where in _places_of(mark, watched.disk)]

    def _equal_to(self, item_id: str, state: SessionState) -> list[str]:
        """The other results that are equal to one, and still have their content."""
        same = self.same_as.get(item_id)
        equal = [one for one, first in self.same_as.items() if first == same and one != item_id]
        return [one for one in equal if _has_content(one, state)]

    async def _fork(self, context: Context) -> None:
        """Fork at a call. The fork is pruned; then one of the two goes on, and the other one stays in the family."""
        records = scan(bytes(self.store.disk.log)).records
        calls = len(Timeline(records).calls)
        at = self.rng.choice((None, self.rng.randint(1, calls + 1)))
        new_id = self._new_id()
        started = SessionStarted(
            session_id=new_id, started_at=self.now, forked_from=self.store.session_id, forked_at=at or 0
        )
        forked = self.ways.fork(records, started, at)
        kept = {stored.name for stored in fold(SessionState(), forked).stored.values()}
        files = {name: data for name, data in self.store.disk.files.items() if name.removesuffix(".idx") in kept}
        disk = MemoryDisk(files=files, log=bytearray(encode_line(1, forked)), exists=True)
        fork = _Play(self.rng, self.ways, now=self.now, store=MemoryStore(new_id, disk), settings=self.settings)
        fork.calls, fork.excused = self.calls, self.excused | _gone_since(records, at)
        other = await fork.open()
        self.wrong += [f"in a fork: {what}" for what in await dangling(other.fs, other.items, fork.excused)]
        await fork.step("prune")
        self.wrong += fork.wrong
        if fork.context is not None:
            await fork.context.close()
        await context.close()
        self.context = None
        family = {**self._family(), new_id: Member(fork.store.disk, frozenset(fork.excused), self.now)}
        await self._continue(self.rng.choice((self.store.session_id, new_id)), family)

    def _new_id(self) -> str:
        self.named += 1
        return f"s{self.named}"

    def _family(self) -> dict[str, Member]:
        """All sessions, once the one that is played was closed."""
        return {**self.others, self.store.session_id: Member(self.store.disk, frozenset(self.excused), self.now)}

    async def _continue(self, session_id: str, family: dict[str, Member]) -> None:
        """Go on with a session of the family."""
        chosen = family.pop(session_id)
        self.others = dict(list(family.items())[-_FAMILY + 1 :])
        self.store, self.context, self.excused = MemoryStore(session_id, chosen.disk), None, set(chosen.excused)
        await self.open()

    async def _forget(self, context: Context) -> None:
        """A policy forgets some of the family, in a directory; go on with one that is left, or with an archive."""
        if not self.others:
            await self._fork(context)
        if self.context is not None:
            await self.context.close()
            self.context = None
        family, current = self._family(), self.store.session_id
        with TemporaryDirectory(dir=FAST) as place:
            root = Path(place) / "sessions"
            lay_out(root, family)
            if self.rng.random() < 0.5:
                file = Path(place) / "exported"
                await export_session(current, file, root_path=root)
                self.exported = Exported(file.read_bytes(), frozenset(self.excused))
            left = await self._forgotten(root, family, current)
            if self.exported is not None and (not left or self.rng.random() < 0.3):
                left |= await self._imported(root, self.exported)
            self.wrong += [what for one, member in left.items() for what in await self._wrong_in(root, one, member)]
        if not left:
            left[self._new_id()] = Member(MemoryDisk(), frozenset(), self.now)
        await self._continue(current if current in left and self.rng.random() < 0.5 else self.rng.choice([*left]), left)

    async def _forgotten(self, root: Path, family: dict[str, Member], current: str) -> dict[str, Member]:
        """Let a policy forget sessions, often while this one is in use; what is left of the family."""
        policy, running = random_policy(self.rng), self.rng.random() < 0.6
        if running:
            async with self._fs(LocalStore(root, current)):
                done = await self.ways.forget(policy, root, lambda: self.now)
        else:
            done = await self.ways.forget(policy, root, lambda: self.now)
        self.counted["forgotten"] += len(done.removed)
        self.wrong += await wrong_after(root, family, done, current if running else "")
        known: dict[int, bytes] = {}
        there = [(one, member) for one, member in family.items() if (root / one / LOG_NAME).exists()]
        return {one: replace(member, disk=read_back(root, one, known)) for one, member in there}

    async def _imported(self, root: Path, exported: Exported) -> dict[str, Member]:
        """Make a session of an archive again, with what was in it then."""
        session_id, file = self._new_id(), root.parent / "again"
        file.write_bytes(exported.data)
        await import_session(file, root_path=root, session_id=session_id)
        self.counted["imported"] += 1
        return {session_id: Member(read_back(root, session_id, {}), exported.excused, self.now)}

    async def _wrong_in(self, root: Path, session_id: str, member: Member) -> list[str]:
        """What dangles in a session of the directory."""
        async with self._fs(LocalStore(root, session_id), session_id) as fs:
            found = await dangling(fs, tuple(await fs.items()), member.excused)
        return [f"in {session_id}: {what}" for what in found]

    async def _wait(self, context: Context) -> None:
        self.now += self.rng.choice((1.0, 60.0, 1e6))


def _has_content(item_id: str, state: SessionState) -> bool:
    item = state.items.get(item_id)
    return item_id in state.stored or (item is not None and not item.destroyed and item_id not in state.removed)


def _gone_since(records: Sequence[Record], at: int | None) -> set[str]:
    """What was removed after the request of the call ``at``."""
    before = len(Timeline(records).records_before(at))
    return {one.item_id for one in records[before:] if isinstance(one, ContentRemoved)}


def _places_of(item_id: str, disk: MemoryDisk) -> list[str]:
    """Where a result's first line still stands: its files, or the journal."""
    marks = (f"line 0 of {item_id}\n".encode(), f"line 0 of {item_id}\\n".encode())
    texts = {**disk.files, "the journal": bytes(disk.log)}
    return [name for name, data in texts.items() if any(mark in data for mark in marks)]


async def dangling(fs: ContextFileSystem, items: tuple[ContextItem, ...], excused: Collection[str] = ()) -> list[str]:
    """What the context needs and cannot have, and what an archive names that does not even say why it is gone.

    ``excused``: ids of contents that may be gone, if they say so.
    """
    damaged = [item for item in items if item.damaged is not None]
    wrong = [f"{i.id}: {i.damaged}" for i in damaged if i.id not in excused or "removed on" not in str(i.damaged)]
    archives = set(fs.state.archived.values())
    todo, seen = [(name, True) for name in _paths(items)], set[str]()
    while todo:
        name, live = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        item_id = fs.find(name)
        try:
            content = await fs.load(item_id or name)
        except ContentGone as error:
            if live and item_id not in excused:
                wrong.append(f"the live path {name} leads nowhere: {error}")
            continue
        except CtxfsError as error:
            wrong.append(f"the path {name} leads nowhere: {error}")
            continue
        if item_id in archives:
            todo += [(path, False) for path in _PATH.findall(_text(content))]
            todo += [(i, False) for i, archive in fs.state.archived.items() if archive == item_id and i in _kept(fs)]
    return wrong


def _kept(fs: ContextFileSystem) -> set[str]:
    return fs.state.stored.keys() | fs.state.removed.keys()


def _text(content: Content) -> str:
    return content if isinstance(content, str) else json_codec.dumps_text(list(content))


def _paths(items: tuple[ContextItem, ...]) -> Iterator[str]:
    for item in items:
        yield from _PATH.findall(_text(item.message.content))
        if item.offload_path is not None:
            yield item.offload_path


async def play(
    seed: int, *, operations: Sequence[str] = (), ways: Ways | None = None
) -> tuple[Counter[str], list[str]]:
    """Play one history; what was counted, and everything that was wrong. ``operations`` empty: random ones."""
    rng = random.Random(seed)
    played = _Play(rng, ways or Ways(), settings=rng.choice(_SETTINGS))
    for name in operations or ("exchange", *rng.choices(OPERATIONS, k=rng.randint(*_STEPS))):
        await played.step(name)
    if played.context is not None:
        await played.context.close()
    played.counted["histories"] += 1
    return played.counted, [f"seed {seed}: {what}" for what in played.wrong]
