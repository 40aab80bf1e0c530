"""ctxfs erase: it shows what goes, asks, and erases."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from ctxfs.cli.app import run
from ctxfs.context import Context
from ctxfs.session import fork_session

SECRET = "my password is hunter2-and-more"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ctxfs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    async def make() -> None:
        async with Context("s", root_path=tmp_path) as context:
            await context.add({"role": "user", "content": SECRET}, {"role": "assistant", "content": f"So {SECRET}."})
        await fork_session("s", new_id="forked", root_path=tmp_path)

    anyio.run(make)

    def call(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run([*arguments, "--root", str(tmp_path)])
        return code, *capfd.readouterr()

    return call


def holds_it(root: Path) -> bool:
    return SECRET.encode() in (root / "s" / "journal.jsonl").read_bytes()


def test_it_shows_what_goes_and_what_is_not_reached(ctxfs: Run, tmp_path: Path) -> None:
    code, out, _ = ctxfs("erase", "s", "msg_001", "--dry-run")
    assert code == 0
    assert "it was asked for" in out
    assert "msg_002 quotes it" in out
    assert "the session forked shares it" in out
    assert "exports" in out
    assert holds_it(tmp_path)


def test_it_asks_and_erases(ctxfs: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, _, err = ctxfs("erase", "s", "msg_001", "msg_002")
    assert code == 1
    assert "Erase these 2 contents for good?" in err
    assert holds_it(tmp_path)
    code, out, _ = ctxfs("erase", "s", "msg_001", "msg_002", "--yes", "--json", "--reason", "a password")
    assert code == 0
    assert json.loads(out)["erased"] is True
    assert not holds_it(tmp_path)
    for asked in (("cat", "s", "msg_001"), ("cat", "s", "msg_001", "--json"), ("cat", "s", "msg_001", "--tail", "3")):
        code, _, err = ctxfs(*asked)
        assert code != 0
        assert "by ctxfs erase (a password)" in err
    code, out, _ = ctxfs("explain", "s", "msg_001")
    assert code == 0
    assert "by ctxfs erase (a password)" in " ".join(out.split())
    assert ctxfs("check", "s")[0] == 0
    code, out, _ = ctxfs("erase", "s", "msg_001", "--yes")
    assert out.endswith("1 erased\n")


def test_the_beginning_of_an_id_erases_nothing_unasked(ctxfs: Run, tmp_path: Path) -> None:
    async def make() -> None:
        async with Context("one", root_path=tmp_path) as context:
            await context.add({"role": "user", "content": SECRET})

    anyio.run(make)
    assert "msg_001" in ctxfs("erase", "on", "msg_0…", "--dry-run")[1]
    for session, item, said in (
        ("on", "msg_001", "'on' is the beginning of one"),
        ("one", "msg_0…", "'msg_0…' is the"),
    ):
        code, _, err = ctxfs("erase", session, item, "--yes")
        assert code == 2
        assert said in err
        assert "give the whole id" in err
    assert SECRET.encode() in (tmp_path / "one" / "journal.jsonl").read_bytes()
    assert ctxfs("erase", "one", "msg_001", "--yes")[0] == 0


def test_an_unknown_item_is_told(ctxfs: Run) -> None:
    code, _, err = ctxfs("erase", "s", "msg_009", "--yes")
    assert code != 0
    assert "msg_009" in err


def test_an_erased_id_is_not_taken_for_the_beginning_of_another(ctxfs: Run, tmp_path: Path) -> None:
    """Erasing is repeated after a crash: then it must not reach the item whose id begins with that one."""

    async def make() -> None:
        async with Context("calls", root_path=tmp_path) as context:
            await context.add({"role": "user", "content": "What do the logs say?"})
            for call in ("c1", "c10"):
                asked: dict[str, object] = {"type": "tool_use", "id": call, "name": "log", "input": {}}
                answer = {"type": "tool_result", "tool_use_id": call, "content": f"the log of {call}"}
                await context.add({"role": "assistant", "content": [asked]}, {"role": "user", "content": [answer]})

    anyio.run(make)
    for _ in range(2):
        assert ctxfs("erase", "calls", "c1", "--yes")[0] == 0
    assert "the log of c10" in ctxfs("cat", "calls", "c10")[1]
