"""Cancelled at any await: no placeholder without its content, and the session goes on. All awaits: ``make prove``."""

from collections.abc import Callable, Sequence
from functools import partial

import anyio
import pytest
from anyio import from_thread
from anyio.lowlevel import current_token

from ctxfs.context.context import Context
from ctxfs.errors import NameTaken
from ctxfs.messages import CharsCounter
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import AssistantMessage, Block, ToolMessage, UserMessage
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage import MemoryStore
from ctxfs.storage.base import NewFile
from ctxfs.tools import Materialize, Materializer
from patience import HANGS_S
from prove.cancelling import WAYS, backend_of, cancelled_at, is_repeated
from prove.part_cancellation import AGENT_OPERATIONS, FS_OPERATIONS, OPERATIONS, cancel_everywhere, controls
from session_items import tool_result

pytestmark = pytest.mark.slow

SPARSE = 4


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_context_goes_on_after_any_cancellation(name: str, way: str) -> None:
    came_to = cancel_everywhere(name, way, stride=SPARSE if is_repeated(way) else 1, apart=2)
    assert came_to.wrong == []
    assert came_to.runs > 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["fs: open", *FS_OPERATIONS])
def test_a_session_on_disk_goes_on_after_a_cancellation(name: str, way: str) -> None:
    assert cancel_everywhere(name, way, stride=4 * (SPARSE if is_repeated(way) else 1), apart=2).wrong == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", AGENT_OPERATIONS)
def test_an_agent_goes_on_after_a_cancellation(name: str, way: str) -> None:
    assert cancel_everywhere(name, way, stride=29 * (2 if is_repeated(way) else 1), apart=3).wrong == []


def test_what_is_redacted_again_is_kept_when_every_task_is_cancelled_once_more() -> None:
    """The second time hits the tasks in which it is redacted again."""
    assert cancel_everywhere("agent: query, redacted", "all_tasks() twice", stride=2, apart=5).wrong == []


def test_what_is_broken_on_purpose_is_noticed() -> None:
    assert all(controls().values())


class InterruptedStore(MemoryStore):
    """Calls ``interrupt`` when a commit fails."""

    interrupt: Callable[[], None]

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        try:
            super().commit(files, log)
        except NameTaken:
            self.interrupt()
            raise


@pytest.mark.anyio
async def test_who_waits_for_a_writer_that_is_cancelled_writes_on_his_own() -> None:
    store = InterruptedStore()
    fs = ContextFileSystem("session_1", store=store, inline_limit_chars=10)
    await fs.open()
    items = [tool_result(fs, f"content {n}" * 10, f"call_{n}") for n in range(4)]
    store.disk.files[items[1].name] = b"somebody else's"
    taken: list[str] = []

    async def add(number: int) -> None:
        try:
            await fs.writer.add([items[number]])
        except NameTaken as error:
            taken.append(str(error))

    with anyio.fail_after(HANGS_S):
        async with anyio.create_task_group() as group:
            first = anyio.CancelScope()
            # The store works in a thread of its own: the scope is cancelled where it belongs.
            store.interrupt = partial(from_thread.run_sync, first.cancel, token=current_token())

            async def leads() -> None:
                with first:
                    await add(0)

            group.start_soon(leads)
            for number in (1, 2, 3):
                group.start_soon(add, number)
    assert {"call_2", "call_3"} <= {i.id for i in await fs.items()}
    assert len(taken) == 1
    await fs.close()


@pytest.mark.parametrize("way", WAYS)
def test_a_reply_and_what_it_was_billed_are_recorded_together(way: str) -> None:
    async def attempt(number: int) -> int:
        store = MemoryStore("session_1")
        async with Context(ContextFileSystem("session_1", store=store), counter=CharsCounter()) as context:
            await context.add(UserMessage("go"))
            reply, usage = AssistantMessage("done"), Usage(input_tokens=5)
            fired = await cancelled_at(way, number, lambda: context.add(reply, usage=usage, model="m"))
        fs = ContextFileSystem("session_1", store=store.peer(), read_only=True)
        async with fs:
            replies = [item for item in await fs.items() if isinstance(item.message, AssistantMessage)]
            assert len(fs.state.calls) == len(replies)
        return fired

    async def everywhere() -> None:
        number = 1
        while await attempt(number):
            number += 1
        assert number > 1  # how many awaits there are depends on how soon the store's thread is done

    anyio.run(everywhere, backend=backend_of(way))


@pytest.mark.anyio
async def test_what_never_came_in_is_not_counted_as_left() -> None:
    materializer = Materializer(settings=Materialize(max_inline_chars=100))
    async with Context(ContextFileSystem("session_1", store=MemoryStore()), eager=materializer) as context:
        calls: list[Block] = [{"type": "tool_use", "id": i, "name": "Bash", "input": {}} for i in ("a", "b")]
        results = [ToolMessage(i, "Bash", (f"a line of {i}\n") * 1_000) for i in ("a", "b")]
        await context.add(UserMessage("go"), AssistantMessage(tuple(calls)))
        for number in range(1, 4):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(_cancel_after, number, scope)
                    await context.add(*results)
            if not context.open_calls:
                break
        if context.open_calls:
            await context.add(*results)
        assert context.eager_stats.count == 2


async def _cancel_after(turns: int, scope: anyio.CancelScope) -> None:
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()
    scope.cancel()
