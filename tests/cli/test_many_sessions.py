"""Commands over many sessions: which are listed, how they are removed."""

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs import Context
from ctxfs.cli.app import run
from ctxfs.cli.session import find_session
from ctxfs.context import Histories
from ctxfs.errors import SessionNotFound
from ctxfs.storage.urls import stores_at

pytestmark = pytest.mark.slow

SIZES = {"small": 10, "middle": 2_000, "large": 10_000}


async def _make(root: Path) -> None:
    for name, size in SIZES.items():
        async with Context(session_id=name, root_path=root) as context:
            words = " ".join(f"{random.Random(n).randrange(10**9):x}" for n in range(size))  # hardly to be compressed
            await context.add({"role": "user", "content": words})
            usage = {"input_tokens": size * 100, "output_tokens": 0}
            model = "claude-sonnet-4-5" if size > 10 else "gpt-4.1"
            await context.add({"role": "assistant", "content": "yes"}, usage=usage, model=model)
        os.utime(root / name / "journal.jsonl", (size * 1_000, size * 1_000))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    anyio.run(_make, tmp_path)
    return tmp_path


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ctxfs(capfdbinary: pytest.CaptureFixture[bytes], root: Path) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        capfdbinary.readouterr()
        code = run([*arguments, "--root", str(root)])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


def names(ctxfs: Run, *options: str) -> list[str]:
    code, out, err = ctxfs("sessions", "--json", *options)
    assert code == 0, err
    return [session["session_id"] for session in json.loads(out)]


@pytest.mark.parametrize("sort", ["size", "tokens", "cost", "age"])
def test_sessions_are_sorted(ctxfs: Run, sort: str) -> None:
    assert names(ctxfs, "--sort", sort) == ["large", "middle", "small"]
    assert names(ctxfs, "--sort", sort, "--reverse", "--limit", "2") == ["small", "middle"]


def test_sessions_are_selected(ctxfs: Run, root: Path) -> None:
    assert names(ctxfs, "--since", "1970-01-20") == ["large", "middle"]
    assert names(ctxfs, "--model", "claude*") == ["large", "middle"]
    assert names(ctxfs, "--damaged") == []
    with (root / "small" / "journal.jsonl").open("ab") as journal:
        journal.write(b"no line\n")
    assert names(ctxfs, "--damaged") == ["small"]


def test_what_is_listed_is_summed_up(ctxfs: Run) -> None:
    code, out, _ = ctxfs("sessions")
    assert code == 0
    assert out.splitlines()[0].split() == ["session", "changed", "size", "tokens", "cost", "calls", "items", "stored"]
    assert out.splitlines()[-1].startswith("3 sessions: ")
    assert "none of the 3 sessions" in ctxfs("sessions", "--model", "other")[2]


def test_what_was_paid_once_is_summed_up_once(ctxfs: Run, root: Path, tmp_path: Path) -> None:
    paid = ctxfs("sessions")[1].splitlines()[-1].rpartition(", ")[2]
    assert re.fullmatch(r"\$\d+\.\d\d paid", paid)
    assert ctxfs("fork", "large", "--as", "fork")[0] == 0
    archive = tmp_path.parent / f"{tmp_path.name}.ctxfs"
    assert ctxfs("export", "middle", str(archive))[0] == 0
    assert ctxfs("import", str(archive), "--as", "imported")[0] == 0
    last = ctxfs("sessions")[1].splitlines()[-1]
    assert last.endswith(f", {paid} (calls that a fork or an import has from another session count once)")
    assert ctxfs("forget", "large", "middle", "--yes")[0] == 0
    assert ctxfs("sessions")[1].splitlines()[-1].endswith(f", {paid}"), "the copies hold all of it now"


def test_what_is_forgotten_is_listed_before_what_is_kept(ctxfs: Run) -> None:
    code, out, _ = ctxfs("forget", "--keep-last", "1", "--dry-run")
    assert code == 0
    rows = [line.split()[:2] for line in out.splitlines()[1:]]
    assert rows[:3] == [["forget", "middle"], ["forget", "small"], ["keep", "large"]]
    assert rows[3][:1] == ["2"]


def test_a_wrong_time_is_refused(ctxfs: Run) -> None:
    code, _, said = ctxfs("sessions", "--since", "someday")
    assert code == 2
    assert "7d" in said


def _use(root: Path, session_id: str) -> "subprocess.Popen[Any]":
    code = f"""
import anyio
from ctxfs import ContextFileSystem
async def main():
    async with ContextFileSystem({session_id!r}, root_path={str(root)!r}):
        print("open", flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def test_a_session_in_use_is_shown_and_not_removed(ctxfs: Run, root: Path) -> None:
    with _use(root, "middle") as process:
        assert names(ctxfs, "--running") == ["middle"]
        assert "running" in ctxfs("sessions")[1]
        code, _, said = ctxfs("forget", "small", "middle", "--yes")
        assert code == 2
        assert "middle" in said
        assert names(ctxfs) == ["middle", "large", "small"]
        process.kill()
    assert names(ctxfs, "--running") == []


def test_several_are_removed_at_once(ctxfs: Run, root: Path) -> None:
    code, out, _ = ctxfs("forget", "small", "large", "small", "--yes", "--json")
    assert code == 0
    assert [(one["session_id"], one["removed"]) for one in json.loads(out)] == [("small", True), ("large", True)]
    assert names(ctxfs) == ["middle"]


@pytest.mark.parametrize("beginning", ["lar", "lar…"])
def test_the_beginning_of_an_id_removes_nothing_unasked(ctxfs: Run, beginning: str) -> None:
    code, out, said = ctxfs("forget", "small", beginning, "--yes")
    assert (code, out) == (2, "")
    assert f"'{beginning}' is the beginning of large: give the whole id" in said
    assert len(names(ctxfs)) == 3
    code, out, _ = ctxfs("forget", beginning, "--dry-run")
    assert code == 0
    assert "large" in out
    code, out, said = ctxfs("prune", "small", beginning)
    assert (code, out) == (2, "")
    assert f"'{beginning}' is the beginning of large: give the whole id" in said
    assert ctxfs("prune", "small", beginning, "--dry-run")[0] == 0


@pytest.mark.service
@pytest.mark.parametrize("answer", ["n\n", ""])
def test_removing_asks_first(root: Path, answer: str) -> None:
    code = "import sys; from ctxfs.cli import main; main()"
    command = [sys.executable, "-c", code, "forget", "small", "large", "--root", str(root)]
    done = subprocess.run(command, input=answer, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "small" in done.stdout
    assert "large" in done.stdout
    assert sorted(path.name for path in root.iterdir() if not path.name.startswith(".")) == sorted(SIZES)


def test_one_that_is_not_there_keeps_all_from_being_removed(ctxfs: Run) -> None:
    code, _, said = ctxfs("forget", "small", "nosuch", "--yes")
    assert code == 2
    assert "nosuch" in said
    assert len(names(ctxfs)) == 3


@pytest.mark.parametrize("command", [("ls",), ("show",), ("forget",), ("export",)])
def test_a_misspelt_session_is_answered_with_the_one_that_was_meant(ctxfs: Run, command: tuple[str, ...]) -> None:
    more = ("page.tar",) if command == ("export",) else ()
    code, _, said = ctxfs(*command, "smal1", *more)
    assert code == 2
    assert "no session 'smal1' under" in said
    assert "did you mean 'small'? `ctxfs sessions` lists what is there" in said
    assert "did you mean" not in ctxfs(*command, "xyzzy", *more)[2]


@pytest.mark.parametrize("given", ["LAST", "Last", "lst"])
def test_the_word_for_the_newest_is_what_was_meant(ctxfs: Run, root: Path, given: str) -> None:
    assert "did you mean 'last'?" in ctxfs("ls", given)[2]
    with pytest.raises(SessionNotFound, match="did you mean 'last'"):
        anyio.run(find_session, stores_at(root.as_uri()), given)
    (root / "middle").rename(root / "mast")
    assert "did you mean 'mast'?" in ctxfs("ls", "ast")[2], "a session's id comes first"


def test_a_thread_is_answered_with_its_session(ctxfs: Run, root: Path) -> None:
    with Histories(root) as histories:
        history = histories.of("user/42")
        history.rewrite([])
    assert f"did you mean '{history.session_id}'?" in ctxfs("ls", "user/42")[2]


def test_the_beginning_of_a_removed_session_is_answered_with_its_removal(ctxfs: Run) -> None:
    assert ctxfs("forget", "large", "--yes")[0] == 0
    for given in ("large", "lar", "lar…"):
        code, _, said = ctxfs("ls", given)
        assert code == 2
        assert "session large was removed on" in said
    assert ctxfs("forget", "small", "--yes")[0] == 0
    assert "session small was removed on" in ctxfs("ls", "sma")[2]
    assert "did you mean 'middle'?" in ctxfs("ls", "midle")[2]


def test_the_beginning_of_several_removed_sessions_names_them(ctxfs: Run, root: Path) -> None:
    log = root / ".ctxfs-forgotten.jsonl"
    assert ctxfs("forget", "large", "--yes")[0] == 0
    line = log.read_bytes()
    log.write_bytes(line + line.replace(b"large", b"larger") + b"{\n[]\nnull\n" + line)
    assert "'lar' is the beginning of 2 removed sessions: large, larger" in ctxfs("ls", "lar")[2]
