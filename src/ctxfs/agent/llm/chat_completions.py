"""A Messages API body as a Chat Completions body, and its stream put together to a reply: pure."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from ctxfs.agent.llm.accumulate import INVALID_JSON, parse_arguments, text_in
from ctxfs.messages.base import Reply, TextDelta, ThinkingDelta, Usage
from ctxfs.messages.messages import AssistantMessage, Block, check_content
from ctxfs.messages.serialize import ERROR
from ctxfs.messages.wire_names import WireLimits
from ctxfs.text.jsontext import codec as json_codec

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
ATTACHED = "[attached below]"
MAX_CALLS = 128
"""The most calls that one assistant message may hold."""

MAX_TOOLS = 128
"""The most tools that OpenAI takes in a request."""

Dialect = Literal["openai", "mistral"]
"""Mistral's API takes other call ids and fewer fields than OpenAI's, and no user message right after a tool's."""

WIRE_LIMITS: Mapping[Dialect, WireLimits] = {
    "openai": WireLimits(max_id_chars=40, max_name_chars=64),
    "mistral": WireLimits(max_id_chars=9, max_name_chars=64, exact_ids=True),
}
_DONE: Mapping[str, Any] = {"role": "assistant", "content": "Done."}
"""What a dialect gets between a tool's message and a user's that does not take one right after the other."""

_log = logging.getLogger("ctxfs.agent")


def to_chat_body(body: Mapping[str, Any], *, max_tokens_field: str, dialect: Dialect = "openai") -> dict[str, Any]:
    """The Chat Completions body of a Messages API body (see ``to_messages_body``), which is without breakpoints.

    Its ids and names must be within the dialect's ``WIRE_LIMITS``.

    Thinking is dropped. A tool message can hold text only: images and documents of results follow in a user message,
    and ``is_error`` becomes a prefix. More than 128 calls in one reply become several messages, each with its results.
    ``max_tokens_field``: the name under which the server takes the limit.
    """
    messages: list[dict[str, Any]] = []
    system = body.get("system")
    if system:
        messages.append({"role": "system", "content": "\n\n".join(b["text"] for b in system)})
    for message in _rounds(body["messages"]):
        convert = _assistant if message["role"] == "assistant" else _user
        messages.extend(convert(message["content"]))
    if dialect == "mistral":
        messages = list(_without_user_after_tool(messages))
    chat: dict[str, Any] = {"model": body["model"], max_tokens_field: body["max_tokens"], "messages": messages}
    tools = body.get("tools")
    if tools:
        chat["tools"] = list(map(_tool, tools))
    return chat


def with_empty_texts(chat: Mapping[str, Any]) -> dict[str, Any]:
    """The body with an empty text in each message that has the content null."""
    messages: list[Mapping[str, Any]] = []
    for message in chat["messages"]:
        missing = message["content"] is None
        messages.append({**message, "content": ""} if missing else message)
    return {**chat, "messages": messages}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}
    return {"type": "function", "function": function}


def _rounds(messages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The messages; a reply with too many calls is cut into several, each followed by the results of its calls."""
    replies: list[list[Block]] = []
    for message in messages:
        blocks = message["content"]
        if message["role"] == "assistant":
            replies = _cut(blocks)
            continue
        for reply in replies[:-1]:
            ids = {b["id"] for b in reply if b["type"] == "tool_use"}
            yield {"role": "assistant", "content": reply}
            yield {"role": "user", "content": [b for b in blocks if b.get("tool_use_id") in ids]}
            blocks = [b for b in blocks if b.get("tool_use_id") not in ids]
        for reply in replies[-1:]:
            yield {"role": "assistant", "content": reply}
        yield {"role": "user", "content": blocks}
        replies = []
    for reply in replies:  # a reply that nothing follows yet
        yield {"role": "assistant", "content": reply}


def _without_user_after_tool(messages: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield from messages[:1]
    for before, message in pairwise(messages):
        if (before["role"], message["role"]) == ("tool", "user"):
            yield dict(_DONE)
        yield message


def _cut(blocks: Sequence[Block]) -> list[list[Block]]:
    replies: list[list[Block]] = [[]]
    calls = 0
    for block in blocks:
        calls += block["type"] == "tool_use"
        if calls > MAX_CALLS:
            replies.append([])
            calls = 1
        replies[-1].append(block)
    return replies


def _assistant(blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    text = "".join(b["text"] for b in blocks if b["type"] == "text")
    calls: list[dict[str, Any]] = []
    for block in blocks:
        if block["type"] == "tool_use":
            function = {"name": block["name"], "arguments": json_codec.dumps(block["input"]).decode()}
            calls.append({"id": block["id"], "type": "function", "function": function})
    if calls:
        yield {"role": "assistant", "content": text or None, "tool_calls": calls}
    elif text:
        yield {"role": "assistant", "content": text}


def _user(blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    parts: list[Block] = []
    for block in blocks:
        if block["type"] != "tool_result":
            parts.append(_part(block))
            continue
        text, attached = _result(block["content"])
        if block.get("is_error"):
            text = f"{ERROR} {text}"
        yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": text}
        if attached:
            parts += [{"type": "text", "text": f"From the result of call {block['tool_use_id']}:"}, *attached]
    if len(parts) == 1 and parts[0]["type"] == "text":
        yield {"role": "user", "content": parts[0]["text"]}
    elif parts:
        yield {"role": "user", "content": parts}


def _result(content: str | Sequence[Block]) -> tuple[str, list[Block]]:
    """The text of a tool result, and what has to be attached outside of it."""
    if isinstance(content, str):
        return content, []
    texts: list[str] = []
    attached: list[Block] = []
    for part in map(_part, content):
        if part["type"] == "text":
            texts.append(part["text"])
        else:
            texts.append(ATTACHED)
            attached.append(part)
    return "\n".join(texts), attached


def _part(block: Block) -> Block:
    match block:
        case {"type": "text", "text": text}:
            return {"type": "text", "text": text}
        case {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}:
            return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}}
        case {"type": "image", "source": {"type": "url", "url": url}}:
            return {"type": "image_url", "image_url": {"url": url}}
        case {"type": "document", "source": {"type": "text", "data": text}}:
            return {"type": "text", "text": text}
        case {"type": "document", "source": {"type": "base64", "media_type": media_type, "data": data}}:
            name = block.get("title") or "document.pdf"
            return {"type": "file", "file": {"filename": name, "file_data": f"data:{media_type};base64,{data}"}}
    return {"type": "text", "text": json_codec.dumps(block).decode()}


class ChatReplyBuilder:
    """Takes the chunks of a Chat Completions stream in order and ends in a ``Reply`` (see ``Builder``)."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls = _Calls()
        self._usage = Usage()
        self._model = ""
        self._finish_reason = ""
        self._dropped = False

    @property
    def finished(self) -> bool:
        """Whether the server said why it stopped."""
        return bool(self._finish_reason)

    def feed(self, chunk: Mapping[str, Any]) -> Iterator[TextDelta | ThinkingDelta]:
        """Take the next chunk; the deltas to show."""
        self._model = text_in(chunk, "model") or self._model
        usage = chunk.get("usage")
        if usage:
            self._usage = Usage.of({"prompt_tokens": 0, **usage})
        for choice in chunk.get("choices") or ():
            if choice.get("index"):
                self._drop(choice["index"])
                continue
            self._finish_reason = text_in(choice, "finish_reason") or self._finish_reason
            delta = self._delta(choice)
            thinking = text_in(delta, "reasoning_content") or text_in(delta, "reasoning")
            if thinking:
                yield ThinkingDelta(thinking)
            text = text_in(delta, "content")
            if text:
                self._text.append(text)
                yield TextDelta(text)
            calls = delta.get("tool_calls")
            if not calls and delta.get("function_call"):
                calls = [{"function": delta["function_call"]}]
            for call in calls or ():
                self._calls.add(call)

    def reply(self) -> Reply:
        """The reply so far; a call without an id gets one by its position."""
        blocks: list[Block] = [{"type": "text", "text": "".join(self._text)}] if self._text else []
        blocks += self._calls.blocks()
        reason = STOP_REASONS.get(self._finish_reason, "end_turn")
        return Reply(
            message=AssistantMessage(check_content(blocks)),
            usage=self._usage,
            # some servers say "stop" after tool calls
            stop_reason="tool_use" if self._calls and reason == "end_turn" else reason,
            model=self._model,
        )

    def _delta(self, choice: Mapping[str, Any]) -> Mapping[str, Any]:
        """What ``choice`` adds: its delta, or the whole message, which some servers send in one piece."""
        if "delta" in choice or self._text or self._calls:
            return choice.get("delta") or {}
        return choice.get("message") or {}

    def _drop(self, index: object) -> None:
        if not self._dropped:
            _log.warning("the server sent several choices: only the first is the reply, choice %s is dropped", index)
        self._dropped = True


class _Calls:
    """The calls of a reply in the order in which they came.

    Which call does a delta continue? By the API, the one of its ``index``. Compatible servers leave the index out, send
    null or always 0, repeat the id and the name in every delta, or send whole calls without an id. So: the call of the
    same id, else the latest call of that index, else, without an index, the latest of all. But a delta that names a
    function starts a new call if its id or name differs from that call's, or if that call has all of its arguments.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, delta: Mapping[str, Any]) -> None:
        """Take the next piece of a call."""
        function = delta.get("function") or {}
        index = delta.get("index")
        call_id = text_in(delta, "id")
        name = text_in(function, "name")
        if not isinstance(index, int | None):
            raise TypeError(f"index is not a number: {index!r:.80}")
        arguments = function.get("arguments") or ""
        if isinstance(arguments, Mapping):
            arguments = json_codec.dumps_text(arguments)
        elif not isinstance(arguments, str):
            raise TypeError(f"arguments are neither text nor an object: {arguments!r:.80}")
        call = self._find(index, call_id)
        if call is None or (name and call.is_other_than(call_id, name, arguments)):
            call = _Call(index)
            self._calls.append(call)
        call.call_id = call.call_id or call_id
        call.name = call.name or name
        call.arguments.append(arguments)

    def blocks(self) -> list[Block]:
        """The calls as blocks; one without an id gets one by its position."""
        return [call.block(number) for number, call in enumerate(self._calls, start=1)]

    def _find(self, index: int | None, call_id: str) -> "_Call | None":
        latest = [c for c in reversed(self._calls) if index is None or c.index in (None, index)]
        if call_id:
            for call in latest:
                if call.call_id == call_id:
                    return call
        return latest[0] if latest else None


@dataclass(slots=True)
class _Call:
    """One tool call, as far as it came."""

    index: int | None
    call_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def is_other_than(self, call_id: str, name: str, arguments: str) -> bool:
        """Whether a delta with this id, name and arguments begins another call than this one."""
        if call_id and self.call_id:
            return call_id != self.call_id
        return bool(self.name and (name != self.name or (arguments.strip() and self._is_whole())))

    def block(self, number: int) -> Block:
        arguments = parse_arguments("".join(self.arguments))
        return {"type": "tool_use", "id": self.call_id or f"call_{number}", "name": self.name, "input": arguments}

    def _is_whole(self) -> bool:
        text = "".join(self.arguments).strip()
        return text.endswith("}") and INVALID_JSON not in parse_arguments(text)
