"""How the command line prints: tables on a terminal, exact bytes into a pipe, JSON on request."""

import base64
import os
import re
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from ctxfs.cli import pager
from ctxfs.cli.lines import CUT, short_ids, wrapped
from ctxfs.errors import ConfigError
from ctxfs.session.content.visible import visible_text as for_terminal
from ctxfs.storage.failures import reason_of
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.text.jsontext.write_stream import has_surrogates

_PIPE_COLUMNS = 1_000_000
"""Longer than any line: programs that read a pipe expect a record in a line, as those of git and ls are."""
_TEXT_COLUMNS = 100
WIDE_COLUMNS = 110
"""From this width on, a table has room for a column of sentences."""
ALL_COLUMNS = 80
"""A terminal that is narrower than this has no room for a second size of each item."""
_WHOLE_SESSION, _WHOLE_ITEM = 30, 16
"""Ids of up to so many characters are never shortened: those that ctxfs makes for a session, and for an item."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def confirm(question: str) -> None:
    """Ask on stderr; what is printed next begins a line. Raises ``typer.Abort`` for a no, and where nobody answers."""
    if sys.stdin is None:
        raise typer.Abort
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        sys.stderr.write("\n")
        raise
    if not sys.stdin.isatty():  # nobody has seen the answer's line feed
        sys.stderr.write("\n")
    if not agreed:
        raise typer.Abort


def write_private(path: Path, text: str, *, new: bool = False) -> None:
    """Write a file that holds contents, or names from them: mode 0600, whatever the umask and the mode before.

    Raises ``ConfigError`` if it cannot be written; ``new``: also if there is such a file.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | (os.O_EXCL if new else os.O_TRUNC), 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            if stat.S_ISREG(os.fstat(handle).st_mode):  # a pipe or a device keeps its mode
                os.fchmod(handle, 0o600)
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({reason_of(error)}): choose another name") from error


def console() -> Console:
    """A console for stdout; print lines with ``print_line``, which breaks them better."""
    return _Console(
        width=stdout_columns(),
        height=pager.terminal_size().lines,  # rich takes a width only with a height on a dumb terminal
        soft_wrap=not on_terminal(),
        force_terminal=True if pager.is_open() else None,
        markup=False,
        highlight=False,
        emoji=False,
    )


def on_terminal() -> bool:
    """Whether stdout is shown on a terminal, with or without a pager."""
    return pager.is_open() or sys.stdout.isatty()


def stdout_columns() -> int:
    """How long a line of stdout may be.

    A terminal's lines are as wide as it is, or as ``COLUMNS`` says. A pipe's are as long as they need: nothing is
    wrapped, cut or left out there, whatever ``COLUMNS`` says, for its reader takes a line for a record.
    """
    return pager.terminal_size().columns if on_terminal() else _PIPE_COLUMNS


def text_columns() -> int:
    """As ``stdout_columns``, for reports that are sentences: long lines of them are hard to read on a terminal."""
    columns = stdout_columns()
    return min(columns, _TEXT_COLUMNS) if on_terminal() else columns


class _Console(Console):
    """A console that leaves closed pipes to ``ctxfs.cli.app``."""

    def on_broken_pipe(self) -> None:
        """Raise the error that rich caught."""
        raise BrokenPipeError


class Reasons:
    """The last column of a table: on a narrow console it holds numbers, and the reasons are listed below the table."""

    def __init__(self) -> None:
        self._is_wide = stdout_columns() >= WIDE_COLUMNS
        self._numbers: dict[str, int] = {}

    def cell(self, reason: str) -> str:
        """What the table shows for a reason."""
        if self._is_wide or not reason:
            return reason
        return f"({self._numbers.setdefault(reason, len(self._numbers) + 1)})"

    def print_below(self) -> None:
        """Print what the numbers mean."""
        for reason, number in self._numbers.items():
            print_line(f"({number}) {reason}")


def print_line(text: str, *, style: str = "") -> None:
    """Print one line of untrusted text; a terminal gets it in lines that fit, and the style."""
    shown = wrapped(for_terminal(text.replace("\n", " ")), stdout_columns())
    sys.stdout.flush()
    console().print(Text(shown, style=style), soft_wrap=True)


def session_names(ids: Iterable[str]) -> dict[str, str]:
    """How the sessions of a place are listed: on a terminal by ids that are short to type, into a pipe by their ids.

    ``ids``: those of all its sessions, since a beginning has to be unique among them.
    """
    return short_ids(ids, whole_chars=_WHOLE_SESSION) if on_terminal() else {one: one for one in ids}


def item_names(ids: Iterable[str]) -> dict[str, str]:
    """How the items of a session are listed, as in ``session_names``; ``ids``: those of all its items."""
    return short_ids(ids, whole_chars=_WHOLE_ITEM) if on_terminal() else {one: one for one in ids}


def tokens(number: int | None) -> str:
    """A count for people; "" for None."""
    return "" if number is None else f"{number:,}"


def label(text: str, style: str = "") -> Text:
    """One line of untrusted text for a table."""
    return Text(for_terminal(text.replace("\n", " ")), style=style)


def write(data: bytes) -> None:
    """Write content to stdout: exact into a pipe or a file, harmless on a terminal."""
    if on_terminal():
        data = for_terminal(data.decode("utf-8", "replace")).encode(sys.stdout.encoding, "backslashreplace")
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def print_json(value: Any) -> None:
    """Write one JSON document and a newline; lone surrogates become U+FFFD, since strict parsers refuse them."""
    if has_surrogates(value):
        data = _SURROGATE.sub("\ufffd", json_codec.dumps_text(value)).encode()
    else:
        data = json_codec.dumps(value)
    sys.stdout.flush()
    sys.stdout.buffer.write(data + b"\n")


def text_keys(key: str, data: bytes) -> dict[str, str]:
    """``data`` as text for JSON, under ``key``; if it is not UTF-8, also as base64, under ``<key>_base64``."""
    try:
        return {key: data.decode()}
    except UnicodeDecodeError:
        return {key: data.decode("utf-8", "replace")} | in_base64(key, data)


def in_base64(key: str, data: bytes) -> dict[str, str]:
    """``data`` as base64, under ``<key>_base64``."""
    return {f"{key}_base64": base64.b64encode(data).decode("ascii")}


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
