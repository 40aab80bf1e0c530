"""The bytes on disk: what earlier versions wrote is read, and no field of it can change without being noticed."""

import zlib
from dataclasses import replace

import pytest

from ctxfs.messages.items import ItemType
from ctxfs.session.content.blocks import BlockIndex, BlockIndexBuilder
from ctxfs.session.content.encoding import RawBytes, first_block
from ctxfs.session.content.file import ContentFile
from ctxfs.session.discovery import parse_header
from ctxfs.session.index import parse_index, render_index
from ctxfs.session.journal import encode_line, scan
from ctxfs.session.records import Closed, WriterOpened
from session_items import stored_record

CLOSED = b'{"v":1,"seq":1,"len":33,"crc":"50c7f7f6","rec":{"type":"closed","closed_at":5.0}}\n'
BATCH = (
    b'{"v":1,"seq":2,"len":125,"crc":"d7a65135","rec":{"type":"batch","records":['
    b'{"type":"writer_opened","epoch":3,"path":"/s","opened_at":6.0},{"type":"closed","closed_at":7.0}]}}\n'
)


def test_a_journal_of_an_earlier_version_is_read() -> None:
    found = scan(CLOSED + BATCH)
    assert found.records == (
        Closed(closed_at=5.0),
        WriterOpened(epoch=3, path="/s", opened_at=6.0),
        Closed(closed_at=7.0),
    )
    assert (found.damages, found.last_seq, found.end, found.torn_bytes) == ((), 2, len(CLOSED + BATCH), 0)


def test_what_is_written_is_what_earlier_versions_read() -> None:
    assert encode_line(1, [Closed(closed_at=5.0)]) == CLOSED
    assert encode_line(2, [WriterOpened(epoch=3, path="/s", opened_at=6.0), Closed(closed_at=7.0)]) == BATCH


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (b'"seq":1', b'"seq":2', "checksum"),
        (b'"len":33', b'"len":34', "checksum"),
        (b"5.0", b"6.0", "checksum"),
        (b'"crc":"50', b'"crc":"00', "checksum"),
        (b"}}\n", b"}]\n", "not a journal line"),
        (b'{"v"', b'{ "v"', "not a journal line"),
    ],
)
def test_no_field_of_a_line_changes_unnoticed(before: bytes, after: bytes, reason: str) -> None:
    assert CLOSED.count(before) == 1
    changed = CLOSED.replace(before, after)
    found = scan(changed + BATCH)
    assert found.records == scan(BATCH).records
    assert (found.damages[0].offset, found.damages[0].length) == (0, len(changed))
    assert reason in found.damages[0].reason


def test_lines_that_are_missing_are_told() -> None:
    (damage,) = scan(BATCH).damages
    assert (damage.offset, damage.length) == (0, 0)
    assert damage.reason == "1 line is missing before line 2"
    (damage,) = scan(CLOSED + encode_line(5, [Closed(closed_at=1.0)])).damages
    assert damage.offset == len(CLOSED)
    assert damage.reason == "3 lines are missing before line 5"


def test_a_line_counts_once() -> None:
    found = scan(CLOSED + BATCH + CLOSED)
    assert found.last_seq == 2
    assert [damage.reason for damage in found.damages] == ["line 1 comes after line 2"]
    assert len(found.records) == 3
    assert scan(CLOSED + CLOSED + BATCH) == replace(scan(CLOSED + BATCH), end=len(CLOSED + CLOSED + BATCH))
    assert [damage.offset for damage in scan(CLOSED, last_seq=1).damages] == [0]


@pytest.mark.parametrize(("size", "torn"), [(15, False), (16, True), (500, True)])
def test_a_hole_at_the_end_is_torn_and_one_in_the_middle_is_damage(size: int, torn: bool) -> None:
    hole = b'{"v":1' + bytes(size) + b"}\n"
    found = scan(CLOSED + hole)
    assert (found.torn_bytes, found.end) == ((len(hole), len(CLOSED)) if torn else (0, len(CLOSED + hole)))
    assert len(found.damages) == (0 if torn else 1)
    assert scan(CLOSED + hole + hole).torn_bytes == (2 * len(hole) if torn else 0)
    found = scan(CLOSED + hole + BATCH)
    assert (found.torn_bytes, len(found.damages), len(found.records)) == (0, 1, 3)


def test_a_line_without_its_end_is_torn() -> None:
    found = scan(CLOSED + BATCH[:-1], offset=100)
    assert (found.end, found.torn_bytes, found.last_seq) == (100 + len(CLOSED), len(BATCH) - 1, 1)
    assert scan(b"").torn_bytes == 0


INDEX = (
    b'{"schema_version":"1.0","session_id":"s","journal_seq":7,"items":[\n'
    b'{"item_id":"call_1","item_type":"tool_result","name":"tool_result/Read/call_1.json","encoding":"text",'
    b'"size_bytes":5,"chars":5,"lines":1,"digest":"ab","blocks":1,"content_offset":7,"content_length":5,"raw":false,'
    b'"offloaded_at":1,"metadata":{"encoding":"text"}}\n],"crc":"e99bb1fc"}\n'
)


def test_an_index_of_an_earlier_version_is_read_and_written() -> None:
    found = parse_index(INDEX)
    assert (found.session_id, found.journal_seq, found.items) == ("s", 7, {"call_1": stored_record()})
    assert b"".join(render_index("s", 7, [stored_record()])) == INDEX


@pytest.mark.parametrize("count", [0, 1, 2, 254, 255, 256, 257, 600])
def test_an_index_of_any_size_comes_back(count: int) -> None:
    entries = {f"call_{n}": stored_record(item_id=f"call_{n}", size_bytes=n) for n in range(count)}
    pieces = list(render_index("s", count, entries.values()))
    assert parse_index(b"".join(pieces)).items == entries
    assert len(b"".join(pieces).splitlines()) == count + 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"journal_seq":7', b'"journal_seq":8'),
        (b'"chars":5', b'"chars":6'),
        (b'"}\n', b'"}'),
        (b'"}\n', b'"}\n\n'),
        (b'"}\n', b'"} '),
    ],
)
def test_no_byte_of_an_index_changes_unnoticed(before: bytes, after: bytes) -> None:
    with pytest.raises(ValueError, match="index"):
        parse_index(INDEX.replace(before, after))
    for end in range(0, len(INDEX), 7):
        with pytest.raises(ValueError, match="index"):
            parse_index(INDEX[:end])


@pytest.mark.parametrize("value", [b"NaN", b"1e999", b"[" * 260 + b"]" * 260])
def test_an_index_that_could_not_be_written_again_is_none(value: bytes) -> None:
    body = INDEX[: INDEX.index(b'],"crc"')].replace(b'"encoding":"text"}', b'"encoding":"text","value":%b}' % value)
    with pytest.raises(ValueError, match="value"):
        parse_index(body + b'],"crc":"%08x"}\n' % zlib.crc32(body))


def block_index() -> BlockIndex:
    builder = BlockIndexBuilder(10)
    for block in (b"a\nb", b"c\n\n", b"d"):
        builder.add(block, len(block))
    return builder.build()


def test_a_block_index_comes_back() -> None:
    index = BlockIndex.from_bytes(block_index().to_bytes())
    assert (index.count, index.file_end, index.size_bytes, index.newlines) == (3, 17, 7, 3)
    assert [index.file_span(number) for number in range(3)] == [(10, 13), (13, 16), (16, 17)]
    assert [index.newlines_before(number) for number in range(4)] == [0, 1, 3, 3]
    assert [index.block_of_newline(ordinal) for ordinal in (1, 2, 3)] == [0, 1, 1]
    assert [index.row(number)[1] for number in range(3)] == [0, 3, 6]
    assert index.root == block_index().root


def test_no_byte_of_a_block_index_changes_unnoticed() -> None:
    data = block_index().to_bytes()
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        with pytest.raises(ValueError, match="block index"):
            BlockIndex.from_bytes(bytes(changed))
    for end in range(len(data)):
        with pytest.raises(ValueError, match="block index"):
            BlockIndex.from_bytes(data[:end])


def test_a_block_index_of_another_kind_is_none_of_ours() -> None:
    """Its checksum may be right all the same."""
    data = block_index().to_bytes()[:-4]
    other = data.replace(b"ctxfs-index-1", b"other-index-1")
    with pytest.raises(ValueError, match="not a block index"):
        BlockIndex.from_bytes(other + zlib.crc32(other).to_bytes(4, "little"))
    longer = data + b"x"
    with pytest.raises(ValueError, match="not a block index"):
        BlockIndex.from_bytes(longer + zlib.crc32(longer).to_bytes(4, "little"))


def file_of(content: str | RawBytes, *, raw: bool = False) -> ContentFile:
    return ContentFile(
        content,
        item_id="call_1",
        item_type=ItemType.TOOL_RESULT,
        name="tool_result/Read/call_1.json",
        raw=raw,
        offloaded_at=9,
        extra={"tool_name": "Read"},
    )


def test_an_envelope_is_what_the_spec_says() -> None:
    file = file_of('say "hi"\n')
    data = b"".join(file)
    head = (
        b'{"schema_version":"1.0","item_id":"call_1","item_type":"tool_result","offloaded_at":9,'
        b'"metadata":{"tool_name":"Read","encoding":"text"},"content":"'
    )
    assert data == head + b'say \\"hi\\"\\n"}\n'
    assert parse_header(data) == (
        {
            "schema_version": "1.0",
            "item_id": "call_1",
            "item_type": "tool_result",
            "offloaded_at": 9,
            "metadata": {"tool_name": "Read", "encoding": "text"},
        },
        len(head),
    )
    entry = file.stored
    assert (entry.content_offset, entry.content_length) == (len(head), 12)
    assert (entry.size_bytes, entry.chars, entry.lines, entry.blocks) == (9, 9, 1, 1)


@pytest.mark.parametrize(
    ("content", "chars", "lines"),
    [
        ("", 0, 0),
        ("\n", 1, 1),
        ("a", 1, 1),
        ("a\n", 2, 1),
        ("a\nb", 3, 2),
        ("ä\n\n", 3, 2),
        (RawBytes(b""), 0, 0),
        (RawBytes(b"a\nb"), 3, 2),
        (RawBytes(b"\xff\n"), 2, 1),
    ],
)
@pytest.mark.parametrize("raw", [True, False])
def test_sizes_are_counted(content: str | RawBytes, chars: int, lines: int, raw: bool) -> None:
    file = file_of(content, raw=raw)
    b"".join(file)
    assert (file.stored.chars, file.stored.lines) == (chars, lines)


@pytest.mark.parametrize(
    ("whole", "split"),
    [("", r"\u0001"), ("ab", r"\u0001"), ("ab", r"\n"), ("ab", r"\\"), ("ab", "é"), ("ab", "😀"), (r"ab\\", r"\u0001")],
)
def test_what_the_end_of_a_window_splits_is_left_for_the_next_one(whole: str, split: str) -> None:
    before, after = whole.encode(), split.encode()
    for part in range(len(after)):
        text, used = first_block(before + after[:part], "text", raw=False)
        assert (text, used) == (whole.replace(r"\\", "\\").encode(), len(before))
    text, used = first_block(before + after, "text", raw=False)
    assert (len(text) > len(whole.replace(r"\\", "\\")), used) == (True, len(before + after))


def test_what_only_looks_like_an_escape_sequence_is_text() -> None:
    assert first_block(rb"ab\\u00", "text", raw=False) == (rb"ab\u00", 7)
    assert first_block(rb"\\\\n", "text", raw=False) == (rb"\\n", 5)
