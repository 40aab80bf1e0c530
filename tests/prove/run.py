"""Run the proof: every ``part_<name>.py`` of this directory, each within its share of the time; print a table.

``python tests/prove/run.py [--minutes 175] [--state .prove] [--only name,name] [--again] [--seed N]``

What a part finds is kept in the state directory: a part that was not done in its time goes on in the next run, and one
that is done is not run again (unless ``--again``). The exit code is 0 when every part is complete, found nothing, and
saw every broken control fail.
"""

import argparse
import importlib
import json
import random
import shutil
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))  # `prove` and the tests' own modules

from prove.parts import SEED_NAME, Part, Result, seed_in  # noqa: E402 - found there

RESULT_NAME = "result.json"
SHOWN_VIOLATIONS = 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """A part's result and the seconds that it took, over all runs."""

    part: Part
    result: Result
    seconds: float

    @property
    def missed(self) -> list[str]:
        """Controls that should have failed and did not."""
        return [name for name, seen in self.result.controls.items() if not seen]

    @property
    def verdict(self) -> str:
        if self.result.violations or self.missed:
            return "FAILED"
        return "ok" if self.result.complete else "not done"


def discover(only: Sequence[str] = ()) -> list[Part]:
    """Find the parts, by name. Raises SystemExit when one that is asked for is not there."""
    names = sorted(path.stem for path in HERE.glob("part_*.py"))
    parts: list[Part] = [importlib.import_module(f"prove.{name}").PART for name in names]
    unknown = set(only) - {part.name for part in parts}
    if unknown:
        raise SystemExit(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(p.name for p in parts)}")
    return [part for part in parts if not only or part.name in only]


def run_part(part: Part, budget_s: float, state: Path, seed: int = 0) -> Outcome:
    """Run a part, or take what it found before when it was done; a part that raises has failed.

    A part that goes on, or runs again because it failed, keeps the seed that it began with.
    """
    folder = state / part.name
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / SEED_NAME).exists():
        (folder / SEED_NAME).write_text(str(seed))
    seed = seed_in(folder)
    kept = folder / RESULT_NAME
    before = json.loads(kept.read_text()) if kept.exists() else {}
    if before.get("complete") and not before["violations"] and all(before["controls"].values()):
        found = {key: value for key, value in before.items() if key != "seconds"}
        return Outcome(part, Result(**found), before["seconds"])
    if before.get("violations") or not all(before.get("controls", {}).values()):
        shutil.rmtree(folder)  # a failed part starts again: the code has changed
        folder.mkdir()
        (folder / SEED_NAME).write_text(str(seed))
        before = {}
    print(f"== {part.name}: {part.title} (up to {budget_s:.0f} s, seed {seed})", flush=True)
    started = time.monotonic()
    try:
        result = part.run(budget_s, folder)
    except Exception as error:  # noqa: BLE001 - the other parts are run all the same
        traceback.print_exc()
        result = Result(violations=[f"it raised {type(error).__name__}: {error}"], complete=False)
    seconds = before.get("seconds", 0.0) + time.monotonic() - started
    kept.write_text(json.dumps({**asdict(result), "seconds": seconds}, indent=1))
    return Outcome(part, result, seconds)


def report(outcomes: Sequence[Outcome]) -> str:
    """Tell in a table what every part found, then what was broken."""
    lines = ["", f"{'part':14}{'verdict':10}{'seconds':>8}{'broken':>8}  controls  figures"]
    for outcome in outcomes:
        result = outcome.result
        seen = f"{len(result.controls) - len(outcome.missed)}/{len(result.controls)}"
        figures = ", ".join(f"{name} {_figure(value)}" for name, value in result.figures.items())
        broken = len(result.violations)
        lines.append(f"{outcome.part.name:14}{outcome.verdict:10}{outcome.seconds:8.0f}{broken:8}  {seen:8}  {figures}")
    for outcome in outcomes:
        lines += [f"{outcome.part.name}: {violation}" for violation in outcome.result.violations[:SHOWN_VIOLATIONS]]
        lines += [f"{outcome.part.name}: the control {name!r} was not seen failing" for name in outcome.missed]
    return "\n".join(lines)


def _figure(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description="Run the proof.")
    parser.add_argument("--minutes", type=float, default=175.0, help="for all parts together")
    parser.add_argument("--state", type=Path, default=ROOT / ".prove", help="where runs go on from")
    parser.add_argument("--only", default="", help="names of parts, separated by commas")
    parser.add_argument("--again", action="store_true", help="forget what was found before")
    parser.add_argument("--seed", type=int, help="of parts that begin; without it a random one, which is printed")
    options = parser.parse_args(arguments)
    seed: int = random.randrange(1 << 30) if options.seed is None else options.seed
    parts = discover([name for name in options.only.split(",") if name])
    if options.again:
        for part in parts:
            shutil.rmtree(options.state / part.name, ignore_errors=True)
    ends = time.monotonic() + options.minutes * 60
    outcomes: list[Outcome] = []
    shares = sum(part.share for part in parts)
    for part in sorted(parts, key=lambda part: part.share):  # what one leaves of its time is for those with more to do
        budget = max(0.0, ends - time.monotonic()) * part.share / shares
        shares -= part.share
        outcomes.append(run_part(part, budget, options.state, seed))
    print(report(outcomes))
    return 0 if all(outcome.verdict == "ok" for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
