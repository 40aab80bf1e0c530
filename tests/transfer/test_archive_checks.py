"""An archive whose parts are right one by one is refused all the same when its lines do not add up."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from ctxfs.errors import ArchiveDamaged, ArchiveError, ArchiveTooLarge, ArchiveUnsafe, ConfigError, SessionExists
from ctxfs.session import export_session, import_session
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.journal import scan
from ctxfs.session.record_json import to_json
from ctxfs.session.records import Record, SessionStarted
from ctxfs.session.transfer.archive import ArchiveWriter
from ctxfs.storage.port import OsFileSystem
from session_items import forged_line, tool_result

pytestmark = pytest.mark.anyio


async def exported(tmp_path: Path) -> Path:
    async with ContextFileSystem("session_1", root_path=tmp_path / "from") as fs:
        await fs.writer.store([tool_result(fs, "content")])
    await export_session("session_1", tmp_path / "archive", root_path=tmp_path / "from")
    return tmp_path / "archive"


async def refused(tmp_path: Path, kind: type[ArchiveError], **options: Any) -> ArchiveError:
    with pytest.raises(kind) as caught:
        await import_session(tmp_path / "archive", root_path=tmp_path / "to", **options)
    assert not list((tmp_path / "to").glob("*"))
    return caught.value


def with_last_line(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        *lines, last = data.splitlines(keepends=True)
        end = json.loads(last)
        change(end["end"])
        return b"".join(lines) + json.dumps(end, separators=(",", ":")).encode() + b"\n"

    return changed


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (with_last_line(lambda end: end.update(sha256="0" * 64)), "last line"),
        (with_last_line(lambda end: end.update(files=2)), "last line"),
        (with_last_line(lambda end: end.update(size_bytes=end["size_bytes"] + 1)), "last line"),
        (with_last_line(lambda end: end.update(more=1)), "last line"),
        (lambda data: data + b"\n", "data after"),
        (lambda data: data + b"x", "data after"),
        (lambda data: data[: data.rindex(b'{"end"')], "truncated"),
        (lambda data: data[:-1], "truncated"),
    ],
)
async def test_an_archive_that_does_not_add_up_is_damaged(
    tmp_path: Path, change: Callable[[bytes], bytes], told: str
) -> None:
    path = await exported(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    assert told in str(await refused(tmp_path, ArchiveDamaged))


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "/etc/x", "a//b", "a\\b", ".hidden", "a/.b", "journal.jsonl", "Journal.JSONL"]
)
async def test_a_content_that_would_lie_elsewhere_is_unsafe(tmp_path: Path, name: str) -> None:
    await import_of_a_content_named(tmp_path, name)


@pytest.mark.parametrize("name", ["index.json", "/".join("a" * 30), "x" * 256, "nul\0"])
async def test_a_content_in_the_place_of_something_else_is_unsafe(tmp_path: Path, name: str) -> None:
    await import_of_a_content_named(tmp_path, name)


async def import_of_a_content_named(tmp_path: Path, name: str) -> None:
    await forge(tmp_path, [name])
    await refused(tmp_path, ArchiveUnsafe)


async def forge(
    tmp_path: Path, names: list[str], *, session_id: str = "session_1", parts: list[str] | None = None
) -> None:
    """Write an archive with contents under these names, with right checksums, as whoever means harm would.

    ``parts``: the names that its parts have, when they are others.
    """
    async with ContextFileSystem("session_1", root_path=tmp_path / "from") as fs:
        await fs.writer.store([tool_result(fs, "content", raw_id=f"call_{number}") for number in range(len(names))])
    journal = (tmp_path / "from" / "session_1" / "journal.jsonl").read_bytes()
    given = iter(names)
    records = [forged_record(record, given, session_id) for record in scan(journal).records]
    forged = forged_line(1, *(to_json(record) for record in records))
    contents = sorted((tmp_path / "from" / "session_1" / "tool_result" / "Read").glob("*.json"))

    def write() -> None:
        writer = ArchiveWriter.create(tmp_path / "archive", OsFileSystem())
        writer.begin(session_id, len(names))
        writer.part("journal.jsonl", [forged], len(forged))
        for name, path in zip(parts or names, contents, strict=True):
            data = path.read_bytes()
            writer.part(name, [data], len(data))
        writer.end()

    await to_thread.run_sync(write)


def forged_record(record: Record, names: Iterator[str], session_id: str) -> Record:
    if isinstance(record, Stored):
        return replace(record, name=next(names))
    return replace(record, session_id=session_id) if isinstance(record, SessionStarted) else record


async def test_what_is_forged_here_is_else_imported(tmp_path: Path) -> None:
    await forge(tmp_path, ["a.json", "b/c.json"])
    await import_session(tmp_path / "archive", root_path=tmp_path / "to")
    async with ContextFileSystem("session_1", root_path=tmp_path / "to") as fs:
        assert await fs.load("call_1") == "content"


@pytest.mark.parametrize(
    "names",
    [["a.json", "A.json"], ["a", "a/b.json"], ["A/b.json", "a"], ["a.json", "a.json.idx"], ["a.json", "a.json"]],
)
async def test_contents_that_would_meet_in_one_file_are_unsafe(tmp_path: Path, names: list[str]) -> None:
    await forge(tmp_path, names)
    await refused(tmp_path, ArchiveUnsafe)


@pytest.mark.parametrize("parts", [["b.json", "a.json"], ["a.json", "a.json"], ["a.json", "c.json"]])
async def test_a_part_is_the_content_that_the_journal_says(tmp_path: Path, parts: list[str]) -> None:
    await forge(tmp_path, ["a.json", "b.json"], parts=parts)
    await refused(tmp_path, ArchiveUnsafe)


@pytest.mark.parametrize("session_id", ["..", "../session", ".hidden", "", "a/b"])
async def test_the_session_id_in_an_archive_is_checked(tmp_path: Path, session_id: str) -> None:
    await forge(tmp_path, ["a.json"], session_id=session_id)
    await refused(tmp_path, ArchiveUnsafe)


async def test_an_archive_is_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "archive")
    assert "not a regular file" in str(await refused(tmp_path, ArchiveError))


async def test_bounds_hold_to_the_byte(tmp_path: Path) -> None:
    path = await exported(tmp_path)
    journal = (tmp_path / "from" / "session_1" / "journal.jsonl").stat().st_size
    content = (tmp_path / "from" / "session_1" / "tool_result" / "Read" / "call_1.json").stat().st_size
    await refused(tmp_path, ArchiveTooLarge, max_bytes=journal + content - 1)
    await refused(tmp_path, ArchiveTooLarge, max_files=0)
    await import_session(path, root_path=tmp_path / "to", max_bytes=journal + content, max_files=1)


@pytest.mark.parametrize("session_id", ["..", "a/b", "", ".hidden", "-x"])
async def test_the_id_of_an_import_is_checked(tmp_path: Path, session_id: str) -> None:
    path = await exported(tmp_path)
    with pytest.raises(ConfigError):
        await import_session(path, root_path=tmp_path / "to", session_id=session_id)
    with pytest.raises(ConfigError):
        await export_session(session_id, tmp_path / "other", root_path=tmp_path / "from")
    with pytest.raises(ConfigError):
        ContextFileSystem(session_id, root_path=tmp_path)
    assert not (tmp_path / "to").exists()


async def test_a_session_is_never_replaced(tmp_path: Path) -> None:
    path = await exported(tmp_path)
    await import_session(path, root_path=tmp_path / "to")
    with pytest.raises(SessionExists):
        await import_session(path, root_path=tmp_path / "to")
    await import_session(path, root_path=tmp_path / "to", session_id="session_2")
    async with ContextFileSystem("session_2", root_path=tmp_path / "to", read_only=True) as fs:
        assert await fs.load("call_1") == "content"
