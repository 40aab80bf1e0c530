"""A session on a ``CrashDisk``, and what a crash at each moment must and may leave of it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import anyio

from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import Content, UserMessage
from ctxfs.session import export_session, import_session
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.item_records import replacement
from ctxfs.session.records import ContentRemoved, Pinned, Restored, Undone
from ctxfs.session.timeline.back import undone
from ctxfs.session.timeline.bring_back import bring_back
from ctxfs.session.timeline.fork import fork_session
from ctxfs.storage.local import LocalStore
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.text.jsontext.write_stream import BLOCK
from prove.crash_disk import Captured, CrashDisk
from session_items import PLACEHOLDER, claimed_item, evicted, tool_result, user_message

__all__ = [
    "EXPORTS",
    "INLINE_CHARS",
    "OPERATIONS",
    "ROOT",
    "SESSION_ID",
    "Expected",
    "LocalStore",
    "Moment",
    "Run",
    "Snapshot",
    "Variant",
    "add_huge",
    "fork_all",
    "make_base",
    "return_one",
    "snapshot_of",
    "undo_one",
]

ROOT = Path("/home/sessions")
EXPORTS = Path("/home")
SESSION_ID = "session_20260115_123456_abc123"
IMPORTED_ID = "imported"
INLINE_CHARS = 64
MANY = 31
SECOND_EPOCH = 100

Snapshot = tuple[tuple[str, bytes, bool], ...]
"""The items of the context: id, content as the model sees it (as JSON), whether it was offloaded."""


MakeStore = Callable[[CrashDisk], LocalStore]
Operation = Callable[["Run"], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How the code runs: as it is, or broken on purpose.

    ``store`` makes the session's store, ``syncs`` says which syncs take effect, once the base is made.
    ``placeholder_first``: items are replaced before their contents are stored. ``file_first``: the file of a content
    that is removed goes before its tombstone is there.
    """

    store: MakeStore = lambda disk: LocalStore(ROOT, SESSION_ID, fs=disk)
    syncs: Callable[[str, bool], bool] = lambda kind, opening: True
    placeholder_first: bool = False
    file_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What must and may be there. ``snapshots``: the context before and after what is under way.

    ``must`` are the ids whose contents were acknowledged; ``contents`` all that may be stored. ``sessions`` and
    ``archives``: what an import and an export make, and whether they must have; ``forks`` the same, with what is in
    each. Contents that are ``going`` are there and whole, or have a tombstone; those that are ``gone`` have one, and no
    file.
    """

    snapshots: tuple[Snapshot, ...] = ((),)
    must: frozenset[str] = frozenset()
    contents: frozenset[tuple[str, bytes]] = frozenset()
    started: bool = False
    sessions: tuple[tuple[str, bool], ...] = ()
    archives: tuple[tuple[str, bool], ...] = ()
    forks: tuple[tuple[str, Snapshot, bool], ...] = ()
    going: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Moment:
    """A disk just before a sync, or after an acknowledgement, with what must hold after a crash there."""

    captured: Captured
    expected: Expected


class Run:
    """The real code at work on one disk.

    ``moments`` are those at which the power may fail, ``deaths`` those at which the process may be killed.
    """

    def __init__(
        self, disk: CrashDisk, archive: Path, *, variant: Variant | None = None, expected: Expected | None = None
    ) -> None:
        self.disk = disk
        self.archive = archive
        self.variant = variant or Variant()
        self.fs: ContextFileSystem | None = None
        self.variant_store = self.variant.store(disk)
        self.now = expected or Expected()
        self.moments: list[Moment] = []
        self.deaths: list[Moment] = []
        self.epoch = 0 if expected is None else SECOND_EPOCH
        self.number = 0
        self._opening = False
        disk.before_sync = self.keep
        disk.before_change = self._keep_death
        disk.syncs = lambda kind: self.variant.syncs(kind, self._opening)

    def keep(self) -> None:
        """Keep this moment."""
        self.moments.append(Moment(self.disk.capture(), self.now))

    def _keep_death(self) -> None:
        self.deaths.append(Moment(self.disk.capture(), self.now))

    def forget(self) -> None:
        """Forget the moments kept so far, and keep new ones."""
        self.moments.clear()
        self.deaths.clear()

    # ---- the session

    async def session(self) -> ContextFileSystem:
        """The open session: opened, and made, when it is not."""
        if self.fs is None:
            self.epoch += 1
            self.variant_store = self.variant.store(self.disk)
            fs = ContextFileSystem(
                SESSION_ID,
                root_path=ROOT,
                store=self.variant_store,
                clock=lambda: 1_700_000_000.0,
                inline_limit_chars=INLINE_CHARS,
            )
            self._opening = True
            try:
                await fs.open()
            finally:
                self._opening = False
            self.fs = fs
            await self._seen(fs)
        return self.fs

    async def _seen(self, fs: ContextFileSystem) -> None:
        """What a session shows once it is open must stay, acknowledged before or not."""
        snapshot = await snapshot_of(fs)
        must = self.now.must | frozenset(fs.state.stored)
        self.now = replace(self.now, snapshots=(snapshot,), must=must, started=True)

    def kill(self) -> None:
        """End the process without a word; the system goes on."""
        self.disk.kill()
        self.fs = None

    def name(self) -> str:
        """A raw id that was not used before."""
        self.number += 1
        return f"e{self.epoch}_{self.number}"

    # ---- what is asked of it

    async def add(self, content: str) -> None:
        fs = await self.session()
        item = tool_result(fs, content, raw_id=self.name())
        self.may_store(item)
        before = self.now.snapshots[0]
        self.now = replace(self.now, snapshots=(before, (*before, _seen(item))))
        await fs.writer.add([item])
        self._acknowledged([item.id] if item.id in fs.state.stored else [])

    async def add_together(self, contents: Sequence[str]) -> None:
        """Add items at the same time: they share a commit."""
        fs = await self.session()
        items = [tool_result(fs, content, raw_id=self.name()) for content in contents]
        snapshots = [self.now.snapshots[0]]
        for item in items:
            self.may_store(item)
            snapshots.append((*snapshots[-1], _seen(item)))
        self.now = replace(self.now, snapshots=tuple(snapshots))
        async with anyio.create_task_group() as tasks:
            for item in items:
                tasks.start_soon(fs.writer.add, [item])
        self._acknowledged([item.id for item in items if item.id in fs.state.stored])

    async def store(self, items: Sequence[ContextItem]) -> None:
        fs = await self.session()
        for item in items:
            self.may_store(item)
        await fs.writer.store(items)
        self._acknowledged([item.id for item in items])

    async def evict(self, item: ContextItem) -> None:
        fs = await self.session()
        new = evicted(fs, item)
        self.may_store(item)
        before = self.now.snapshots[0]
        after = tuple(_seen(new) if entry[0] == item.id else entry for entry in before)
        self.now = replace(self.now, snapshots=(before, after))
        if self.variant.placeholder_first:
            await fs.writer.record([replacement(new, fs.base, "test")])
            await fs.writer.store([item])
        else:
            await fs.writer.evict([(item, new, "test")])
        self._acknowledged([item.id])

    async def remove(self, item: ContextItem) -> None:
        """Store an item's content, let the item leave the context, and remove the content for good."""
        fs = await self.session()
        await self.store([item])
        before = self.now.snapshots[0]
        self.now = replace(self.now, snapshots=(before, tuple(entry for entry in before if entry[0] != item.id)))
        await fs.writer.remove([item.id], reason="test")
        self._acknowledged([])
        going = frozenset({item.id})
        self.now = replace(self.now, must=self.now.must - going, going=self.now.going | going)
        tombstone = ContentRemoved.of(fs.state.stored[item.id], removed_at=0.0, by="test", reason="test")
        if self.variant.file_first:
            self.variant_store.delete([tombstone.name])
        await fs.writer.journal.remove([tombstone])
        self.now = replace(self.now, gone=self.now.gone | going)

    async def close(self) -> None:
        fs = await self.session()
        await fs.close()
        self.fs = None

    async def flush(self) -> None:
        await (await self.session()).writer.flush()

    async def export(self) -> None:
        await self.session()
        name = f"{self.name()}.ctxfs"
        done = self.now.archives
        self.now = replace(self.now, archives=(*done, (name, False)))
        await export_session(SESSION_ID, EXPORTS / name, root_path=ROOT, fs=self.disk)
        self.now = replace(self.now, archives=(*done, (name, True)))

    async def take_in(self) -> None:
        await self.session()
        session_id = f"{IMPORTED_ID}_{self.name()}"
        done = self.now.sessions
        self.now = replace(self.now, sessions=(*done, (session_id, False)))
        await import_session(self.archive, root_path=ROOT, session_id=session_id, fs=self.disk)
        self.now = replace(self.now, sessions=(*done, (session_id, True)))

    async def fork(self) -> None:
        await self.session()
        session_id = f"{IMPORTED_ID}_{self.name()}"
        done, snapshot = self.now.forks, self.now.snapshots[0]
        self.now = replace(self.now, forks=(*done, (session_id, snapshot, False)))
        await fork_session(SESSION_ID, new_id=session_id, root_path=ROOT, fs=self.disk)
        self.now = replace(self.now, forks=(*done, (session_id, snapshot, True)))

    async def undo(self, item: ContextItem) -> None:
        """Evict an item; then bring it back as an undo does, in one commit, and pin it."""
        await self.evict(item)
        fs = await self.session()
        before = self.now.snapshots[0]
        after = tuple(_seen(item) if entry[0] == item.id else entry for entry in before)
        self.now = replace(self.now, snapshots=(before, after))
        await fs.writer.record([Restored(item_id=item.id), Undone(change=fs.state.changes)])
        self._acknowledged([])
        await fs.writer.record([Pinned(item_ids=(item.id,))])

    async def return_archive(self, item: ContextItem) -> None:
        """An item leaves in an archive; then the archive leaves and the item is back, as by an undo, in one commit."""
        fs = await self.session()
        text = "archive of a result\n" * 5
        archive = claimed_item(fs, UserMessage(PLACEHOLDER), kind=ItemType.COMPACTION_SUMMARY, content_tokens=9)
        archive = replace(archive, offload_path=f"{fs.base}/{archive.name}")
        self.now = replace(self.now, contents=self.now.contents | {(archive.id, json_codec.dumps(text))})
        before = self.now.snapshots[0]
        ids = [entry[0] for entry in before]
        following = next(iter(ids[ids.index(item.id) + 1 :]), None)
        after = tuple(_seen(archive) if entry[0] == item.id else entry for entry in before)
        self.now = replace(self.now, snapshots=(before, after))
        await fs.writer.archive(archive, text, [item.id], before=following, reason="test")
        self._acknowledged([archive.id])
        self.now = replace(self.now, snapshots=(after, before))
        await bring_back(fs, undone(await fs.history()))
        self._acknowledged([])

    def may_store(self, item: ContextItem) -> None:
        known = self.now.contents | {(item.id, json_codec.dumps(item.message.content))}
        self.now = replace(self.now, contents=known)

    def _acknowledged(self, stored: Sequence[str]) -> None:
        must = self.now.must | frozenset(stored)
        self.now = replace(self.now, snapshots=self.now.snapshots[-1:], must=must)

    # ---- choosing

    async def in_context(self) -> list[ContextItem]:
        """Tool results whose contents are in the context, oldest first."""
        items = await (await self.session()).items()
        return [item for item in items if item.tool_name is not None and not item.offloaded]


def _seen(item: ContextItem) -> tuple[str, bytes, bool]:
    return item.id, json_codec.dumps(item.message.content), item.offloaded


async def snapshot_of(fs: ContextFileSystem) -> Snapshot:
    """What is in the context."""
    return tuple([_seen(item) for item in await fs.items()])


async def make_base(run: Run) -> None:
    """A session with a message and four results in it, all on the medium."""
    fs = await run.session()
    items = [user_message(fs, "What is in these files?")]
    contents: list[tuple[str, Content]] = [
        ("Read", "first result\nwith two lines"),
        ("Read", ({"type": "text", "text": "second"}, {"type": "text", "text": "result"})),
        ("Bash", "third, with a lone surrogate: \ud800"),
        ("Read", "fourth"),
    ]
    items += [tool_result(fs, content, raw_id=f"call_{n}", tool=tool) for n, (tool, content) in enumerate(contents)]
    for item in items:
        run.may_store(item)
    await fs.writer.add(items)
    run.now = replace(run.now, snapshots=(tuple(_seen(item) for item in items),), must=frozenset(fs.state.stored))
    await fs.writer.flush()
    run.disk.sync_all()
    run.forget()


# ---- the operations of a workload; False: there is nothing for it to do


async def _offload(run: Run) -> bool:
    fs = await run.session()
    items = [item for item in await run.in_context() if item.id not in fs.state.stored]
    if items:
        await run.store(items[:1])
    return bool(items)


async def _offload_two(run: Run) -> bool:
    fs = await run.session()
    items = [item for item in await run.in_context() if item.id not in fs.state.stored]
    if len(items) > 1:
        await run.store(items[-2:])
    return len(items) > 1


async def _add(run: Run) -> bool:
    await run.add("a small result")
    return True


async def _add_two(run: Run) -> bool:
    await run.add_together(["one of two, which is the longer one", "another"])
    return True


async def _add_large(run: Run) -> bool:
    await run.add("a large result\n" * 8)
    return True


async def add_huge(run: Run) -> bool:
    """Add an item of more than one block: its file gets an index of blocks beside it, which is not synced."""
    await run.add("a line of a huge result\n" * (BLOCK // 20))
    return True


async def _evict(run: Run) -> bool:
    items = await run.in_context()
    if items:
        await run.evict(items[0])
    return bool(items)


async def remove_one(run: Run) -> bool:
    """Remove the content of the newest result for good: a tombstone, then its file."""
    items = await run.in_context()
    if items:
        await run.remove(items[-1])
    return bool(items)


async def fork_all(run: Run) -> bool:
    """Fork the session: the new one is whole, or not there."""
    await run.fork()
    return True


async def undo_one(run: Run) -> bool:
    """Evict the oldest result, undo that, and pin it."""
    items = await run.in_context()
    if items:
        await run.undo(items[0])
    return bool(items)


async def return_one(run: Run) -> bool:
    """Archive the newest result, and undo that."""
    items = await run.in_context()
    if items:
        await run.return_archive(items[-1])
    return bool(items)


async def _flush(run: Run) -> bool:
    await run.flush()
    return True


async def _rewrite_index(run: Run) -> bool:
    """Store as many contents as make the next commit rewrite the index, then one more."""
    fs = await run.session()
    name = run.name()
    many = [tool_result(fs, f"content {n}", raw_id=f"{name}_{n}", tool="Many") for n in range(MANY + 1)]
    kept = len(run.moments), len(run.deaths)
    await run.store(many[:MANY])
    del (
        run.moments[kept[0] :],
        run.deaths[kept[1] :],
    )  # 2 ** 93 states of one commit; smaller ones are looked at elsewhere
    await run.store(many[MANY:])
    return True


async def _close(run: Run) -> bool:
    await run.close()
    return True


async def _recover(run: Run) -> bool:
    """The process dies, the system does not; then the session is opened."""
    await run.session()
    run.kill()
    await run.session()
    return True


async def _export(run: Run) -> bool:
    await run.export()
    return True


async def _import(run: Run) -> bool:
    await run.take_in()
    return True


OPERATIONS: dict[str, Operation] = {
    "offload": _offload,
    "offload 2": _offload_two,
    "add": _add,
    "add 2": _add_two,
    "add large": _add_large,
    "evict": _evict,
    "flush": _flush,
    "rewrite": _rewrite_index,
    "close": _close,
    "recover": _recover,
    "export": _export,
    "import": _import,
}
