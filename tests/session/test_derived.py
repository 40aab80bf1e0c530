"""What is derived from the sessions of a place: of one file, whoever writes it, and nothing of what was erased."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from ctxfs import Context
from ctxfs.messages.messages import UserMessage
from ctxfs.session import erase
from ctxfs.session.derived import DERIVED_NAME, Derived, Known, Reading
from ctxfs.session.listing.catalogue import list_summaries
from ctxfs.storage import LocalSessions
from ctxfs.storage.threads import run_to_completion
from ctxfs.tools import Artifact, KnowledgeService

pytestmark = [pytest.mark.anyio, pytest.mark.not_measured]


SECRET = "secret-4711"


def files_with(root: Path, text: str) -> list[str]:
    """The files of ours beside the sessions that have a text."""
    return [path.name for path in root.iterdir() if path.is_file() and text.encode() in path.read_bytes()]


class Numbers:
    """A kind of which each name's stamp and reading is given by a test; it notes what is read."""

    name = "numbers"
    tables = ()

    def __init__(self, **stamps: str) -> None:
        self.now = dict(stamps)
        self.read_names: list[str] = []
        self.meanwhile: list[Derived] = []

    async def stamps(self, known: Mapping[str, Known], session_id: str | None) -> dict[str, str]:
        return {name: stamp for name, stamp in self.now.items() if session_id in (None, name)}

    async def read(
        self, changed: Mapping[str, str], known: Mapping[str, Known], db: sqlite3.Connection
    ) -> Mapping[str, Reading | None]:
        self.read_names += changed
        made = {name: Reading(Known.of(stamp, int(stamp))) for name, stamp in changed.items()}
        for other in self.meanwhile:
            await other.ask(lambda db, known: None)
        self.meanwhile = []
        return made

    def write(self, db: sqlite3.Connection, session_id: str, reading: Reading | None) -> None:
        pass

    def check(self, db: sqlite3.Connection, known: Mapping[str, Known]) -> None:
        pass


def numbers(_: sqlite3.Connection, known: Mapping[str, Known]) -> dict[str, int]:
    return {name: one.data for name, one in known.items()}


async def test_what_changed_is_read_again_and_what_is_gone_is_forgotten(tmp_path: Path) -> None:
    kind = Numbers(a="1", b="2")
    derived = Derived(tmp_path / "file", kind)
    assert await derived.ask(numbers) == {"a": 1, "b": 2}
    kind.now = {"b": "3", "c": "4"}
    kind.read_names.clear()
    assert await derived.ask(numbers, session_id="c") == {"c": 4}
    assert await derived.ask(numbers) == {"b": 3, "c": 4}
    assert kind.read_names == ["c", "b"]
    derived.close()


async def test_what_another_process_wrote_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    kind = Numbers(a="1")
    newer = Numbers(a="2")
    derived, other = Derived(tmp_path / "file", kind), Derived(tmp_path / "file", newer)
    kind.meanwhile = [other]
    await derived.ask(numbers)
    assert kind.read_names == ["a", "a"], "it looked again"
    derived.close()
    other.close()


async def test_a_file_that_others_write_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctxfs.storage.database._LOCK_WAIT_S", 0.0)
    derived = Derived(tmp_path / "file", Numbers(a="1"))
    await derived.ask(numbers)
    derived.close()
    with sqlite3.connect(tmp_path / "file", isolation_level=None) as db:
        db.execute("BEGIN IMMEDIATE")
        again = Derived(tmp_path / "file", Numbers(a="7"))
        assert await again.ask(numbers) == {"a": 7}, "in memory"
        again.close()
        db.execute("ROLLBACK")
    db.close()
    with sqlite3.connect(tmp_path / "file") as db:
        assert db.execute("SELECT read FROM sessions").fetchall() == [("1",)]
    db.close()


async def test_the_list_and_the_workspace_share_the_file(tmp_path: Path) -> None:
    async with KnowledgeService(tmp_path) as service:
        await service.add_knowledge_list([Artifact(artifact_id="c1", content="text", metadata={"session_id": "s"})])
        assert [one.session_id for one in await list_summaries(LocalSessions(tmp_path))] == ["s"]
        assert (await service.query_artifacts()).total == 1
        assert [one.session_id for one in await list_summaries(LocalSessions(tmp_path))] == ["s"]
    assert await run_to_completion(lambda: files_with(tmp_path, "SQLite")) == [DERIVED_NAME]


@pytest.mark.parametrize("is_open", [False, True])
async def test_nothing_of_what_was_erased_stays_in_the_file(tmp_path: Path, *, is_open: bool) -> None:
    for name in ("s", "t"):
        async with Context(name, root_path=tmp_path, window=None) as context:
            await context.add(UserMessage("hello"))
    async with KnowledgeService(tmp_path) as service:
        metadata = {"session_id": "s", "owner": SECRET}
        await service.add_knowledge_list([Artifact(artifact_id=SECRET, content="text\n" * 500, metadata=metadata)])
    async with KnowledgeService(tmp_path) as service:
        assert (await service.query_artifacts()).total == 1
        if not is_open:
            await service.close()
        await list_summaries(LocalSessions(tmp_path))
        assert await run_to_completion(lambda: files_with(tmp_path, SECRET))
        await erase("s", [SECRET], root_path=tmp_path)
        assert not await run_to_completion(lambda: files_with(tmp_path, SECRET))
    assert len(await list_summaries(LocalSessions(tmp_path))) == 2


def test_many_processes_list_and_ask_at_once(tmp_path: Path) -> None:
    """Threads with connections of their own, as processes have them."""

    async def both() -> None:
        async with KnowledgeService(tmp_path) as service:
            await service.add_knowledge_list([Artifact(artifact_id="c1", content="text", metadata={"session_id": "s"})])

        async def lists() -> None:
            for _ in range(5):
                assert len(await list_summaries(LocalSessions(tmp_path))) == 1

        async def asks() -> None:
            async with KnowledgeService(tmp_path) as service:
                for _ in range(5):
                    assert (await service.query_artifacts()).total == 1

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(lists)
                tasks.start_soon(asks)

    anyio.run(both)
