"""``ctxfs grep``: search everything that a session holds, in its context and out of it."""

import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from ctxfs.cli.options import AsJson, Root, SessionArgument
from ctxfs.cli.output import for_terminal, print_json, text_keys, write
from ctxfs.cli.search import matching_lines
from ctxfs.cli.session import content_blocks, find_entry, open_session, sessions_directory
from ctxfs.errors import StorageError
from ctxfs.session.entries import Entry, entries
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.steps import CpuBudget
from ctxfs.tools.grep import LineChunks
from ctxfs.tools.line_pattern import LinePattern

__all__ = ["grep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    item_id: str
    line: int
    text: bytes


def grep(  # noqa: PLR0917 - typer calls it by name
    session: SessionArgument,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="An RE2 regular expression.")],
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Ignore case.")] = False,
    item: Annotated[str | None, typer.Option("--item", metavar="ITEM", help="Search this item only.")] = None,
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Search everything that a session holds.

    Line by line; exit code 1 when nothing matches, or a content is damaged.
    """
    compiled = LinePattern(pattern, ignore_case=ignore_case, budget=CpuBudget(None))
    if not anyio.run(partial(_grep, sessions_directory(root), session, compiled, item, as_json=as_json)):
        raise typer.Exit(1)


async def _grep(root: Path, session: str, pattern: LinePattern, item: str | None, *, as_json: bool) -> bool:
    """Print what matches; whether something did, and all could be searched."""
    found: list[dict[str, Any]] = []
    matched, damaged = False, False
    async with open_session(root, session) as fs:
        for entry in await entries(fs) if item is None else [await find_entry(fs, item)]:
            if item is None and entry.stored is None and entry.place == "file":
                continue  # it only repeated lines of another item, which is searched
            try:
                async for match in _matches(fs, entry, pattern):
                    matched = True
                    if as_json:
                        found.append(_as_dict(match))
                    else:
                        write(b"%s:%d:%s\n" % (match.item_id.encode(), match.line, match.text))
            except StorageError as error:
                damaged = True
                sys.stderr.write(for_terminal(f"ctxfs: {error}\n"))
    if as_json:
        print_json(found)
    return matched and not damaged


def _as_dict(match: _Found) -> dict[str, Any]:
    return {"item_id": match.item_id, "line": match.line, **text_keys("text", match.text)}


async def _matches(fs: ContextFileSystem, entry: Entry, pattern: LinePattern) -> AsyncIterator[_Found]:
    before = 0
    async for lines in _whole_lines(content_blocks(fs, entry)):
        for number, text in matching_lines(pattern, lines):
            yield _Found(item_id=entry.item_id, line=before + number, text=text)
        before += lines.count(b"\n")


async def _whole_lines(blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    chunks = LineChunks()
    async for block in blocks:
        if (chunk := chunks.feed(block)) is not None:
            yield chunk
    if rest := chunks.finish():
        yield rest
