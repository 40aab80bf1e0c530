"""The error that an adapter raises when its framework is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from ctxfs.errors import MissingExtra

__all__ = ["needs"]


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Import a framework in this context: if it is missing, ``MissingExtra`` names the ``extra`` to install."""
    try:
        yield
    except (MissingExtra, ModuleNotFoundError) as error:  # one adapter may be built on another
        raise MissingExtra(extra, error.name or extra) from error
