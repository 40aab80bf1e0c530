"""Whether the file of a content is what was written: its envelope, every block, its end, and the index beside it."""

from ctxfs.errors import CorruptContent, NotStored
from ctxfs.session.content.blocks import BlockIndex
from ctxfs.session.content.compression import check_descriptor, frame_content
from ctxfs.session.content.file import header_of, trailer_of
from ctxfs.session.content.reader import read_index, scan_blocks
from ctxfs.session.content.stored import Stored
from ctxfs.storage.threaded import ThreadedStore


async def check_file(store: ThreadedStore, stored: Stored, *, grows: bool = False) -> BlockIndex:
    """Read the whole file, compare it with what the journal says, and return where its blocks are; in bounded memory.

    Compressed parts are compared as what they unfold to, and the headers of their frames with ours.

    ``grows``: the file may go on behind the content.

    Raises:
        CorruptContent: the file is missing, or it is not what was written.

    """
    # The file has three parts, and the journal says what each is: the head of the envelope, which is made again from
    # the record; the blocks, which have a checksum; the end of the envelope, behind which there is nothing.
    try:
        await _check_header(store, stored)
        index = await _check_blocks(store, stored)
        if not grows:
            await _check_end(store, stored)
    except NotStored as error:
        detail = f"the file, with the content of item {stored.item_id}, is missing"
        raise CorruptContent(stored.name, detail) from error
    except (ValueError, TypeError) as error:
        raise CorruptContent(stored.name, str(error)) from error
    return index


async def check_block_index(store: ThreadedStore, stored: Stored, index: BlockIndex) -> None:
    """Compare the block index beside a file with ``index``, that of the file. One that is missing can be made again.

    Raises:
        ValueError: it is not that of the file.

    """
    try:
        found = await read_index(store, stored)
    except NotStored:
        return
    if found.to_bytes() != index.to_bytes():
        raise ValueError("it is not the index of this content")


async def _check_header(store: ThreadedStore, stored: Stored) -> None:
    header = header_of(stored)
    found = await store.read(stored.name, 0, stored.content_offset)
    if stored.compression and header:
        frame = found
        found = frame_content(frame, len(header))
        check_descriptor(frame)
    if found != header:
        raise ValueError("the head of its envelope is not what the journal says")


async def _check_blocks(store: ThreadedStore, stored: Stored) -> BlockIndex:
    index = await scan_blocks(store, stored, max_bytes=stored.size_bytes, exact=True)
    if (index.root, index.size_bytes, index.count) != (stored.digest, stored.size_bytes, stored.blocks):
        raise ValueError("it is not what the journal says")
    return index


async def _check_end(store: ThreadedStore, stored: Stored) -> None:
    trailer = trailer_of(stored.encoding, raw=stored.raw, compression=stored.compression)
    end = stored.content_offset + stored.content_length
    if await store.read(stored.name, end, len(trailer) + 1) != trailer:
        raise ValueError("it does not end with its content")
