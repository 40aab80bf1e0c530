"""Commands that keep a disk clean: du, check, prune and tag."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import anyio
import typer

from ctxfs.cli.lines import to_stderr
from ctxfs.cli.options import AsJson, DryRun, Root, SessionArgument, StoreUrl, known_sessions, share_of, span_s
from ctxfs.cli.output import print_columns, print_json, print_line, session_names
from ctxfs.cli.session import find_session, find_sessions, require_whole_sessions, sessions_at, stores_of
from ctxfs.errors import ConfigError
from ctxfs.eviction.placeholder.lines import plural
from ctxfs.session.cleanup.contents import GRACE_S, UNDO_S, Pruned, prune_plans
from ctxfs.session.cleanup.contents import prune as prune_contents
from ctxfs.session.cleanup.sessions import tag_session
from ctxfs.session.cleanup.usage import DiskUsage, usage_by_item, usage_by_session, usage_by_tool
from ctxfs.session.cleanup.verification import CheckedSession
from ctxfs.session.cleanup.verification import check as check_sessions
from ctxfs.storage.sessions import SessionStores
from ctxfs.text import figures

Sessions = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SESSION",
        autocompletion=known_sessions,
        help="Ids of sessions, beginnings of ids, or 'last'; all of them if left out.",
    ),
]


class By(StrEnum):
    """What ``ctxfs du`` sums up by."""

    SESSION = "session"
    TOOL = "tool"
    ITEM = "item"


def du(
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="SESSION", autocompletion=known_sessions, help="One session only; all of them if left out."
        ),
    ] = None,
    *,
    by: Annotated[
        By | None,
        typer.Option("--by", help="What to sum up by (default: session; for one session: tool).", show_default=False),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="At most N lines.")] = None,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show what takes up space, the largest first.

    By session, all files are counted; by tool and by item, the contents. Files that a fork shares are counted once
    in the sum, and shown as shared with the older session.
    """
    if by is By.SESSION and session is not None:
        raise ConfigError("--by session sums up all sessions: leave out SESSION, or use --by tool or --by item")
    by = by or (By.SESSION if session is None else By.TOOL)
    place = sessions_at(root, store)
    stores = stores_of(place)
    session_id = None if session is None else anyio.run(find_session, place, session)
    read = {
        By.SESSION: partial(usage_by_session, root_path=stores),
        By.TOOL: partial(usage_by_tool, session_id, root_path=stores),
        By.ITEM: partial(usage_by_item, session_id, root_path=stores),
    }[by]
    found: tuple[DiskUsage, ...] = anyio.run(read)
    if as_json:
        print_json([_usage_as_dict(usage, by) for usage in found[:limit]])
        return
    shared = sum(usage.shared_bytes for usage in found)
    sizes = ("on disk", *(["shared"] if shared else []), "contents", "uncompressed")
    named = session_names(usage.name if by is By.SESSION else usage.session_id for usage in found)
    rows = [_usage_row(usage, by, named, shared=bool(shared)) for usage in found[:limit]]
    print_columns([str(by), *(["session"] if by is By.ITEM else []), *sizes], rows, right=sizes)
    total = sum(usage.size_bytes for usage in found) - shared
    once = ", shared files counted once" if shared else ""
    print_line(f"{figures.size(total)} in {plural(len(found), str(by))}{once}")


def _usage_row(usage: DiskUsage, by: By, named: Mapping[str, str], *, shared: bool) -> tuple[str, ...]:
    name = named.get(usage.name, usage.name)
    names = (usage.name, named[usage.session_id]) if by is By.ITEM else (name,)
    sizes = (figures.size(usage.size_bytes), *([figures.size(usage.shared_bytes)] if shared else []))
    return (*names, *sizes, f"{usage.contents:,}", figures.size(usage.content_bytes))


def _usage_as_dict(usage: DiskUsage, by: By) -> dict[str, Any]:
    values = {"size_bytes": usage.size_bytes, "content_bytes": usage.content_bytes, "contents": usage.contents}
    if by is By.SESSION:
        values["shared_bytes"] = usage.shared_bytes
    session = {"session_id": usage.session_id} if usage.session_id and by is not By.SESSION else {}
    key = {By.SESSION: "session_id", By.TOOL: "tool", By.ITEM: "item_id"}[by]
    return {key: usage.name, **session, **values}


def check(
    sessions: Sessions = None,
    *,
    sample: Annotated[
        float | None,
        typer.Option(
            "--sample",
            parser=share_of,
            metavar="SHARE",
            help="Check this share of the contents, such as 5% (default: all of them).",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="The number of the sample; each number draws a different one (default: 0).",
            show_default=False,
        ),
    ] = None,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Check stored contents against their checksums.

    Every byte is read, and each index is compared with its journal. Only sessions with problems are named. The exit
    code is 1 if there is one.
    """
    if seed is not None and sample is None:
        raise ConfigError("--seed numbers a sample, and all contents are checked: add --sample, such as --sample 5%")
    place = sessions_at(root, store)
    stores = stores_of(place)
    chosen = None if not sessions else anyio.run(find_sessions, place, sessions)
    found: list[CheckedSession] = anyio.run(_checked, chosen, stores, 1.0 if sample is None else sample, seed or 0)
    if as_json:
        print_json([_checked_as_dict(one) for one in found])
    else:
        for one in found:
            problems = [f"{p.name}: {p.detail}" for p in one.report.problems] + ([one.error] if one.error else [])
            for problem in problems:
                print_line(f"{one.session_id}: {problem}")
        bad, checked = sum(not one.ok for one in found), sum(one.report.checked for one in found)
        verdict = "all as written" if not bad else f"{bad:,} with problems"
        some = found[0].session_id if len(found) == 1 else plural(len(found), "session")
        of_all = f"{checked:,} of {plural(sum(one.contents for one in found), 'content')}"
        print_line(f"{some}: {of_all} checked, {verdict}")
    if not all(one.ok for one in found):
        raise typer.Exit(1)


async def _checked(
    chosen: Sequence[str] | None, stores: SessionStores, share: float, seed: int
) -> list[CheckedSession]:
    return [one async for one in check_sessions(chosen, root_path=stores, share=share, seed=seed)]


def _checked_as_dict(one: CheckedSession) -> dict[str, Any]:
    return {
        "session_id": one.session_id,
        "ok": one.ok,
        "checked": one.report.checked,
        "contents": one.contents,
        "problems": [{"name": p.name, "detail": p.detail} for p in one.report.problems],
        "error": one.error or None,
    }


def prune(
    sessions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SESSION",
            autocompletion=known_sessions,
            help="Ids of sessions, or 'last'; with --dry-run, beginnings of ids too. All of them if left out.",
        ),
    ] = None,
    *,
    undo: Annotated[
        float | None,
        typer.Option(
            "--undo",
            parser=span_s,
            metavar="SPAN",
            help=f"Keep what was evicted within this time, so that it can be undone (default: {UNDO_S / 86_400:.0f}d).",
        ),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(
            "--grace",
            parser=span_s,
            metavar="SPAN",
            help=f"Keep what was stored within this time (default: {GRACE_S / 86_400:.0f}d).",
        ),
    ] = None,
    archived: Annotated[
        float | None,
        typer.Option(
            "--archived",
            parser=span_s,
            metavar="SPAN",
            help="Also remove what was archived longer ago than this, such as 90d.",
        ),
    ] = None,
    dry_run: DryRun = False,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Remove stored contents that nothing needs any more.

    Keeps contents that the context, an archive in it or a framework's history refers to, that were evicted recently,
    or that a program stored itself. Each removed content leaves a note of what it held, which the tools show when
    the content is asked for. Sessions that an agent writes to are left alone.
    """
    place = sessions_at(root, store)
    chosen = None if not sessions else anyio.run(find_sessions, place, sessions)
    if sessions and chosen and not dry_run:
        require_whole_sessions(sessions, chosen)
    work = prune_plans if dry_run else partial(prune_contents, by="ctxfs prune")
    undo_s, grace_s = UNDO_S if undo is None else undo, GRACE_S if grace is None else grace
    done: tuple[Pruned, ...] = anyio.run(
        partial(work, chosen, root_path=stores_of(place), undo_s=undo_s, grace_s=grace_s, archived_s=archived)
    )
    if as_json:
        print_json([_pruned_as_dict(one, dry_run=dry_run) for one in done])
        return
    for one in done:
        for content in one.removed:
            print_line(f"{one.plan.session_id} {content.item_id}: {figures.size(content.size_bytes)}, {content.reason}")
        if one.skipped:
            print_line(f"{one.plan.session_id} is left alone: {one.skipped}", style="red")
    count, size = sum(len(one.removed) for one in done), sum(one.plan.size_bytes for one in done if not one.skipped)
    said = f"{plural(count, 'content')}, {figures.size(size)}"
    print_line(f"{said} {'would be removed' if dry_run else 'removed'} from {plural(len(done), 'session')}")


def _pruned_as_dict(one: Pruned, *, dry_run: bool) -> dict[str, Any]:
    contents = [
        {"item_id": c.item_id, "name": c.name, "tool": c.tool_name, "size_bytes": c.size_bytes, "reason": c.reason}
        for c in one.plan.collect
    ]
    return {
        "session_id": one.plan.session_id,
        "contents": contents,
        "kept": len(one.plan.kept),
        "skipped": one.skipped or None,
        "removed": not dry_run and not one.skipped,
    }


def tag(
    session: SessionArgument,
    tags: Annotated[list[str] | None, typer.Argument(metavar="TAG", help="The tags to add.")] = None,
    *,
    remove: Annotated[list[str] | None, typer.Option("--remove", metavar="TAG", help="Remove this tag.")] = None,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Tag a session, for `ctxfs forget` to keep or select.

    Without a tag, its tags are listed.
    """
    place = sessions_at(root, store)
    stores = stores_of(place)
    session_id = anyio.run(find_session, place, session)
    for given in tags or ():
        if not given.strip() or not given.isprintable():
            raise ConfigError(f"{given!r} cannot be a tag: use text without line breaks")
    before: tuple[str, ...] = anyio.run(partial(tag_session, session_id, root_path=stores)) if remove else ()
    now = anyio.run(partial(tag_session, session_id, add=tags or (), remove=remove or (), root_path=stores))
    for missing in sorted({*(remove or ())} - {*before, *(tags or ())}):
        to_stderr(f"{session_id} has no tag {missing!r}")
    if as_json:
        print_json({"session_id": session_id, "tags": list(now)})
    else:
        print_line(f"{session_id}: {', '.join(now) or 'no tags'}")
