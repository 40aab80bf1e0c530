"""The garbage collector, paused while many objects are made that all stay.

Otherwise it goes through all of them each time that their number has grown by a quarter: almost half of the time.
"""

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["collector_paused"]


_OF_PYTHON: Final = 1_000
"""Python 3.12 starts with some hundred frozen objects of its own; a program that freezes its objects has thousands."""


class _Pauses:
    """How many threads need the collector to pause, and whether it was on before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.was_on = False

    def begin(self) -> None:
        with self.lock:
            if not self.users:
                self.was_on = gc.isenabled()
                gc.disable()
            self.users += 1

    def end(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users and self.was_on:
                if gc.get_freeze_count() < _OF_PYTHON:  # else a program has frozen objects, which must stay so
                    gc.freeze()  # what was made stays: it goes to the oldest generation without being looked at
                    gc.unfreeze()
                gc.enable()


_pauses = _Pauses()


_MANY = 256


@contextmanager
def collector_paused(items: int) -> Iterator[None]:
    """Pause the garbage collector, for all threads, while objects that stay are made for this many ``items``.

    Does nothing for fewer than 256 items. Objects without references are freed all the same; only cycles wait. Several
    threads may pause it at the same time.
    """
    if items < _MANY:
        yield
        return
    pauses = _pauses
    pauses.begin()
    try:
        yield
    finally:
        pauses.end()


def _forget() -> None:
    """Undo the pauses in a forked process: the threads that paused it are not there."""
    global _pauses
    left, _pauses = _pauses, _Pauses()
    if left.users and left.was_on:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
