"""Removing a session: while locked, it gets a hidden name, and so no longer exists; then its files are removed.

If the process is killed in between, the session is still whole, or has its hidden name; then the next process that
lists the root's sessions, or opens one for writing, removes the rest. The lock's file is removed last: a directory with
such a name that is not locked is not being removed by any process.

A log beside the sessions says which were removed on purpose: a line of JSON each, durable before the session goes.
"""

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ctxfs.errors import StorageError
from ctxfs.storage.lock_file import LOCK_NAME, open_lock
from ctxfs.storage.port import FileKind, FileSystem, OsFileSystem, close_quietly, write_all

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


REMOVED_PREFIX = ".ctxfs-removed-"


def hide(fs: FileSystem, root_fd: int, session_id: str) -> str:
    """Give a locked session a hidden name, durably, and return it. After an OSError it has its own name again."""
    hidden = f"{REMOVED_PREFIX}{random.SystemRandom().getrandbits(64):016x}"
    fs.rename(root_fd, session_id, hidden)
    try:
        fs.sync(root_fd)
    except BaseException:
        fs.rename(root_fd, hidden, session_id)
        raise
    return hidden


def remove_all_hidden(fs: FileSystem, root_fd: int, listed: Sequence[tuple[str, FileKind]]) -> None:
    """Remove what is left of removed sessions among the names in a root; what cannot be removed stays hidden."""
    for name, kind in listed:
        if kind is FileKind.DIRECTORY and name.startswith(REMOVED_PREFIX):
            with suppress(OSError, StorageError):
                remove_hidden(fs, root_fd, name)


def remove_hidden(fs: FileSystem, root_fd: int, hidden: str) -> None:
    """Remove a hidden directory, unless another process is removing it. Raises ``UnsafePath`` and OSError."""
    try:
        dir_fd = fs.open_dir(root_fd, hidden)
    except FileNotFoundError:
        return
    try:
        _remove_locked(fs, root_fd, hidden, dir_fd)
    except (BlockingIOError, FileNotFoundError):
        pass  # it is being removed by another process
    finally:
        close_quietly(fs, dir_fd)


def _remove_locked(fs: FileSystem, root_fd: int, hidden: str, dir_fd: int) -> None:
    lock_fd = open_lock(fs, dir_fd)
    try:
        fs.lock(lock_fd)
        _remove_tree(fs, dir_fd)
        fs.remove_dir(root_fd, hidden)
    finally:
        close_quietly(fs, lock_fd)


def _remove_tree(fs: FileSystem, dir_fd: int) -> None:
    """Remove all that is in a directory, a lock's file last; links are removed, not followed."""
    for name, kind in sorted(fs.list_dir(dir_fd), key=lambda entry: entry[0] == LOCK_NAME):
        if kind is not FileKind.DIRECTORY:
            fs.unlink(dir_fd, name)
            continue
        child = fs.open_dir(dir_fd, name)
        try:
            _remove_tree(fs, child)
        finally:
            close_quietly(fs, child)
        fs.remove_dir(dir_fd, name)
