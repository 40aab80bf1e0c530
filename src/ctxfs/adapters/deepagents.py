"""Deep Agents: its own offloader writes to the session, and the middleware rewrites the rest of the history."""

import fnmatch
import re
from collections.abc import Sequence
from typing import Any, cast

from ctxfs.adapters.extras import needs
from ctxfs.context.history.parts import HostCache, Part
from ctxfs.context.history.pool import GIVEN_TO_HISTORY
from ctxfs.errors.checks import names_settings
from ctxfs.eviction.placeholder.text import render
from ctxfs.messages.messages import text_of
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.tools.search.contents import matches_in
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.stored import stored_lines

with needs("deepagents"):
    from deepagents.backends import CompositeBackend, StateBackend
    from deepagents.backends.protocol import (
        BackendProtocol,
        EditResult,
        FileInfo,
        GlobResult,
        GrepMatch,
        GrepResult,
        LsResult,
        ReadResult,
        WriteResult,
    )
    from deepagents.backends.utils import normalize_read_bounds
    from langchain_anthropic import ChatAnthropic
    from langchain_core.messages import AnyMessage

    from ctxfs.adapters.langchain import CtxfsMiddleware as LangchainMiddleware

__all__ = ["CtxfsBackend", "CtxfsMiddleware"]

_RESULTS = "/large_tool_results/"
"""The directory to which Deep Agents' own offloader writes."""

_TOOL = "large_tool_results"
"""The tool name under which the session records the files of the backend."""

_STUB_CHARS = 400
"""The stub of Deep Agents' own offloader names the file within this many characters from its start."""

_PAGE_CHARS, _MATCHES = 2_000_000, 1_000
_MARKED = HostCache(at_end=True, ttl="5m")


class CtxfsMiddleware(LangchainMiddleware):
    """``ctxfs.adapters.langchain.CtxfsMiddleware`` for ``create_deep_agent``: the stubs of its own offloader stay."""

    def parts(self, messages: Sequence[AnyMessage]) -> list[Part]:
        """Return the messages as parts; a stub of Deep Agents' own offloader stays."""
        return [part._replace(stays=True) if _is_stub(part) else part for part in super().parts(messages)]

    def host_cache(self, request: Any) -> HostCache:
        """What a request asks of the prompt cache: for Anthropic, Deep Agents marks its end after this middleware."""
        return _MARKED if isinstance(request.model, ChatAnthropic) else super().host_cache(request)

    def backend(self, default: BackendProtocol | None = None) -> CompositeBackend:
        """For ``create_deep_agent``: large results go to the session, the rest to ``default`` or a ``StateBackend``."""
        return CompositeBackend(default or StateBackend(), routes={_RESULTS: CtxfsBackend(self)})


@names_settings(GIVEN_TO_HISTORY)
class CtxfsBackend(BackendProtocol):
    """Files in the session of the current thread: durable, checksummed, and kept when they are overwritten.

    ``middleware`` finds the session. Files can be read, searched and written, but not edited or deleted.
    """

    def __init__(self, middleware: LangchainMiddleware) -> None:
        self._middleware = middleware

    def write(self, file_path: str, content: str) -> WriteResult:
        """Store the content; it is durable on return."""
        name = file_path.strip("/")
        stub = render(f"{_RESULTS}{name}", reader="read_file")
        kept = self._middleware.history().arrive(content, tool=_TOOL, call_id=name, replacement=stub)
        return WriteResult(path=file_path) if kept == stub else WriteResult(error=f"{file_path} could not be stored")

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Read lines; the first one is number 0."""
        first, count = normalize_read_bounds(offset, limit)

        async def work(fs: ContextFileSystem) -> ReadResult:
            stored = _files(fs).get(file_path.strip("/"))
            if stored is None:
                return ReadResult(error=f"File '{file_path}' not found")
            if count <= 0:
                return ReadResult(file_data={"content": "", "encoding": "utf-8"}, no_lines_requested=True)
            lines = await stored_lines(fs.reader(stored.item_id), first + 1, limit=count, max_chars=_PAGE_CHARS)
            if not lines:
                return ReadResult(error=f"Line offset {first} exceeds file length ({stored.lines} lines)")
            end = lines[-1].number
            return ReadResult(
                file_data={"content": "\n".join(line.text for line in lines), "encoding": "utf-8"},
                total_lines=stored.lines,
                start_line=first + 1,
                end_line=end,
                next_offset=end if end < stored.lines else None,
            )

        return self._middleware.history().read(work)

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """Find the lines that contain a text."""
        most = _MATCHES if max_count is None else max_count

        async def work(fs: ContextFileSystem) -> GrepResult:
            found: list[GrepMatch] = []
            for name, stored in _within(_files(fs), path).items():
                if (glob is None or fnmatch.fnmatchcase(name, glob)) and len(found) <= most:
                    wanted = LinePattern(re.escape(pattern))
                    matches = await matches_in(fs.reader(stored.item_id), wanted, most=most + 1 - len(found))
                    found += [{"path": f"/{name}", "line": line.number, "text": line.text} for line in matches.lines]
            return GrepResult(matches=found[:most], truncated=len(found) > most)

        return self._middleware.history().read(work)

    def ls(self, path: str) -> LsResult:
        """List the files."""
        return LsResult(entries=self._listed(path))

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """List the files whose name matches."""
        name = pattern.rpartition("/")[2]
        return GlobResult(matches=[one for one in self._listed(path) if fnmatch.fnmatchcase(one["path"][1:], name)])

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:  # noqa: ARG002 - theirs
        """Refuse: stored files are never changed."""
        return EditResult(error=f"{file_path} holds the result of a tool and cannot be edited")

    def _listed(self, path: str | None) -> list[FileInfo]:
        async def work(fs: ContextFileSystem) -> list[FileInfo]:
            files = _within(_files(fs), path)
            return [{"path": f"/{name}", "is_dir": False, "size": stored.size_bytes} for name, stored in files.items()]

        return self._middleware.history().read(work)


def _files(fs: ContextFileSystem) -> dict[str, Stored]:
    """The newest content under each name."""
    return {one.call_id: fs.state.stored[one.item_id] for one in fs.state.decisions if one.tool == _TOOL}


def _within(files: dict[str, Stored], path: str | None) -> dict[str, Stored]:
    """All files, or the one at ``path``."""
    wanted = (path or "").strip("/")
    return {name: stored for name, stored in files.items() if wanted in ("", name)}


def _is_stub(part: Part) -> bool:
    return part.kind in ("result", "user") and _RESULTS in text_of(cast("Any", part.content))[:_STUB_CHARS]
