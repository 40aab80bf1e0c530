"""From a message to an item: counted, described, and with the placeholder that may stand for it one day. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ctxfs.context.digest import describe
from ctxfs.context.items import ContentRange, ContextItem, ItemType
from ctxfs.context.placeholder import render, render_range
from ctxfs.llm.messages import AssistantMessage, Message, SystemMessage, ToolMessage
from ctxfs.tokens import TokenCounter, count_content

__all__ = ["Incoming", "digest_of", "ingest", "with_placeholder"]

_DIGEST_FRACTION = 5
_MAY_LEAVE = frozenset({ItemType.TOOL_RESULT, ItemType.USER_MESSAGE, ItemType.SKILL_PROMPT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A message on its way in. ``source``: it only repeats these lines of stored content. ``label``: a skill's name."""

    message: Message
    source: ContentRange | None = None
    label: str | None = None

    @property
    def item_type(self) -> ItemType:
        """The type that the message's item will have."""
        match self.message:
            case ToolMessage():
                return ItemType.TOOL_RESULT
            case AssistantMessage():
                return ItemType.ASSISTANT_MESSAGE
            case SystemMessage():
                return ItemType.SYSTEM_PROMPT
            case _:
                return ItemType.USER_MESSAGE if self.label is None else ItemType.SKILL_PROMPT

    @property
    def claims(self) -> tuple[ItemType, str, str | None]:
        """What its id and its file are claimed for: its type and, of a result, the call and the tool."""
        if isinstance(self.message, ToolMessage):
            return self.item_type, self.message.tool_call_id, self.message.tool_name
        return self.item_type, "", None


def ingest(incoming: Incoming, *, item_id: str, name: str, counter: TokenCounter) -> ContextItem:
    """Count ``incoming``, which would go to the file ``name`` if it left."""
    content = incoming.message.content
    tokens = count_content(counter, content)
    return ContextItem(
        id=item_id,
        item_type=incoming.item_type,
        message=incoming.message,
        name=name,
        token_count=tokens,
        content_tokens=tokens,
        source=incoming.source,
        label=incoming.label,
    )


def digest_of(item: ContextItem, *, counter: TokenCounter, digest_tokens: int) -> str:
    """Describe the item's content in at most ``digest_tokens``, and in a fraction of what it takes; "" for 0."""
    budget = min(digest_tokens, item.content_tokens // _DIGEST_FRACTION)
    if not budget:
        return ""
    return describe(item.message.content, budget_tokens=budget, counter=counter, content_tokens=item.content_tokens)


def with_placeholder(item: ContextItem, *, path: str, counter: TokenCounter, digest: str) -> ContextItem:
    """``item`` with the placeholder that may stand for it: the longest that is smaller than the content, if any is.

    ``path`` is the file that it would go to (absolute), ``digest`` describes its content.
    """
    if item.item_type not in _MAY_LEAVE:
        return item
    for text in _candidates(item, path, digest):
        tokens = counter.count(text)
        if tokens < item.content_tokens:
            return replace(item, placeholder=text, placeholder_tokens=tokens)
    return replace(item, placeholder=None, placeholder_tokens=0)


def _candidates(item: ContextItem, path: str, digest: str) -> Iterator[str]:
    if item.source is not None:
        yield render_range(item.source)
        return
    if digest:
        yield render(path, digest)
    yield render(path)
