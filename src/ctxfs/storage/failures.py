"""How the system's errors become ours: the one place where OSError is read."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

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
