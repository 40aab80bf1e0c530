"""The replay's report as one HTML file, with charts. What stands in recordings is not trusted: all of it is escaped."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Final

from ctxfs.lab.page import Cell, dollars, number, page, table
from ctxfs.lab.replay.answer import LIMITS, Spending, answer, called, cheaper, check, could_leave, favourite, spending
from ctxfs.lab.replay.cost import Cached
from ctxfs.lab.replay.report import PolicyFigures, Report, SessionReport, ToolFigures, cumulative
from ctxfs.text import figures

_COLOURS: Final = ("#7a7f87", "#c2410c", "#a16207", "#4d7c0f", "#0e7490", "#7c3aed", "#1d4ed8", "#be185d")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 520, 240, 62, 30, 12
_POINTS = 160


def colours(number: int) -> list[str]:
    """A colour for each line; they come again when there are many."""
    return [_COLOURS[i % len(_COLOURS)] for i in range(number)]


def chart(caption: str, lines: Sequence[tuple[str, Sequence[float]]], *, limit: float = 0) -> str:
    """Named lines over calls, from zero, with a grid of round numbers.

    ``limit``: a height that is drawn as a line of its own, where it is not far above the rest; 0: none.
    """
    calls = max(len(line) for _, line in lines)
    highest = max(1.0, *(max(line) for _, line in lines))
    is_near = 0 < limit <= 2 * highest
    highest = max(highest, limit) if is_near else highest
    step = _round_step(highest)
    top = step * -(-highest // step)
    x_scale = (_WIDTH - _LEFT - 8) / max(1, calls - 1)
    y_scale = (_HEIGHT - _BOTTOM - _TOP) / top
    floor = _HEIGHT - _BOTTOM
    parts = []
    for n in range(round(top / step) + 1):
        y = floor - n * step * y_scale
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{figures.short_count(n * step)}</text>')
    if is_near:
        y = floor - limit * y_scale
        parts.append(f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_WIDTH - 10}" y="{y - 4:.1f}" text-anchor="end">an agent compacts here</text>')
    for (name, line), colour in zip(lines, colours(len(lines)), strict=True):
        points = " ".join(f"{_LEFT + i * x_scale:.1f},{floor - v * y_scale:.1f}" for i, v in _thinned(line))
        parts.append(f'<polyline points="{points}" stroke="{colour}"><title>{escape(name)}</title></polyline>')
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 8}">call 1</text>')
    parts.append(f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 8}" text-anchor="end">call {calls}</text>')
    label = f'role="img" aria-label="{escape(caption)}"'
    svg = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" {label}>{"".join(parts)}</svg>'
    return f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"


def _thinned(line: Sequence[float]) -> list[tuple[int, float]]:
    """At most so many points that a chart can show, the largest of each stretch, so that no peak is lost."""
    if len(line) <= _POINTS:
        return list(enumerate(line))
    edges = [round(i * len(line) / _POINTS) for i in range(_POINTS + 1)]
    stretches = [range(a, b) for a, b in pairwise(edges)]
    chosen = [max(s, key=lambda i: line[i]) for s in stretches]
    return [(i, line[i]) for i in dict.fromkeys((0, *chosen, len(line) - 1))]


def _round_step(largest: float) -> float:
    """A round number of which four to eight fill the chart."""
    step = 1.0
    while largest / step > 8:
        for factor in (2.0, 2.5, 2.0):
            step *= factor
            if largest / step <= 8:
                break
    return step


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
