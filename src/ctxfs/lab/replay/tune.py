"""The numbers of the economic planner, counted on a user's own sessions, and what they are worth on others.

They are counted, not searched for: see ``counting``. For each fold they are counted on the other folds, and what they
cost on the fold itself is reported, beside what the defaults cost: this is the saving to expect of counting.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Final

from ctxfs.errors import ConfigError
from ctxfs.eviction.economics.features import ItemKind
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.lab.replay.cost import replay_session
from ctxfs.lab.replay.counting import Cells, Counted, count, counted, expected_cells, joined
from ctxfs.lab.replay.economic import Economic
from ctxfs.lab.replay.lab import Loaded, Progress, Tokens, map_sessions
from ctxfs.lab.replay.policies import Never
from ctxfs.lab.replay.report import Skipped
from ctxfs.lab.replay.tariff import PriceOptions

_EVENTS_OF_DEFAULTS: Final = 10
"""The defaults count as so many read-backs of each kind at each of three sizes: a few sessions do not overrule them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One fold: costs relative to never evicting on the sessions held out, with the numbers counted on the others.

    ``held_out_default``: what the default parameters cost there.
    """

    sessions: tuple[str, ...]
    held_out: float
    held_out_default: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The numbers counted over all sessions, and what counting is worth on sessions that it has not seen."""

    parameters: EvictionParameters
    counted: Counted
    folds: tuple[Fold, ...]
    skipped: tuple[Skipped, ...] = ()

    @property
    def held_out(self) -> float:
        """The relative cost over the folds, each with numbers counted on the others."""
        return fmean(f.held_out for f in self.folds)

    @property
    def held_out_default(self) -> float:
        """The same with the default parameters."""
        return fmean(f.held_out_default for f in self.folds)

    def to_toml(self) -> str:
        """The numbers, to be given as a policy."""
        head = [
            "# Eviction parameters for `ctxfs replay --policy THIS_FILE.toml`; what is not named keeps its default.",
            f"# Counted on {self.counted.events:,} read-backs.",
            "# Cost relative to never evicting, mean over folds, on sessions held out, in brackets with the defaults:",
            f"# {self.held_out:.3f} ({self.held_out_default:.3f})",
        ]
        rates = [f"{kind} = {self.parameters.read_backs[kind]:g}" for kind in ItemKind]
        return "\n".join([*head, f"by_size = {self.parameters.by_size:g}", "", "[read_backs]", *rates, ""])


def tune_files(
    files: Sequence[Path],
    tokens: Tokens = "o200k",
    *,
    prices: PriceOptions = PriceOptions(),  # noqa: B008 - a frozen value
    folds: int = 5,
    progress: Progress | None = None,
) -> Tuned:
    """Count on recorded sessions. The same files give the same numbers.

    Raises:
        ConfigError: fewer than two sessions, or folds.
        ReplayFormatError: no file has a reply of a model in it that can be read.
    """
    if len(files) < 2 or folds < 2:
        raise ConfigError("tuning needs at least two recorded sessions, and two folds")
    mapped = map_sessions(_cells, files, tokens, prices, progress)
    found = [cells for _, cells in mapped.sessions]
    if len(found) < 2:
        raise ConfigError(f"tuning needs at least two recorded sessions with a reply, and found {len(found)}")
    parts = [range(k, len(found), folds) for k in range(min(folds, len(found)))]
    others = [_counted([cells for n, cells in enumerate(found) if n not in part]).parameters() for part in parts]
    one = partial(_costs, tried=(EvictionParameters(), *others))
    read = [path for path, _ in mapped.sessions]
    costs = [c for _, c in map_sessions(one, list(dict.fromkeys(read)), tokens, prices, None).sessions]
    names = [path.stem for path in read]
    everything = _counted(found)
    return Tuned(
        parameters=everything.parameters(),
        counted=everything,
        folds=tuple(_fold(costs, part, number, names) for number, part in enumerate(parts, 1)),
        skipped=mapped.skipped,
    )


def _cells(loaded: Loaded) -> Cells:
    return joined(count(thread) for thread in loaded.threads)


def _counted(found: Sequence[Cells]) -> Counted:
    """What was counted, with what the defaults expect: they decide where hardly anything was."""
    return counted(joined([*found, expected_cells(EvictionParameters(), events=_EVENTS_OF_DEFAULTS)]))


def _costs(loaded: Loaded, *, tried: Sequence[EvictionParameters]) -> list[float]:
    """What never evicting costs, and each of the ``tried``."""
    found = [sum(replay_session(t.session, Never(), t.tariff.rates).cost for t in loaded.threads)]
    for parameters in tried:
        cost = 0.0
        for thread in loaded.threads:
            rates = thread.tariff.rates
            policy = Economic(name="tried", rates=rates, count=thread.count, parameters=parameters)
            cost += replay_session(thread.session, policy, rates).cost
        found.append(cost)
    return found


def _fold(costs: Sequence[Sequence[float]], part: range, number: int, names: Sequence[str]) -> Fold:
    none = sum(costs[n][0] for n in part)
    return Fold(
        sessions=tuple(names[n] for n in part),
        held_out=sum(costs[n][number + 1] for n in part) / none,
        held_out_default=sum(costs[n][1] for n in part) / none,
    )
