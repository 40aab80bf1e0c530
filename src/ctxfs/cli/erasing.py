"""The command erase: it removes contents for good."""

from functools import partial
from typing import Annotated, Any

import anyio
import typer

from ctxfs.cli.options import AsJson, DryRun, Root, SessionArgument, StoreUrl, Unasked, known_items
from ctxfs.cli.output import confirm, print_columns, print_json, print_line
from ctxfs.cli.session import (
    find_item_ids,
    find_session,
    require_whole_ids,
    require_whole_sessions,
    sessions_at,
    stores_of,
)
from ctxfs.session.cleanup.erasing import Erasure, erase_plan
from ctxfs.session.cleanup.erasing import erase as erase_contents
from ctxfs.text import figures

_NAMED = 4
"""The most items with a quotation that are named."""


def erase(
    session: SessionArgument,
    items: Annotated[
        list[str],
        typer.Argument(
            metavar="ITEM",
            autocompletion=known_items,
            help="The items' ids, as `ctxfs ls` shows them, or the paths of their files; without --yes, beginnings of "
            "ids too.",
        ),
    ],
    *,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="The reason; it is recorded in the session.")
    ] = "for good",
    dry_run: DryRun = False,
    yes: Unasked = False,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Remove contents for good, from archives and history too.

    Removes their files, and every copy in the journal, in placeholders and in digests; lists what else quotes them,
    and what cannot be reached. All other items stay as they are. It asks first. A session that an agent has open is
    refused. After a crash, erase the same items again to finish.
    """
    place = sessions_at(root, store)
    stores, session_id = stores_of(place), anyio.run(find_session, place, session)
    named = items
    items = anyio.run(find_item_ids, place, session_id, named)
    if yes and not dry_run:
        require_whole_sessions([session], [session_id])
        require_whole_ids(named, items)
    plan: Erasure = anyio.run(partial(erase_plan, session_id, items, root_path=stores))
    if not as_json:
        _print(plan)
    if not dry_run:
        if not yes:
            some = "this content" if len(plan.items) == 1 else f"these {len(plan.items):,} contents"
            confirm(f"Erase {some} for good?")
        work = partial(erase_contents, session_id, items, root_path=stores, by="ctxfs erase", reason=reason)
        plan = anyio.run(work)
    if as_json:
        print_json(_as_dict(plan, erased=not dry_run))
    elif not dry_run:
        print_line(f"{len(plan.items):,} erased")


def _print(plan: Erasure) -> None:
    rows = [(item.item_id, figures.size(item.size_bytes), item.reason) for item in plan.items]
    print_columns(["erase", "size", "why"], rows, right=("size",))
    for archive in plan.archives:
        print_line(f"the archive {archive} is written again without it")
    if len(quoting := plan.quoted_in) == 1:
        print_line(f"{quoting[0]} quotes it, and stays: erase that too if it has to go", style="red")
    elif quoting:
        more = f" and {len(quoting) - _NAMED:,} more (--json lists all)" if len(quoting) > _NAMED else ""
        print_line(f"{len(quoting):,} others quote it, and stay: erase them too if they have to go:", style="red")
        print_line(f"  {', '.join(quoting[:_NAMED])}{more}", style="red")
    for name in plan.other_sessions:
        print_line(f"the session {name} shares it, and keeps it: erase it there too", style="red")
    print_line("Not reached:")
    for what in plan.not_reached:
        print_line(f"  {what}")


def _as_dict(plan: Erasure, *, erased: bool) -> dict[str, Any]:
    return {
        "session_id": plan.session_id,
        "items": [
            {"item_id": item.item_id, "name": item.name, "size_bytes": item.size_bytes, "reason": item.reason}
            for item in plan.items
        ],
        "archives": list(plan.archives),
        "quoted_in": list(plan.quoted_in),
        "other_sessions": list(plan.other_sessions),
        "not_reached": list(plan.not_reached),
        "erased": erased,
    }
