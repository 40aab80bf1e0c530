"""Recorded sessions and comparisons on the page. Who reads them gives the values that the templates show."""

from collections.abc import Sequence
from typing import Any, Protocol

from ctxfs.errors import ReplayFormatError


class Recordings(Protocol):
    """Recorded sessions, by their number from 0."""

    @property
    def names(self) -> Sequence[str]:
        """What the list calls them, in the order of their numbers."""

    async def page(self, number: int, *, place: int, call: int | None, shows_all: bool) -> Any:
        """What is shown of a recording.

        ``place``: of the recording in its file, from 1. ``call``: None is the last one. ``shows_all``: list all
        evictions.

        Raises:
            ReplayFormatError: there is no such recording, or it cannot be read.
            OSError: its file cannot be read.
        """

    def text(self, page: Any, block: int, first: int) -> Any:
        """All of a block of which the page of the call shows only the beginning, from a character on."""


class NoRecordings:
    """No recordings were given."""

    names: Sequence[str] = ()

    async def page(self, number: int, *, place: int, call: int | None, shows_all: bool) -> Any:
        """Raise ``ReplayFormatError``."""
        del place, call, shows_all
        raise _none_given(f"recording {number}")

    def text(self, page: Any, block: int, first: int) -> Any:
        """Raise ``ReplayFormatError``: there is no page to take a text from."""
        del page, first
        raise _none_given(f"recording with a block {block}")


class Comparisons(Protocol):
    """Comparisons of arms, by their number from 0."""

    @property
    def names(self) -> Sequence[str]:
        """What the list calls them, in the order of their numbers."""

    async def page(self, number: int) -> Any:
        """What is shown of a comparison.

        Raises:
            ReplayFormatError: there is no such comparison.
            ConfigError: it cannot be read.
        """


class NoComparisons:
    """No comparisons were given."""

    names: Sequence[str] = ()

    async def page(self, number: int) -> Any:
        """Raise ``ReplayFormatError``."""
        raise _none_given(f"comparison {number}")


def _none_given(wanted: str) -> ReplayFormatError:
    return ReplayFormatError(f"there is no {wanted}: name files after `ctxfs view`")
