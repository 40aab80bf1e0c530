"""The garbage collector, paused while many objects are made that all stay.

It would go through all of them again each time that a quarter more were made, which took almost half of the time.
"""

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_paused"]


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
                if not gc.get_freeze_count():  # else a program has frozen objects, which must stay so
                    gc.freeze()  # what was made stays: it goes to the oldest generation without being looked at
                    gc.unfreeze()
                gc.enable()


_pauses = _Pauses()


_MANY = 256


@contextmanager
def collector_paused(items: int) -> Iterator[None]:
    """Pause the garbage collector, for all threads, while objects are made for so many ``items`` that stay.

    A few hundred items are not worth it. What is no longer referred to is freed all the same, except for cycles, which
    wait. Several threads may do so.
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
    """In a process that was forked none of the threads is left that paused it."""
    global _pauses
    left, _pauses = _pauses, _Pauses()
    if left.users and left.was_on:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
