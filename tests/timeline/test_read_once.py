"""A session that is looked at and changed has the lines of its journal decoded once."""

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs.adapters.serve import mcp
from ctxfs.cli.app import run
from ctxfs.cli.session import open_session, shown_session
from ctxfs.context.context import Context
from ctxfs.messages import CharsCounter
from ctxfs.messages.messages import UserMessage
from ctxfs.session import journal
from ctxfs.session.filesystem import ContextFileSystem, reading_once
from ctxfs.session.records import Record
from ctxfs.session.recovery import Reading
from ctxfs.session.timeline.back import pinned
from ctxfs.session.timeline.bring_back import change_session
from ctxfs.session.timeline.lives import Lives, Step
from ctxfs.session.writer import SessionWriter
from patience import HANGS_S

pytestmark = pytest.mark.not_measured

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


@pytest.mark.parametrize("command", [["show", "s"], ["explain", "s"], ["explain", "s", "msg_007"]])
def test_a_command_follows_the_lives_of_items_once(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = anyio.run(_write, tmp_path)
    followed: list[Record] = []
    take = Lives.take

    def counted(lives: Lives, record: Record) -> Step:
        followed.append(record)
        return take(lives, record)

    monkeypatch.setattr(Lives, "take", counted)
    assert run([*command, "--root", str(tmp_path)]) == 0
    assert followed == list(journal.scan(log.read_bytes()).records)


@pytest.mark.anyio
async def test_what_others_wrote_since_is_taken_in(tmp_path: Path, decoded: list[bytes]) -> None:
    await _write(tmp_path)
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


def _other_texts(log: Path, beginning: str) -> None:
    """Write other lines of the same length in place of those of the messages with this beginning, as erasing does."""
    other = beginning.replace("message", "another")

    def changed(record: Any) -> Any:
        return json.loads(json.dumps(record).replace(beginning, other))

    before = log.read_bytes()
    log.write_bytes(journal.rewritten(before, changed))
    assert log.stat().st_size == len(before)
    assert other.encode() in log.read_bytes()


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["rewritten in place", "cut and grown again"])
async def test_other_lines_at_the_place_of_those_read_are_taken_in(tmp_path: Path, how: str) -> None:
    log = await _write(tmp_path)
    async with reading_once(ContextFileSystem("s", root_path=tmp_path, read_only=True)) as reader:
        known = await reader.history()
        if how == "rewritten in place":
            _other_texts(log, "message 7")
        else:  # the lines before are the same, and the journal is longer than it was
            _other_texts(log, "message 3")
            async with Context("s", root_path=tmp_path, counter=CharsCounter()) as context:
                await context.add(UserMessage("later"))
        found = await reader.history()
    async with ContextFileSystem("s", root_path=tmp_path, read_only=True) as fs:
        assert found == await fs.history()
        assert not fs.recovery.damages
    assert found[: len(known)] != known


async def _keeps(expected: int) -> None:
    """See that so many journals that were read are in memory, beside the empty one.

    The thread that read one may still hold it for a moment after its caller has gone on.
    """
    with anyio.fail_after(HANGS_S):
        while _kept() != expected:  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(0.01)


def _kept() -> int:
    gc.collect()
    return sum(type(one) is Reading and bool(one.data) for one in gc.get_objects())


@pytest.mark.anyio
async def test_a_journal_is_kept_only_for_who_goes_through_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _write(tmp_path)
    await _keeps(0)
    async with open_session(tmp_path, "s"), shown_session(tmp_path, "s") as fs:
        await fs.history()
        await _keeps(0)
    async with open_session(tmp_path, "s", with_history=True):
        await _keeps(1)
    flushed: list[SessionWriter] = []
    flush = SessionWriter.flush

    async def counted(writer: SessionWriter) -> None:
        if not flushed:
            await _keeps(0)
        flushed.append(writer)
        await flush(writer)

    monkeypatch.setattr(SessionWriter, "flush", counted)
    async with ContextFileSystem("s", root_path=tmp_path) as fs:
        assert fs.state.items
    assert flushed


def test_a_server_keeps_no_journal_for_the_life_of_its_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anyio.run(_write, tmp_path)
    served: list[bytes] = []

    async def serve(*_: object, first: bytes) -> None:
        await _keeps(0)
        served.append(first)

    monkeypatch.setattr(mcp, "serve_stdio", serve)
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        assert run(["mcp", "s", "--root", str(tmp_path)]) == 0
    assert served == [b""]
