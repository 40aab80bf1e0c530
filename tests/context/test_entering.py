"""A message enters whole or leaves no trace: no id, no identifier, no placeholder that says less the next time."""

import asyncio
import errno
import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest
from anyio.lowlevel import current_token

from ctxfs.context.context import Context
from ctxfs.context.entry import with_sources
from ctxfs.errors import TranscriptError
from ctxfs.eviction.events import ContextEvent, Evicted, RecordFailed
from ctxfs.eviction.offload_plan import Plan
from ctxfs.messages import CharsCounter, TokenCounter
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Block, Message, ToolMessage, UserMessage
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage import MemoryStore
from ctxfs.storage.local import LocalStore
from ctxfs.tools import Materializer
from failing_fs import FailingFileSystem, as_port

CALLS: tuple[Block, ...] = tuple(
    {"type": "tool_use", "id": f"call_{n}", "name": "Write", "input": {"text": f"argument_number_{n} " * 50}}
    for n in (1, 2)
)
QUESTION: tuple[Message, ...] = (UserMessage("go"),)
REPLY: tuple[Message, ...] = (AssistantMessage(CALLS),)
RESULTS: tuple[Message, ...] = tuple(
    ToolMessage(f"call_{n}", "Read", " ".join(f"identifier_{n}_{i:05d}" for i in range(2_000))) for n in (1, 2)
)


class Interrupting:
    """Counts, and calls ``interrupt`` in the event loop, once, when the first result is counted."""

    def __init__(self) -> None:
        self.interrupt: Callable[[], object] | None = None
        self.loop = current_token()

    def count(self, text: str) -> int:
        """As ``CharsCounter``."""
        if self.interrupt is not None and "identifier_1" in text and threading.current_thread().name != "MainThread":
            interrupt, self.interrupt = self.interrupt, None
            anyio.from_thread.run_sync(interrupt, token=self.loop)  # the thread knows of no event loop
        return CharsCounter().count(text)


def new_context(counter: TokenCounter) -> Context:
    fs = ContextFileSystem("session_1", root_path="/sessions", store=MemoryStore("session_1"))
    return Context(fs, counter=counter, eager=Materializer(), pricing=None)


@pytest.mark.parametrize("data", ["call_1", None, 1])
def test_the_calls_whose_results_are_data_are_a_collection_of_ids(data: Any) -> None:
    with pytest.raises(TranscriptError, match="use a collection of call ids"):
        with_sources([UserMessage("go")], {}, data)


async def undisturbed() -> tuple[tuple[ContextItem, ...], Plan]:
    async with new_context(CharsCounter()) as context:
        for messages in (QUESTION, REPLY, RESULTS):
            await context.add(*messages)
        return context.items, context.plan()


def described(items: Iterable[ContextItem]) -> list[str]:
    """The results that were evicted for a text that shows some of them."""
    return [item.id for item in items if item.offloaded and "identifier_" in str(item.message.content)]


@pytest.mark.both_loops
@pytest.mark.anyio
async def test_a_cancelled_add_leaves_no_trace() -> None:
    counter = Interrupting()
    async with new_context(counter) as context:
        await context.add(*QUESTION)
        await context.add(*REPLY)
        with anyio.CancelScope() as scope:
            counter.interrupt = scope.cancel
            await context.add(*RESULTS)
        assert scope.cancelled_caught
        assert len(context.items) == 2
        await context.add(*RESULTS)
        assert (context.items, context.plan()) == await undisturbed()
        assert described(context.items) == ["call_1", "call_2"]


@pytest.mark.both_loops
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_add_whose_task_is_cancelled_leaves_no_trace() -> None:
    counter = Interrupting()
    async with new_context(counter) as context:
        await context.add(*QUESTION)
        await context.add(*REPLY)
        task = asyncio.create_task(context.add(*RESULTS))
        counter.interrupt = task.cancel
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(context.items) == 2
        await context.add(*RESULTS)
        assert (context.items, context.plan()) == await undisturbed()


@pytest.mark.anyio
async def test_a_refused_add_leaves_no_trace() -> None:
    async with new_context(CharsCounter()) as context:
        await context.add(*QUESTION)
        with pytest.raises(TranscriptError):
            await context.add(*REPLY, *RESULTS, RESULTS[0])
        await context.add(*REPLY)
        await context.add(*RESULTS)
        assert (context.items, context.plan()) == await undisturbed()


@pytest.mark.anyio
async def test_a_name_that_another_task_takes_meanwhile_is_not_given_out_twice() -> None:
    counter = Interrupting()
    async with new_context(counter) as context:
        await context.add(*QUESTION)
        await context.add(*REPLY)
        counter.interrupt = lambda: context.fs.writer.allocate(ItemType.TOOL_RESULT, "call_1", "fetch")
        first, second = await context.add(*RESULTS)
        assert (first.id, second.id) == ("call_1~2", "call_2")
        assert described(context.items) == ["call_1~2", "call_2"]


class Watching:
    """Counts, and notes which threads count what is in a result."""

    def __init__(self) -> None:
        self.threads: set[str] = set()

    def count(self, text: str) -> int:
        """As ``CharsCounter``."""
        if "identifier_1_" in text:
            self.threads.add(threading.current_thread().name)
        return CharsCounter().count(text)


@pytest.mark.anyio
@pytest.mark.parametrize("keep_recent", [{}, {"Read": 1}])
async def test_large_contents_are_described_beside_the_event_loop(keep_recent: dict[str, int]) -> None:
    counter = Watching()
    fs = ContextFileSystem("session_1", root_path="/sessions", store=MemoryStore("session_1"))
    large = " ".join(f"identifier_1_{i:06d} is an error" for i in range(20_000))
    evicted: list[str] = []
    async with Context(
        fs,
        counter=counter,
        eager=None if keep_recent else Materializer(),
        preview_above_tokens=None,
        window=None,
        keep_recent=keep_recent,
        on_event=lambda event: evicted.append(event.item_id) if isinstance(event, Evicted) else None,
    ) as context:
        await context.add(*QUESTION, *REPLY, *(ToolMessage(f"call_{n}", "Read", large) for n in (1, 2)))
        if keep_recent:  # evicts only what the model has seen
            assert not evicted
            await context.add(AssistantMessage("Done."), UserMessage("Go on."))
            counter.threads.clear()
            await context.evict()
    assert evicted[:1] == ["call_1"]
    assert counter.threads
    assert not any("Main" in name for name in counter.threads)


@pytest.mark.anyio
async def test_what_leaves_before_it_is_sent_is_recorded_with_its_eviction_in_one_commit(tmp_path: Path) -> None:
    async with Context(root_path=tmp_path, counter=CharsCounter(), eager=Materializer()) as context:
        await context.add(*QUESTION, *REPLY)
        before = context.fs.session_path.joinpath("journal.jsonl").read_text().splitlines()
        await context.add(*RESULTS)
        journal = context.fs.session_path.joinpath("journal.jsonl").read_text().splitlines()
        assert described(context.items) == ["call_1", "call_2"]
        assert not context.plan()
    (line,) = journal[len(before) :]
    kinds = [record["type"] for record in json.loads(line)["rec"]["records"]]
    assert kinds == ["stored", "stored", "item_added", "item_added", "replaced", "replaced"]


@pytest.mark.anyio
async def test_what_cannot_be_stored_is_not_evicted_when_it_is_added(tmp_path: Path) -> None:
    disk, failed = FailingFileSystem(lambda _, name: name in {"write", "pwrite"}, errno.ENOSPC), list[ContextEvent]()
    disk.armed = False
    fs = ContextFileSystem("s", root_path=tmp_path, store=LocalStore(tmp_path, "s", fs=as_port(disk)))
    async with Context(fs, counter=CharsCounter(), eager=Materializer(), on_event=failed.append) as context:
        await context.add(*QUESTION, *REPLY)
        disk.armed = True
        await context.add(*RESULTS)
        assert [type(event) for event in failed] == [RecordFailed]
        assert not any(item.offloaded for item in context.items)
        assert context.unrecorded == ("call_1", "call_2")
        disk.armed = False
        await context.evict()
        assert described(context.items) == ["call_1", "call_2"]
