"""A message that is about to be added to a context, and the item that it becomes."""

from dataclasses import dataclass

from ctxfs.messages.items import ContentRange, ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Message, SystemMessage, ToolMessage
from ctxfs.messages.names import NameAllocator
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


def new_item(
    incoming: Incoming, *, names: NameAllocator, counter: TokenCounter, named: tuple[str, str] | None = None
) -> ContextItem:
    """Make an item of ``incoming``: it is counted, and ``names`` gives it an id and a file name.

    ``named``: the id and the name that it has already; None: it is new.
    """
    message = incoming.message
    item_type = incoming.item_type
    if named is not None:
        item_id, name = named
    elif isinstance(message, ToolMessage):
        item_id, name = names.allocate(item_type, message.tool_call_id, message.tool_name, message.content)
    else:
        item_id, name = names.allocate(item_type, None, None, message.content)
    tokens = count_content(counter, message.content)
    return ContextItem(
        id=item_id,
        item_type=item_type,
        message=message,
        name=name,
        token_count=tokens,
        content_tokens=tokens,
        source=incoming.source,
        label=incoming.label,
        is_data=incoming.is_data,
        full_bytes=incoming.full_bytes,
    )
