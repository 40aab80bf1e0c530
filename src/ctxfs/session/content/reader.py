"""Reading stored content back: whole, by lines or from its end, each block checked before a byte of it is given out."""

import logging
import math
from codecs import IncrementalDecoder
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from ctxfs.errors import CorruptContent, NotStored, SessionClosed, WriteFailed
from ctxfs.messages.messages import Block, Content
from ctxfs.session.content.blocks import BlockIndex, BlockIndexBuilder, digest, index_name, index_size
from ctxfs.session.content.compression import check_descriptor
from ctxfs.session.content.encoding import (
    BlocksText,
    decode_blocks,
    decode_content,
    first_block,
    first_compressed_block,
    text_of_blocks,
    window,
)
from ctxfs.session.content.stored import Stored
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import run_in_steps
from ctxfs.text.jsontext.write_stream import BLOCK
from ctxfs.text.steps import checkpoint
from ctxfs.text.utf8 import Utf8Decoder

INDEXES_KEPT = 16
FIRST_FRAME_BYTES = BLOCK // 2
READ_AHEAD_BLOCKS = 4
LONGEST_RUN_BLOCKS = 112
"""The most blocks to ask ``read_run`` for: each run costs a wait for a thread, and what is found in the first one may
make the others needless."""

logger = logging.getLogger("ctxfs.session")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRange:
    """Blocks that follow one another; the first one from after its ``skip``-th newline on (0: all of it)."""

    blocks: range
    skip: int = 0

    def cut(self, first: int, others: int) -> "Iterator[BlockRange]":
        """Cut it into one run of ``first`` blocks and some of ``others`` each."""
        start = self.blocks.start
        size = first
        skip = self.skip
        while start < self.blocks.stop:
            yield BlockRange(blocks=range(start, min(start + size, self.blocks.stop)), skip=skip)
            start += size
            size = others
            skip = 0

    def shared_out(self, readers: int, longest: int, *, first: int) -> "Iterator[BlockRange]":
        """Split it into one range of ``first`` blocks and equal ranges of at most ``longest`` blocks.

        The number of the equal ranges gives all readers the same amount of work.
        """
        others = max(1, len(self.blocks) - first)
        rounds = math.ceil(others / (longest * readers))
        return self.cut(first, math.ceil(others / (rounds * readers)))


class ContentReader:
    r"""Reads one stored content. Lines are separated by ``\\n`` only and counted from 1.

    Every method raises ``CorruptContent`` when the file is not what was written, and ``NotStored`` when it is gone.
    """

    def __init__(self, store: ThreadedStore, stored: Stored, *, indexes: "IndexCache | None" = None) -> None:
        self._store = store
        self.stored = stored
        self._indexes = IndexCache(store, keep=False) if indexes is None else indexes
        self._is_blocks = stored.encoding.startswith("blocks")
        self._errors = "replace" if stored.encoding == "bytes" else "surrogatepass"
        self._last: tuple[int, bytes] | None = None
        self._text: BlocksText | None = None

    async def load(self) -> Content:
        """Return the whole content, checked against the journal's digest."""
        blocks = [block async for block in self.raw_blocks()]
        return await self._decoded(lambda: decode_content(blocks, self.stored.encoding))

    async def check(self) -> None:
        """Read the whole content and check it against the journal's digest, in bounded memory.

        Raises what ``load`` raises.
        """
        async for _ in self.raw_blocks():
            pass

    async def raw_blocks(self) -> AsyncIterator[bytes]:
        """Yield the content's bytes in blocks."""
        index = await self.block_index()
        for number in range(index.count):
            yield await self._block(index, number)

    def text_blocks(self) -> AsyncGenerator[str, None]:
        """Yield the readable text in pieces of bounded size; pieces end anywhere."""
        return self.text_from(1)

    async def text_from(self, first: int) -> AsyncGenerator[str, None]:
        """Yield the readable text from line ``first`` on, in pieces of bounded size; nothing after the last line.

        What stands before the line is not read.
        """
        decoder = Utf8Decoder(self._errors)
        async with aclosing(self.bytes_from(first)) as blocks:
            async for block in blocks:
                yield self._text_of(decoder, block, final=False)
        rest = self._text_of(decoder, b"", final=True)
        if rest:
            yield rest

    async def bytes_from(self, first: int) -> AsyncGenerator[bytes, None]:
        """Yield the readable text's UTF-8 bytes (lone surrogates passed through) from line ``first`` on, in blocks."""
        for run in (await self.run_from(first)).cut(1, READ_AHEAD_BLOCKS):
            pieces: Iterable[tuple[int, bytes]] = await self.read_run(run)
            if len(run.blocks) > 1:  # a single block is decoded sooner than a thread is found for it
                pieces = await run_in_steps(partial(list[tuple[int, bytes]], pieces))
            for _, block in pieces:
                yield block

    async def run_from(self, first: int) -> BlockRange:
        """Return the blocks of the readable text from line ``first`` on; none after the last line."""
        newlines = max(first, 1) - 1
        if newlines and newlines >= self.stored.lines:
            return BlockRange(blocks=range(0))
        index = await self._line_index()
        number = index.block_of_newline(newlines) if newlines else 0
        skip = newlines - index.newlines_before(number) if newlines else 0
        return BlockRange(blocks=range(number, index.count), skip=skip)

    async def read_run(self, run: BlockRange) -> Generator[tuple[int, bytes]]:
        """Read blocks as UTF-8 (see ``bytes_from``), each with the number of newlines before it.

        They are decoded and checked, and read where the store can do that, one by one while the result is iterated: do
        that in a worker thread.
        """
        index = await self._line_index()
        return _pieces(index, run, await self._run_blocks(index, run.blocks))

    async def lines(self, first: int, last: int, *, max_chars: int | None = None) -> tuple[str, ...]:
        r"""Return the lines ``first`` to ``last``, both included, without their ``\\n``; fewer at the end.

        ``max_chars`` bounds what is read and returned, newlines included (None: no bound); the last line may be cut.
        """
        first = max(first, 1)
        last = min(last, self.stored.lines)
        if first > last:
            return ()
        limit = None if max_chars is None else max_chars * 4
        data, whole = await self._line_bytes(first, last, limit)
        text = self._text_of(Utf8Decoder(self._errors), data, final=whole)
        if max_chars is not None:
            text = text[:max_chars]
        if not text:
            return ()
        return tuple(text.removesuffix("\n").split("\n"))

    async def tail(self, count: int, *, max_chars: int | None = None) -> tuple[str, ...]:
        """Return the last ``count`` lines; ``max_chars`` as in ``lines``."""
        return await self.lines(self.stored.lines - count + 1, self.stored.lines, max_chars=max_chars)

    async def media(self, first: int, last: int) -> tuple[tuple[int, Block], ...]:
        """Return the images and documents on the lines ``first`` to ``last``, both included, each with its line."""
        if not self._is_blocks:
            return ()
        media = (await self._blocks_text()).media
        return tuple((line, block) for line, block in media if first <= line <= last)

    async def block_index(self) -> BlockIndex:
        """Return where the blocks stand, from beside the file or, when that is missing or damaged, from the file."""
        return await self._indexes.get(self.stored)

    # ---- blocks

    async def _run_blocks(self, index: BlockIndex, numbers: range) -> Iterator[bytes]:
        if self._text is not None:
            return map(self._text.pieces.__getitem__, numbers)
        if len(numbers) == 1:
            return iter([await self._block(index, numbers[0])])
        spans = [index.file_span(number) for number in numbers]
        # They are read one by one, when they are needed; what was just read is in the cache of a disk or of a bucket.
        forms = self._store.pieces(self.stored.name, ((start, end - start) for start, end in spans))
        return self._verified(index, numbers, forms)

    async def _block(self, index: BlockIndex, number: int) -> bytes:
        if self._last is not None and self._last[0] == number:
            return self._last[1]
        start, end = index.file_span(number)
        data = await self._store.read(self.stored.name, start, end - start)
        (raw,) = self._verified(index, (number,), (data,))
        self._last = (number, raw)
        return raw

    def _verified(
        self, index: BlockIndex, numbers: Iterable[int], forms: Iterable[bytes | memoryview]
    ) -> Iterator[bytes]:
        """Yield blocks from their forms in the file if they are what was written. Raises CorruptContent."""
        stored = self.stored
        decoded = decode_blocks(forms, stored.encoding, raw=stored.raw, compression=stored.compression)
        for number in numbers:
            try:
                block = next(decoded)
            except ValueError as error:
                raise self._corrupt(f"block {number}: {error}") from error
            if digest(block) != index.row(number)[3]:
                raise self._corrupt(f"the checksum of block {number} does not match")
            yield block
            del block  # its memory, still in the processor's cache, is the next one's

    def _corrupt(self, detail: str) -> CorruptContent:
        return CorruptContent(self.stored.name, detail)

    # ---- lines

    def _text_of(self, decoder: IncrementalDecoder, data: bytes, *, final: bool) -> str:
        """The text of the bytes that come next; what is left of a character, too, if they are the last ones."""
        try:
            return decoder.decode(data, final)
        except UnicodeDecodeError as error:
            raise self._corrupt(str(error)) from error

    async def _line_index(self) -> BlockIndex:
        """Return the index of the blocks that lines are counted in: the file's, or those of a block list's text."""
        if self._is_blocks:
            return (await self._blocks_text()).index
        return await self._indexes.get(self.stored)

    async def _blocks_text(self) -> BlocksText:
        if self._text is None:
            blocks = [block async for block in self.raw_blocks()]
            self._text = await self._decoded(lambda: text_of_blocks(blocks))
        return self._text

    async def _text_block(self, index: BlockIndex, number: int) -> bytes:
        if self._text is not None:
            return self._text.pieces[number]
        return await self._block(index, number)

    async def _decoded(self, decode: Callable[[], T]) -> T:
        """Call ``decode``, in a worker thread when it may take long."""
        try:
            if self.stored.size_bytes <= BLOCK:
                return decode()
            return await run_in_steps(decode)
        except ValueError as error:
            raise self._corrupt(str(error)) from error

    async def _line_bytes(self, first: int, last: int, limit: int | None) -> tuple[bytes, bool]:
        """Return the bytes of the lines, and whether they are all there."""
        index = await self._line_index()
        if not index.count:  # the record says that there are lines; the content, that there are none
            raise self._corrupt("it has no lines")
        number = index.block_of_newline(first - 1)
        skipped = first - 1 - index.newlines_before(number)
        block = await self._text_block(index, number)
        block = block[_after_newline(block, skipped) :]
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
            block = await self._text_block(index, number)


def _pieces(index: BlockIndex, run: BlockRange, blocks: Iterator[bytes]) -> Generator[tuple[int, bytes]]:
    skip = run.skip
    for number in run.blocks:
        checkpoint()
        block = next(blocks)
        if skip:
            block = block[_after_newline(block, skip) :]
        yield index.newlines_before(number) + skip, block
        del block  # as in ContentReader._verified
        skip = 0


def _after_newline(data: bytes, ordinal: int) -> int:
    """Return the position after the ``ordinal``-th newline (0: the start), or the end when there are fewer."""
    if ordinal <= 0:
        return 0
    low = 0
    high = len(data)
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


class IndexCache:
    """The block indexes of a store's contents, found where they are cheapest. ``keep`` writes back what was lost."""

    def __init__(self, store: ThreadedStore, *, keep: bool) -> None:
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
        if stored.blocks > 1:
            try:
                index = await read_index(self._store, stored)
            except (NotStored, ValueError):
                pass  # derived: rebuilt from the file below
            else:
                if index.root == stored.digest:
                    return index
        index = await scan_blocks(self._store, stored, max_bytes=stored.size_bytes)
        if index.root != stored.digest:
            raise CorruptContent(stored.name, "its digest differs from the journal's")
        if self._keep and stored.blocks > 1:
            await self._write_back(stored, index)
        return index

    async def _write_back(self, stored: Stored, index: BlockIndex) -> None:
        try:
            await self._store.replace(index_name(stored.name), index.to_bytes())
        except (WriteFailed, SessionClosed) as error:  # derived: reading goes on without it, even without the lock
            logger.warning("%s", error)


async def read_index(store: ThreadedStore, stored: Stored) -> BlockIndex:
    """Return the block index beside a file, which is not compared with the file. It is read in blocks.

    Raises ``NotStored``, and ValueError if it is damaged, or has not the size of an index of this content.
    """
    size = index_size(stored.blocks)
    data = bytearray()
    while len(data) <= size:
        wanted = min(BLOCK, size + 1 - len(data))
        piece = await store.read(index_name(stored.name), len(data), wanted)
        data += piece
        if len(piece) < wanted:
            break
    if len(data) != size:
        raise ValueError("the block index has not the size that it needs")
    return BlockIndex.from_bytes(bytes(data))


async def scan_blocks(
    store: ThreadedStore, stored: Stored, *, max_bytes: int | None = None, exact: bool = False
) -> BlockIndex:
    """Find the blocks of a content in its file alone, as they were written.

    ``max_bytes`` bounds the content, which a small compressed file may claim to be huge; None: no bound. ``exact``:
    what a decoder of compressed blocks ignores must be as it was written, too. Raises ``CorruptContent`` and
    ``NotStored``.
    """
    blocks = BlockIndexBuilder(stored.content_offset)
    end = stored.content_offset + stored.content_length
    largest = window(stored.encoding, raw=stored.raw)
    window_size = FIRST_FRAME_BYTES if stored.compression else largest
    while blocks.file_end < end:
        data = await store.read(stored.name, blocks.file_end, min(window_size, end - blocks.file_end))
        try:
            found = _first_block(data, stored)
            if exact and stored.compression and found is not None:
                check_descriptor(data)
        except ValueError as error:
            raise CorruptContent(stored.name, str(error)) from error
        if found is None and len(data) == window_size <= largest:
            window_size *= 2
            continue
        if found is None or not found[1]:
            raise CorruptContent(stored.name, "it ends too early")
        blocks.add(*found)
        if max_bytes is not None and blocks.size_bytes > max_bytes:
            raise CorruptContent(stored.name, f"it has more than {max_bytes:,} bytes")
    return blocks.build()


def _first_block(data: bytes, stored: Stored) -> tuple[bytes, int] | None:
    """Return a content's next block and how many bytes of the file it takes; None: there are too few of them."""
    if stored.compression:
        return first_compressed_block(data, stored.encoding, raw=stored.raw, compression=stored.compression)
    return first_block(data, stored.encoding, raw=stored.raw)
