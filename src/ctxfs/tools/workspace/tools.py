"""The workspace as an agent's tools: its own session only.

Follows "Context Offload：Tool Result 落盘与访问" for the names; pages and searches are those of the other retrieval
tools.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from ctxfs.errors import InvalidToolArguments
from ctxfs.errors.base import quoted
from ctxfs.errors.checks import names_settings, require_int
from ctxfs.eviction.placeholder.lines import plural
from ctxfs.messages.names import check_session_id
from ctxfs.messages.tokens import TokenCounter, require_counter
from ctxfs.storage.threads import run_in_steps
from ctxfs.tools.base import Tool, ToolResult
from ctxfs.tools.paging import MAX_POSITION
from ctxfs.tools.retrieval import ContextLines, MaxMatches, Offset, Pattern
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.page import DEFAULT_MATCHES, grep_page
from ctxfs.tools.stored import (
    DEFAULT_MAX_TOKENS,
    MAX_LIMIT_LINES,
    MIN_PAGE_TOKENS,
    CharOffset,
    Scope,
    list_page,
    read_page,
    reading_tool,
)
from ctxfs.tools.workspace.artifacts import TOOL_RESULT, ArtifactInfo, info_of
from ctxfs.tools.workspace.service import GET_BY_ID, GET_BY_LINES, GREP, INFO, QUERY, KnowledgeService

ArtifactId = Annotated[str, Field(description="The id in <knowledge_list>, or one that query_artifacts lists")]
FirstEntry = Annotated[int, Field(ge=1, le=MAX_POSITION, description="The first entry, counted from 1")]


@names_settings()
def workspace_tools(
    service: KnowledgeService,
    session_id: str,
    *,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    counter: TokenCounter | None = None,
) -> tuple[Tool, ...]:
    """Make the tools that read and list artifacts.

    They are ``get_knowledge_by_id``, ``get_knowledge_by_lines``, ``grep_knowledge``, ``query_artifacts`` and
    ``get_tool_result_offload_info``.

    Args:
        service: the workspace.
        session_id: the only session that these tools see; an id of another one is unknown to them.
        max_tokens: upper bound on each result (at least 200).
        counter: counts tokens; None takes the service's.
    """
    require_int("max_tokens", max_tokens, at_least=0)
    require_counter(counter)
    bound = _Bound(service, check_session_id(session_id), max(MIN_PAGE_TOKENS, max_tokens), counter or service.counter)
    return (_by_id(bound), _by_lines(bound), _grep(bound), _query(bound), _offload_info(bound))


@dataclass(frozen=True, slots=True)
class _Bound:
    """One session of the workspace, in bounded pages."""

    service: KnowledgeService
    session_id: str
    max_tokens: int
    counter: TokenCounter | None

    async def page(
        self, artifact_id: str, first: int, limit: int, char_offset: int | None, *, offset: str = "offset"
    ) -> ToolResult:
        async with self.service.artifact(artifact_id, self.session_id) as (fs, stored):
            scope = Scope(fs, self.max_tokens, self.counter, offset)
            return await read_page(scope, stored.item_id, first=first, limit=limit, char_offset=char_offset)


def _by_id(bound: _Bound) -> Tool:
    @reading_tool(
        "Read an artifact of the workspace, in numbered lines. A partial page says how to continue.",
        name=GET_BY_ID,
        ids_from=QUERY,
    )
    async def get_knowledge_by_id(
        artifact_id: ArtifactId,
        offset: Offset = 1,
        *,
        char_offset: CharOffset = None,
    ) -> ToolResult:
        return await bound.page(artifact_id, offset, MAX_LIMIT_LINES, char_offset)

    return get_knowledge_by_id


def _by_lines(bound: _Bound) -> Tool:
    @reading_tool("Read some lines of an artifact of the workspace, numbered.", name=GET_BY_LINES, ids_from=QUERY)
    async def get_knowledge_by_lines(
        artifact_id: ArtifactId,
        start_line: Offset,
        end_line: Annotated[int, Field(ge=1, le=MAX_POSITION, description="The last line, itself included")],
        *,
        char_offset: CharOffset = None,
    ) -> ToolResult:
        if end_line < start_line:
            raise InvalidToolArguments(f"end_line {end_line} is before start_line {start_line}")
        limit = end_line - start_line + 1
        return await bound.page(artifact_id, start_line, limit, char_offset, offset="start_line")

    return get_knowledge_by_lines


def _grep(bound: _Bound) -> Tool:
    @reading_tool(
        "Search the lines of an artifact of the workspace for a regular expression (RE2).", name=GREP, ids_from=QUERY
    )
    async def grep_knowledge(
        artifact_id: ArtifactId,
        pattern: Pattern,
        offset: Annotated[
            int, Field(ge=1, le=MAX_POSITION, description="The first line to search, counted from 1")
        ] = 1,
        *,
        context_lines: ContextLines = 0,
        max_matches: MaxMatches = DEFAULT_MATCHES,
        ignore_case: bool = False,
    ) -> ToolResult:
        compiled = LinePattern(pattern, ignore_case=ignore_case)
        async with bound.service.artifact(artifact_id, bound.session_id) as (fs, stored):
            return await grep_page(
                Scope(fs, bound.max_tokens, bound.counter),
                stored.item_id,
                compiled,
                offset=offset,
                max_matches=max_matches,
                context_lines=context_lines,
            )

    return grep_knowledge


def _query(bound: _Bound) -> Tool:
    @reading_tool("List the artifacts of this session's workspace: id, tool, size; oldest first.", name=QUERY)
    async def query_artifacts(
        tool_name: Annotated[str | None, Field(description="Only results of this tool")] = None,
        biz_id: Annotated[str | None, Field(description="Only results of this tool call")] = None,
        offset: FirstEntry = 1,
    ) -> ToolResult:
        return await _page_of(bound, await _listed(bound, tool_name, biz_id), offset)

    return query_artifacts


def _offload_info(bound: _Bound) -> Tool:
    @reading_tool("List the tool results of this session that were offloaded: id, tool, size; oldest first.", name=INFO)
    async def get_tool_result_offload_info(offset: FirstEntry = 1) -> ToolResult:
        found = await _listed(bound, None, None)
        return await _page_of(bound, [info for info in found if info.context_type == TOOL_RESULT], offset)

    return get_tool_result_offload_info


async def _page_of(bound: _Bound, found: Sequence[ArtifactInfo], offset: int) -> ToolResult:
    return await list_page(found, _row, offset=offset, max_tokens=bound.max_tokens, counter=bound.counter)


async def _listed(bound: _Bound, tool_name: str | None, biz_id: str | None) -> list[ArtifactInfo]:
    """The session's artifacts, from its own journal: no other session is looked at."""
    async with bound.service.session(bound.session_id) as fs:
        stored = [] if fs is None else list(fs.state.stored.values())

    def found() -> list[ArtifactInfo]:
        infos = (info_of(bound.service.namespace, bound.session_id, entry) for entry in stored)
        return [info for info in infos if tool_name in (None, info.tool_name) and biz_id in (None, info.biz_id)]

    return await run_in_steps(found)


def _row(info: ArtifactInfo) -> str:
    what = f"{info.context_type} of {info.tool_name}" if info.tool_name else info.context_type
    call = "" if info.biz_id == info.artifact_id else f", biz_id {quoted(info.biz_id)}"
    return f"{info.artifact_id}: {what!r}{call}, {plural(info.lines, 'line')}, {plural(info.chars, 'character')}"
