"""How matching lines are printed: as text like ripgrep's, or as its JSON, one object per line. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ctxfs.cli.output import in_base64
from ctxfs.session.entries import Entry
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.search import Hit, Query, Row, Searched

_MOST_SPANS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What is shown: which items match (``names``), how many lines match (``count``), or the lines, numbered or not."""

    names: bool = False
    count: bool = False
    numbers: bool = True


class Printer:
    """Prints the rows of one session as text; each begins with ``session_id``, if one is given."""

    def __init__(self, form: Form, session_id: str | None = None) -> None:
        self._form = form
        self._prefix = b"" if session_id is None else b"%s:" % session_id.encode()
        self.matched = False
        """Whether anything matched."""

    def of(self, found: Hit[Entry, Row] | Searched[Entry]) -> bytes:
        """Return the text to print for a line, or for the end of an item; it may be empty."""
        name = self._prefix + found.item.item_id.encode()
        if isinstance(found, Searched):
            return self._end(name, found.end.matching)
        if self._form.names or self._form.count:
            return b""
        line = found.line
        mark = b":" if line.matches else b"-"
        number = b"%d%b" % (line.number, mark) if self._form.numbers else b""
        gap = b"--\n" if line.after_gap else b""
        return b"%b%b%b%b%b\n" % (gap, name, mark, number, line.text.removesuffix(b"\n"))

    def _end(self, name: bytes, matching: int) -> bytes:
        if not matching:
            return b""
        self.matched = True
        if self._form.names:
            return name + b"\n"
        if self._form.count:
            return b"%b:%d\n" % (name, matching)
        return b""


class JsonPrinter:
    """Prints the rows of one session as ripgrep's JSON: begin, match, context and end; a path is session and item."""

    def __init__(self, query: Query, pattern: LinePattern, session_id: str) -> None:
        self._query = query
        self._pattern = pattern
        self._session_id = session_id
        self._item_id: str | None = None
        self.matched = False
        """Whether anything matched."""

    def of(self, found: Hit[Entry, Row] | Searched[Entry]) -> bytes:
        """Return the objects for a line, or for the end of an item, one per line; there may be none."""
        if isinstance(found, Searched) and not found.end.matching:
            return b""
        item_id = found.item.item_id
        data: dict[str, Any] = {"path": {"text": f"{self._session_id}/{item_id}"}}
        named = data | {"session_id": self._session_id, "item_id": item_id}
        objects = []
        if item_id != self._item_id:
            objects.append({"type": "begin", "data": named})
            self._item_id = item_id
        if isinstance(found, Searched):
            self.matched = True
            self._item_id = None
            objects.append({"type": "end", "data": named | {"stats": {"matched_lines": found.end.matching}}})
        else:
            kind = "match" if found.line.matches else "context"
            objects.append({"type": kind, "data": named | _line(found.line, self._spans(found.line))})
        return b"".join(json_codec.dumps(one) + b"\n" for one in objects)

    def _spans(self, line: Row) -> list[tuple[int, int]]:
        """Where the matches in a line are, at most ``_MOST_SPANS``."""
        if not line.matches or self._query.invert:
            return []
        text = line.text.removesuffix(b"\n")
        matches = self._pattern.in_line(text, 0, 0, len(text))
        return [(match.start, match.end) for match in islice(matches, _MOST_SPANS)]


def _line(row: Row, spans: Sequence[tuple[int, int]]) -> dict[str, Any]:
    return {
        "lines": _text(row.text),
        "line_number": row.number,
        "absolute_offset": row.offset,
        "submatches": [{"match": _text(row.text[start:end]), "start": start, "end": end} for start, end in spans],
    }


def _text(data: bytes) -> dict[str, str]:
    """Text, or base64 of bytes that are not UTF-8, as in ripgrep's JSON."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"bytes": in_base64("bytes", data)["bytes_base64"]}
