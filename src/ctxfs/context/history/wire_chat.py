"""The view of a request to the Chat Completions API: its ``messages`` as parts. Pure.

The place of a message's content is (number of the message, None), that of a call (number of the message, number of the
call), that of the call in an old ``function_call`` (number of the message, -1).
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from typing_extensions import override

from ctxfs.context.history.parts import HostCache, Part, Replacement, asked_by, mark_of
from ctxfs.context.history.wire import Body, WireMemory, WireView, blocks_or_text
from ctxfs.errors import TranscriptError
from ctxfs.messages.messages import Block, to_plain
from ctxfs.text.jsontext import codec as json_codec

_OLD_CALL = -1
_MESSAGES_API = frozenset({"tool_use", "tool_result"})
"""Blocks that only messages of the Messages API have."""


class _ChatView(WireView):
    """Refuses a request to the Messages API, whose messages may look alike."""

    @override
    def parts_of(self, body: Body, memory: WireMemory | None = None) -> list[Part]:
        given: object = body
        if isinstance(given, Mapping) and "system" in given:
            raise TranscriptError(["a body with 'system' is a request to the Messages API, so call messages()"])
        return super().parts_of(body, memory)


def _read(message: Mapping[str, Any], number: int, parts: list[Part], tools: dict[str, str]) -> None:
    role = message["role"]
    place = (number, None)
    content = message.get("content")
    if content is None:
        content = ""
    elif not isinstance(content, str):
        content = _blocks(content)
    if role in ("tool", "function"):
        call_id = message.get("tool_call_id") or ""
        tool = tools.get(call_id) or message.get("name") or ""
        parts.append(Part("result", content, place, call_id, tool))
        return
    if role != "assistant":
        parts.append(Part("user", content, place, stays=role != "user"))
        return
    if content:
        parts.append(Part("reply", content, place))
    for n, given in enumerate(message.get("tool_calls") or ()):
        call = to_plain(given)
        custom = call.get("type") == "custom"
        named = call["custom" if custom else "function"]
        tools[call["id"]] = named["name"]
        made = named["input"] if custom else named["arguments"]
        parts.append(call_part(made, (number, n), call["id"], named["name"], is_json=not custom))
    old = message.get("function_call")
    if old:
        parts.append(call_part(old["arguments"], (number, _OLD_CALL), "", old["name"], is_json=True))


def call_part(arguments: str, place: Hashable, call_id: str, tool: str, *, is_json: bool) -> Part:
    """A call whose arguments are text: JSON of an object, or free text; broken JSON stays as it is."""
    if not is_json:
        return Part("call", {"input": arguments}, place, call_id, tool)
    try:
        read = json_codec.loads(arguments or "{}")
    except ValueError:
        read = None
    if not isinstance(read, dict):
        return Part("call", {"arguments": arguments}, place, call_id, tool, stays=True)
    return Part("call", read, place, call_id, tool)


def edited_arguments(new: Replacement, *, is_json: bool) -> str:
    """The replaced arguments of a call as the text that ``call_part`` reads."""
    assert isinstance(new, Mapping)
    return json_codec.dumps_text(dict(new)) if is_json else str(new["input"])


def _blocks(content: Sequence[Any]) -> tuple[Block, ...]:
    return tuple([_block(to_plain(part)) for part in content])


def _block(part: Block) -> Block:
    """A part of a content as a block of our own: an image as an image, so that it is counted as one; others as is."""
    if part["type"] in _MESSAGES_API:
        raise TypeError("it is one of the Messages API, so call messages()")
    if part["type"] == "image_url":
        return image_block(part["image_url"]["url"])
    return part


def image_block(url: str) -> Block:
    """The image at ``url``, which may be a data URL."""
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:"):
        source = {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
        return {"type": "image", "source": source}
    return {"type": "image", "source": {"type": "url", "url": url}}


def _edited(message: Mapping[str, Any], edits: Mapping[Any, Replacement]) -> Mapping[str, Any]:
    made = dict(message)
    if None in edits:
        made["content"] = blocks_or_text(edits[None])
    if _OLD_CALL in edits:
        arguments = edited_arguments(edits[_OLD_CALL], is_json=True)
        made["function_call"] = {**message["function_call"], "arguments": arguments}
    changed = [n for n in edits if n not in (None, _OLD_CALL)]
    if changed:
        calls = list(message["tool_calls"])
        for n in changed:
            calls[n] = _edited_call(to_plain(calls[n]), edits[n])
        made["tool_calls"] = calls
    return made


def _edited_call(call: Mapping[str, Any], new: Replacement) -> Mapping[str, Any]:
    if call.get("type") == "custom":
        return {**call, "custom": {**call["custom"], "input": edited_arguments(new, is_json=False)}}
    return {**call, "function": {**call["function"], "arguments": edited_arguments(new, is_json=True)}}


def _host_cache(body: Body) -> HostCache:
    """A mark in the last messages, as gateways pass it to Anthropic, or one that LiteLLM is asked to set there."""
    at_end = [point for point in body.get("cache_control_injection_points") or () if _is_at_end(point)]
    return asked_by(mark_of(body["messages"]), *[point.get("control") or True for point in at_end])


def _is_at_end(point: object) -> bool:
    """Whether LiteLLM sets this mark near the end of each request: by a negative number, or in messages of a role."""
    if not isinstance(point, Mapping) or point.get("location") != "message":
        return False
    index = point.get("index")
    if isinstance(index, int):
        return index < 0
    return point.get("role") in ("user", "assistant", "tool")


CHAT = _ChatView(
    key="messages",
    what="a message of Chat Completions",
    read=_read,
    edit=_edited,
    beside_keys=("tools", "functions", "response_format", "web_search_options"),
    host_cache=_host_cache,
)
"""A request to the Chat Completions API."""
