"""The garbage collector, paused while many objects are made."""

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from ctxfs.collector import collector_paused


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was_on else gc.disable)()


def test_it_pauses_for_many_items_alone() -> None:
    with collector_paused(10):
        assert gc.isenabled()
    with collector_paused(10_000):
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_goes_on_after_an_error_and_after_the_last_of_several() -> None:
    def fail() -> None:
        with collector_paused(10_000):
            with collector_paused(10_000):
                pass
            assert not gc.isenabled()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled()


def test_what_was_made_is_not_looked_at_again_soon() -> None:
    with collector_paused(10_000):
        made = [[number] for number in range(10_000)]
    assert gc.get_count()[0] < len(made)
    assert not gc.get_freeze_count()


def test_what_a_program_has_frozen_stays_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    try:
        with collector_paused(10_000):
            pass
        assert 0 < gc.get_freeze_count() <= frozen
    finally:
        gc.unfreeze()


def test_who_switched_it_off_finds_it_off() -> None:
    gc.disable()
    with collector_paused(10_000):
        pass
    assert not gc.isenabled()


def test_it_is_on_again_after_threads_that_overlap() -> None:
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with collector_paused(10_000):
            inside.set()
            leave.wait()

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    with collector_paused(10_000):
        pass
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_has_it_on() -> None:
    with collector_paused(10_000):
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not gc.isenabled()
