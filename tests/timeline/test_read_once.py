"""A session that is looked at and changed has the lines of its journal decoded once."""

from pathlib import Path

import anyio
import pytest

from ctxfs.cli.app import run
from ctxfs.context.context import Context
from ctxfs.messages import CharsCounter
from ctxfs.messages.messages import UserMessage
from ctxfs.session import journal
from ctxfs.session.filesystem import ContextFileSystem, reading_once
from ctxfs.session.timeline.back import pinned
from ctxfs.session.timeline.bring_back import change_session

ITEMS = 40


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The lines that were decoded, in order."""
    lines: list[bytes] = []
    decode = journal._decode_line  # noqa: SLF001 - no figure shows it

    def counted(line: bytes) -> object:
        lines.append(line)
        return decode(line)

    monkeypatch.setattr(journal, "_decode_line", counted)
    return lines


async def _write(root: Path) -> Path:
    async with Context("s", root_path=root, counter=CharsCounter()) as context:
        for number in range(ITEMS):
            await context.add(UserMessage(f"message {number}"))
    return root / "s" / "journal.jsonl"


@pytest.mark.parametrize(
    "command", [["pin", "s", "msg_007"], ["show", "s"], ["explain", "s", "msg_007"], ["cat", "s", "msg_007"]]
)
def test_a_command_decodes_each_line_once(tmp_path: Path, decoded: list[bytes], command: list[str]) -> None:
    log = anyio.run(_write, tmp_path)
    before = log.read_bytes().splitlines()
    decoded.clear()
    assert run([*command, "--root", str(tmp_path)]) == 0
    assert [line for line in decoded if line in before] == before


@pytest.mark.anyio
async def test_what_others_wrote_since_is_taken_in(tmp_path: Path, decoded: list[bytes]) -> None:
    log = await _write(tmp_path)
    async with reading_once(ContextFileSystem("s", root_path=tmp_path, read_only=True)) as reader:
        known = await reader.history()
        async with Context("s", root_path=tmp_path, counter=CharsCounter()) as context:
            await context.add(UserMessage("later"))
        decoded.clear()
        back, _ = await change_session(reader, lambda records: pinned(records, f"msg_0{ITEMS + 1}"))
        assert back.records
        assert len(decoded) < 12
        records = await reader.history()
        assert records[: len(known)] == known
    async with ContextFileSystem("s", root_path=tmp_path, read_only=True) as fs:
        assert await fs.history() == records
        assert fs.state.items[f"msg_0{ITEMS + 1}"].pinned
    assert log.exists()


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["rewritten", "repeats a line"])
async def test_a_journal_that_does_not_go_on_is_read_whole(tmp_path: Path, decoded: list[bytes], how: str) -> None:
    log = await _write(tmp_path)
    whole = log.read_bytes()
    async with reading_once(ContextFileSystem("s", root_path=tmp_path, read_only=True)) as reader:
        decoded.clear()
        if how == "rewritten":
            log.write_bytes(whole[: whole.index(b"\n") + 1])
            assert len(await reader.history()) == 2
        else:
            log.write_bytes(whole + whole.splitlines(keepends=True)[-1])
            async with ContextFileSystem("s", root_path=tmp_path, read_only=True) as fs:
                assert await reader.history() == await fs.history()
                assert not fs.recovery.damages
