"""Comparisons of arms as the page of ``ctxfs view`` shows them, from the files of their results."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from anyio import to_thread

from ctxfs.errors import ReplayFormatError
from ctxfs.lab.ab.report import LIMITS, ROWS, Comparison, details, shown
from ctxfs.lab.ab.results import SessionResult, read_results


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPage:
    """What is shown of a comparison. Nothing in it is trusted.

    Args:
        name: of its file.
        number: of the file, from 0.
        comparison: as far as it was played.
    """

    name: str
    number: int
    comparison: Comparison

    @property
    def sentences(self) -> Sequence[str]:
        """What was found, a sentence for each arm but the first."""
        return [f"{one.sentence()}." for one in self.comparison.against]

    @property
    def notes(self) -> Sequence[str]:
        """Where the differences come from, and what a reader must know beside them."""
        return [*map(details, self.comparison.against), *self.comparison.notes(), LIMITS]

    @property
    def rows(self) -> Sequence[tuple[str, Sequence[str]]]:
        """Each figure, and its value in each arm; without those in ``noughts``."""
        figures = self.comparison.figures
        return [(name.strip(), [shown(one, field) for one in figures]) for name, field in ROWS if not self._is_0(field)]

    @property
    def noughts(self) -> Sequence[str]:
        """The figures that are 0 in every arm: one line says so."""
        return [name.strip() for name, field in ROWS if self._is_0(field)]

    @property
    def tasks(self) -> Sequence[Sequence[SessionResult]]:
        """The sessions that ended, by task and repeat: those of a pair beside each other."""
        arms = self.comparison.arms
        ordered = sorted(self.comparison.sessions, key=lambda one: (one.task, one.repeat, arms.index(one.arm)))
        return [list(pair) for _, pair in groupby(ordered, key=lambda one: (one.task, one.repeat))]

    def _is_0(self, field: str) -> bool:
        """Whether it is 0 in every arm. How many were played and solved is what the table is for: not these."""
        return field not in ("sessions", "solved") and all(getattr(one, field) == 0 for one in self.comparison.figures)


@dataclass(frozen=True, slots=True)
class ComparedFiles:
    """The files that were given; each is read whenever it is shown, since a comparison may be going on."""

    paths: Sequence[Path] = ()

    @property
    def names(self) -> Sequence[str]:
        """The names of the files."""
        return [path.name for path in self.paths]

    async def page(self, number: int) -> ComparedPage:
        """The page of file ``number``, from 0.

        Raises:
            ReplayFormatError: there is no such file.
            ConfigError: it cannot be read, or is damaged.
        """
        if number >= len(self.paths):
            raise ReplayFormatError(f"there is no comparison {number}: {len(self.paths)} were given")
        path = self.paths[number]
        return ComparedPage(name=path.name, number=number, comparison=await to_thread.run_sync(_compared, path))


def _compared(path: Path) -> Comparison:
    """The comparison of a file. A task of which no session has ended yet is not known, and not missed."""
    header, played = read_results(path)
    sessions = tuple(played.sessions.values())
    return Comparison(
        arms=header.arms,
        tasks=len({one.task for one in sessions}),
        repeats=header.repeats,
        sessions=sessions,
        spent_usd=played.spent_usd,
    )
