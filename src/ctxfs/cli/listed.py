"""The summaries of all sessions of a place, with progress shown on a terminal."""

import sys
from typing import Self

import anyio

from ctxfs.session.listing.catalogue import list_summaries
from ctxfs.session.listing.summary import SessionSummary
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threads import without_threads

_MANY = 100
"""For this many sessions or fewer, no progress is shown, since reading them is quick."""


def listed(stores: SessionStores) -> list[SessionSummary]:
    """All sessions of a place, in no order; a terminal shows how many have been read."""
    return anyio.run(_listed, stores)


async def _listed(stores: SessionStores) -> list[SessionSummary]:
    with without_threads(), _ProgressLine() as line:
        return await list_summaries(stores, progress=line.progress)


class _ProgressLine:
    """A line on a terminal that shows how many of many sessions were read; it is removed at the end."""

    def __init__(self) -> None:
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._show("")

    def progress(self, read: int, total: int) -> None:
        """Show how many have been read."""
        if sys.stderr.isatty() and total > _MANY:
            self._show(f"reading {total:,} sessions: {read / total:.0%}")

    def _show(self, line: str) -> None:
        if self._width or line:
            sys.stderr.write(f"\r{line:<{self._width}}\r")
            sys.stderr.flush()
        self._width = max(self._width, len(line)) if line else 0
