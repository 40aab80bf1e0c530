"""A cache of what was read from a bucket, in a local directory: a page that was read before needs no request."""

import hashlib
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from ctxfs.errors.checks import names_settings, require_int
from ctxfs.storage.failures import writing

logger = logging.getLogger("ctxfs.stores")

PART_BYTES: Final = 1 << 20
"""A content is cached in parts of this size: reading a page fetches the parts that contain it."""

_SUM_BYTES: Final = 32
_SHARE: Final = 16  # the size is checked each time a 16th of max_bytes was added


@names_settings()
class ReadCache:
    """A read-through cache of contents, shared by all processes that name the same directory.

    Stored contents never change, so nothing in the cache is ever stale. Each part is kept with a SHA-256 of its name
    and its bytes, so a part that is damaged, or in the place of another one, is fetched again. The least recently read
    parts are removed first. The directory is created with mode 0700, because it holds contents of sessions. It may be
    removed at any time.

    Args:
        directory: where the parts are; it is created when it does not exist.
        max_bytes: the limit of the cache's size. Each process may exceed it by a 16th.

    Raises:
        ConfigError: ``max_bytes`` is not a whole number from 1 on.
    """

    def __init__(self, directory: Path, *, max_bytes: int = 1 << 30) -> None:
        require_int("max_bytes", max_bytes, at_least=1)
        self._directory = Path(directory)
        self._max_bytes = max_bytes
        self._added = max_bytes  # so the first part added checks what other processes have cached
        self._lock = threading.Lock()

    def read(self, name: str, size: int, offset: int, length: int, fetch: Callable[[int, int], bytes]) -> bytes:
        """Return ``length`` bytes of a content from ``offset`` on; all of them must be within its ``size`` bytes.

        ``name`` is unique to the content. ``fetch(offset, size)`` reads what is not cached; its exceptions are not
        caught. A directory that cannot be written only costs requests.
        """
        first = offset // PART_BYTES
        parts = [
            self._part(f"{name}\0{part}", part * PART_BYTES, min(PART_BYTES, size - part * PART_BYTES), fetch)
            for part in range(first, (offset + length - 1) // PART_BYTES + 1)
        ]
        skipped = offset - first * PART_BYTES
        return b"".join(parts)[skipped : skipped + length]

    def remove(self, name: str, size: int) -> None:
        """Remove all cached parts of a content of ``size`` bytes. Raises ``WriteFailed``."""
        for part in range((size + PART_BYTES - 1) // PART_BYTES):
            path = self._path(f"{name}\0{part}")
            with writing(str(path)):
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode()).hexdigest()
        return self._directory / digest[:2] / digest[2:]

    def _part(self, name: str, offset: int, size: int, fetch: Callable[[int, int], bytes]) -> bytes:
        path = self._path(name)
        data = _kept(path, name)
        if data is None or len(data) != size:
            data = fetch(offset, size)
            try:
                self._keep(path, name, data)
            except OSError as error:
                logger.warning("%s cannot be kept in the cache: %s", path, error)
        return data

    def _keep(self, path: Path, name: str, data: bytes) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        temporary = path.with_name(f".{uuid4().hex}")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_sum(name, data) + data)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        with self._lock:
            self._added += len(data)
            due = self._added > self._max_bytes // _SHARE
            if due:
                self._added = 0
        if due:
            self._shrink()

    def _shrink(self) -> None:
        """Remove the least recently read parts until the cache is within its limit."""
        found = []
        for path in self._directory.glob("??/*"):
            with suppress(FileNotFoundError):  # another process may remove parts too
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, path))
        excess = sum(size for _, size, _ in found) - self._max_bytes
        for _, size, path in sorted(found):
            if excess <= 0:
                return
            path.unlink(missing_ok=True)
            excess -= size


def _sum(name: str, data: bytes) -> bytes:
    return hashlib.sha256(b"%s\0%s" % (name.encode(), data)).digest()


def _kept(path: Path, name: str) -> bytes | None:
    """Return the part at ``path`` and mark it as just read; None: there is none, or it is damaged."""
    try:
        data = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    if _sum(name, data[_SUM_BYTES:]) != data[:_SUM_BYTES]:
        path.unlink(missing_ok=True)
        return None
    return data[_SUM_BYTES:]
