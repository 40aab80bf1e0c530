"""Compressed contents: zstd, a frame for each block of the content. Pure.

A compressed file is what the file would be without compression, cut into frames that know nothing of each other: the
head of its envelope if it has one, each block, and the end of its envelope. ``zstd -d`` gives back the whole, and a
block is read alone. What a frame may unfold to is bounded before it does: a file may be anybody's.
"""

import sys
from collections.abc import Callable

if sys.version_info >= (3, 14):
    from compression import zstd as zstd  # noqa: PLC0414 - others import it from here  # pragma: no cover
else:
    from backports import zstd as zstd  # noqa: PLC0414 - others import it from here

ZSTD = "zstd"
"""How a record names the compression."""

_LEVEL = 1  # of what contents are, the higher ones save a twentieth more, for a quarter more work
_MAX_WINDOW = {int(zstd.DecompressionParameter.window_log_max): 21}  # 2 MiB of memory, more than a block ever has
MAX_ARCHIVE_WINDOW = {int(zstd.DecompressionParameter.window_log_max): 23}
"""The same for a frame of any length, as the zstd program makes it: 8 MiB."""

MAGIC = b"\x28\xb5\x2f\xfd"
_LENGTH_SIZE = 0xC0
_ONE_SEGMENT = 0x20
_RAW_LAST_BLOCK = 1


def compressor() -> Callable[[bytes], bytes]:
    """Return a function that makes a frame of bytes; not for several threads at a time."""
    made = zstd.ZstdCompressor(level=_LEVEL)
    return lambda data: made.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def fixed_frame(data: bytes) -> bytes:
    """Return a frame of fewer than 256 bytes, which stand in it as they are: the same with every version of zstd."""
    block_header = (len(data) << 3 | _RAW_LAST_BLOCK).to_bytes(3, "little")
    return MAGIC + bytes((_ONE_SEGMENT, len(data))) + block_header + data


def check_descriptor(frame: bytes | memoryview) -> None:
    """Raise ValueError if the descriptor of a frame is not one of ours, though a decoder may ignore what differs.

    RFC 8878, 3.1.1.1.1: beside the size of the length, ours say one segment, no checksum and no dictionary, and the
    unused and the reserved bit are 0.
    """
    if frame[len(MAGIC)] & ~_LENGTH_SIZE != _ONE_SEGMENT:
        raise ValueError("the header of a zstd frame is not as it was written")


def frame_content(frame: bytes | memoryview, limit: int) -> bytes:
    """Return what is in exactly one frame. Raises ValueError if it is not one, or has more than ``limit`` bytes."""
    found = first_frame(frame, limit)
    if found is None or found[1] != len(frame):
        raise ValueError("it is not one whole zstd frame")
    return found[0]


def first_frame(data: bytes | memoryview, limit: int) -> tuple[bytes, int] | None:
    """Return what is in the frame that ``data`` starts with, and the frame's length; None if its end is not there.

    Raises ValueError if ``data`` does not start with a frame, or the frame has more than ``limit`` bytes.
    """
    decompressor = zstd.ZstdDecompressor(options=_MAX_WINDOW)
    try:
        content = decompressor.decompress(data, limit + 1)
    except zstd.ZstdError as error:
        raise ValueError(f"it cannot be decompressed: {error}") from error
    if len(content) > limit:
        raise ValueError(f"a zstd frame has more than {limit:,} bytes")
    return (content, len(data) - len(decompressor.unused_data)) if decompressor.eof else None
