"""Nothing that is read can raise an error that is none of ours: the twin, without atheris, of the part "fuzz"."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.errors import ArchiveDamaged, CorruptContent, InvalidToolArguments
from ctxfs.messages.items import ItemType
from ctxfs.session.content.reader import ContentReader
from ctxfs.session.content.stored import Stored
from ctxfs.session.journal import scan
from ctxfs.storage.memory import MemoryStore
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.text.jsontext.path import select_lines
from prove.fuzz_targets import TARGETS, _Reader, framed
from prove.mutating import mutants

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

NAMES = sorted(TARGETS)


@pytest.mark.parametrize("name", NAMES)
def test_seeds_with_a_few_changes(name: str) -> None:
    for data in mutants(TARGETS[name], 1, 1_500):
        try:
            TARGETS[name].run(data)
        except Exception as error:
            raise AssertionError(f"{name} of {data!r}") from error


@pytest.mark.parametrize("name", NAMES)
@given(data=st.binary(max_size=200))
def test_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name].run(data)


@pytest.mark.parametrize("path", ['$["\\q"]', "$[-:3]", "$[:-]", '$["\\ud8"]', "$[1:-1:2]"])
def test_a_path_that_is_none_is_said_to_be(path: str) -> None:
    with pytest.raises(InvalidToolArguments):
        list(select_lines('{"a":[1,2,3]}', path))


@pytest.mark.parametrize(
    "record",
    [
        b"[]", b"7", b"[" * 100_000, b'{"type":[]}', b'{"type":"removed","item_ids":[{}],"reason":"r"}',
        b'{"type":"writer_opened","epoch":1,"path":7,"opened_at":1}', b'{"type":"batch","records":[1]}',
        b'{"type":"call_made","number":1,"usage":[],"model":"m"}', b'{"type":"closed","closed_at":NaN}',
        (b'{"type":"item_added","item":{"id":1,"item_type":"user_message","message":{"role":"user","content":"a"},'
        b'"name":"a","token_count":1,"content_tokens":1}}'),
        (b'{"type":"item_added","item":{"id":"a","item_type":"user_message","message":{"role":"user","content":[1]},'
        b'"name":"a","token_count":1,"content_tokens":1}}'),
        (b'{"type":"item_added","item":{"id":"a","item_type":"assistant_message","message":{"role":"assistant",'
        b'"content":[{"type":"tool_use"}]},"name":"a","token_count":1,"content_tokens":1}}'),
    ],
)  # fmt: skip
def test_a_record_of_the_wrong_types_is_damage(record: bytes) -> None:
    found = scan(framed(record))
    assert len(found.damages) == 1
    assert found.records == ()


@pytest.mark.parametrize(("encoding", "blocks", "body"), [("text", 0, b""), ("surrogates", 1, b"a\xf7\nb")])
async def test_a_record_that_the_content_contradicts_is_damage(encoding: str, blocks: int, body: bytes) -> None:
    store = ThreadedStore(MemoryStore())
    await store.open(create=True, write=True)
    await store.replace("a", body)
    stored = Stored(
        item_id="a", item_type=ItemType.TOOL_RESULT, name="a", encoding=encoding, size_bytes=9, chars=9, lines=9,
        digest="", blocks=blocks, content_offset=0, content_length=len(body), raw=True, offloaded_at=1,
    )  # fmt: skip
    with pytest.raises(CorruptContent):
        await ContentReader(store, stored).lines(1, 5)


def test_an_archives_line_of_no_json_is_damage() -> None:
    for line in (b'{"\\ud800":NaN}\n', b"[" * 9_000 + b"\n", b"7\n"):
        with pytest.raises(ArchiveDamaged):
            _Reader(line).begin()


def test_a_file_that_only_looks_like_an_envelope_does_not_keep_a_session_closed() -> None:
    for seed in TARGETS["content"].seeds:
        for last in range(16):  # a session goes on with some of these
            TARGETS["content"].run(re.sub(rb'"encoding":"\w+"', b'"encoding":1.5', seed) + bytes([last]))
