"""Export and import: a session comes back whole and byte-equal, elsewhere, or not at all."""

import hashlib
import io
import json
import os
import shutil
import stat
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxfs.errors import (
    ArchiveDamaged,
    ArchiveError,
    ArchiveTooLarge,
    ArchiveUnsafe,
    ConfigError,
    CorruptContent,
    CorruptJournal,
    NameTaken,
    SessionExists,
    SessionNotFound,
)
from ctxfs.eviction.placeholder.text import render
from ctxfs.messages.items import ItemType
from ctxfs.messages.messages import Content, ToolMessage
from ctxfs.messages.names import ENVELOPE, TEXT, Layout
from ctxfs.session import export_session, import_session
from ctxfs.session.content.compression import zstd
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.journal import encode_line, scan
from ctxfs.session.record_json import to_json
from ctxfs.session.records import Record, SessionStarted
from ctxfs.session.transfer.archive import ArchiveReader
from ctxfs.storage.port import OsFileSystem
from ctxfs.text.jsontext.write_stream import BLOCK
from ctxfs.tools.read import read_tool
from prove.cancelling import cancelled_at
from session_items import forged_line, tool_result

pytestmark = pytest.mark.anyio

CONTENTS: tuple[Content, ...] = (
    "",
    "one\ntwo\n",
    "naïve “text”\u2028 \U0001f600" * 3,
    "lone \ud800 surrogate",
    "\x00\x01 raw \r\n bytes",
    ({"type": "text", "text": "in blocks"}, {"type": "image", "source": {"type": "url", "url": "x"}}),
    "long line " * 60_000,
)


async def fill(fs: ContextFileSystem, contents: Sequence[Content]) -> list[str]:
    """Store contents and let placeholders stand for them; return their ids."""
    ids = []
    for number, content in enumerate(contents):
        old = tool_result(fs, content, f"call_{number}")
        await fs.writer.add([old])
        path = str(fs.session_path / old.name)
        message = ToolMessage(
            tool_call_id=old.id, tool_name="Read", content=render(path), offloaded=True, offload_path=path
        )
        new = replace(old, message=message, offloaded=True, offload_path=path)
        await fs.writer.evict([(old, new, "test")])
        ids.append(old.id)
    return ids


async def make(root: Path, contents: Sequence[Content] = CONTENTS, *, layout: Layout = ENVELOPE) -> list[str]:
    async with ContextFileSystem("one", root_path=root, layout=layout) as fs:
        return await fill(fs, contents)


@asynccontextmanager
async def opened(root: Path, session_id: str = "one", **settings: Any) -> AsyncIterator[ContextFileSystem]:
    fs = ContextFileSystem(session_id, root_path=root, **settings)
    await fs.open(create=False)
    try:
        yield fs
    finally:
        await fs.close()


def tree(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*")) if root.exists() else []


def is_there(path: Path) -> bool:
    return os.path.lexists(path)


def modes(root: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*") if path.is_file()}


# ---- there and back


@pytest.mark.parametrize("layout", [ENVELOPE, TEXT], ids=["envelope", "text"])
async def test_export_import_export_is_byte_equal(tmp_path: Path, layout: Layout) -> None:
    ids = await make(tmp_path / "a", layout=layout)
    done = await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path / "a")
    assert done.files == len(CONTENTS)
    await import_session(tmp_path / "1.ctxfs", root_path=tmp_path / "b")
    await export_session("one", tmp_path / "2.ctxfs", root_path=tmp_path / "b")
    assert read(tmp_path / "1.ctxfs") == read(tmp_path / "2.ctxfs")
    async with opened(tmp_path / "b") as fs:
        assert fs.recovery.clean
        assert [await fs.load(item_id) for item_id in ids] == list(CONTENTS)
        assert (await fs.verify()).ok
    assert modes(tmp_path / "b") == {0o600}


async def test_relative_paths_are_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    exported = await export_session("one", "1.ctxfs", root_path="a")
    imported = await import_session("1.ctxfs", root_path="b")
    assert (exported.path, imported.path) == (tmp_path / "1.ctxfs", tmp_path / "b" / "one")


async def test_it_does_not_depend_on_the_place_or_the_id(tmp_path: Path) -> None:
    await make(tmp_path / "a")
    await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path / "a")
    done = await import_session(tmp_path / "1.ctxfs", root_path=tmp_path / "a", session_id="other")
    assert done.path == tmp_path / "a" / "other"
    await export_session("other", tmp_path / "2.ctxfs", root_path=tmp_path / "a")
    assert read(tmp_path / "1.ctxfs") == read(tmp_path / "2.ctxfs")


def read(path: Path) -> bytes:
    return path.read_bytes()


async def test_placeholders_of_the_old_place_mean_the_imported_files(tmp_path: Path) -> None:
    ids = await make(tmp_path / "a", ["one\ntwo\n"])
    await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path / "a")
    await import_session(tmp_path / "1.ctxfs", root_path=tmp_path / "b", session_id="other")
    async with opened(tmp_path / "a") as fs:
        old = str(fs.session_path / "tool_result/Read/call_0.json")
    async with opened(tmp_path / "b", "other") as fs:
        assert fs.find(old) == ids[0]
        (there,) = await fs.items()
        assert old in str(there.message.content), "the history is as it was"
        assert there.offload_path == str(tmp_path / "b" / "other" / "tool_result" / "Read" / "call_0.json")
        page = await read_tool(fs).run({"file_path": old})
        assert str(page.content).startswith("1\tone\n2\ttwo")


async def test_what_a_command_printed_moves_too(tmp_path: Path) -> None:
    async with ContextFileSystem("one", root_path=tmp_path / "a") as fs:
        log = await fs.writer.grow("Bash")
        for number in range(50):
            await log.append(b"line %d of the output\xff\n" % number * 1_000)
        await log.finish({})
        expected = await fs.load(log.item_id)
    await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path / "a")
    await import_session(tmp_path / "1.ctxfs", root_path=tmp_path / "b")
    await export_session("one", tmp_path / "2.ctxfs", root_path=tmp_path / "b")
    assert read(tmp_path / "1.ctxfs") == read(tmp_path / "2.ctxfs")
    async with opened(tmp_path / "b") as fs:
        assert fs.recovery.clean
        assert await fs.load(log.item_id) == expected


PRINTED = [b"", b"one line\n", "half a char\u00e4".encode()[:-1], b"\xff\n" * 200_000, b"text\n" * 100_000]


@pytest.mark.parametrize("printed", PRINTED, ids=["nothing", "a line", "cut in a character", "bytes", "many blocks"])
@pytest.mark.parametrize("alive", [True, False], ids=["running", "killed"])
async def test_what_a_command_has_printed_so_far_moves_too(tmp_path: Path, printed: bytes, alive: bool) -> None:
    async with ContextFileSystem("one", root_path=tmp_path / "a") as fs:
        await fill(fs, ["first"])
        log = await fs.writer.grow("Bash")
        await log.append(printed)
        root = tmp_path / "a" if alive else image_of(tmp_path / "a", tmp_path / "killed")
        before = contents_of(root / "one")
        done = await export_session("one", tmp_path / "1.ctxfs", root_path=root)
        assert done.files == 2
        assert contents_of(root / "one") == before, "an export only reads"
    await import_session(tmp_path / "1.ctxfs", root_path=tmp_path / "b")
    await export_session("one", tmp_path / "2.ctxfs", root_path=tmp_path / "b")
    assert read(tmp_path / "1.ctxfs") == read(tmp_path / "2.ctxfs")
    assert read(tmp_path / "b" / "one" / log.name) == printed
    async with opened(tmp_path / "b") as fs:
        assert fs.recovery.clean
        assert (await fs.verify()).ok
        assert fs.state.stored[log.item_id].metadata["partial"] is True
        assert b"".join([block async for block in fs.reader(log.item_id).raw_blocks()]) == printed


def image_of(root: Path, copy: Path) -> Path:
    """What is left of a session whose writer is killed now."""
    shutil.copytree(root, copy)
    return copy


def contents_of(session: Path) -> dict[str, bytes]:
    return {name: read(session / name) for name in tree(session) if (session / name).is_file()}


async def test_a_command_that_goes_on_printing_is_exported_as_it_stood_at_one_moment(tmp_path: Path) -> None:
    async with ContextFileSystem("one", root_path=tmp_path / "a") as fs:
        log = await fs.writer.grow("Bash")
        await log.append(b"before\n" * 50_000)
        port = Printing(tmp_path / "a" / "one" / log.name)
        await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path / "a", fs=port)
        assert read(port.log) == b"before\n" * 50_000 + b"after\n", "it has printed more"
    await import_session(tmp_path / "1.ctxfs", root_path=tmp_path / "b")
    assert read(tmp_path / "b" / "one" / log.name) == b"before\n" * 50_000


class Printing(OsFileSystem):
    """A command prints more while its session is exported, after the export has seen how much there is."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.log = log

    def create(self, dir_fd: int, name: str) -> int:
        append(self.log, b"after\n")
        return super().create(dir_fd, name)


async def test_an_imported_session_goes_on(tmp_path: Path) -> None:
    await make(tmp_path / "a")
    await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path / "a")
    await import_session(tmp_path / "1.ctxfs", root_path=tmp_path / "b")
    async with opened(tmp_path / "b") as fs:
        await fs.writer.store([tool_result(fs, "more", "call_new")])
    await export_session("one", tmp_path / "2.ctxfs", root_path=tmp_path / "b")
    await import_session(tmp_path / "2.ctxfs", root_path=tmp_path / "c")
    async with opened(tmp_path / "c", read_only=True) as fs:
        assert await fs.load("call_new") == "more"
        assert await fs.load("call_1") == CONTENTS[1]


@pytest.mark.slow
@pytest.mark.both_loops
async def test_export_while_a_writer_is_active(tmp_path: Path) -> None:
    async with ContextFileSystem("one", root_path=tmp_path / "a") as fs:
        ids = await fill(fs, ["first"])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fill_more, fs)
            for number in range(4):
                await export_session("one", tmp_path / f"{number}.ctxfs", root_path=tmp_path / "a")
    for number in range(4):
        await import_session(tmp_path / f"{number}.ctxfs", root_path=tmp_path / f"b{number}")
        async with opened(tmp_path / f"b{number}", read_only=True) as fs:
            assert (await fs.verify()).ok
            assert await fs.load(ids[0]) == "first"


async def fill_more(fs: ContextFileSystem) -> None:
    for number in range(20):
        await fs.writer.store([tool_result(fs, "x" * 10_000, f"more_{number}")])


async def test_a_torn_line_is_left_out(tmp_path: Path) -> None:
    await make(tmp_path / "a")
    await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path / "a")
    append(tmp_path / "a" / "one" / "journal.jsonl", b'{"v":1,"seq":')
    await export_session("one", tmp_path / "2.ctxfs", root_path=tmp_path / "a")
    assert read(tmp_path / "1.ctxfs") == read(tmp_path / "2.ctxfs")


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


TEXTS = st.text(st.characters(), max_size=300)
SOME = st.lists(
    TEXTS | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS})).map(tuple), max_size=6
)


@given(contents=SOME, raw=st.booleans())
@settings(max_examples=settings().max_examples // 4)
async def test_any_contents_come_back(
    contents: list[Content], raw: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("root")
    ids = await make(root / "a", contents, layout=TEXT if raw else ENVELOPE)
    await export_session("one", root / "1.ctxfs", root_path=root / "a")
    await import_session(root / "1.ctxfs", root_path=root / "b")
    await export_session("one", root / "2.ctxfs", root_path=root / "b")
    assert read(root / "1.ctxfs") == read(root / "2.ctxfs")
    async with opened(root / "b") as fs:
        assert fs.recovery.clean
        assert [await fs.load(item_id) for item_id in ids] == contents
        assert (await fs.verify()).ok


# ---- what cannot be exported


async def test_a_session_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SessionNotFound):
        await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path)
    with pytest.raises(ConfigError):
        await export_session("../one", tmp_path / "1.ctxfs", root_path=tmp_path)
    assert tree(tmp_path) == []


async def test_a_file_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    await make(tmp_path / "a")
    write(tmp_path / "1.ctxfs", b"mine")
    with pytest.raises(NameTaken):
        await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path / "a")
    assert read(tmp_path / "1.ctxfs") == b"mine"


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


async def test_a_damaged_content_is_not_exported(tmp_path: Path) -> None:
    await make(tmp_path / "a", ["some text", "other text"])
    file = tmp_path / "a" / "one" / "tool_result" / "Read" / "call_1.json"
    write(file, read(file).replace(b"other", b"wrong"))
    with pytest.raises(CorruptContent, match="call_1"):
        await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path / "a")
    assert not is_there(tmp_path / "1.ctxfs"), "no half of an archive is left"


async def test_a_damaged_journal_is_not_exported(tmp_path: Path) -> None:
    await make(tmp_path / "a")
    log = tmp_path / "a" / "one" / "journal.jsonl"
    write(log, read(log) + b"\n")
    with pytest.raises(CorruptJournal, match="is damaged at byte"):
        await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path / "a")
    assert not is_there(tmp_path / "1.ctxfs")


@pytest.mark.parametrize("bad", [b"\n", b"no journal\n", b"\n" * 3_000_000], ids=["empty", "other", "many"])
async def test_a_journal_with_a_damaged_line_is_refused_at_that_line(tmp_path: Path, bad: bytes) -> None:
    log = journal([stored("a.txt")])
    write(tmp_path / "made", handmade([("journal.jsonl", log + bad), ("a.txt", b"text")]))
    await refused(tmp_path / "made", tmp_path / "b", ArchiveDamaged)
    assert len(scan(log + bad, stops_at_damage=True).damages) == 1


@pytest.mark.parametrize("endless", [b"\n", b"x"], ids=["empty lines", "no line"])
async def test_no_more_of_a_journal_is_read_than_to_the_first_bad_line(
    tmp_path: Path, endless: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive of some kilobytes may hold hundreds of megabytes of them."""
    monkeypatch.setattr("ctxfs.session.transfer.archive.CHUNK_BYTES", 1_000)
    log = journal([stored("a.txt")])
    made = io.BytesIO(handmade([("journal.jsonl", log + endless * 1_000_000), ("a.txt", b"text")]))
    reader = ArchiveReader(made, 1 << 30, 10)
    made.readline()
    with pytest.raises(ArchiveDamaged, match=f"the archive's journal is damaged at byte {len(log):,}: not a journal"):
        reader.journal()
    assert made.tell() < 10_000


async def test_a_lost_journal_is_said(tmp_path: Path) -> None:
    await make(tmp_path / "a")
    write(tmp_path / "a" / "one" / "journal.jsonl", b"")
    with pytest.raises(CorruptJournal, match="open the session for writing"):
        await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path / "a")


async def test_the_archive_is_the_owners_alone(tmp_path: Path) -> None:
    await make(tmp_path / "a")
    await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path / "a")
    assert modes(tmp_path) == {0o600}


# ---- what cannot be imported, and leaves nothing behind


async def test_a_session_of_that_id_is_there(tmp_path: Path) -> None:
    await make(tmp_path / "a")
    await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path / "a")
    before = tree(tmp_path)
    with pytest.raises(SessionExists):
        await import_session(tmp_path / "1.ctxfs", root_path=tmp_path / "a")
    assert tree(tmp_path) == before


@pytest.mark.both_loops
async def test_two_imports_at_once_one_wins(tmp_path: Path) -> None:
    await make(tmp_path / "a")
    await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path / "a")
    outcomes: list[str] = []

    async def one() -> None:
        try:
            await import_session(tmp_path / "1.ctxfs", root_path=tmp_path / "b")
            outcomes.append("imported")
        except SessionExists:
            outcomes.append("there")

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(one)
    assert sorted(outcomes) == ["imported", "there", "there"]
    assert [name for name in tree(tmp_path / "b") if "/" not in name] == ["one"]


async def refused(file: Path, root: Path, error: type[ArchiveError], **settings: Any) -> None:
    """Import, and see that it fails with exactly this error and leaves nothing."""
    before = tree(root)
    with pytest.raises(ArchiveError) as caught:
        await import_session(file, root_path=root, **settings)
    assert type(caught.value) is error, caught.value
    assert tree(root) == before


async def exported(tmp_path: Path, contents: Sequence[Content] = ("some text", "other text", "x" * BLOCK * 2)) -> bytes:
    await make(tmp_path / "a", contents)
    await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path / "a")
    return read(tmp_path / "1.ctxfs")


@pytest.mark.parametrize("root_exists", [True, False])
async def test_truncated_anywhere(tmp_path: Path, root_exists: bool) -> None:
    archive = await exported(tmp_path)
    root = tmp_path / "b"
    if root_exists:
        root.mkdir()
    places = [*range(1, 400, 37), *range(len(archive) // 3, len(archive), len(archive) // 7), len(archive) - 1]
    for length in places:
        write(tmp_path / "cut", archive[:length])
        with pytest.raises(ArchiveError):
            await import_session(tmp_path / "cut", root_path=root)
        assert tree(root) == []
        assert is_there(root) == root_exists


async def test_trailing_garbage(tmp_path: Path) -> None:
    archive = await exported(tmp_path)
    for garbage in (b"\n", b"x", archive):
        write(tmp_path / "long", archive + garbage)
        await refused(tmp_path / "long", tmp_path / "b", ArchiveDamaged)


@given(position=st.integers(0, 10_000), change=st.integers(1, 255))
async def test_no_changed_byte_goes_unseen(
    position: int, change: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("flip")
    archive = bytearray(simple("tool_result/Read/call_1.txt"))
    archive[position % len(archive)] ^= change
    write(folder / "changed", bytes(archive))
    with pytest.raises(ArchiveError):
        await import_session(folder / "changed", root_path=folder / "b")
    assert tree(folder / "b") == []


@pytest.mark.parametrize("data", [b"", b"\n", b"{}\n", b"PK\x03\x04", b"x" * 100_000, b"[" * 10_000 + b"\n"])
async def test_what_is_no_archive(tmp_path: Path, data: bytes) -> None:
    write(tmp_path / "file", data)
    await refused(tmp_path / "file", tmp_path / "b", ArchiveError)


async def test_what_is_no_file(tmp_path: Path) -> None:
    await refused(tmp_path / "nothing", tmp_path / "b", ArchiveError)
    await refused(tmp_path, tmp_path / "b", ArchiveError)
    os.mkfifo(tmp_path / "pipe")
    await refused(tmp_path / "pipe", tmp_path / "b", ArchiveError)


async def test_bombs(tmp_path: Path) -> None:
    archive = await exported(tmp_path)
    size = len(archive)
    await refused(tmp_path / "1.ctxfs", tmp_path / "b", ArchiveTooLarge, max_bytes=size // 2)
    await refused(tmp_path / "1.ctxfs", tmp_path / "b", ArchiveTooLarge, max_files=2)
    await import_session(tmp_path / "1.ctxfs", root_path=tmp_path / "b", max_bytes=size, max_files=3)


# ---- compressed archives


async def compressed(tmp_path: Path) -> bytes:
    plain = await exported(tmp_path)
    await export_session("one", tmp_path / "1.zst", root_path=tmp_path / "a", compress=True)
    archive = read(tmp_path / "1.zst")
    assert zstd.decompress(archive) == plain
    return archive


async def test_a_compressed_archive_is_smaller_and_comes_back_byte_equal(tmp_path: Path) -> None:
    archive = await compressed(tmp_path)
    assert len(archive) < len(read(tmp_path / "1.ctxfs")) / 3
    await import_session(tmp_path / "1.zst", root_path=tmp_path / "b", session_id="two")
    await export_session("two", tmp_path / "2.zst", root_path=tmp_path / "b", compress=True)
    await export_session("two", tmp_path / "2.ctxfs", root_path=tmp_path / "b")
    assert read(tmp_path / "2.zst") == archive
    assert read(tmp_path / "2.ctxfs") == read(tmp_path / "1.ctxfs")


async def test_a_compressed_archive_that_is_cut_or_changed_or_goes_on_is_refused(tmp_path: Path) -> None:
    archive = await compressed(tmp_path)
    middle = len(archive) // 2
    wrong = [archive[:length] for length in (3, 5, middle, len(archive) - 1)]
    wrong += [archive + after for after in (b"x", archive, b"garbage" * 100)]
    wrong += [archive[:middle] + bytes([archive[middle] ^ 1]) + archive[middle + 1 :]]
    for data in wrong:
        write(tmp_path / "wrong", data)
        with pytest.raises(ArchiveError):
            await import_session(tmp_path / "wrong", root_path=tmp_path / "b")
        assert tree(tmp_path / "b") == []


async def test_compressed_bombs_are_bounded_by_what_they_unfold_to(tmp_path: Path) -> None:
    size = len(zstd.decompress(await compressed(tmp_path)))
    await refused(tmp_path / "1.zst", tmp_path / "b", ArchiveTooLarge, max_bytes=size // 2)
    write(tmp_path / "bomb", zstd.compress(bytes(1 << 28)))
    await refused(tmp_path / "bomb", tmp_path / "b", ArchiveError)
    with zstd.ZstdFile(tmp_path / "window", "w", options={zstd.CompressionParameter.window_log: 25}) as file:
        file.write(zstd.decompress(read(tmp_path / "1.zst")))
    await refused(tmp_path / "window", tmp_path / "b", ArchiveError)


async def test_a_content_that_unfolds_to_more_than_may_be_imported_is_refused(tmp_path: Path) -> None:
    layout = replace(TEXT, compress_from_chars=1)
    async with ContextFileSystem("one", root_path=tmp_path / "a", layout=layout) as fs:
        item_id, name = fs.writer.allocate(ItemType.TOOL_RESULT, "call_1", "Read", "a" * 10)
        item = replace(tool_result(fs, "a" * 5_000_000, "call_2"), id=item_id, name=name)
        await fs.writer.store([item])
    await export_session("one", tmp_path / "1.ctxfs", root_path=tmp_path / "a")
    assert len(read(tmp_path / "1.ctxfs")) < 100_000
    await refused(tmp_path / "1.ctxfs", tmp_path / "b", ArchiveTooLarge, max_bytes=4_000_000)


# ---- archives that somebody made by hand: every checksum in them is right


def stored(name: str, content: bytes = b"text", item_id: str = "call_1", **values: Any) -> Stored:
    fields: dict[str, Any] = {
        "item_id": item_id,
        "item_type": ItemType.TOOL_RESULT,
        "name": name,
        "encoding": "text",
        "size_bytes": len(content),
        "chars": len(content),
        "lines": 1,
        "digest": hashlib.sha256(hashlib.sha256(content).digest()).hexdigest(),
        "blocks": 1,
        "content_offset": 0,
        "content_length": len(content),
        "raw": True,
        "offloaded_at": 0,
        "metadata": {"encoding": "text"},
    }
    return Stored(**{**fields, **values})


def journal(records: Sequence[Record]) -> bytes:
    started = SessionStarted(session_id="one", started_at=0.0, layout="text")
    return b"".join(forged_line(seq, to_json(record)) for seq, record in enumerate([started, *records], 1))


def handmade(
    parts: Sequence[tuple[str, bytes]], *, change: Callable[[dict[str, Any]], None] = lambda line: None, files: int = -1
) -> bytes:
    """Write an archive of these parts; ``change`` may change each of its lines before its checksum is taken."""
    lines = hashlib.sha256()
    out: list[bytes] = []

    def line(value: dict[str, Any]) -> None:
        change(value)
        data = json.dumps(value, separators=(",", ":")).encode() + b"\n"
        if "end" not in value:
            lines.update(data)
        out.append(data)

    count = len(parts) - 1 if files < 0 else files
    line({"format": "ctxfs-session", "version": 1, "session_id": "one", "files": count})
    for name, data in parts:
        line({"name": name, "size_bytes": len(data)})
        out.append(data)
        line({"sha256": hashlib.sha256(data).hexdigest()})
    total = sum(len(data) for _, data in parts)
    line({"end": {"files": count, "size_bytes": total, "sha256": lines.hexdigest()}})
    return b"".join(out)


def simple(name: str, **values: Any) -> bytes:
    return handmade([("journal.jsonl", journal([stored(name, **values)])), (name, b"text")])


async def test_handmade_archives_can_be_right(tmp_path: Path) -> None:
    write(tmp_path / "made", simple("tool_result/Read/call_1.txt"))
    await import_session(tmp_path / "made", root_path=tmp_path / "b")
    async with opened(tmp_path / "b") as fs:
        assert await fs.load("call_1") == "text"


@pytest.mark.parametrize(
    "name",
    [
        *("../escaped", "/tmp/escaped", "a/../../escaped", "a//b", "./a", "a/.", "..", "", "a\0b", "a\\b"),
        *("journal.jsonl", "JOURNAL.JSONL", "index.json", ".lock", "tool_result/.hidden", ".ctxfs-tmp-1", "\ud800"),
        *("x" * 300, "/".join("a" * 40), "C:\\x"),
    ],
)
async def test_names_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    write(tmp_path / "made", simple(name))
    await refused(tmp_path / "made", tmp_path / "b", ArchiveUnsafe)
    assert tree(tmp_path) == ["made"]


@pytest.mark.parametrize(
    "names",
    [("a.txt", "A.txt"), ("a", "a/b"), ("A", "a/b"), ("a.txt", "a.txt.idx")],
    ids=["case", "directory", "directory and case", "block index"],
)
async def test_names_that_meet(tmp_path: Path, names: tuple[str, str]) -> None:
    records = [stored(name, item_id=f"call_{number}") for number, name in enumerate(names)]
    parts = [("journal.jsonl", journal(records)), *((name, b"text") for name in sorted(names))]
    write(tmp_path / "made", handmade(parts))
    await refused(tmp_path / "made", tmp_path / "b", ArchiveUnsafe)


async def test_duplicate_names(tmp_path: Path) -> None:
    log = journal([stored("a.txt"), stored("b.txt", item_id="call_2")])
    write(tmp_path / "made", handmade([("journal.jsonl", log), ("a.txt", b"text"), ("a.txt", b"text")]))
    await refused(tmp_path / "made", tmp_path / "b", ArchiveUnsafe)
    write(tmp_path / "made", handmade([("journal.jsonl", log), ("journal.jsonl", log), ("a.txt", b"text")]))
    await refused(tmp_path / "made", tmp_path / "b", ArchiveUnsafe)


async def test_parts_that_the_journal_does_not_know(tmp_path: Path) -> None:
    log = journal([stored("a.txt")])
    for parts, files in (
        ([("journal.jsonl", log), ("a.txt", b"text"), ("b.txt", b"text")], -1),
        ([("journal.jsonl", log), ("a.txt", b"text"), ("b.txt", b"text")], 1),
        ([("journal.jsonl", log), ("b.txt", b"text")], -1),
        ([("journal.jsonl", log)], -1),
        ([("a.txt", b"text"), ("journal.jsonl", log)], -1),
    ):
        write(tmp_path / "made", handmade(parts, files=files))
        await refused(tmp_path / "made", tmp_path / "b", ArchiveUnsafe)


async def test_contents_that_the_journal_contradicts(tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"digest": "0" * 64},
        {"size_bytes": 3},
        {"blocks": 2},
        {"content_length": 3},
        {"content_length": 10**15},
        {"content_offset": 1},
        {"content_offset": -1},
        {"lines": "1"},
        {"chars": None},
        {"encoding": "unheard"},
        {"encoding": 7},
        {"raw": False},
        {"digest": None},
        {"metadata": []},
        {"item_id": 7},
    ]
    for values in wrong:
        write(tmp_path / "made", simple("a.txt", **values))
        await refused(tmp_path / "made", tmp_path / "b", ArchiveUnsafe)


async def test_bytes_beside_a_content(tmp_path: Path) -> None:
    log = journal([stored("a.txt")])
    write(tmp_path / "made", handmade([("journal.jsonl", log), ("a.txt", b"text and more")]))
    await refused(tmp_path / "made", tmp_path / "b", ArchiveUnsafe)


async def test_links_and_other_kinds_of_parts(tmp_path: Path) -> None:
    for extra in ({"link": "/etc/passwd"}, {"type": "symlink"}, {"mode": 0o777}):

        def change(line: dict[str, Any], extra: dict[str, Any] = extra) -> None:
            if line.get("name") == "a.txt":
                line.update(extra)

        data = handmade([("journal.jsonl", journal([stored("a.txt")])), ("a.txt", b"text")], change=change)
        write(tmp_path / "made", data)
        await refused(tmp_path / "made", tmp_path / "b", ArchiveUnsafe)


async def test_a_part_that_announces_more_than_there_can_be(tmp_path: Path) -> None:
    for size, error in ((10**30, ArchiveTooLarge), (-1, ArchiveUnsafe), (True, ArchiveUnsafe)):

        def change(line: dict[str, Any], size: int = size) -> None:
            if line.get("name") == "a.txt":
                line["size_bytes"] = size

        data = handmade([("journal.jsonl", journal([stored("a.txt")])), ("a.txt", b"text")], change=change)
        write(tmp_path / "made", data)
        await refused(tmp_path / "made", tmp_path / "b", error)


async def test_a_part_is_not_read_whose_size_the_journal_contradicts(tmp_path: Path) -> None:
    def change(line: dict[str, Any]) -> None:
        if line.get("name") == "a.txt":
            line["size_bytes"] = 3 << 30  # a compressed archive of 100 kB unfolds to it

    data = handmade([("journal.jsonl", journal([stored("a.txt")])), ("a.txt", b"text")], change=change)
    write(tmp_path / "made", data)
    with pytest.raises(ArchiveUnsafe, match=r"a\.txt has 3,221,225,472 bytes, by the journal 4$"):
        await import_session(tmp_path / "made", root_path=tmp_path / "b")
    assert tree(tmp_path / "b") == []


async def test_lines_that_are_not_as_an_export_writes_them(tmp_path: Path) -> None:
    for old, new in (
        (b'{"name":"a.txt",', b'{"name": "a.txt",'),
        (b'{"name":"a.txt",', b'{"name":"../b","name":"a.txt",'),
        (b'"format":', b'"format":"x","format":'),
    ):
        archive = rewritten(simple("a.txt"), old, new)
        write(tmp_path / "made", archive)
        with pytest.raises(ArchiveError):
            await import_session(tmp_path / "made", root_path=tmp_path / "b")
        assert tree(tmp_path / "b") == []


def rewritten(archive: bytes, old: bytes, new: bytes) -> bytes:
    """Change a line, and the last line's checksum with it."""
    assert old in archive
    lines = [line + b"\n" for line in archive.replace(old, new).split(b"\n")[:-1]]
    spine = [line for line in lines if line.startswith((b'{"format', b'{"name', b'{"sha256'))]
    text = next(line for line in lines if line.startswith(b'text{"sha256'))  # the content ends without a newline
    spine.append(text[len(b"text") :])
    last = json.loads(lines[-1])
    last["end"]["sha256"] = hashlib.sha256(b"".join(spine)).hexdigest()
    return b"".join(lines[:-1]) + json.dumps(last, separators=(",", ":")).encode() + b"\n"


async def test_a_journal_that_is_too_deep(tmp_path: Path) -> None:
    deep = b"[" * 200_000
    rec = b'{"type":"x","a":' + deep + b"]" * len(deep) + b"}"
    line = b'{"v":1,"seq":1,"len":%d,"crc":"%08x","rec":%b}\n' % (len(rec), zlib.crc32(rec, zlib.crc32(b"1:")), rec)
    write(tmp_path / "made", handmade([("journal.jsonl", line)]))
    with pytest.raises(ArchiveError):
        await import_session(tmp_path / "made", root_path=tmp_path / "b")
    assert tree(tmp_path / "b") == []


@pytest.mark.parametrize("session_id", ["../b", "", ".hidden", "CON", "a/b", "x" * 200])
async def test_session_ids_that_lead_elsewhere(tmp_path: Path, session_id: str) -> None:
    def change(line: dict[str, Any]) -> None:
        if "format" in line:
            line["session_id"] = session_id

    log = encode_line(1, [SessionStarted(session_id=session_id, started_at=0.0)])
    write(tmp_path / "made", handmade([("journal.jsonl", log)], change=change))
    await refused(tmp_path / "made", tmp_path / "b", ArchiveUnsafe)
    with pytest.raises(ConfigError):
        await import_session(tmp_path / "made", root_path=tmp_path / "b", session_id=session_id)
    assert tree(tmp_path / "b") == []
    await import_session(tmp_path / "made", root_path=tmp_path / "b", session_id="fine")


@pytest.mark.parametrize("log", [b"", b"\n", b"no journal\n", b'{"v":1,"seq":1'])
async def test_journals_that_are_none(tmp_path: Path, log: bytes) -> None:
    write(tmp_path / "made", handmade([("journal.jsonl", log)]))
    await refused(tmp_path / "made", tmp_path / "b", ArchiveDamaged)


async def test_a_link_in_the_place_of_the_session(tmp_path: Path) -> None:
    write(tmp_path / "made", simple("a.txt"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "one").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SessionExists):
        await import_session(tmp_path / "made", root_path=tmp_path / "b")
    assert not is_there(tmp_path / "elsewhere")


async def test_what_a_killed_import_left_is_removed_by_the_next(tmp_path: Path) -> None:
    write(tmp_path / "made", simple("a.txt"))
    left = ContextFileSystem("x", root_path=tmp_path / "b")
    await left.open()
    await left.close()
    (tmp_path / "b" / "x").rename(tmp_path / "b" / ".ctxfs-import-dead")
    os.utime(tmp_path / "b" / ".ctxfs-import-dead", (0, 0))
    await import_session(tmp_path / "made", root_path=tmp_path / "b")
    assert [name for name in tree(tmp_path / "b") if "/" not in name] == ["one"]


@pytest.mark.both_loops
async def test_cancelling_an_import_leaves_nothing(tmp_path: Path, anyio_backend_name: str) -> None:
    await exported(tmp_path, ["x" * 10_000] * 20)
    (tmp_path / "b").mkdir()
    for number in range(1, 40, 4):
        imported = partial(import_session, tmp_path / "1.ctxfs", root_path=tmp_path / "b", session_id=f"s{number}")
        cancelled = await cancelled_at(f"scope on {anyio_backend_name}", number, imported)
        left = [name for name in tree(tmp_path / "b") if "/" not in name]
        assert left == [f"s{number}"] or (cancelled and left == [])
        for name in left:
            (tmp_path / "b" / name).rename(tmp_path / f"done-{name}")
