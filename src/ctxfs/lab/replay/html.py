"""The replay's report as one HTML file. Nothing is loaded from elsewhere; its only script sorts tables.

What stands in recordings is not trusted: all of it is escaped, and the page's policy allows the one script, by its
hash, and nothing else.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from ctxfs.lab.replay.answer import LIMITS, Spending, answer, check, could_leave, favourite, spending
from ctxfs.lab.replay.chart import chart, colours
from ctxfs.lab.replay.cost import Cached
from ctxfs.lab.replay.report import PolicyFigures, Report, SessionReport, cumulative
from ctxfs.lab.replay.watched import ToolFigures

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

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2026;--dim:#5c636d;--line:#d9dde3;--page:#fff;--band:#f5f6f8}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--dim:#9aa2ad;--line:#353b44;--page:#15181c;--band:#1d2126}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);margin:2rem auto;max-width:84rem;
padding:0 1rem}
h1{font-size:1.5rem;margin:0 0 .3rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{color:var(--dim);margin:.2rem 0 1rem}
p.answer{color:var(--ink);font-size:1.15rem;font-weight:600}p.limits{border-left:3px solid #c2410c;padding-left:.7rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;white-space:nowrap;
font-size:.84rem}
th,td{padding:.25rem .45rem;text-align:right;border-bottom:1px solid var(--line)}th{color:var(--dim);font-weight:500;
cursor:pointer}th[aria-sort=ascending]::after{content:" ↑"}th[aria-sort=descending]::after{content:" ↓"}
td:not([data-v]){text-align:left}th:first-child,td:first-child{text-align:left;max-width:34rem;overflow:hidden;
text-overflow:ellipsis}
tr.best td{font-weight:600;background:var(--band)}
.bar{display:inline-block;height:.6rem;border-radius:2px;vertical-align:middle;margin-left:.5rem}
details{border-top:1px solid var(--line);padding:.4rem 0}summary{cursor:pointer;overflow-wrap:anywhere}
summary span{color:var(--dim)}
.charts{display:flex;flex-wrap:wrap;gap:1rem}figure{margin:.5rem 0;flex:1 1 26rem}
figcaption{color:var(--dim);font-size:.85rem}svg{width:100%;height:auto}svg text{fill:var(--dim);font-size:11px}
svg .grid{stroke:var(--line)}svg .limit{stroke:#c2410c;stroke-dasharray:4 3}
svg polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.85rem}.legend i{display:inline-block;width:.9rem;
height:.25rem;border-radius:2px;margin-right:.4rem;vertical-align:middle}
"""

_SCRIPT = """
"use strict";
for (const head of document.querySelectorAll("th")) {
  head.tabIndex = 0;
  const sort = () => {
    const body = head.closest("table").tBodies[0], column = head.cellIndex;
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => {
      const cell = row.cells[column];
      return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
    };
    const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const rows = [...body.rows].sort((a, b) => order(value(a), value(b)));
    body.append(...(down ? rows.reverse() : rows));
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
}
"""
_HASH = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'"
)
_HEAD = (
    f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
    f'content="{escape(_POLICY)}"><meta name="viewport" content="width=device-width">'
    f"<title>Replay</title><style>{_STYLE}</style></head>"
)

_Cell = tuple[str, float | None]
"""What a cell shows, as HTML, and the number that it is sorted by; None: by what it shows."""


def render_html(report: Report) -> str:
    """The report as a page of its own, in light and dark: the answer, money, policies, tools, and each session."""
    kinds, projects = spending(report)
    place = favourite(report)
    name = report.sessions[0].runs[place].policy
    body = [
        "<h1>Replay of recorded sessions</h1>",
        f'<p class="answer">{escape(answer(report))}</p>',
        f"<p>{escape(could_leave(report))}</p>",
        f"<p>{_scope(report)} {escape(check(report))}</p>",
        f'<p class="limits">{escape(LIMITS)}</p>',
        _spending("agent", kinds, name),
        _spending("project", projects, name),
        f"<h2>Policies</h2><p>{_LEGEND}</p>{_policies(report)}",
        _tools(report, place, name),
        f"<h2>Sessions</h2>{_sessions(report, place, name)}",
        _legend([p.policy for p in report.policies]),
        *(_charts(s, is_open=number == 0) for number, s in enumerate(_dearest_first(report.sessions)[:_CHARTS])),
    ]
    return f"{_HEAD}<body>{''.join(body)}<script>{_SCRIPT}</script></body></html>\n"


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
    rows = [(_policy(p, colour, perfect), p.relative_cost == cheapest) for p, colour in coloured]
    for label, tool_inputs in (("bound: results", False), ("bound: results and tool inputs", True)):
        total, mean = report.oracle(tool_inputs=tool_inputs)
        cells: list[_Cell] = [(label, None), _number(total, ".3f"), _number(mean, ".3f")]
        rows.append(([*cells, *([("", -1.0)] * (len(columns) - len(cells)))], False))
    return _table(columns, rows)


def _policy(p: PolicyFigures, colour: str, perfect: float) -> list[_Cell]:
    bar = f'<span class="bar" style="width:{min(p.relative_cost, 2) * 50:.0f}px;background:{colour}"></span>'
    return [
        (escape(p.policy) + bar, None),
        _number(p.relative_cost, ".3f"),
        _number(p.mean_relative_cost, ".3f"),
        _number(p.max_relative_cost, ".3f"),
        _number(p.cost_without_misses / perfect if perfect else p.relative_cost, ".3f"),
        _number(p.read_tokens, ",d"),
        _number(p.written_tokens, ",d"),
        _number(p.output_tokens, ",d"),
        _usd(p.usd),
        _number(p.peak_tokens, ",d"),
        _number(p.mean_tokens, ",.0f"),
        _number(p.prefix_breaks, ",d"),
        _number(p.evictions, ",d"),
        _number(p.read_backs, ",d"),
        _number(p.read_backs_per_100_evictions, ".1f"),
        (f"{p.stored_bytes / 1e6:,.1f} MB", float(p.stored_bytes)),
    ]


def _spending(what: str, groups: Sequence[Spending], name: str) -> str:
    if not groups:
        return ""
    rows = [
        (
            [(escape(g.name), None), _number(g.sessions, ",d"), _usd(g.usd), _usd(g.usd_with), (g.saved, _share(g))],
            False,
        )
        for g in groups
    ]
    table = _table((what, "sessions", "cost", f"with {name}", "difference"), rows)
    return f"<h2>By {what}</h2>{table}"


def _share(spent: Spending) -> float:
    return (spent.usd_with or 0.0) / spent.usd if spent.usd else 1.0


def _tools(report: Report, place: int, name: str) -> str:
    """What left, tool by tool, under the policy that the answer is about."""
    found: dict[str, list[ToolFigures]] = {}
    for session in report.sessions:
        for figures in session.runs[place].tools:
            found.setdefault(figures.tool, []).append(figures)
    rows = [
        (
            [
                (escape(tool), None),
                _number(sum(f.evictions for f in figures), ",d"),
                _number(sum(f.tokens for f in figures), ",d"),
                _number(sum(f.read_backs for f in figures), ",d"),
            ],
            False,
        )
        for tool, figures in found.items()
    ]
    rows.sort(key=lambda row: -(row[0][2][1] or 0))
    table = _table(("tool", "left", "tokens freed", "read back"), rows)
    return f"<h2>What left with {escape(name)}</h2>{table}" if rows else ""


def _sessions(report: Report, place: int, name: str) -> str:
    columns = ("session", "project", "model", "calls", "cost", f"with {name}", *(p.policy for p in report.policies))
    rows = []
    for s in _dearest_first(report.sessions):
        cells: list[_Cell] = [(escape(text), None) for text in (s.session, s.project, s.model)]
        cells += [_number(s.calls, ",d"), _usd(s.usd), _usd(s.usd_with(s.runs[place]))]
        rows.append(([*cells, *(_number(run.relative_cost, ".2f") for run in s.runs)], False))
    return _table(columns, rows)


def _table(columns: Iterable[str], rows: Iterable[tuple[Sequence[_Cell], bool]]) -> str:
    """A table that sorts; True beside a row marks it."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr{' class=best' if best else ''}>{''.join(map(_cell, cells))}</tr>" for cells, best in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(cell: _Cell) -> str:
    shown, value = cell
    return f"<td>{shown}</td>" if value is None else f'<td data-v="{value:.9g}">{shown}</td>'


def _number(value: float, form: str) -> _Cell:
    return format(value, form), float(value)


def _usd(usd: float | None) -> _Cell:
    return ("?", -1.0) if usd is None else (f"${usd:,.2f}" if usd >= 0.1 or not usd else f"${usd:.4f}", usd)


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
