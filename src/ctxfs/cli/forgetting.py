"""``ctxfs forget``: remove whole sessions, those that are named or those that rules select."""

import time
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Annotated, Any

import anyio
import typer

from ctxfs.cli.options import AsJson, DryRun, Root, StoreUrl, Unasked, known_sessions, size_bytes, span_s
from ctxfs.cli.output import confirm, print_columns, print_json, print_line, session_names
from ctxfs.cli.session import find_sessions, require_whole_sessions, sessions_at, stores_of
from ctxfs.errors import ConfigError, SessionLocked
from ctxfs.eviction.placeholder.lines import plural
from ctxfs.session.cleanup.policy import ForgetPlan, ForgetPolicy, Verdict
from ctxfs.session.cleanup.sessions import Forgotten, carry_out, forget_plan, named_plan
from ctxfs.storage.sessions import SessionStores, writer_of
from ctxfs.text import figures

_Named = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SESSION",
        autocompletion=known_sessions,
        help="Ids of sessions, or 'last'; without --yes, beginnings of ids too. Rules choose among all if left out.",
    ),
]
OlderThan = Annotated[
    float | None,
    typer.Option(
        "--older-than", parser=span_s, metavar="SPAN", help="Only those unchanged for this long, such as 30d."
    ),
]
LargerThan = Annotated[
    int | None,
    typer.Option("--larger-than", parser=size_bytes, metavar="SIZE", help="Only those over this size, such as 20M."),
]
_NO_RULES = {field.name: field.default for field in fields(ForgetPolicy)}


def forget(
    sessions: _Named = None,
    *,
    keep_last: Annotated[
        int | None, typer.Option("--keep-last", min=0, metavar="N", help="Keep the newest N; 0 keeps none.")
    ] = None,
    keep_tag: Annotated[
        list[str] | None, typer.Option("--keep-tag", metavar="TAG", help="Keep those with this tag.")
    ] = None,
    older_than: OlderThan = None,
    larger_than: LargerThan = None,
    with_tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="Only those with this tag.")
    ] = None,
    max_size: Annotated[
        int | None,
        typer.Option(
            "--max-size", parser=size_bytes, metavar="SIZE", help="Only until all fit in this size, oldest first."
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Unasked = False,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Remove sessions, by name or by rules.

    Either the named sessions are removed, or those that --older-than, --larger-than and --tag select, unless a --keep
    rule keeps them; with --max-size, only until the rest fits. It asks first. A named session that an agent writes to
    is refused, and nothing is removed; the rules keep such sessions. Asking for a removed session later shows when and
    why it was removed.
    """
    place = sessions_at(root, store)
    stores = stores_of(place)
    rules: dict[str, Any] = {
        "keep_last": keep_last,
        "keep_tags": tuple(keep_tag or ()),
        "older_than_s": older_than,
        "larger_than_bytes": larger_than,
        "tags": tuple(with_tag or ()),
        "max_size_bytes": max_size,
    }
    plan: ForgetPlan
    if not sessions:
        plan = anyio.run(partial(forget_plan, ForgetPolicy(**rules), root_path=stores))
    elif rules != _NO_RULES:
        raise ConfigError("give forget sessions or rules, not both: rules choose among all sessions")
    else:
        named = anyio.run(find_sessions, place, sessions)
        if yes and not dry_run:
            require_whole_sessions(sessions, named)
        _refuse_running(stores, named)
        plan = anyio.run(named_plan, named, stores)
    if not as_json:
        _print_plan(plan, [] if sessions else [verdict.session_id for verdict in plan.verdicts])
    done = None if dry_run or not plan.forgotten else _forgotten(plan, stores, asks=not yes)
    if as_json:
        print_json([_verdict_as_dict(verdict, done) for verdict in plan.verdicts])
    elif done is not None:
        _print_forgotten(done)
    if done is not None and done.failed:
        raise typer.Exit(1)


def _refuse_running(stores: SessionStores, named: Sequence[str]) -> None:
    """Raise ``SessionLocked`` if an agent writes to one of the sessions, before any is removed."""
    for session_id in named:
        if (writer := writer_of(stores, session_id)) is not None:
            raise SessionLocked(session_id, writer)


def _forgotten(plan: ForgetPlan, stores: SessionStores, *, asks: bool) -> Forgotten:
    if asks:
        count = len(plan.forgotten)
        them = "it" if count == 1 else "them"
        confirm(f"Remove {plural(count, 'session')} under {stores.url} and everything in {them}?")
    return anyio.run(partial(carry_out, plan, root_path=stores, by="ctxfs forget"))


def _print_plan(plan: ForgetPlan, every: Sequence[str]) -> None:
    """Print what is forgotten, then what is kept; ``every``: all sessions, whose ids are then listed short."""
    names = session_names(every)
    now = time.time()
    kept = [verdict for verdict in plan.verdicts if not verdict.forget]
    rows = [
        (
            "forget" if verdict.forget else "keep",
            names.get(verdict.session_id, verdict.session_id),
            figures.ago(verdict.changed_at, now),
            figures.size(verdict.size_bytes),
            verdict.reason,
        )
        for verdict in (*plan.forgotten, *kept)
    ]
    print_columns(["", "session", "changed", "size", "why"], rows, right=("size",))
    print_line(f"{len(plan.forgotten):,} to forget ({figures.size(plan.size_bytes)}), {len(kept):,} to keep")
    if plan.over_bytes:
        print_line(f"still {figures.size(plan.over_bytes)} over the limit: the rules keep the rest", style="red")


def _print_forgotten(done: Forgotten) -> None:
    for verdict, why in done.failed:
        print_line(f"{verdict.session_id} is kept: {why}", style="red")
    print_line(f"{len(done.removed):,} forgotten, {figures.size(done.size_bytes)}")


def _verdict_as_dict(verdict: Verdict, done: Forgotten | None) -> dict[str, Any]:
    return {
        "session_id": verdict.session_id,
        "forget": verdict.forget,
        "reason": verdict.reason,
        "size_bytes": verdict.size_bytes,
        "contents": verdict.contents,
        "removed": done is not None and verdict in done.removed,
        "failed": None if done is None else dict(done.failed).get(verdict),
    }
