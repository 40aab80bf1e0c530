"""A content as the bytes of its file, without a store."""

from typing import Any

import pytest

from ctxfs.errors import InvalidRecord
from ctxfs.messages.items import ItemType
from ctxfs.messages.messages import Content
from ctxfs.session.content.encoding import RawBytes, decode_blocks, encode_blocks
from ctxfs.session.content.file import ContentFile
from ctxfs.text.jsontext.write_stream import BLOCK

CONTENTS: dict[str, Content | RawBytes] = {
    "empty": "",
    "lines": "a line of a log\n" * 3,
    "two blocks": "x" * BLOCK + "\nand the rest\n",
    "lines of two blocks": "a line of a log\n" * (BLOCK // 16 + 2),
    "surrogate": "a lone \ud800 one",
    "blocks": ({"type": "text", "text": "one"}, {"type": "text", "text": "two"}),
    "blocks with a surrogate": ({"type": "text", "text": "a lone \ud800 one"},),
    "bytes": RawBytes(b"\xff\x00 not text"),
}


def file_of(content: Content | RawBytes, **settings: Any) -> ContentFile:
    given: dict[str, Any] = {"raw": False, "offloaded_at": 1, "extra": {}, **settings}
    return ContentFile(content, item_id="c1", item_type=ItemType.TOOL_RESULT, name="tool_result/t/c1.json", **given)


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("compressed", [False, True])
def test_what_is_written_is_read_back(name: str, *, raw: bool, compressed: bool) -> None:
    content = CONTENTS[name]
    file = file_of(content, raw=raw, compressed=compressed)
    written = b"".join(file)
    stored = file.stored
    assert stored.content_offset + stored.content_length <= len(written)
    forms = encode_blocks(content, stored.encoding, raw=raw, compression=stored.compression)
    pairs = list(forms)
    form = b"".join(one for _, one in pairs)
    assert written[stored.content_offset :].startswith(form)
    read = decode_blocks([one for _, one in pairs], stored.encoding, raw=raw, compression=stored.compression)
    assert b"".join(read) == b"".join(data for data, _ in pairs)
    assert stored.size_bytes == sum(len(data) for data, _ in pairs)


def test_compressed_text_is_cut_at_lines() -> None:
    pairs = list(encode_blocks(CONTENTS["lines of two blocks"], "text", raw=True, compression="zstd"))
    assert len(pairs) == 2
    assert all(data.endswith(b"\n") for data, _ in pairs)


@pytest.mark.parametrize("settings", [{"extra": {"biz_id": object()}}, {}])
def test_what_could_not_be_read_back_is_refused(settings: dict[str, Any]) -> None:
    content: Any = "text" if settings else ({"no": "type"},)
    with pytest.raises(InvalidRecord, match=r"tool_result/t/c1\.json cannot be stored"):
        list(file_of(content, **settings))
