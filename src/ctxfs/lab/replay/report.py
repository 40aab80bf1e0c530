"""What a replay found, as values and as JSON.

Of a recording's bill it says which part could leave the context at all; of a policy, what it evicted, when and why.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Any

from ctxfs.lab.recordings.recording import Kind
from ctxfs.lab.replay.cost import Cached, CallFigures, Cost, Policy, Replacement, Run
from ctxfs.lab.replay.prediction import Prediction
from ctxfs.lab.replay.session import Item, Session
from ctxfs.lab.replay.tariff import BilledCall
from ctxfs.messages.base import Usage
from ctxfs.messages.rates import Rates


class Share(StrEnum):
    """A part of the bill, as reports call it."""

    FIRST_PROMPT = "first prompts"
    RESULTS = "tool results"
    INPUTS = "arguments of calls"
    THINKING = "thinking"
    TEXT = "text"
    UNRECORDED = "not recorded"
    OUTPUT = "output"


CAN_LEAVE = (Share.RESULTS, Share.INPUTS)
"""What ctxfs evicts by price. A first prompt holds the system prompt, the tools and the instructions."""

_KINDS = {
    Kind.TOOL_RESULT: Share.RESULTS,
    Kind.TOOL_INPUT: Share.INPUTS,
    Kind.THINKING: Share.THINKING,
    Kind.TEXT: Share.TEXT,
}


def composition(session: Session, rates: Rates, output_tokens: int) -> dict[Share, float]:
    """What a thread costs if nothing is ever evicted, by part, in uncached input tokens.

    Each request writes what is new in it, and reads the rest as far as the cache still held it; what was lost is
    written again, spread evenly over all parts. ``output_tokens``: what the model wrote.
    """
    held: Counter[Share] = Counter()
    cost = dict.fromkeys(Share, 0.0)
    cost[Share.OUTPUT] = rates.output * output_tokens
    for number, turn in enumerate(session.turns):
        added = Counter[Share]()
        for place, item in enumerate(turn.added):
            share = Share.FIRST_PROMPT if number == 0 else _share(item)
            if number == 0 and place < session.warm_items:
                held[share] += item.tokens
            else:
                added[share] += item.tokens
        if number:
            for item in session.turns[number - 1].reply:
                added[_share(item)] += item.tokens
        paid = rates.at(held.total() + added.total())
        for share, tokens in held.items():
            cost[share] += tokens * (paid.read * turn.kept + paid.write * (1 - turn.kept))
        for share, tokens in added.items():
            cost[share] += tokens * paid.write
        held += added
    return cost


def _share(item: Item) -> Share:
    """What calibration adds for a bill that the recording does not explain has an index below 0."""
    return Share.UNRECORDED if item.index < 0 else _KINDS[item.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFigures:
    """The evictions of one tool: how many, the tokens that they freed, and how often something was read back."""

    tool: str
    evictions: int
    tokens: int
    read_backs: int


@dataclass(slots=True, kw_only=True)
class Eviction:
    """One evicted item: before which call, its tokens before and after, and how often it was read back."""

    item: Item
    call: int
    tokens: int
    why: str = ""
    read_backs: int = 0


class Watched:
    """A policy that does what ``policy`` does; ``evictions`` are its evictions in the session started last."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.evictions: dict[int, Eviction] = {}

    @property
    def name(self) -> str:
        """The policy's own name."""
        return self._policy.name

    def start(self, session: Session) -> Run:
        """Begin with a session."""
        self.evictions = {}
        return _WatchedRun(self._policy.start(session), self.evictions)


class _WatchedRun:
    def __init__(self, run: Run, evictions: dict[int, Eviction]) -> None:
        self._run, self._evictions = run, evictions
        self._items: dict[int, Item] = {}
        self._call = 0

    def plan(self, added: Sequence[Item], *at: float) -> Sequence[Replacement]:
        self._call += 1
        self._items |= {item.index: item for item in added}
        planned = self._run.plan(added, *at)
        for r in planned:
            found = self._evictions.get(r.index)
            if found is None:
                item = self._items[r.index]
                self._evictions[r.index] = Eviction(item=item, call=self._call, tokens=r.tokens, why=r.why)
            else:
                found.tokens = r.tokens
        return planned

    def replied(self, reply: Sequence[Item], billed: Usage) -> None:
        self._items |= {item.index: item for item in reply}
        self._run.replied(reply, billed)

    def read_back(self, index: int, call: Item, page: Item, billed: Usage) -> None:
        self._items |= {call.index: call, page.index: page}
        if index in self._evictions:
            self._evictions[index].read_backs += 1
        self._run.read_back(index, call, page, billed)


def by_tool(evictions: Sequence[Eviction]) -> tuple[ToolFigures, ...]:
    """Sum up the evictions of each tool; the tool whose evictions freed most tokens comes first."""
    tools: dict[str, list[Eviction]] = {}
    for eviction in evictions:
        tools.setdefault(eviction.item.tool or eviction.item.kind.value, []).append(eviction)
    figures = (
        ToolFigures(
            tool=tool,
            evictions=len(found),
            tokens=sum(e.item.tokens - e.tokens for e in found),
            read_backs=sum(e.read_backs for e in found),
        )
        for tool, found in tools.items()
    )
    return tuple(sorted(figures, key=lambda f: -f.tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRun:
    """One policy on one session.

    ``relative_cost``: to never evicting. ``output_tokens``: what the model wrote, read-backs included. ``usd``: the
    whole cost; None: the prices of a model are not known. ``tools``: the evictions, by tool. ``seconds``: the duration
    of the replay itself.
    """

    policy: str
    figures: Cost
    relative_cost: float
    output_tokens: int = 0
    usd: float | None = None
    tools: tuple[ToolFigures, ...] = ()
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """One session under all policies.

    Args:
        session: the name of the recording.
        path: its file; None: none was read.
        project: the directory that the agent worked in; empty: not recorded.
        agent: the agent or program that wrote the file; empty: its format does not say.
        model: the model that replied most often; empty: not recorded.
        compacts_at: the tokens at which an agent with this model compacts.
        calls: how often a model replied.
        bill: what each call was billed; a call that another file has too is in the first one only.
        repeated_calls: how many others are in the bill of another session, which begins like this one.
        is_repriced: prices were asked for, so that dollars are not what was billed.
        recorded: the replay of what the recorded agent did itself, to be compared with the bill.
        cost_of_none: what never evicting costs; ``missed_cost_of_none`` of it since the cache lost what it held.
        composition: what never evicting costs by part, with output, in uncached input tokens.
        prediction: how large each prompt was, predicted from the calls before it.
        oracle_results: what it costs relative to that if results vanished after their last use.
        oracle_results_and_inputs: the same if the arguments of calls did so too.
        runs: the policies, in the order in which they were asked for.
    """

    session: str
    path: Path | None = None
    project: str = ""
    agent: str = ""
    model: str = ""
    compacts_at: int = 0
    calls: int
    bill: tuple[BilledCall, ...] = ()
    repeated_calls: int = 0
    is_repriced: bool = False
    recorded: PolicyRun
    cost_of_none: float
    missed_cost_of_none: float = 0.0
    composition: Mapping[Share, float] = field(default_factory=dict)
    prediction: Prediction = field(default_factory=Prediction)
    oracle_results: float
    oracle_results_and_inputs: float
    runs: tuple[PolicyRun, ...]

    @property
    def paid_usd(self) -> float | None:
        """What was billed; None: nothing is known of it, or a price of it."""
        known = [call.usd for call in self.bill if call.usd is not None]
        return sum(known) if self.is_billed and len(known) == len(self.bill) else None

    @property
    def is_billed(self) -> bool:
        """Whether it was recorded what calls were billed."""
        return bool(self.bill) or self.repeated_calls > 0

    def usd_with(self, run: PolicyRun) -> float | None:
        """What the bill would have been with ``run``; without a bill, what the replay costs. None: not known.

        The replay's figures count as shares of the replay of what was recorded, so that what it counts wrong in both
        does not matter.
        """
        if run.usd is None or not self.recorded.usd:
            return None
        return self.usd * run.usd / self.recorded.usd if self.usd is not None else None

    @property
    def usd(self) -> float | None:
        """What was billed; without a bill, what the replay of the recording costs. None: not known."""
        return self.paid_usd if self.is_billed and not self.is_repriced else self.recorded.usd


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """One policy over all sessions. Costs are in uncached input tokens, ``relative`` ones against never evicting.

    ``hidden_use_share``: of the later uses of what results and arguments brought in, those that were visible nowhere.
    """

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
    hidden_use_share: float
    read_tokens: int
    written_tokens: int
    output_tokens: int
    missed_tokens: int
    cost_without_misses: float
    usd: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that is not a recording, or is damaged; ``why`` names it."""

    path: Path
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All sessions under all policies; ``tokens`` names the counter, ``cached`` what the cache gives back.

    ``is_repriced``: prices were asked for, so that dollars are not what was billed. ``left_out``: files without a reply
    of a model. ``skipped``: files that cannot be read.
    """

    tokens: str
    cached: Cached = "prefix"
    sessions: tuple[SessionReport, ...]
    is_repriced: bool = False
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
        hidden_use_share=sum(f.hidden_uses for f in figures) / max(1, sum(f.later_uses for f in figures)),
        read_tokens=read,
        written_tokens=written,
        output_tokens=sum(run.output_tokens for run in runs),
        missed_tokens=sum(f.missed_tokens for f in figures),
        cost_without_misses=cost - sum(f.missed_cost for f in figures),
        usd=total_usd([run.usd for run in runs]),
        seconds=sum(run.seconds for run in runs),
    )


def _session_dict(session: SessionReport) -> dict[str, Any]:
    return {
        "session": session.session,
        "path": str(session.path) if session.path is not None else None,
        "project": session.project,
        "agent": session.agent,
        "model": session.model,
        "paid_usd": session.paid_usd,
        "recorded_usd": session.recorded.usd,
        "calls": session.calls,
        "cost_of_none": session.cost_of_none,
        "composition": {share.value: cost for share, cost in session.composition.items()},
        "prediction": asdict(session.prediction),
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
        "usd": run.usd,
        "read_tokens": f.read_tokens,
        "written_tokens": f.written_tokens,
        "output_tokens": run.output_tokens,
        "missed_tokens": f.missed_tokens,
        "missed_cost": f.missed_cost,
        "tools": [asdict(tool) for tool in run.tools],
        "peak_tokens": f.peak_tokens,
        "prefix_breaks": f.prefix_breaks,
        "evictions": f.evictions,
        "stored_bytes": f.stored_bytes,
        "read_backs": f.read_backs,
        "later_uses": f.later_uses,
        "hidden_uses": f.hidden_uses,
        "context_tokens": [c.context_tokens for c in f.calls],
        "cost_of_calls": [round(c.cost, 2) for c in f.calls],
    }


def total_usd(amounts: Iterable[float | None]) -> float | None:
    """The sum of what is known; None: nothing is."""
    known = [usd for usd in amounts if usd is not None]
    return sum(known) if known else None


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
