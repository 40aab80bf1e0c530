"""Search all sessions, with two processes if that pays, and print in order while the search goes on."""

import multiprocessing
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

import anyio

from ctxfs.cli.grep_output import Form, JsonPrinter, Printer
from ctxfs.cli.lines import to_stderr
from ctxfs.cli.listed import ProgressLine
from ctxfs.cli.output import write
from ctxfs.cli.session import SessionsAt, stores_of
from ctxfs.errors import CtxfsError
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threads import without_threads
from ctxfs.text.steps import CpuBudget
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.query import Query
from ctxfs.tools.search.search import WholeLines
from ctxfs.tools.search.sessions import Problem, search_session

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
