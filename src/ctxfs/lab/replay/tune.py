"""The numbers of the economic planner, counted on a user's own sessions, and what they are worth on others.

They are counted, not searched for: see ``count``. For each fold they are counted on the other folds, and what they
cost on the fold itself is reported, beside what the defaults cost: this is the saving to expect of counting.

A probe lets every item leave at an age that is drawn at random, so that leaving does not depend on what is expected of
it; no price comes in. Each later call is an exposure of every item that left, each page of it that is read back an
event. A Poisson regression gives ``events = exposures * rate[kind] * (tokens / 1000) ** by_size / age``.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Final

from ctxfs.errors import ConfigError
from ctxfs.eviction.economics.parameters import EvictionParameters, ItemKind
from ctxfs.lab.replay.cost import Replacement, replay_session
from ctxfs.lab.replay.economic import Economic, EconomicRun
from ctxfs.lab.replay.lab import Loaded, Progress, Thread, Tokens, map_sessions
from ctxfs.lab.replay.policies import Never
from ctxfs.lab.replay.report import Skipped
from ctxfs.lab.replay.session import Item, Session
from ctxfs.lab.replay.tariff import PriceOptions
from ctxfs.messages.base import Usage
from ctxfs.messages.rates import ANTHROPIC_RATES

_AGES: Final = (1, 2, 4, 8, 16, 32)
"""The calls after which an item leaves, drawn evenly: exposures at every age, and of young items most."""

_DRAWS: Final = (0, 3)
"""Each session is probed twice, with other draws."""

_LEAST_TOKENS: Final = 16
_ROUNDS: Final = 100
_PRECISION: Final = 1e-9

Cell = tuple[ItemKind, float, float]
"""A kind, a size in tokens, an age in calls; sizes are rounded to powers of two, ages to half powers."""

Cells = dict[Cell, tuple[int, int]]
"""Of each cell: the exposures, and the events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What was counted.

    Args:
        read_backs: as in ``EvictionParameters``; ``by_size`` too.
        by_age: the exponent with which they fall with age, if that is not taken to be 1: a check of that.
        errors: by name, the standard error of each exponent, and of the logarithm of each rate.
        events: the read-backs that were counted.
    """

    read_backs: Mapping[ItemKind, float]
    by_size: float
    by_age: float
    errors: Mapping[str, float]
    events: int

    def parameters(self) -> EvictionParameters:
        """The planner's numbers with these, rounded as the code has them."""
        rates = {kind: round(rate, 2) for kind, rate in self.read_backs.items()}
        return EvictionParameters(read_backs=MappingProxyType(rates), by_size=round(self.by_size, 1))


def count(thread: Thread) -> Cells:
    """The exposures and events of one thread."""
    found: defaultdict[Cell, list[int]] = defaultdict(lambda: [0, 0])
    for draw in _DRAWS:
        replay_session(thread.session, _Probe(thread, draw, found), ANTHROPIC_RATES)
    return {cell: (exposed, events) for cell, (exposed, events) in found.items()}


def joined(cells: Iterable[Cells]) -> Cells:
    """The cells of several threads as one."""
    found: Cells = {}
    for one in cells:
        for cell, (exposed, events) in one.items():
            before = found.get(cell, (0, 0))
            found[cell] = (before[0] + exposed, before[1] + events)
    return found


def expected_cells(parameters: EvictionParameters, *, events: int) -> Cells:
    """What ``parameters`` expect, as if so many events of each kind had been counted at each of three sizes."""
    found: Cells = {}
    for kind in ItemKind:
        for tokens in (256.0, 1_024.0, 4_096.0):
            rate = max(_PRECISION, parameters.hazard(kind, int(tokens)))
            found[kind, tokens, 1.0] = (round(events / rate), events)
    return found


def counted(cells: Cells) -> Counted:
    """The rates and the exponent that explain the cells best."""
    kinds = [kind for kind in ItemKind if any(cell[0] is kind and events for cell, (_, events) in cells.items())]
    rows = [
        ([float(kind is one) for one in kinds] + [math.log(tokens / 1_000)], math.log(age), exposed, events)
        for (kind, tokens, age), (exposed, events) in cells.items()
    ]
    fixed, errors = _poisson([(x, exposed / math.exp(log_age), events) for x, log_age, exposed, events in rows])
    free, free_errors = _poisson([([*x, log_age], float(exposed), events) for x, log_age, exposed, events in rows])
    rates = dict.fromkeys(ItemKind, 0.0) | {kind: math.exp(fixed[n]) for n, kind in enumerate(kinds)}
    names = [*(kind.value for kind in kinds), "by_size"]
    return Counted(
        read_backs=MappingProxyType(rates),
        by_size=fixed[len(kinds)],
        by_age=-free[-1],
        errors=dict(zip(names, errors, strict=True)) | {"by_age": free_errors[-1]},
        events=sum(events for _, events in cells.values()),
    )


class _Probe:
    """A policy that evicts at random ages, and notes what is read back."""

    def __init__(self, thread: Thread, draw: int, found: defaultdict[Cell, list[int]]) -> None:
        self.name = "probe"
        self.draw = draw
        self.found = found
        # What is counted are the read-backs of what the model has seen whole.
        self._economic = Economic(name=self.name, rates=ANTHROPIC_RATES, count=thread.count, preview_above_tokens=None)

    def start(self, session: Session) -> "_ProbeRun":
        """Begin with a session."""
        return _ProbeRun(self, EconomicRun(self._economic, session))


@dataclass(frozen=True, slots=True)
class _Left:
    """An item that left: its kind and size, and the calls that were made before it came."""

    kind: ItemKind
    tokens: int
    came: int


class _ProbeRun:
    def __init__(self, probe: _Probe, run: EconomicRun) -> None:
        self._probe = probe
        self._run = run
        self._left: dict[int, _Left] = {}  # by the item's index; pages count for what they are pages of

    def plan(self, added: Sequence[Item], at: float) -> Sequence[Replacement]:
        self._run.take_in(added, at)
        ledger = self._run.ledger
        due = []
        for item_id, held in ledger.held.items():
            item = self._run.item(item_id)
            leaves_at = _AGES[(item.index * 7_919 + self._probe.draw) % len(_AGES)]
            if ledger.calls - held.came < leaves_at:
                continue
            due.append(item_id)
            if item.page_of is None:
                size = held.candidate.tokens + held.candidate.hidden_tokens
                self._left[item.index] = _Left(held.candidate.kind, size, held.came)
        return self._run.evict(due)

    def replied(self, reply: Sequence[Item], billed: Usage) -> None:
        self._run.replied(reply, billed)
        calls = self._run.ledger.calls
        for left in self._left.values():
            self._probe.found[_cell(left, calls - left.came)][0] += 1

    def read_back(self, index: int, call: Item, page: Item, billed: Usage) -> None:
        left = self._left.get(index)
        if left is not None:
            self._probe.found[_cell(left, self._run.ledger.calls + 1 - left.came)][1] += 1
        self._run.read_back(index, call, page, billed)


def _cell(left: _Left, age: int) -> Cell:
    tokens = 2.0 ** round(math.log2(max(_LEAST_TOKENS, left.tokens)))
    return left.kind, tokens, 2.0 ** (round(2 * math.log2(age)) / 2)


_Row = tuple[list[float], float, int]


def _poisson(rows: Sequence[_Row]) -> tuple[list[float], list[float]]:
    """The coefficients of log(events / exposures) by Newton's method, and their standard errors."""
    size = len(rows[0][0])
    found = [math.log(0.05)] * (size - 1) + [0.0]
    matrix: list[list[float]] = []
    for _ in range(_ROUNDS):
        slope = [0.0] * size
        matrix = [[0.0] * size for _ in range(size)]
        for x, exposed, events in rows:
            expected = exposed * math.exp(sum(b * value for b, value in zip(found, x, strict=True)))
            for i in range(size):
                slope[i] += (events - expected) * x[i]
                for j in range(size):
                    matrix[i][j] += expected * x[i] * x[j]
        step = _solved(matrix, slope)
        longest = max(1.0, *map(abs, step))
        step = [value / longest for value in step]  # far from the solution a whole step may overshoot
        found = [b + value for b, value in zip(found, step, strict=True)]
        if max(map(abs, step)) < _PRECISION:
            break
    units = [[float(i == j) for j in range(size)] for i in range(size)]
    return found, [math.sqrt(max(0.0, _solved(matrix, unit)[i])) for i, unit in enumerate(units)]


def _solved(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Solve a symmetric, positive system by elimination."""
    size = len(right)
    rows = [[*matrix[i], right[i]] for i in range(size)]
    for i in range(size):
        pivot = rows[i][i] or _PRECISION
        rows[i] = [value / pivot for value in rows[i]]
        for j in range(size):
            if j != i:
                factor = rows[j][i]
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [row[size] for row in rows]


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
