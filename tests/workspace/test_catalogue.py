"""The catalogue: derived, rebuildable and never the truth; whatever happens to it costs time and nothing else."""

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.errors import ConfigError
from ctxfs.messages import CharsCounter
from ctxfs.messages.names import ENVELOPE
from ctxfs.session import export_session, import_session
from ctxfs.session.derived import DERIVED_NAME, Derived
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage import LocalSessions
from ctxfs.storage.local import remove_session
from ctxfs.storage.threads import run_to_completion
from ctxfs.tools import Artifact, ArtifactInfo, KnowledgeService
from ctxfs.tools.workspace.catalogue import Catalogue, OpenSessions

pytestmark = pytest.mark.anyio


def artifact(session_id: str, number: int, content: str = "text\n", **metadata: object) -> Artifact:
    return Artifact(
        artifact_id=f"call_{number}",
        content=content,
        metadata={"session_id": session_id, "task_id": f"task_{number % 3}", "tool_name": f"t{number % 2}", **metadata},
    )


async def fill(root: Path, sessions: int = 3, artifacts: int = 5) -> None:
    async with KnowledgeService(root) as service:
        for session in range(sessions):
            await service.add_knowledge_list([artifact(f"s{session}", number) for number in range(artifacts)])


async def everything(root: Path) -> list[ArtifactInfo]:
    async with KnowledgeService(root, counter=CharsCounter()) as service:
        return list(await service.query_artifacts(limit=None))


def names_in(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_it_lies_outside_the_sessions_for_the_owner_alone(tmp_path: Path) -> None:
    await fill(tmp_path)
    before = [names_in(tmp_path / f"s{number}") for number in range(3)]
    old = os.umask(0)
    try:
        assert len(await everything(tmp_path)) == 15
    finally:
        os.umask(old)
    assert mode(tmp_path / DERIVED_NAME) == 0o600
    assert [names_in(tmp_path / f"s{number}") for number in range(3)] == before


async def test_what_others_could_read_becomes_the_owners(tmp_path: Path) -> None:
    await fill(tmp_path)
    await everything(tmp_path)
    (tmp_path / DERIVED_NAME).chmod(0o644)
    await everything(tmp_path)
    assert mode(tmp_path / DERIVED_NAME) == 0o600


def deleted(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def overwritten(path: Path) -> None:
    path.write_bytes(b"not a database" * 1_000)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def of_another_version(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()


def with_lost_rows(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM artifacts WHERE artifact_id = 'call_2'")
    db.close()


def with_changed_rows(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE artifacts SET tool_name = 'forged'")
    db.close()


def with_added_rows(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute(
            "INSERT INTO artifacts SELECT session_id || 'x', position, artifact_id, raw_id, context_type, biz_id,"
            " agent_id, task_id, tool_name, action_name, artifact_type, crc FROM artifacts"
        )
    db.close()


def with_changed_sessions(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE sessions SET stamp = stamp || '1'")
    db.close()


def with_wrong_numbers(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("""UPDATE sessions SET read = replace(read, ',', ',5')""")
    db.close()


def with_a_changed_index(path: Path) -> None:
    """Change the key of one artifact where it is looked up, and nowhere else."""
    with sqlite3.connect(path) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'by_biz_id'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    db.close()
    data = bytearray(path.read_bytes())
    page = slice((root - 1) * size, root * size)
    assert b"call_2" in data[page]
    data[page] = data[page].replace(b"call_2", b"call_9")
    path.write_bytes(data)


def a_link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: list[Callable[[Path], None]] = [
    *(deleted, emptied, overwritten, truncated, of_another_version, a_link, a_directory),
    *(with_lost_rows, with_changed_rows, with_added_rows, with_changed_sessions, with_wrong_numbers),
    with_a_changed_index,
]


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_changes_nothing_but_time(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    await fill(tmp_path)
    before = await everything(tmp_path)
    damage(tmp_path / DERIVED_NAME)
    async with KnowledgeService(tmp_path) as service:
        assert (await service.query_artifacts({"biz_id": "call_2"})).total == 3
        assert list(await service.query_artifacts({"tool_name": "t1"})) == [i for i in before if i.tool_name == "t1"]
        assert list(await service.query_artifacts({"task_id": "task_1"})) == [
            i for i in before if i.task_id == "task_1"
        ]
        assert list(await service.query_artifacts()) == before
        await service.add_knowledge_list([artifact("s1", 77)])
        assert (await service.query_artifacts({"biz_id": "call_77"})).total == 1


async def test_a_session_that_the_catalogue_forgot_to_list(tmp_path: Path) -> None:
    await fill(tmp_path)
    before = await everything(tmp_path)
    forget(tmp_path / DERIVED_NAME, "s2")
    await remove_session(tmp_path, "s2")
    assert await everything(tmp_path) == [info for info in before if info.session_id != "s2"]


def forget(path: Path, session_id: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))
    db.close()


@pytest.mark.parametrize("damage", [deleted, overwritten, truncated, emptied])
async def test_damage_while_it_is_open(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    await fill(tmp_path)
    async with KnowledgeService(tmp_path) as service:
        before = list(await service.query_artifacts())
        damage(tmp_path / DERIVED_NAME)
        await service.add_knowledge_list([artifact("s9", 0)])
        after = list(await service.query_artifacts())
        assert after[:-1] == before
        assert after[-1].session_id == "s9"


@pytest.mark.slow
@given(position=st.integers(0, 100_000), data=st.binary(min_size=1, max_size=64))
async def test_random_damage(position: int, data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("root")
    await fill(root, sessions=2, artifacts=2)
    before = await everything(root)
    file = root / DERIVED_NAME
    overwrite(file, position, data)
    assert await everything(root) == before
    async with KnowledgeService(root) as service:
        assert list(await service.query_artifacts({"task_id": "task_1"})) == [
            i for i in before if i.task_id == "task_1"
        ]


def overwrite(file: Path, position: int, data: bytes) -> None:
    old = bytearray(file.read_bytes())
    position %= len(old)
    old[position : position + len(data)] = data
    file.write_bytes(old)


async def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    await fill(tmp_path)
    before = await everything(tmp_path)
    deleted(tmp_path / DERIVED_NAME)
    a_directory_at(tmp_path / DERIVED_NAME)
    assert await everything(tmp_path) == before


def a_directory_at(path: Path) -> None:
    (path / "full").mkdir(parents=True)


async def test_a_root_that_is_not_there_yet(tmp_path: Path) -> None:
    async with KnowledgeService(tmp_path / "root") as service:
        assert list(await service.query_artifacts()) == []
        assert names_in(tmp_path) == [], "asking makes nothing"
        await service.add_knowledge_list([artifact("s1", 1)])
        assert len(await service.query_artifacts()) == 1
        assert DERIVED_NAME in names_in(tmp_path / "root")


# ---- it follows the sessions


async def test_what_another_process_stores_is_seen(tmp_path: Path) -> None:
    async with KnowledgeService(tmp_path) as service, KnowledgeService(tmp_path) as other:
        assert len(await service.query_artifacts()) == 0
        for number in range(50):
            await other.add_knowledge_list([artifact("s1", number)])
            assert (await service.query_artifacts()).total == number + 1
            assert (await service.query_artifacts({"session_id": "s1", "biz_id": f"call_{number}"})).total == 1


async def test_several_processes_ask_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def ask(service: KnowledgeService) -> None:
        for _ in range(10):
            total = (await service.query_artifacts()).total
            assert (await service.query_artifacts()).total >= total

    async with KnowledgeService(tmp_path) as writer, AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        await writer.add_knowledge_list([artifact("s1", 0)])
        for _ in range(3):
            tasks.start_soon(ask, await stack.enter_async_context(KnowledgeService(tmp_path)))
        for number in range(1, 40):
            await writer.add_knowledge_list([artifact("s1", number)])
    assert len(await everything(tmp_path)) == 40
    assert [record.getMessage() for record in caplog.records] == [], "nothing was made again"


class Watched(Catalogue):
    """A catalogue that says what it reads of the journals."""

    def __init__(self, root: Path) -> None:
        stores = LocalSessions(root)
        super().__init__(stores, OpenSessions(stores, layout=ENVELOPE, limit=1))
        self.reads: list[tuple[str, int]] = []
        self.derived = Derived(root / DERIVED_NAME, self)

    async def _journal(self, session_id: str, offset: int) -> bytes:
        self.reads.append((session_id, offset))
        return await super()._journal(session_id, offset)

    async def look(self) -> list[tuple[str, int]]:
        self.reads.clear()
        await self.derived.ask(lambda db, known: None)
        return sorted(self.reads)


async def test_only_what_is_new_is_read(tmp_path: Path) -> None:
    await fill(tmp_path, sessions=2)
    catalogue = Watched(tmp_path)
    assert await catalogue.look() == [("s0", 0), ("s1", 0)]
    assert await catalogue.look() == []
    async with KnowledgeService(tmp_path) as service:
        await service.add_knowledge_list([artifact("s1", number, "x" * 100) for number in range(10, 40)])
    assert [session for session, _ in await catalogue.look()] == ["s1"]
    async with KnowledgeService(tmp_path) as service:
        await service.add_knowledge_list([artifact("s1", 50)])
    ((session, offset),) = await catalogue.look()
    assert session == "s1"
    assert offset > 0, "from where it stopped, not from the beginning"
    found = await catalogue.derived.ask(lambda db, _: catalogue.query(db, {}, limit=None, offset=0))
    assert found.total == 41
    await run_to_completion(catalogue.derived.close)


async def test_a_removed_session_is_gone(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with KnowledgeService(tmp_path) as service:
        assert (await service.query_artifacts()).total == 15
        await remove_session(tmp_path, "s1")
        assert (await service.query_artifacts()).total == 10
        assert (await service.query_artifacts({"session_id": "s1"})).total == 0


async def test_another_session_under_the_same_id(tmp_path: Path) -> None:
    await fill(tmp_path, sessions=2)
    await export_session("s1", tmp_path / "file", root_path=tmp_path)
    async with KnowledgeService(tmp_path) as service:
        assert (await service.query_artifacts({"session_id": "s0"})).total == 5
        await remove_session(tmp_path, "s0")
        async with KnowledgeService(tmp_path) as other:
            await other.add_knowledge_list([artifact("s0", number, "other") for number in range(70, 90)])
        found = await service.query_artifacts({"session_id": "s0"})
        assert {info.artifact_id for info in found} == {f"call_{number}" for number in range(70, 90)}
        await import_session(tmp_path / "file", root_path=tmp_path, session_id="s2")
        imported = await service.query_artifacts({"session_id": "s2"})
        assert imported.total == 5
        assert (await service.get_knowledge_by_id("call_1", session_id="s2")).metadata["session_id"] == "s2"


async def test_a_torn_line_is_not_taken_in_before_it_is_whole(tmp_path: Path) -> None:
    await fill(tmp_path, sessions=1)
    journal = tmp_path / "s0" / "journal.jsonl"
    whole = read(journal)
    write(journal, whole[:-100])
    async with KnowledgeService(tmp_path) as service:
        torn = (await service.query_artifacts()).total
        write(journal, whole)
        assert (await service.query_artifacts()).total >= torn
        assert (await service.query_artifacts()).total == 5


def read(path: Path) -> bytes:
    return path.read_bytes()


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


async def test_a_lost_journal(tmp_path: Path) -> None:
    await fill(tmp_path, sessions=2)
    before = await everything(tmp_path)
    deleted(tmp_path / "s1" / "journal.jsonl")
    assert {i.artifact_id for i in await everything(tmp_path)} == {i.artifact_id for i in before}
    async with ContextFileSystem("s1", root_path=tmp_path):
        pass
    assert {i.artifact_id for i in await everything(tmp_path)} == {i.artifact_id for i in before}


async def test_what_is_no_session_is_left_out(tmp_path: Path) -> None:
    await fill(tmp_path / "root", sessions=1)
    await fill(tmp_path / "elsewhere", sessions=1)
    litter(tmp_path)
    assert {info.session_id for info in await everything(tmp_path / "root")} == {"s0"}


def litter(root: Path) -> None:
    (root / "root" / "linked").symlink_to(root / "elsewhere" / "s0")
    (root / "root" / "a file").write_bytes(b"x")
    (root / "root" / "empty").mkdir()
    (root / "root" / ".hidden").mkdir()
    (root / "root" / ".hidden" / "journal.jsonl").write_bytes(b"{}\n")


# ---- asking


async def test_filters_narrow_down(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with KnowledgeService(tmp_path) as service:
        await service.add_knowledge_list([artifact("s9", 1, color="red", levels=[1, 2])])

        async def total(**search_filter: object) -> int:
            return (await service.query_artifacts(search_filter)).total

        assert await total() == 16
        assert await total(tool_name="t1") == 7
        assert await total(tool_name="t1", session_id="s1") == 2
        assert await total(tool_name="t1", session_id="s1", task_id="task_0") == 1
        assert await total(artifact_id="call_4") == 3
        assert await total(agent_id=None) == 16
        assert await total(color="red") == 1
        assert await total(levels=[1, 2]) == 1
        assert await total(color="blue") == 0
        assert await total(color=None) == 15
        assert await total(tool_name="t1' OR 1=1 --") == 0
        assert await total(**{"x' OR 1=1 --": "y"}) == 0
        assert await total(tool_name="\ud800") == 0
        assert await total(**{"\ud800": "y", "a\0b": None}) == 0
        assert await total(**{f"x{number}": None for number in range(100)}) == 16


@pytest.mark.parametrize(
    "search_filter",
    [
        {"biz_id": 7},
        {"task_id": ["a"]},
        {"session_id": "../x"},
        {5: "x"},
        {"color": {1, 2}},
        {f"x{number}": None for number in range(101)},
        "x",
        "",
        ["x"],
        0,
    ],
    ids=range(10),
)
async def test_filters_that_cannot_be(tmp_path: Path, search_filter: Any) -> None:
    async with KnowledgeService(tmp_path) as service:
        with pytest.raises(ConfigError):
            await service.query_artifacts(search_filter)


@pytest.mark.parametrize("number", [-1, 1.5, "1", 2**62 + 1, 10**30])
@pytest.mark.parametrize("setting", ["limit", "offset"])
async def test_pages_that_cannot_be(
    tmp_path: Path, setting: str, number: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(tmp_path, sessions=1)
    async with KnowledgeService(tmp_path) as service:
        with pytest.raises(ConfigError, match=setting):
            await service.query_artifacts(**{setting: number})
        assert (await service.query_artifacts(limit=2**62)).total == 5
        assert len(await service.query_artifacts(offset=2**62)) == 0
    assert not caplog.records, "the catalogue stays"


async def test_pages(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with KnowledgeService(tmp_path) as service:
        whole = list(await service.query_artifacts())
        pages = [await service.query_artifacts(limit=4, offset=offset) for offset in range(0, 16, 4)]
        assert [info for page in pages for info in page] == whole
        assert {page.total for page in pages} == {15}
        assert [(i.session_id, i.artifact_id) for i in whole[4:6]] == [("s0", "call_4"), ("s1", "call_0")]
