"""Growing output where each write is a request: it is buffered until there is enough, or until the next commit."""

from dataclasses import dataclass, field
from typing import Final

PART_BYTES: Final = 1 << 20
"""Buffered output is written when there is this much of it ..."""

PART_S: Final = 5.0
"""... or when the oldest bytes have waited this long."""


@dataclass(slots=True)
class Growing:
    """Bytes appended to files, by name, that are not written yet; ``since``: when the oldest were appended."""

    files: dict[str, bytearray] = field(default_factory=dict)
    since: float = 0.0

    def add(self, name: str, data: bytes, now: float) -> None:
        """Take the next bytes of a file; none, the first time, means that the file exists and is empty."""
        if not any(self.files.values()):
            self.since = now
        self.files.setdefault(name, bytearray()).extend(data)

    def is_due(self, now: float) -> bool:
        """Whether the buffered bytes have to be written now."""
        waiting = sum(map(len, self.files.values()))
        return waiting >= PART_BYTES or (waiting > 0 and now >= self.since + PART_S)

    def after(self, name: str, size: int, offset: int, length: int | None, read: bytes) -> bytes:
        """Return the bytes after ``read`` in a range of a file, ``size`` bytes of which have been written."""
        start = max(0, offset - size)
        return bytes(self.files.get(name, b"")[start : None if length is None else start + length - len(read)])
