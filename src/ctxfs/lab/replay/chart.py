"""Lines over the calls of a session, as SVG."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Final

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
