"""How the system's errors become ours: the one place where OSError is read.

Failures of stores on servers are counted here: telemetry reports them.
"""

import errno
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from ctxfs.errors import NotStored, StorageError, UnsafePath, WriteFailed


class NoAnswer(StorageError):
    """The request to a server ended without an answer: it may have been carried out, or may still be."""


class NotSent(NoAnswer):
    """The server was not reached, so nothing was asked of it."""


def reason_of(error: BaseException) -> str:
    """Return what the system says happened."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


@contextmanager
def opening(name: str) -> Iterator[None]:
    """Turn what a link or something else in the place of ``name`` causes into ``UnsafePath``."""
    try:
        yield
    except (NotADirectoryError, IsADirectoryError) as error:
        raise UnsafePath(name, "leads through something that is not a plain directory") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafePath(name, "leads through a link") from error
        raise


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn the OSError of reading ``name`` into ``NotStored``, ``UnsafePath`` or ``StorageError``."""
    try:
        with opening(name):
            yield
    except FileNotFoundError as error:
        raise NotStored(name) from error
    except OSError as error:
        raise StorageError(f"could not read {name}: {reason_of(error)}") from error


@contextmanager
def writing(name: str) -> Iterator[None]:
    """Turn what keeps the system from writing ``name`` into ``WriteFailed``: trying again may help.

    What is wrong with its content is raised as it is: trying again does not help.
    """
    try:
        yield
    except OSError as error:
        raise WriteFailed(name, reason_of(error)) from error


Trouble = Literal["retry", "unknown outcome", "lost session"]
"""A request was made again since it was not answered; whether a change was stored is not known; another writer took a
session over from this process."""


class Troubles:
    """Counts of troubles that only grow; any thread may use them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Trouble] = Counter()

    def met(self, trouble: Trouble) -> None:
        """Count one."""
        with self._lock:
            self._counts[trouble] += 1

    def count(self, trouble: Trouble) -> int:
        """How many there were."""
        with self._lock:
            return self._counts[trouble]


TROUBLES = Troubles()
"""Of all sessions of this process: what exports metrics sees no store."""
