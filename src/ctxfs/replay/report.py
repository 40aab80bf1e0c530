"""What a replay found, as values and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from ctxfs.replay.cost import Cached, CallFigures, Cost

__all__ = ["PolicyFigures", "PolicyRun", "Report", "SessionReport", "Skipped", "cumulative", "summed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRun:
    """One policy on one session. ``relative_cost``: to never evicting. ``seconds``: what the replay itself took."""

    policy: str
    figures: Cost
    relative_cost: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """One session under all policies. ``oracle_*``: its cost relative to ``none`` if items vanished after last use."""

    session: str
    calls: int
    cost_of_none: float
    oracle_results: float
    oracle_results_and_inputs: float
    runs: tuple[PolicyRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """One policy over all sessions. Costs are in uncached input tokens, ``relative`` ones against never evicting."""

    policy: str
    cost: float
    relative_cost: float
    mean_relative_cost: float
    max_relative_cost: float
    peak_tokens: int
    mean_tokens: float
    cache_hit_rate: float
    prefix_breaks: int
    evictions: int
    stored_bytes: int
    read_backs: int
    read_backs_per_100_evictions: float
    read_back_cost: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that is not a recording, or is damaged; ``why`` names it."""

    path: Path
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All sessions under all policies; ``tokens`` names the counter, ``cached`` what the cache gives back.

    ``left_out``: files without a reply of a model. ``skipped``: files that cannot be read.
    """

    tokens: str
    cached: Cached = "prefix"
    sessions: tuple[SessionReport, ...]
    left_out: tuple[Path, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    @property
    def policies(self) -> tuple[PolicyFigures, ...]:
        """Each policy over all sessions, in the order in which they were asked for."""
        columns = zip(*(s.runs for s in self.sessions), strict=True)
        return tuple(_summed(column, sum(s.cost_of_none for s in self.sessions)) for column in columns)

    def oracle(self, *, tool_inputs: bool) -> tuple[float, float]:
        """The bound over results, or over results and tool inputs: relative cost in all, and its mean over sessions."""
        bounds = [s.oracle_results_and_inputs if tool_inputs else s.oracle_results for s in self.sessions]
        total = sum(s.cost_of_none for s in self.sessions)
        return sum(b * s.cost_of_none for b, s in zip(bounds, self.sessions, strict=True)) / total, fmean(bounds)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        results, both = self.oracle(tool_inputs=False), self.oracle(tool_inputs=True)
        return {
            "tokens": self.tokens,
            "cached": self.cached,
            "left_out": [str(path) for path in self.left_out],
            "skipped": [{"path": str(s.path), "why": s.why} for s in self.skipped],
            "policies": [asdict(p) for p in self.policies],
            "oracle": {
                "results": {"relative_cost": results[0], "mean_relative_cost": results[1]},
                "results_and_tool_inputs": {"relative_cost": both[0], "mean_relative_cost": both[1]},
            },
            "sessions": [_session_dict(s) for s in self.sessions],
        }


def _summed(runs: Sequence[PolicyRun], cost_of_none: float) -> PolicyFigures:
    figures = [run.figures for run in runs]
    cost = sum(f.cost for f in figures)
    contexts = [c.context_tokens for f in figures for c in f.calls]
    read, written = sum(f.read_tokens for f in figures), sum(f.written_tokens for f in figures)
    evictions, read_backs = sum(f.evictions for f in figures), sum(f.read_backs for f in figures)
    return PolicyFigures(
        policy=runs[0].policy,
        cost=cost,
        relative_cost=cost / cost_of_none,
        mean_relative_cost=fmean(run.relative_cost for run in runs),
        max_relative_cost=max(run.relative_cost for run in runs),
        peak_tokens=max(contexts),
        mean_tokens=fmean(contexts),
        cache_hit_rate=read / (read + written),
        prefix_breaks=sum(f.prefix_breaks for f in figures),
        evictions=evictions,
        stored_bytes=sum(f.stored_bytes for f in figures),
        read_backs=read_backs,
        read_backs_per_100_evictions=100 * read_backs / evictions if evictions else 0.0,
        read_back_cost=sum(f.read_back_cost for f in figures),
        seconds=sum(run.seconds for run in runs),
    )


def _session_dict(session: SessionReport) -> dict[str, Any]:
    return {
        "session": session.session,
        "calls": session.calls,
        "cost_of_none": session.cost_of_none,
        "oracle_results": session.oracle_results,
        "oracle_results_and_inputs": session.oracle_results_and_inputs,
        "policies": [_run_dict(run) for run in session.runs],
    }


def _run_dict(run: PolicyRun) -> dict[str, Any]:
    f = run.figures
    return {
        "policy": run.policy,
        "cost": f.cost,
        "relative_cost": run.relative_cost,
        "peak_tokens": f.peak_tokens,
        "prefix_breaks": f.prefix_breaks,
        "evictions": f.evictions,
        "stored_bytes": f.stored_bytes,
        "read_backs": f.read_backs,
        "context_tokens": [c.context_tokens for c in f.calls],
        "cost_of_calls": [round(c.cost, 2) for c in f.calls],
    }


def summed(costs: Sequence[Cost]) -> Cost:
    """The costs of several threads as one."""
    totals = {f.name: sum(getattr(cost, f.name) for cost in costs) for f in fields(Cost) if f.name != "calls"}
    return Cost(calls=tuple(call for cost in costs for call in cost.calls), **totals)


def cumulative(calls: Sequence[CallFigures]) -> list[float]:
    """The cost of all calls so far, call by call."""
    total, found = 0.0, []
    for call in calls:
        total += call.cost
        found.append(total)
    return found
