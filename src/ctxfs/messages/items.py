"""The items of a context: frozen, identified by id, rewritten as new values.

Follows "Context FileSystem 上下文卸载功能" for the item types and the fields that users inspect.
"""

import reprlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from ctxfs.errors import InvalidRecord
from ctxfs.messages.messages import Content, Message, ToolMessage


class ItemType(StrEnum):
    """What an item is; also the name of its directory on disk."""

    SYSTEM_PROMPT = "system_prompt"
    USER_MESSAGE = "user_message"
    ASSISTANT_MESSAGE = "assistant_message"
    TOOL_RESULT = "tool_result"
    TOOL_INPUT = "tool_input"
    """The arguments of a call; stored when they leave, never an item of the context."""
    SKILL_PROMPT = "skill_prompt"
    COMPACTION_SUMMARY = "compaction_summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentRange:
    """Lines of an item's stored content, 1-based and inclusive: where a read-back came from."""

    item_id: str
    path: str
    first_line: int
    last_line: int

    def __post_init__(self) -> None:
        """Raise ``InvalidRecord`` for what a journal could not hold."""
        for name in ("item_id", "path"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise InvalidRecord(f"{name} of a ContentRange is {reprlib.repr(value)}: use a text")
        for name in ("first_line", "last_line"):
            value = getattr(self, name)
            if not isinstance(value, int):
                raise InvalidRecord(f"{name} of a ContentRange is {reprlib.repr(value)}: use a number")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextItem:
    """One message of the context.

    Args:
        id: unique in the session, printable ASCII and safe as a file name; a tool result has its call's id whenever
            that is possible.
        item_type: what it is.
        message: what the model sees now.
        name: its file inside the session, used when its content is stored.
        token_count: the tokens of what the model sees now: of the placeholder, once the item is ``offloaded``.
        content_tokens: the tokens of the original.
        placeholder: the text that may replace what the model sees now; None if it is not written yet, or there is none.
        placeholder_tokens: the tokens of ``placeholder``.
        offloaded: the content is in ``offload_path``, and the message holds its placeholder.
        destroyed: the original is no longer in the context.
        offload_path: the file of the content, absolute; None if it is in no file. A compaction summary is neither
            offloaded nor destroyed, and names here the archive of the messages that it summarizes.
        source: the stored lines that the result repeats; None if it is not a read-back.
        label: a skill prompt's name, else None.
        trimmed: the positions of the calls of a reply whose large arguments were evicted.
        damaged: what is wrong with the file of the content, which the message says instead of it; None if the content
            is whole.
        is_data: the content is the JSON of data that a tool returned.
        pinned: it stays, whatever rule evicts others.
        full_bytes: the size of the output of which the content is only the beginning; 0: the content is all of it.
    """

    id: str
    item_type: ItemType
    message: Message
    name: str
    token_count: int
    content_tokens: int
    placeholder: str | None = None
    placeholder_tokens: int = 0
    offloaded: bool = False
    destroyed: bool = False
    offload_path: str | None = None
    source: ContentRange | None = None
    label: str | None = None
    trimmed: tuple[int, ...] = ()
    damaged: str | None = None
    is_data: bool = False
    pinned: bool = False
    full_bytes: int = 0

    @property
    def tool_name(self) -> str | None:
        """The tool whose result this is; None for anything else."""
        return self.message.tool_name if isinstance(self.message, ToolMessage) else None

    @property
    def can_shrink(self) -> bool:
        """Whether it was evicted for a placeholder that is longer than the one that it would get today."""
        return self.destroyed and self.placeholder is not None and self.token_count > self.placeholder_tokens

    def with_content(self, content: Content) -> "ContextItem":
        """The item with other content, and everything else as it is."""
        return replace(self, message=replace(self.message, content=content))

    def offloaded_to(
        self,
        path: str | None,
        content: Content,
        tokens: int,
        *,
        destroyed: bool = True,
        trimmed: tuple[int, ...] = (),
        later: tuple[str, int] | None = None,
    ) -> "ContextItem":
        """The item once its content is in the file ``path``, with ``content`` in its place, which takes ``tokens``.

        ``path`` None: only a part of it is in files. ``destroyed``, ``trimmed``: see the fields. ``later``: the
        placeholder that may replace ``content`` one day, and its tokens; None: the one that the item has.
        """
        placeholder = self.placeholder
        placeholder_tokens = self.placeholder_tokens
        if later is not None:
            placeholder, placeholder_tokens = later
        return replace(
            self,
            message=_message_in(self.message, path, content),
            placeholder=placeholder,
            placeholder_tokens=placeholder_tokens,
            token_count=tokens,
            offloaded=path is not None,
            destroyed=destroyed,
            offload_path=path,
            trimmed=trimmed,
        )

    def restored(self, content: Content) -> "ContextItem":
        """The item with its own content again."""
        return replace(
            self,
            message=_message_in(self.message, None, content),
            token_count=self.content_tokens,
            offloaded=False,
            destroyed=False,
            offload_path=None,
            trimmed=(),
        )

    def moved_to(self, path: str | None) -> "ContextItem":
        """The item with its file under another path; None where it has none."""
        if path == self.offload_path:
            return self
        message = self.message
        if isinstance(message, ToolMessage) and message.offload_path is not None:
            message = replace(message, offload_path=path)
        return replace(self, message=message, offload_path=path)


def _message_in(message: Message, path: str | None, content: Content) -> Message:
    """The message with other content; a tool result also says that its own is in the file ``path``, or in none."""
    if isinstance(message, ToolMessage):
        return replace(message, content=content, offloaded=path is not None, offload_path=path)
    return replace(message, content=content)


def unevicted_tokens(items: Iterable[ContextItem]) -> int:
    """What a context of these items would hold, had nothing left it: lines that were read back are in it already."""
    return sum(item.content_tokens for item in items if item.source is None)
