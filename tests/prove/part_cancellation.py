"""Every operation, cancelled at every await: no placeholder without its content, and the session goes on."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio
import anyio.lowlevel

from ctxfs import Agent, AgentConfig, tool
from ctxfs.context.context import Context
from ctxfs.context.live import LiveTranscript
from ctxfs.errors import PromptTooLong, SessionNotFound
from ctxfs.eviction.compaction import SelectiveCompaction
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.window import Window
from ctxfs.messages import CharsCounter
from ctxfs.messages.base import Reply, Usage
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Content, ToolCall, ToolMessage, UserMessage
from ctxfs.session.archive import read_archive
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.item_records import replacement
from ctxfs.session.journal_writer import JournalWriter
from ctxfs.session.timeline.back import undone
from ctxfs.session.timeline.bring_back import bring_back
from ctxfs.session.timeline.fork import fork_session
from ctxfs.storage import MemoryDisk, MemoryStore
from ctxfs.storage.local import LocalStore
from ctxfs.testing import ScriptedModel
from ctxfs.testing.scripted import Turn
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools import Materialize, Materializer
from ctxfs.tools.read import read_tool
from ctxfs.tools.retrieval import retrieval_tools
from prove.cancelling import NATIVE, WAYS, backend_of, cancelled_at, is_repeated
from prove.parts import MEMORY, Part, Result
from prove.play import check_request
from session_items import evicted, tool_result, user_message

__all__ = [
    "AGENT_OPERATIONS",
    "ALL",
    "FS_OPERATIONS",
    "OPERATIONS",
    "PART",
    "cancel_everywhere",
    "controls",
    "listed_tasks",
]

_ID = "session_20260101_000000_aaaaaa"
_FORK_ID = "session_20260101_000000_bbbbbb"
_COUNTER = CharsCounter()
_MANY = 10_000


def _long(name: str, lines: int = 150) -> str:
    return f"a line of {name}\n" * lines


def _calls(*ids: str) -> AssistantMessage:
    return AssistantMessage(tuple({"type": "tool_use", "id": i, "name": "Read", "input": {"path": i}} for i in ids))


def _result(call_id: str, lines: int = 150) -> ToolMessage:
    return ToolMessage(call_id, "Read", _long(call_id, lines))


_PAST = (
    UserMessage("the task"),
    *(m for n in range(1, 6) for m in (_calls(f"call_{n}"), _result(f"call_{n}"))),
    AssistantMessage(({"type": "text", "text": "done so far"},)),
)
"""What every session here begins with: five results, of which four are due when one is to stay."""


# ---- contexts


async def _summarize(prompt: str) -> Reply:
    await anyio.lowlevel.checkpoint()
    message = AssistantMessage("The plan goes on.")
    return Reply(message=message, usage=Usage(input_tokens=90), stop_reason="end_turn", model="a-model")


@dataclass(slots=True)
class Bench:
    """A session with a past, open for one operation."""

    store: MemoryStore
    settings: dict[str, Any] = field(default_factory=dict)
    budget: Window | None = None
    summarize: bool = False
    compaction: SelectiveCompaction | None = None
    kind: type[Context] = Context
    context: Context = field(init=False)

    def __post_init__(self) -> None:
        self.context = self.make(self.store)

    def make(self, store: MemoryStore) -> Context:
        """A context on ``store``."""
        fs = ContextFileSystem(_ID, root_path="/sessions", store=store, inline_limit_chars=500)
        summarize = _summarize if self.summarize else None
        window = None if self.budget is None else replace(self.budget, compaction=self.compaction, summarize=summarize)
        return self.kind(fs, counter=_COUNTER, window=window, **self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What is cancelled: ``run`` on a ``Bench``, which is open already unless ``opened`` is false."""

    run: Callable[[Bench], Awaitable[Any]]
    settings: dict[str, Any] = field(default_factory=dict)
    budget: Window | None = None
    summarize: bool = False
    compaction: SelectiveCompaction | None = None
    opened: bool = True


_FILES_AND_ARCHIVE = SelectiveCompaction(
    rules={
        ItemType.TOOL_RESULT: 3,
        ItemType.ASSISTANT_MESSAGE: 4,
    }
)
"""Some results go to files of their own and an exchange to an archive, by one plan."""


def _budget(window_tokens: int) -> Window:
    return Window(window_tokens=window_tokens, reply_tokens=100)


async def _add_burst(bench: Bench) -> None:
    context = bench.context
    await context.add(UserMessage("now"), _calls("new_1", "new_2"), _result("new_1", 300), _result("new_2", 500))
    await context.messages()


async def _add_reply_and_results(bench: Bench) -> None:
    usage = Usage(input_tokens=5_000)
    await bench.context.add(UserMessage("now"))
    await bench.context.add(_calls("new_1", "new_2"), _result("new_1"), _result("new_2"), usage=usage, model="a-model")


async def _answer_open_calls(bench: Bench) -> None:
    await bench.context.add(UserMessage("now"), _calls("new_1", "new_2"))
    await bench.context.answer_open_calls("interrupted")


async def _replace_system_prompt(bench: Bench) -> None:
    await bench.context.set_system_prompt("Be brief.")
    await bench.context.set_system_prompt("Be thorough.")


async def _restore_evicted(bench: Bench) -> None:
    await bench.context.evict()
    await bench.context.restore("call_1")
    await bench.context.restore("call_2")
    await bench.context.messages()


async def _undo_evictions(bench: Bench) -> None:
    await bench.context.evict()
    await bench.context.undo()
    await bench.context.pin("call_1")
    await bench.context.unpin("call_1")
    await bench.context.messages()


async def _restore_archived(bench: Bench) -> None:
    await bench.context.messages()
    await bench.context.restore(next(iter(bench.context.fs.state.archived)))
    await bench.context.add(UserMessage("now"))


async def _open_over_open_files(bench: Bench) -> None:
    await bench.context.fs.open()
    await bench.context.open()


OPERATIONS: dict[str, Operation] = {
    "open": Operation(run=lambda b: b.context.open(), opened=False),
    "open over open files": Operation(run=_open_over_open_files, opened=False),
    "close": Operation(run=lambda b: b.context.close()),
    "add a message": Operation(run=lambda b: b.context.add(UserMessage("more"))),
    "add a large message": Operation(run=lambda b: b.context.add(UserMessage(_long("the user", 900)))),
    "add a reply and its results": Operation(run=_add_reply_and_results),
    "add what leaves on arrival": Operation(
        run=_add_reply_and_results, settings={"eager": Materializer(settings=Materialize(max_inline_chars=1_000))}
    ),
    "answer open calls": Operation(run=_answer_open_calls),
    "replace the system prompt": Operation(run=_replace_system_prompt),
    "add a skill prompt": Operation(run=lambda b: b.context.add_skill_prompt("skill", _long("a skill"))),
    "evict": Operation(run=lambda b: b.context.evict(), settings={"keep_recent": {"Read": 1}}),
    "restore what was evicted": Operation(run=_restore_evicted, settings={"keep_recent": {"Read": 1}}),
    "undo, pin and unpin": Operation(run=_undo_evictions, settings={"keep_recent": {"Read": 1}}),
    "restore what was archived": Operation(run=_restore_archived, budget=_budget(2_500)),
    "request": Operation(run=lambda b: b.context.request(), settings={"keep_recent": {"Read": 1}}),
    "compact into an archive": Operation(run=lambda b: b.context.messages(), budget=_budget(2_500)),
    "compact into files and an archive": Operation(
        run=lambda b: b.context.messages(),
        budget=_budget(2_500),
        compaction=_FILES_AND_ARCHIVE,
        settings={"offload_policy": OffloadPolicy(token_threshold=100)},
    ),
    "summarise": Operation(run=lambda b: b.context.messages(), budget=_budget(2_500), summarize=True),
    "make room for a burst": Operation(run=_add_burst, budget=_budget(4_000)),
    "make room when refused": Operation(
        run=lambda b: b.context.refused(PromptTooLong("too long", actual_tokens=9_000, limit_tokens=3_000)),
        budget=_budget(100_000),
    ),
}


async def _placeholder_first(bench: Bench) -> None:
    fs = bench.context.fs
    item = next(i for i in bench.context.items if i.id == "call_1")
    await fs.writer.record([replacement(evicted(fs, item), fs.base, "before its content is stored")])
    await fs.writer.store([item])


BROKEN = Operation(run=_placeholder_first)


Cancel = Callable[[Callable[[], Awaitable[Any]]], Awaitable[int]]
"""Runs an operation, and cancels it somewhere; how often, 0 when it ended before."""


class _Prepared:
    """A session with the past in it, made once and copied for each attempt."""

    def __init__(self) -> None:
        self._store = MemoryStore(_ID)
        self.originals: dict[str, Content] = {}

    async def make(self) -> None:
        async with Bench(self._store).context as context:
            items = await context.add(*_PAST)
        self.originals = {item.id: item.message.content for item in items}

    def copy(self) -> MemoryStore:
        disk = self._store.disk
        return MemoryStore(_ID, MemoryDisk(files=dict(disk.files), log=bytearray(disk.log), exists=True))


async def _attempt(
    cancel: Cancel, operation: Operation, past: _Prepared, kind: type[Context] = Context
) -> tuple[int, list[str]]:
    settings = (operation.settings, operation.budget, operation.summarize, operation.compaction)
    bench = Bench(past.copy(), *settings, kind=kind)
    if operation.opened:
        await bench.context.open()
    fired = await cancel(lambda: operation.run(bench))
    return fired, await _go_on(bench, past)


async def _go_on(bench: Bench, past: _Prepared) -> list[str]:
    """What is wrong with a session after a cancelled operation; it is used, closed and opened again."""
    context = bench.context
    wrong = [f"in memory only, and the disk is well: {context.unrecorded}"] if context.unrecorded else []
    await context.open()
    wrong += await _contradictions(context, past)
    await context.answer_open_calls("interrupted")
    await context.add(UserMessage("go on"))
    wrong += check_request(await context.messages())
    wrong += await _contradictions(context, past)
    if context.unrecorded:
        wrong.append(f"not recorded: {context.unrecorded}")
    items = context.items
    await context.close()
    async with bench.make(bench.store.peer()) as again:
        wrong += _difference("reopened", again.items, items)
        wrong += check_request([item.message for item in again.items])
        wrong += [f"{p.name}: {p.detail}" for p in (await again.fs.verify()).problems]
    return wrong


def _difference(what: str, found: Sequence[ContextItem], expected: Sequence[ContextItem]) -> list[str]:
    if list(found) == list(expected):
        return []
    return [f"{what}: {[i.id for i in found]} instead of {[i.id for i in expected]}"]


async def _contradictions(context: Context, past: _Prepared) -> list[str]:
    """Where memory, journal and files do not say the same, or something of the past is lost."""
    fs = context.fs
    recorded = [item for item in context.items if item.id not in context.unrecorded]
    in_context = {item.id for item in context.items}
    journal = await fs.items()
    # A replaced system prompt is removed by the commit that records the one that replaces it.
    replaced = {
        item.id
        for item in journal
        if context.unrecorded and item.item_type is ItemType.SYSTEM_PROMPT and item.id not in in_context
    }
    wrong = _difference("journal", [item for item in journal if item.id not in replaced], recorded)
    wrong += [f"{i.id}: a placeholder without content" for i in context.items if i.offload_path and not fs.find(i.id)]
    if context.token_count != (tokens := sum(i.token_count for i in context.items)):
        wrong.append(f"{context.token_count} tokens are counted instead of {tokens}")
    if len(prompts := [i.id for i in context.items if i.item_type is ItemType.SYSTEM_PROMPT]) > 1:
        wrong.append(f"{prompts} are all sent as the system prompt")
    current = {item.id: item for item in context.items}
    for item_id, content in past.originals.items():
        item, archive = current.get(item_id), fs.state.archived.get(item_id)
        if item is not None and not item.offloaded:
            found: Content | None = item.message.content
        elif fs.find(item_id):
            found = await fs.load(item_id)
        else:
            found = read_archive(str(await fs.load(archive))).get(item_id) if archive else None
        if found != content:
            wrong.append(f"{item_id} is lost")
    return wrong


# ---- the session's file system, and the tools that read it


async def _fs_evict(fs: ContextFileSystem, items: Sequence[ContextItem]) -> None:
    await fs.writer.evict([(item, evicted(fs, item), "due") for item in items])


async def _fs_concurrently(fs: ContextFileSystem, items: Sequence[ContextItem]) -> None:
    async with anyio.create_task_group() as group:
        for item in items:
            group.start_soon(fs.writer.add, [item])
            group.start_soon(fs.offload, item)


async def _fs_add_and_restore(fs: ContextFileSystem, items: Sequence[ContextItem]) -> None:
    await fs.writer.add(items)
    await _fs_evict(fs, items)
    await fs.restore(items[0].id)
    await fs.writer.remove([items[1].id], reason="enough")


async def _fs_archive(fs: ContextFileSystem, items: Sequence[ContextItem]) -> None:
    await fs.writer.add(items)
    archive = user_message(fs, "what was there")
    await fs.writer.archive(archive, _long("the archive"), [i.id for i in items], before=None, reason="old")


async def _fs_undo_archive(fs: ContextFileSystem, items: Sequence[ContextItem]) -> None:
    await _fs_archive(fs, items)
    await bring_back(fs, undone(await fs.history()))


async def _fs_fork(fs: ContextFileSystem, items: Sequence[ContextItem]) -> None:
    await fs.writer.add(items)
    await fork_session(_ID, new_id=_FORK_ID, root_path=fs.session_path.parent)


async def _wrong_in_fork(folder: str, before: Sequence[ContextItem]) -> list[str]:
    """A fork is whole, or not there."""
    fork = ContextFileSystem(_FORK_ID, root_path=folder, read_only=True)
    try:
        await fork.open(create=False)
    except SessionNotFound:
        return []
    items, problems = [item.id for item in await fork.items()], (await fork.verify()).problems
    await fork.close()
    lost = [f"{item.id} is not in the fork" for item in before if item.id not in items]
    return [*lost, *(f"in the fork: {problem}" for problem in problems)]


async def _fs_grow(fs: ContextFileSystem, items: Sequence[ContextItem]) -> None:
    log = await fs.writer.grow("Bash")
    for _ in range(3):
        await log.append(b"a line\n" * 10_000)
    await log.finish({})


async def _fs_tools(fs: ContextFileSystem, items: Sequence[ContextItem]) -> None:
    await fs.writer.add(items)
    await fs.writer.store(items)
    tools = {t.name: t for t in (read_tool(fs, counter=_COUNTER), *retrieval_tools(fs, counter=_COUNTER))}
    ref = items[0].id
    await tools["Read"].run({"file_path": f"{fs.base}/{items[0].name}"})
    await tools["context_read"].run({"ref": ref, "offset": 3})
    await tools["context_tail"].run({"ref": ref})
    await tools["context_grep"].run({"ref": ref, "pattern": "line"})
    await tools["context_list"].run({})


FS_OPERATIONS: dict[str, Callable[[ContextFileSystem, Sequence[ContextItem]], Awaitable[Any]]] = {
    "fs: add": lambda fs, items: fs.writer.add(items),
    "fs: store": lambda fs, items: fs.writer.store(items),
    "fs: evict": _fs_evict,
    "fs: concurrent commits": _fs_concurrently,
    "fs: restore and remove": _fs_add_and_restore,
    "fs: archive": _fs_archive,
    "fs: undo an archive": _fs_undo_archive,
    "fs: fork": _fs_fork,
    "fs: record a call": lambda fs, items: fs.writer.record_call(Usage(input_tokens=9), "a-model"),
    "fs: flush": lambda fs, items: fs.writer.flush(),
    "fs: verify": lambda fs, items: fs.verify(),
    "fs: grow": _fs_grow,
    "fs: close": lambda fs, items: fs.close(),
    "tools": _fs_tools,
}


async def _fs_attempt(cancel: Cancel, name: str) -> tuple[int, list[str]]:
    """On the local disk, so that its locks and handles are cancelled too."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        store = LocalStore(Path(folder), _ID, durability="process")
        fs = ContextFileSystem(_ID, root_path=folder, store=store, inline_limit_chars=500)
        wrong: list[str] = []
        if name == "fs: open":
            fired = await cancel(fs.open)
            await fs.open()
        else:
            await fs.open()
            before = [tool_result(fs, _long("before"), "before"), user_message(fs, "before")]
            await fs.writer.add(before)
            items = [tool_result(fs, _long(f"item {n}", 300), f"item_{n}") for n in range(3)]
            fired = await cancel(lambda: FS_OPERATIONS[name](fs, items))
            await fs.open()
            wrong += [f"{i.id} is lost" for i in before if i not in await fs.items()]
        more = tool_result(fs, _long("more"), "more")
        await fs.writer.add([more])
        await _fs_evict(fs, [more])
        state, contents = await fs.items(), {item_id: await fs.load(item_id) for item_id in fs.state.stored}
        await fs.close()
        async with ContextFileSystem(_ID, root_path=folder) as again:
            wrong += _difference("reopened", await again.items(), state)
            wrong += [f"{i.id}: no content" for i in state if i.offload_path and not again.find(i.id)]
            wrong += [f"{i} changed" for i, content in contents.items() if await again.load(i) != content]
            wrong += [f"{p.name}: {p.detail}" for p in (await again.verify()).problems]
            # What a command had printed so far is taken in when the session is opened next.
            if not replace(again.recovery, adopted=() if name == "fs: grow" else again.recovery.adopted).clean:
                wrong.append(f"the session was not left clean: {again.recovery}")
        wrong += await _wrong_in_fork(folder, before) if name == "fs: fork" else []
        wrong += [f"left behind: {path.name}" for path in Path(folder).rglob(".ctxfs-tmp-*")]  # noqa: ASYNC240
    return fired, wrong


# ---- agents


def _turns() -> list[Turn]:
    def calls(*names: str) -> list[str | ToolCall]:
        return [ToolCall("lines", {"name": name}) for name in names]

    return [calls("a", "b"), calls("c"), [ToolCall("context_list", {})], *["done"] * 5]


def _agent(root: Path, kind: type[Agent] = Agent, finished: list[str] | None = None, *, redacts: bool = False) -> Agent:
    """An agent whose tool notes in ``finished`` what it has done; ``redacts``: a callback waits between both."""

    @tool("Print many lines", ephemeral=1)
    async def lines(name: str) -> str:
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        if finished is not None:
            finished.append(name)
        return _long(name)

    async def redact(call: ToolCall, content: Content) -> Content:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        return content

    config = AgentConfig(
        tools=[lines],
        redact=redact if redacts else None,
        system_prompt="Be brief.",
        session_id=_ID,
        offload_root_path=root,
        materialize=Materialize(max_inline_chars=2_000),
    )
    return kind(ScriptedModel(_turns()), config)


async def _agent_new(agent: Agent) -> None:
    await agent.query("go")


async def _agent_session(agent: Agent) -> None:
    async with agent:
        async for _ in agent.stream("go"):
            pass


_REDACTED = "agent: query, redacted"

AGENT_OPERATIONS: dict[str, Callable[[Agent], Awaitable[Any]]] = {
    "agent: query": _agent_new,
    _REDACTED: _agent_new,
    "agent: open, stream, close": _agent_session,
    "agent: open": lambda agent: agent.open(),
    "agent: resume": lambda agent: agent.open(),
}


async def _agent_attempt(cancel: Cancel, name: str, kind: type[Agent] = Agent) -> tuple[int, list[str]]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        root = Path(folder)
        if name == "agent: resume":
            await _interrupted_session(root)
        finished: list[str] = []
        agent = _agent(root, kind, finished, redacts=name == _REDACTED)
        fired = await cancel(lambda: AGENT_OPERATIONS[name](agent))
        wrong = await _lost(agent.context, finished)
        if wrong:
            return fired, wrong
        if agent.context.open_calls and name != "agent: resume":
            wrong.append(f"open calls: {agent.context.open_calls}")
        if await agent.query("go on") != "done":
            wrong.append("no answer")
        context = agent.context
        wrong += check_request([i.message for i in context.items])
        if [str(i.message.content) for i in context.items if i.item_type == "system_prompt"] != ["Be brief."]:
            wrong.append("the system prompt is not as configured")
        wrong += _difference("journal", await context.fs.items(), context.items)
        for item in context.items:
            if item.offloaded and not str(await context.fs.load(item.id)).startswith("a line of"):
                wrong.append(f"{item.id}: no content")
        items = context.items
        await agent.close()
        async with _agent(root) as again:
            wrong += _difference("reopened", again.context.items, items)
    return fired, wrong


async def _lost(context: Context, finished: Sequence[str]) -> list[str]:
    """What of the context is not on the disk, and which results of tools that had ended are in neither."""
    if not context.fs.is_open:
        return []
    async with ContextFileSystem(_ID, root_path=context.fs.session_path.parent, read_only=True) as left_by_a_crash:
        wrong = _difference("on the disk", await left_by_a_crash.items(), context.items)
        contents = [
            await left_by_a_crash.load(i.id) if i.offloaded else i.message.content
            for i in context.items
            if i.tool_name == "lines"
        ]
    return wrong + [f"the result of {name} is lost" for name in finished if _long(name) not in contents]


async def _interrupted_session(root: Path) -> None:
    """A session whose process died while two tools ran."""
    async with Context(_ID, root_path=root, counter=_COUNTER) as context:
        await context.add(UserMessage("go"), _calls("call_a", "call_b"))


# ---- all of it


Attempt = Callable[[Cancel], Awaitable[tuple[int, list[str]]]]


def _attempts(past: _Prepared, name: str) -> Attempt:
    if name in OPERATIONS:
        return lambda cancel: _attempt(cancel, OPERATIONS[name], past)
    if name in AGENT_OPERATIONS:
        return lambda cancel: _agent_attempt(cancel, name)
    return lambda cancel: _fs_attempt(cancel, name)


ALL = (*OPERATIONS, "fs: open", *FS_OPERATIONS, *AGENT_OPERATIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """What came of cancelling one operation at its awaits: in how many runs, how often in all, and what was wrong."""

    runs: int
    cancellations: int
    wrong: list[str]


def cancel_everywhere(name: str, way: str, *, stride: int = 1, apart: int = 1) -> Cancelled:
    """Cancel the operation ``name`` at each await (or each ``stride``-th); ``apart`` as ``cancelled_at`` has it."""
    return anyio.run(_everywhere, name, way, stride, apart, backend=backend_of(way))


async def _everywhere(name: str, way: str, stride: int, apart: int) -> Cancelled:
    past = _Prepared()
    await past.make()
    return await _each_await(_attempts(past, name), f"{name}, {way}", way, stride=stride, apart=apart)


async def _each_await(
    attempt: Attempt, told: str, way: str, *, stride: int = 1, apart: int = 1, enough: int = 20
) -> Cancelled:
    wrong: list[str] = []
    cancellations = 0
    for runs, number in enumerate(range(1, _MANY, stride)):
        place = f"{told}, await {number}, {apart} apart"
        try:
            fired, found = await attempt(partial(cancelled_at, way, number, apart=apart))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever it leads to is a violation
            fired, found = 1, [repr(error)]
        wrong += [f"{place}: {what}" for what in found]
        if not fired or len(wrong) > enough:
            return Cancelled(runs=runs, cancellations=cancellations, wrong=wrong)
        cancellations += fired
    raise AssertionError(f"{told} does not end")


# ---- what must be found


def _in_scopes_only(method: Any) -> Any:
    """What is uninterrupted as it was when a scope's shield was all that protected it."""
    inner = method.__wrapped__

    async def shielded(*args: Any, **settings: Any) -> Any:
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()  # small results are added without any other await before the commit
            return await inner(*args, **settings)

    return shielded


class _ShieldedTranscript(LiveTranscript):
    record_new = _in_scopes_only(LiveTranscript.record_new)


class _ShieldedContext(Context):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._live = _ShieldedTranscript(self.fs, self._settings)


class _ShieldedAgent(Agent):
    _add_results = _in_scopes_only(Agent._add_results)
    _settle = _in_scopes_only(Agent._settle)


@contextmanager
def listed_tasks() -> Iterator[None]:
    """What ctxfs was like before: ``asyncio.all_tasks()`` returns its tasks, nothing looks at the log again, and of two
    lines of one number the first counts.
    """

    async def settle(writer: JournalWriter) -> bool:
        writer._begun = None
        return False

    with (
        patch.object(asyncio, "_unregister_task", lambda _: None),
        patch.object(JournalWriter, "_settle", settle),
        patch("ctxfs.session.journal._added_to", side_effect=ValueError("it comes after the same number")),
    ):
        yield


def controls() -> dict[str, bool]:
    """Operations that are broken on purpose, and whether cancelling them is seen to break something."""

    async def run() -> dict[str, bool]:
        past = _Prepared()
        await past.make()
        reply = OPERATIONS["add a reply and its results"]
        broken: dict[str, tuple[str, Attempt]] = {
            "a placeholder before its content": (WAYS[0], lambda cancel: _attempt(cancel, BROKEN, past)),
            "a commit shielded by a scope only": (
                "Task.cancel()",
                lambda cancel: _attempt(cancel, reply, past, _ShieldedContext),
            ),
            "tool results shielded by a scope only": (
                "Task.cancel() twice",
                lambda cancel: _agent_attempt(cancel, "agent: query", _ShieldedAgent),
            ),
        }
        seen = {
            what: bool((await _each_await(attempt, what, way, enough=0)).wrong)
            for what, (way, attempt) in broken.items()
        }
        with listed_tasks():
            what = "tasks that the loop lists"
            found = await _each_await(lambda cancel: _attempt(cancel, reply, past), what, "all_tasks()", enough=0)
            return {**seen, what: bool(found.wrong)}

    return anyio.run(run)


_APART = (1, 2, 3, 4, 5, 8, 13, 21)
"""How many awaits lie between one cancellation and the next of the same operation."""


def _run(budget_s: float, state_dir: Path) -> Result:
    started = time.monotonic()
    file = state_dir / "cancellations.json"
    done: dict[str, Any] = json_codec.loads(file.read_bytes()) if file.exists() else {}
    todo = [(name, way, n) for name in ALL for way in WAYS for n in (_APART if is_repeated(way) else _APART[:1])]
    for name, way, apart in todo:
        key = f"{name}, {way}, {apart} apart"
        if key in done:
            continue
        if time.monotonic() - started > budget_s:
            break
        came_to = cancel_everywhere(name, way, apart=apart)
        done[key] = {"native": way in NATIVE, **asdict(came_to)}
        file.write_bytes(json_codec.dumps(done))
        print(f"cancellation: {key}: {came_to.runs} runs, {len(came_to.wrong)} violations", flush=True)
    figures = {
        "operations": len(ALL),
        "ways": len(WAYS),
        "runs": sum(d["runs"] for d in done.values()),
        "cancellations": sum(d["cancellations"] for d in done.values()),
        "asyncio's own": sum(d["cancellations"] for d in done.values() if d["native"]),
    }
    violations = [what for d in done.values() for what in d["wrong"]]
    return Result(figures=figures, violations=violations, controls=controls(), complete=len(done) == len(todo))


PART = Part(name="cancellation", title="Every operation cancelled at every await", run=_run)
