"""The sessions under a root, summed up, while a user waits."""

import sys
from typing import Self

import anyio

from ctxfs.listing.catalogue import list_summaries
from ctxfs.listing.summary import SessionSummary
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threads import without_threads

__all__ = ["listed"]

_WORTH_TELLING = 100
"""Reading fewer sessions takes no time worth a word."""


def listed(stores: SessionStores) -> list[SessionSummary]:
    """All sessions of a place, in no order; a terminal is told how long reading them will take."""
    return anyio.run(_listed, stores)


async def _listed(stores: SessionStores) -> list[SessionSummary]:
    with without_threads(), _Told() as told:
        return await list_summaries(stores, progress=told.progress)


class _Told:
    """Tells a user at a terminal how far reading many sessions has come, in one line that is removed at the end."""

    def __init__(self) -> None:
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._show("")

    def progress(self, read: int, total: int) -> None:
        """Show how many were read."""
        if sys.stderr.isatty() and total > _WORTH_TELLING:
            self._show(f"reading {total:,} sessions: {read / total:.0%}")

    def _show(self, line: str) -> None:
        if self._width or line:
            sys.stderr.write(f"\r{line:<{self._width}}\r")
            sys.stderr.flush()
        self._width = max(self._width, len(line)) if line else 0
