"""A fork: a session of its own that goes on from an earlier call, and names the same files on the disk."""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ctxfs.context.context import Context
from ctxfs.errors import ConfigError, ContentGone, SessionExists, SessionNotFound, UnknownCall, WriteFailed
from ctxfs.messages import CharsCounter
from ctxfs.messages.items import ItemType
from ctxfs.messages.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ctxfs.session import erase
from ctxfs.session.archive import write_archive
from ctxfs.session.cleanup.contents import remove_contents
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import SessionStarted
from ctxfs.session.timeline.fork import fork_session
from ctxfs.session.timeline.reading import read_timeline
from ctxfs.session.transfer.sessions import export_session
from ctxfs.storage import MemoryStore
from ctxfs.storage.local import list_sessions, remove_session
from ctxfs.storage.memory import MemorySessions
from ctxfs.storage.port import OsFileSystem
from ctxfs.tools.read import read_tool
from failing_fs import FailingFileSystem, as_port
from session_items import claimed_item, make_item, user_message

pytestmark = [pytest.mark.anyio, pytest.mark.not_measured]

TEXT = "a line of the log\n" * 20_000
OLD = Path(__file__).parent / "session_0_1_0"


def context(root: Path, session_id: str, **settings: Any) -> Context:
    defaults: dict[str, Any] = {"keep_recent": {"log": 1}, "window": None, "pricing": None}
    return Context(session_id, root_path=root, counter=CharsCounter(), **{**defaults, **settings})


async def called(ctx: Context, n: int) -> tuple[Message, ...]:
    sent = await ctx.messages()
    call = {"type": "tool_use", "id": f"c{n}", "name": "log", "input": {"n": n}}
    await ctx.add(AssistantMessage((call,)), ToolMessage(f"c{n}", "log", f"{n} {TEXT}"))
    return sent


async def filled(root: Path, session_id: str = "first") -> list[tuple[Message, ...]]:
    """A session of four calls, in which two results were evicted; returns what was sent."""
    async with context(root, session_id) as ctx:
        await ctx.add(UserMessage("go"))
        return [await called(ctx, n) for n in (1, 2, 3, 4)]


def contents(messages: Sequence[Message]) -> list[Any]:
    return [message.content for message in messages]


def _is(name: str, number: int, called: str) -> bool:
    return called == name and number > 0


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def inodes(path: Path) -> dict[str, int]:
    return {
        str(file.relative_to(path)): file.stat().st_ino for file in path.rglob("*.json") if file.name != "index.json"
    }


async def test_the_next_request_of_a_fork_is_the_one_of_that_call(tmp_path: Path) -> None:
    sent = await filled(tmp_path)
    forked = await fork_session("first", at=3, new_id="second", root_path=tmp_path)
    assert (forked.session_id, forked.call, forked.path) == ("second", 3, tmp_path / "second")
    async with context(tmp_path, "second") as ctx:
        assert contents(await ctx.messages()) == contents(sent[2])
        assert len((await read_timeline(ctx.fs)).calls) == 2
        await ctx.add(AssistantMessage("another way"))
        started = (await ctx.fs.history())[0]
        assert isinstance(started, SessionStarted)
        assert (started.session_id, started.forked_from, started.forked_at) == ("second", "first", 3)
    async with context(tmp_path, "first") as ctx:
        assert "another way" not in str(ctx.items)
        assert contents((await ctx.request_at(3)).messages) == contents(sent[2])


async def test_contents_are_on_the_disk_once_and_each_session_outlives_the_other(tmp_path: Path) -> None:
    await filled(tmp_path)
    forked = await fork_session("first", new_id="second", root_path=tmp_path)
    assert (forked.shared, forked.copied, forked.call) == (4, 0, 5)
    assert inodes(tmp_path / "first") == inodes(tmp_path / "second")
    third = await fork_session("second", at=4, new_id="third", root_path=tmp_path)
    assert third.shared == 3
    await remove_session(tmp_path, "first")
    await remove_session(tmp_path, "second")
    async with context(tmp_path, "third") as ctx:
        assert ctx.fs.recovery.clean
        assert (await ctx.fs.verify()).ok
        placeholder = next(item for item in ctx.items if item.id == "c1")
        assert placeholder.destroyed
        assert str(tmp_path / "first") in str(placeholder.message.content)
        read = read_tool(ctx.fs)
        page = await read.handler({"file_path": f"{tmp_path}/first/{placeholder.name}", "limit": 1})
        assert "1 a line of the log" in str(page.content)
        assert (await ctx.restore("c1")).message == ToolMessage("c1", "log", f"1 {TEXT}")


async def test_a_running_session_is_forked_by_its_own_context_and_from_outside(tmp_path: Path) -> None:
    async with context(tmp_path, "first") as ctx:
        await ctx.add(UserMessage("go"))
        sent = [await called(ctx, n) for n in (1, 2, 3)]
        forked = await ctx.fork(at=2)
        outside = await fork_session("first", at=2, root_path=tmp_path)
        await called(ctx, 4)
        for one in (forked, outside):
            async with context(tmp_path, one.session_id) as other:
                assert contents(await other.messages()) == contents(sent[1])
                await called(other, 9)
        assert [item.id for item in ctx.items][-1] == "c4"
    assert len(await list_sessions(tmp_path)) == 3


async def test_where_a_file_cannot_have_two_names_it_is_copied(tmp_path: Path) -> None:
    await filled(tmp_path)

    class OtherDisk(OsFileSystem):
        def link_across(self, source_fd: int, dir_fd: int, name: str) -> None:
            raise OSError(18, "Invalid cross-device link")

    forked = await fork_session("first", new_id="second", root_path=tmp_path, fs=OtherDisk())
    assert (forked.shared, forked.copied) == (0, 4)
    assert set(inodes(tmp_path / "first").values()).isdisjoint(inodes(tmp_path / "second").values())
    async with context(tmp_path, "second") as ctx:
        assert (await ctx.fs.verify()).ok


async def test_a_fork_is_exported_and_a_missing_content_is_missing_in_it_too(tmp_path: Path) -> None:
    await filled(tmp_path)
    await fork_session("first", new_id="second", root_path=tmp_path)
    await export_session("second", tmp_path / "out.ctxfs", root_path=tmp_path)
    for file in list((tmp_path / "first").rglob("c1.json*")):  # it, and its index of blocks
        file.unlink()
    await fork_session("first", new_id="third", root_path=tmp_path)
    async with ContextFileSystem("third", root_path=tmp_path, read_only=True) as fs:
        assert [found.item_id for found in fs.recovery.contents] == ["c1"]


async def test_what_cannot_be_forked_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    await filled(tmp_path)
    await filled(tmp_path, "taken")
    before = names(tmp_path)
    for wrong, error in (
        ({"at": 9}, UnknownCall),
        ({"at": 0}, UnknownCall),
        ({"at": "1"}, ConfigError),
        ({"new_id": "taken"}, SessionExists),
        ({"new_id": "../x"}, ConfigError),
    ):
        arguments: dict[str, Any] = {"new_id": "second", **wrong}
        with pytest.raises(error):
            await fork_session("first", root_path=tmp_path, **arguments)
    with pytest.raises(SessionNotFound):
        await fork_session("nothing", root_path=tmp_path)
    with pytest.raises(ConfigError, match="session id"):
        await fork_session("../first", root_path=tmp_path)
    for name in ("link_across", "write"):
        failing = FailingFileSystem(partial(_is, name))
        with pytest.raises(WriteFailed):
            await fork_session("first", new_id="second", root_path=tmp_path, fs=as_port(failing))
    assert names(tmp_path) == before


async def test_the_names_of_shared_files_are_durable_before_the_journal_refers_to_them(tmp_path: Path) -> None:
    await filled(tmp_path)
    counting = FailingFileSystem()
    await fork_session("first", new_id="second", root_path=tmp_path, fs=as_port(counting))
    last = max(number for number, name in enumerate(counting.log) if name == "link_across")
    after = [name for name in counting.log[last + 1 :] if name in ("sync", "write", "begin_sync")]
    assert after[0] == "sync"


@pytest.mark.parametrize("at", [2, None])
async def test_what_was_removed_since_that_call_says_so_in_a_fork(tmp_path: Path, at: int | None) -> None:
    await filled(tmp_path)
    async with ContextFileSystem("first", root_path=tmp_path) as fs:
        await remove_contents(fs, {"c1": "it is old"}, by="a test")
    await erase("first", ["c3"], root_path=tmp_path)
    made = await fork_session("first", at=at, new_id="second", root_path=tmp_path)
    gone = {"c1"} if at == 2 else {"c1", "c3"}  # the third result was not there yet
    assert made.gone == len(gone)
    async with context(tmp_path, "second", keep_recent=None) as ctx:
        assert ctx.fs.recovery.contents == ()
        assert set(ctx.fs.state.removed) == gone
        for item_id in gone:
            with pytest.raises(ContentGone, match="removed on"):
                await ctx.fs.load(item_id)
        assert (await ctx.fs.verify()).ok


async def test_an_archive_that_was_written_again_since_is_whole_in_a_fork(tmp_path: Path) -> None:
    async with ContextFileSystem("first", root_path=tmp_path) as fs:
        held = [user_message(fs, "a secret that was archived"), user_message(fs, "another message")]
        item_id, name = fs.writer.allocate(ItemType.COMPACTION_SUMMARY, None)
        summary = make_item(item_id, UserMessage("a summary"), kind=ItemType.COMPACTION_SUMMARY, name=name)
        await fs.writer.add(held)
        await fs.writer.archive(summary, write_archive(held), [item.id for item in held], before=None, reason="r")
        await fs.writer.add([claimed_item(fs, AssistantMessage("yes"))])
    await erase("first", [held[0].id], root_path=tmp_path)
    made = await fork_session("first", at=1, new_id="second", root_path=tmp_path)
    assert made.gone == 1
    async with ContextFileSystem("second", root_path=tmp_path) as fs:
        assert (await fs.verify()).ok
        archive = str(await fs.load(item_id))
    assert "secret" not in archive
    assert "another message" in archive


async def test_a_context_forks_where_its_session_is(tmp_path: Path) -> None:
    places = MemorySessions()
    async with Context("first", root_path=places, counter=CharsCounter()) as ctx:
        await ctx.add(UserMessage("Hello"))
        await ctx.fork(session_id="second")
    async with Context("second", root_path=places, counter=CharsCounter()) as ctx:
        assert [item.message for item in ctx.items] == [UserMessage("Hello")]
    fs = ContextFileSystem("third", root_path=tmp_path, store=MemoryStore("third"))
    async with Context(fs, counter=CharsCounter()) as ctx:
        with pytest.raises(ConfigError, match="a store of its own"):
            await ctx.fork()


async def test_a_session_of_0_1_0_is_forked(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "old")
    await fork_session("old", at=4, new_id="new", root_path=tmp_path)
    async with ContextFileSystem("old", root_path=tmp_path, read_only=True) as fs:
        wanted = [item.id for item in (await read_timeline(fs)).request(4).items]
    async with context(tmp_path, "new") as ctx:
        assert [item.id for item in ctx.items] == wanted
