"""Sessions that were removed on purpose: a log beside them, one line of JSON each, durable before the session goes."""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ctxfs.storage.port import FileSystem, OsFileSystem, close_quietly, write_all

FORGOTTEN_NAME = ".ctxfs-forgotten.jsonl"
_MAX_BYTES = 64 << 20
"""Of a longer log only the end is read."""


def note_forgotten(fs: FileSystem, root_fd: int, tombstone: Mapping[str, Any]) -> None:
    """Record durably that a session is about to be removed. Raises OSError."""
    try:
        fd = fs.create(root_fd, FORGOTTEN_NAME)
    except FileExistsError:
        fd = fs.open_append(root_fd, FORGOTTEN_NAME)
    try:
        write_all(fs, fd, [b"\n" + json.dumps(tombstone).encode() + b"\n"])  # what a crash cut off ends here
        fs.sync(fd)
    finally:
        close_quietly(fs, fd)
    fs.sync(root_fd)


def forgotten(fs: FileSystem, root_fd: int, session_id: str) -> str:
    """Say when a session was removed, by what and why, and what it held; "" if nothing is known of that."""
    wanted = json.dumps(session_id).encode()
    for line in _lines(fs, root_fd):
        if wanted in line and (description := _described(line, session_id)):
            return description
    return ""


def forgotten_under(root: Path, session_id: str) -> str:
    """Return what ``forgotten`` returns for a session under a root; "" also if there is no such root."""
    fs = OsFileSystem()
    with suppress(OSError):
        root_fd = fs.open_root(root)
        try:
            return forgotten(fs, root_fd, session_id)
        finally:
            close_quietly(fs, root_fd)
    return ""


def forgotten_ids(root: Path, beginning: str) -> list[str]:
    """The ids with this beginning of sessions that were removed from a root, the last first, each one once."""
    fs = OsFileSystem()
    lines: list[bytes] = []
    with suppress(OSError):
        root_fd = fs.open_root(root)
        try:
            lines = _lines(fs, root_fd)
        finally:
            close_quietly(fs, root_fd)
    found: dict[str, None] = {}
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):  # a torn line, or not one of ours
            session_id = str(json.loads(line)["session_id"])
            if session_id.startswith(beginning):
                found[session_id] = None
    return list(found)


def _lines(fs: FileSystem, root_fd: int) -> list[bytes]:
    """The lines of the log, the last first; none if it cannot be read."""
    with suppress(OSError):
        fd = fs.open_read(root_fd, FORGOTTEN_NAME)
        try:
            size = fs.stat_handle(fd).size
            data = fs.read(fd, min(size, _MAX_BYTES), max(0, size - _MAX_BYTES))
        finally:
            close_quietly(fs, fd)
        return data.splitlines()[::-1]
    return []


def _described(line: bytes, session_id: str) -> str:
    try:
        tombstone = json.loads(line)
        if tombstone["session_id"] != session_id:
            return ""
        day = datetime.fromtimestamp(tombstone["removed_at"], UTC).date().isoformat()
        contents = int(tombstone["contents"])
        held = f"{int(tombstone['size_bytes']):,} bytes"
        if contents:  # "0 contents" beside many bytes reads like a fault: they were in the journal
            held = f"{contents:,} {'content' if contents == 1 else 'contents'}, {held}"
        return f"removed on {day} by {tombstone['by']} ({tombstone['reason']}); it held {held}"
    except (ValueError, KeyError, TypeError, OverflowError, OSError):  # a torn line, or not one of ours
        return ""
