"""A page of the lab: its look, and tables that sort. Nothing is loaded from elsewhere; its only script sorts tables.

What stands in recordings and results is not trusted: whoever makes a page escapes it, and the page's policy allows the
one script, by its hash, and nothing else.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape

from ctxfs.text import figures

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
td .words{display:block;white-space:normal;min-width:24rem;max-width:34rem}
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
    "<title>"
)

Cell = tuple[str, float | None]
"""What a cell shows, as HTML, and the number that it is sorted by; None: by what it shows."""


def page(title: str, body: Iterable[str]) -> str:
    """A whole page, in light and dark; ``body`` is HTML."""
    head = f"{_HEAD}{escape(title)}</title><style>{_STYLE}</style></head>"
    return f"{head}<body><main>{''.join(body)}</main><script>{_SCRIPT}</script></body></html>\n"


def table(columns: Iterable[str], rows: Iterable[tuple[Sequence[Cell], bool]]) -> str:
    """A table that sorts; True beside a row marks it."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr{' class=best' if best else ''}>{''.join(map(_cell, cells))}</tr>" for cells, best in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(cell: Cell) -> str:
    shown, value = cell
    return f"<td>{shown}</td>" if value is None else f'<td data-v="{value:.9g}">{shown}</td>'


def number(value: float, form: str) -> Cell:
    """A cell with a number, as ``form`` writes it."""
    return format(value, form), float(value)


def dollars(usd: float | None) -> Cell:
    """A cell with dollars; None: not known."""
    return figures.usd(usd), -1.0 if usd is None else usd
