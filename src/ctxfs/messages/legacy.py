"""Tools for models that have none: calls and their responses as text, ``<function_call>{…}</function_call>``.

Follows "Tool Output Materialization（工具输出文件化）规格", the legacy function-call form. Only the model's own replies
are ever parsed; text of tools and users is not, and a tag in a tool's output is escaped.
"""

import json
import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from ctxfs.errors import ConfigError, InvalidFunctionCall
from ctxfs.errors.checks import names_settings, require_int
from ctxfs.messages.base import CUT, ChatModel, ModelEvent, ModelRequest, Reply, Retrying, TextDelta, ToolSchema, Usage
from ctxfs.messages.messages import (
    MEDIA_TYPES,
    AssistantMessage,
    Block,
    Content,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    text_with,
)
from ctxfs.text.jsontext import codec as json_codec

_OPEN = "<function_call>"
_CLOSE = "</function_call>"
_TAG = re.compile(rf"^[ \t]*{_OPEN}", re.MULTILINE)
"""A call at the start of a line."""
_NEXT = re.compile(rf"[ \t]*{_OPEN}")
"""A call that follows another one on its line."""
_SPACE = re.compile(r"[ \t\r\n]*")
_CALL_ID = re.compile(r"call_(\d{1,9})")
_KEYS = frozenset({"name", "arguments"})
_DECODER = json.JSONDecoder()
_GO_ON = "The responses are in the function calls above. Continue."
_TOOLS = """You can call these functions. To call one, end your reply with, on a line of its own:
<function_call>{"name": "<the function's name>", "arguments": {<its arguments>}}</function_call>
You may write several, each on a line of its own. Never write "response" yourself, and use the tag for nothing else.

Functions:
"""
_AGAIN = "Your function call could not be read: {}. Nothing was run. Write it again, as described."


@names_settings()
class LegacyToolCalls:
    """A chat model with tools, made of one without: wrap it and give it to the agent.

    ``repairs``: how often the model is asked again for a call that cannot be read; then ``InvalidFunctionCall``.
    """

    def __init__(self, model: ChatModel, *, repairs: int = 1) -> None:
        require_int("repairs", repairs, at_least=0)
        if isinstance(model, type) or not callable(getattr(model, "stream", None)):
            raise ConfigError(f"model is {model!r}: use a model, such as ChatOpenAI(...)")
        self._model = model
        self._repairs = repairs

    @property
    def model(self) -> str:
        """The wrapped model's name."""
        return self._model.model

    def check(self) -> None:
        """Check the settings of the wrapped model."""
        self._model.check()

    async def close(self) -> None:
        """Close the wrapped model."""
        await self._model.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Make a call of the wrapped model; deltas are those of the text before the first call.

        Raises:
            InvalidFunctionCall: the model wrote a call that cannot be read, even when asked again.
            ModelError: whatever the wrapped model raises.

        """
        first_id = _next_id(request.messages)
        asked = to_text_request(request)
        spent = Usage()
        attempt = 0
        while True:
            shown = _Shown()
            reply: Reply | None = None
            async with aclosing(self._model.stream(asked)) as events:
                async for event in events:
                    if isinstance(event, Reply):
                        reply = event
                    elif not isinstance(event, TextDelta):
                        yield event
                    elif text := shown.feed(event.text):
                        yield TextDelta(text)
            if reply is None:
                return
            spent = _sum(spent, reply.usage)
            try:
                parsed = _with_calls(reply, first_id)
            except InvalidFunctionCall as error:
                if attempt == self._repairs:
                    raise
                attempt += 1
                yield Retrying(attempt=attempt, delay_s=0, reason=str(error))
                again = (AssistantMessage(reply.message.text), UserMessage(_AGAIN.format(error)))
                asked = replace(asked, messages=(*asked.messages, *again))
                continue
            rest = shown.finish()
            if rest:
                yield TextDelta(rest)
            yield replace(parsed, usage=spent)
            return


# Out -----------------------------------------------------------------------------------------------------------------


def to_text_request(request: ModelRequest) -> ModelRequest:
    """The same request without tools in it: they are described in the system prompt, calls and responses are text."""
    responses = {m.tool_call_id: m for m in request.messages if isinstance(m, ToolMessage)}
    messages: list[Message] = []
    ends = [0]  # the number of new messages after each number of old ones
    for message in request.messages:
        if isinstance(message, AssistantMessage) and message.tool_calls:
            answered = [responses[call.id] for call in message.tool_calls if call.id in responses]
            messages.append(AssistantMessage(_as_text(message, responses)))
            messages.append(UserMessage((*_media(answered), {"type": "text", "text": _GO_ON})))
        elif not isinstance(message, ToolMessage):
            messages.append(message)
        ends.append(len(messages))
    described = _with_tools(messages, request.tools)
    added = len(described) - len(messages)
    marks = request.breakpoints
    if marks is not None:
        marks = tuple(added + ends[count] for count in marks)
    return replace(request, messages=described, tools=(), breakpoints=marks)


def _with_tools(messages: list[Message], tools: Sequence[ToolSchema]) -> tuple[Message, ...]:
    if not tools:
        return tuple(messages)
    described = _TOOLS + "\n".join(
        json_codec.dumps_text({"name": t.name, "description": t.description, "parameters": dict(t.input_schema)})
        for t in tools
    )
    if messages and isinstance(messages[0], SystemMessage):
        content = messages[0].content
        if isinstance(content, str):
            content = ({"type": "text", "text": content},)
        return (SystemMessage((*content, {"type": "text", "text": described})), *messages[1:])
    return (SystemMessage(described), *messages)


def _as_text(message: AssistantMessage, responses: dict[str, ToolMessage]) -> Content:
    """The reply with each call as a record; text and records that follow each other become one text block."""
    assert not isinstance(message.content, str)  # it has calls
    blocks: list[Block] = []
    for given in message.content:
        block = given
        if given.get("type") == "tool_use":
            call = ToolCall(name=given["name"], arguments=given["input"], id=given["id"])
            response = responses.get(call.id)
            text = render_call(call) if response is None else render_record(call, response)
            block = {"type": "text", "text": text}
        if blocks and block.get("type") == blocks[-1].get("type") == "text":
            blocks[-1] = {"type": "text", "text": f"{blocks[-1]['text']}\n{block['text']}"}
        else:
            blocks.append(block)
    return tuple(blocks)


def render_call(call: ToolCall) -> str:
    """A call as the model writes it."""
    return _element({"name": call.name, "arguments": dict(call.arguments)})


def render_record(call: ToolCall, response: ToolMessage) -> str:
    """A call with its response. No tag is in it but its own two, whatever the tool returned."""
    record: dict[str, Any] = {
        "name": call.name,
        "arguments": dict(call.arguments),
        "response": text_with(response.content, _named),
    }
    if response.is_error:
        record["is_error"] = True
    return _element(record)


def _element(data: dict[str, Any]) -> str:
    escaped = json_codec.dumps_text(data).replace("<", r"\u003c")  # so that no tag is in it
    return f"{_OPEN}{escaped}{_CLOSE}"


def _named(block: Block) -> str:
    if block["type"] in MEDIA_TYPES:
        return f"[the {block['type']} follows]"
    return json_codec.dumps_text(block)


def _media(responses: Iterable[ToolMessage]) -> list[Block]:
    """Images and documents cannot stand in a reply of the model: they come after it."""
    media: list[Block] = []
    for response in responses:
        if not isinstance(response.content, str):
            media += [block for block in response.content if block["type"] in MEDIA_TYPES]
    return media


# In ------------------------------------------------------------------------------------------------------------------


def parse_reply(text: str) -> list[str | ToolCall]:
    """Split a model's reply into texts and calls, in order; calls have no id yet.

    A call begins on a line of its own; text in its JSON strings is data, even if it looks like a tag.

    Raises:
        InvalidFunctionCall: a call is not closed, is no JSON, has other keys than ``name`` and ``arguments`` (a
            response, say, which only a tool can give), or stands in another one.

    """
    parts: list[str | ToolCall] = []
    position = 0
    found = _TAG.search(text)
    while found is not None:
        _add_text(parts, text[position : found.start()])
        call, position = _parse_call(text, found.end())
        parts.append(call)
        found = _NEXT.match(text, position) or _TAG.search(text, position)
    _add_text(parts, text[position:])
    return parts


def _add_text(parts: list[str | ToolCall], text: str) -> None:
    text = text.strip("\n")
    if text:
        parts.append(text)


def _parse_call(text: str, position: int) -> tuple[ToolCall, int]:
    try:
        data, end = _DECODER.raw_decode(text, _after_space(text, position))
    except (ValueError, RecursionError) as error:
        raise InvalidFunctionCall(f"{_OPEN} is not followed by JSON ({error})") from error
    end = _after_space(text, end)
    if not text.startswith(_CLOSE, end):
        raise InvalidFunctionCall(f"there is no {_CLOSE} after the JSON")
    if not isinstance(data, dict) or data.keys() != _KEYS:
        raise InvalidFunctionCall('the JSON must be an object with "name" and "arguments", and nothing else')
    if not isinstance(data["name"], str) or not isinstance(data["arguments"], dict):
        raise InvalidFunctionCall('"name" must be text, and "arguments" an object')
    return ToolCall(name=data["name"], arguments=data["arguments"]), end + len(_CLOSE)


def _after_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    assert found is not None  # it matches nothing too
    return found.end()


def _with_calls(reply: Reply, first_id: int) -> Reply:
    """The reply with its calls as calls; a call that the token limit cut off stays text."""
    if reply.message.tool_calls:
        raise InvalidFunctionCall("the model wrote a function call, but was not given any function")
    text = reply.message.text
    end = len(text)
    if reply.stop_reason in CUT:
        opened = text.rfind(_OPEN)
        if opened > text.rfind(_CLOSE):
            end = opened
    parts = parse_reply(text[:end])
    if end < len(text):
        parts.append(text[end:])
    if not any(isinstance(part, ToolCall) for part in parts):
        return reply
    kept = () if isinstance(reply.message.content, str) else reply.message.content
    blocks: list[Block] = [block for block in kept if block.get("type") != "text"]
    for part in parts:
        if isinstance(part, str):
            blocks.append({"type": "text", "text": part})
        else:
            call_id = f"call_{first_id:03}"
            blocks.append({"type": "tool_use", "id": call_id, "name": part.name, "input": dict(part.arguments)})
            first_id += 1
    stop_reason = reply.stop_reason if reply.stop_reason in CUT else "tool_use"
    return replace(reply, message=AssistantMessage(tuple(blocks)), stop_reason=stop_reason)


def _next_id(messages: Iterable[Message]) -> int:
    """One more than the highest number of a call that is still in the messages."""
    highest = 0
    for message in messages:
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                found = _CALL_ID.fullmatch(call.id)
                if found is not None:
                    highest = max(highest, int(found[1]))
    return highest + 1


def _sum(first: Usage, second: Usage) -> Usage:
    return Usage(
        input_tokens=first.input_tokens + second.input_tokens,
        cache_creation_input_tokens=first.cache_creation_input_tokens + second.cache_creation_input_tokens,
        cache_read_input_tokens=first.cache_read_input_tokens + second.cache_read_input_tokens,
        output_tokens=first.output_tokens + second.output_tokens,
    )


class _Shown:
    """The part of a streamed text that may be shown: all before the first call. What may become a tag waits."""

    def __init__(self) -> None:
        self._held = ""
        self._inside_a_line = False
        self._stopped = False

    def feed(self, text: str) -> str:
        """Take the next piece; return what can be shown now."""
        if self._stopped:
            return ""
        self._held += text
        # A tag counts only at the start of a line, so nothing before the first line's end does inside of one.
        start = self._held.find("\n") if self._inside_a_line else 0
        if start < 0:
            return self._release(len(self._held))
        found = _TAG.search(self._held, start)
        if found is not None:
            self._stopped = True
            return self._release(found.start())
        line = self._held.rfind("\n") + 1
        may_be_a_tag = _OPEN.startswith(self._held[line:].lstrip(" \t"))
        return self._release(line if may_be_a_tag else len(self._held))

    def finish(self) -> str:
        """Return what waited, as no tag came of it."""
        if self._stopped:
            return ""
        return self._release(len(self._held))

    def _release(self, end: int) -> str:
        shown = self._held[:end]
        self._held = self._held[end:]
        if shown:
            self._inside_a_line = not shown.endswith("\n")
        return shown
