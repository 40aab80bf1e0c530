"""What a comparison found, as values: each arm, each arm against the first one, and one sentence. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from textwrap import wrap
from typing import Any

from ctxfs.eviction.placeholder.lines import plural
from ctxfs.lab.ab.results import LEFT_OUT, SessionResult
from ctxfs.lab.ab.statistics import Difference, mean_difference, solved_difference
from ctxfs.text import figures

DEFAULT_MARGIN_POINTS = 5.0
"""By how many points of a hundred tasks an arm may be worse, unless the user says so."""

ROWS = (
    ("sessions", "sessions"),
    ("solved", "solved"),
    ("  ended by time", "timeouts"),
    ("  ended by their budget", "limited"),
    ("  crashed", "crashed"),
    ("dollars", "usd"),
    ("calls", "calls"),
    ("input, uncached", "input_tokens"),
    ("input, to the cache", "cache_write_tokens"),
    ("input, from the cache", "cache_read_tokens"),
    ("output", "output_tokens"),
    ("seconds", "wall_s"),
    ("replaced", "replaced"),
    ("read back", "read_backs"),
    ("repeated tool calls", "repeated_calls"),
    ("refused requests", "refusals"),
    ("cache breaks", "cache_breaks"),
)
"""What is shown of each arm: its name, and the field."""

LIMITS = (
    "Dollars are list prices of what was billed. Arms of a pair run after each other, so the second may find the first "
    "one's prompt in the provider's cache; their order is random. An interval that holds zero does not show that there "
    "is no difference."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFigures:
    """The sessions of one arm that count, added up; see ``SessionResult`` for what the numbers are."""

    arm: str
    sessions: int
    solved: int
    timeouts: int
    crashed: int
    limited: int
    usd: float
    calls: int
    unbilled_calls: int
    unpriced_calls: int
    input_tokens: int
    cache_write_tokens: int
    cache_read_tokens: int
    output_tokens: int
    wall_s: float
    read_backs: int
    repeated_calls: int
    refusals: int
    cache_breaks: int
    replaced: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """An arm against the first one, over the sessions of tasks that both played to an end.

    ``solved``: the difference in the share of tasks solved, from -1 to 1. ``usd``: the difference of the dollars of a
    session. Each is None where there are too few pairs. ``better`` and ``worse``: in how many pairs of sessions only
    the arm, or only the first one, solved the task.
    """

    arm: str
    base: str
    tasks: int
    pairs: int
    arm_solved: int
    base_solved: int
    better: int
    worse: int
    arm_usd: float
    base_usd: float
    solved: Difference | None
    usd: Difference | None

    def is_shown(self, margin_points: float) -> bool:
        """Whether it is shown that the arm is not worse than the first one by more than so many points."""
        return self.solved is not None and self.solved.low * 100 >= -margin_points

    def sentence(self, margin_points: float = DEFAULT_MARGIN_POINTS) -> str:
        """What was found, in one sentence."""
        if self.solved is None:
            return f"{self.arm}: no task was played to an end in both arms, so nothing is known"
        interval = f"{self.solved.low * 100:+.0f} … {self.solved.high * 100:+.0f}"
        found = "is shown" if self.is_shown(margin_points) else "is not shown"
        return (
            f"{self.arm} solved {self.arm_solved} of {self.pairs}, {self.base} {self.base_solved}; "
            f"not worse by more than {margin_points:g} points {found} (interval {interval}); "
            f"{figures.usd(self.arm_usd)} instead of {figures.usd(self.base_usd)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison, as far as it was played.

    ``arms``: their names; the first one is what the others are compared with. ``tasks`` and ``repeats``: what was asked
    for. ``sessions``: those that ended. ``spent_usd``: what all calls cost, those of unfinished sessions too.
    """

    arms: tuple[str, ...]
    tasks: int
    repeats: int
    sessions: tuple[SessionResult, ...]
    spent_usd: float

    @property
    def figures(self) -> list[ArmFigures]:
        """Each arm's sessions that count, added up."""
        return [_figures(arm, [one for one in self.counted if one.arm == arm]) for arm in self.arms]

    @property
    def against(self) -> list[Against]:
        """Each other arm against the first one."""
        return [against(arm, self.arms[0], self.counted) for arm in self.arms[1:]]

    @property
    def counted(self) -> list[SessionResult]:
        """The sessions that say something about their arm."""
        return [one for one in self.sessions if one.outcome not in LEFT_OUT]

    @property
    def left_out(self) -> list[SessionResult]:
        """The sessions that say nothing about their arm: the budget ended them, or they could not be played."""
        return [one for one in self.sessions if one.outcome in LEFT_OUT]

    @property
    def unplayed(self) -> int:
        """How many sessions were asked for and did not end, or are left out."""
        return self.tasks * self.repeats * len(self.arms) - len(self.counted)

    def meets(self, margin_points: float) -> bool:
        """Whether of each other arm it is shown that it is not worse by more than the margin."""
        return all(one.is_shown(margin_points) for one in self.against)

    def notes(self) -> list[str]:
        """What a reader must know beside the figures."""
        found = []
        if self.unplayed:
            sessions = plural(self.unplayed, "session")
            found.append(f"{sessions} not played: the same command goes on, with more --budget if that was spent")
        for outcome, what in (("budget", "ended by the budget"), ("failed", "could not be played")):
            if number := sum(one.outcome == outcome for one in self.left_out):
                found.append(f"{plural(number, 'session')} {what}: left out")
        if unbilled := sum(one.unbilled_calls for one in self.counted):
            found.append(f"{plural(unbilled, 'reply')} without a bill: counted with the most that it may cost")
        if unpriced := sum(one.unpriced_calls for one in self.counted):
            found.append(f"{plural(unpriced, 'call')} of a model without known prices: counted as free")
        found += [
            f"nothing was replaced in {one.arm}, so it shows nothing: its sessions are too short for that, or the "
            "program has no tool that reads back (--reading-turns 8 brings one)"
            for one in self.figures
            if one.sessions and one.replaced == 0 and one.arm != "none"
        ]
        notes = sorted(
            {f"{one.outcome}: {one.note}" for one in self.sessions if one.note and one.outcome in ("crashed", "failed")}
        )
        return found + notes[:3]

    def text(self, margin_points: float = DEFAULT_MARGIN_POINTS, *, width: int = 80) -> str:
        """For a terminal of ``width`` columns: the sentence of each arm, and a table of all."""
        lines = []
        for one in self.against:
            lines += wrap(f"{one.sentence(margin_points)}.", width)
        lines.append("")
        name_width = max(len(name) for name, _ in ROWS) + 1
        widths = [max(12, len(one.arm) + 2) for one in self.figures]
        header = "".join(one.arm.rjust(width) for one, width in zip(self.figures, widths, strict=True))
        lines.append(f"{'':{name_width}}{header}")
        for name, field in ROWS:
            cells = [shown(one, field).rjust(width) for one, width in zip(self.figures, widths, strict=True)]
            lines.append(f"{name:{name_width}}{''.join(cells)}")
        for one in self.against:
            lines += ["", *wrap(details(one), width)]
        lines += ["", *wrap(LIMITS, width)]
        for note in self.notes():
            lines += wrap(f"note: {note}", width)
        return "\n".join(lines) + "\n"


def against(arm: str, base: str, counted: Sequence[SessionResult]) -> Against:
    """An arm against another one, over the sessions that both have."""
    by_key = {one.key: one for one in counted}
    pairs = []
    for one in counted:
        other = by_key.get(one.key._replace(arm=base))
        if one.arm == arm and other is not None:
            pairs.append((one, other))
    by_task: dict[str, list[tuple[SessionResult, SessionResult]]] = {}
    for one, other in pairs:
        by_task.setdefault(one.task, []).append((one, other))
    shares = []
    dollars = []
    for found in by_task.values():
        shares.append((fmean(one.solved for one, _ in found), fmean(other.solved for _, other in found)))
        dollars.append((fmean(one.usd for one, _ in found), fmean(other.usd for _, other in found)))
    return Against(
        arm=arm,
        base=base,
        tasks=len(by_task),
        pairs=len(pairs),
        arm_solved=sum(one.solved for one, _ in pairs),
        base_solved=sum(other.solved for _, other in pairs),
        better=sum(one.solved and not other.solved for one, other in pairs),
        worse=sum(other.solved and not one.solved for one, other in pairs),
        arm_usd=sum(one.usd for one, _ in pairs),
        base_usd=sum(other.usd for _, other in pairs),
        solved=solved_difference(shares),
        usd=mean_difference(dollars),
    )


def _figures(arm: str, sessions: Sequence[SessionResult]) -> ArmFigures:
    outcomes = [one.outcome for one in sessions]
    return ArmFigures(
        arm=arm,
        sessions=len(sessions),
        solved=outcomes.count("solved"),
        timeouts=outcomes.count("timeout"),
        crashed=outcomes.count("crashed"),
        limited=outcomes.count("limit"),
        usd=sum(one.usd for one in sessions),
        calls=sum(one.calls for one in sessions),
        unbilled_calls=sum(one.unbilled_calls for one in sessions),
        unpriced_calls=sum(one.unpriced_calls for one in sessions),
        input_tokens=sum(one.input_tokens for one in sessions),
        cache_write_tokens=sum(one.cache_write_tokens for one in sessions),
        cache_read_tokens=sum(one.cache_read_tokens for one in sessions),
        output_tokens=sum(one.output_tokens for one in sessions),
        wall_s=sum(one.wall_s for one in sessions),
        read_backs=sum(one.read_backs for one in sessions),
        repeated_calls=sum(one.repeated_calls for one in sessions),
        refusals=sum(one.refusals for one in sessions),
        cache_breaks=sum(one.cache_breaks for one in sessions),
        replaced=_sum([one.replaced for one in sessions]),
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    """The sum; None if one of them is not known."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def details(one: Against) -> str:
    """Where the difference of an arm comes from, in sentences."""
    if one.solved is None:
        return f"{one.arm} and {one.base} have no task in common yet."
    found = (
        f"{one.arm} against {one.base}: {one.tasks} tasks in both; solved by {one.arm} alone {one.better}, by "
        f"{one.base} alone {one.worse}; the interval is by {one.solved.method}."
    )
    if one.usd is None:
        return found
    return f"{found} Dollars of a task: {_dollars(one.usd)} by {one.usd.method}."


def _dollars(difference: Difference) -> str:
    values = (difference.value, difference.low, difference.high)
    parts = [f"{'+' if value > 0 else ''}{figures.usd(value)}" for value in values]
    return f"{parts[0]}, interval {parts[1]} … {parts[2]}"


def shown(one: ArmFigures, field: str) -> str:
    """One figure of an arm, as text."""
    value: Any = getattr(one, field)
    if value is None:
        return "?"
    if field == "usd":
        return figures.usd(value)
    return f"{value:,.0f}"
