"""A Messages API body as a Chat Completions body, and its stream put together to a reply: pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ctxfs import json_codec
from ctxfs.llm.accumulate import count_in, parse_arguments, text_in
from ctxfs.llm.base import Reply, TextDelta, ThinkingDelta, Usage
from ctxfs.llm.messages import AssistantMessage, Block, check_content

__all__ = ["ChatReplyBuilder", "to_chat_body"]

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
ATTACHED = "[attached below]"
ERROR_PREFIX = "Error: "


def to_chat_body(body: Mapping[str, Any], *, max_tokens_field: str) -> dict[str, Any]:
    """The Chat Completions body of a Messages API body (see ``to_messages_body``, without breakpoints).

    Thinking is dropped. A tool message can hold text only: images and documents of results follow in a user message,
    and ``is_error`` becomes a prefix. ``max_tokens_field``: the name under which the server takes the limit.
    """
    messages: list[dict[str, Any]] = []
    if system := body.get("system"):
        messages.append({"role": "system", "content": "\n\n".join(b["text"] for b in system)})
    for message in body["messages"]:
        convert = _assistant if message["role"] == "assistant" else _user
        messages.extend(convert(message["content"]))
    chat: dict[str, Any] = {"model": body["model"], max_tokens_field: body["max_tokens"], "messages": messages}
    if tools := body.get("tools"):
        chat["tools"] = [
            {
                "type": "function",
                "function": {"name": t["name"], "description": t["description"], "parameters": t["input_schema"]},
            }
            for t in tools
        ]
    return chat


def _assistant(blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    text = "".join(b["text"] for b in blocks if b["type"] == "text")
    calls = [
        {
            "id": b["id"],
            "type": "function",
            "function": {"name": b["name"], "arguments": json_codec.dumps(b["input"]).decode()},
        }
        for b in blocks
        if b["type"] == "tool_use"
    ]
    if text or calls:
        yield {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}


def _user(blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    parts: list[Block] = []
    for block in blocks:
        if block["type"] != "tool_result":
            parts.append(_part(block))
            continue
        text, attached = _result(block["content"])
        if block.get("is_error"):
            text = ERROR_PREFIX + text
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
    texts, attached = [], []
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
        self._calls: dict[int, _Call] = {}
        self._usage = Usage()
        self._model = ""
        self._finish_reason = ""

    @property
    def finished(self) -> bool:
        """Whether the server said why it stopped."""
        return bool(self._finish_reason)

    def feed(self, chunk: Mapping[str, Any]) -> Iterator[TextDelta | ThinkingDelta]:
        """Take the next chunk; the deltas to show."""
        self._model = text_in(chunk, "model") or self._model
        if usage := chunk.get("usage"):
            self._usage = _usage(usage)
        for choice in chunk.get("choices") or ():
            self._finish_reason = text_in(choice, "finish_reason") or self._finish_reason
            delta = choice.get("delta") or {}
            if thinking := text_in(delta, "reasoning_content") or text_in(delta, "reasoning"):
                yield ThinkingDelta(thinking)
            if text := text_in(delta, "content"):
                self._text.append(text)
                yield TextDelta(text)
            for call in delta.get("tool_calls") or ():
                self._calls.setdefault(count_in(call, "index"), _Call()).add(call)

    def reply(self) -> Reply:
        """The reply so far; a call without an id gets one by its position."""
        blocks: list[Block] = [{"type": "text", "text": "".join(self._text)}] if self._text else []
        blocks += [call.block(number) for number, (_, call) in enumerate(sorted(self._calls.items()), start=1)]
        reason = STOP_REASONS.get(self._finish_reason, "end_turn")
        return Reply(
            message=AssistantMessage(check_content(blocks)),
            usage=self._usage,
            # some servers say "stop" after tool calls
            stop_reason="tool_use" if self._calls and reason == "end_turn" else reason,
            model=self._model,
        )


@dataclass(slots=True)
class _Call:
    """One tool call, as far as it came."""

    call_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def add(self, delta: Mapping[str, Any]) -> None:
        function = delta.get("function") or {}
        self.call_id = self.call_id or text_in(delta, "id")
        self.name = self.name or text_in(function, "name")
        self.arguments.append(text_in(function, "arguments"))

    def block(self, number: int) -> Block:
        arguments = parse_arguments("".join(self.arguments))
        return {"type": "tool_use", "id": self.call_id or f"call_{number}", "name": self.name, "input": arguments}


def _usage(usage: Mapping[str, Any]) -> Usage:
    """Disjoint counts from Chat Completions' nested ones, where cached tokens are part of the prompt's."""
    cached = count_in(usage.get("prompt_tokens_details") or {}, "cached_tokens")
    return Usage(
        input_tokens=count_in(usage, "prompt_tokens") - cached,
        cache_read_input_tokens=cached,
        output_tokens=count_in(usage, "completion_tokens"),
    )
