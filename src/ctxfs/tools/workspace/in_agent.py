"""The workspace's offload as one setting of an agent: ``AgentConfig(materialize=ToolResultOffload())``.

Follows "Context Offload：Tool Result 落盘与访问": the whole result is one artifact, under the id of its call.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from ctxfs.errors.checks import names_settings
from ctxfs.eviction.offload_plan import EagerOffload, Offload
from ctxfs.eviction.placeholder.attach import with_placeholder
from ctxfs.eviction.placeholder.digest import DEFAULT_BUDGET_TOKENS, describe
from ctxfs.eviction.placeholder.lines import line_count
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import Content, ToolMessage, has_media, readable_text, text_of
from ctxfs.messages.tokens import TokenCounter
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.text.jsontext.tokens import indented, is_json
from ctxfs.tools.base import Tool
from ctxfs.tools.materialization import utf8_size
from ctxfs.tools.workspace.artifacts import TOOL_RESULT, ArtifactInfo, ArtifactType, check_whole
from ctxfs.tools.workspace.offload_op import DEFAULT_THRESHOLD_TOKENS, check_allow_list
from ctxfs.tools.workspace.service import INLINE_LIMIT_CHARS, KnowledgeService, render
from ctxfs.tools.workspace.tools import workspace_tools


@names_settings({"digest_tokens": "summaries in the list have at most 200 tokens"})
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultOffload:
    """Which results of an agent's tools are replaced by a ``<knowledge_list>`` before they are ever sent.

    allow_list: the tools whose results are replaced whatever their size.
    threshold_tokens: results of other tools with more tokens than this are replaced; 0: every one that is not empty;
        None: none by its size.
    inline_limit_chars: a result of fewer characters than this stays in the context in any case, and is stored only when
        another rule evicts it.

    A result with an image or a document stays, so that the model sees it. So does a result no larger than its list.

    Raises:
        ConfigError: a limit is not a whole number, or ``allow_list`` is a single name.
    """

    allow_list: Collection[str] = ()
    threshold_tokens: int | None = DEFAULT_THRESHOLD_TOKENS
    inline_limit_chars: int = INLINE_LIMIT_CHARS

    def __post_init__(self) -> None:
        check_whole(0, inline_limit_chars=self.inline_limit_chars)
        if self.threshold_tokens is not None:
            check_whole(0, threshold_tokens=self.threshold_tokens)
        check_allow_list(self.allow_list)

    def tools(self, fs: ContextFileSystem) -> tuple[Tool, ...]:
        """The tools that read the artifacts of the session ``fs``, and of no other."""
        service = KnowledgeService(fs.stores)
        service.attach(fs)
        return workspace_tools(service, fs.session_id)

    def decide(self, item: ContextItem, *, path_of: Callable[[str], str], counter: TokenCounter) -> EagerOffload | None:
        """Decide whether the item is evicted before it is ever sent; None: it is not."""
        message = item.message
        if not isinstance(message, ToolMessage) or item.source is not None or has_media(message.content):
            return None
        over = self.threshold_tokens is not None and item.content_tokens > self.threshold_tokens
        if not over and message.tool_name not in self.allow_list:
            return None
        sent = readable_text(message.content)
        if len(sent) < self.inline_limit_chars:
            return None
        is_data = item.is_data and is_json(sent)  # a loop of somebody's own may say so of any text
        stored = _laid_out(item, message, counter) if is_data else item
        is_blocks = not isinstance(message.content, str)
        info = _info(stored, message, path=path_of(item.name), is_json=is_data or is_blocks)
        if not _is_smaller(render([(info, "")]), sent):
            return None
        stored = with_placeholder(stored, path=info.path, counter=counter)
        reason = f"over {self.threshold_tokens:,} tokens" if over else "its tool is in the allow-list"
        offload = self._offload(item, stored.message.content, info, counter=counter, reason=reason)
        return EagerOffload(item=stored, chars=len(sent), offload=offload)

    def _offload(
        self, item: ContextItem, stored: Content, info: ArtifactInfo, *, counter: TokenCounter, reason: str
    ) -> Offload:
        """How ``item`` leaves; its content is ``stored`` like this."""
        summary = describe(
            stored, budget_tokens=DEFAULT_BUDGET_TOKENS, counter=counter, content_tokens=item.content_tokens
        )
        listed = render([(info, summary)])
        if not _is_smaller(listed, readable_text(item.message.content)):
            listed = render([(info, "")])
        return Offload(
            item_id=item.id,
            path=info.path,
            placeholder=listed,
            tokens_before=item.token_count,
            tokens_after=counter.count(listed),
            reason=reason,
        )


def _laid_out(item: ContextItem, message: ToolMessage, counter: TokenCounter) -> ContextItem:
    """The result with a line for each value of its JSON, so that reading it by lines is of use."""
    text = indented(text_of(message.content))
    tokens = counter.count(text)
    return replace(item, message=replace(message, content=text), token_count=tokens, content_tokens=tokens)


def _info(item: ContextItem, message: ToolMessage, *, path: str, is_json: bool) -> ArtifactInfo:
    """The artifact that a result is going to be."""
    text = readable_text(item.message.content)
    return ArtifactInfo(
        artifact_id=item.id,
        raw_id=message.tool_call_id,
        artifact_type=ArtifactType.JSON if is_json else ArtifactType.TEXT,
        path=path,
        chars=len(text),
        lines=line_count(text),
        size_bytes=utf8_size(text),
        stored_at=0,
        session_id="",
        context_type=TOOL_RESULT,
        biz_id=message.tool_call_id,
        tool_name=message.tool_name,
    )


def _is_smaller(listed: str, text: str) -> bool:
    """Whether a list has fewer characters, and fewer bytes, than what it replaces."""
    return len(listed) < len(text) and utf8_size(listed) < utf8_size(text)
