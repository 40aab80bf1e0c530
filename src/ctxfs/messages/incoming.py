"""A message that is about to be added to a context, and the item that it becomes."""

from dataclasses import dataclass

from ctxfs.messages.items import ContentRange, ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Content, Message, SystemMessage, ToolMessage
from ctxfs.messages.tokens import TokenCounter, count_content


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A message that is about to be added.

    ``source``: it only repeats these lines of stored content. ``label``: a skill's name. ``is_data``, ``full_bytes``:
    see ``ContextItem``.
    """

    message: Message
    source: ContentRange | None = None
    label: str | None = None
    is_data: bool = False
    full_bytes: int = 0

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
    def id_request(self) -> tuple[ItemType, str, str | None, Content]:
        """What its id and file name are derived from: its type; for a result, the call and the tool; its content."""
        if isinstance(self.message, ToolMessage):
            return self.item_type, self.message.tool_call_id, self.message.tool_name, self.message.content
        return self.item_type, "", None, self.message.content


def new_item(incoming: Incoming, *, item_id: str, name: str, counter: TokenCounter) -> ContextItem:
    """Count ``incoming``, whose file would be ``name``."""
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
        is_data=incoming.is_data,
        full_bytes=incoming.full_bytes,
    )
