"""Rows of text in columns; faster than rich's tables for thousands of rows."""

import shutil
import sys
from collections.abc import Sequence

from rich.cells import cell_len

from ctxfs.cli.output import console, label, on_terminal
from ctxfs.session.content.visible import visible_text as for_terminal

_GAP = "  "


def print_columns(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print rows below their headers, without empty columns; on a terminal, also without the last ones that do not fit.

    Args:
        headers: a name for each column.
        rows: untrusted text; a line feed in it is shown as a space.
        right: the columns that hold numbers.

    """
    used = [n for n in range(len(headers)) if any(row[n] for row in rows)]
    headers = [headers[n] for n in used]
    shown = [[for_terminal(row[n].replace("\n", " ")) for n in used] for row in rows]
    widths = [max(cell_len(header), *(cell_len(row[n]) for row in shown)) for n, header in enumerate(headers)]
    fitting = _fitting(widths)
    lines = [_line(headers, widths, headers, right, fitting)]
    print_line(lines[0], style="bold")
    sys.stdout.write("".join(f"{_line(row, widths, headers, right, fitting)}\n" for row in shown))


def _fitting(widths: Sequence[int]) -> int:
    """How many of the columns fit; the first one always does."""
    if not on_terminal():
        return len(widths)
    room, count = shutil.get_terminal_size().columns, 0
    for width in widths:
        room -= width + (len(_GAP) if count else 0)
        if room < 0 and count:
            break
        count += 1
    return count


def _line(
    cells: Sequence[str], widths: Sequence[int], headers: Sequence[str], right: Sequence[str], fitting: int
) -> str:
    padded = (
        f"{' ' * (width - cell_len(cell))}{cell}" if header in right else f"{cell}{' ' * (width - cell_len(cell))}"
        for cell, width, header in zip(cells[:fitting], widths, headers, strict=False)
    )
    return _GAP.join(padded).rstrip()


def print_line(text: str, *, style: str = "") -> None:
    """Print one line of untrusted text; a style shows on a terminal only."""
    sys.stdout.flush()
    console().print(label(text, style), soft_wrap=True)
