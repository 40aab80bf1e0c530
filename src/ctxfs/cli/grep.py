"""``ctxfs grep``: search everything that sessions hold, in their contexts and out of them.

All sessions are searched with two processes if that pays, and printed in order while the search goes on.
"""

import multiprocessing
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Annotated, Any, Literal

import anyio
import typer

from ctxfs.cli.grep_output import Form, JsonPrinter, Printer
from ctxfs.cli.lines import to_stderr
from ctxfs.cli.listed import ProgressLine, listed
from ctxfs.cli.options import Root, Since, StoreUrl, known_sessions
from ctxfs.cli.output import on_terminal, print_json, session_names, text_keys, write
from ctxfs.cli.session import SessionsAt, find_entry, find_session, open_known_session, sessions_at, stores_of
from ctxfs.errors import ConfigError, CtxfsError
from ctxfs.eviction.placeholder.lines import plural
from ctxfs.messages.items import ItemType
from ctxfs.session.listing.catalogue import is_listed, seen_sessions
from ctxfs.session.listing.summary import Selection
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threads import without_threads
from ctxfs.text.steps import CpuBudget
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.search import Hit, Query, Row, WholeLines
from ctxfs.tools.search.sessions import Problem, search_held, search_session

PROCESSES = 2
_PIECE_BYTES = 65_536
"""How much a process sends at a time, in bytes."""
_AHEAD_BYTES = 8_000_000
"""About how much is kept, at most, for sessions whose turn to be printed has not come."""

_Kind = Literal["text", "error", "matched", "end"]
_Piece = tuple[_Kind, bytes]
_Put = Callable[[_Kind, bytes], None]
"""Takes the next piece of a session's output, and finally its end."""


class Shown:
    """Prints what is found, and how far the search is; remembers whether anything was found, and what is damaged."""

    def __init__(self, line: ProgressLine, sessions: int) -> None:
        self._line = line
        self._sessions = sessions
        self._searched = 0
        self._errors = set[bytes]()
        self.matched = False

    @property
    def damaged(self) -> bool:
        """Whether something could not be searched."""
        return bool(self._errors)

    def put(self, kind: _Kind, data: bytes) -> None:
        """Print a piece."""
        if kind == "text" and data:
            self._line.hide()
            write(data)
        elif kind == "error":
            self.put_error(kind, data)
        elif kind == "end":
            self._searched += 1
            self._line.show("searching", self._searched, self._sessions)
        self.matched |= kind == "matched"

    def put_error(self, kind: _Kind, data: bytes) -> None:
        """Print an error that was not printed before, and nothing else."""
        if kind == "error" and data not in self._errors:
            self._errors.add(data)
            self._line.hide()
            sys.stdout.flush()
            to_stderr(f"ctxfs: {data.decode('utf-8', 'replace')}")


class Search:
    """What to do with each session. If sessions are in a directory, other processes get a copy of this."""

    def __init__(
        self,
        place: SessionsAt,
        query: Query,
        *,
        form: Form,
        as_json: bool,
        names: Mapping[str, str] | None = None,
        whole: Mapping[str, int] | None = None,
    ) -> None:
        """``names``: how lines of text name a session, if not by its id.

        ``whole``: the size in bytes of each session that was not damaged when last read; all others are opened.
        """
        self._place = place
        self._query = query
        self._form = form
        self._as_json = as_json
        self._names = names or {}
        self._whole = whole or {}

    def run(self, sessions: Iterable[tuple[str, _Put]]) -> None:
        """Search sessions, and emit what is to be printed for each."""
        with without_threads():
            anyio.run(self._run_all, sessions)

    async def _run_all(self, sessions: Iterable[tuple[str, _Put]]) -> None:
        stores = stores_of(self._place)
        pattern = self._query.compiled(CpuBudget(None))
        for session_id, put in sessions:
            async with aclosing(self._pieces(stores, session_id, pattern)) as pieces:
                async for kind, data in pieces:
                    put(kind, data)
            put("end", b"")

    async def _pieces(
        self, stores: SessionStores, session_id: str, pattern: LinePattern
    ) -> AsyncGenerator[_Piece, None]:
        """What is to be printed of a session, also what is wrong with it."""
        printer: Printer | JsonPrinter = Printer(self._form, self._names.get(session_id, session_id))
        if self._as_json:
            printer = JsonPrinter(self._query, pattern, session_id)
        matcher = WholeLines(self._query, pattern)
        found = search_session(stores, session_id, self._query, matcher, disk_bytes=self._whole.get(session_id))
        printed = bytearray()
        async with aclosing(found):
            async for one in found:
                if isinstance(one, Problem):
                    yield "error", one.text.encode("utf-8", "replace")
                    continue
                printed += printer.of(one)
                if len(printed) >= _PIECE_BYTES:
                    yield "text", bytes(printed)
                    printed.clear()
        yield "text", bytes(printed)
        if printer.matched:
            yield "matched", b""


def grep_all(search: Search, session_ids: Sequence[str], shown: Shown, *, together: bool) -> None:
    """Search these sessions and print matches in order.

    ``together``: with ``PROCESSES`` processes, which take a second to start.
    """
    if together:
        _on_processes(search, session_ids, shown)
    else:
        search.run((session_id, shown.put) for session_id in session_ids)


def _on_processes(search: Search, session_ids: Sequence[str], shown: Shown) -> None:
    with _workers(search, session_ids) as connections:
        waiting: dict[int, list[tuple[_Kind, bytes]]] = defaultdict(list)
        ahead = 0
        for position in range(len(session_ids)):
            ended = False
            while True:
                for kind, data in waiting.pop(position, []):
                    ahead -= len(data)
                    shown.put(kind, data)
                    ended |= kind == "end"
                if ended:
                    break
                # Once enough is kept, a worker that is ahead waits for its turn: nothing is read from its full pipe.
                heard = [c for c in connections if ahead < _AHEAD_BYTES or connections[c] <= position]
                for connection in wait(heard):
                    assert isinstance(connection, Connection)
                    place, kind, data = _received(connection)
                    connections[connection] = place + (kind == "end")
                    waiting[place].append((kind, data))
                    ahead += len(data)


def _received(connection: Connection) -> tuple[int, _Kind, bytes]:
    try:
        piece: tuple[int, _Kind, bytes] = connection.recv()
    except EOFError:
        raise CtxfsError("a search process was killed: try again, or search fewer sessions with --since") from None
    return piece


@contextmanager
def _workers(search: Search, session_ids: Sequence[str]) -> Iterator[dict[Connection, int]]:
    """Start the processes; return, by connection, the first session for which data may still come."""
    context = multiprocessing.get_context("spawn")  # forking a program that has threads is not safe
    taken = context.Value("q", 0)
    connections: dict[Connection, int] = {}
    processes = []
    try:
        for _ in range(PROCESSES):
            receive, send = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(search, list(session_ids), taken, send), daemon=True)
            process.start()
            send.close()
            processes.append(process)
            connections[receive] = 0
        yield connections
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
        for receive in connections:
            receive.close()


def _work(search: Search, session_ids: Sequence[str], taken: Any, send: Connection) -> None:
    """Worker: search the next session that no other worker has taken, until there is none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one
    search.run(_taken(session_ids, taken, send))
    signal.pause()  # until it is killed: a connection that closes means that its process died


def _taken(session_ids: Sequence[str], taken: Any, send: Connection) -> Iterator[tuple[str, _Put]]:
    """Yield the sessions that this worker takes, each when it is asked for the next one."""
    while (position := _next(taken)) < len(session_ids):

        def put(kind: _Kind, data: bytes, at: int = position) -> None:
            send.send((at, kind, data))

        yield session_ids[position], put


def _next(taken: Any) -> int:
    with taken.get_lock():
        taken.value += 1
        return int(taken.value) - 1


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
