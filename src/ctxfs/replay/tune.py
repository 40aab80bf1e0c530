"""Finding parameters of the economic planner on some sessions, and judging them on others.

A fixed list of trials is replayed on every session once. For each fold the best trial on the other folds is taken, and
what it costs on the fold itself is reported: this is the saving to expect from tuning on sessions like these. The
parameters that are printed are the best over all sessions.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Final

from ctxfs.economics.parameters import EvictionParameters
from ctxfs.errors import ConfigError
from ctxfs.replay.cost import replay_session
from ctxfs.replay.economic import Economic
from ctxfs.replay.lab import Loaded, Progress, Thread, Tokens, map_sessions
from ctxfs.replay.policies import Never
from ctxfs.replay.report import Skipped
from ctxfs.replay.tariff import PriceOptions

__all__ = ["TUNED", "Fold", "Tuned", "tune_files"]

TUNED: Final[Mapping[str, tuple[float, ...]]] = {
    "caution": (0.25, 0.5, 1.0, 1.5, 2.5),
    "rent_share": (0.5, 1.0, 1.5),
    "company_factor": (0.5, 1.0, 2.0),
    "memory_weight": (0.5, 1.0, 2.0),
    "horizon_growth": (0.5, 1.0),
    "size_exponent": (0.75, 0.9, 1.0),
}
"""What is tuned: factors on the defaults."""

_Values = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class _Trials:
    """What each trial costs on one session."""

    none: float
    costs: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One fold: costs relative to never evicting, on the sessions that were tuned on and on those held out.

    ``held_out_default``: what the default parameters cost there.
    """

    sessions: tuple[str, ...]
    tuned_on: float
    held_out: float
    held_out_default: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The best parameters over all sessions, and what tuning is worth on sessions that it has not seen."""

    parameters: EvictionParameters
    changed: Mapping[str, float]
    relative_cost: float
    default_relative_cost: float
    folds: tuple[Fold, ...]
    skipped: tuple[Skipped, ...] = ()

    @property
    def held_out(self) -> float:
        """The relative cost over the folds, each with parameters found on the others."""
        return fmean(f.held_out for f in self.folds)

    @property
    def held_out_default(self) -> float:
        """The same with the default parameters."""
        return fmean(f.held_out_default for f in self.folds)

    def to_toml(self) -> str:
        """The parameters that differ from the defaults, to be given as a policy."""
        head = [
            "# Eviction parameters for `ctxfs replay --policy THIS_FILE.toml`; what is not named keeps its default.",
            "# Cost relative to never evicting, in brackets with the defaults:",
            f"# on all sessions {self.relative_cost:.3f} ({self.default_relative_cost:.3f})",
            f"# mean over folds, on sessions held out {self.held_out:.3f} ({self.held_out_default:.3f})",
        ]
        return "\n".join([*head, *(f"{name} = {value:g}" for name, value in self.changed.items()), ""])


def tune_files(
    files: Sequence[Path],
    tokens: Tokens = "o200k",
    *,
    prices: PriceOptions = PriceOptions(),  # noqa: B008 - a frozen value
    trials: int = 24,
    folds: int = 5,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tuned:
    """Tune on recorded sessions. The same files, trials and seed give the same parameters.

    Raises:
        ConfigError: fewer than two sessions, folds or trials.
        ReplayFormatError: no file has a reply of a model in it that can be read.
    """
    if len(files) < 2 or folds < 2 or trials < 2:
        raise ConfigError("tuning needs at least two recorded sessions, two folds and two trials")
    tried = _trials(trials, random.Random(seed))  # noqa: S311 - a reproducible choice, not a secret
    one = partial(_try_one, tried=tried)
    mapped = map_sessions(one, files, tokens, prices, progress)
    sessions = mapped.sessions
    if len(sessions) < 2:
        raise ConfigError(f"tuning needs at least two recorded sessions with a reply, and found {len(sessions)}")
    names, found = [path.stem for path, _ in sessions], [trials for _, trials in sessions]
    parts = [range(k, len(found), folds) for k in range(min(folds, len(found)))]
    best = _best(found)
    return Tuned(
        parameters=EvictionParameters(**dict(tried[best])),  # type: ignore[arg-type]
        changed=dict(tried[best]),
        relative_cost=_relative(found, best),
        default_relative_cost=_relative(found, 0),
        folds=tuple(_fold(found, part, names) for part in parts),
        skipped=mapped.skipped,
    )


def _trials(number: int, rng: random.Random) -> list[_Values]:
    """The defaults first, then random choices around them."""
    default = EvictionParameters()
    tried: list[_Values] = [()]
    while len(tried) < number:
        chosen = {name: rng.choice(factors) * getattr(default, name) for name, factors in TUNED.items()}
        tried.append(tuple((n, round(v, 4)) for n, v in chosen.items() if v != getattr(default, n)))
    return tried


def _try_one(loaded: Loaded, *, tried: Sequence[_Values]) -> _Trials:
    known = {f.name for f in fields(EvictionParameters)}
    costs = []
    for values in tried:
        assert {name for name, _ in values} <= known
        parameters = EvictionParameters(**dict(values))  # type: ignore[arg-type]
        costs.append(sum(_cost(thread, parameters) for thread in loaded.threads))
    none = sum(replay_session(t.session, Never(), t.tariff.rates).cost for t in loaded.threads)
    return _Trials(none=none, costs=tuple(costs))


def _cost(thread: Thread, parameters: EvictionParameters) -> float:
    policy = Economic(name="trial", rates=thread.tariff.rates, count=thread.count, parameters=parameters)
    return replay_session(thread.session, policy, thread.tariff.rates).cost


def _fold(found: Sequence[_Trials], part: range, names: Sequence[str]) -> Fold:
    held_out = [found[i] for i in part]
    others = [t for i, t in enumerate(found) if i not in part]
    best = _best(others)
    return Fold(
        sessions=tuple(names[i] for i in part),
        tuned_on=_relative(others, best),
        held_out=_relative(held_out, best),
        held_out_default=_relative(held_out, 0),
    )


def _best(found: Sequence[_Trials]) -> int:
    """The trial that is cheapest in all and for the average session, and no session costs more than without it."""

    def price(trial: int) -> float:
        each = [t.costs[trial] / t.none for t in found]
        return _relative(found, trial) + fmean(each) + sum(max(0.0, cost - 1) for cost in each)

    return min(range(len(found[0].costs)), key=price)


def _relative(found: Sequence[_Trials], trial: int) -> float:
    return sum(t.costs[trial] for t in found) / sum(t.none for t in found)
