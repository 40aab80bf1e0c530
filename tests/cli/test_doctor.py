"""``ctxfs doctor``: what it says of packages, of the disk, of models, and when something is wrong."""

import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ctxfs.cli.app import run
from ctxfs.cli.doctor import disk_at, kind_of, packages, unfit
from ctxfs.storage.port import OsFileSystem


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> "Doctor":
    return Doctor(capsys)


class Doctor:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        code = run(["doctor", *map(str, arguments)])
        shown = self._capsys.readouterr()
        return code, shown.out, shown.err


def test_it_says_what_there_is_and_writes_nothing_that_stays(doctor: Doctor, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ANTHROPIC_API_KEY", "sk-secret")
        code, out, err = doctor("--root", tmp_path, "--model", "claude-sonnet-5-5", "--model", "nosuch")
    assert (code, err) == (0, "")
    assert not list(tmp_path.iterdir())
    assert f"sessions  {tmp_path}:" in out
    assert "set       ANTHROPIC_API_KEY" in out
    assert "sk-secret" not in out
    assert "locks work" in out
    assert "claude-sonnet-5-5: anthropic" in out
    assert "nosuch is not known" in out
    assert "extras    " in out


def test_its_json_says_the_same(doctor: Doctor, tmp_path: Path) -> None:
    code, out, _ = doctor("--root", tmp_path / "new", "--json", "--model", "gpt-5", "--model", "nosuch")
    told = json.loads(out)
    assert (code, told["ok"], told["problems"]) == (0, True, [])
    assert {"anyio", "orjson", "tiktoken"} <= {one["name"] for one in told["packages"] if not one["extra"]}
    assert told["sessions"] == {"directory": str(tmp_path / "new"), "store": None, "count": 0}
    assert told["disk"]["directory"] == str(tmp_path), "the directory is not made"
    assert told["disk"]["sync_ms"] > 0
    assert told["models"]["gpt-5"]["provider"] == "openai"
    assert told["models"]["nosuch"] is None
    assert told["prices"]["by_provider"]["anthropic"] > 0
    assert set(told["environment"].values()) <= {True, False}
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(
    sys.platform != "linux", reason="NOT TESTED: a file system that refuses files for the superuser too"
)
def test_a_disk_that_cannot_be_written_is_a_problem(doctor: Doctor) -> None:
    code, out, err = doctor("--root", "/proc/sessions")
    assert code == 1
    assert "/proc cannot be written" in err
    assert "proc, " in out
    told = json.loads(doctor("--root", "/proc/sessions", "--json")[1])
    assert (told["ok"], told["disk"]["locks"], told["disk"]["sync_ms"]) == (False, False, None)


def test_a_disk_in_memory_is_named(tmp_path: Path) -> None:
    assert disk_at(tmp_path)["locks"] is True
    if not Path("/dev/shm").is_dir():
        pytest.skip("NOT TESTED: there is no file system in memory")
    disk = disk_at(Path("/dev/shm/not/there"))
    assert (disk["kind"], disk["in_memory"], disk["directory"]) == ("tmpfs", True, "/dev/shm")


def test_a_system_that_does_not_name_its_file_systems(tmp_path: Path) -> None:
    assert kind_of(tmp_path, tmp_path / "nothing") == ""


def test_a_disk_that_does_not_sync_or_lock_is_a_problem(tmp_path: Path) -> None:
    class Broken(OsFileSystem):
        def __init__(self, broken: str) -> None:
            super().__init__()
            self.broken = broken

        def sync(self, fd: int) -> None:
            if self.broken == "sync":
                raise OSError(22, os.strerror(22))

        def lock(self, fd: int) -> None:
            raise OSError(95, os.strerror(95))

    assert disk_at(tmp_path, Broken("sync"))["problem"] == "the disk does not sync: Invalid argument"
    disk = disk_at(tmp_path, Broken("lock"))
    assert (disk["problem"], disk["locks"]) == (f"files cannot be locked: {os.strerror(95)}", False)
    assert disk["sync_ms"] is not None


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (["anyio>=4.9", "rich>=14; extra == 'cli'"], []),
        (["anyio>=4000"], ["is too old for ctxfs: it needs >=4000"]),
        (["rich<4000,>=3000.1; extra == 'cli'"], ["is too old for ctxfs[cli]: it needs <4000,>=3000.1"]),
        (["no-such-package>=1"], ["no-such-package is not installed: install ctxfs again"]),
        (["no-such-package[more]>=1; (sys_platform != 'x') and extra == 'more'"], []),
    ],
)
def test_packages_that_are_missing_or_too_old(lines: Sequence[str], wrong: Sequence[str]) -> None:
    found = unfit(packages(lines))
    assert len(found) == len(wrong)
    assert all(text in line for text, line in zip(wrong, found, strict=True))


@pytest.mark.slow
def test_a_store_is_raced_and_left_as_it_was(doctor: Doctor, tmp_path: Path) -> None:
    url = f"objects+{(tmp_path / 'bucket').as_uri()}"
    code, out, _ = doctor("--root", tmp_path, "--store", url)
    assert code == 0
    assert "one writer in each of 20 races of 8" in " ".join(out.split())
    assert not list(tmp_path.iterdir()), "nothing is left, not even a directory"
    told = json.loads(doctor("--root", tmp_path, "--json", "--store", url)[1])["store"]
    assert (told["url"], told["races"], told["problem"]) == (url, 20, None)


def test_a_directory_is_tried_with_the_lock_that_sessions_use(doctor: Doctor, tmp_path: Path) -> None:
    """Also one that comes from the environment; an option for a directory comes before it."""
    place = tmp_path / "place"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CTXFS_STORE", place.as_uri())
        whole = json.loads(doctor("--json")[1])
        told = whole["store"]
        assert whole["sessions"] == {"directory": None, "store": place.as_uri(), "count": 0}
        assert (told["url"], told["races"], told["problem"]) == (place.as_uri(), 20, None)
        assert not list(tmp_path.iterdir())
        place.mkdir()
        (place / "precious").write_text("stays")
        assert doctor("--json")[0] == 0
        assert [path.name for path in place.iterdir()] == ["precious"]
        assert json.loads(doctor("--json", "--root", place)[1])["store"] is None


@pytest.mark.parametrize("place", [["--store", "s3://bucket/prefix"], ["--store", "nonsense"], []])
def test_only_a_database_is_prepared(place: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--init", *place]) == 2
    said = capsys.readouterr().err
    assert ("is not a place for sessions" if "nonsense" in place else "--init prepares a database") in said


def test_the_memory_of_a_process_is_tried_too(doctor: Doctor, tmp_path: Path) -> None:
    code, out, _ = doctor("--root", tmp_path, "--store", "memory://doctor")
    assert code == 0
    assert "one writer in each of 20 races of 8" in " ".join(out.split())


@pytest.mark.slow  # it is tried again for 19 seconds
def test_a_store_that_is_not_there_is_a_problem_and_no_password_is_shown(doctor: Doctor, tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # nobody listens
        url = f"postgresql://me:secret@127.0.0.1:{bound.getsockname()[1]}/x"
        code, out, err = doctor("--root", tmp_path, "--store", url)
    assert code == 1
    assert "cannot be reached" in err
    assert "secret" not in out + err
