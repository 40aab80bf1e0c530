"""What the shell offers: commands, options, sessions and items."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from ctxfs import Context
from ctxfs.cli.app import run

pytestmark = pytest.mark.slow

Complete = Callable[..., list[str]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    async def make() -> None:
        for name in ("older", "other", "newest"):
            async with Context(session_id=name, root_path=tmp_path) as context:
                await context.add({"role": "user", "content": "hello"})
                await context.add({"role": "assistant", "content": "hello"})
            (tmp_path / "no session").mkdir(exist_ok=True)

    anyio.run(make)
    return tmp_path


@pytest.fixture
def complete(capfd: pytest.CaptureFixture[str], root: Path, monkeypatch: pytest.MonkeyPatch) -> Complete:
    monkeypatch.setenv("CTXFS_ROOT", str(root))

    def call(*words: str) -> list[str]:
        capfd.readouterr()
        with pytest.MonkeyPatch.context() as environment:  # as the script of bash asks
            environment.setenv("_CTXFS_COMPLETE", "complete_bash")
            environment.setenv("COMP_WORDS", "\n".join(["ctxfs", *words]))
            environment.setenv("COMP_CWORD", str(len(words)))
            assert run([]) == 0
        return capfd.readouterr().out.split()

    return call


def test_commands_are_offered(complete: Complete) -> None:
    assert complete("se") == ["sessions"]
    assert {"ls", "cat"} <= set(complete(""))
    assert {"--help", "--version"} <= set(complete("--"))


def test_sessions_are_offered_the_newest_first(complete: Complete) -> None:
    assert complete("cat", "") == ["last", "newest", "other", "older"]
    assert complete("cat", "o") == ["other", "older"]
    assert complete("forget", "older", "o") == ["other", "older"]
    assert complete("grep", "-i", "-m", "3", "n") == ["newest"]


def test_sessions_of_a_store_are_not_looked_for(
    complete: Complete, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert complete("cat", "--store", "s3://nowhere", "") == ["last"]
    monkeypatch.setenv("CTXFS_STORE", "s3://nowhere")
    assert complete("cat", "") == ["last"]
    assert complete("cat", "last", "") == []
    assert complete("cat", "--root", str(root), "o") == ["other", "older"]


def test_items_are_offered(complete: Complete) -> None:
    assert complete("cat", "newest", "") == ["msg_001", "msg_002"]
    assert complete("cat", "--tail", "3", "last", "msg_00") == ["msg_001", "msg_002"]
    assert complete("cat", "nosuch", "") == []


def test_options_and_their_values_are_offered(complete: Complete) -> None:
    assert complete("sessions", "--so") == ["--sort"]
    assert complete("sessions", "--sort", "") == ["age", "size", "tokens", "cost"]
    assert "user_message" in complete("grep", "--all", "--type", "u")
    assert complete("sessions", "--model", "") == []
    assert "--help" in complete("cat", "last", "--")


def test_the_root_is_that_of_the_command(complete: Complete, tmp_path: Path) -> None:
    assert complete("cat", "--root", str(tmp_path / "none"), "") == ["last"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_of_the_shells(capfd: pytest.CaptureFixture[str], shell: str) -> None:
    assert run(["--completion", shell]) == 0
    script = capfd.readouterr().out
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=script, text=True, check=True)
    assert f"_CTXFS_COMPLETE=complete_{shell}" in script


@pytest.mark.service
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(root: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "ctxfs"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom ctxfs.cli import main\nmain()\n")
    program.chmod(0o700)
    asked = """
eval "$(ctxfs --completion bash)"
COMP_WORDS=(ctxfs cat newest msg_002); COMP_CWORD=3; _ctxfs_completion ctxfs; echo "${COMPREPLY[@]}"
"""
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "CTXFS_ROOT": str(root)}
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["msg_002"]
