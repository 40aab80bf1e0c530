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
from ctxfs.messages import ToolCall
from ctxfs.stores.objects.row import session_prefix
from ctxfs.testing import ScriptedModel
from ctxfs.testing.scripted import Turn

Run = Callable[..., tuple[int, str, str]]

OUTPUT = "".join(f"row {n} of the output\n" for n in range(2_000))


@tool("Look", ephemeral=1)
def look(place: str) -> str:
    return place + OUTPUT


async def _make(url: str, *session_ids: str) -> None:
    for session_id in session_ids:
        turns: list[Turn] = [[ToolCall("look", {"place": "a"})], [ToolCall("look", {"place": "b"})], "done"]
        config = AgentConfig(
            offload_root_path=url, session_id=session_id, tools=[look], pricing=None, preview_above_tokens=None
        )
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
    (removed,) = json.loads(ok(ctxfs("forget", "s1", "--yes", "--json")))
    assert (removed["session_id"], removed["removed"], removed["failed"]) == ("s1", True, None)
    assert names(ctxfs) == {"other"}
    code, _, err = ctxfs("forget", "other", "s1", "--yes")
    assert code == 2
    assert "s1" in err
    assert names(ctxfs) == {"other"}


def test_a_store_without_sessions_says_how_one_gets_there(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert run(["sessions", "--store", url]) == 0
    assert "`ctxfs copy SESSION --to URL` brings one there" in capsys.readouterr().err


def test_rm_asks_and_names_the_place(ctxfs: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, _, err = ctxfs("forget", "s1")
    assert code == 1
    assert f"Remove 1 session under {url} and everything in it?" in err
    assert names(ctxfs) == {"s1", "other"}


@pytest.mark.parametrize("url", ["memory"], indirect=True)  # in a bucket a writer is refused for a time only
def test_rm_refuses_a_session_that_is_written(ctxfs: Run, url: str) -> None:
    async def held() -> tuple[int, str, str]:
        async with ContextFileSystem("s1", root_path=url):
            return await anyio.to_thread.run_sync(lambda: ctxfs("forget", "s1", "--yes"))

    code, out, _ = anyio.run(held)
    assert code == 1
    assert "s1 is kept: " in out
    assert names(ctxfs) == {"s1", "other"}


def test_grep_searches_one_session(ctxfs: Run) -> None:
    assert "row 1999 of" in ok(ctxfs("grep", "s1", "row 1999 of"))
    assert ctxfs("grep", "s1", "no such row")[0] == 1


def test_grep_searches_all_sessions_the_newest_first(ctxfs: Run, url: str) -> None:
    found = ok(ctxfs("grep", "--all", "row 1999 of")).splitlines()
    assert [line.split(":")[:2] for line in found] == [
        [session_id, item_id] for session_id in ("other", "s1") for item_id in ("call_001", "call_002")
    ]
    assert ctxfs("grep", "--all", "no such row")[0] == 1
    assert ctxfs("grep", "--all", "row 7 of", "--since", "2999-01-01")[0] == 1
    objects = [json.loads(line) for line in ok(ctxfs("grep", "--all", "--json", "row 1999 of")).splitlines()]
    assert {one["data"].get("session_id") for one in objects} >= {"s1", "other"}
    ok(ctxfs("tag", "s1", "newer"))
    assert ok(ctxfs("grep", "--all", "-l", "row 1999 of")).startswith("s1")
    code, _, err = ctxfs("grep", "--all", "--item", "call_001", "row")
    assert code == 2
    assert "--item is an item of one session" in err


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
    assert ok(ctxfs("check", "s1"))


def test_unpin(ctxfs: Run) -> None:
    assert "is pinned" in ok(ctxfs("pin", "s1", "call_001"))
    assert "is no longer pinned" in ok(ctxfs("pin", "s1", "call_001", "--off"))


def test_fork(ctxfs: Run) -> None:
    made = json.loads(ok(ctxfs("fork", "s1", "--as", "second", "--json")))
    assert (made["session_id"], made["path"]) == ("second", None)
    assert names(ctxfs) == {"s1", "other", "second"}
    ok(ctxfs("forget", "s1", "--yes"))
    assert ok(ctxfs("cat", "second", "call_001")) == "a" + OUTPUT
    assert ok(ctxfs("check", "second"))


def test_view_writes_the_page_of_a_session(ctxfs: Run, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    ok(ctxfs("view", "s1", "--export", str(file)))
    page = file.read_text()
    assert "row 7 of the output" in page
    assert 'id="item-call_001"' in page


@pytest.mark.parametrize(
    "command",
    ["demo", "copy"],
)
def test_a_command_for_directories_names_the_way_round(
    command: str, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    assert run([command, "--store", url]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"ctxfs: ctxfs {command} takes no --store: it works on sessions in a directory.")
    assert "`ctxfs copy SESSION --from URL` brings one there" in said


def test_erase_shows_asks_and_erases(ctxfs: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = ok(ctxfs("erase", "s1", "call_001", "--dry-run"))
    assert "call_002 quotes it, and stays" in shown
    assert "the session other shares it, and keeps it" in shown
    assert "earlier versions, snapshots and backups of the bucket" in shown
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert ctxfs("erase", "s1", "call_001")[0] == 1
    assert ok(ctxfs("cat", "s1", "call_001")) == "a" + OUTPUT
    done = json.loads(ok(ctxfs("erase", "s1", "call_001", "--yes", "--json", "--reason", "a password")))
    assert done["erased"] is True
    code, _, err = ctxfs("cat", "s1", "call_001")
    assert code == 1
    assert "by ctxfs erase (a password)" in err
    assert ok(ctxfs("cat", "s1", "call_002")) == "b" + OUTPUT
    assert ok(ctxfs("cat", "other", "call_001")) == "a" + OUTPUT
    assert "all as written" in ok(ctxfs("check"))
    code, _, err = ctxfs("erase", "s1", "call_9", "--yes")
    assert code == 2
    assert "no item 'call_9'" in err
    assert ctxfs("erase", "nobody", "call_001", "--yes")[0] == 2


def test_an_erased_content_is_in_no_object(ctxfs: Run, tmp_path: Path, url: str) -> None:
    if url.startswith("memory"):
        return
    segments = {path: path.read_bytes() for path in (tmp_path / "bucket" / session_prefix("s1")).glob("s/*")}
    ok(ctxfs("erase", "s1", "call_001", "call_002", "--yes"))
    held = [data for path, data in segments.items() if not path.read_bytes()]
    assert any(b'"put"' in data for data in held)
    assert all(path.read_bytes() in (b"", data) for path, data in segments.items())
    assert "row 7 of" not in ok(ctxfs("show", "s1"))


def test_prune_removes_what_nothing_needs(ctxfs: Run) -> None:
    assert "0 contents" in ok(ctxfs("prune"))
    assert "1 forgotten" in ok(ctxfs("forget", "other", "--yes"))

    def pruned(*options: str) -> list[str]:
        (session,) = json.loads(ok(ctxfs("prune", "--undo", "0s", "--grace", "0s", "--json", *options)))
        return [content["item_id"] for content in session["contents"]]

    assert pruned("--dry-run") == pruned()
    assert ctxfs("prune", "nobody")[0] == 2
    assert "all as written" in ok(ctxfs("check"))


@pytest.mark.parametrize("url", ["objects"], indirect=True)
def test_looking_at_a_directory_that_is_not_there_does_not_make_it(ctxfs: Run, tmp_path: Path) -> None:
    missing = f"objects+{(tmp_path / 'not' / 'there').as_uri()}"
    for command in (["sessions"], ["check"], ["grep", "--all", "x"], ["prune"], ["ls", "last"]):
        run([*command, "--store", missing])
        assert not (tmp_path / "not").exists(), command
    anyio.run(_make, missing, "s1")
    assert (tmp_path / "not" / "there").is_dir()
    assert run(["cat", "s1", "call_001", "--store", missing]) == 0


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"ab", "replay"}))
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
    (tmp_path / "root").mkdir()
    for given, found in (((), ["s1"]), (("--root", str(tmp_path / "root")), []), (("--store", "memory://none"), [])):
        assert run(["sessions", "--json", *given]) == 0
        assert [row["session_id"] for row in json.loads(capsys.readouterr().out)] == found


@pytest.mark.parametrize("url", ["memory"], indirect=True)  # in a bucket a writer is refused for a time only
def test_rm_of_several_goes_on_after_a_refusal(ctxfs: Run, url: str) -> None:
    async def held() -> tuple[int, str, str]:
        async with ContextFileSystem("s1", root_path=url):
            return await anyio.to_thread.run_sync(lambda: ctxfs("forget", "s1", "other", "--yes", "--json"))

    code, out, _ = anyio.run(held)
    assert code == 1
    verdicts = {one["session_id"]: one for one in json.loads(out)}
    assert {name: one["removed"] for name, one in verdicts.items()} == {"s1": False, "other": True}
    assert "s1" in verdicts["s1"]["failed"]
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
