"""The summaries of all sessions of a place, and the line on a terminal that shows how far long work is."""

import sys
from types import TracebackType
from typing import Self

import anyio

from ctxfs.cli import pager
from ctxfs.session.listing.catalogue import list_summaries
from ctxfs.session.listing.summary import SessionSummary
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threads import without_threads

_MANY = 100
"""For this many sessions or fewer, no progress is shown, since reading them is quick."""


class ProgressLine:
    """A line on a terminal that shows how many of many sessions were read or searched; it is removed at the end."""

    def __init__(self) -> None:
        self._shown = ""
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._write("")

    def show(self, what: str, done: int, total: int) -> None:
        """Show how many sessions are done."""
        if sys.stderr.isatty() and total > _MANY and not self._is_over:
            self._write(f"{what} {total:,} sessions: {done / total:.0%}")

    def hide(self) -> None:
        """Make room for output; a pager has the terminal for itself from its first line on."""
        self._write("")
        self._is_over = pager.is_open()

    def _write(self, line: str) -> None:
        if line != self._shown:
            sys.stderr.write(f"\r{line:<{len(self._shown)}}\r")
            sys.stderr.flush()
        self._shown = line


def listed(stores: SessionStores, line: ProgressLine | None = None) -> list[SessionSummary]:
    """All sessions of a place, in no order. ``line``: shows how many have been read; None: a line of its own."""
    return anyio.run(_listed, stores, line or ProgressLine())


async def _listed(stores: SessionStores, line: ProgressLine) -> list[SessionSummary]:
    with without_threads(), line:
        return await list_summaries(stores, progress=lambda done, total: line.show("reading", done, total))
