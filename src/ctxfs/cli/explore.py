"""Tools that look at a directory, for the demo and for ``ctxfs chat``. They read, and never write.

Nothing outside the directory is shown, links are not followed, and each call is limited in time and in output, so that
any directory will do: an empty one, a huge one, one with binary files, or one without permission.
"""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, BinaryIO

from pydantic import Field

from ctxfs.text.steps import CpuBudget
from ctxfs.tools.base import Tool
from ctxfs.tools.decorator import tool
from ctxfs.tools.search.line_pattern import MAX_CPU_S
from ctxfs.tools.search.search import LinesOfContent, Query

_LISTED_ENTRIES = 1_000
_SCANNED_ENTRIES = 20_000
_READ_BYTES = 131_072
_READ_LINES = 2_000
_SKIPPED_BYTES = 64 << 20
_SNIFFED_BYTES = 8_192
_SEARCHED_FILE_BYTES = 2 << 20
_SEARCH_MATCHES = 200
_SEARCH_FILES = 5_000
_SEARCH_S = 2.0
_SHOWN_LINE_BYTES = 300

RelativePath = Annotated[str, Field(description="relative to the directory that is explored")]


def exploration_tools(root: Path) -> list[Tool]:
    """Return the tools for the files under ``root``: list_dir, read_file and search."""
    root = root.resolve()

    @tool("List a directory: sizes in bytes and names, directories with a slash.")
    def list_dir(path: RelativePath = ".") -> str:
        return _listing(_inside(root, path))

    @tool("Read a text file, up to 2,000 lines or 128 KB at a time.")
    def read_file(
        path: RelativePath, first_line: Annotated[int, Field(ge=1, description="the line to start at")] = 1
    ) -> bytes:
        return _read(_inside(root, path), first_line)

    @tool("Search the text files below a directory for an RE2 regular expression.")
    def search(pattern: str, path: RelativePath = ".", ignore_case: bool = False) -> bytes:
        query = Query(pattern=pattern, ignore_case=ignore_case)
        return _search(root, _inside(root, path), query)

    return [list_dir, read_file, search]


def _inside(root: Path, path: str) -> Path:
    """The real path of ``path``, which must be under ``root``."""
    if "\0" in path:
        raise ValueError("a path cannot hold a NUL character")
    target = (root / path).resolve()
    if not target.is_relative_to(root):
        raise PermissionError(f"{path} is outside the directory that is explored")
    return target


def _listing(directory: Path) -> str:
    with os.scandir(directory) as scan:
        entries = sorted(islice(scan, _SCANNED_ENTRIES), key=lambda entry: entry.name)
        more = next(scan, None) is not None
    lines = [line for entry in entries[:_LISTED_ENTRIES] if (line := _entry(entry)) is not None]
    if more:
        lines.append(f"(more than {_SCANNED_ENTRIES:,} entries; {len(lines):,} of them are shown)")
    elif len(entries) > _LISTED_ENTRIES:
        lines.append(f"({len(entries):,} entries; the first {_LISTED_ENTRIES:,} are shown)")
    return "\n".join(lines) or "(empty)"


def _entry(entry: "os.DirEntry[str]") -> str | None:
    # A name that cannot be decoded, or has several lines, could not be read back.
    name = entry.name if entry.name.isprintable() else None
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return f"{'?':>12}  {name or ascii(entry.name)}"
    if name is None:
        return f"{'?':>12}  {entry.name!a}"
    if stat.S_ISDIR(status.st_mode):
        return f"{'-':>12}  {name}/"
    if stat.S_ISREG(status.st_mode):
        return f"{status.st_size:>12}  {name}"
    return f"{'?':>12}  {name}"


def _open(path: Path) -> BinaryIO:
    """Open a regular file; never a pipe or a device, which might not answer."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is not a regular file")
    return os.fdopen(descriptor, "rb")


def _read(path: Path, first_line: int) -> bytes:
    with _open(path) as file:
        if b"\0" in file.read(_SNIFFED_BYTES):
            return f"(binary file, {os.fstat(file.fileno()).st_size:,} bytes)".encode()
        file.seek(0)
        for _ in range(first_line - 1):
            if not file.readline(_SKIPPED_BYTES):
                break
            if file.tell() > _SKIPPED_BYTES:
                return f"(line {first_line} lies beyond the first {_SKIPPED_BYTES >> 20} MB)".encode()
        return _page(file, first_line)


def _page(file: BinaryIO, first_line: int) -> bytes:
    """The lines from here on, as many as fit, and then how to continue."""
    lines: list[bytes] = []
    left = _READ_BYTES
    while len(lines) < _READ_LINES and left > 0 and (line := file.readline(left)):
        lines.append(line)
        left -= len(line)
    text = b"".join(lines)
    if not lines and first_line > 1:
        return f"(the file ends before line {first_line})".encode()
    if not file.read(1):
        return text
    if not text.endswith(b"\n"):
        return text + b"\n(cut in the middle of a line)"
    return text + f"(go on with first_line={first_line + len(lines)})".encode()


def _search(root: Path, start: Path, query: Query) -> bytes:
    pattern = query.compiled(CpuBudget(MAX_CPU_S))
    found: list[bytes] = []
    deadline = time.monotonic() + _SEARCH_S
    stopped = ""
    for number, path in enumerate(_text_files(start), start=1):
        try:
            with _open(path) as file:
                data = file.read(_SEARCHED_FILE_BYTES)
        except OSError:
            continue  # no permission, or gone since it was listed: the rest is still worth searching
        if b"\0" not in data[:_SNIFFED_BYTES]:
            name = os.fsencode(path.relative_to(root))
            room = _SEARCH_MATCHES - len(found)
            rows = islice(LinesOfContent(query, pattern).feed(data), room)
            found.extend(b"%s:%d: %s" % (name, row.number, row.text.strip()[:_SHOWN_LINE_BYTES]) for row in rows)
        if len(found) >= _SEARCH_MATCHES:
            stopped = f"(stopped after {len(found)} matches)"
        elif number >= _SEARCH_FILES:
            stopped = f"(stopped after {number:,} files)"
        elif time.monotonic() > deadline:
            stopped = f"(stopped after {_SEARCH_S:g} s and {number:,} files)"
        if stopped:
            found.append(stopped.encode())
            break
    return b"\n".join(found) or b"(no match)"


def _text_files(start: Path) -> Iterator[Path]:
    """Files that are worth searching: not hidden, not a link, not empty (which also leaves out /proc)."""
    if start.is_file():
        yield start
        return
    pending = [start]
    while pending:
        found = _visible(pending.pop())
        pending.extend(path for path, status in reversed(found) if stat.S_ISDIR(status.st_mode))
        yield from (path for path, status in found if stat.S_ISREG(status.st_mode) and status.st_size)


def _visible(directory: Path) -> list[tuple[Path, os.stat_result]]:
    """The visible entries of a directory, sorted by name, without entries that cannot be examined."""
    found: list[tuple[Path, os.stat_result]] = []
    try:
        with os.scandir(directory) as scan:
            entries = sorted(islice(scan, _SCANNED_ENTRIES), key=lambda entry: entry.name)
    except OSError:
        return found  # no permission, or gone since it was listed: the rest is still worth searching
    for entry in entries:
        if not entry.name.startswith("."):
            with suppress(OSError):  # as above
                found.append((Path(entry.path), entry.stat(follow_symlinks=False)))
    return found
