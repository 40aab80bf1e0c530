"""``ctxfs sessions``: the list of sessions."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from ctxfs.cli.lines import to_stderr
from ctxfs.cli.listed import listed
from ctxfs.cli.options import AsJson, Root, Since, StoreUrl
from ctxfs.cli.output import on_terminal, print_columns, print_json, print_line, session_names, tokens
from ctxfs.cli.session import sessions_at, stores_of
from ctxfs.eviction.placeholder.lines import plural
from ctxfs.session.listing.summary import Selection, SessionSummary, SortKey, paid_usd
from ctxfs.storage.sessions import SessionStores, has_writer
from ctxfs.text import figures


def sessions(
    *,
    sort: Annotated[
        SortKey, typer.Option("--sort", help="What to sort by: the newest, or the largest, comes first.")
    ] = SortKey.AGE,
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="List the oldest or smallest first.")] = False,
    since: Since = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="NAME", help="Only sessions that called this model; * and ? match any characters."
        ),
    ] = None,
    damaged: Annotated[bool, typer.Option("--damaged", help="Only damaged sessions.")] = False,
    running: Annotated[bool, typer.Option("--running", help="Only sessions that an agent writes to now.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="At most N sessions.")] = None,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the sessions, newest first.

    The list is cached in the file .derived.sqlite of the directory, or, with --store, in ~/.cache/ctxfs
    (XDG_CACHE_HOME). It may be removed at any time.
    """
    stores = stores_of(sessions_at(root, store))
    selection = Selection(
        sort=sort, reverse=reverse, since=since, model=model, damaged=damaged, running=running, limit=limit
    )
    every = listed(stores)
    found = selection.of(every, lambda session_id: has_writer(stores, session_id))
    if as_json:
        print_json([_as_dict(stores, session) for session in found])
        return
    if not found:
        none = f"none of the {len(every):,} sessions under {stores.url} matches"
        way = (
            "`ctxfs demo` makes one"
            if stores.directory is not None
            else "`ctxfs copy SESSION --to URL` brings one there"
        )
        said = none if every else f"no sessions under {stores.url}: {way}"
        to_stderr(said)
        return
    _print(stores, found, session_names(session.session_id for session in every))


def _as_dict(stores: SessionStores, session: SessionSummary) -> dict[str, Any]:
    known = {
        "session_id": session.session_id,
        "path": str(stores.directory / session.session_id) if stores.directory is not None else None,
        "changed_at": datetime.fromtimestamp(session.changed_at, UTC).isoformat(timespec="seconds"),
        "error": session.error,
    }
    if session.error is not None:
        return known
    return known | {
        "title": session.title,
        "calls": session.calls,
        "items": session.items,
        "context_tokens": session.context_tokens,
        "content_tokens": session.content_tokens,
        "stored": session.stored,
        "stored_bytes": session.stored_bytes,
        "damages": session.damages,
        "disk_bytes": session.disk_bytes,
        "models": session.models,
        "cost_usd": session.cost_usd,
        "saved_tokens": session.saved_tokens,
        "saved_usd": session.saved_usd,
        "too_long_from": session.too_long_from,
        "shadow_runs": session.shadow_runs,
        "shadow_differs": session.shadow_differs,
        "running": has_writer(stores, session.session_id),
    }


def _print(stores: SessionStores, found: Sequence[SessionSummary], names: Mapping[str, str]) -> None:
    now = time.time()
    rows = [_row(session, names[session.session_id], state=_state(stores, session), now=now) for session in found]
    amounts, counts = ("size", "tokens", "cost", "saved"), ("calls", "items", "stored")
    columns = ["session", "state", "changed", *amounts, "first question", *counts]
    print_columns(columns, rows, right=(*amounts, *counts))
    costs = sum(session.cost_usd or 0.0 for session in found)
    paid = paid_usd(found)
    context = sum(session.context_tokens for session in found)
    size = sum(session.disk_bytes for session in found)
    some = plural(len(found), "session")
    dollars = f", {figures.usd(paid)} paid" if any(session.calls for session in found) and paid else ""
    if figures.usd(min(paid, costs)) != figures.usd(costs):
        dollars += " (calls that a fork or an import has from another session count once)"
    print_line(f"{some}: {figures.size(size)} on disk, {context:,} tokens in context{dollars}")
    if any(session.too_long_from is not None for session in found):
        print_line("all from N: without ctxfs, the context would not have fitted its window from call N on")
    runs = sum(session.shadow_runs for session in found)
    if runs:
        other = sum(session.shadow_differs for session in found)
        print_line(
            f"the model did something else in {other:,} of {plural(runs, 'shadow run')}: `ctxfs explain` says more"
        )
    for session in found:
        if session.error is not None:
            print_line(f"{session.session_id}: {session.error}", style="red")
        elif session.damages:
            print_line(
                f"{session.session_id} has {plural(len(session.damages), 'damaged part')}: `ctxfs ls` lists them",
                style="red",
            )


def _state(stores: SessionStores, session: SessionSummary) -> str:
    state = ["damaged"] if session.is_damaged else []
    return ", ".join([*state, *(["running"] if has_writer(stores, session.session_id) else [])])


def _row(session: SessionSummary, name: str, *, state: str, now: float) -> tuple[str, ...]:
    named = (name, state, figures.ago(session.changed_at, now), figures.size(session.disk_bytes))
    if session.error is not None:
        return (*named, *([""] * 7))
    cost = "" if session.cost_usd is None or not session.calls else figures.usd(session.cost_usd)
    saved = _saved(session)
    counts = (session.calls, session.items or None, session.stored)  # a framework's history has no items here
    title = session.title if on_terminal() else ""  # a pipe gets ids and figures, and --json all of it
    return (*named, tokens(session.context_tokens), cost, saved, title, *map(tokens, counts))


def _saved(session: SessionSummary) -> str:
    if session.too_long_from is not None:
        return f"all from {session.too_long_from:,}"
    if session.saved_usd is not None:
        return figures.usd(session.saved_usd)
    return "" if session.saved_tokens is None else f"{figures.short_count(session.saved_tokens)} tokens"
