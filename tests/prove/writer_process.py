"""A process that contends for a session: ``writer`` writes whenever it gets it, ``reader`` reads on and compares.

    python -m prove.writer_process writer ROOT NAME
    python -m prove.writer_process reader ROOT NAME

What happens is noted in ``ROOT/NAME.log``, a line each. A writer forks in its first turn. They end when there is
``ROOT/stop-writer`` or ``ROOT/stop-reader``.
"""

import os
import sys
import threading
from pathlib import Path

import anyio

from ctxfs.errors import SessionClosed, SessionLocked, SessionNotFound
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import WriterOpened
from ctxfs.storage.local import LocalStore
from session_items import tool_result

SESSION_ID = "session_1"
ITEMS_A_TURN = 25
RETRY_S = 0.003


def content_of(item_id: str) -> str:
    """The content of every item follows from its id."""
    return f"a line of {item_id}\n" * (len(item_id) * 7)


class Process:
    """What both kinds have in common."""

    def __init__(self, kind: str, root: Path, name: str) -> None:
        self.root = root
        self.name = name
        self._stop = root / f"stop-{kind}"
        self._log = os.open(root / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, line: str) -> None:
        os.write(self._log, line.encode() + b"\n")

    @property
    def stopped(self) -> bool:
        return os.path.lexists(self._stop)


async def write(process: Process) -> None:
    forks = True
    while not process.stopped:
        store = LocalStore(process.root / "sessions", SESSION_ID)
        fs = ContextFileSystem(SESSION_ID, root_path=process.root / "sessions", store=store, inline_limit_chars=200)
        try:
            await fs.open()
        except SessionLocked:
            await anyio.sleep(RETRY_S)
            continue
        epoch = max(record.epoch for record in await fs.history() if isinstance(record, WriterOpened))
        process.note(f"opened {epoch}")
        for number in range(ITEMS_A_TURN):
            if forks and number == 5:
                fork(process, store)
                forks = False
            raw_id = f"{process.name}-{epoch}-{number}"
            item = tool_result(fs, content_of(raw_id), raw_id)
            await fs.writer.add([item])
            process.note(f"ack {item.id}")
        process.note(f"closing {epoch}")
        await fs.close()
        await anyio.sleep(RETRY_S)


def fork(process: Process, store: LocalStore) -> None:
    """A child has the parent's handles and lock, and must neither write nor give the lock away."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:  # in a thread of its own: the event loop of this one is the parent's
        thread = threading.Thread(target=use_in_child, args=(process, store))
        thread.start()
        thread.join()
    finally:
        os._exit(0)


def use_in_child(process: Process, store: LocalStore) -> None:
    try:
        store.commit([], lambda: b"of the child\n")
        process.note("wrong: a fork wrote")
    except SessionClosed:
        store.close()
        process.note("fork refused")


async def read(process: Process) -> None:
    seen: set[str] = set()
    fs = ContextFileSystem(SESSION_ID, root_path=process.root / "sessions", read_only=True)
    while not process.stopped:
        try:
            await fs.open(create=False)
            break
        except SessionNotFound:
            await anyio.sleep(RETRY_S)
    while True:
        last = process.stopped
        await fs.refresh()
        there = {item.id: item for item in await fs.items(load=False)}
        if not seen <= there.keys():
            process.note(f"wrong: {sorted(seen - there.keys())[:3]} disappeared")
        for item_id in there.keys() - seen:
            if item_id in fs.state.stored and await fs.load(item_id) != content_of(item_id):
                process.note(f"wrong: {item_id} reads differently")
        seen |= there.keys()
        process.note(f"seen {len(seen)}")
        if last:
            break
        await anyio.sleep(RETRY_S)
    await fs.close()


def main() -> None:
    kind, root, name = sys.argv[1:]
    anyio.run(write if kind == "writer" else read, Process(kind, Path(root), name))


if __name__ == "__main__":
    main()
