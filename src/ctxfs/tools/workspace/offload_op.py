"""The step that puts tool results into the workspace.

Follows "Context Offload：Tool Result 落盘与访问": a whole result becomes one artifact; nothing is extracted from it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings, require_text
from ctxfs.messages.messages import Content, ToolMessage, has_media
from ctxfs.messages.names import check_session_id
from ctxfs.messages.tokens import TokenCounter, exceeds, load_counter
from ctxfs.storage.threads import run_in_steps
from ctxfs.text.jsontext.tokens import indented
from ctxfs.tools.base import to_content
from ctxfs.tools.workspace.artifacts import TOOL_RESULT, Artifact, ArtifactType, artifact_text, check_whole
from ctxfs.tools.workspace.service import KnowledgeService

DEFAULT_THRESHOLD_TOKENS = 2_000


def check_allow_list(allow_list: object) -> None:
    """Raise ``ConfigError`` unless it is a collection of names."""
    if isinstance(allow_list, str) or not isinstance(allow_list, Collection):
        raise ConfigError(f"allow_list is {allow_list!r}: use a collection of tool names")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallResult:
    """The result of a tool call. ``content`` is text, content blocks, bytes or JSON-like data.

    ``metadata["offload"]``, true or false, decides alone whether the result goes to the workspace. ``offloaded``:
    ``content`` is what replaces it, and the whole is in ``offload_path`` (absolute).

    Raises:
        ConfigError: an id or a name is not text, or the metadata is not a mapping.
    """

    tool_call_id: str
    content: Any
    tool_name: str
    action_name: str | None = None
    is_error: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    offloaded: bool = False
    offload_path: str | None = None

    def __post_init__(self) -> None:
        require_text("tool_call_id", self.tool_call_id)
        require_text("tool_name", self.tool_name)
        if not isinstance(self.metadata, Mapping):
            raise ConfigError(f"metadata is {self.metadata!r}: use a mapping")

    def to_message(self) -> ToolMessage:
        """Return the result as the context keeps it. Raises ``ToolError`` for content that cannot be JSON."""
        return ToolMessage(
            tool_call_id=self.tool_call_id,
            tool_name=self.tool_name,
            content=to_content(self.content),
            is_error=self.is_error,
            offloaded=self.offloaded,
            offload_path=self.offload_path,
        )


@names_settings()
class ToolResultOffloadOp:
    """Puts the results of one session's tool calls into the workspace, by their metadata, tool or size.

    Args:
        service: the workspace.
        session_id: the session that keeps the results.
        agent_id: recorded with each result, so that queries find it; None records nothing.
        task_id: the same, for a task.
        allow_list: the results of these tools go to the workspace whatever their size, unless they have an image.
        threshold_tokens: so do those of other tools with more tokens than this; 0: every one that is not empty; None:
            none by its size.
        counter: counts tokens; None takes the service's.

    Raises:
        ConfigError: a setting of another type, or one that cannot work.
    """

    def __init__(
        self,
        service: KnowledgeService,
        *,
        session_id: str,
        agent_id: str | None = None,
        task_id: str | None = None,
        allow_list: Collection[str] = (),
        threshold_tokens: int | None = DEFAULT_THRESHOLD_TOKENS,
        counter: TokenCounter | None = None,
    ) -> None:
        if threshold_tokens is not None:
            check_whole(0, threshold_tokens=threshold_tokens)
        check_allow_list(allow_list)
        for name, value in (("agent_id", agent_id), ("task_id", task_id)):
            if value is not None:
                require_text(name, value)
        self._service = service
        self._ids = {"session_id": check_session_id(session_id), "agent_id": agent_id, "task_id": task_id}
        self._allow_list = frozenset(allow_list)
        self._threshold_tokens = threshold_tokens
        self._counter = counter

    async def process(self, result: ToolCallResult) -> ToolCallResult:
        """Return what the context gets: the result itself, or the same with a ``<knowledge_list>`` as its content.

        A result is stored if its metadata, the allow-list or its size says so; one with an image or a document only by
        its metadata. Below the inline limit its content stays in the context as well. A result that was offloaded
        already is returned as it is. Raises like ``KnowledgeService.add_knowledge_list``,
        and ``ToolError`` for content that cannot be written as JSON; then the result stays as it is.
        """
        if not isinstance(result, ToolCallResult):
            raise ConfigError(f"the result is a {type(result).__name__}: use ToolCallResult(...)")
        if result.offloaded:
            return result
        content = await run_in_steps(lambda: to_content(result.content))
        text = await run_in_steps(lambda: artifact_text(content))
        if not await self._needs_offload(result, content, text):
            return result
        artifact = await run_in_steps(lambda: self._artifact(result, text))
        done = await self._service.offload([artifact], biz_id=result.tool_call_id, inline_chars=len(text))
        if done.inline:
            return result
        return replace(result, content=done.content, offloaded=True, offload_path=done.artifacts[0].path)

    async def _needs_offload(self, result: ToolCallResult, content: Content, text: str) -> bool:
        """What the result's own metadata says; else no, if it has an image; else the allow-list; else its size."""
        explicit = result.metadata.get("offload")
        if explicit is not None:
            if not isinstance(explicit, bool):
                raise ConfigError(f"metadata['offload'] is {explicit!r}: it must be true, false or absent")
            return explicit
        if has_media(content):
            return False
        if result.tool_name in self._allow_list:
            return True
        limit = self._threshold_tokens
        if limit is None:
            return False
        counter = self._counter or self._service.counter or await load_counter()
        return await run_in_steps(lambda: exceeds(counter, text, limit))

    def _artifact(self, result: ToolCallResult, text: str) -> Artifact:
        names = {"tool_name": result.tool_name, "action_name": result.action_name}
        is_text = isinstance(result.content, str | bytes)
        return Artifact(
            artifact_id=result.tool_call_id,
            content=text if is_text else indented(text),
            artifact_type=ArtifactType.TEXT if is_text else ArtifactType.JSON,
            metadata={"context_type": TOOL_RESULT, "biz_id": result.tool_call_id, **self._ids, **names},
        )
