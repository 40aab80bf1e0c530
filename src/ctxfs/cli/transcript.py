"""Commands that show a session in time: show and diff."""

from functools import partial
from typing import Annotated, Any

import anyio
import typer

from ctxfs.cli.changes import change_keys, print_changes
from ctxfs.cli.options import AsJson, Root, SessionArgument, StoreUrl
from ctxfs.cli.output import console, label, on_terminal, print_json, print_line, write
from ctxfs.cli.session import SessionsAt, sessions_at, shown_session
from ctxfs.errors import ConfigError
from ctxfs.eviction.placeholder.lines import plural
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import readable_text
from ctxfs.session.timeline.changes import Changes
from ctxfs.session.timeline.reading import past_request, read_timeline
from ctxfs.session.timeline.timeline import MESSAGES_ELSEWHERE, PastRequest
from ctxfs.text import figures
from ctxfs.text.utf8 import lossless_bytes

_LINES = 12
"""How many lines of a long message are shown."""


def show(
    session: SessionArgument,
    *,
    call: Annotated[
        int | None,
        typer.Option("--call", metavar="N", min=1, help="Show what the model was sent at call N, counted from 1."),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--last", "-n", metavar="N", min=1, help="Only the last N messages.")
    ] = None,
    request: Annotated[
        bool, typer.Option("--request", help="Print the request itself, as JSON of the Messages API.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Show every line of long messages.")] = False,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show the conversation, now or as sent at a call.

    Long messages and lines are cut: --full shows them whole, and `ctxfs cat` shows one of them.
    """
    if request and (full or last is not None):
        raise ConfigError("--request is the whole request: leave out --last and --full")
    shown = partial(_show, call=call, last=last, request=request, full=full, as_json=as_json)
    anyio.run(shown, sessions_at(root, store), session)


async def _show(
    root: SessionsAt, session: str, *, call: int | None, last: int | None, request: bool, full: bool, as_json: bool
) -> None:
    async with shown_session(root, session, with_history=True) as fs:
        timeline = await read_timeline(fs)
        found = await past_request(fs, call, timeline=timeline)
        if request:
            if MESSAGES_ELSEWHERE in found.not_recorded:
                raise ConfigError(f"there is no request to print; not recorded: {MESSAGES_ELSEWHERE}")
            print_json(found.body())
            return
        items = found.items if last is None else found.items[-last:]
        if as_json:
            print_json(_request_keys(found) | {"items": [_item_keys(item) for item in items]})
            return
        print_line(_headline(found, len(timeline.calls)), style="bold")
        for item in items:
            print_line("")
            print_line(_title(item), style="cyan")
            _print_text(item, full=full)
        for missing in found.not_recorded:
            print_line(f"not recorded: {missing}", style="dim")


def _headline(request: PastRequest, calls: int) -> str:
    which = f"call {request.call} of {calls}" if request.call <= calls else f"the context after {plural(calls, 'call')}"
    at = figures.clock(request.sent_at or request.replied_at or 0.0)
    size = "" if MESSAGES_ELSEWHERE in request.not_recorded else f"{request.token_count:,} tokens"
    parts = [which, request.model, at, size]
    if request.usage is not None:
        parts.append(f"billed {request.usage.total_input_tokens:,} in, {request.usage.output_tokens:,} out")
    return " · ".join(part for part in parts if part)


def _title(item: ContextItem) -> str:
    state = ", evicted" if item.destroyed else ", arguments evicted" if item.trimmed else ""
    pinned = ", pinned" if item.pinned else ""
    tool = f" of {item.tool_name}" if item.tool_name else ""
    return f"{item.id}  {item.item_type}{tool}, {item.token_count:,} tokens{state}{pinned}"


def _print_text(item: ContextItem, *, full: bool) -> None:
    lines = readable_text(item.message.content).splitlines()
    shown = lines if full or len(lines) <= _LINES + 1 else lines[:_LINES]
    if full or not on_terminal():
        write(lossless_bytes("".join(f"{line}\n" for line in shown)))
    else:
        out = console()
        for line in shown:
            out.print(label(line), no_wrap=True, overflow="ellipsis")
    if len(shown) < len(lines):
        print_line(f"… {len(lines) - len(shown):,} more lines", style="dim")


def _request_keys(request: PastRequest) -> dict[str, Any]:
    usage = request.usage
    return {
        "call": request.call,
        "model": request.model,
        "sent_at": request.sent_at,
        "replied_at": request.replied_at,
        "tokens": request.token_count,
        "usage": None
        if usage is None
        else {
            "input_tokens": usage.input_tokens,
            "cache_creation_input_tokens": usage.cache_creation_input_tokens,
            "cache_read_input_tokens": usage.cache_read_input_tokens,
            "output_tokens": usage.output_tokens,
        },
        "reply_id": request.reply_id,
        "not_recorded": list(request.not_recorded),
    }


def _item_keys(item: ContextItem) -> dict[str, Any]:
    return {
        "item_id": item.id,
        "item_type": item.item_type.value,
        "tool_name": item.tool_name,
        "tokens": item.token_count,
        "evicted": item.destroyed,
        "pinned": item.pinned,
        "damaged": item.damaged,
        "content": item.message.content,
    }


def diff(
    session: SessionArgument,
    first: Annotated[int, typer.Argument(metavar="N", min=1, help="A call, counted from 1.")],
    last: Annotated[
        int | None, typer.Argument(metavar="M", min=1, help="A later call; the next one if left out.")
    ] = None,
    *,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show what changed between two requests, and why."""
    anyio.run(_diff, sessions_at(root, store), session, first, last, as_json)


async def _diff(root: SessionsAt, session: str, first: int, last: int | None, as_json: bool) -> None:
    async with shown_session(root, session, with_history=True) as fs:
        timeline = await read_timeline(fs)
        changes = timeline.changes(first, last)
        is_elsewhere = MESSAGES_ELSEWHERE in timeline.request(changes.last).not_recorded
        item_ids = fs.state.ids
    if as_json:
        print_json(_changes_keys(changes))
        return
    print_changes(changes.items, item_ids)
    if is_elsewhere:
        which = f"call {changes.first} -> {changes.last}"
        print_line(f"{which}: not recorded: {MESSAGES_ELSEWHERE}", style="bold")
        return
    figures = f"{changes.tokens_before:,} -> {changes.tokens_after:,} tokens"
    print_line(f"call {changes.first} -> {changes.last}: {figures}", style="bold")
    if changes.first_changed is None:
        said = f"nothing that was sent has changed; {_are(changes.new_tokens)} new"
    else:
        said = (
            f"the first change is {changes.first_changed}: {_are(changes.rewritten_tokens, 'was', 'were')} sent again, "
            f"{changes.kept_tokens:,} could stay in the cache, {_are(changes.new_tokens)} new"
        )
    print_line(said)


def _are(number: int, one: str = "is", many: str = "are") -> str:
    return f"{plural(number, 'token')} {one if number == 1 else many}"


def _changes_keys(changes: Changes) -> dict[str, Any]:
    return {
        "first": changes.first,
        "last": changes.last,
        "tokens_before": changes.tokens_before,
        "tokens_after": changes.tokens_after,
        "first_changed": changes.first_changed,
        "kept_tokens": changes.kept_tokens,
        "rewritten_tokens": changes.rewritten_tokens,
        "new_tokens": changes.new_tokens,
        "items": [change_keys(change) for change in changes.items],
    }
