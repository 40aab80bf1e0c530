"""Rows of text in columns: the one way in which commands print a table. Quick for thousands of rows."""

import sys
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ctxfs.cli.lines import CUT
from ctxfs.cli.output import console, on_terminal, print_line, stdout_columns
from ctxfs.session.content.visible import visible_text as for_terminal

_GAP = "  "
_LEAST_COLUMNS = 12
"""A column of text is not cut below this: a part of a word is of no use."""
_IDS = ("session", "item", "erase", "undo by")
"""The columns of ids, which are typed: they may take half of a line."""


def print_columns(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = (), dim: Sequence[bool] = ()
) -> None:
    """Print rows below their headers, without empty columns.

    On a terminal where not all fit, texts are cut to a quarter of a line, and ids to half of one, except in the last
    column, and the columns that still do not fit are left out.

    Args:
        headers: a name for each column.
        rows: untrusted text; a line feed in it is shown as a space.
        right: the columns that hold numbers.
        dim: which rows are shown dim on a terminal; none if empty.

    """
    header, *lines = in_columns(headers, rows, right=right)
    print_line(header, style="bold")
    if on_terminal() and any(dim):
        shown_dim = Text("\n").join(
            Text(line, "dim" if is_dim else "") for line, is_dim in zip(lines, dim, strict=True)
        )
        console().print(shown_dim, soft_wrap=True)
    else:
        sys.stdout.write("".join(f"{line}\n" for line in lines))


def in_columns(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> list[str]:
    """The lines that ``print_columns`` prints: the headers, and one for each row."""
    used = [n for n in range(len(headers)) if any(row[n] for row in rows)]
    headers = [headers[n] for n in used]
    shown = [[for_terminal(row[n].replace("\n", " ")) for n in used] for row in rows]
    widths = [max(cell_len(header), *(cell_len(row[n]) for row in shown)) for n, header in enumerate(headers)]
    room = stdout_columns()
    widths = fitting(widths, [_most(name, right, room) for name in headers], room)
    return [_line(row, widths, headers, right) for row in (headers, *shown)]


def _most(header: str, right: Sequence[str], room: int) -> int:
    """What a column gets at most where not all fit: a number is never cut, and an id less than other texts."""
    if header in right:
        return room
    return room // 2 if header in _IDS else room // 4


def fitting(widths: Sequence[int], most: Sequence[int], room: int) -> list[int]:
    """The widths of the first columns that fit in ``room``, where they do not all fit.

    ``most``: what a column gets at most, unless it is the last one; one that may take the room is never cut.
    """
    fit: list[int] = []
    is_crowded = sum(widths) + len(_GAP) * (len(widths) - 1) > room
    for width, own in zip(widths, most, strict=True):
        left = room - sum(fit) - len(_GAP) * len(fit)
        if is_crowded and len(fit) < len(widths) - 1:
            left = min(left, max(own, _LEAST_COLUMNS))
        if width > left and (own >= room or left < _LEAST_COLUMNS):
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
