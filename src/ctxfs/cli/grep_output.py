"""How matching lines are printed: as text like ripgrep's, or as its JSON, one object per line. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ctxfs.cli.item_search import Row
from ctxfs.cli.output import in_base64
from ctxfs.cli.session_search import ItemRow
from ctxfs.text.jsontext import codec as json_codec


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

    def of(self, row: ItemRow) -> bytes:
        """Return the text to print for a row; it may be empty."""
        name = self._prefix + row.item_id.encode()
        if row.line is None:
            self.matched = True
            if self._form.names:
                return name + b"\n"
            return b"%b:%d\n" % (name, row.found) if self._form.count else b""
        if self._form.names or self._form.count:
            return b""
        mark = b":" if row.line.matches else b"-"
        number = b"%d%b" % (row.line.number, mark) if self._form.numbers else b""
        gap = b"--\n" if row.line.after_gap else b""
        return b"%b%b%b%b%b\n" % (gap, name, mark, number, row.line.text.removesuffix(b"\n"))


class JsonPrinter:
    """Prints the rows of one session as ripgrep's JSON: begin, match, context and end; a path is session and item."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._item_id: str | None = None
        self.matched = False
        """Whether anything matched."""

    def of(self, row: ItemRow, spans: Sequence[tuple[int, int]]) -> bytes:
        """Return the objects for a row, one per line; ``spans``: where its matches are."""
        data: dict[str, Any] = {"path": {"text": f"{self._session_id}/{row.item_id}"}}
        named = data | {"session_id": self._session_id, "item_id": row.item_id}
        objects = []
        if row.item_id != self._item_id:
            objects.append({"type": "begin", "data": named})
            self._item_id = row.item_id
        if row.line is None:
            self.matched = True
            self._item_id = None
            objects.append({"type": "end", "data": named | {"stats": {"matched_lines": row.found}}})
        else:
            objects.append({"type": "match" if row.line.matches else "context", "data": named | _line(row.line, spans)})
        return b"".join(json_codec.dumps(one) + b"\n" for one in objects)


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
