"""Content that comes over time: checked block by block as it grows, readable while it does, durable at its end."""

from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from typing import Any

from ctxfs.errors import WriteFailed
from ctxfs.messages.items import ItemType
from ctxfs.session.content.blocks import RAW_BLOCK, BlockIndex, BlockIndexBuilder, index_name, text_lines
from ctxfs.session.content.reader import ContentReader, IndexCache
from ctxfs.session.content.stored import Stored
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import run_to_completion, uninterrupted


class GrowingBlocks:
    """The blocks of bytes that come in pieces; no more than one block is kept."""

    def __init__(self) -> None:
        self._full = BlockIndexBuilder()
        self._open = bytearray()

    @property
    def size_bytes(self) -> int:
        """How many bytes have come."""
        return self._full.size_bytes + len(self._open)

    @property
    def lines(self) -> int:
        """How many lines have come; an unfinished last one counts."""
        newlines = self._full.newlines + self._open.count(b"\n")
        return text_lines(newlines, ends_open=bool(self._open) and not self._open.endswith(b"\n"))

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self._open += data
        while len(self._open) > RAW_BLOCK:  # the last block stays open, so that the end is known
            self._full.add(bytes(self._open[:RAW_BLOCK]), RAW_BLOCK)
            del self._open[:RAW_BLOCK]

    def index(self) -> BlockIndex:
        """Where the blocks stand, up to what has come."""
        blocks = deepcopy(self._full)
        if self._open:
            blocks.add(bytes(self._open), len(self._open))
        return blocks.build()


class GrowingLog:
    """A file of the session that grows until ``finish``. What was appended is never lost, even in a crash.

    ``record`` makes a record of the finished content durable; ``check_open`` raises ``SessionClosed`` once the session
    is closed: what was written until then belongs to the next writer.
    """

    def __init__(
        self,
        store: ThreadedStore,
        *,
        item_id: str,
        name: str,
        metadata: Mapping[str, Any],
        clock: Callable[[], float],
        record: Callable[[Stored], Awaitable[None]],
        check_open: Callable[[], None],
    ) -> None:
        self.item_id = item_id
        self.name = name
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._record = record
        self._check_open = check_open
        self._blocks = GrowingBlocks()
        self._failed: WriteFailed | None = None

    @uninterrupted  # the file and what is known of it stay in step
    async def append(self, data: bytes) -> None:
        """Add ``data``; visible to readers on return.

        Raises ``SessionClosed``, and ``WriteFailed``; then nothing more can be added.
        """
        self._check_open()
        if self._failed is not None:
            raise self._failed
        try:
            await self._store.append(self.name, data)
        except WriteFailed as error:
            self._failed = error
            raise
        await run_to_completion(lambda: self._blocks.feed(data))

    @uninterrupted
    async def finish(self, metadata: Mapping[str, Any]) -> Stored:
        """Make everything durable and record it, with ``metadata`` (JSON) beside it.

        Raises ``SessionClosed`` and ``WriteFailed``.
        """
        self._check_open()
        await self._store.append(self.name, b"", sync=True)
        stored, index = self._so_far({**self._metadata, **metadata})
        if stored.blocks > 1:
            await self._store.replace(index_name(self.name), index.to_bytes())
        await self._record(stored)
        return stored

    def reader(self) -> ContentReader:
        """A reader of what has come so far."""
        stored, index = self._so_far({**self._metadata, "partial": True})
        indexes = IndexCache(self._store, keep=False)
        indexes.put(stored, index)
        return ContentReader(self._store, stored, indexes=indexes)

    def _so_far(self, metadata: Mapping[str, Any]) -> tuple[Stored, BlockIndex]:
        index = self._blocks.index()
        size = self._blocks.size_bytes
        stored = Stored(
            item_id=self.item_id,
            item_type=ItemType.TOOL_RESULT,
            name=self.name,
            encoding="bytes",
            size_bytes=size,
            chars=size,
            lines=self._blocks.lines,
            digest=index.root,
            blocks=index.count,
            content_offset=0,
            content_length=size,
            raw=True,
            offloaded_at=int(self._clock()),
            metadata={**metadata, "encoding": "bytes"},
        )
        return stored, index
