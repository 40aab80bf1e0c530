r"""The format of exported files: writing and reading it. Synchronous.

The file is a line of JSON that says what it is, then parts, then a line that ends it, and nothing after that::

    {"format":"ctxfs-session","version":1,"session_id":"session_…","files":2}\n
    {"name":"journal.jsonl","size_bytes":812}\n <812 bytes> {"sha256":"…"}\n
    {"name":"tool_result/Read/call_1.json","size_bytes":1048576}\n <1048576 bytes> {"sha256":"…"}\n
    …
    {"end":{"files":2,"size_bytes":…,"sha256":"…"}}\n

The journal comes first, up to its last complete line, with one more for commands that have not ended; then every
content that it refers to, sorted by name. Anything derived from these (the index, the block indexes) is left out, and
nothing in the file depends on where the session was or what its directory was called: export, import and export again
give the same bytes. The last line's checksum covers all other lines, and those cover the parts. There are no links.

Contents that the session keeps compressed are parts as they are. The whole file may be one zstd frame: import then
decompresses it while reading, and its limits count the decompressed bytes.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, cast

from ctxfs.errors import ArchiveDamaged, ArchiveError, ArchiveTooLarge, ArchiveUnsafe, NameTaken, WriteFailed
from ctxfs.session.content.compression import MAGIC, MAX_ARCHIVE_WINDOW, zstd
from ctxfs.session.journal import LineCheck
from ctxfs.storage.failures import reason_of
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.port import FileSystem, close_quietly, write_all
from ctxfs.text.jsontext import codec as json_codec

MAX_JOURNAL_BYTES = 1 << 30

FORMAT = "ctxfs-session"
VERSION = 1
CHUNK_BYTES = 4 << 20
MAX_LINE_BYTES = 16_384
COMPRESSION_LEVEL = 3


class ArchiveWriter:
    """Writes an archive; synchronous. Raises ``WriteFailed``."""

    def __init__(self, path: Path, fs: FileSystem, dir_fd: int, fd: int, *, compressed: bool) -> None:
        self._path = path
        self._compressor = zstd.ZstdCompressor(level=COMPRESSION_LEVEL) if compressed else None
        self._fs = fs
        self._dir_fd = dir_fd
        self._fd = fd
        self._lines = hashlib.sha256()
        self._part = hashlib.sha256()
        self._size = 0
        self.files = 0

    @classmethod
    def create(cls, path: Path, fs: FileSystem, *, compressed: bool = False) -> "ArchiveWriter":
        """Create the file, mode 0600; ``compressed``: as one zstd frame. Raises ``NameTaken`` if it exists already."""
        try:
            dir_fd = fs.open_root(path.parent)
            try:
                return cls(path, fs, dir_fd, fs.create(dir_fd, path.name), compressed=compressed)
            except BaseException:
                close_quietly(fs, dir_fd)
                raise
        except FileExistsError:
            raise NameTaken(str(path)) from None
        except OSError as error:
            raise WriteFailed(str(path), reason_of(error)) from error

    def begin(self, session_id: str, files: int) -> None:
        """Write the first line: ``files`` contents will follow the journal."""
        self._line({"format": FORMAT, "version": VERSION, "session_id": session_id, "files": files})

    def part(self, name: str, pieces: Sequence[bytes], size: int) -> None:
        """Write a whole part."""
        self.open_part(name, size)
        for piece in pieces:
            self.write(piece)
        self.close_part()

    def open_part(self, name: str, size: int) -> None:
        """Write the line before a part of ``size`` bytes."""
        self._line({"name": name, "size_bytes": size})
        self._part = hashlib.sha256()
        self.files += 1

    def write(self, data: bytes) -> None:
        """Write the next bytes of the open part."""
        self._part.update(data)
        self._size += len(data)
        self._put(data)

    def close_part(self) -> None:
        """Write the line after a part."""
        self._line({"sha256": self._part.hexdigest()})

    def end(self) -> int:
        """Write the last line and sync the file to the disk; return the size of the parts."""
        last = {"files": self.files - 1, "size_bytes": self._size, "sha256": self._lines.hexdigest()}
        self._put(json_codec.dumps({"end": last}) + b"\n")
        if self._compressor is not None:
            self._write_out(self._compressor.flush())
        try:
            self._fs.sync(self._fd)
            self._fs.sync(self._dir_fd)
        except OSError as error:
            raise WriteFailed(str(self._path), reason_of(error)) from error
        self._close()
        return self._size

    def abandon(self, reason: BaseException) -> None:
        """Remove the file; if that fails too, ``reason`` gets a note that says so."""
        try:
            self._fs.unlink(self._dir_fd, self._path.name)
        except FileNotFoundError:
            pass  # removed already
        except OSError as error:
            reason.add_note(f"{self._path} could not be removed: {reason_of(error)}")
        self._close()

    def _close(self) -> None:
        """Close the file, whose data was synced before."""
        for fd in (self._fd, self._dir_fd):
            close_quietly(self._fs, fd)

    def _line(self, value: Mapping[str, Any]) -> None:
        data = json_codec.dumps(value) + b"\n"
        self._lines.update(data)
        self._put(data)

    def _put(self, data: bytes) -> None:
        self._write_out(data if self._compressor is None else self._compressor.compress(data))

    def _write_out(self, data: bytes) -> None:
        try:
            write_all(self._fs, self._fd, [data])
        except OSError as error:
            raise WriteFailed(str(self._path), reason_of(error)) from error


class ArchiveReader:
    """Reads an archive from its beginning to its end, once; synchronous."""

    def __init__(self, file: BinaryIO, max_bytes: int, max_files: int) -> None:
        self._file = file
        self._opened = ExitStack()
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._lines = hashlib.sha256()
        self._seen: set[str] = set()
        self.session_id = ""
        self.files = 0
        self.size_bytes = 0

    @classmethod
    def open(cls, path: Path, max_bytes: int, max_files: int) -> "ArchiveReader":
        """Open an archive and read its first line."""
        with _reading(path), ExitStack() as opened:
            plain = opened.enter_context(BufferedReader(FileIO(path, opener=_at_once), 1 << 20))
            if not stat.S_ISREG(os.fstat(plain.fileno()).st_mode):
                raise ArchiveError(f"{path} is not a regular file")
            file: BinaryIO = plain
            if plain.peek(len(MAGIC)).startswith(MAGIC):
                unfolded = opened.enter_context(zstd.ZstdFile(plain, options=MAX_ARCHIVE_WINDOW))
                file = opened.enter_context(BufferedReader(cast("RawIOBase", unfolded), 1 << 20))
            reader = cls(file, max_bytes, max_files)
            reader._begin(path)
            reader._opened = opened.pop_all()
        return reader

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # it was only read
            self._opened.close()

    def _begin(self, path: Path) -> None:
        try:
            head = self._line()
        except ArchiveDamaged as error:
            raise ArchiveError(f"{path} is not an export of a session") from error
        if head.get("format") != FORMAT:
            raise ArchiveError(f"{path} is not an export of a session")
        if head.get("version") != VERSION:
            raise ArchiveError(f"{path} was written by another version of ctxfs ({head.get('version')!r})")
        self._must_have(head, {"format": str, "version": int, "session_id": str, "files": int})
        self.session_id = head["session_id"]
        self.files = head["files"]
        if self.files > self._max_files:
            raise ArchiveTooLarge("contents", self._max_files)

    def journal(self) -> bytes:
        """Read the first part, no further than to a line that is not whole: an export has none."""
        size = self.open_part(LOG_NAME)
        if size > MAX_JOURNAL_BYTES:
            raise ArchiveTooLarge("bytes of journal", MAX_JOURNAL_BYTES)
        check = LineCheck()
        pieces: list[bytes] = []
        for piece in self.part(LOG_NAME, size):
            try:
                check.take(piece)
            except ValueError as error:
                raise ArchiveDamaged(f"the archive's journal is damaged {error}") from error
            pieces.append(piece)
        return b"".join(pieces)

    def open_part(self, name: str) -> int:
        """Read the line before a part, which must be ``name``, and return the part's size."""
        head = self._line()
        self._must_have(head, {"name": str, "size_bytes": int})
        if head["name"] in self._seen:
            raise ArchiveUnsafe(f"{head['name']!r} appears twice")
        if head["name"] != name:
            raise ArchiveUnsafe(f"{head['name']!r} is found where {name!r} should be")
        self._seen.add(name)
        size = int(head["size_bytes"])
        self.size_bytes += size
        self.check_size(self.size_bytes)
        return size

    def check_size(self, size_bytes: int) -> None:
        """Raise ``ArchiveTooLarge`` if there are more bytes than may be imported."""
        if size_bytes > self._max_bytes:
            raise ArchiveTooLarge("bytes", self._max_bytes)

    def part(self, name: str, size: int) -> Iterator[bytes]:
        """Read a part and the line after it; iterate once, to the end."""
        checksum = hashlib.sha256()
        left = size
        while left:
            with _reading():
                piece = self._file.read(min(left, CHUNK_BYTES))
            if not piece:
                raise ArchiveDamaged(f"the archive is truncated, in {name}")
            checksum.update(piece)
            left -= len(piece)
            yield piece
        tail = self._line()
        self._must_have(tail, {"sha256": str})
        if tail["sha256"] != checksum.hexdigest():
            raise ArchiveDamaged(f"the checksum of {name} does not match")

    def end(self) -> None:
        """Read the last line, and check that nothing follows it."""
        expected = {"files": self.files, "size_bytes": self.size_bytes, "sha256": self._lines.hexdigest()}
        last = self._line()
        if last.keys() == {"name", "size_bytes"}:
            raise ArchiveUnsafe(f"{last['name']!r} is more than the archive announces")
        if last != {"end": expected}:
            raise ArchiveDamaged("the archive's last line does not match the rest of it")
        with _reading():
            more = self._file.read(1)
        if more:
            raise ArchiveDamaged("there is data after the archive's end")

    def _line(self) -> dict[str, Any]:
        with _reading():
            data = self._file.readline(MAX_LINE_BYTES)
        if not data.endswith(b"\n"):
            raise ArchiveDamaged("the archive is truncated, or a line in it is too long")
        self._lines.update(data)
        try:
            value = json_codec.loads(data)
            same = isinstance(value, dict) and json_codec.dumps(value) + b"\n" == data
        except (ValueError, TypeError) as error:
            raise ArchiveDamaged("a line of the archive cannot be read") from error
        if not same:
            raise ArchiveDamaged("a line of the archive cannot be read")
        return dict(value)

    def _must_have(self, line: Mapping[str, Any], fields: Mapping[str, type]) -> None:
        """Check that a line has these fields and no other, and that no number is negative."""
        if line.keys() != fields.keys():
            raise ArchiveUnsafe(f"a line of the archive has {sorted(line)} where {sorted(fields)} should be")
        for name, kind in fields.items():
            if type(line[name]) is not kind or (kind is int and line[name] < 0):
                raise ArchiveUnsafe(f"the archive says {name} = {line[name]!r}")


@contextmanager
def _reading(what: str | Path = "the archive") -> Iterator[None]:
    """Turn the OSError of reading an archive into ``ArchiveError``."""
    try:
        yield
    except OSError as error:
        raise ArchiveError(f"{what} cannot be read: {reason_of(error)}") from error
    except (zstd.ZstdError, EOFError) as error:
        raise ArchiveDamaged(f"{what} cannot be decompressed: {error}") from error


def _at_once(path: str, flags: int) -> int:
    """Open without waiting for the writer of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)
