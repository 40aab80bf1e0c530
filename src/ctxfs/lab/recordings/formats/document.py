"""A file as the readers of its format get it: JSON, or JSON lines."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ctxfs.errors import ReplayFormatError


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The content of a file.

    ``head`` is the JSON object that the file is; empty for a list and for JSON lines. ``rows`` are the objects of the
    list, the lines, or what the object has as its ``messages``; an object without them is the only row. ``name`` and
    ``where`` are the recording's name and what errors call the file.
    """

    name: str
    where: str
    head: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]


def document(text: str, *, name: str, where: str, expected: str) -> Document:
    """Read JSON or JSON lines.

    Raises:
        ReplayFormatError: it is neither, or holds something else than objects; the message ends with ``expected``.
    """
    value = _json(text, where, expected)
    head = value if isinstance(value, Mapping) else {}
    rows = head.get("messages", [head]) if head else value
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise ReplayFormatError(f"{where}: no list of messages; expected {expected}")
    return Document(name=name, where=where, head=head, rows=rows)


def _json(text: str, where: str, expected: str) -> Any:
    """The JSON value, or the list of the values of JSON lines."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise ReplayFormatError(f"{where}: empty; expected {expected}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        failure: Exception = error
    found = []
    for number, line in lines:
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            if found:
                raise ReplayFormatError(
                    f"{where}: line {number} of its JSON lines is cut or broken ({error})"
                ) from error
            raise ReplayFormatError(f"{where}: neither JSON nor JSON lines ({failure}); expected {expected}") from error
    return found
