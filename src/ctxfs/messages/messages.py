"""Messages as values: what the model sees, and nothing else.

Content is a string, or a tuple of content blocks in the shape of the Anthropic Messages API, kept verbatim: unknown
block types, signatures and fields pass through untouched. Blocks are plain dicts of JSON data (``check_content`` is the
rule) and are treated as immutable.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Any, Protocol, get_args

from ctxfs.text.jsontext import codec as json_codec
from ctxfs.text.jsontext.codec import check_json


def encodable(text: str) -> str:
    """Return ``text`` with U+FFFD for each lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


Block = dict[str, Any]

Content = str | tuple[Block, ...]

THINKING = frozenset({"thinking", "redacted_thinking"})
"""The types of blocks that hold what a model thought."""

MEDIA_TYPES = frozenset({"image", "document"})
"""Blocks that a model looks at; lines of text cannot replace them."""

_NEEDED: Mapping[str, Mapping[str, type]] = {
    "text": {"text": str},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str},
}
"""What is read in blocks of a type; all else in them passes through unread."""


def check_block(block: Any) -> None:
    """Raise ValueError, with the reason, if ``block`` is not a content block or lacks what its type needs."""
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        what = "not a content block, which is a dict with a type"
        raise ValueError(f"{what}: {reprlib.repr(block)}")  # noqa: TRY004 - data
    for name, kind in _NEEDED.get(block["type"], {}).items():
        if not isinstance(block.get(name), kind):
            what = f"a block of type {block['type']} needs {name} ({kind.__name__})"
            raise ValueError(f"{what}: {reprlib.repr(block)}")  # noqa: TRY004 - data


class SdkModel(Protocol):
    """A model of pydantic, as the providers' SDKs give messages and content blocks."""

    def model_dump(self, *, mode: str = ..., by_alias: bool | None = ..., exclude_unset: bool = ...) -> dict[str, Any]:
        """Return the model as a dict."""


def to_plain(value: Any) -> Any:
    """Return a model of pydantic, as the providers' SDKs give, as the dict that they would send; all else as it is."""
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type | Mapping):
        return value
    # What an SDK added for its caller, such as the parsed output of a text block: its provider would refuse it.
    not_sent = getattr(value, "__api_exclude__", None)
    return dump(mode="json", by_alias=True, exclude_unset=True, exclude=not_sent)


def check_content(content: Any) -> Content:
    """Return ``content``, a text or blocks, as it stands in a message; blocks of an SDK as plain dicts.

    Blocks are JSON data that a resumed session gives back equal, see ``check_json``. Raises ValueError, naming the
    place, when ``content`` is something else.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        what = "content is a text or a list of content blocks"
        raise ValueError(f"{what}, not {reprlib.repr(content)}")  # noqa: TRY004 - data
    blocks = tuple(content)
    if not all(isinstance(block, dict) for block in blocks):
        blocks = tuple(to_plain(block) for block in blocks)
    for number, block in enumerate(blocks):
        check_block(block)
        check_json(block, f"content[{number}]")
    return blocks


def check_name(value: Any, what: str) -> str:
    """Return a name or an id, which is a text. Raises ValueError, naming ``what``."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is {reprlib.repr(value)}: use a text")  # noqa: TRY004 - data
    return value


def check_flag(value: Any, what: str) -> bool:
    """Return a flag, None as False. Raises ValueError, naming ``what``, for anything but a bool."""
    if value is None or isinstance(value, bool):
        return bool(value)
    raise ValueError(f"{what} is {reprlib.repr(value)}: use True or False")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to run a tool. ``id`` is the provider's; empty means "not assigned yet"."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""


@dataclass(frozen=True, slots=True)
class SystemMessage:
    """The system prompt."""

    content: Content


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message of the user, or a prompt that takes the place of one."""

    content: Content


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A model's reply; thinking blocks are kept byte for byte."""

    content: Content

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of this reply, in order."""
        if isinstance(self.content, str):
            return ()
        calls = [block for block in self.content if block.get("type") == "tool_use"]
        return tuple([ToolCall(call["name"], call["input"], call["id"]) for call in calls])

    @property
    def text(self) -> str:
        """The text of this reply, without thinking and tool calls."""
        return text_of(self.content)


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """One tool result. ``content`` is what the model sees: the result, or its placeholder once ``offloaded``."""

    tool_call_id: str
    tool_name: str
    content: Content
    is_error: bool = False
    offloaded: bool = False
    offload_path: str | None = None


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage

MessageLike = Message | Mapping[str, Any] | SdkModel
"""One of our messages, or one of the Messages API: as a plain dict, or as its SDK gives it."""


def check_message(message: Any) -> Message:
    """Return ``message``, one of ours, as a resumed session gives it back: blocks as a tuple, None for a flag as False.

    Raises ValueError, saying what is wrong, for anything else.
    """
    # A subclass is refused: a resumed session gives back what it derives from.
    if not isinstance(message, Message) or type(message) not in get_args(Message):
        raise ValueError(f"not a message: {reprlib.repr(message)}")
    content = check_content(message.content)
    _check_places(message, content)
    if isinstance(message, ToolMessage):
        if message.offload_path is not None:
            check_name(message.offload_path, "offload_path")
        return ToolMessage(
            tool_call_id=check_name(message.tool_call_id, "tool_call_id"),
            tool_name=check_name(message.tool_name, "tool_name"),
            content=content,
            is_error=check_flag(message.is_error, "is_error"),
            offloaded=check_flag(message.offloaded, "offloaded"),
            offload_path=message.offload_path,
        )
    if content is message.content:
        return message
    return replace(message, content=content)


_ELSEWHERE: Mapping[type, Mapping[str, str]] = {
    UserMessage: dict.fromkeys(("tool_use", *THINKING), "an assistant's"),
    AssistantMessage: {"tool_result": "a user's"},
}
"""The types of blocks that cannot be in a message of a kind, and whose message they belong in."""


def _check_places(message: Message, content: Content) -> None:
    """Raise ValueError for a block that every provider refuses there, in each request from then on."""
    elsewhere = _ELSEWHERE.get(type(message))
    if elsewhere is None or isinstance(content, str):
        return
    for block in content:
        if block["type"] in elsewhere:
            raise ValueError(f"a block of type {block['type']} belongs in {elsewhere[block['type']]} message")


def is_blank(content: Content) -> bool:
    """Whether there is nothing in ``content`` that a provider takes: no block but texts of white space."""
    if isinstance(content, str):
        return not content.strip()
    return all(block["type"] == "text" and not block["text"].strip() for block in content)


def has_media(content: Content) -> bool:
    """Whether an image or a document is in ``content``."""
    return not isinstance(content, str) and any(block.get("type") in MEDIA_TYPES for block in content)


def text_with(content: Content, other: Callable[[Block], str]) -> str:
    """Return all of ``content`` as text, by line; ``other`` gives the text for any other block."""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] if block["type"] == "text" else other(block) for block in content)


def text_of(content: Content) -> str:
    """The text in ``content``: itself, or its text blocks joined; other blocks count as nothing."""
    if isinstance(content, str):
        return content
    return "".join(b["text"] for b in content if b.get("type") == "text")


def unchanged(before: Sequence[object], after: Sequence[object]) -> int:
    """How many messages (or anything else) from the first one on are the same objects in both."""
    if all(map(is_, before, after)):  # nearly always so, and three times faster than the loop
        return min(len(before), len(after))
    same = 0
    while before[same] is after[same]:
        same += 1
    return same


TITLE_CHARS = 120
"""The most characters of a title."""


def readable_text(content: Content) -> str:
    """Return what lines are counted in: the text, or the text blocks by line, and calls; other blocks are named."""
    return text_with(content, _named)


def _named(block: Block) -> str:
    kind = block["type"]
    if kind == "tool_use":
        return f"[calls {block.get('name')} {json_codec.dumps_text(block.get('input'))}]"
    source = block.get("source")
    if isinstance(source, Mapping) and isinstance(source.get("data"), str):
        data = source["data"]
        size = len(data)
        if source.get("type") == "base64":
            size = len(data) * 3 // 4 - data[-2:].count("=")
        return f"[{kind}: {source.get('media_type', 'unknown')}, {size} bytes]"
    return f"[{kind}: {len(json_codec.dumps(block))} bytes of JSON]"


def part_of(size_bytes: int, full_bytes: int) -> str:
    """How much of an output is there, if its end is missing."""
    return f"the first {size_bytes:,} of {full_bytes:,} bytes"


def title_of(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text[: 4 * TITLE_CHARS].split())
    return line if len(line) <= TITLE_CHARS else f"{line[: TITLE_CHARS - 1]}…"
