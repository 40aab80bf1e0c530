"""A group of tasks that may live as long as its program."""

import gc
from types import CoroutineType

import anyio.lowlevel
import pytest
from anyio import wait_all_tasks_blocked

from ctxfs.storage.task_group import TaskGroup

pytestmark = pytest.mark.anyio


async def test_a_group_keeps_nothing_of_tasks_that_have_ended() -> None:
    """A server starts one for each message of its client."""
    async with TaskGroup() as group:
        for _ in range(10):
            group.start_soon(anyio.lowlevel.checkpoint)
        await wait_all_tasks_blocked()
        found = [one for one in gc.get_objects() if type(one) is CoroutineType]
        assert [one for one in found if one.__qualname__.startswith("TaskGroup.")] == []
