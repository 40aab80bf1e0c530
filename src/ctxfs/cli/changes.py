"""How changes of a context are shown: what left or came back, before which call, and why."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ctxfs.cli.output import (
    ALL_COLUMNS,
    Reasons,
    item_names,
    print_columns,
    print_json,
    print_line,
    stdout_columns,
    tokens,
)
from ctxfs.cli.session import find_entry
from ctxfs.eviction.preview import PREVIEWED
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.timeline.changes import ItemChange, change_id
from ctxfs.session.timeline.reading import read_timeline
from ctxfs.session.timeline.timeline import Timeline

_COLUMNS = ("item", "what", "before call", "tokens", "undo by", "why")


async def print_history(fs: ContextFileSystem, *, as_json: bool) -> None:
    """Print what was evicted, archived, restored and removed, with the ids that ``ctxfs undo`` takes."""
    found = [change for change in (await read_timeline(fs)).history() if change.what != "added"]
    undone = undone_changes(fs)
    if as_json:
        print_json([change_keys(change, undone) for change in found])
        return
    print_changes(without_settled(fs, found, undone), fs.state.ids, undone)
    if not found:
        print_line("nothing was evicted")


async def changes_of(fs: ContextFileSystem, timeline: Timeline, item: str) -> list[ItemChange]:
    """Everything that happened to an item since it was added. Raises what ``find_entry`` raises."""
    found = list(timeline.history(item))  # also of one that is in the context no more
    return found or list(timeline.history((await find_entry(fs, item)).item_id))


def undone_changes(fs: ContextFileSystem) -> set[str]:
    """The ids of the changes that were undone."""
    return {change_id(number) for number in fs.state.undone}


def without_settled(fs: ContextFileSystem, changes: Sequence[ItemChange], undone: Collection[str]) -> list[ItemChange]:
    """The changes, of which only those have an id that can still be undone, or were."""
    items = fs.state.items
    out: set[str] = set()
    for item_id in fs.state.ids:
        item = items.get(item_id)
        if item is None or item.destroyed or item.trimmed:
            out.add(item_id)
    open_ = {change.change for change in changes if change.item_id in out}
    return [one if one.change in open_ or one.change in undone else replace(one, change=None) for one in changes]


def print_changes(changes: Sequence[ItemChange], item_ids: Iterable[str], undone: Collection[str] = ()) -> None:
    """Print a table of changes; nothing if there are none. ``item_ids``: those of all items of the session."""
    if not changes:
        return
    reasons = Reasons()
    columns = [name for name in _COLUMNS if name != "tokens" or stdout_columns() >= ALL_COLUMNS]
    rows: list[list[str]] = []
    names = item_names({*item_ids, *(change.item_id for change in changes)})
    for change in changes:
        cells = {
            "item": names[change.item_id],
            "what": "previewed" if change.reason.startswith(PREVIEWED) else change.what,
            "before call": tokens(change.after_call + 1),
            "tokens": f"{change.tokens_before:,} -> {change.tokens_after:,}",
            "undo by": "(undone)" if change.change in undone else change.change or "",
            "why": reasons.cell(change.reason),
        }
        rows.append([cells[name] for name in columns])
    print_columns(columns, rows, right=("before call", "tokens"))
    reasons.print_below()


def change_keys(change: ItemChange, undone: Collection[str] | None = None) -> dict[str, Any]:
    """A change for JSON; ``undone``: the ids of the changes that were undone, None leaves that out."""
    keys = {
        "item_id": change.item_id,
        "item_type": change.item_type.value,
        "tool_name": change.tool_name,
        "what": change.what,
        "after_call": change.after_call,
        "at": change.at,
        "tokens_before": change.tokens_before,
        "tokens_after": change.tokens_after,
        "reason": change.reason,
        "change": change.change,
        "archive": change.archive,
    }
    return keys if undone is None else {**keys, "undone": change.change in undone}
