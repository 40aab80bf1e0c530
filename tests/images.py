"""The smallest whole images of each format, as far as their headers and ends go; only the PNG has pixels."""

import base64
import struct

from ctxfs.testing import strategies


def png(width: int, height: int) -> bytes:
    return base64.b64decode(strategies.png(width, height))


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(20) + b";"


def jpeg(width: int, height: int) -> bytes:
    thumbnail = bytes(39_990) + b"\xff\xd8\xff\xd9" + bytes(6)
    metadata = b"\xff\xe1" + struct.pack(">H", 40_002) + thumbnail
    table = b"\xff\xff\xc4" + struct.pack(">H", 4) + bytes(2)  # a fill byte, and a marker in the frames' range
    frame = b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width) + bytes(20)
    return b"\xff\xd8" + metadata + table + frame + b"\xff\xd9"


def webp(kind: bytes, body: bytes) -> bytes:
    chunk = kind + struct.pack("<I", len(body)) + body + bytes(20)
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk


def webp_extended(width: int, height: int) -> bytes:
    return webp(b"VP8X", bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"))


def webp_lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + (width - 1 | (height - 1) << 14).to_bytes(4, "little"))


def webp_lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height))
