"""The replay's report as one HTML file. What stands in recordings is not trusted: all of it is escaped."""

from collections.abc import Sequence
from html import escape
from typing import Final

from ctxfs.lab.page import Cell, dollars, number, page, table
from ctxfs.lab.replay.answer import LIMITS, Spending, answer, called, cheaper, check, could_leave, favourite, spending
from ctxfs.lab.replay.chart import chart, colours
from ctxfs.lab.replay.cost import Cached
from ctxfs.lab.replay.report import PolicyFigures, Report, SessionReport, cumulative
from ctxfs.lab.replay.watched import ToolFigures
from ctxfs.text import figures

_LEGEND: Final = (
    "Costs are relative to never evicting, net of read-backs, without output; <i>mean</i> and <i>worst</i> are over "
    "sessions, <i>per 100</i> is read-backs per 100 evictions. A head sorts its column."
)
_CACHED: Final[dict[Cached, str]] = {
    "prefix": "any unchanged prefix read from the cache",
    "ends": "a prefix read from the cache where an earlier request ended",
    "tail": "a prefix read from the cache where an earlier request ended, a few blocks before the last one's end",
}
_CHARTS = 30
"""So many sessions, the dearest, have charts."""


def render_html(report: Report) -> str:
    """The report as a page of its own, in light and dark: the answer, money, policies, tools, and each session."""
    kinds, projects = spending(report)
    place = favourite(report)
    name = called(report.sessions[0].runs[place].policy)
    body = [
        "<h1>Replay of recorded sessions</h1>",
        f'<p class="answer">{escape(answer(report))}</p>',
        f"<p>{escape(could_leave(report))}</p>",
        f"<p>{_scope(report)} {escape(check(report))}</p>",
        f'<p class="limits">{escape(LIMITS)}</p>',
        _spending("agent", kinds, name),
        _spending("project", projects, name),
        f"<h2>Policies</h2><p>{_LEGEND}</p>{_policies(report)}",
        *(f"<p>{escape(why)}</p>" for why in cheaper(report)),
        _tools(report, place, name),
        f"<h2>Sessions</h2>{_sessions(report, place, name)}",
        _legend([p.policy for p in report.policies]),
        *(_charts(s, is_open=number == 0) for number, s in enumerate(_dearest_first(report.sessions)[:_CHARTS])),
    ]
    return page("Replay", body)


def _scope(report: Report) -> str:
    calls = sum(s.calls for s in report.sessions)
    left_out = f" Left out, without a reply: {len(report.left_out)}." if report.left_out else ""
    left_out += f" Skipped, since they cannot be read: {len(report.skipped)}." if report.skipped else ""
    counted = f"tokens counted with {escape(report.tokens)}, {_CACHED.get(report.cached, escape(report.cached))}"
    return f"{len(report.sessions)} sessions, {calls:,} calls, {counted}.{left_out}"


def _dearest_first(sessions: Sequence[SessionReport]) -> list[SessionReport]:
    return sorted(sessions, key=lambda s: (-(s.usd or 0), -s.cost_of_none))


def _policies(report: Report) -> str:
    columns = (
        "policy", "cost", "mean", "worst", "without misses", "read", "missed", "output", "$", "peak context",
        "mean context", "breaks", "evictions", "read-backs", "per 100", "stored",
    )  # fmt: skip
    cheapest = min(p.relative_cost for p in report.policies)
    perfect = sum(s.cost_of_none - s.missed_cost_of_none for s in report.sessions)
    coloured = zip(report.policies, colours(len(report.policies)), strict=True)
    rows = []
    for place, (p, colour) in enumerate(coloured):
        usd = Spending("", report.sessions, place).usd_with
        rows.append((_policy(p, colour, perfect, usd), p.relative_cost == cheapest))
    for label, tool_inputs in (("bound: results", False), ("bound: results and tool inputs", True)):
        total, mean = report.oracle(tool_inputs=tool_inputs)
        cells: list[Cell] = [(label, None), number(total, ".3f"), number(mean, ".3f")]
        rows.append(([*cells, *([("", -1.0)] * (len(columns) - len(cells)))], False))
    return table(columns, rows)


def _policy(p: PolicyFigures, colour: str, perfect: float, usd: float | None) -> list[Cell]:
    bar = f'<span class="bar" style="width:{min(p.relative_cost, 2) * 50:.0f}px;background:{colour}"></span>'
    return [
        (escape(p.policy) + bar, None),
        number(p.relative_cost, ".3f"),
        number(p.mean_relative_cost, ".3f"),
        number(p.max_relative_cost, ".3f"),
        number(p.cost_without_misses / perfect if perfect else p.relative_cost, ".3f"),
        number(p.read_tokens, ",d"),
        number(p.written_tokens, ",d"),
        number(p.output_tokens, ",d"),
        dollars(usd),
        number(p.peak_tokens, ",d"),
        number(p.mean_tokens, ",.0f"),
        number(p.prefix_breaks, ",d"),
        number(p.evictions, ",d"),
        number(p.read_backs, ",d"),
        number(p.read_backs_per_100_evictions, ".1f"),
        (figures.size(p.stored_bytes), float(p.stored_bytes)),
    ]


def _spending(what: str, groups: Sequence[Spending], name: str) -> str:
    if not groups:
        return ""
    rows = [
        (
            [
                (escape(g.name), None),
                number(g.sessions, ",d"),
                dollars(g.usd),
                dollars(g.usd_with),
                (g.saved, _share(g)),
            ],
            False,
        )
        for g in groups
    ]
    shown = table((what, "sessions", "cost", f"with {name}", "difference"), rows)
    return f"<h2>By {what}</h2>{shown}"


def _share(spent: Spending) -> float:
    return (spent.usd_with or 0.0) / spent.usd if spent.usd else 1.0


def _tools(report: Report, place: int, name: str) -> str:
    """What left, tool by tool, under the policy that the answer is about."""
    found: dict[str, list[ToolFigures]] = {}
    for session in report.sessions:
        for one in session.runs[place].tools:
            found.setdefault(one.tool, []).append(one)
    rows = [
        (
            [
                (escape(tool), None),
                number(sum(f.evictions for f in every), ",d"),
                number(sum(f.tokens for f in every), ",d"),
                number(sum(f.read_backs for f in every), ",d"),
            ],
            False,
        )
        for tool, every in found.items()
    ]
    rows.sort(key=lambda row: -(row[0][2][1] or 0))
    shown = table(("tool", "left", "tokens freed", "read back"), rows)
    return f"<h2>What left with {escape(name)}</h2>{shown}" if rows else ""


def _sessions(report: Report, place: int, name: str) -> str:
    columns = ("session", "project", "model", "calls", "cost", f"with {name}", *(p.policy for p in report.policies))
    rows = []
    for s in _dearest_first(report.sessions):
        cells: list[Cell] = [(escape(text), None) for text in (s.session, s.project, s.model)]
        cells += [number(s.calls, ",d"), dollars(s.usd), dollars(s.usd_with(s.runs[place]))]
        rows.append(([*cells, *(number(run.relative_cost, ".2f") for run in s.runs)], False))
    return table(columns, rows)


def _legend(names: Sequence[str]) -> str:
    keys = (
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in zip(names, colours(len(names)), strict=True)
    )
    return f'<div class="legend">{"".join(keys)}</div>'


def _charts(session: SessionReport, *, is_open: bool) -> str:
    contexts = [(r.policy, [float(c.context_tokens) for c in r.figures.calls]) for r in session.runs]
    bills = [(r.policy, cumulative(r.figures.calls)) for r in session.runs]
    shown = chart("context, tokens per call", contexts, limit=session.compacts_at)
    return (
        f"<details{' open' if is_open else ''}><summary>{escape(session.session)} <span>{session.calls:,} calls"
        f'</span></summary><div class="charts">{shown}{chart("cost so far, in input tokens", bills)}</div></details>'
    )
