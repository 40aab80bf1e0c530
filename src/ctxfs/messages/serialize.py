"""Our messages to an Anthropic Messages API body and back: pure, deterministic, the only place that knows the shape.

What is sent is a body that the provider accepts: tool results of a turn stand together and first, and adjacent messages
of one role are one message; text that is empty or only white space is left out, and so is thinking that nothing follows
(a reply that was cut) or that nobody signed; lone surrogates become U+FFFD; tool names and call ids that the provider
would refuse, or that repeat, are rewritten. An error result may hold nothing but text: one with images is sent without
``is_error``, and its first text is "Error:". The messages themselves keep every byte. Message content is always sent as
blocks, so that appending never changes what stands before.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any

from ctxfs.errors import TranscriptError
from ctxfs.errors.base import quoted
from ctxfs.messages.base import ModelRequest
from ctxfs.messages.messages import (
    THINKING,
    AssistantMessage,
    Block,
    Content,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
    check_content,
    check_flag,
    encodable,
    unchanged,
)
from ctxfs.messages.models.prices import CacheTtl
from ctxfs.messages.wire_names import ANTHROPIC, WireLimits, WireNames
from ctxfs.text.jsontext.write_stream import has_surrogates

CACHE_TTLS: tuple[CacheTtl, ...] = ("5m", "1h")
"""How long a breakpoint can ask the provider to keep a prefix."""

MAX_BREAKPOINTS = 4
EMPTY_ERROR = "(no output)"
"""Stands for an error result without content, which the provider refuses."""

ERROR = "Error:"
"""What a result begins with where ``is_error`` cannot say it."""


def to_messages_body(
    request: ModelRequest,
    *,
    model: str,
    max_tokens: int,
    cache: bool = True,
    cache_ttl: CacheTtl = "5m",
) -> dict[str, Any]:
    """The Messages API body for ``request``; ``max_tokens`` counts when the request does not name its own.

    ``cache`` sets the prompt-cache breakpoints, at most four, never on an empty text: the end of the system prompt (or
    of the tools, without one), and the ends of the turns that ``request.breakpoints`` names; of the last user turns
    when it names none.
    """
    return MessagesSerializer().body(request, model=model, max_tokens=max_tokens, cache=cache, cache_ttl=cache_ttl)


class MessagesSerializer:
    """Makes the bodies of one conversation: what was serialised for the last request is used again in the next.

    A body costs what changed since the last one, and it is the same as ``to_messages_body`` makes. Bodies share the
    messages that did not change: copy one before you change anything in it. ``limits``: which call ids and tool names
    the provider takes. Others are rewritten, always to the same; ``wire_names.with_own_names`` undoes it in a reply.
    """

    def __init__(self, limits: WireLimits = ANTHROPIC) -> None:
        self._messages: tuple[Message, ...] = ()
        self._system: list[tuple[int, list[Block]]] = []
        self._turns: list[_Turn] = []
        self._ended: list[dict[str, Any]] = []  # the turns as they are sent, but for the last one while it goes on
        self._wire = WireNames(limits)

    def body(
        self, request: ModelRequest, *, model: str, max_tokens: int, cache: bool = True, cache_ttl: CacheTtl = "5m"
    ) -> dict[str, Any]:
        """The body for ``request``; see ``to_messages_body``."""
        self._take(tuple(request.messages))
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": max_tokens if request.max_tokens is None else request.max_tokens,
        }
        if request.tools:
            body["tools"] = [
                {
                    "name": self._wire.name(tool.name),
                    "description": tool.description,
                    "input_schema": _clean(tool.input_schema),
                }
                for tool in request.tools
            ]
        system: list[Block] = []
        for _, blocks in self._system:
            system += blocks
        if system:
            body["system"] = system
        messages = self._ended[:]
        for turn in self._turns[len(messages) :]:
            content = _sendable(turn.content)
            if content:
                messages.append({"role": turn.role, "content": content})
        body["messages"] = messages
        if cache:
            marks = _marks(self._turns[: len(messages)], request.breakpoints, self._messages)
            control = {"type": "ephemeral"}
            if cache_ttl != "5m":  # which is the provider's own
                control["ttl"] = cache_ttl
            _set_breakpoints(body, marks, control)
        if request.status:
            body["messages"] = _with_status(messages, request.status)
        return body

    def _take(self, messages: tuple[Message, ...]) -> None:
        """Serialise what is new, and what stands behind a change."""
        start = unchanged(self._messages, messages)
        if start < len(self._messages):
            start = self._rewind(start)
        for number, message in enumerate(messages[start:], start):
            self._add(number, message)
        self._messages = messages

    def _rewind(self, same: int) -> int:
        """Forget the last turns: all behind the first ``same`` messages, and the assistant turn that begins before it.

        A turn's calls are answered in the next one, so the state between the two is known at the start of an assistant
        turn alone. Returns how many messages are still taken in.
        """
        kept = 0
        start = 0
        for number in reversed(range(1, len(self._turns))):  # what changes is near the end
            turn = self._turns[number]
            if turn.role == "assistant" and turn.start < same:
                kept = number
                start = turn.start
                break
        for turn in reversed(self._turns[kept:]):
            self._wire.forget(turn.calls)
        self._wire.open_turn()
        del self._turns[kept:], self._ended[kept:]
        self._system = [(number, blocks) for number, blocks in self._system if number < start]
        return start

    def _add(self, number: int, message: Message) -> None:
        if isinstance(message, SystemMessage):
            self._system.append((number, _blocks(message.content)))
            return
        turns = self._turns
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        if turns and turns[-1].role != role:
            self._end_turn()  # an empty one goes, so that the one before it, of this role, may be the last again
        if not turns or turns[-1].role != role:
            turns.append(_Turn(role, number))
            if role == "assistant":
                self._wire.open_turn()
        elif len(self._ended) == len(turns):  # that one goes on
            turns[-1].content = self._ended.pop()["content"][:]
        turns[-1].add(message, self._wire)
        turns[-1].end = number + 1

    def _end_turn(self) -> None:
        """End the last turn; one that is empty then goes."""
        if len(self._ended) == len(self._turns):
            return
        turn = self._turns[-1]
        turn.content = _sendable(turn.content)
        if turn.content:
            self._ended.append({"role": turn.role, "content": turn.content})
        else:
            self._turns.pop()


_INSTEAD = {
    "tool": "a tool's result is a tool_result block of a user's message",
    "system": "the system prompt is set with set_system_prompt()",
}
"""What to write in the place of a message of another role."""


def _with_status(messages: list[dict[str, Any]], status: str) -> list[dict[str, Any]]:
    """The messages with a text at their end; none of them is changed in place."""
    block = {"type": "text", "text": encodable(status)}
    if messages and messages[-1]["role"] == "user":
        return [*messages[:-1], {"role": "user", "content": [*messages[-1]["content"], block]}]
    return [*messages, {"role": "user", "content": [block]}]


def from_dict(message: Mapping[str, Any], tool_names: Mapping[str, str]) -> list[Message]:
    """Our messages for one Messages API message; tool results come first, one message each.

    ``tool_names`` gives the tool of each call id seen so far (see ``AssistantMessage.tool_calls``).

    Raises:
        TranscriptError: an unknown role, calls outside of the content, or a result whose call is not in ``tool_names``.

    """
    for key in ("tool_calls", "function_call"):
        if message.get(key):
            raise TranscriptError([f"{key} beside the content: give each call as a content block of type tool_use"])
    role = message["role"]
    if role not in ("user", "assistant"):
        wrong = f"a message of role {role!r}: only user and assistant are messages"
        raise TranscriptError([f"{wrong}; {_INSTEAD[role]}" if role in _INSTEAD else wrong])
    raw: str | Sequence[Block] = message["content"]
    content: Content = raw if isinstance(raw, str) else tuple(raw)
    if role == "assistant":
        return [AssistantMessage(content)]
    if isinstance(content, str):
        return [UserMessage(content)]
    messages: list[Message] = []
    others: list[Block] = []
    for block in content:
        if block["type"] == "tool_result":
            messages.append(_tool_message(block, tool_names))
        else:
            others.append(block)
    if others or not messages:
        messages.append(UserMessage(tuple(others)))
    return messages


@dataclass(slots=True)
class _Turn:
    """One message of the body; ``results`` counts the tool results at its beginning, ``calls`` are their raw ids.

    ``start`` and ``end``: how many of the messages stand before it, and up to its end.
    """

    role: str
    start: int
    content: list[Block] = field(default_factory=list)
    results: int = 0
    end: int = 0
    calls: list[str] = field(default_factory=list)

    def add(self, message: UserMessage | AssistantMessage | ToolMessage, wire: WireNames) -> None:
        """Take in another message of the turn's role."""
        if isinstance(message, ToolMessage):
            self.content.insert(self.results, _result(message, wire))
            self.results += 1
        elif isinstance(message, AssistantMessage):
            self.content.extend(_blocks(message.content, wire))
            self.calls += [call.id for call in message.tool_calls]
        else:
            self.content.extend(_blocks(message.content))


def _sendable(content: list[Block]) -> list[Block]:
    """The content without the thinking at its end, where it is refused."""
    end = len(content)
    while end and content[end - 1]["type"] in THINKING:
        end -= 1
    return content[:end]


def _result(message: ToolMessage, wire: WireNames) -> Block:
    content: str | list[Block] = ""
    if not isinstance(message.content, str):
        content = _blocks(message.content)
    elif message.content.strip():
        content = encodable(message.content)
    block: Block = {"type": "tool_result", "tool_use_id": wire.answer(message.tool_call_id), "content": content}
    if not message.is_error:
        return block
    if not isinstance(content, str) and any(b["type"] != "text" for b in content):
        block["content"] = [{"type": "text", "text": ERROR}, *content]
    else:
        block["content"] = content or EMPTY_ERROR
        block["is_error"] = True
    return block


def _blocks(content: Content, wire: WireNames | None = None) -> list[Block]:
    """The blocks to send: cleaned, without invisible text and without cache breakpoints."""
    if isinstance(content, str):
        return [{"type": "text", "text": encodable(content)}] if content.strip() else []
    blocks: list[Block] = []
    for block in content:
        if _is_refused(block):
            continue
        cleaned = _clean(block) if has_surrogates(block) else block
        if "cache_control" in cleaned:
            cleaned = {k: v for k, v in cleaned.items() if k != "cache_control"}
        if wire and block["type"] == "tool_use":
            cleaned = wire.call(cleaned, block)
        blocks.append(cleaned)
    return blocks


def _is_refused(block: Block) -> bool:
    """Invisible text, and thinking without a signature: another provider's, or not wholly recorded."""
    match block["type"]:
        case "text":
            return not block["text"].strip()
        case "thinking":
            return not block.get("signature")
    return False


def _clean(value: Any) -> Any:
    """``value`` with lone surrogates replaced in every string; the same object where nothing had to change."""
    match value:
        case str():
            return encodable(value)
        case Mapping():
            items: dict[Any, Any] = {}
            same = isinstance(value, dict)
            for key, inner in value.items():
                cleaned_key = _clean(key)
                cleaned = _clean(inner)
                items[cleaned_key] = cleaned
                same = same and cleaned_key is key and cleaned is inner
            return value if same else items
        case list() | tuple():
            values = [_clean(inner) for inner in value]
            same = isinstance(value, list) and all(map(is_, value, values))
            return value if same else values
    return value


def _tool_message(block: Block, tool_names: Mapping[str, str]) -> ToolMessage:
    call_id = block["tool_use_id"]
    if call_id not in tool_names:
        raise TranscriptError([f"tool_result for {quoted(call_id)}, but no tool_use of that id stands before it"])
    return ToolMessage(
        tool_call_id=call_id,
        tool_name=tool_names[call_id],
        content=check_content(block.get("content", "")),
        is_error=check_flag(block.get("is_error"), "is_error"),
    )


def _marks(turns: Sequence[_Turn], wanted: Sequence[int] | None, messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Where breakpoints stand: the number of the turn and of its block; one is left for the system prompt."""
    marks: list[tuple[int, int]] = []
    if wanted is None:
        marks = [(number, -1) for number, turn in enumerate(turns) if turn.role == "user"]
    else:
        for count in wanted:
            mark = _mark_after(turns, count, messages)
            if mark is not None and mark not in marks:
                marks.append(mark)
    return marks[1 - MAX_BREAKPOINTS :]


def _mark_after(turns: Sequence[_Turn], count: int, messages: Sequence[Message]) -> tuple[int, int] | None:
    """The last block within the first ``count`` messages, or a little before it; None where no turn ends by then.

    What follows changes next, where a result is about to leave. Among the results of one turn each is a block, in their
    order, so the mark stands right before the one that leaves, and those before it need not be written again.
    """
    ended = bisect_right(turns, count, key=lambda turn: turn.end)
    if ended < len(turns):
        before = messages[turns[ended].start : count]
        if before and all(isinstance(message, ToolMessage) for message in before):
            return ended, len(before) - 1
    return (ended - 1, -1) if ended else None


def _set_breakpoints(body: dict[str, Any], marks: Sequence[tuple[int, int]], control: dict[str, str]) -> None:
    """Mark the ends of system (or tools) and these blocks of turns, which are new values then.

    Each can be marked: no empty text was let in, and no turn ends in thinking.
    """
    for head in ("system", "tools"):
        if body.get(head):
            body[head] = _marked(body[head], -1, control)
            break
    messages = body["messages"]
    for turn, block in marks:
        messages[turn] = {**messages[turn], "content": _marked(messages[turn]["content"], block, control)}


def _marked(blocks: list[Block], block: int, control: dict[str, str]) -> list[Block]:
    marked = blocks[:]
    marked[block] = {**blocks[block], "cache_control": control}
    return marked
