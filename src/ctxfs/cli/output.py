"""How the command line prints: tables on a terminal, exact bytes into a pipe, JSON when asked."""

import base64
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from rich.box import ROUNDED, SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ctxfs.jsontext import codec as json_codec
from ctxfs.jsontext.write_stream import has_surrogates

__all__ = [
    "console",
    "for_terminal",
    "in_base64",
    "label",
    "lossless_bytes",
    "print_json",
    "table",
    "text_keys",
    "tokens",
    "write",
]

_PIPE_COLUMNS = 1_000
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def console() -> Console:
    """A console for stdout: as wide as the terminal; into a pipe, as wide as its lines need."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=_PIPE_COLUMNS if piped else None, markup=False, highlight=False, emoji=False)


class _Table(Table):
    """A table whose first column, what its rows are named by, is whole however narrow the terminal is."""

    def add_row(self, *cells: Any, **settings: Any) -> None:
        super().add_row(*cells, **settings)
        first = self.columns[0]
        first.no_wrap, first.min_width = True, max(first.min_width or 0, cell_len(str(cells[0])))


def table(*columns: str, right: Sequence[str] = (), boxed: bool = False) -> Table:
    """An empty table with these columns; those in ``right`` hold numbers."""
    made = _Table(box=ROUNDED if boxed else SIMPLE_HEAD, pad_edge=boxed, header_style="bold", show_edge=boxed)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", no_wrap=column in right)
    return made


def tokens(number: int | None) -> str:
    """A count for people; None is nothing."""
    return "" if number is None else f"{number:,}"


def for_terminal(text: str) -> str:
    """``text`` without characters that a terminal would obey, or turn it round with: stored content is not trusted."""
    return _CONTROL.sub(
        lambda found: f"\\x{ord(found[0]):02x}" if found[0] < "\xff" else f"\\u{ord(found[0]):04x}", text
    )


def label(text: str, style: str = "") -> Text:
    """One line of untrusted text for a table."""
    return Text(for_terminal(text.replace("\n", " ")), style=style)


def lossless_bytes(text: str) -> bytes:
    """The bytes that a tool once gave: UTF-8, with undecodable bytes as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def write(data: bytes) -> None:
    """Write content to stdout: exact into a pipe or a file, harmless on a terminal."""
    if sys.stdout.isatty():
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
    """``data`` as text for JSON, under ``key``; when it is no UTF-8, as base64 as well, under ``<key>_base64``."""
    try:
        return {key: data.decode()}
    except UnicodeDecodeError:
        return {key: data.decode("utf-8", "replace")} | in_base64(key, data)


def in_base64(key: str, data: bytes) -> dict[str, str]:
    """``data`` as base64, under ``<key>_base64``."""
    return {f"{key}_base64": base64.b64encode(data).decode("ascii")}
