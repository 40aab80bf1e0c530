"""``ctxfs export`` and ``ctxfs import``."""

import json
from pathlib import Path

import anyio
import pytest

from ctxfs.cli import app
from ctxfs.tools import Artifact, KnowledgeService


@pytest.fixture
def root(tmp_path: Path) -> Path:
    async def fill() -> None:
        async with KnowledgeService(tmp_path / "root") as service:
            metadata = {"session_id": "session_1"}
            await service.add_knowledge_list([Artifact(artifact_id="call_1", content="one\ntwo\n", metadata=metadata)])

    anyio.run(fill)
    return tmp_path / "root"


def test_there_and_back(root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "session.ctxfs"
    assert app.run(["export", "last", str(file), "--root", str(root)]) == 0
    assert "session_1: 1 content" in capfd.readouterr().out
    assert app.run(["import", str(file), "--as", "other", "--root", str(root), "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["session_id"] == "other"
    assert told["path"] == str(root / "other")
    assert told["files"] == 1
    assert app.run(["cat", "other", "call_1", "--root", str(root)]) == 0
    assert capfd.readouterr().out == "one\ntwo\n"
    again = tmp_path / "again.ctxfs"
    assert app.run(["export", "other", str(again), "--root", str(root), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["bytes"] == told["bytes"]
    assert again.read_bytes() == file.read_bytes()


def test_what_goes_wrong_is_one_line(root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "session.ctxfs"
    assert app.run(["export", "session_1", str(file), "--root", str(root)]) == 0
    cut = tmp_path / "cut"
    cut.write_bytes(file.read_bytes()[:-9])
    capfd.readouterr()
    for arguments, code, word in (
        (["export", "nothing", str(tmp_path / "x")], 2, "no session"),
        (["export", "session_1", str(file)], 2, "already exists"),
        (["import", str(file)], 2, "another session id (--as ID)"),
        (["import", str(cut), "--as", "other"], 1, "truncated"),
        (["import", str(file), "--as", "../other"], 2, "session id"),
        (["import", str(file), "--as", "other", "--max-bytes", "10"], 1, "more than 10 bytes"),
        (["import", str(tmp_path / "nothing")], 2, f"no file {tmp_path / 'nothing'}"),
        (["import", str(tmp_path)], 1, f"{tmp_path} cannot be read"),
    ):
        assert app.run([*arguments, "--root", str(root)]) == code, arguments
        told = capfd.readouterr().err
        assert word in told
        assert told.count("\n") == 1
    assert [path.name for path in root.iterdir()] == ["session_1"]
