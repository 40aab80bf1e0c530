"""The Read tool: evicted content, and files that the user allows, in numbered pages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ctxfs.errors.checks import names_settings
from ctxfs.eviction.placeholder.text import READ_TOOL
from ctxfs.messages.tokens import TokenCounter
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.threads import run_in_steps
from ctxfs.tools.base import Tool, ToolResult
from ctxfs.tools.files import Roots
from ctxfs.tools.paging import MAX_POSITION
from ctxfs.tools.reading import reading_tool
from ctxfs.tools.stored import Scope, page_result, read_page, rendered

DEFAULT_MAX_TOKENS = 8_000
DEFAULT_LIMIT_LINES = 2_000

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
        char_offset: Annotated[
            int | None,
            Field(ge=0, le=MAX_POSITION, description="Read line `offset` only, from this character (from 0) on"),
        ] = None,
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
