"""Commands that look at a session's items: ls and cat."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import anyio
import typer

from ctxfs.cli.lines import to_stderr
from ctxfs.cli.options import AsJson, ItemArgument, Root, SessionArgument, StoreUrl
from ctxfs.cli.output import (
    WIDE_COLUMNS,
    in_base64,
    item_names,
    print_columns,
    print_json,
    print_line,
    stdout_columns,
    text_keys,
    tokens,
    write,
)
from ctxfs.cli.session import (
    SessionsAt,
    content_blocks,
    content_lines,
    find_entry,
    line_count,
    open_session,
    sessions_at,
    shown_session,
)
from ctxfs.errors import ConfigError
from ctxfs.eviction.placeholder.lines import plural
from ctxfs.messages.items import ContextItem, ItemType, unevicted_tokens
from ctxfs.messages.messages import AssistantMessage, Block, Content, ToolMessage, readable_text
from ctxfs.messages.names import path_of
from ctxfs.session.entries import Entry, Place, entries
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.text.jsontext.write_stream import has_surrogates
from ctxfs.text.utf8 import lossless_bytes

_PREVIEW_CHARS = 60


def preview(content: Content) -> str:
    """The beginning of a message on one line; for a reply that calls tools, the calls."""
    calls = [] if isinstance(content, str) else [_call(block) for block in content if block["type"] == "tool_use"]
    text = " ".join(("; ".join(calls) or readable_text(content)[: 4 * _PREVIEW_CHARS]).split())
    return text if len(text) <= _PREVIEW_CHARS else f"{text[: _PREVIEW_CHARS - 1]}…"


def _call(block: Block) -> str:
    return f"{block['name']} {json_codec.dumps_text(block['input'])}"


_RANGE = re.compile(r"(?P<first>\d*):(?P<last>\d*)|(?P<only>\d+)")


class ItemSort(StrEnum):
    """What comes first in a list of items."""

    ORDER = "order"
    TOKENS = "tokens"
    SIZE = "size"


def ls(
    session: SessionArgument,
    *,
    kind: Annotated[
        ItemType | None, typer.Option("--type", metavar="TYPE", help=f"Items of this type only: {', '.join(ItemType)}.")
    ] = None,
    tool: Annotated[str | None, typer.Option("--tool", metavar="NAME", help="Results of this tool only.")] = None,
    place: Annotated[Place | None, typer.Option("--place", help="Only items in this place.")] = None,
    sort: Annotated[
        ItemSort,
        typer.Option("--sort", help="Sort in the order of the context, then as stored; or by most tokens or bytes."),
    ] = ItemSort.ORDER,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List a session's items, in its context and evicted."""
    chosen = _Chosen(kind=kind, tool=tool, place=place, sort=sort)
    anyio.run(_ls, sessions_at(root, store), session, chosen, as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """Which items are listed, and in which order."""

    kind: ItemType | None
    tool: str | None
    place: Place | None
    sort: ItemSort

    def of(self, found: Sequence[Entry]) -> list[Entry]:
        """The items that are listed."""
        chosen = [
            entry
            for entry in found
            if self.kind in (None, entry.item_type)
            and self.tool in (None, entry.tool_name)
            and self.place in (None, entry.place)
        ]
        if self.sort is ItemSort.TOKENS:
            chosen.sort(key=lambda entry: -max(entry.tokens, entry.content_tokens or 0))
        elif self.sort is ItemSort.SIZE:
            chosen.sort(key=lambda entry: -(entry.stored.size_bytes if entry.stored is not None else 0))
        return chosen


def _previews(items: Sequence[ContextItem]) -> dict[str, str]:
    """The beginning of each item, by id; for a result, the arguments of its call."""
    shown: dict[str, str] = {}
    calls: dict[str, str] = {}
    for item in items:
        message = item.message
        if isinstance(message, AssistantMessage):
            calls.update((call.id, preview(json_codec.dumps_text(call.arguments))) for call in message.tool_calls)
        called = calls.get(message.tool_call_id) if isinstance(message, ToolMessage) else None
        shown[item.id] = called if called is not None else preview(message.content)
    return shown


_WIDE = ("item", "type", "tool", "tokens", "of", "preview", "where")
_NARROW = ("item", "tool or type", "tokens", "of", "preview")
"""A preview says what an item is, and a path only where: a narrow terminal has no room for both."""


async def _ls(root: SessionsAt, session: str, chosen: _Chosen, as_json: bool) -> None:
    async with open_session(root, session) as fs:
        previews = _previews(await fs.items())  # this finds damage, too
        every = await entries(fs)
        found = chosen.of(every)
        if as_json:
            print_json([_as_dict(fs, entry) | {"preview": previews.get(entry.item_id)} for entry in found])
            for line in fs.recovery.damage_lines:
                to_stderr(f"ctxfs: {line}")
            return
        if every and not found:
            to_stderr(f"none of the {plural(len(every), 'item')} matches")
            return
        shown = _WIDE if stdout_columns() >= WIDE_COLUMNS else _NARROW
        names = item_names(entry.item_id for entry in every)
        rows = []
        for entry in found:
            cells = {
                "item": names[entry.item_id],
                "type": entry.item_type.value,
                "tool": entry.tool_name or "",
                "tool or type": entry.tool_name or entry.item_type.value.removesuffix("_message"),
                "tokens": tokens(entry.tokens),
                "of": tokens(entry.content_tokens) if entry.place != "context" else "",
                "where": _where(entry),
                "preview": previews.get(entry.item_id, ""),
            }
            rows.append([cells[name] for name in shown])
        print_line(fs.base, style="bold")
        print_columns(shown, rows, right=("tokens", "of"), dim=[entry.place != "context" for entry in found])
        now = sum(entry.tokens for entry in every)
        if fs.state.is_elsewhere:
            without = sum(entry.content_tokens or 0 for entry in every)
            print_line(f"the messages are not stored here: {now:,} tokens replace {without:,} tokens of them")
        else:
            without = unevicted_tokens(fs.state.items.values())
            print_line(f"the context holds {now:,} tokens; without ctxfs, it would hold {without:,}")
        for line in fs.recovery.damage_lines:
            print_line(line, style="red")


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
        "path": None if stored is None else path_of(fs.base, stored.name),
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
    *,
    tail: Annotated[int | None, typer.Option("--tail", metavar="N", min=1, help="Only the last N lines.")] = None,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print an item's content, wherever it is now.

    For an item in an archive, prints what the model last saw of it; give its full id.

    Into a pipe or a file, the content is written byte for byte.
    """
    if lines is not None and tail is not None:
        raise ConfigError("--lines and --tail choose different lines: use one of them")
    chosen = None if lines is None else _parse_range(lines)
    if tail is not None:
        chosen = (1 - tail, None)
    anyio.run(_cat, sessions_at(root, store), session, item, chosen, as_json)


async def _cat(root: SessionsAt, session: str, item: str, lines: tuple[int, int | None] | None, as_json: bool) -> None:
    async with shown_session(root, session) as fs:
        entry = await find_entry(fs, item)
        if lines is not None:
            await _print_lines(fs, entry, *lines, as_json)
        elif as_json:
            print_json(_as_dict(fs, entry) | await _content(fs, entry))
        else:
            async for block in content_blocks(fs, entry):
                write(block)


async def _content(fs: ContextFileSystem, entry: Entry) -> dict[str, Any]:
    """The content for JSON; also as base64 if JSON cannot hold it: a list of blocks then as JSON with escapes."""
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
        raise ConfigError(f"{entry.item_id} has {line_count(entry):,} lines, and none from {first:,} on")
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
