"""The replay's report as one HTML file: no scripts, nothing loaded from elsewhere."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Final

from ctxfs.replay.cost import Cached
from ctxfs.replay.report import PolicyFigures, PolicyRun, Report, SessionReport, cumulative

__all__ = ["render_html"]

_COLOURS: Final = ("#7a7f87", "#c2410c", "#a16207", "#4d7c0f", "#0e7490", "#7c3aed", "#1d4ed8", "#be185d")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 520, 240, 62, 30, 12
_POINTS = 160
_LEGEND: Final = (
    "Costs are relative to never evicting, net of read-backs; <i>mean</i> and <i>worst</i> are over sessions, "
    "<i>per 100</i> is read-backs per 100 evictions."
)
_CACHED: Final[dict[Cached, str]] = {
    "prefix": "any unchanged prefix read from the cache",
    "ends": "a prefix read from the cache where an earlier request or reply ended",
}

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2026;--dim:#5c636d;--line:#d9dde3;--page:#fff;--band:#f5f6f8}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--dim:#9aa2ad;--line:#353b44;--page:#15181c;--band:#1d2126}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);margin:2rem auto;max-width:84rem;
padding:0 1rem}
h1{font-size:1.5rem;margin:0 0 .3rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{color:var(--dim);margin:.2rem 0 1rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;white-space:nowrap;font-size:.84rem}
th,td{padding:.25rem .45rem;text-align:right;border-bottom:1px solid var(--line)}th{color:var(--dim);font-weight:500}
th:first-child,td:first-child,td:nth-child(2){text-align:left}tr.best td{font-weight:600;background:var(--band)}
.bar{display:inline-block;height:.6rem;border-radius:2px;vertical-align:middle}
details{border-top:1px solid var(--line);padding:.4rem 0}summary{cursor:pointer}summary span{color:var(--dim)}
.charts{display:flex;flex-wrap:wrap;gap:1rem}figure{margin:.5rem 0;flex:1 1 26rem}
figcaption{color:var(--dim);font-size:.85rem}svg{width:100%;height:auto}svg text{fill:var(--dim);font-size:11px}
svg .grid{stroke:var(--line)}svg polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.85rem}.legend i{display:inline-block;width:.9rem;
height:.25rem;border-radius:2px;margin-right:.4rem;vertical-align:middle}
"""

_HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    f"<title>Replay</title><style>{_STYLE}</style></head>"
)


def render_html(report: Report) -> str:
    """The report as a page of its own, in light and dark, with a chart of context and cost for every session."""
    names = [p.policy for p in report.policies]
    body = [
        "<h1>Replay of recorded sessions</h1>",
        f"<p>{_scope(report)} {_LEGEND}</p>",
        _policy_table(report),
        "<h2>Sessions</h2>",
        _legend(names),
        *(_session(s, is_open=number == 0) for number, s in enumerate(_dearest_first(report.sessions))),
    ]
    return f"{_HEAD}<body>{''.join(body)}</body></html>\n"


def _scope(report: Report) -> str:
    calls = sum(s.calls for s in report.sessions)
    left_out = f" Left out, without a reply: {len(report.left_out)}." if report.left_out else ""
    counted = f"tokens counted with {escape(report.tokens)}, {_CACHED[report.cached]}"
    return f"{len(report.sessions)} sessions, {calls:,} calls, {counted}.{left_out}"


def _dearest_first(sessions: Sequence[SessionReport]) -> list[SessionReport]:
    return sorted(sessions, key=lambda s: -s.cost_of_none)


def _policy_table(report: Report) -> str:
    cheapest = min(p.relative_cost for p in report.policies)
    columns = (
        "cost", "mean", "worst", "peak context", "mean context", "cache hits", "prefix breaks", "evictions",
        "read-backs", "per 100", "stored",
    )  # fmt: skip
    rows = [_policy_row(p, colour, best=p.relative_cost == cheapest) for p, colour in _coloured(report.policies)]
    for label, tool_inputs in (("bound: results", False), ("bound: results and tool inputs", True)):
        total, mean = report.oracle(tool_inputs=tool_inputs)
        cells = (label, "", f"{total:.3f}", f"{mean:.3f}", *("" for _ in columns[2:]))
        rows.append(f"<tr>{''.join(f'<td>{c}</td>' for c in cells)}</tr>")
    head = "".join(f"<th>{c}</th>" for c in ("policy", "", *columns))
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _coloured(policies: Sequence[PolicyFigures]) -> list[tuple[PolicyFigures, str]]:
    return [(p, _COLOURS[i % len(_COLOURS)]) for i, p in enumerate(policies)]


def _policy_row(p: PolicyFigures, colour: str, *, best: bool) -> str:
    bar = f'<span class="bar" style="width:{min(p.relative_cost, 2) * 50:.0f}px;background:{colour}"></span>'
    cells = (
        f"{p.relative_cost:.3f}", f"{p.mean_relative_cost:.3f}", f"{p.max_relative_cost:.3f}",
        f"{p.peak_tokens:,}", f"{p.mean_tokens:,.0f}", f"{p.cache_hit_rate:.1%}", f"{p.prefix_breaks:,}",
        f"{p.evictions:,}", f"{p.read_backs:,}", f"{p.read_backs_per_100_evictions:.1f}",
        f"{p.stored_bytes / 1e6:,.1f} MB",
    )  # fmt: skip
    row = "".join(f"<td>{c}</td>" for c in (escape(p.policy), bar, *cells))
    return f'<tr class="best">{row}</tr>' if best else f"<tr>{row}</tr>"


def _legend(names: Sequence[str]) -> str:
    keys = (
        f'<span><i style="background:{_COLOURS[i % len(_COLOURS)]}"></i>{escape(name)}</span>'
        for i, name in enumerate(names)
    )
    return f'<div class="legend">{"".join(keys)}</div>'


def _session(session: SessionReport, *, is_open: bool) -> str:
    costs = ", ".join(f"{escape(r.policy)} {r.relative_cost:.2f}" for r in session.runs if r.policy != "none")
    contexts = [[float(c.context_tokens) for c in r.figures.calls] for r in session.runs]
    bills = [cumulative(r.figures.calls) for r in session.runs]
    return (
        f"<details{' open' if is_open else ''}><summary>{escape(session.session)} <span>{session.calls} calls: "
        f'{costs}</span></summary><div class="charts">{_chart("context, tokens per call", contexts, session.runs)}'
        f"{_chart('cost so far, in input tokens', bills, session.runs)}</div></details>"
    )


def _chart(caption: str, series: Sequence[Sequence[float]], runs: Sequence[PolicyRun]) -> str:
    """Lines over calls, from zero, with a grid of round numbers."""
    calls = max(len(line) for line in series)
    step = _round_step(max(max(line) for line in series))
    top = step * -(-max(max(line) for line in series) // step)
    x_scale = (_WIDTH - _LEFT - 8) / max(1, calls - 1)
    y_scale = (_HEIGHT - _BOTTOM - _TOP) / top
    floor = _HEIGHT - _BOTTOM
    parts = []
    for n in range(round(top / step) + 1):
        y = floor - n * step * y_scale
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(n * step)}</text>')
    for line, run, colour in zip(series, runs, _cycle(len(runs)), strict=True):
        points = " ".join(f"{_LEFT + i * x_scale:.1f},{floor - v * y_scale:.1f}" for i, v in _thinned(line))
        title = f"<title>{escape(run.policy)}</title>"
        parts.append(f'<polyline points="{points}" stroke="{colour}">{title}</polyline>')
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 8}">call 1</text>')
    parts.append(f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 8}" text-anchor="end">call {calls}</text>')
    label = f'role="img" aria-label="{escape(caption)}"'
    svg = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" {label}>{"".join(parts)}</svg>'
    return f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"


def _cycle(number: int) -> list[str]:
    return [_COLOURS[i % len(_COLOURS)] for i in range(number)]


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


def _short(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    return f"{value / 1_000:g}k" if value >= 1_000 else f"{value:g}"
