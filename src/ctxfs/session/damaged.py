"""Contents that cannot be read back: in the context, each is replaced by a text that says so. Pure.

The text is never stored as if it were the content, and the file is left as it is: once it is restored, the next opening
of the session finds the content again.
"""

import errno
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ctxfs.errors import ContentGone, CorruptContent, CtxfsError, NotStored, StorageError, UnknownItem, UnsafePath
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Block, Content, SystemMessage, ToolMessage
from ctxfs.messages.tokens import TokenCounter, count_content

MISSING = "the file is missing"
_UNREADABLE = {errno.EIO, errno.EACCES, errno.EPERM, errno.EBADMSG, getattr(errno, "EUCLEAN", errno.EIO)}
"""Errors about one file; an error about the process, such as no handles left, is not damage."""

_KINDS = {
    ItemType.TOOL_RESULT: "result",
    ItemType.ASSISTANT_MESSAGE: "reply",
    ItemType.USER_MESSAGE: "message",
    ItemType.SYSTEM_PROMPT: "system prompt",
    ItemType.SKILL_PROMPT: "skill prompt",
    ItemType.COMPACTION_SUMMARY: "summary",
    ItemType.TOOL_INPUT: "call",
}
_AGAIN = {ItemType.TOOL_RESULT: "; call the tool again only if it changes nothing"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedContent:
    """An item's content that cannot be read: its file ``name``, inside the session, and what is wrong with it.

    ``removed``: it is not damaged, but was removed on purpose, and ``detail`` is its tombstone.
    """

    item_id: str
    name: str
    detail: str
    removed: bool = False

    def __str__(self) -> str:
        if self.removed:
            return f"the content of {self.item_id} was {self.detail}"
        return f"the content of {self.item_id} is damaged: {self.name}: {self.detail}"


def detail_of(error: CtxfsError) -> str | None:
    """What is wrong with a content, by the ``error`` that was raised by reading it; None if it is not damaged."""
    match error:
        case NotStored():
            return MISSING
        case CorruptContent() | ContentGone():
            return error.detail
        case UnsafePath():
            return error.reason
        case UnknownItem():
            return "its record in the journal is lost"
        case StorageError(__cause__=OSError(errno=number)) if number in _UNREADABLE:
            return str(error)
        case _:
            return None


def refuse_damaged(items: Iterable[ContextItem]) -> None:
    """Raise ``CorruptContent`` if an item's message is a notice of damaged content: that must not be stored."""
    for item in items:
        if item.damaged is not None:
            raise CorruptContent(item.name, item.damaged)


def with_notices(items: Sequence[ContextItem], damaged: Mapping[str, DamagedContent]) -> tuple[ContextItem, ...]:
    """Replace each damaged content, by item id, with a text that says what is wrong.

    A reply keeps the calls that the results after it answer, without their arguments: the transcript stays valid.
    """
    noticed = list(items)
    if damaged:
        for place, item in enumerate(items):
            if item.id in damaged:
                noticed[place] = _notice(item, damaged[item.id], items[place + 1 :])
    return tuple(noticed)


def _notice(item: ContextItem, found: DamagedContent, following: Sequence[ContextItem]) -> ContextItem:
    what = _KINDS[item.item_type]
    again = _AGAIN.get(item.item_type, "")
    how = f"was {found.detail}" if found.removed else f"is damaged: {found.name}: {found.detail}"
    text = f"[the content of this {what} {how}{again}]"
    content: Content = text
    if isinstance(item.message, AssistantMessage):
        content = ({"type": "text", "text": text}, *_answered_calls(following))
    return replace(
        item.with_content(content),
        placeholder=None,
        placeholder_tokens=0,
        damaged=found.detail,
    )


def _answered_calls(following: Sequence[ContextItem]) -> Iterator[Block]:
    """The calls of a reply whose content is lost, taken from the results right after it."""
    for item in following:
        message = item.message
        if isinstance(message, ToolMessage):
            yield {"type": "tool_use", "id": message.tool_call_id, "name": message.tool_name, "input": {}}
        elif not isinstance(message, SystemMessage):
            return


def counted(items: Sequence[ContextItem], counter: TokenCounter) -> tuple[ContextItem, ...]:
    """``items``, each damaged one with the tokens of the text that replaces its content."""
    found: list[ContextItem] = []
    for item in items:
        if item.damaged is None:
            found.append(item)
        else:
            found.append(replace(item, token_count=count_content(counter, item.message.content)))
    return tuple(found)


async def with_contents(
    items: Sequence[ContextItem], in_files: Collection[str], load: Callable[[str], Awaitable[Content]]
) -> tuple[tuple[ContextItem, ...], tuple[DamagedContent, ...]]:
    """``items``, those of ``in_files`` (ids) with the content that ``load`` returns; and the damaged contents.

    A content that was removed on purpose is not damaged, although a text replaces it too.
    """
    contents: dict[str, Content] = {}
    unreadable: dict[str, DamagedContent] = {}
    damaged: list[DamagedContent] = []
    for item in items:
        if item.id not in in_files:
            continue
        try:
            contents[item.id] = await load(item.id)
        except CtxfsError as error:
            detail = detail_of(error)
            if detail is None:
                raise
            removed = isinstance(error, ContentGone)
            found = DamagedContent(item_id=item.id, name=item.name, detail=detail, removed=removed)
            unreadable[item.id] = found
            if not removed:
                damaged.append(found)
    loaded = [item.with_content(contents[item.id]) if item.id in contents else item for item in items]
    return with_notices(loaded, unreadable), tuple(damaged)
