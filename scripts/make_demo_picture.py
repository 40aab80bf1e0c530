"""Record ``ctxfs demo`` as docs/images/demo.svg, a picture that moves: its lines come one after the other.

    python scripts/make_demo_picture.py

It has no script and loads nothing: its styles move it, wherever a picture may. Who asks for less motion sees the end.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from terminal import on_a_terminal

OUT = Path(__file__).resolve().parent.parent / "docs" / "images" / "demo.svg"
COLUMNS = 80
ROWS = 22
"""As many lines are seen at once; the rest has scrolled away."""

LINE_S = 0.25
FIRST_S = 0.6
CHAR_PX = 8.43
LINE_PX = 18
MARGIN_PX = 16
BAR_PX = 30

_STYLE = """
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #d6deeb; white-space: pre; }
.title { fill: #8a97a8; text-anchor: middle; }
.good { fill: #7ee787; font-weight: bold; } .head { font-weight: bold; } .command { fill: #79c0ff; }
.line { animation: comes .01s both; } @keyframes comes { from { opacity: 0 } to { opacity: 1 } }
"""


def recorded() -> list[str]:
    """What the demo prints, in lines."""
    with tempfile.TemporaryDirectory() as home:
        # What is dumb shows no table that changes, and no colours.
        environment = {**os.environ, "HOME": home, "TERM": "dumb", "CTXFS_PAGER": ""}
        command = [
            sys.executable,
            "-c",
            "import sys; from ctxfs.cli import main; sys.argv[0] = 'ctxfs'; main()",
            "demo",
        ]
        shown = on_a_terminal(command, environment, columns=COLUMNS)
        return [line.replace(home, "~") for line in shown.splitlines()]


def picture(lines: Sequence[str]) -> str:
    """The SVG that shows ``lines`` one after the other, the last ones for good."""
    namespace = "http://www.w3.org/2000/svg"
    width = round(COLUMNS * CHAR_PX + 2 * MARGIN_PX)
    height = BAR_PX + ROWS * LINE_PX + MARGIN_PX
    shown = ["$ ctxfs demo", "", *lines]
    ends_s = FIRST_S + len(shown) * LINE_S
    steps = [
        f"{100 * (FIRST_S + n * LINE_S) / ends_s:.2f}% {{ transform: translateY({-LINE_PX * max(0, n + 1 - ROWS)}px) }}"
        for n in range(len(shown))
    ]
    scrolled = -LINE_PX * max(0, len(shown) - ROWS)
    texts = [
        f'<text class="line {_kind(line)}" x="{MARGIN_PX}" y="{BAR_PX + (n + 1) * LINE_PX}" '
        f'style="animation-delay: {FIRST_S + n * LINE_S:.2f}s">{escape(line.rstrip())}</text>'
        for n, line in enumerate(shown)
        if line.strip()
    ]
    return "\n".join(
        [
            f'<svg xmlns="{namespace}" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
            "<title>ctxfs demo: an agent mends a bug; what left its context, why, and what that saved</title>",
            f"<style>{_STYLE}",
            f".screen {{ transform: translateY({scrolled}px); animation: scrolls {ends_s:.2f}s step-end both; }}",
            f"@keyframes scrolls {{ 0% {{ transform: translateY(0) }} {' '.join(steps)} }}",
            "@media (prefers-reduced-motion: reduce) { .line, .screen { animation: none } }",
            "</style>",
            f'<clipPath id="seen"><rect y="{BAR_PX}" width="{width}" height="{height - BAR_PX}"/></clipPath>',
            f'<rect width="{width}" height="{height}" rx="8" fill="#011627"/>',
            f'<text class="title" x="{width // 2}" y="20">ctxfs demo</text>',
            '<g clip-path="url(#seen)"><g class="screen">',
            *texts,
            "</g></g>",
            "</svg>\n",
        ]
    )


def _kind(line: str) -> str:
    if " instead of $" in line:
        return "good"
    if line.startswith(("call ", "What left")):
        return "head"
    if line.startswith(("$ ", "next ", "          ctxfs ")):
        return "command"
    return ""


def main() -> None:
    """Run the demo, and draw what it printed."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    OUT.write_text(picture(recorded()))


if __name__ == "__main__":
    main()
