"""Rows of text in columns; faster than rich's tables for thousands of rows."""

import shutil
import sys
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ctxfs.cli.lines import CUT
from ctxfs.cli.output import console, on_terminal, print_line
from ctxfs.session.content.visible import visible_text as for_terminal

_GAP = "  "
_LEAST_COLUMNS = 12
"""A column of text is not cut below this: a part of a word is of no use."""


def print_columns(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = (), dim: Sequence[bool] = ()
) -> None:
    """Print rows below their headers, without empty columns.

    On a terminal where not all fit, texts are cut to a quarter of a line, except in the last column, and the columns
    that still do not fit are left out.

    Args:
        headers: a name for each column.
        rows: untrusted text; a line feed in it is shown as a space.
        right: the columns that hold numbers.
        dim: which rows are shown dim on a terminal; none if empty.

    """
    used = [n for n in range(len(headers)) if any(row[n] for row in rows)]
    headers = [headers[n] for n in used]
    shown = [[for_terminal(row[n].replace("\n", " ")) for n in used] for row in rows]
    widths = [max(cell_len(header), *(cell_len(row[n]) for row in shown)) for n, header in enumerate(headers)]
    if on_terminal():
        widths = fitting(widths, [header in right for header in headers], shutil.get_terminal_size().columns)
    print_line(_line(headers, widths, headers, right), style="bold")
    lines = [_line(row, widths, headers, right) for row in shown]
    if on_terminal() and any(dim):
        shown_dim = Text("\n").join(
            Text(line, "dim" if is_dim else "") for line, is_dim in zip(lines, dim, strict=True)
        )
        console().print(shown_dim, soft_wrap=True)
    else:
        sys.stdout.write("".join(f"{line}\n" for line in lines))


def fitting(widths: Sequence[int], is_number: Sequence[bool], room: int) -> list[int]:
    """The widths of the first columns that fit in ``room``; a name or a sentence may be cut, and a number never is."""
    fit: list[int] = []
    is_crowded = sum(widths) + len(_GAP) * (len(widths) - 1) > room
    for width, whole in zip(widths, is_number, strict=True):
        left = room - sum(fit) - len(_GAP) * len(fit)
        if is_crowded and not whole and len(fit) < len(widths) - 1:
            left = min(left, max(room // 4, _LEAST_COLUMNS))
        if width > left and (whole or left < _LEAST_COLUMNS):
            break
        fit.append(min(width, left))
    return fit


def _line(cells: Sequence[str], widths: Sequence[int], headers: Sequence[str], right: Sequence[str]) -> str:
    padded: list[str] = []
    for cell, width, header in zip(cells, widths, headers, strict=False):  # the last columns may have no room
        gap = " " * (width - cell_len(cell))
        if cell_len(cell) > width:
            padded.append(f"{set_cell_size(cell, width - 1).rstrip()}{CUT}")
        else:
            padded.append(f"{gap}{cell}" if header in right else f"{cell}{gap}")
    return _GAP.join(padded).rstrip()
