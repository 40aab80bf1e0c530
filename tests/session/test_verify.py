"""``verify`` reads what it says it reads: no byte of a session can change without being named."""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.messages.items import ItemType
from ctxfs.messages.messages import ToolMessage
from ctxfs.messages.names import COMPRESSED_SUFFIX, ENVELOPE, TEXT, Layout
from ctxfs.session.content.blocks import BlockIndex
from ctxfs.session.content.compression import zstd
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.index import parse_index, render_index
from session_items import make_item

pytestmark = pytest.mark.not_measured

PLAIN = replace(ENVELOPE, compress_from_chars=0)
LARGE = "".join(f'row {number}, "quoted"\n' for number in range(40_000))
CONTENTS: dict[str, Any] = {
    "short": "a short text",
    "empty": "",
    "large": LARGE,
    "surrogates": "a \ud800",
    "blocks": ({"type": "text", "text": "one"}, {"type": "text", "text": "two"}),
}


async def make(root: Path, layout: Layout) -> Path:
    async with ContextFileSystem("s", root_path=root, layout=layout) as fs:
        for item_id, content in CONTENTS.items():
            taken_id, name = fs.writer.allocate(ItemType.TOOL_RESULT, item_id, "Read", content)
            await fs.offload(make_item(taken_id, ToolMessage(item_id, "Read", content), 100, name=name))
    return root / "s"


async def named(root: Path) -> list[str]:
    """The files that have a problem."""
    async with ContextFileSystem("s", root_path=root, read_only=True) as fs:
        return [problem.name for problem in (await fs.verify()).problems]


@pytest.fixture(scope="module", params=[PLAIN, TEXT], ids=["envelopes", "texts"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    asyncio.run(make(root, request.param))
    return root


def files_of(root: Path) -> list[Path]:
    """All files but the journal, whose lines are checked whenever it is read."""
    names = [path.relative_to(root) for path in sorted(root.rglob("*")) if path.is_file()]
    return [name for name in names if name.name not in {"journal.jsonl", "lock", ".lock"}]


@pytest.mark.slow
@pytest.mark.usefixtures("loop_may_block")
@given(data=st.data())
def test_no_byte_can_change_unnoticed(
    made: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("copy") / "root"
    shutil.copytree(made, root)
    name = data.draw(st.sampled_from(files_of(made)))
    before = (made / name).read_bytes()
    kind = data.draw(st.sampled_from(["changed", "longer", "shorter"] if before else ["longer"]))
    place = data.draw(st.integers(0, min(len(before), 400) - 1) | st.integers(0, len(before) - 1)) if before else 0
    if kind == "changed":
        after = before[:place] + bytes([before[place] ^ data.draw(st.integers(1, 255))]) + before[place + 1 :]
    elif kind == "longer":
        after = before + data.draw(st.binary(min_size=1, max_size=8))
    else:
        after = before[:place]
    (root / name).write_bytes(after)
    assert asyncio.run(named(root)) == [str(name.relative_to("s"))]


def test_what_was_written_is_right(made: Path) -> None:
    assert asyncio.run(named(made)) == []
    assert "tool_result" in str(files_of(made))


def frames_of(data: bytes) -> Iterator[bytes]:
    while data:
        one = zstd.ZstdDecompressor()
        one.decompress(data)
        end = len(data) - len(one.unused_data)
        yield data[:end]
        data = data[end:]


def other_item(path: Path) -> None:
    first, *others = frames_of(path.read_bytes())
    path.write_bytes(b"".join([zstd.compress(zstd.decompress(first).replace(b'"large"', b'"other"')), *others]))


def two_heads(path: Path) -> None:
    first, *others = frames_of(path.read_bytes())
    path.write_bytes(b"".join([first, zstd.compress(b""), *others]))


def one_more_frame(path: Path) -> None:
    path.write_bytes(path.read_bytes() + zstd.compress(b"more"))


def zeros_behind(path: Path) -> None:
    os.truncate(path, 4 << 30)  # takes no space, and would take long to read


def bomb_first(path: Path) -> None:
    first, *others = frames_of(path.read_bytes())
    path.write_bytes(b"".join([zstd.compress(bytes(1 << 24))[: len(first)].ljust(len(first), b"\0"), *others]))


@pytest.mark.anyio
@pytest.mark.parametrize("change", [other_item, two_heads, one_more_frame, zeros_behind, bomb_first])
async def test_compressed_files_are_checked_whole(tmp_path: Path, change: Callable[[Path], None]) -> None:
    session = await make(tmp_path, ENVELOPE)
    path = session / "tool_result" / "Read" / f"large.json{COMPRESSED_SUFFIX}"
    assert await named(tmp_path) == []
    change(path)
    assert await named(tmp_path) == [str(path.relative_to(session))]


@pytest.mark.anyio
async def test_block_indexes_are_compared_with_the_content(tmp_path: Path) -> None:
    session = await make(tmp_path, PLAIN)
    path = session / "tool_result" / "Read" / "large.json.idx"
    index = BlockIndex.from_bytes(path.read_bytes())
    start = index.row(0)
    forged = BlockIndex(
        b"".join(
            [
                *([start[0].to_bytes(8, "little"), bytes(8), (7).to_bytes(8, "little"), start[3]]),
                index.to_bytes()[-(56 * (index.count - 1)) - 4 : -4],
            ]
        ),
        file_end=index.file_end,
        size_bytes=index.size_bytes,
        newlines=index.newlines,
    )
    assert forged.root == index.root
    path.write_bytes(forged.to_bytes())  # other newlines, with a right checksum
    assert await named(tmp_path) == ["tool_result/Read/large.json.idx"]
    path.unlink()
    assert await named(tmp_path) == []


@pytest.mark.anyio
async def test_the_index_names_all_that_is_stored_in_this_session(tmp_path: Path) -> None:
    path = await make(tmp_path, PLAIN) / "index.json"
    index = parse_index(path.read_bytes())
    path.write_bytes(b"".join(render_index("other", index.journal_seq, index.items.values())))
    assert await named(tmp_path) == ["index.json"]
    path.write_bytes(b"".join(render_index("s", index.journal_seq, list(index.items.values())[1:])))
    assert await named(tmp_path) == ["index.json"]
