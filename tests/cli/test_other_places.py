"""Commands that change sessions, with ``--store URL``: in memory, and in a directory as an object store."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from ctxfs import Agent, AgentConfig, ContextFileSystem, tool
from ctxfs.cli.app import run
from ctxfs.cli.commands import COMMANDS
from ctxfs.testing import ScriptedModel, ToolCall
from ctxfs.testing.scripted import Turn

Run = Callable[..., tuple[int, str, str]]

OUTPUT = "".join(f"row {n} of the output\n" for n in range(2_000))


@tool("Look", ephemeral=1)
def look(place: str) -> str:
    return place + OUTPUT


async def _make(url: str, *session_ids: str) -> None:
    for session_id in session_ids:
        turns: list[Turn] = [[ToolCall("look", {"place": "a"})], [ToolCall("look", {"place": "b"})], "done"]
        config = AgentConfig(store=url, session_id=session_id, tools=[look], eviction="exact")
        async with Agent(ScriptedModel(turns), config) as agent:
            await agent.query("Look")


@pytest.fixture(params=["memory", "objects"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    (tmp_path / "bucket").mkdir()
    return f"memory://{tmp_path}" if request.param == "memory" else f"objects+{(tmp_path / 'bucket').as_uri()}"


@pytest.fixture
def ctxfs(capfdbinary: pytest.CaptureFixture[bytes], url: str) -> Run:
    anyio.run(_make, url, "s1", "other")

    def call(*arguments: str) -> tuple[int, str, str]:
        capfdbinary.readouterr()
        code = run([*arguments, "--store", url])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


def ok(done: tuple[int, str, str]) -> str:
    code, out, err = done
    assert code == 0, err
    return out


def names(ctxfs: Run) -> set[str]:
    return {row["session_id"] for row in json.loads(ok(ctxfs("sessions", "--json")))}


def test_rm_removes_a_session_and_leaves_the_others(ctxfs: Run) -> None:
    assert json.loads(ok(ctxfs("rm", "s", "--yes", "--json"))) == {"removed": ["s1"]}
    assert names(ctxfs) == {"other"}
    code, _, err = ctxfs("rm", "other", "s1", "--yes")
    assert code == 2
    assert "s1" in err
    assert names(ctxfs) == {"other"}


def test_a_store_without_sessions_says_how_one_gets_there(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert run(["sessions", "--store", url]) == 0
    assert "`ctxfs push SESSION URL` brings one there" in capsys.readouterr().err


def test_rm_asks_and_names_the_place(ctxfs: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, _, err = ctxfs("rm", "s1")
    assert code == 1
    assert f"Remove {url}/s1 and everything in it?" in err
    assert names(ctxfs) == {"s1", "other"}


@pytest.mark.parametrize("url", ["memory"], indirect=True)  # in a bucket a writer is refused for a time only
def test_rm_refuses_a_session_that_is_written(ctxfs: Run, url: str) -> None:
    async def held() -> tuple[int, str, str]:
        async with ContextFileSystem("s1", store=url):
            return await anyio.to_thread.run_sync(lambda: ctxfs("rm", "s1", "--yes"))

    code, _, err = anyio.run(held)
    assert code == 2
    assert "s1" in err
    assert names(ctxfs) == {"s1", "other"}


def test_grep_searches_one_session(ctxfs: Run) -> None:
    assert "row 1999 of" in ok(ctxfs("grep", "s1", "row 1999 of"))
    assert ctxfs("grep", "s1", "no such row")[0] == 1
    code, _, err = ctxfs("grep", "--all", "row")
    assert code == 2
    assert "name one session beside --store" in err


def test_grep_all_takes_the_url_of_a_directory(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    anyio.run(_make, tmp_path.as_uri(), "s1")
    assert run(["grep", "--all", "row 1999 of", "--store", tmp_path.as_uri()]) == 0
    assert b"row 1999 of" in capfdbinary.readouterr().out


@pytest.mark.parametrize("command", [("restore", "s1", "call_001"), ("undo", "s1"), ("pin", "s1", "call_001")])
def test_what_left_the_context_comes_back(ctxfs: Run, command: tuple[str, ...]) -> None:
    before = {row["item_id"]: row["place"] for row in json.loads(ok(ctxfs("ls", "s1", "--json")))}
    assert before["call_001"] == "file"
    assert json.loads(ok(ctxfs(*command, "--json")))["item_ids"] == ["call_001"]
    after = {row["item_id"]: row["place"] for row in json.loads(ok(ctxfs("ls", "s1", "--json")))}
    assert after["call_001"] == "context"
    assert ok(ctxfs("verify", "s1"))


def test_unpin(ctxfs: Run) -> None:
    assert "is pinned" in ok(ctxfs("pin", "s1", "call_001"))
    assert "is not pinned any more" in ok(ctxfs("unpin", "s1", "call_001"))


def test_fork(ctxfs: Run) -> None:
    made = json.loads(ok(ctxfs("fork", "s1", "--as", "second", "--json")))
    assert (made["session_id"], made["path"]) == ("second", None)
    assert names(ctxfs) == {"s1", "other", "second"}
    ok(ctxfs("rm", "s1", "--yes"))
    assert ok(ctxfs("cat", "second", "call_001")) == "a" + OUTPUT
    assert ok(ctxfs("verify", "second"))


def test_view_writes_the_page_of_a_session(ctxfs: Run, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    ok(ctxfs("view", "s1", "--export", str(file)))
    page = file.read_text()
    assert "row 7 of the output" in page
    assert 'id="item-call_001"' in page


@pytest.mark.parametrize(
    "command",
    ["demo", "pull", "push"],
)
def test_a_command_for_directories_names_the_way_round(
    command: str, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    assert run([command, "--store", url]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"ctxfs: ctxfs {command} takes no --store: it works on sessions in a directory.")
    assert "`ctxfs pull SESSION URL` brings one there" in said


@pytest.mark.parametrize("command", ["erase", "prune"])
def test_a_command_that_removes_contents_names_the_way_round(
    command: str, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    assert run([command, "--store", url]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"ctxfs: ctxfs {command} takes no --store: it removes contents of sessions in a directory.")
    for way in ("`ctxfs pull SESSION URL`", "`ctxfs rm SESSION --store URL`", "`ctxfs push SESSION URL`"):
        assert way in said


def test_the_way_round_leaves_nothing_of_an_erased_content_in_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``erase`` says so, and docs/fleet.md."""
    bucket, root = tmp_path / "bucket", tmp_path / "root"
    bucket.mkdir()
    url = f"objects+{bucket.as_uri()}"
    anyio.run(_make, url, "s1")
    monkeypatch.setenv("CTXFS_ROOT", str(root))
    assert run(["pull", "s1", url]) == 0
    (file,) = root.glob("s1/tool_result/look/call_001.*")
    erased = file.read_bytes()

    def is_there() -> bool:
        return any(erased in path.read_bytes() for path in bucket.rglob("*") if path.is_file())

    assert is_there()
    assert run(["erase", "s1", "call_001", "--yes"]) == 0
    assert run(["rm", "s1", "--store", url, "--yes"]) == 0
    assert run(["push", "s1", url]) == 0
    assert not is_there()
    assert run(["cat", "s1", "call_002", "--store", url]) == 0
    assert run(["cat", "s1", "call_001", "--store", url]) == 1


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"completion", "replay", "tune"}))
def test_store_is_an_option_of_every_command_about_sessions(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--store"]) == 2
    said = capsys.readouterr().err
    assert "requires an argument" in said or "takes no --store" in said


def test_a_store_comes_before_the_directory_of_the_environment(
    ctxfs: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTXFS_ROOT", str(tmp_path / "elsewhere"))
    assert "s1" in ok(ctxfs("sessions"))
    code, _, err = ctxfs("sessions", "--root", str(tmp_path))
    assert code != 0
    assert "leave out the directory" in err


def test_an_option_comes_before_the_environment(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    anyio.run(_make, url, "s1")
    monkeypatch.setenv("CTXFS_STORE", url)
    monkeypatch.setenv("CTXFS_ROOT", str(tmp_path / "root"))
    for given, found in (((), ["s1"]), (("--root", str(tmp_path / "root")), []), (("--store", "memory://none"), [])):
        assert run(["sessions", "--json", *given]) == 0
        assert [row["session_id"] for row in json.loads(capsys.readouterr().out)] == found


@pytest.mark.parametrize("url", ["memory"], indirect=True)  # in a bucket a writer is refused for a time only
def test_rm_of_several_goes_on_after_a_refusal(ctxfs: Run, url: str) -> None:
    async def held() -> tuple[int, str, str]:
        async with ContextFileSystem("s1", store=url):
            return await anyio.to_thread.run_sync(lambda: ctxfs("rm", "s1", "other", "--yes", "--json"))

    code, out, err = anyio.run(held)
    assert code == 2
    assert json.loads(out)["removed"] == ["other"]
    assert list(json.loads(out)["failed"]) == ["s1"]
    assert "s1 was not removed" in err
    assert names(ctxfs) == {"s1"}


def test_sessions_are_checked_counted_tagged_and_forgotten(ctxfs: Run) -> None:
    assert "2 sessions" in ok(ctxfs("check"))
    assert "all as written" in ok(ctxfs("check", "s1", "--sample", "50%"))
    sizes = json.loads(ok(ctxfs("du", "--json")))
    assert {row["session_id"] for row in sizes} == {"s1", "other"}
    assert all(row["content_bytes"] > len(OUTPUT) for row in sizes)
    (tool_size,) = [row for row in json.loads(ok(ctxfs("du", "s1", "--json"))) if row["tool"] == "look"]
    assert tool_size["content_bytes"] > len(OUTPUT)
    assert "keep" in ok(ctxfs("tag", "s1", "keep"))
    plan = json.loads(ok(ctxfs("forget", "--older-than", "0s", "--keep-tag", "keep", "--dry-run", "--json")))
    assert {row["session_id"] for row in plan if row["forget"]} == {"other"}
    assert names(ctxfs) == {"s1", "other"}
    ok(ctxfs("forget", "--older-than", "0s", "--keep-tag", "keep", "--yes"))
    assert names(ctxfs) == {"s1"}
