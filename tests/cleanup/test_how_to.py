"""docs/clean-up.md works: each of its commands, in its order, on a directory as it describes, only smaller."""

import contextlib
import io
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from ctxfs.cli.app import run
from ctxfs.context import Context
from ctxfs.errors import SessionNotFound
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.local import list_sessions
from session_items import tool_result

pytestmark = pytest.mark.not_measured

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "clean-up.md"
CONSOLE = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
COMMANDS = [line[2:] for block in CONSOLE for line in block.splitlines()]
DAMAGED = {"ctxfs check", 'ctxfs grep --all "port = 8080"'}
"""Commands that find the damage, and say so with exit code 1."""


async def make(root: Path) -> None:
    for number in range(30):
        async with ContextFileSystem(f"report-{number}", root_path=root) as fs:
            await fs.writer.store([tool_result(fs, f"report {number}\nport = 8080\n" * 20)])
        os.utime(root / f"report-{number}" / "journal.jsonl", (1e9 + number, 1e9 + number))
    async with ContextFileSystem("nightly-crawl", root_path=root) as fs:
        await fs.writer.store([tool_result(fs, f"page {n}\n" * 3_000, f"call_{n}", tool="fetch") for n in range(9)])
    async with ContextFileSystem("broken", root_path=root) as fs:
        await fs.writer.store([tool_result(fs, "content")])
    await anyio.Path(root / "broken" / "tool_result" / "Read" / "call_1.json").unlink()
    async with Context("lost-track", root_path=root) as context:
        await context.add(
            {"role": "user", "content": "Which port?"}, {"role": "assistant", "content": "I do not know."}
        )
        async with ContextFileSystem("running", root_path=root) as fs:
            await fs.writer.store([tool_result(fs, "content")])


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[int, str]]]:
    root, here = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("here")
    anyio.run(make, root)
    with pytest.MonkeyPatch.context() as patch, anyio.from_thread.start_blocking_portal() as portal:
        patch.setenv("CTXFS_ROOT", str(root))
        patch.chdir(here)
        with portal.wrap_async_context_manager(ContextFileSystem("running", root_path=root)):
            yield {command: ctxfs(command) for command in COMMANDS}


def ctxfs(command: str) -> tuple[int, str]:
    data = io.BytesIO()
    out = io.TextIOWrapper(data, encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = run(shlex.split(command)[1:])
    return code, data.getvalue().decode()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_does_its_work(command: str, told: dict[str, tuple[int, str]]) -> None:
    code, said = told[command]
    assert code == (command in DAMAGED), said
    assert said


def test_the_page_says_what_comes_out(told: dict[str, tuple[int, str]]) -> None:
    said = {command: text for command, (_, text) in told.items()}
    assert said["ctxfs du --limit 5"].splitlines()[1].startswith("nightly-crawl")
    assert "fetch" in said["ctxfs du --by tool"]
    assert "broken" in said["ctxfs sessions --damaged"]
    assert "running" in said["ctxfs sessions --running"]
    assert "broken: tool_result/Read/call_1.json" in said["ctxfs check"]
    assert "report-7" in said['ctxfs grep --all "port = 8080"']
    assert said["ctxfs cat nightly-crawl call_1 --lines 1:3"] == "page 1\n" * 3
    dry = said["ctxfs forget --older-than 90d --keep-tag keep --dry-run"]
    assert re.search(r"keep +report-2 .*it (is not older|has a tag)", dry)
    assert re.search(r"forget +report-3 .*unchanged for", dry)


def test_what_was_forgotten_is_gone_and_told(told: dict[str, tuple[int, str]]) -> None:
    (bound,) = (command for command in COMMANDS if "--yes" in command)
    _, said = told[bound]
    gone = re.findall(r"(?m)^forget +(\S+)", said)
    assert gone
    root = Path(os.environ.get("CTXFS_ROOT", "/"))
    left = anyio.run(list_sessions, root)
    assert not set(gone) & set(left)
    assert {"report-2", "running", "lost-track"} <= set(left)
    with pytest.raises(SessionNotFound, match=r"was removed on .* by ctxfs forget"):
        anyio.run(opened, gone[0], root)


async def opened(session_id: str, root: Path) -> None:
    async with ContextFileSystem(session_id, root_path=root, read_only=True):
        pass
