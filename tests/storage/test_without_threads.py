"""Commands that have the event loop to themselves do their work in it; all others leave it free."""

import threading

import pytest

from ctxfs.storage.threads import result_of, run_to_completion, without_threads

pytestmark = pytest.mark.anyio


async def test_work_is_done_in_a_worker_thread_unless_the_loop_has_nothing_else_to_do() -> None:
    here = threading.get_ident()
    for run in (run_to_completion, result_of):
        with without_threads():
            assert await run(threading.get_ident) == here
        assert await run(threading.get_ident) != here
