"""Commands that change a session that nobody has open: restore, undo, pin and fork."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import anyio
import typer

from ctxfs.cli.options import AsJson, ItemArgument, Root, SessionArgument, StoreUrl
from ctxfs.cli.output import print_json, print_line
from ctxfs.cli.session import SessionsAt, find_session, item_ids_in, open_session, sessions_at, stores_of
from ctxfs.session.records import Pinned, Record
from ctxfs.session.timeline.back import Back, pinned, restored, undone, unpinned
from ctxfs.session.timeline.bring_back import change_session
from ctxfs.session.timeline.fork import Forked, fork_session

Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="The reason; it is recorded, and `ctxfs explain` shows it.")
]


def restore(
    session: SessionArgument,
    item: ItemArgument,
    *,
    reason: Reason = "",
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Bring an evicted content back into the context.

    An agent has it when it next opens the session. It stays for ten replies of the model. A session that an agent has
    open now is refused.
    """
    decide = partial(restored, reason=reason)
    work = partial(_change, item=item, as_json=as_json, fits=False)
    anyio.run(work, sessions_at(root, store), session, decide)


def undo(
    session: SessionArgument,
    change: Annotated[
        str | None,
        typer.Argument(
            metavar="CHANGE", help="The id that `ctxfs explain SESSION --changes` shows; the last one if left out."
        ),
    ] = None,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Undo an eviction, a compaction or a summary.

    Without CHANGE, the last one. Call it again to undo the change before. If the context would no longer fit its
    window, nothing is undone.
    """
    work = partial(_change, item=None, as_json=as_json, fits=True)
    anyio.run(work, sessions_at(root, store), session, lambda records, _: undone(records, change))


def pin(
    session: SessionArgument,
    item: ItemArgument,
    *,
    off: Annotated[bool, typer.Option("--off", help="Let it be evicted again like any other.")] = False,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Keep an item in the context, whatever the rules.

    An evicted one comes back.
    """
    decide = unpinned if off else pinned
    work = partial(_change, item=item, as_json=as_json, fits=True)
    anyio.run(work, sessions_at(root, store), session, decide)


def fork(
    session: SessionArgument,
    *,
    call: Annotated[
        int | None,
        typer.Option(
            "--call", metavar="N", min=1, help="Continue from the request of call N; from the end if left out."
        ),
    ] = None,
    new_id: Annotated[str | None, typer.Option("--as", metavar="ID", help="The id of the new session.")] = None,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Continue from an earlier call, in a session of its own.

    Both sessions share their files. The first may be in use.
    """
    anyio.run(_fork, sessions_at(root, store), session, call, new_id, as_json)


async def _fork(place: SessionsAt, session: str, call: int | None, new_id: str | None, as_json: bool) -> None:
    made = await fork_session(await find_session(place, session), at=call, new_id=new_id, root_path=stores_of(place))
    if as_json:
        keys: dict[str, Any] = {"session_id": made.session_id, "path": None if made.path is None else str(made.path)}
        print_json(keys | {"call": made.call, "shared": made.shared, "copied": made.copied, "gone": made.gone})
        return
    print_line(f"{made.session_id}: continues at call {made.call}; {_files(made)}")


def _files(made: Forked) -> str:
    copied = f", {made.copied:,} copied" if made.copied else ""
    gone = f"; {made.gone:,} have been removed since" if made.gone else ""
    return f"{made.shared:,} {'file is' if made.shared == 1 else 'files are'} shared{copied}{gone}"


async def _change(
    place: SessionsAt,
    session: str,
    decide: Callable[[Sequence[Record], str], Back],
    *,
    item: str | None,
    as_json: bool,
    fits: bool,
) -> None:
    """Change what is recorded of the item that ``item`` names; None: of the session."""
    async with open_session(place, session, with_history=True) as reader:
        item_id = "" if item is None else (await item_ids_in(reader, [item]))[0]
        back, now = await change_session(reader, lambda records: decide(records, item_id), fits=fits)
    if as_json:
        print_json({"change": back.change, "item_ids": list(back.item_ids), "tokens": now + back.tokens})
        return
    for item_id in back.item_ids:
        print_line(f"{item_id} is back")
    if not back:
        print_line("nothing to do: it is already so")
    elif back.change is not None:
        print_line(f"{back.change} is undone")
    for record in back.records:
        if isinstance(record, Pinned):
            state = "is pinned" if record.pinned else "is no longer pinned"
            print_line(f"{', '.join(record.item_ids)} {state}")
    print_line(f"the context holds {now + back.tokens:,} tokens")
