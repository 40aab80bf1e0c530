"""Random histories of use, compaction, undo, clean-up, erasing, forks, forgetting and kills: nothing live dangles."""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import anyio

from prove.cleanup_family import forget_and_empty, forget_too_much
from prove.cleanup_play import play
from prove.cleanup_ways import Ways, erase_files_only, fork_as_it_was, prune_silently, prune_too_much
from prove.parts import Part, Result, seed_in
from prove.workers import counted_in_batches, no_threads

__all__ = ["PART", "controls", "run_histories"]

HISTORIES = 100_000
_BATCH = 200
_CONTROLLED = 60


def run_histories(
    seeds: Iterable[int], *, ways: Ways | None = None, backend: str = "asyncio"
) -> tuple[Counter[str], list[str]]:
    """Play a history for each seed; what was counted, and everything that was wrong."""
    counted: Counter[str] = Counter()
    wrong: list[str] = []

    async def all_of_them() -> None:
        for seed in seeds:
            more, bad = await play(seed, ways=ways)
            counted.update(more)
            wrong.extend(bad)

    with no_threads():
        anyio.run(all_of_them, backend=backend)
    return counted, wrong


def controls() -> dict[str, bool]:
    """Clean-up that removes too much or too little, or does not say so: each must be found out."""
    broken = {
        "what a placeholder names is removed": Ways(prune=prune_too_much),
        "no tombstone is left": Ways(prune=prune_silently),
        "erasing leaves the journal and the archives": Ways(erase=erase_files_only),
        "a fork does not know what was removed since": Ways(fork=fork_as_it_was),
        "forgetting empties files that a fork shares": Ways(forget=forget_and_empty),
        "a session that the policy keeps is removed": Ways(forget=forget_too_much),
    }
    return {
        name: any(run_histories([seed], ways=ways)[1] for seed in range(_CONTROLLED)) for name, ways in broken.items()
    }


def _batch(seed: int, first: int) -> tuple[Counter[str], list[str]]:
    return run_histories(range(seed + first, seed + min(HISTORIES, first + _BATCH)))


def _run(budget_s: float, state_dir: Path) -> Result:
    batch, numbers = partial(_batch, seed_in(state_dir)), range(0, HISTORIES, _BATCH)
    done, counted, wrong = counted_in_batches(
        batch, numbers, "histories", file=state_dir / "cleanup.json", budget_s=budget_s
    )
    figures = {"histories": done, **dict(sorted(counted.items()))}
    return Result(figures=figures, violations=wrong, controls=controls(), complete=done >= HISTORIES)


PART = Part(name="cleanup", title="Random histories of clean-up", run=_run, share=1.4)
