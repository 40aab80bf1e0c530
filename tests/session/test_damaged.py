"""One content file that is damaged or missing: the session opens, says so, leaves the file alone, and heals."""

import gc
import os
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from ctxfs import Agent, AgentConfig, tool
from ctxfs.context.context import Context
from ctxfs.errors import CorruptContent, SessionLocked, StorageError, Unrecorded, WriteFailed
from ctxfs.eviction.offload_plan import Archive, Plan
from ctxfs.messages import CharsCounter, ToolCall
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from ctxfs.session.entries import archived
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.local import LocalStore
from ctxfs.testing import ScriptedModel
from ctxfs.testing.invariants import violations
from ctxfs.tools.read import read_tool
from ctxfs.tools.retrieval import retrieval_tools
from failing_fs import FailingFileSystem, as_port
from prove.cancelling import cancelled_at
from session_items import carried_out

pytestmark = [pytest.mark.anyio, pytest.mark.not_measured]

LARGE = "".join(f"row {n}\n" for n in range(2_000))


def delete(path: Path) -> None:
    path.unlink()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


DAMAGES: tuple[Callable[[Path], None], ...] = (delete, flip, empty, cut, make_directory, make_link)


def called(*ids: str, text: str = "") -> AssistantMessage:
    calls = [{"type": "tool_use", "id": call_id, "name": "t", "input": {"rows": 3}} for call_id in ids]
    return AssistantMessage(({"type": "text", "text": text}, *calls) if text else tuple(calls))


MESSAGES: tuple[Message, ...] = (
    SystemMessage(f"rules {LARGE}"),
    UserMessage(f"question {LARGE}"),
    called("c1", "c2", text=f"thoughts {LARGE}"),
    ToolMessage("c1", "t", f"one {LARGE}"),
    ToolMessage("c2", "t", f"two {LARGE}"),
    AssistantMessage(f"answer {LARGE}"),
)


def context_of(root: Path) -> Context:
    return Context("s", root_path=root, counter=CharsCounter(), pricing=None)


async def filled(root: Path) -> tuple[ContextItem, ...]:
    async with context_of(root) as context:
        return await context.add(*MESSAGES, UserMessage("go on"))


def file_of(root: Path, item: ContextItem) -> Path:
    return root / "s" / item.name


def seen(path: Path) -> object:
    """What is there, to be compared."""
    if path.is_symlink() or not path.is_file():
        return path.exists(), path.is_symlink()
    return path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns


def restore(path: Path, data: bytes) -> None:
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("number", "damage"),
    [*((number, flip) for number in range(len(MESSAGES))), *((3, damage) for damage in DAMAGES if damage is not flip)],
)
async def test_the_session_opens_with_a_text_in_its_place(
    tmp_path: Path, number: int, damage: Callable[[Path], None]
) -> None:
    before = await filled(tmp_path)
    path = file_of(tmp_path, before[number])
    whole = path.read_bytes()
    damage(path)
    left = seen(path)
    async with context_of(tmp_path) as context:
        item = context.items[number]
        assert item.damaged is not None
        assert f"is damaged: {before[number].name}: {item.damaged}" in str(item.message.content)
        assert item.token_count < 400 < before[number].token_count
        assert [i for n, i in enumerate(context.items) if n != number] == [
            i for n, i in enumerate(before) if n != number
        ]
        assert [found.item_id for found in context.fs.recovery.contents] == [item.id]
        assert context.fs.recovery.foreign == ()
        body = await context.request(cache=False)
        assert violations({"model": "m", "max_tokens": 1, **body}) == []
        await context.add(AssistantMessage("going on"), UserMessage("and on"))
    async with ContextFileSystem("s", root_path=tmp_path, read_only=True) as reader:
        assert (await reader.items())[number].message == item.message
    assert seen(path) == left
    restore(path, whole)
    async with context_of(tmp_path) as context:
        assert context.items[: len(before)] == before
        assert context.fs.recovery.clean
        assert (await context.fs.verify()).ok


async def test_a_reply_keeps_the_calls_that_were_answered(tmp_path: Path) -> None:
    before = await filled(tmp_path)
    delete(file_of(tmp_path, before[2]))
    async with context_of(tmp_path) as context:
        reply = context.items[2].message
        assert isinstance(reply, AssistantMessage)
        assert [(call.id, call.name, dict(call.arguments)) for call in reply.tool_calls] == [
            ("c1", "t", {}),
            ("c2", "t", {}),
        ]


async def test_it_is_never_stored_as_if_it_were_the_content(tmp_path: Path) -> None:
    before = await filled(tmp_path)
    delete(file_of(tmp_path, before[3]))
    async with context_of(tmp_path) as context:
        item = context.items[3]
        for write in (context.fs.writer.store, context.fs.writer.add):
            with pytest.raises(CorruptContent, match="the file is missing"):
                await write([item])
        with pytest.raises(CorruptContent, match="the file is missing"):
            await context.fs.offload(item)
        assert not file_of(tmp_path, item).exists()
    async with ContextFileSystem("other", root_path=tmp_path) as other:
        with pytest.raises(CorruptContent, match="the file is missing"):
            await other.writer.add([item])
        assert await other.items() == ()


async def test_what_keep_recent_lets_go_stays_while_it_is_damaged(tmp_path: Path) -> None:
    before = await filled(tmp_path)
    path = file_of(tmp_path, before[3])
    whole = path.read_bytes()
    flip(path)
    async with Context("s", root_path=tmp_path, counter=CharsCounter(), keep_recent={"t": 1}) as context:
        await context.evict()
        assert not context.items[3].offloaded
        assert context.items[3].damaged is not None
    path.write_bytes(whole)
    async with Context("s", root_path=tmp_path, counter=CharsCounter(), keep_recent={"t": 1}) as context:
        await context.evict()
        assert context.items[3].offloaded
        assert await context.fs.load("c1") == MESSAGES[3].content


async def test_an_archive_says_what_was_damaged(tmp_path: Path) -> None:
    before = await filled(tmp_path)
    delete(file_of(tmp_path, before[3]))
    async with context_of(tmp_path) as context:
        inside = context.items[2:5]
        item_id, name = context.fs.writer.allocate(ItemType.COMPACTION_SUMMARY, None)
        archive = Archive(
            item_id=item_id,
            name=name,
            path=str(context.fs.session_path / name),
            item_ids=tuple(item.id for item in inside),
            placeholder="[archived]",
            tokens_before=sum(item.token_count for item in inside),
            tokens_after=10,
            reason="full",
        )
        await carried_out(Plan(archive=archive), {item.id: item for item in context.items}, context.fs)
        left = await archived(context.fs, item_id)
        assert [item.id for item in left if item.damaged is not None] == ["c1"]
        assert left[2].message == MESSAGES[4]
        with pytest.raises(StorageError):
            await context.fs.load("c1")


async def test_the_reading_tools_say_so(tmp_path: Path) -> None:
    before = await filled(tmp_path)
    delete(file_of(tmp_path, before[3]))
    flip(file_of(tmp_path, before[4]))
    async with ContextFileSystem("s", root_path=tmp_path, read_only=True) as fs:
        tools = {each.name: each for each in (read_tool(fs), *retrieval_tools(fs))}
        for item, what in ((before[3], "is missing"), (before[4], "is damaged")):
            for name, arguments in (
                ("Read", {"file_path": str(fs.session_path / item.name)}),
                ("context_read", {"ref": item.id}),
                ("context_tail", {"ref": item.id}),
                ("context_grep", {"ref": item.id, "pattern": "row"}),
            ):
                result = await tools[name].run(arguments)
                assert result.is_error
                assert str(result.content).startswith("The stored content cannot be read: ")
                assert what in str(result.content)
                assert "Call the tool that gave it again" in str(result.content)


async def test_a_lost_record_of_a_content_keeps_nothing_shut(tmp_path: Path) -> None:
    async with context_of(tmp_path) as context:
        await context.add(UserMessage("hello"), called("c1"))
        await context.add(ToolMessage("c1", "t", "a short result " * 20))
        await context.fs.writer.store([context.items[-1]])
        await context.fs.writer.restore("c1", reason="")
    journal = tmp_path / "s" / "journal.jsonl"
    lines = [line for line in journal.read_bytes().splitlines(keepends=True) if b'"type":"stored"' not in line]
    journal.write_bytes(b"".join(lines))
    path = tmp_path / "s" / "tool_result" / "t" / "c1.json"
    empty(path)
    async with context_of(tmp_path) as context:
        assert context.items[-1].message.content == "a short result " * 20
        assert context.fs.recovery.foreign == ("tool_result/t/c1.json",)


async def test_what_says_nothing_about_the_file_is_no_damage(tmp_path: Path) -> None:
    await filled(tmp_path)
    fs = FailingFileSystem(lambda number, name: name == "open_read", error=24)
    fs.armed = False
    session = ContextFileSystem("s", root_path=tmp_path, store=LocalStore(tmp_path, "s", fs=as_port(fs)))
    async with session:
        fs.armed = True
        with pytest.raises(StorageError, match="could not read"):
            await session.items()
        fs.armed = False
        assert [item.damaged for item in await session.items()] == [None] * 7


async def test_a_file_that_the_disk_cannot_read_is_damaged(tmp_path: Path) -> None:
    await filled(tmp_path)
    fs = FailingFileSystem(lambda number, name: name == "read")
    fs.armed = False
    session = ContextFileSystem("s", root_path=tmp_path, store=LocalStore(tmp_path, "s", fs=as_port(fs)))
    async with session:
        fs.armed = True
        assert [item.damaged is not None for item in await session.items()] == [*[True] * 6, False]
        fs.armed = False


@tool("rows", name="t")
def rows(n: int) -> str:
    return f"row {n}\n" * 2_000


async def test_an_agent_goes_on(tmp_path: Path) -> None:
    def config(prompt: str) -> AgentConfig:
        return AgentConfig(tools=[rows], offload_root_path=tmp_path, session_id="s", pricing=None, system_prompt=prompt)

    prompt = f"You are kind. {LARGE}"
    turns = [[ToolCall("t", {"n": n})] for n in range(3)]
    async with Agent(ScriptedModel([*turns, "done"]), config(prompt)) as agent:
        await agent.query("q")
    for path in [*(tmp_path / "s" / "tool_result" / "t").iterdir(), *(tmp_path / "s" / "system_prompt").iterdir()]:
        flip(path)
    async with Agent(ScriptedModel(["x"]), config(prompt)) as agent:
        assert await agent.query("go on") == "x"
        results = [item for item in agent.context.items if item.item_type is ItemType.TOOL_RESULT]
        assert all(item.damaged is not None for item in results)
        (system,) = [item for item in agent.context.items if item.item_type is ItemType.SYSTEM_PROMPT]
        assert system.message.content == prompt  # the developer's word is there again


# ---- closing


@pytest.mark.parametrize("method", ["write", "sync", "rename", "create"])
async def test_a_session_that_cannot_be_closed_in_order_is_released(tmp_path: Path, method: str) -> None:
    fs = FailingFileSystem(lambda number, name: name == method)
    fs.armed = False
    store = LocalStore(tmp_path, "s", fs=as_port(fs))
    context = Context(ContextFileSystem("s", root_path=tmp_path, store=store), counter=CharsCounter())
    await context.open()
    await context.add(UserMessage("hello"))
    fs.armed = True
    with pytest.raises(WriteFailed):
        await context.close()
    fs.armed = False
    await context.close()
    async with context_of(tmp_path) as again:
        assert [item.message for item in again.items] == [UserMessage("hello")]


async def test_an_agent_whose_session_was_taken_over_can_be_closed_and_opened_again(tmp_path: Path) -> None:
    config = AgentConfig(offload_root_path=tmp_path, session_id="s")
    agent = Agent(ScriptedModel(["a", "b"]), config)
    await agent.query("q")
    with (tmp_path / "s" / "journal.jsonl").open("a") as journal:
        journal.write("hello\n")
    with pytest.raises(SessionLocked):
        await agent.query("again")
    with pytest.raises(Unrecorded):
        await agent.close()
    await agent.close()
    async with Context("s", root_path=tmp_path) as context:
        assert len(context.items) == 2


@pytest.mark.slow
@pytest.mark.both_loops
async def test_an_agent_whose_opening_is_cancelled_holds_nothing(tmp_path: Path, anyio_backend_name: str) -> None:
    config = AgentConfig(offload_root_path=tmp_path, session_id="s", system_prompt="Be brief.")

    agents: list[Agent] = []  # kept, since one that is dropped is released

    async def open_and_close() -> None:
        agents.append(Agent(ScriptedModel([]), config))
        async with agents[-1]:
            pass

    while await cancelled_at(f"scope on {anyio_backend_name}", len(agents) + 1, open_and_close):
        async with context_of(tmp_path):
            pass
    assert len(agents) > 2


async def is_released(root: Path) -> bool:
    gc.collect()
    try:
        async with context_of(root):
            return True
    except SessionLocked:
        return False


@pytest.mark.both_loops
@pytest.mark.slow
@pytest.mark.filterwarnings("always::ResourceWarning")
@pytest.mark.parametrize("kind", ["agent", "context", "session"])
async def test_a_session_that_is_dropped_warns_and_is_released(tmp_path: Path, kind: str) -> None:
    async def dropped() -> None:
        match kind:
            case "agent":
                agent = Agent(ScriptedModel(["a"]), AgentConfig(offload_root_path=tmp_path, session_id="s"))
                await agent.query("q")
            case "context":
                await context_of(tmp_path).open()
            case _:
                await ContextFileSystem("s", root_path=tmp_path).open()

    async def collected(seen: pytest.WarningsRecorder) -> None:
        await dropped()
        while not seen:  # a worker thread holds what it ran until a moment after it gave the result
            gc.collect()
            await anyio.lowlevel.checkpoint()

    with pytest.warns(ResourceWarning, match="session s was dropped while it was open: use `async with`") as seen:
        await collected(seen)
    seen.clear()  # a warning holds its source
    while not await is_released(tmp_path):
        await anyio.lowlevel.checkpoint()
