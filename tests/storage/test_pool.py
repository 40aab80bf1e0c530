"""A pool of threads: what it is given is done once, or cancelled, and whoever asks is told."""

import gc
import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial

import pytest

from ctxfs.storage.pool import Pool, Work
from patience import HANGS_S


def _fail() -> None:
    raise OSError(28, "no space")


def test_a_work_has_a_result_or_an_error() -> None:
    pool, good, bad = Pool(2), Work(lambda: "done"), Work(_fail)
    pool.submit(good)
    pool.submit(bad)
    assert good.result(HANGS_S) == "done"
    assert good.exception() is None
    assert bad.wait(HANGS_S)
    with pytest.raises(OSError, match="no space"):
        bad.result()
    assert isinstance(bad.exception(), OSError)
    assert not bad.cancelled()


def test_a_work_is_cancelled_before_it_is_begun_and_never_after() -> None:
    done: list[int] = []
    work = Work(lambda: done.append(1))
    told: list[Work[None]] = []
    work.add_done_callback(told.append)
    assert work.cancel()
    assert work.cancel()
    work.run()
    assert (done, told, work.done(), work.cancelled()) == ([], [work], True, True)
    for asked in work.result, work.exception:
        with pytest.raises(CancelledError):
            asked()
    begun = Work(lambda: done.append(2))
    begun.run()
    assert not begun.cancel()
    assert (done, begun.cancelled()) == ([2], False)


def test_who_asks_late_is_told_at_once_and_who_waits_too_long_gets_a_timeout() -> None:
    work = Work(lambda: "done")
    assert not work.wait(0.0)
    with pytest.raises(TimeoutError):
        work.result(0.0)
    work.run()
    told: list[Work[str]] = []
    work.add_done_callback(told.append)
    assert told == [work]
    assert work.result() == "done"


def test_a_pool_begins_no_more_threads_than_it_may_and_does_all_work() -> None:
    at, most, lock = [0], [0], threading.Lock()
    go_on = threading.Event()

    def busy() -> None:
        with lock:
            at[0] += 1
            most[0] = max(most[0], at[0])
        assert go_on.wait(HANGS_S)
        with lock:
            at[0] -= 1

    pool, works = Pool(3), [Work(busy) for _ in range(20)]
    for work in works:
        pool.submit(work)
    go_on.set()
    assert all(work.wait(HANGS_S) for work in works)
    assert most[0] <= 3


def test_who_is_told_of_an_end_hands_over_the_next_work_to_the_same_thread() -> None:
    pool, seen = Pool(8), list[int]()
    all_done = threading.Event()

    def hand_over(_: Work[None] | None = None) -> None:
        if len(seen) == 5:
            all_done.set()
            return
        work = Work(lambda: seen.append(threading.get_ident()))
        work.add_done_callback(hand_over)
        pool.submit(work)

    hand_over()
    assert all_done.wait(HANGS_S)
    assert len(set(seen)) == 1
    assert len(pool._begun) == 1  # noqa: SLF001 - a thread that has nothing to do is not seen otherwise


def test_no_work_waits_behind_a_busy_thread_while_another_may_be_begun() -> None:
    """Each of them waits for all others."""
    for number in range(2, 12):
        pool, all_there = Pool(number), threading.Barrier(number)
        works = [Work(partial(all_there.wait, HANGS_S)) for _ in range(number)]
        for work in works:
            pool.submit(work)
        assert all(work.wait(HANGS_S) for work in works)
        assert all(work.exception() is None for work in works)


_TRACED_TOGETHER = """
import os, sys, threading, time
from ctxfs.storage.pool import Pool, Work

def hook(event, _):
    if event in {"sys.settrace", "sys.setprofile"}:
        time.sleep(0.05)  # another thread comes in between

sys.addaudithook(hook)
if "traced" in sys.argv:
    threading.settrace(lambda *_: None)
    threading.setprofile(lambda *_: None)
pools = [Pool(1), Pool(1)]
works = [Work(lambda: 1), Work(lambda: 1)]
for pool, work in zip(pools, works):
    pool.submit(work)
os._exit(not all([work.wait(120) for work in works]))  # not `exit`, which waits for all work
"""


@pytest.mark.parametrize("how", ["plain", "traced"])
def test_threads_that_begin_together_serve_where_python_refuses_to_trace_both(how: str) -> None:
    """As it does on 3.11 while an audit hook runs; a process of its own, since nothing takes such a hook away."""
    subprocess.run([sys.executable, "-c", _TRACED_TOGETHER, how], check=True, timeout=HANGS_S, capture_output=True)


def test_a_failed_work_is_gone_when_nothing_refers_to_it() -> None:
    work = Work(_fail)
    work.run()
    gone = weakref.ref(work)
    gc.disable()
    try:
        with suppress(OSError):
            work.result()
        del work
        assert gone() is None
    finally:
        gc.enable()


class _Told:
    """Kept by a thread: it tells when the thread has ended."""

    def __init__(self, ended: threading.Event) -> None:
        self._ended = ended

    def __del__(self) -> None:
        self._ended.set()


_local = threading.local()


def test_threads_end_with_their_pool_and_have_done_all_before() -> None:
    pool, ended = Pool(1), threading.Event()
    works = [Work(lambda: "done") for _ in range(3)]
    for work in works:
        pool.submit(work)
    pool.submit(Work(partial(setattr, _local, "told", _Told(ended))))
    del pool
    assert [work.result(HANGS_S) for work in works] == ["done"] * 3
    assert ended.wait(HANGS_S)


def _program(text: str) -> str:
    begins = "import atexit, os, sys, threading, time\n"
    ran = subprocess.run(
        [sys.executable, "-c", begins + text], capture_output=True, text=True, timeout=HANGS_S, check=False
    )
    return ran.stdout


_SLOW = """
from ctxfs.storage.pool import Pool, Work
begun = threading.Event()
def write():
    begun.set()
    time.sleep(0.2)
    print("written", flush=True)
pool = Pool(2)
pool.submit(Work(write))
begun.wait()
"""


@pytest.mark.parametrize("last", ["", "raise KeyboardInterrupt", "sys.exit(3)"])
def test_a_program_ends_when_its_work_has_ended(last: str) -> None:
    assert _program(_SLOW + last) == "written\n"


def test_a_program_waits_for_work_that_was_begun_as_its_last_line_and_by_threads_after_it() -> None:
    last = """
def later():
    threading.main_thread().join()
    pool.submit(work := Work(lambda: print("later", flush=True)))
    work.wait()
threading.Thread(target=later).start()
Pool(1).submit(Work(lambda: print("last", flush=True)))
"""
    assert sorted(_program(_SLOW + last).split()) == ["last", "later", "written"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="NOT TESTED: this system does not fork")
def test_a_child_of_multiprocessing_waits_too() -> None:
    child = """
import multiprocessing
def work():
    Pool(1).submit(Work(lambda: (time.sleep(0.1), print("in the child", flush=True))))
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
"""
    assert sorted(_program(_SLOW + child).split("\n")) == ["", "in the child", "written"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="NOT TESTED: this system does not fork")
def test_a_forked_program_does_not_wait_for_the_threads_of_its_parent() -> None:
    ends = """
if os.fork() == 0:
    sys.exit()
os.wait()
print("the child has ended", flush=True)
"""
    assert sorted(_program(_SLOW + ends).split("\n")) == ["", "the child has ended", "written"]


def test_a_callback_that_fails_is_logged_and_ends_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    pool, first, second = Pool(1), Work(lambda: 1), Work(lambda: 2)
    first.add_done_callback(lambda _: _fail())
    pool.submit(first)
    pool.submit(second)
    assert second.result(HANGS_S) == 2
    assert "a callback of work in a thread failed" in caplog.text


def test_a_work_whose_cancelling_was_cut_ends_when_a_thread_takes_it() -> None:
    work = Work(lambda: 1)
    work._decide("cancelled")  # noqa: SLF001 - as far as an interrupt let ``cancel`` come
    pool = Pool(1)
    pool.submit(work)
    assert work.wait(HANGS_S)
    assert work.cancelled()


def test_a_program_waits_for_who_is_told_too() -> None:
    last = """
work = Work(lambda: None)
work.add_done_callback(lambda _: (time.sleep(0.1), print("told", flush=True)))
pool.submit(work)
work.wait()
"""
    assert sorted(_program(_SLOW + last).split()) == ["told", "written"]
