"""What a part of the proof is, and what it found; ``run.py`` runs all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["MEMORY", "SEED_NAME", "Part", "Result", "seed_in"]

MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
"""Where to put what need not outlive the run; None: where temporary files are put."""

SEED_NAME = "seed"


def seed_in(state_dir: Path) -> int:
    """Return where a part's random draws start: the run's seed, which the part's state directory holds."""
    file = state_dir / SEED_NAME
    return int(file.read_text()) if file.exists() else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a part found.

    ``figures`` is what it measured, by name. ``violations`` says what was broken, a line each; a proof has none.
    ``controls`` are deliberately broken variants, and whether each was seen failing: one that was not is a failure of
    the part. ``complete`` False: the time was up; the next run in the same state directory goes on from there.
    """

    figures: Mapping[str, int | float | str] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    controls: Mapping[str, bool] = field(default_factory=dict)
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the proof, as ``PART`` of a module ``part_<name>.py`` in this directory.

    ``run(budget_s, state_dir)`` works for about ``budget_s`` seconds, keeps what it needs to go on in ``state_dir``
    (which exists) and prints its progress. ``share`` is its share of the whole time, relative to the other parts.
    """

    name: str
    title: str
    run: Callable[[float, Path], Result]
    share: float = 1.0
