"""The Read tool: evicted content, and files that the user allows, in numbered pages.

Files outside the session are read only under the roots that the user allows. A path is resolved first, must then lie
under a resolved root, and is opened from that root part by part without following links, so that nothing can be swapped
in between.
"""

import base64
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ctxfs.errors import ToolError
from ctxfs.errors.base import quoted
from ctxfs.errors.checks import names_settings
from ctxfs.eviction.placeholder.text import READ_TOOL
from ctxfs.messages.messages import Block
from ctxfs.messages.tokens import TokenCounter
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.index import INDEX_NAME
from ctxfs.storage.lock_file import LOCK_NAME
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.port import FileKind, FileSystem, OsFileSystem
from ctxfs.storage.threads import run_in_steps
from ctxfs.text.media import MAX_IMAGE_FILE_BYTES, MAX_IMAGE_PIXELS, image_fault, image_type
from ctxfs.text.utf8 import Utf8Decoder
from ctxfs.tools.base import Tool, ToolResult
from ctxfs.tools.paging import MAX_POSITION, Line, LineCutter
from ctxfs.tools.stored import CharOffset, Scope, page_result, read_page, reading_tool, rendered

DEFAULT_MAX_TOKENS = 8_000
DEFAULT_LIMIT_LINES = 2_000

_BLOCK_BYTES = 262_144
_SNIFFED_BYTES = 8_192
_LISTED_NAMES = 20
_MARKS_OF_A_SESSION = (LOG_NAME, LOCK_NAME, INDEX_NAME)

_DESCRIPTION = (
    "Read a file, in numbered lines. For content that was offloaded, give the path in its placeholder: you get the "
    "lines of the original content, numbered as in the placeholder's digest; images and documents come with the lines "
    "that name them. A partial page says how to continue."
)


@names_settings()
def read_tool(
    fs: ContextFileSystem,
    *,
    roots: Sequence[Path] = (),
    max_tokens: int = DEFAULT_MAX_TOKENS,
    counter: TokenCounter | None = None,
    name: str = READ_TOOL,
) -> Tool:
    """Make the tool "Read" for one session.

    It reads what this session stored, whatever the file's format, and other files only under ``roots``; it finds
    nothing of another session. Follows "Context FileSystem 上下文卸载功能".

    Args:
        fs: the session.
        roots: directories with files that the model may read; links that lead out of them are refused.
        max_tokens: upper bound on a page (at least 200), and again on the images and documents with it; one of these
            comes in any case, so that it can be seen.
        counter: counts tokens; None takes the default counter.
        name: the name by which the model calls it.

    Raises:
        ToolDefinitionError: ``name`` cannot be a tool's name.

    """
    scope = Scope(fs, max_tokens, counter)

    @reading_tool(_DESCRIPTION, name=name)
    async def read(
        file_path: Annotated[str, Field(description="The file's path, as given in the placeholder")],
        offset: Annotated[int, Field(ge=1, le=MAX_POSITION, description="The first line to read, counted from 1")] = 1,
        limit: Annotated[
            int, Field(ge=1, le=MAX_POSITION, description="How many lines to read at most")
        ] = DEFAULT_LIMIT_LINES,
        char_offset: CharOffset = None,
    ) -> ToolResult:
        item_id = fs.find(file_path)
        if item_id is not None:
            return await read_page(scope, item_id, first=offset, limit=limit, char_offset=char_offset)
        base = Path(fs.base)
        allowed = Roots(roots, sessions=base.parent if base.is_absolute() else None)
        found = await run_in_steps(
            lambda: allowed.read(
                file_path, first=offset, limit=limit, max_chars=scope.max_chars, char_offset=char_offset
            )
        )
        if found.image is not None:
            return ToolResult((found.image,))
        if not found.lines:
            return page_result(None, offset, found.total_lines)
        page = await rendered(list(found.lines), found.total_lines, scope.max_tokens, counter)
        return page_result(page, offset, None)

    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePage:
    """Lines of a file, or an image. ``total_lines`` is None when the end was not reached."""

    lines: Sequence[Line] = ()
    total_lines: int | None = None
    image: Block | None = None


class Roots:
    """The directories under which files may be read.

    Args:
        roots: directories; none means that no file may be read.
        sessions: the directory that holds sessions, whose contents cannot be read as files; None: there is none.
        fs: the system calls.
    """

    def __init__(self, roots: Sequence[Path], *, sessions: Path | None, fs: FileSystem | None = None) -> None:
        self._roots = tuple(roots)
        self._sessions = sessions
        self._fs: FileSystem = fs or OsFileSystem()

    def read(self, path: str, *, first: int, limit: int, max_chars: int, char_offset: int | None) -> FilePage:
        """Lines from ``first`` on, or the whole image.

        Raises:
            ToolError: not under a root, no such file, no regular file, no text, or an image that providers refuse; the
                message tells the model.
        """
        with self._open(path) as fd:
            head = self._fs.read(fd, _SNIFFED_BYTES, 0)
            media_type = image_type(head)
            if media_type:
                return FilePage(image=self._image(fd, path, media_type))
            if b"\0" in head:
                raise ToolError(f"{path} is a binary file: there are no lines of text to show")
            return self._page(fd, LineCutter(first, limit=limit, max_chars=max_chars, char_offset=char_offset), first)

    @contextmanager
    def _open(self, path: str) -> Iterator[int]:
        fds: list[int] = []
        try:
            root, parts = self._locate(path)
            fds.append(self._fs.open_root(root))
            for part in parts[:-1]:
                fds.append(self._fs.open_dir(fds[-1], part))
            kind = self._fs.stat(fds[-1], parts[-1]).kind if parts else FileKind.DIRECTORY
            if kind is FileKind.DIRECTORY:
                if parts:
                    fds.append(self._fs.open_dir(fds[-1], parts[-1]))
                raise ToolError(self._directory_message(path, fds[-1]))
            if kind is not FileKind.FILE:
                raise ToolError(f"{path} is not a regular file, so it cannot be read")
            fds.append(self._fs.open_read(fds[-1], parts[-1]))
            if self._fs.stat_handle(fds[-1]).kind is not FileKind.FILE:
                raise ToolError(f"{path} is not a regular file, so it cannot be read")
            yield fds[-1]
        except FileNotFoundError as error:
            raise self._unknown(path) from error
        except OSError as error:
            raise ToolError(f"{path} cannot be read: {error.strerror}") from error
        finally:
            for fd in reversed(fds):
                self._fs.close(fd)

    def _locate(self, path: str) -> tuple[Path, tuple[str, ...]]:
        """The resolved root that holds the file, and the way from there without any link."""
        if "\0" in path or not path:
            raise self._unknown(path)
        try:
            asked = Path(path).expanduser()
        except RuntimeError as error:  # nobody's home
            raise self._unknown(path) from error
        roots = _existing(self._roots)
        for resolved in _existing([root / asked for root in roots]):  # an absolute path is the same under each
            inside = [root for root in roots if resolved.is_relative_to(root)]
            if inside and not self._is_a_sessions(resolved):
                return inside[0], resolved.relative_to(inside[0]).parts
        raise self._unknown(path)

    def _is_a_sessions(self, resolved: Path) -> bool:
        """Whether the file lies in the directory of some session, this one or another, however the path is spelled."""
        inner = resolved
        for directory in resolved.parents:
            if self._sessions is not None and self._sessions.exists() and directory.samefile(self._sessions):
                return any((inner / name).exists() for name in _MARKS_OF_A_SESSION)
            inner = directory
        return False

    def _unknown(self, path: str) -> ToolError:
        allowed = f"files under {', '.join(map(str, self._roots))}" if self._roots else "no other files"
        return ToolError(f"no file {quoted(path)}: you may read what this session stored, and {allowed}")

    def _directory_message(self, path: str, dir_fd: int) -> str:
        names: list[str] = []
        for name, kind in self._fs.list_dir(dir_fd):
            names.append(f"{name}/" if kind is FileKind.DIRECTORY else name)
        names.sort()
        listed = ", ".join(names[:_LISTED_NAMES]) + (", …" if len(names) > _LISTED_NAMES else "")
        return f"{path} is a directory, read one of its {len(names)} files: {listed or '(it is empty)'}"

    def _image(self, fd: int, path: str, media_type: str) -> Block:
        size = self._fs.stat_handle(fd).size
        if size > MAX_IMAGE_FILE_BYTES:
            raise _not_shown(path, f"it has {size:,} bytes")
        data = base64.b64encode(b"".join(self._blocks(fd))).decode()
        fault = image_fault(media_type, data)
        if fault:
            raise _not_shown(path, fault[1])
        return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}

    def _blocks(self, fd: int, offset: int = 0) -> Iterator[bytes]:
        while block := self._fs.read(fd, _BLOCK_BYTES, offset):
            yield block
            offset += len(block)

    def _page(self, fd: int, cutter: LineCutter, first: int) -> FilePage:
        """Count line ends up to line ``first``, then cut lines; what follows the page is not read."""
        decoder = Utf8Decoder("replace")
        to_skip = first - 1
        ends = 0
        last = b""
        for block in self._blocks(fd):
            last = block
            if ends < to_skip:
                found, block = _after_lines(block, to_skip - ends)  # noqa: PLW2901 - its rest is what counts
                ends += found
            if ends >= to_skip and cutter.feed(decoder.decode(block)):
                return FilePage(lines=cutter.finish())
        if ends < to_skip:  # there is no line ``first``; the last one may have no end
            return FilePage(total_lines=ends + 1 if last and not last.endswith(b"\n") else ends)
        cutter.feed(decoder.decode(b"", final=True))
        lines = cutter.finish()
        return FilePage(lines=lines, total_lines=to_skip + len(lines))


def _existing(paths: Iterable[Path]) -> list[Path]:
    """Those of ``paths`` that exist, resolved."""
    found: list[Path] = []
    for path in paths:
        with suppress(OSError, RuntimeError, ValueError):  # it is gone, or its links lead in a circle
            found.append(path.resolve(strict=True))
    return found


def _not_shown(path: str, reason: str) -> ToolError:
    return ToolError(
        f"{path} is an image that cannot be shown ({reason}): make a whole PNG, JPEG, GIF or WebP of it with at most "
        f"{MAX_IMAGE_PIXELS:,} pixels a side and {MAX_IMAGE_FILE_BYTES:,} bytes, and read that"
    )


def _after_lines(block: bytes, count: int) -> tuple[int, bytes]:
    """How many of ``count`` line ends are in the block, and what follows the last of them."""
    found = block.count(b"\n")
    if found < count:
        return found, b""
    position = 0
    for _ in range(count):
        position = block.find(b"\n", position) + 1
    return count, block[position:]
