"""Content that comes over time: what is in the file is what is known of it, also when somebody gives up."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs.errors import SessionClosed, WriteFailed
from ctxfs.messages.base import Usage
from ctxfs.session.content.blocks import RAW_BLOCK, index_name
from ctxfs.session.content.growing import GrowingLog
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.local import remove_session
from ctxfs.storage.memory import MemoryStore
from ctxfs.storage.threaded import ThreadedStore

pytestmark = pytest.mark.anyio

NAME = "tool_result/Bash/call_1.log"


class FullStore(MemoryStore):
    """A store to whose files nothing can be added while it is ``full``."""

    full = False

    def append(self, name: str, data: bytes, *, sync: bool = False) -> None:
        if self.full:
            raise WriteFailed(name, "no space")
        super().append(name, data, sync=sync)


async def growing(recorded: list[Stored]) -> tuple[FullStore, GrowingLog]:
    async def record(stored: Stored) -> None:
        recorded.append(stored)

    store = FullStore()
    threaded = ThreadedStore(store)
    await threaded.open(create=True, write=True)
    metadata: Mapping[str, Any] = {"tool_name": "Bash"}
    return store, GrowingLog(
        threaded,
        item_id="call_1",
        name=NAME,
        metadata=metadata,
        clock=lambda: 9.5,
        record=record,
        check_open=lambda: None,
    )


@pytest.mark.both_loops
async def test_a_piece_whose_caller_gave_up_is_there_whole() -> None:
    recorded: list[Stored] = []
    store, log = await growing(recorded)
    await log.append(b"one\n")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await log.append(b"two\n")
    assert (await log.reader().load(), store.read(NAME)) == ("one\ntwo\n", b"one\ntwo\n")
    await log.append(b"three\n")
    assert list(await log.reader().lines(1, 9)) == ["one", "two", "three"]
    await log.finish({})
    assert recorded[0].size_bytes == store.size(NAME)


@pytest.mark.parametrize(("size", "blocks"), [(RAW_BLOCK, 1), (RAW_BLOCK + 1, 2), (2 * RAW_BLOCK + 1, 3)])
async def test_content_of_several_blocks_has_a_block_index(size: int, blocks: int) -> None:
    store, log = await growing([])
    await log.append(b"x" * size)
    stored = await log.finish({"exit_code": 0})
    assert stored.blocks == blocks
    assert (index_name(NAME) in store.names()) == (blocks > 1)
    assert stored.metadata == {"tool_name": "Bash", "exit_code": 0, "encoding": "bytes"}


async def test_after_a_piece_was_refused_no_other_one_follows() -> None:
    """A part of it may be in the file: what came after that would stand in the wrong place."""
    store, log = await growing([])
    await log.append(b"one\n")
    store.full = True
    with pytest.raises(WriteFailed, match="no space"):
        await log.append(b"two\n")
    store.full = False
    with pytest.raises(WriteFailed, match="no space"):
        await log.append(b"three\n")
    assert (store.read(NAME), await log.reader().load()) == (b"one\n", "one\n")


async def test_a_log_that_outlives_its_session_writes_nothing_into_the_next_one(tmp_path: Path) -> None:
    """What had come belongs to the session that was opened next, with its digest: more would damage it."""
    fs = ContextFileSystem("session_1", root_path=tmp_path)
    await fs.open()
    log = await fs.writer.grow("Bash")
    await log.append(b"one\n")
    await fs.close()
    for opened_again in (False, True):
        if opened_again:
            await fs.open()
            assert fs.recovery.adopted == (log.name,)
            await fs.writer.record_call(Usage(input_tokens=1), "m")
        with pytest.raises(SessionClosed, match="session_1"):
            await log.append(b"two\n")
        with pytest.raises(SessionClosed, match="session_1"):
            await log.finish({"exit_code": 0})
    await fs.writer.record_call(Usage(input_tokens=2), "m")
    assert (await fs.load(log.item_id), fs.state.stored[log.item_id].metadata["partial"]) == ("one\n", True)
    await fs.close()
    async with ContextFileSystem("session_1", root_path=tmp_path) as again:
        assert (again.recovery.clean, len(again.state.calls), (await again.verify()).ok) == (True, 2, True)
        assert await again.load(log.item_id) == "one\n"


async def test_a_log_that_outlives_its_session_is_no_file_of_a_new_one(tmp_path: Path) -> None:
    fs = ContextFileSystem("session_1", root_path=tmp_path)
    await fs.open()
    log = await fs.writer.grow("Bash")
    await fs.close()
    await remove_session(tmp_path, "session_1")
    async with fs:
        with pytest.raises(SessionClosed, match="was closed in the meantime"):
            await log.finish({})
    assert {path.name for path in fs.session_path.rglob("*")} == {"journal.jsonl", "index.json", ".lock"}
