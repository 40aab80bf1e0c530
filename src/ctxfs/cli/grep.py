"""``ctxfs grep``: search everything that sessions hold, in their contexts and out of them."""

from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any

import anyio
import typer

from ctxfs.cli.completion import known_sessions
from ctxfs.cli.grep_all import Search, Shown, grep_all
from ctxfs.cli.grep_output import Form, Printer
from ctxfs.cli.lines import to_stderr
from ctxfs.cli.listed import ProgressLine, listed
from ctxfs.cli.options import Root, Since, StoreUrl
from ctxfs.cli.output import on_terminal, print_json, session_names, text_keys, write
from ctxfs.cli.session import SessionsAt, find_entry, find_session, open_known_session, sessions_at, stores_of
from ctxfs.errors import ConfigError
from ctxfs.eviction.placeholder.lines import plural
from ctxfs.messages.items import ItemType
from ctxfs.session.listing.catalogue import is_listed, seen_sessions
from ctxfs.session.listing.selection import Selection
from ctxfs.text.steps import CpuBudget
from ctxfs.tools.search.query import Query, Row
from ctxfs.tools.search.search import Hit, WholeLines
from ctxfs.tools.search.sessions import Problem, search_held

LARGE_BYTES, MANY_SESSIONS = 20_000_000, 100
"""Searching more than this is worth starting processes."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; with --all, one object per line, like `rg --json`.")]
MaxCount = Annotated[
    int | None, typer.Option("--max-count", "-m", metavar="N", min=1, help="At most N matching lines per item.")
]


def grep(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[SESSION] PATTERN",
            autocompletion=known_sessions,
            help="A session's id, the beginning of one, or 'last' (not with --all). Then an RE2 regular expression.",
        ),
    ],
    *,
    every: Annotated[bool, typer.Option("--all", help="Search all sessions, the newest first.")] = False,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Ignore case.")] = False,
    fixed: Annotated[bool, typer.Option("--fixed-strings", "-F", help="PATTERN is plain text.")] = False,
    word: Annotated[bool, typer.Option("--word-regexp", "-w", help="Match whole words only.")] = False,
    invert: Annotated[bool, typer.Option("--invert-match", "-v", help="Show lines that do not match.")] = False,
    numbers: Annotated[bool, typer.Option("--line-number/--no-line-number", "-n/-N", help="Number the lines.")] = True,
    names: Annotated[bool, typer.Option("--files-with-matches", "-l", help="Show only which items match.")] = False,
    count: Annotated[bool, typer.Option("--count", "-c", help="Show only how many lines of each item match.")] = False,
    max_count: MaxCount = None,
    after: Annotated[int, typer.Option("--after-context", "-A", metavar="N", min=0, help="Show N lines after.")] = 0,
    before: Annotated[int, typer.Option("--before-context", "-B", metavar="N", min=0, help="Show N lines before.")] = 0,
    around: Annotated[
        int, typer.Option("--context", "-C", metavar="N", min=0, help="Show N lines before and after.")
    ] = 0,
    item: Annotated[str | None, typer.Option("--item", metavar="ITEM", help="Search this item only.")] = None,
    types: Annotated[
        list[ItemType] | None,
        typer.Option("--type", "-t", metavar="TYPE", help="Items of this type only, such as tool_result; repeatable."),
    ] = None,
    tools: Annotated[
        list[str] | None,
        typer.Option("--tool", metavar="NAME", help="Results of this tool only; may have * and ?; repeatable."),
    ] = None,
    since: Since = None,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Search everything that a session holds.

    It searches line by line. The exit code is 1 if nothing matches or something is damaged.
    """
    form = Form(names=names, count=count, numbers=numbers)
    _check(arguments, every=every, item=item, since=since, form=form, as_json=as_json)
    query = Query(
        pattern=arguments[-1],
        ignore_case=ignore_case,
        fixed=fixed,
        word=word,
        invert=invert,
        before=before or around,
        after=after or around,
        max_count=1 if names else max_count,
        types=tuple(types or ()),
        tools=tuple(tools or ()),
    )
    query.compiled(CpuBudget(None))  # a wrong pattern is refused before anything is read
    place = sessions_at(root, store)
    if every:
        whole = _grep_all(place, query, since, form=form, as_json=as_json)
    else:
        whole = anyio.run(partial(_grep, place, arguments[0], query, item, form=form, as_json=as_json))
    if not whole:
        raise typer.Exit(1)


def _check(
    arguments: Sequence[str], *, every: bool, item: str | None, since: float | None, form: Form, as_json: bool
) -> None:
    """Raise ``ConfigError`` for options that cannot be combined."""
    if len(arguments) != (1 if every else 2):
        wanted = (
            "a PATTERN, and no SESSION, beside --all" if every else "a SESSION and a PATTERN, or --all and a PATTERN"
        )
        raise ConfigError(f"give grep {wanted}: see `ctxfs grep --help`")
    if as_json and (form.names or form.count):
        raise ConfigError("--json shows every match: leave out --files-with-matches and --count")
    if form.names and form.count:
        raise ConfigError("--files-with-matches and --count print different things: use one of them")
    if every and item is not None:
        raise ConfigError("--item is an item of one session: give that instead of --all")
    if not every and since is not None:
        raise ConfigError("--since chooses among all sessions: it needs --all")


def _grep_all(place: SessionsAt, query: Query, since: float | None, *, form: Form, as_json: bool) -> bool:
    """Print the matches in all sessions; return whether there were any, and whether all could be searched.

    A directory that was never listed is listed after the search, so that matches are there at once. The search opens
    only sessions that can match; the list finds the damage of the others.
    """
    stores = stores_of(place)
    was_listed = stores.directory is not None and anyio.run(is_listed, stores)
    every = listed(stores) if was_listed else anyio.run(seen_sessions, stores)
    selection = Selection(since=since)
    found = selection.of(every, lambda _: False)
    whole = {session.session_id: session.disk_bytes for session in found if not session.is_damaged}
    searching = partial(
        Search,
        stores.directory or stores,
        query,
        form=form,
        as_json=as_json,
        names=session_names(session.session_id for session in every),
    )
    is_much = sum(session.disk_bytes for session in found) > LARGE_BYTES or len(found) > MANY_SESSIONS
    together = stores.directory is not None and is_much and len(found) > 1
    with ProgressLine() as line:
        shown = Shown(line, len(found))
        grep_all(searching(whole=whole), [session.session_id for session in found], shown, together=together)
        if stores.directory is not None and not was_listed:
            damaged = [one for one in selection.of(listed(stores, line), lambda _: False) if one.is_damaged]
            searching().run((session.session_id, shown.put_error) for session in damaged)
    if on_terminal() and not (shown.matched or shown.damaged):
        to_stderr(f"no match in {plural(len(found), 'session')}")
    return shown.matched and not shown.damaged


async def _grep(root: SessionsAt, given: str, query: Query, item: str | None, *, form: Form, as_json: bool) -> bool:
    """Print the matches in one session; return whether there were any, and whether all could be searched."""
    session_id = await find_session(root, given)
    matcher = WholeLines(query, query.compiled(CpuBudget(None)))
    objects: list[dict[str, Any]] = []
    printer = Printer(form)
    damaged = False
    async with open_known_session(root, session_id) as fs:
        only = None if item is None else await find_entry(fs, item)
        async with aclosing(search_held(fs, query, matcher, only=only)) as found:
            async for one in found:
                if isinstance(one, Problem):
                    damaged = True
                    to_stderr(f"ctxfs: {one.text}")
                elif not as_json:
                    write(printer.of(one))
                elif isinstance(one, Hit) and one.line.matches:
                    objects.append(_as_dict(one.item.item_id, one.line))
    if as_json:
        print_json(objects)
    return (bool(objects) or printer.matched) and not damaged


def _as_dict(item_id: str, line: Row) -> dict[str, Any]:
    text = line.text.removesuffix(b"\n")
    return {"item_id": item_id, "line": line.number, **text_keys("text", text)}
