"""Claude Code: JSON lines, a block of a message each, in a tree of parents.

What was said last decides which branch of the tree the session took; calls of the other branches (rewinds) were billed,
and are in no thread. A line without a parent begins another thread with an empty context: a compaction (its summary
follows), or a sub-agent's. Of a result that was persisted elsewhere, the model saw the text in the line.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from ctxfs.lab.recordings.formats.anthropic import blocks
from ctxfs.lab.recordings.formats.builder import Builder, Document, model_call, seconds
from ctxfs.lab.recordings.recording import Recording, Role

_Row = Mapping[str, Any]


def is_claude_code(doc: Document) -> bool:
    """Whether any line belongs to a conversation, or is of a kind that some files hold alone."""
    return any(_is_claude_code(row) for row in doc.rows)


def _is_claude_code(row: _Row) -> bool:
    if row.get("type") in ("user", "assistant"):
        return isinstance(row.get("message"), Mapping)
    return (row.get("type") == "summary" and "leafUuid" in row) or row.get("type") == "file-history-snapshot"


def read(doc: Document) -> Iterable[Recording]:
    """The one session of the file: its threads in order, those of sub-agents last."""
    tree = _Tree(doc.rows)
    builder = Builder()
    for is_side in (False, True):
        for thread in tree.threads(is_side=is_side):
            builder.fresh()
            _read_thread(thread, builder)
    for row in tree.abandoned():
        builder.aside(_call(row))
    project = next((str(row["cwd"]) for row in doc.rows if row.get("cwd")), "")
    yield builder.finish(name=_name(doc), project=project)


def _name(doc: Document) -> str:
    """A sub-agent's file names its session too."""
    path = PurePath(doc.where)
    return f"{path.parent.parent.name}/{doc.name}" if path.parent.name == "subagents" else doc.name


def _read_thread(rows: Sequence[_Row], builder: Builder) -> None:
    for row in _replies_whole(rows):
        if row.get("type") == "system":
            builder.clear((row.get("microcompactMetadata") or {}).get("compactedToolIds") or ())
            continue
        message = row["message"]
        group = message.get("id") or row.get("uuid") or object()
        builder.add(
            Role(message["role"]),
            blocks(message["content"], builder),
            group=group,
            at=seconds(row.get("timestamp")),
            call=_call(row),
        )


def _replies_whole(rows: Sequence[_Row]) -> Iterable[_Row]:
    """The lines with those of one reply together: results of its first calls may stand before its last ones."""
    ends = {row["message"].get("id"): n for n, row in enumerate(rows) if _is_reply(row) and row["message"].get("id")}
    until, waiting = -1, []
    for n, row in enumerate(rows):
        if _is_reply(row):
            until = max(until, ends.get(row["message"].get("id"), n))
            yield row
        else:
            waiting.append(row)
        if n >= until:
            yield from waiting
            waiting = []


def _call(row: _Row) -> Any:
    """The bill on a line of a reply; all lines of one reply have it, the last one whole."""
    message = row["message"]
    if message["role"] != "assistant":
        return None
    at = row.get("timestamp")
    return model_call(message.get("usage"), reply_id=message.get("id"), model=message.get("model"), at=at)


class _Tree:
    """The lines of a file by their parents."""

    def __init__(self, rows: Sequence[_Row]) -> None:
        self._rows = [row for row in rows if "uuid" in row or row.get("type") in ("user", "assistant")]
        known = {row["uuid"]: n for n, row in enumerate(self._rows) if "uuid" in row}
        self._parents: list[int | None] = []
        self._roots: list[int] = []
        last: dict[bool, int] = {}
        for n, row in enumerate(self._rows):
            parent = known.get(row.get("parentUuid"))
            is_side = bool(row.get("isSidechain"))
            if parent is None and (row.get("parentUuid") is not None or "parentUuid" not in row):
                parent = last.get(is_side)  # its parent is not in the file, or it has none: it goes on
            if parent is not None and (parent >= n or bool(self._rows[parent].get("isSidechain")) != is_side):
                parent = None
            self._parents.append(parent)
            self._roots.append(n if parent is None else self._roots[parent])
            last[is_side] = n
        self._kept: set[int] = set()

    def threads(self, *, is_side: bool) -> Iterable[list[_Row]]:
        """The branch that was taken, of each tree that has a message in it."""
        leaves: dict[int, int] = {}
        for n, row in enumerate(self._rows):
            if _is_said(row) and bool(row.get("isSidechain")) == is_side:
                leaves[self._roots[n]] = n
        for root, leaf in leaves.items():
            taken = self._taken(root, leaf)
            self._kept.update(taken)
            yield [self._rows[n] for n in taken]

    def abandoned(self) -> Iterable[_Row]:
        """One line of each reply that no thread has."""
        kept = {self._reply(n) for n in self._kept}
        found = {self._reply(n): row for n, row in enumerate(self._rows) if _is_said(row) and _is_reply(row)}
        return [row for reply, row in found.items() if reply not in kept]

    def _taken(self, root: int, leaf: int) -> list[int]:
        """The line from ``leaf`` to ``root``, with what belongs to it: the other blocks of its replies, and results.

        Parallel calls are lines of one reply, each the parent of its own result: branches that are no rewinds.
        """
        line: set[int] = set()
        at: int | None = leaf
        while at is not None:
            line.add(at)
            at = self._parents[at]
        replies = {self._reply(n) for n in line if _is_reply(self._rows[n])}
        calls: set[str] = set()
        taken = []
        for n in range(root, len(self._rows)):
            row = self._rows[n]
            if self._roots[n] != root or not (_is_said(row) or row.get("subtype") == "microcompact_boundary"):
                continue
            if n in line or (_is_reply(row) and self._reply(n) in replies) or calls & _answered(row):
                taken.append(n)
                calls |= _called(row) if _is_reply(row) else set()
        return taken

    def _reply(self, n: int) -> object:
        row = self._rows[n]
        return (row["message"].get("id") if _is_reply(row) else None) or n


def _is_said(row: _Row) -> bool:
    """Whether a line is part of what the model saw: no error that Claude Code made up, nothing for people only."""
    if row.get("type") not in ("user", "assistant") or row.get("isVisibleInTranscriptOnly"):
        return False
    return not row.get("isApiErrorMessage") and row["message"].get("model") != "<synthetic>"


def _is_reply(row: _Row) -> bool:
    return row.get("type") == "assistant"


def _parts(row: _Row, kind: str) -> Iterable[_Row]:
    content = row["message"].get("content") if "message" in row else None
    return (b for b in content if isinstance(b, Mapping) and b.get("type") == kind) if isinstance(content, list) else ()


def _called(row: _Row) -> set[str]:
    return {str(block.get("id")) for block in _parts(row, "tool_use")}


def _answered(row: _Row) -> set[str]:
    return {str(block.get("tool_use_id")) for block in _parts(row, "tool_result")}
