import base64
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ctxfs.errors import ToolError
from ctxfs.messages.items import ContentRange
from ctxfs.messages.messages import Content
from ctxfs.messages.names import short_name
from ctxfs.messages.tokens import default_counter
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.port import OsFileSystem
from ctxfs.tools import Tool, ToolResult, read_tool
from ctxfs.tools.read import Roots
from images import gif, jpeg, png, webp_lossy
from session_items import tool_result

pytestmark = pytest.mark.anyio


async def stored(fs: ContextFileSystem, content: Content, raw_id: str = "call_1") -> str:
    """Store a tool result; its absolute path."""
    return await fs.offload(tool_result(fs, content, raw_id, "Bash"))


@pytest.fixture
async def fs(tmp_path: Path) -> AsyncIterator[ContextFileSystem]:
    async with ContextFileSystem(root_path=tmp_path / "sessions") as opened:
        yield opened


async def test_what_is_stored_is_read_by_its_short_name(fs: ContextFileSystem) -> None:
    await stored(fs, "one\ntwo")
    for name in (short_name("call_1"), str(fs.session_path / short_name("call_1"))):
        assert "2: two" in str((await read(read_tool(fs), name)).content).replace("\t", ": ")
    unknown = await read(read_tool(fs), short_name("call_2"))
    assert unknown.is_error
    assert "no file 'stored/" in str(unknown.content)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "a.txt").write_text("one\ntwo\nthree\n")
    (folder / "src" / "b.txt").write_bytes(b"caf\xe9\n")
    (folder / "program").write_bytes(b"\x7fELF\0\0")
    (folder / "dot.png").write_bytes(png(1, 1))
    (folder / "huge.png").write_bytes(png(1, 1) + b"\0" * (4 * 1024 * 1024))
    (folder / "wide.png").write_bytes(png(9_000, 1))
    (folder / "cut.png").write_bytes(png(9, 9)[:-8])
    (folder / "empty").touch()
    (tmp_path / "secret").write_text("secret")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "outdir").symlink_to(tmp_path)
    (folder / "inside").symlink_to(folder / "a.txt")
    os.mkfifo(folder / "pipe")
    return folder


async def read(tool: Tool, file_path: object, **arguments: Any) -> ToolResult:
    return await tool.run({"file_path": str(file_path), **arguments})


def text(result: ToolResult) -> str:
    assert isinstance(result.content, str)
    return result.content


async def test_an_envelope_is_read_as_the_numbered_lines_of_its_content(fs: ContextFileSystem) -> None:
    path = await stored(fs, 'first "quoted"\nsecond\u2028still second\nthird')
    assert json.loads(Path(path).read_text())["content"].startswith("first")  # noqa: ASYNC240
    result = await read(read_tool(fs), path)
    assert result.content == '1\tfirst "quoted"\n2\tsecond\u2028still second\n3\tthird'
    assert result.source == ContentRange(item_id="call_1", path=path, first_line=1, last_line=3)


async def test_pages_are_bounded_and_lead_on_until_every_line_was_seen_once(fs: ContextFileSystem) -> None:
    content = "".join(f"line {n} of the log\n" for n in range(1, 20_001))
    path = await stored(fs, content)
    tool = read_tool(fs, max_tokens=20_000)
    seen: list[str] = []
    offset: int | None = 1
    while offset is not None:
        result = await read(tool, path, offset=offset)
        assert default_counter().count(text(result)) <= 20_000
        *rows, footer = text(result).split("\n")
        seen.extend(row.split("\t", 1)[1] for row in rows)
        assert result.source is not None
        assert (result.source.first_line, result.source.last_line) == (offset, len(seen))
        offset = int(footer.rsplit("offset=", 1)[1][:-1]) if "next:" in footer else None
    assert "\n".join(seen) + "\n" == content


async def test_offset_and_limit_choose_lines_anywhere_in_a_large_content(fs: ContextFileSystem) -> None:
    content = "".join(f"line {n} é\n" for n in range(1, 100_001))
    path = await stored(fs, content)
    result = await read(read_tool(fs), path, offset=77_777, limit=2)
    assert (
        text(result) == "77777\tline 77777 é\n77778\tline 77778 é\n[lines 77,777-77,778 of 100,000; next: offset=77779]"
    )


async def test_a_long_line_is_read_in_parts(fs: ContextFileSystem) -> None:
    line = "".join(f"{n:07}," for n in range(100_000))
    path = await stored(fs, f"a\n{line}\nb")
    tool = read_tool(fs, max_tokens=2_000)
    first = text(await read(tool, path))
    assert "this line goes on: offset=2, char_offset=" in first
    part = text(await read(tool, path, offset=2, char_offset=700_000))
    assert part.startswith(f"2\t{line[700_000:700_100]}")
    assert "[line 2 of 3, characters 700,000-" in part


async def test_an_item_id_and_a_name_in_the_session_mean_the_same_content(fs: ContextFileSystem) -> None:
    await stored(fs, "abc")
    tool = read_tool(fs)
    assert text(await read(tool, "call_1")) == text(await read(tool, "tool_result/Bash/call_1.json")) == "1\tabc"


async def test_blocks_are_read_as_their_text_and_images_come_after_it(fs: ContextFileSystem) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
    path = await stored(fs, ({"type": "text", "text": "one\ntwo"}, image))
    page = {"type": "text", "text": "1\tone\n2\ttwo\n3\t[image: image/png, 3 bytes]"}
    assert (await read(read_tool(fs), path)).content == (page, image)
    assert text(await read(read_tool(fs), path, offset=2, limit=1)).startswith("2\ttwo\n[line 2 of 3;")


async def test_lone_surrogates_and_empty_content_can_be_read(fs: ContextFileSystem) -> None:
    path = await stored(fs, "a\ud800\nb")
    assert text(await read(read_tool(fs), path)) == "1\ta\ud800\n2\tb"
    path = await stored(fs, "", "call_2")
    assert text(await read(read_tool(fs), path)) == "[it is empty]"


async def test_past_the_end_is_an_error_that_says_how_many_lines_there_are(fs: ContextFileSystem) -> None:
    path = await stored(fs, "a\nb")
    result = await read(read_tool(fs), path, offset=3)
    assert result == ToolResult("offset=3 is past the end: there are 2 lines", is_error=True)


async def test_a_damaged_file_is_an_error_and_no_content(fs: ContextFileSystem) -> None:
    path = Path(await stored(fs, "the truth"))
    path.write_bytes(path.read_bytes().replace(b"truth", b"trash"))  # noqa: ASYNC240
    result = await read(read_tool(fs), path)
    assert result.is_error
    assert "checksum" in text(result) or "digest" in text(result)
    assert "trash" not in text(result)


async def test_what_another_session_stored_is_unknown_even_under_an_allowed_root(
    fs: ContextFileSystem, tmp_path: Path
) -> None:
    async with ContextFileSystem(root_path=tmp_path / "sessions") as other:
        foreign = await stored(other, "foreign secret", "call_9")
    tool = read_tool(fs, roots=[tmp_path])
    unknown = str(Path(foreign).with_name("call_8.json"))
    result = await read(tool, foreign)
    assert result.is_error
    assert text(result).replace("call_9", "call_8") == text(await read(tool, unknown))
    assert (await read(tool, "call_9")).is_error
    assert (await read(tool, fs.session_path / "journal.jsonl")).is_error
    assert (await read(tool, fs.session_path / "tool_result" / ".." / "journal.jsonl")).is_error


async def test_files_under_a_root_are_read_by_any_path_to_them(fs: ContextFileSystem, project: Path) -> None:
    tool = read_tool(fs, roots=[project])
    for path in (project / "a.txt", "a.txt", "src/../a.txt", project / "inside"):
        result = await read(tool, path)
        assert result == ToolResult("1\tone\n2\ttwo\n3\tthree")
    assert text(await read(tool, "src/b.txt")) == "1\tcaf\ufffd"
    assert text(await read(tool, "a.txt", offset=2, limit=1)) == "2\ttwo\n[line 2; next: offset=3]"
    assert text(await read(tool, "a.txt", offset=3)) == "3\tthree\n[line 3 of 3; end]"
    assert text(await read(tool, "empty")) == "[it is empty]"


@pytest.mark.parametrize(
    "path", ["out", "outdir/secret", "../secret", "/etc/passwd", "", "a\0b", "none.txt", "a.txt/x"]
)
async def test_what_is_not_under_a_root_is_unknown(fs: ContextFileSystem, project: Path, path: str) -> None:
    result = await read(read_tool(fs, roots=[project]), path)
    assert result.is_error
    assert text(result) == f"no file {path!r}: you may read what this session stored, and files under {project}"


async def test_without_roots_no_file_can_be_read(fs: ContextFileSystem, project: Path) -> None:
    result = await read(read_tool(fs), project / "a.txt")
    assert result.is_error
    assert text(result).endswith("you may read what this session stored, and no other files")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("program", "is a binary file"),
        ("pipe", "is not a regular file"),
        ("src", "is a directory, read one of its 1 files: b.txt"),
        (".", "is a directory, read one of its"),
        ("huge.png", "at most 8,000 pixels a side and 3,932,160 bytes, and read that"),
        ("wide.png", "(image dimensions exceed the maximum of 8000 pixels: 9000 x 1): make a whole PNG"),
        ("cut.png", "(could not process image): make a whole PNG"),
    ],
)
async def test_what_cannot_be_shown_says_why(fs: ContextFileSystem, project: Path, name: str, reason: str) -> None:
    result = await read(read_tool(fs, roots=[project]), project / name)
    assert result.is_error
    assert reason in text(result)


async def test_a_small_image_is_shown(fs: ContextFileSystem, project: Path) -> None:
    content = (await read(read_tool(fs, roots=[project]), "dot.png")).content
    assert isinstance(content, tuple)
    assert content[0]["type"] == "image"
    assert content[0]["source"]["media_type"] == "image/png"


@pytest.mark.parametrize(
    ("data", "media_type"),
    [(jpeg(2, 1), "image/jpeg"), (gif(2, 1), "image/gif"), (webp_lossy(2, 1), "image/webp")],
    ids=["JPEG", "GIF", "WebP"],
)
async def test_images_are_known_by_their_bytes(
    fs: ContextFileSystem, project: Path, data: bytes, media_type: str
) -> None:
    (project / "picture").write_bytes(data)
    content = (await read(read_tool(fs, roots=[project]), "picture")).content
    assert isinstance(content, tuple)
    assert content[0]["source"] == {
        "type": "base64",
        "media_type": media_type,
        "data": base64.b64encode(data).decode(),
    }


@pytest.mark.parametrize("end", ["", "\n"])
async def test_a_large_file_is_paged(fs: ContextFileSystem, project: Path, end: str) -> None:
    lines = [f"row {n} " + "é" * 20 for n in range(1, 40_001)]
    (project / "large").write_text("\n".join(lines) + end)
    tool = read_tool(fs, roots=[project])
    assert text(await read(tool, "large", offset=39_999)) == (
        f"39999\t{lines[-2]}\n40000\t{lines[-1]}\n[lines 39,999-40,000 of 40,000; end]"
    )
    assert text(await read(tool, "large", offset=20_000, limit=1)).startswith(f"20000\t{lines[19_999]}\n")
    assert text(await read(tool, "large", offset=40_001)) == "offset=40001 is past the end: there are 40,000 lines"


@pytest.mark.parametrize("arguments", [{"offset": 0}, {"limit": 0}, {"char_offset": -1}])
async def test_impossible_arguments_are_refused(fs: ContextFileSystem, arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="greater than or equal to"):
        await read(read_tool(fs), "call_1", **arguments)


class SwappedAfterTheLook(OsFileSystem):
    """A file system on which somebody swaps a file right after it was looked at."""

    def __init__(self, target: Path, swap: Callable[[Path], None]) -> None:
        self._target = target
        self._swap = swap

    def open_read(self, dir_fd: int, name: str) -> int:
        if name == self._target.name:
            self._target.unlink()
            self._swap(self._target)
        return super().open_read(dir_fd, name)


async def test_a_file_is_found_under_whichever_root_has_it(fs: ContextFileSystem, project: Path) -> None:
    tool = read_tool(fs, roots=[project / "gone", project / "src", project])
    assert text(await read(tool, "a.txt")) == text(await read(tool, project / "a.txt")) == "1\tone\n2\ttwo\n3\tthree"
    assert text(await read(tool, "b.txt")) == "1\tcaf\ufffd"


@pytest.mark.parametrize(
    ("swap", "reason"),
    [
        (lambda path: path.symlink_to("/etc/passwd"), "cannot be read"),
        (os.mkfifo, "is not a regular file"),
        (Path.mkdir, "is not a regular file"),
        (lambda path: None, "no file"),
    ],
)
def test_a_file_swapped_while_it_is_opened_is_refused(project: Path, swap: Callable[[Path], None], reason: str) -> None:
    swapping = SwappedAfterTheLook(project / "a.txt", swap)
    roots = Roots([project], sessions=project / "sessions", fs=swapping)
    with pytest.raises(ToolError, match=reason):
        roots.read("a.txt", first=1, limit=9, max_chars=99, char_offset=None)
