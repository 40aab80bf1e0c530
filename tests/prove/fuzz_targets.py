"""What reads bytes that may come from anywhere: each target takes any bytes, and lets no error out that is not ours.

Some of the input's first byte decides whether the rest is taken as it is, or put into a frame with right checksums, so
that what lies behind these is reached too.
"""

import asyncio
import atexit
import hashlib
import io
import json
import re
import zlib
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from ctxfs.context.context import Context
from ctxfs.errors import CtxfsError, InvalidFunctionCall, InvalidToolArguments
from ctxfs.messages import CharsCounter
from ctxfs.messages.base import Usage
from ctxfs.messages.items import ItemType
from ctxfs.messages.legacy import parse_reply, render_call
from ctxfs.messages.messages import AssistantMessage, Content, Message, ToolCall, ToolMessage, UserMessage
from ctxfs.messages.names import NameAllocator
from ctxfs.session.content.file import ContentFile
from ctxfs.session.content.reader import ContentReader
from ctxfs.session.content.stored import Stored
from ctxfs.session.discovery import parse_header
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.index import parse_index, render_index
from ctxfs.session.journal import encode_line, scan
from ctxfs.session.records import (
    CallMade,
    EvictionSet,
    ItemAdded,
    Record,
    Removed,
    Replaced,
    SessionStarted,
    WriterOpened,
)
from ctxfs.session.state import SessionState, fold
from ctxfs.session.transfer.archive import ArchiveReader
from ctxfs.session.transfer.sessions import _examine, _take_in
from ctxfs.storage.memory import MemoryDisk, MemoryStore
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import without_threads
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.text.jsontext.path import select_lines
from ctxfs.tools.base import Tool
from ctxfs.tools.retrieval import retrieval_tools
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.lines import LineSearch, search_part
from session_items import make_item

__all__ = ["TARGETS", "Target", "framed"]

T = TypeVar("T")

MAX_ITEMS = 50
LINES = "\n".join(f"line {n} of the log: {'ERROR' if n % 9 == 0 else 'info'}" for n in range(200))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """``run`` takes any bytes; ``seeds`` are inputs that it accepts; ``words`` are what its inputs are made of."""

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()


def _message(content: Content) -> Message:
    return ToolMessage("call_1", "Read", content)


def _file(content: Content, *, raw: bool = False) -> tuple[bytes, Stored]:
    """A content's file, and what the journal says of it."""
    file = ContentFile(
        content, item_id="call_1", item_type=ItemType.TOOL_RESULT, name="tool_result/Read/call_1.json", raw=raw,
        offloaded_at=1, extra={"tool_name": "Read"},
    )  # fmt: skip
    return b"".join(file), file.stored


CONTENTS: tuple[Content, ...] = (
    LINES,
    "",
    "a\ud800b\n",
    ({"type": "text", "text": "a\nb"}, {"type": "image"}),
    "\u00e9\n" * 9,
)
_BODY, _STORED = _file(LINES)
CALL = AssistantMessage(({"type": "tool_use", "id": "call_1", "name": "Read", "input": {"file_path": "a"}},))
RECORDS: tuple[Record, ...] = (
    SessionStarted(session_id="s", started_at=1.0),
    WriterOpened(epoch=1, path="/s", opened_at=1.0),
    EvictionSet(keep_recent={"Read": 1}, parameters={"read_back_weight": 8.0}, rates={"read": 0.1}, ttl_s=300.0),
    ItemAdded(item=make_item("msg_001", UserMessage("go"))),
    ItemAdded(item=make_item("msg_002", CALL)),
    ItemAdded(item=make_item("call_1", _message("")), content_stored=True),
    _STORED,
    Replaced(
        item_id="call_1",
        content="[gone]",
        token_count=2,
        path="tool_result/Read/call_1.json",
        destroyed=True,
        reason="r",
    ),
    Removed(item_ids=("msg_001",), reason="r"),
    CallMade(number=1, usage=Usage(input_tokens=3), model="m"),
)

# Journal and index ---------------------------------------------------------------------------------------------------


def framed(lines: bytes) -> bytes:
    """A journal whose records are ``lines``, one each, with the right sequence and checksums."""
    made: list[bytes] = []
    for seq, rec in enumerate(lines.split(b"\n"), 1):
        crc = zlib.crc32(rec, zlib.crc32(b"%d:" % seq))
        made.append(b'{"v":1,"seq":%d,"len":%d,"crc":"%08x","rec":%b}\n' % (seq, len(rec), crc, rec))
    return b"".join(made)


def _records(data: bytes) -> bytes:
    """The records of a journal, one a line."""
    return b"\n".join(line.split(b'"rec":', 1)[1][:-1] for line in data.splitlines())


def journal(data: bytes) -> None:
    """Read a journal, fold it, and write it again."""
    text = data[1:] if data[:1] < b"\x40" else framed(data[1:])
    found = scan(text)
    state = fold(SessionState(), found.records)
    NameAllocator(state.ids).allocate(ItemType.TOOL_RESULT, "call_1")
    for seq, record in enumerate(found.records, 1):
        again = scan(encode_line(seq, [record]), last_seq=seq - 1)
        assert again.records, "what was read cannot be written"
    if state.items and _chosen(data):
        _wait(_resume(_store(text)))


def _chosen(data: bytes) -> bool:
    """Whether a session goes on with the input too: with one in eight, by a checksum, which no fuzzer learns to hit."""
    return zlib.crc32(data) % 8 == 0


async def _resume(store: MemoryStore) -> None:
    """Go on with the session as an agent does."""
    fs = ContextFileSystem("s", root_path="/nowhere", store=store)
    context = Context(fs, counter=CharsCounter(), keep_recent={"Read": 1})
    with suppress(CtxfsError):
        await context.open()
        with suppress(CtxfsError):
            await context.answer_open_calls("interrupted")
            await context.add(UserMessage("go on"))
            await context.request()
            await fs.verify()
        await context.close()


def index(data: bytes) -> None:
    """Read an index; a ValueError says that it is none."""
    text = data[1:]
    if data[:1] >= b"\x40":
        text += b"\n]"
        text += b',"crc":"%08x"}\n' % zlib.crc32(text)
    with suppress(ValueError):
        parse_index(text)


# Contents ------------------------------------------------------------------------------------------------------------


def content(data: bytes) -> None:
    """Read a content's file: as a stranger's, and by a record that may say anything of it."""
    shape, _, body = data.partition(b"\n")
    encoding = ("text", "blocks", "surrogates", "blocks+surrogates", "bytes", "none")[(shape[0] if shape else 0) % 6]
    numbers = [int(number) for number in re.findall(rb"\d{1,9}", shape)][:4]
    offset, length, lines, blocks = (*numbers, *(0, len(body), 3, 1)[len(numbers) :])
    root = hashlib.sha256(hashlib.sha256(body).digest() * bool(body)).hexdigest()
    stored = Stored(
        item_id="call_1", item_type=ItemType.TOOL_RESULT, name="tool_result/Read/call_1.json", encoding=encoding,
        size_bytes=len(body), chars=len(body), lines=lines, digest=root, blocks=blocks, content_offset=offset,
        content_length=length, raw=b"r" in shape, offloaded_at=1,
    )  # fmt: skip
    with suppress(ValueError):
        parse_header(body)
    store = _store(b"", {stored.name: body})
    _wait(_read(store, stored))
    if _chosen(data):
        _wait(_verify(store))


def _wait(work: Coroutine[Any, Any, T]) -> T:
    """Run what may wait, on a loop that lives as long as the process.

    A hop to a thread and back would take longer than most inputs.
    """
    with without_threads():
        return _loop().run_until_complete(work)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop


def _store(log: bytes, files: dict[str, bytes] | None = None) -> MemoryStore:
    return MemoryStore("s", MemoryDisk(files=files or {}, log=bytearray(log), exists=True))


async def _read(in_memory: MemoryStore, stored: Stored) -> None:
    store = ThreadedStore(in_memory)
    await store.open(create=False, write=False)
    reader = ContentReader(store, stored)

    async def text() -> None:
        async for _ in reader.text_from(2):
            pass

    reads: tuple[Callable[[], Coroutine[Any, Any, object]], ...] = (
        reader.load, lambda: reader.lines(1, 5), lambda: reader.lines(2, 9, max_chars=7), lambda: reader.tail(3), text,
    )  # fmt: skip
    for read in reads:
        with suppress(CtxfsError):
            await read()
    await store.close()


async def _verify(store: MemoryStore) -> None:
    async with ContextFileSystem("s", root_path="/nowhere", store=store) as fs:
        await fs.verify()


# Archives ------------------------------------------------------------------------------------------------------------


def _archive(journal_bytes: bytes, files: dict[str, bytes], session_id: str = "s") -> bytes:
    lines = hashlib.sha256()
    made: list[bytes] = []

    def line(value: dict[str, object]) -> None:
        data = json_codec.dumps(value) + b"\n"
        lines.update(data)
        made.append(data)

    line({"format": "ctxfs-session", "version": 1, "session_id": session_id, "files": len(files)})
    for name, body in {"journal.jsonl": journal_bytes, **files}.items():
        line({"name": name, "size_bytes": len(body)})
        made.append(body)
        line({"sha256": hashlib.sha256(body).hexdigest()})
    size = len(journal_bytes) + sum(map(len, files.values()))
    end = {"files": len(files), "size_bytes": size, "sha256": lines.hexdigest()}
    return b"".join(made) + json_codec.dumps({"end": end}) + b"\n"


def archive(data: bytes) -> None:
    """Import an archive: any bytes, or one whose journal is whatever came, with right checksums."""
    if data[:1] < b"\x40":
        source = data[1:]
    else:
        log = framed(data[1:])
        names = {entry.name for entry in fold(SessionState(), scan(log).records).stored.values()}
        files = {name: _BODY for name in sorted(names) if name.isprintable()}
        source = _archive(log, files)
    reader = _Reader(source)
    with suppress(CtxfsError):
        reader.begin()
        if _chosen(data):
            _wait(_import(reader))
        else:
            _examine(reader.journal())


class _Reader(ArchiveReader):
    """An archive in memory."""

    def __init__(self, source: bytes) -> None:
        super().__init__(io.BytesIO(source), 1 << 20, 20)

    def begin(self) -> None:
        head = self._line()
        self._must_have(head, {"format": str, "version": int, "session_id": str, "files": int})
        self.session_id, self.files = head["session_id"], head["files"]


async def _import(reader: _Reader) -> None:
    in_memory = MemoryStore("s")
    store = ThreadedStore(in_memory)
    await store.open(create=True, write=True)
    target: Any = reader
    await _take_in(target, store, "s")
    await store.close()
    await _resume(in_memory)


# What models write ---------------------------------------------------------------------------------------------------


@cache
def _tools() -> tuple[Tool, ...]:
    """The tools of a session in memory that lives as long as the process."""
    fs = ContextFileSystem("s", root_path="/nowhere", store=MemoryStore("s"))
    texts: dict[str, Content] = {
        "call_1": LINES,
        "call_2": json.dumps({"rows": [{"a": [1, "x\ny"]}] * 9}),
        "call_3": CONTENTS[3],
    }

    async def prepare() -> None:
        await fs.open()
        await fs.writer.store([make_item(item_id, _message(text)) for item_id, text in texts.items()])

    _wait(prepare())
    return retrieval_tools(fs, counter=CharsCounter())


def arguments(data: bytes) -> None:
    """Call a retrieval tool with whatever JSON a model may write."""
    tools = _tools()
    tool = tools[(data[0] if data else 0) % len(tools)]
    try:
        given = json_codec.loads(data[1:])
    except ValueError:
        given = {"ref": "call_2", "path": data[1:].decode("utf-8", "surrogateescape")}
    if isinstance(given, dict):
        with suppress(InvalidToolArguments):
            result = _wait(tool.run(given))
            assert len(str(result.content)) < 200_000, "a result is not bounded"


def json_path(data: bytes) -> None:
    """Address a part of a text, which need be no JSON, by a path, which need be none."""
    path, _, text = data.decode("utf-8", "replace").partition("\n")
    with suppress(InvalidToolArguments):
        for _ in select_lines(text, path):
            pass


def legacy(data: bytes) -> None:
    """Find the calls in a model's reply; what was found is written and found again."""
    text = data.decode("utf-8", "replace")
    with suppress(InvalidFunctionCall):
        for part in parse_reply(text):
            if isinstance(part, ToolCall) and "NaN" not in text and "Infinity" not in text:
                assert parse_reply(render_call(part)) == [part]


def search(data: bytes) -> None:
    """Search a text for an expression; both are whatever came."""
    expression, _, text = data.partition(b"\n")
    with suppress(InvalidToolArguments):
        pattern = LinePattern(expression.decode("utf-8", "replace"), ignore_case=len(data) % 2 == 0)
        lines = LineSearch(pattern, MAX_ITEMS)
        lines.add(search_part(pattern, [(0, text)], MAX_ITEMS))
        lines.finish(text.count(b"\n") + 1)


# All of them ---------------------------------------------------------------------------------------------------------

_JOURNAL = b"".join(encode_line(seq, [record]) for seq, record in enumerate(RECORDS, 1))
_INDEX = b"".join(render_index("s", 3, [_STORED]))
_NAMES = (
    *(
        "type",
        "item_added",
        "stored",
        "replaced",
        "removed",
        "restored",
        "call_made",
        "session_started",
        "writer_opened",
    ),
    *(
        "batch",
        "records",
        "item",
        "item_type",
        "tool_result",
        "assistant_message",
        "message",
        "role",
        "content",
        "usage",
    ),
    *("tool_use", "text", "input", "metadata", "encoding", "digest", "trimmed", "source", "before", "path", "closed"),
)
_ODD = (b"null", b"true", b"-1", b"1e400", b"NaN", b"[[", b"{}", b'"\\ud800"', b"9" * 20, b"9" * 5000, b"[" * 5000)
_WORDS = (*(f'"{name}"'.encode() for name in _NAMES), *_ODD)

TARGETS: dict[str, Target] = {
    "journal": Target(run=journal, seeds=(b"\0" + _JOURNAL, b"\x41" + _records(_JOURNAL)), words=_WORDS),
    "index": Target(run=index, seeds=(b"\0" + _INDEX, b"\x41" + _INDEX.rsplit(b"\n", 2)[0]), words=_WORDS),
    "content": Target(
        run=content,
        seeds=tuple(b"%dr 0\n" % n + _file(each, raw=True)[0] for n, each in enumerate(CONTENTS))
        + tuple(b"%d %d %d\n" % (n, _file(each)[1].content_offset, _file(each)[1].content_length) + _file(each)[0]
                for n, each in enumerate(CONTENTS)),
        words=(b"\\u0041", b"\\ud800", b'"content":', b'"encoding":"blocks"', b"\xed\xa0\x80", b"AAAA", b"=="),
    ),
    "archive": Target(
        run=archive,
        seeds=(b"\0" + _archive(_JOURNAL, {"tool_result/Read/call_1.json": _BODY}) + b"\0",
               b"\x41" + _records(_JOURNAL), b"\x41" + _records(_JOURNAL) + b"\n\0"),
        words=(*_WORDS, b'"name"', b'"size_bytes"', b'"sha256"', b'"end"', b"../x", b"/etc/passwd", b"index.json"),
    ),
    "arguments": Target(
        run=arguments,
        seeds=(b'\0{"ref":"call_1","offset":3,"limit":2}', b'\1{"ref":"call_1","lines":3}', b'\3{"offset":1}',
               b'\2{"ref":"call_1","pattern":"ERR.*","context_lines":2,"max_matches":3,"ignore_case":true}',
               b'\0{"ref":"call_2","path":"$.rows[0:2].a[1]","offset":1,"char_offset":0}'),
        words=(b"$.", b"[*]", b"[-1]", b'["a"]', b"null", b"1e9", b"99999999999999999999", b"\\ud800", b"true", b"-1"),
    ),
    "json_path": Target(
        run=json_path,
        seeds=(b'$.a[0].b\n{"a":[{"b":1}]}', b'$["a"][1:-1]\n{"a":[1,2,3]}', b'$[*].x\n[{"x":1}]', b'$\n"a\\u0041"'),
        words=(b"$", b".a", b"[*]", b"[:]", b"[-:]", b'["\\', b'"\\ud800"', b"{", b"[", b"]", b"}", b'":', b"1e5"),
    ),
    "legacy": Target(
        run=legacy,
        seeds=(b'Let me look.\n<function_call>{"name": "Read", "arguments": {"a": "</function_call>"}}</function_call>',
               b'<function_call>{"name":"a","arguments":{}}</function_call>\n<function_call>{"name":"b","arguments":{"x":[1]}}</function_call>'),
        words=(b"<function_call>", b"</function_call>", b'"name"', b'"arguments"', b'"response"', b"\\u003c", b"\n"),
    ),
    "search": Target(
        run=search,
        seeds=(b"^a.*b$\nab\nacb\n", b"(?i)x|\\bfoo\\b\nfoo\nX\n", b"\\Aa\\z\na\nb", b"[[:alpha:]]+\\d{2,5}\nab12\n"),
        words=(b"(?i)", b"(?-m)", b"\\A", b"\\z", b"\\pL", b"[^", b"{1,1000}", b"*?", b"\\C", b"\\Q", b"(?P<a>"),
    ),
}  # fmt: skip
