"""Copies of a session in two places: there and back, byte for byte."""

import json
import shutil
from pathlib import Path

import pytest

from ctxfs import Agent, AgentConfig, ContextFileSystem, tool
from ctxfs.cli.app import run
from ctxfs.errors import CtxfsError, SessionDiverged, SessionNotFound
from ctxfs.messages import ToolCall
from ctxfs.session import copy_session
from ctxfs.storage import LocalSessions, SessionStores
from ctxfs.storage.memory import MemorySessions
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.stores import ObjectSessions
from ctxfs.testing import ScriptedModel
from ctxfs.testing.scripted import Turn
from failing_fs import FailingFileSystem, as_port
from storage.buckets import MemoryBucket

pytestmark = pytest.mark.anyio


@tool("Look", ephemeral=1)
def look(place: str) -> str:
    return place + "".join(f" row {n}\n" for n in range(9_000))


async def converse(stores: SessionStores, *places: str) -> None:
    turns: list[Turn] = [*([ToolCall("look", {"place": place})] for place in places), "done"]
    config = AgentConfig(offload_root_path=stores, session_id="s1", tools=[look], pricing=None)
    async with Agent(ScriptedModel(turns), config) as agent:
        await agent.query("Look")


async def held(stores: SessionStores) -> dict[str, bytes]:
    """All that a session has, but its index, which a bucket does without."""
    store = ThreadedStore(stores.store("s1"))
    await store.open(create=False, write=False)
    names = [name for name in await store.names() if name != "index.json"]
    found = {name: await store.read(name) for name in names} | {"": await store.read_log()}
    await store.close()
    return found


@pytest.fixture(params=["bucket", "memory", "directory"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> SessionStores:
    if request.param == "bucket":
        return ObjectSessions(MemoryBucket(), url="s3://test")
    return MemorySessions() if request.param == "memory" else LocalSessions(tmp_path / "there")


async def test_there_and_back_it_is_the_same_byte_for_byte(tmp_path: Path, there: SessionStores) -> None:
    here, back = LocalSessions(tmp_path / "here"), LocalSessions(tmp_path / "back")
    await converse(here, "a", "b", "c")
    first = await copy_session("s1", here, there)
    assert first.files > 0
    assert await held(there) == await held(here)
    assert (await copy_session("s1", here, there)).size_bytes == 0
    await copy_session("s1", there, back)
    assert await held(back) == await held(here)
    async with ContextFileSystem("s1", root_path=back, read_only=True) as fs:
        assert (await fs.verify()).ok


async def test_what_came_since_is_brought_after_it_in_either_direction(tmp_path: Path, there: SessionStores) -> None:
    here = LocalSessions(tmp_path / "here")
    await converse(here, "a", "b")
    await copy_session("s1", here, there)
    await converse(there, "c", "d")
    await copy_session("s1", there, here)
    assert await held(here) == await held(there)
    await converse(here, "e")
    await copy_session("s1", here, there)
    assert await held(here) == await held(there)
    async with ContextFileSystem("s1", root_path=here) as fs:
        assert not fs.recovery.damages
        assert (await fs.verify()).ok


async def test_copies_that_were_both_written_to_are_left_as_they_are(tmp_path: Path, there: SessionStores) -> None:
    here = LocalSessions(tmp_path / "here")
    await converse(here, "a")
    await copy_session("s1", here, there)
    await converse(here, "b")
    await converse(there, "c")
    before = await held(here), await held(there)
    for source, target in ((here, there), (there, here)):
        with pytest.raises(SessionDiverged):
            await copy_session("s1", source, target)
    assert (await held(here), await held(there)) == before


async def test_a_session_that_is_not_there_makes_no_copy(tmp_path: Path, there: SessionStores) -> None:
    with pytest.raises(SessionNotFound):
        await copy_session("s1", LocalSessions(tmp_path / "here"), there)
    assert await there.sessions() == []


async def test_a_copy_that_cannot_be_written_whole_is_not_there(tmp_path: Path) -> None:
    here = LocalSessions(tmp_path / "here")
    await converse(here, "a", "b")
    bucket = MemoryBucket(lambda key: "refused" if "/s/" in key and not key.endswith("0" * 12) else "done")
    there = ObjectSessions(bucket, url="s3://test", give_up_s=0.0)
    with pytest.raises(CtxfsError):
        await copy_session("s1", here, there)
    store = ThreadedStore(there.store("s1"))
    await store.open(create=True, write=False)
    assert await store.read_log() == b""
    await store.close()


def test_the_command_line_pushes_lists_reads_and_pulls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import anyio

    here = LocalSessions(tmp_path / "here")
    anyio.run(converse, here, "a", "b")
    (tmp_path / "bucket").mkdir()
    url = f"objects+{(tmp_path / 'bucket').as_uri()}"
    assert run(["copy", "last", "--to", url, "--root", str(tmp_path / "here")]) == 0
    assert f", now in {url}" in capsys.readouterr().out
    assert run(["copy", "last", "--to", url, "--root", str(tmp_path / "here")]) == 0
    assert "already has all of it" in capsys.readouterr().out
    assert run(["sessions", "--store", url, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["session_id"], row["path"]) == ("s1", None)
    for command in (["ls", "s1"], ["show", "last"], ["check", "s"], ["cat", "s1", "call_001"], ["explain", "s1"]):
        assert run([*command, "--store", url]) == 0
    assert "row 8999" in capsys.readouterr().out
    assert run(["copy", "s1", "--from", url, "--root", str(tmp_path / "back")]) == 0
    assert anyio.run(held, LocalSessions(tmp_path / "back")) == anyio.run(held, here)
    file = str(tmp_path / "s1.ctxfs")
    assert run(["export", "s1", file, "--store", url]) == 0
    assert run(["import", file, "--as", "s2", "--store", url]) == 0
    assert run(["import", file, "--as", "s2", "--store", url]) == 2
    assert "already exists" in capsys.readouterr().err
    assert run(["check", "s2", "--store", url]) == 0
    assert run(["ls", "s", "--store", url]) == 2
    assert "the beginning of 2 sessions" in capsys.readouterr().err
    assert run(["ls", "s1", "--store", url, "--root", str(tmp_path)]) == 2
    assert "leave out the directory" in capsys.readouterr().err
    assert run(["copy", "nothing", "--from", url, "--root", str(tmp_path / "back")]) == 2
    assert run(["ls", "s1", "--store", "ftp://x"]) == 2


@pytest.mark.slow
async def test_a_copy_that_was_cut_anywhere_agrees_with_its_journal(tmp_path: Path) -> None:
    """Also its index, which is written last: one that knows more than the journal would contradict it."""
    here = LocalSessions(tmp_path / "here")
    await converse(here, "a")
    await copy_session("s1", here, LocalSessions(tmp_path / "before"))
    await converse(here, "b")
    cut = 0
    whole = False
    while not whole:
        cut += 1
        root = tmp_path / f"there{cut}"
        shutil.copytree(tmp_path / "before", root)
        fs = FailingFileSystem(lambda number, _, cut=cut: number > cut)  # type: ignore[misc]
        try:
            await copy_session("s1", here, LocalSessions(root, fs=as_port(fs)))
            whole = True
        except CtxfsError:
            pass
        async with ContextFileSystem("s1", root_path=root, read_only=True) as copy:
            assert (await copy.verify()).problems == ()
        shutil.rmtree(root)
    assert cut > 20
