"""The tools that look at a directory: bounded, inside it, and never stuck."""

import os
from pathlib import Path

import pytest

from ctxfs.cli.explore import exploration_tools
from ctxfs.tools import Tool

pytestmark = pytest.mark.anyio


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, Tool]:
    (tmp_path / "sub").mkdir()
    (tmp_path / "text.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "sub" / "long.txt").write_text("".join(f"line {n}\n" for n in range(1, 5_001)))
    return {tool.name: tool for tool in exploration_tools(tmp_path)}


async def content(tool: Tool, **arguments: object) -> str:
    result = await tool.run(arguments)
    assert isinstance(result.content, str)
    return result.content


async def test_a_listing_has_sizes_and_names(tools: dict[str, Tool], tmp_path: Path) -> None:
    (tmp_path / "with space  two").write_text("x")
    (tmp_path / "two\nlines").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    listing = await content(tools["list_dir"])
    shown = [line.strip() for line in listing.splitlines()]
    assert {"-  sub/", "14  text.txt", "1  with space  two", "?  pipe"} <= set(shown)
    assert r"'two\nlines'" in listing
    (tmp_path / "sub" / "long.txt").unlink()
    assert await content(tools["list_dir"], path="sub") == "(empty)"


async def test_a_huge_directory_is_bounded(tools: dict[str, Tool], tmp_path: Path) -> None:
    for n in range(1_200):
        (tmp_path / "sub" / f"{n}").touch()
    listing = await content(tools["list_dir"], path="sub")
    assert "1,201 entries; the first 1,000 are shown" in listing
    assert len(listing.splitlines()) == 1_001


async def test_reading_goes_on_where_it_says(tools: dict[str, Tool]) -> None:
    first = await content(tools["read_file"], path="sub/long.txt")
    assert first.startswith("line 1\n")
    assert first.endswith("line 2000\n(go on with first_line=2001)")
    last = await content(tools["read_file"], path="sub/long.txt", first_line=4_001)
    assert last.startswith("line 4001\n")
    assert last.endswith("line 5000\n")
    assert "ends before line 5001" in await content(tools["read_file"], path="sub/long.txt", first_line=5_001)


async def test_odd_files(tools: dict[str, Tool], tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\0" * 5_000)
    (tmp_path / "one-line").write_text("x" * 500_000)
    os.mkfifo(tmp_path / "pipe")
    assert await content(tools["read_file"], path="binary") == "(binary file, 5,000 bytes)"
    long = await content(tools["read_file"], path="one-line")
    assert len(long) < 140_000
    assert long.endswith("(cut in the middle of a line)")
    with pytest.raises(OSError, match="not a regular file"):
        await tools["read_file"].run({"path": "pipe"})


@pytest.mark.parametrize("path", ["..", "/etc/passwd", "link", "sub/../../x", "a\0b"])
@pytest.mark.parametrize("name", ["list_dir", "read_file"])
async def test_nothing_outside_is_shown(tools: dict[str, Tool], tmp_path: Path, name: str, path: str) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises((PermissionError, ValueError)):
        await tools[name].run({"path": path})


async def test_search(tools: dict[str, Tool], tmp_path: Path) -> None:
    (tmp_path / ".hidden").write_text("two\n")
    (tmp_path / "link.txt").symlink_to(tmp_path / "text.txt")
    (tmp_path / "binary").write_bytes(b"\0two\n")
    assert await content(tools["search"], pattern="^t") == "text.txt:2: two\ntext.txt:3: three"
    assert await content(tools["search"], pattern="TWO", ignore_case=True, path="text.txt") == "text.txt:2: two"
    assert await content(tools["search"], pattern="nothing") == "(no match)"
    assert (await content(tools["search"], pattern="line", path="sub")).endswith("(stopped after 200 matches)")
