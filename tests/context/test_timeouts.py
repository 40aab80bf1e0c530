"""A time limit of asyncio's that runs out while something is written: it ends that call, and nothing later."""

import asyncio
import threading
from pathlib import Path

import pytest

from ctxfs.context.context import Context
from ctxfs.messages import CharsCounter
from ctxfs.messages.messages import UserMessage
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.local import LocalStore
from ctxfs.storage.port import OsFileSystem
from patience import HANGS_S

pytestmark = pytest.mark.asyncio


class Slow(OsFileSystem):
    """Once ``held`` is set, a sync says that it has begun, and waits to be let go."""

    def __init__(self) -> None:
        self.held = False
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def sync(self, fd: int) -> None:
        if self.held:
            self.begun.set()
            assert self.go_on.wait(HANGS_S)
        super().sync(fd)


async def test_a_timeout_during_the_last_write_is_a_timeout_and_nothing_more(tmp_path: Path) -> None:
    disk = Slow()
    fs = ContextFileSystem("s1", root_path=tmp_path, store=LocalStore(tmp_path, "s1", fs=disk))
    async with Context(fs, counter=CharsCounter()) as context:
        with pytest.raises(TimeoutError):
            await add_too_late(context, disk)
        await asyncio.sleep(0)  # a cancellation that is left over would come here
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        assert [item.message.content for item in context.items] == ["go"]
        assert context.unrecorded == ()


async def add_too_late(context: Context, disk: Slow) -> None:
    disk.held = True
    async with asyncio.timeout(None) as limit:
        running_out = asyncio.create_task(run_out(disk, limit))
        try:
            await context.add(UserMessage("go"))
        finally:
            await running_out


async def run_out(disk: Slow, limit: asyncio.Timeout) -> None:
    """Let the time run out while the disk is at work, and let that go on afterwards."""
    await asyncio.to_thread(disk.begun.wait, HANGS_S)
    limit.reschedule(0)
    for _ in range(5):
        await asyncio.sleep(0)
    disk.held = False
    disk.go_on.set()
