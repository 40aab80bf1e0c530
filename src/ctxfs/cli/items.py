"""Commands that look at a session's items: ls, cat and tail."""

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from ctxfs.cli.options import AsJson, ItemArgument, Root, SessionArgument
from ctxfs.cli.output import (
    console,
    for_terminal,
    in_base64,
    label,
    lossless_bytes,
    print_json,
    table,
    text_keys,
    tokens,
    write,
)
from ctxfs.cli.session import (
    content_blocks,
    content_lines,
    damages,
    find_entry,
    line_count,
    open_session,
    sessions_directory,
)
from ctxfs.errors import ConfigError
from ctxfs.jsontext import codec as json_codec
from ctxfs.jsontext.write_stream import has_surrogates
from ctxfs.session.entries import Entry, entries
from ctxfs.session.filesystem import ContextFileSystem

__all__ = ["cat", "ls", "tail"]

_RANGE = re.compile(r"(?P<first>\d*):(?P<last>\d*)|(?P<only>\d+)")


def ls(session: SessionArgument, root: Root = None, as_json: AsJson = False) -> None:
    """List what a session's context holds, and what was evicted."""
    anyio.run(_ls, sessions_directory(root), session, as_json)


async def _ls(root: Path, session: str, as_json: bool) -> None:
    async with open_session(root, session) as fs:
        await fs.items()  # finds what is damaged
        found = await entries(fs)
        if as_json:
            print_json([_as_dict(fs, entry) for entry in found])
            for line in damages(fs):
                sys.stderr.write(for_terminal(f"ctxfs: {line}\n"))
            return
        listed = table("item", "type", "tool", "tokens", "of", "where", right=("tokens", "of"))
        for entry in found:
            listed.add_row(
                entry.item_id,
                entry.item_type.value,
                label(entry.tool_name or ""),
                tokens(entry.tokens),
                tokens(entry.content_tokens) if entry.place != "context" else "",
                _where(entry),
                style="" if entry.place == "context" else "dim",
            )
        out = console()
        out.print(f"{fs.session_path}", style="bold", soft_wrap=True)
        out.print(listed)
        now = sum(entry.tokens for entry in found)
        without = sum(entry.content_tokens or 0 for entry in found)
        if fs.state.decisions and all(entry.item is None for entry in found):
            out.print(f"the history is a framework's: {now:,} tokens stand for {without:,} tokens of it")
        else:
            out.print(f"the context holds {now:,} tokens; with everything in it, it would hold {without:,}")
        for line in damages(fs):
            out.print(label(line, "red"), soft_wrap=True)


def _where(entry: Entry) -> str:
    return _place(entry) if entry.damaged is None else f"{_place(entry)} (damaged)"


def _place(entry: Entry) -> str:
    if entry.place == "context":
        return "context"
    if entry.stored is not None:
        return f"{entry.stored.name}{' (partial)' if entry.partial else ''}"
    source = entry.item.source if entry.item is not None else None
    return f"lines {source.first_line}-{source.last_line} of {source.item_id}" if source is not None else "?"


def _as_dict(fs: ContextFileSystem, entry: Entry) -> dict[str, Any]:
    stored = entry.stored
    return {
        "item_id": entry.item_id,
        "item_type": entry.item_type.value,
        "tool_name": entry.tool_name,
        "place": entry.place,
        "tokens": entry.tokens,
        "content_tokens": entry.content_tokens,
        "path": None if stored is None else fs.path_of(stored.name),
        "size_bytes": None if stored is None else stored.size_bytes,
        "lines": None if stored is None else stored.lines,
        "partial": entry.partial,
        "damaged": entry.damaged,
    }


def cat(
    session: SessionArgument,
    item: ItemArgument,
    lines: Annotated[
        str | None, typer.Option("--lines", metavar="A:B", help="Only lines A to B, from 1; either may be left out.")
    ] = None,
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Print an item's content, wherever it is now.

    For an item in an archive, prints what the model last saw of it; give its full id.

    Into a pipe or a file, the content is written byte for byte.
    """
    anyio.run(_cat, sessions_directory(root), session, item, None if lines is None else _parse_range(lines), as_json)


async def _cat(root: Path, session: str, item: str, lines: tuple[int, int | None] | None, as_json: bool) -> None:
    async with open_session(root, session) as fs:
        entry = await find_entry(fs, item)
        if lines is not None:
            await _print_lines(fs, entry, *lines, as_json)
        elif as_json:
            print_json(_as_dict(fs, entry) | await _content(fs, entry))
        else:
            async for block in content_blocks(fs, entry):
                write(block)


def tail(
    session: SessionArgument,
    item: ItemArgument,
    count: Annotated[int, typer.Option("-n", "--lines", min=1, help="How many lines.")] = 10,
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Print the last lines of an item's content."""
    anyio.run(_tail, sessions_directory(root), session, item, count, as_json)


async def _tail(root: Path, session: str, item: str, count: int, as_json: bool) -> None:
    async with open_session(root, session) as fs:
        await _print_lines(fs, await find_entry(fs, item), 1 - count, None, as_json)


async def _content(fs: ContextFileSystem, entry: Entry) -> dict[str, Any]:
    """The content for JSON; as base64 as well when JSON cannot hold it: a list of blocks as JSON with escapes."""
    if entry.stored is not None:
        content = await fs.load(entry.item_id)
    else:
        assert entry.item is not None  # what is not stored is in the context, or was in an archive
        content = entry.item.message.content
    if isinstance(content, str):
        return text_keys("content", lossless_bytes(content))
    exact = in_base64("content", json_codec.dumps(content)) if has_surrogates(content) else {}
    return {"content": content, **exact}


async def _print_lines(fs: ContextFileSystem, entry: Entry, first: int, last: int | None, as_json: bool) -> None:
    found = await content_lines(fs, entry, first, last)
    if not found and first > 1:
        raise ConfigError(f"{entry.item_id} has {line_count(entry):,} lines, none from {first:,} on")
    if as_json:
        print_json(_as_dict(fs, entry) | text_keys("content", found.removesuffix(b"\n")))
    else:
        write(found)


def _parse_range(given: str) -> tuple[int, int | None]:
    """``A:B``, ``A:``, ``:B`` or ``A``; lines count from 1."""
    match = _RANGE.fullmatch(given)
    if match is None:
        raise ConfigError(f"--lines {given}: write A:B, A: or :B, with line numbers from 1")
    first = int(match["only"] or match["first"] or 1)
    last = int(match["only"]) if match["only"] else int(match["last"]) if match["last"] else None
    if first < 1 or (last is not None and last < first):
        raise ConfigError(f"--lines {given}: write A:B with 1 <= A <= B")
    return first, last
