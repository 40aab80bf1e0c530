"""Reading stored content back: whole, by lines or from its end, each block checked before a byte of it is given out."""

import codecs
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Protocol

from anyio import to_thread

from ctxfs.context import encoding as codec
from ctxfs.context.encoding import BLOCK, BlockIndex, RawBytes
from ctxfs.context.records import Stored
from ctxfs.errors import CorruptContent, NotStored, WriteFailed
from ctxfs.llm.messages import Content
from ctxfs.storage.base import Store

__all__ = ["ContentReader", "IndexCache", "RawBytes", "scan_blocks"]

INDEXES_KEPT = 16
READ_AHEAD_BLOCKS = 4

logger = logging.getLogger(__name__)


class ContentReader:
    r"""Reads one stored content. Lines are separated by ``\\n`` only and counted from 1.

    Every method raises ``CorruptContent`` when the file is not what was written, and ``NotStored`` when it is gone.
    """

    def __init__(self, store: Store, stored: Stored, *, indexes: "IndexCache | None" = None) -> None:
        self._store = store
        self.stored = stored
        self._indexes = IndexCache(store, keep=False) if indexes is None else indexes
        self._is_blocks = stored.encoding.startswith("blocks")
        self._last: tuple[int, bytes] | None = None
        self._readable: bytes | None = None

    async def load(self) -> Content:
        """Return the whole content, checked against the journal's digest."""
        blocks = [block async for block in self.raw_blocks()]
        try:
            return codec.decode_content(blocks, self.stored.encoding)
        except ValueError as error:
            raise self._corrupt(str(error)) from error

    async def raw_blocks(self) -> AsyncIterator[bytes]:
        """Yield the content's bytes in blocks."""
        index = await self.block_index()
        for number in range(index.count):
            yield await self._block(index, number)

    async def text_blocks(self) -> AsyncIterator[str]:
        """Yield the readable text in pieces of bounded size; pieces end anywhere."""
        decode = self._decoder()
        async for block in self._readable_blocks():
            yield decode(block, final=False)
        if rest := decode(b"", final=True):
            yield rest

    async def text_from(self, first: int) -> AsyncGenerator[str, None]:
        """Yield the readable text from line ``first`` on, in pieces of bounded size; nothing after the last line.

        What stands before the line is not read.
        """
        decode = self._decoder()
        async with aclosing(self.bytes_from(first)) as blocks:
            async for block in blocks:
                yield decode(block, final=False)
        if rest := decode(b"", final=True):
            yield rest

    async def bytes_from(self, first: int) -> AsyncGenerator[bytes, None]:
        """Yield the readable text's UTF-8 bytes (lone surrogates passed through) from line ``first`` on, in blocks."""
        newlines = max(first, 1) - 1
        if newlines and newlines >= self.stored.lines:
            return
        if self._is_blocks:
            data = await self._readable_bytes()
            for start in range(_after_newline(data, newlines), len(data), BLOCK):
                yield data[start : start + BLOCK]
            return
        index = await self.block_index()
        number = index.block_of_newline(newlines) if newlines else 0
        skip = newlines - index.newlines_before(number) if newlines else 0
        block = await self._block(index, number) if number < index.count else b""
        yield block[_after_newline(block, skip) :] if skip else block
        for following in range(number + 1, index.count, READ_AHEAD_BLOCKS):
            for block in await self._run(index, following, min(following + READ_AHEAD_BLOCKS, index.count)):
                yield block

    async def lines(self, first: int, last: int, *, max_chars: int | None = None) -> tuple[str, ...]:
        r"""Return the lines ``first`` to ``last``, both included, without their ``\\n``; fewer at the end.

        ``max_chars`` bounds what is read and returned, newlines included (None: no bound); the last line may be cut.
        """
        first, last = max(first, 1), min(last, self.stored.lines)
        if first > last:
            return ()
        limit = None if max_chars is None else max_chars * 4
        data, whole = await self._line_bytes(first, last, limit)
        text = self._decoder()(data, final=whole)
        if max_chars is not None:
            text = text[:max_chars]
        return tuple(text.removesuffix("\n").split("\n")) if text else ()

    async def tail(self, count: int, *, max_chars: int | None = None) -> tuple[str, ...]:
        """Return the last ``count`` lines; ``max_chars`` as in ``lines``."""
        if count <= 0:
            return ()
        return await self.lines(self.stored.lines - count + 1, self.stored.lines, max_chars=max_chars)

    async def block_index(self) -> BlockIndex:
        """Return where the blocks stand, from beside the file or, when that is missing or damaged, from the file."""
        return await self._indexes.get(self.stored)

    # ---- blocks

    async def _block(self, index: BlockIndex, number: int) -> bytes:
        if self._last is not None and self._last[0] == number:
            return self._last[1]
        start, end = index.file_span(number)
        data = await self._store.read(self.stored.name, start, end - start)
        raw = self._checked(index, number, data)
        self._last = (number, raw)
        return raw

    async def _run(self, index: BlockIndex, first: int, stop: int) -> list[bytes]:
        """Read blocks in one go, and check them in a worker thread: for those who read on and on."""
        start, end = index.file_span(first)[0], index.file_span(stop - 1)[1]
        data = memoryview(await self._store.read(self.stored.name, start, end - start))

        def checked() -> list[bytes]:
            spans = [index.file_span(number) for number in range(first, stop)]
            pieces = [bytes(data[low - start : high - start]) for low, high in spans]
            return [self._checked(index, first + i, piece) for i, piece in enumerate(pieces)]

        return await to_thread.run_sync(checked)

    def _checked(self, index: BlockIndex, number: int, data: bytes) -> bytes:
        """Decode a block's form in the file. Raises CorruptContent."""
        try:
            raw = codec.decode_block(data, self.stored.encoding, raw=self.stored.raw)
        except ValueError as error:
            raise self._corrupt(f"block {number}: {error}") from error
        if codec.digest(raw) != index.row(number)[3]:
            raise self._corrupt(f"the checksum of block {number} does not match")
        return raw

    def _corrupt(self, detail: str) -> CorruptContent:
        return CorruptContent(self.stored.name, detail)

    # ---- lines

    def _decoder(self) -> "_Decode":
        errors = "replace" if self.stored.encoding == "bytes" else "surrogatepass"
        decoder = codecs.getincrementaldecoder("utf-8")(errors)

        def decode(data: bytes, *, final: bool) -> str:
            try:
                return decoder.decode(data, final)
            except UnicodeDecodeError as error:
                raise self._corrupt(str(error)) from error

        return decode

    async def _readable_bytes(self) -> bytes:
        if self._readable is None:
            text = codec.readable_text(await self.load())
            self._readable = text.encode("utf-8", "surrogatepass")
        return self._readable

    async def _readable_blocks(self) -> AsyncIterator[bytes]:
        if not self._is_blocks:
            async for block in self.raw_blocks():
                yield block
            return
        data = await self._readable_bytes()
        for start in range(0, len(data), BLOCK):
            yield data[start : start + BLOCK]

    async def _line_bytes(self, first: int, last: int, limit: int | None) -> tuple[bytes, bool]:
        """Return the bytes of the lines, and whether they are all there."""
        if self._is_blocks:
            data = await self._readable_bytes()
            start = _after_newline(data, first - 1)
            data = data[start : _after_newline(data, last)]
            return (data, True) if limit is None or len(data) <= limit else (data[:limit], False)
        index = await self.block_index()
        if not index.count:  # the record says that there are lines; the content, that there are none
            raise self._corrupt("it has no lines")
        number = index.block_of_newline(first - 1) if first > 1 else 0
        block = await self._block(index, number)
        block = block[_after_newline(block, first - 1 - index.newlines_before(number)) :]
        wanted = last - first + 1
        pieces: list[bytes] = []
        size = 0
        while True:
            block = block[: _after_newline(block, wanted)]
            wanted -= block.count(b"\n")
            pieces.append(block)
            size += len(block)
            number += 1
            if limit is not None and size > limit:
                return b"".join(pieces)[:limit], False
            if wanted <= 0 or number >= index.count:
                return b"".join(pieces), True
            block = await self._block(index, number)


def _after_newline(data: bytes, ordinal: int) -> int:
    """Return the position after the ``ordinal``-th newline (0: the start), or the end when there are fewer."""
    if ordinal <= 0:
        return 0
    low, high = 0, len(data)
    if data.count(b"\n") < ordinal:
        return high
    before = 0
    while high - low > 1:
        middle = (low + high) // 2
        count = data.count(b"\n", low, middle)
        if before + count >= ordinal:
            high = middle
        else:
            before += count
            low = middle
    return high


class _Decode(Protocol):
    def __call__(self, data: bytes, *, final: bool) -> str: ...


class IndexCache:
    """The block indexes of a store's contents, found where they are cheapest. ``keep`` writes back what was lost."""

    def __init__(self, store: Store, *, keep: bool) -> None:
        self._store = store
        self._keep = keep
        self._indexes: dict[str, BlockIndex] = {}

    def put(self, stored: Stored, index: BlockIndex) -> None:
        """Keep an index that is known."""
        self._indexes[stored.name] = index

    async def get(self, stored: Stored) -> BlockIndex:
        """Return where the blocks of a content stand. Raises ``CorruptContent`` and ``NotStored``."""
        found = self._indexes.pop(stored.name, None)
        if found is None or found.root != stored.digest:
            found = await self._find(stored)
        self._indexes[stored.name] = found  # the last used is the last to go
        if len(self._indexes) > INDEXES_KEPT:
            del self._indexes[next(iter(self._indexes))]
        return found

    async def _find(self, stored: Stored) -> BlockIndex:
        name = codec.index_name(stored.name)
        if stored.blocks > 1:
            try:
                index = BlockIndex.from_bytes(await self._store.read(name))
            except (NotStored, ValueError):
                pass  # derived: rebuilt from the file below
            else:
                if index.root == stored.digest:
                    return index
        index = await scan_blocks(self._store, stored)
        if index.root != stored.digest:
            raise CorruptContent(stored.name, "its digest is not the journal's")
        if self._keep and stored.blocks > 1:
            await self._write_back(name, index)
        return index

    async def _write_back(self, name: str, index: BlockIndex) -> None:
        try:
            await self._store.replace(name, index.to_bytes())
        except WriteFailed as error:  # derived: reading goes on without it
            logger.warning("%s", error)


async def scan_blocks(store: Store, stored: Stored) -> BlockIndex:
    """Find the blocks of a content in its file alone, as they were written."""
    rows: list[tuple[int, int, int, bytes]] = []
    position, end = stored.content_offset, stored.content_offset + stored.content_length
    size = newlines = 0
    window = codec.window(stored.encoding, raw=stored.raw)
    while position < end:
        data = await store.read(stored.name, position, min(window, end - position))
        try:
            raw, used = codec.first_block(data, stored.encoding, raw=stored.raw)
        except ValueError as error:
            raise CorruptContent(stored.name, str(error)) from error
        if not used:
            raise CorruptContent(stored.name, "it ends too early")
        rows.append((position, size, newlines, codec.digest(raw)))
        position += used
        size += len(raw)
        newlines += raw.count(b"\n")
    return BlockIndex.build(rows, file_end=end, size_bytes=size, newlines=newlines)
