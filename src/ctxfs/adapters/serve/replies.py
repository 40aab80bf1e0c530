"""A model's reply in the form of each API: what the next request holds of it, and itself without some calls. Pure."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ctxfs.agent.llm.accumulate import ReplyBuilder, parse_arguments
from ctxfs.agent.llm.sse import END, EventReader
from ctxfs.context.history.views import Api
from ctxfs.context.history.wire import blocks_or_text
from ctxfs.messages.base import ToolSchema
from ctxfs.messages.messages import THINKING
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.base import ToolResult

Item = dict[str, Any]
"""A message of a request; an item of the Responses API; a content of Gemini's."""


class Call(NamedTuple):
    """A call in a reply. ``id``: "" where the API has none."""

    id: str
    name: str
    arguments: Mapping[str, Any]


class Reply(NamedTuple):
    """A whole reply. ``events``: those of its stream; one that was not streamed is one event."""

    events: list[Any]
    streams: bool


def reply_in(raw: bytes) -> Reply | None:
    """The reply in the bytes of an answer; None: it is none that can be read."""
    reader = EventReader()
    found = reader.feed(raw)
    whole = reader.rest()
    try:
        if whole is not None:
            return Reply([json_codec.loads(whole)], streams=False)
        return Reply([END if data == END else json_codec.loads(data) for data in found], streams=True)
    except ValueError:
        return None


class ReplyFormat(NamedTuple):
    """How an API writes replies and what answers them.

    Args:
        key: where a request has its list of items.
        tools: the entries of a request's ``tools`` for these.
        items_of: what the next request holds of a reply; () for one that did not come to its end.
        calls_in: the calls of such an item.
        answers: what the next request holds of the results of calls.
        without: the events of a reply without the calls of these tools.
        mark: what a program's own next request has of such an item, whatever else it changes in it; "": nothing.

    """

    key: str
    tools: Callable[[Sequence[ToolSchema]], list[Any]]
    items_of: Callable[[Reply], Sequence[Item]]
    calls_in: Callable[[Item], list[Call]]
    answers: Callable[[Sequence[tuple[Call, ToolResult]]], list[Item]]
    without: Callable[[Reply, Collection[str]], Iterator[Any]]
    mark: Callable[[Item, Collection[str]], str]


def written(api: Api, reply: Reply, events: Iterator[Any]) -> bytes:
    """The bytes of a reply with these events."""
    if not reply.streams:
        return json_codec.dumps(next(events))
    named = api in ("messages", "responses")
    pieces = []
    for event in events:
        name = b"event: %s\n" % str(event["type"]).encode() if named else b""
        pieces.append(b"%sdata: %s\n\n" % (name, END if event is END else json_codec.dumps(event)))
    return b"".join(pieces)


def _first_call(calls: Sequence[Call], own: Collection[str]) -> str:
    return next((call.id for call in calls if call.name not in own), "")


# The Messages API ----------------------------------------------------------------------------------------------------


def _items_of_messages(reply: Reply) -> Sequence[Item]:
    if not reply.streams:
        return [{"role": "assistant", "content": reply.events[0]["content"]}]
    builder = ReplyBuilder()
    for event in reply.events:
        for _ in builder.feed(event):
            pass
    return [{"role": "assistant", "content": list(builder.reply().message.content)}] if builder.finished else ()


def _calls_in_message(item: Item) -> list[Call]:
    content = item.get("content")
    if item.get("role") != "assistant" or isinstance(content, str) or not content:
        return []
    return [Call(block["id"], block["name"], block["input"]) for block in content if block["type"] == "tool_use"]


def _message_answers(answered: Sequence[tuple[Call, ToolResult]]) -> list[Item]:
    blocks = []
    for call, result in answered:
        block = {"type": "tool_result", "tool_use_id": call.id, "content": blocks_or_text(result.content)}
        blocks.append({**block, "is_error": True} if result.is_error else block)
    return [{"role": "user", "content": blocks}]


def _messages_without(reply: Reply, own: Collection[str]) -> Iterator[Any]:
    if not reply.streams:
        content = [block for block in reply.events[0]["content"] if not _is_own(block, own)]
        yield {**reply.events[0], "content": content}
        return
    places: dict[int, int] = {}
    for event in reply.events:
        if event["type"] == "content_block_start" and not _is_own(event["content_block"], own):
            places[event["index"]] = len(places)
        if "index" not in event:
            yield event
        elif event["index"] in places:
            yield {**event, "index": places[event["index"]]}


def _is_own(block: Mapping[str, Any], own: Collection[str]) -> bool:
    return block.get("type") in ("tool_use", "function_call") and block.get("name") in own


def _message_mark(item: Item, own: Collection[str]) -> str:
    """The id of a call; of a reply without calls, the signature of its thinking, which holds for what it followed."""
    if found := _first_call(_calls_in_message(item), own):
        return found
    content = item.get("content")
    if item.get("role") != "assistant" or isinstance(content, str) or not content:
        return ""
    thinking = [block for block in content if block["type"] in THINKING]
    return str(thinking[-1].get("signature") or thinking[-1].get("data") or "") if thinking else ""


# Chat Completions ----------------------------------------------------------------------------------------------------


def _items_of_chat(reply: Reply) -> Sequence[Item]:
    if not reply.streams:
        return [_chat_message(reply.events[0]["choices"][0]["message"])]
    message: Item = {}
    calls: dict[int, Item] = {}
    finished = False
    for event in reply.events:
        for choice in event.get("choices") or () if event is not END else ():
            finished |= bool(choice.get("finish_reason"))
            delta = choice.get("delta") or {}
            for piece in delta.get("tool_calls") or ():
                _add(calls.setdefault(piece["index"], {}), {k: v for k, v in piece.items() if k != "index"})
            _add(message, {key: value for key, value in delta.items() if key != "tool_calls"})
    if calls:
        message["tool_calls"] = [call for _, call in sorted(calls.items())]
    return [_chat_message(message)] if finished else ()


def _add(to: Item, delta: Mapping[str, Any]) -> None:
    """Add a piece of a streamed message: texts grow, and all else is set."""
    for key, value in delta.items():
        if isinstance(value, Mapping):
            _add(to.setdefault(key, {}), value)
        elif isinstance(value, str) and key not in ("role", "id", "type", "name"):
            to[key] = (to.get(key) or "") + value
        elif value is not None:
            to[key] = value


def _chat_message(message: Mapping[str, Any]) -> Item:
    """A reply as a message of a request, without the fields that say nothing."""
    said = {key: value for key, value in message.items() if value not in (None, [])}
    return {"role": "assistant", "content": None, **said}


def _calls_in_chat(item: Item) -> list[Call]:
    if item.get("role") != "assistant":
        return []
    functions = [call for call in item.get("tool_calls") or () if "function" in call]
    return [
        Call(call["id"], call["function"]["name"], parse_arguments(call["function"]["arguments"])) for call in functions
    ]


def _chat_answers(answered: Sequence[tuple[Call, ToolResult]]) -> list[Item]:
    return [{"role": "tool", "tool_call_id": call.id, "content": result.text} for call, result in answered]


def _chat_without(reply: Reply, own: Collection[str]) -> Iterator[Any]:
    if not reply.streams:
        choice = reply.events[0]["choices"][0]
        calls = [call for call in choice["message"]["tool_calls"] if not _is_own_function(call, own)]
        yield {**reply.events[0], "choices": [{**choice, "message": {**choice["message"], "tool_calls": calls}}]}
        return
    places: dict[int, int] = {}
    hidden: set[int] = set()
    for event in reply.events:
        pieces = [] if event is END or not event.get("choices") else event["choices"][0]["delta"].get("tool_calls")
        if not pieces:
            yield event
            continue
        kept = []
        for piece in pieces:
            index = piece["index"]
            if index not in places and _is_own_function(piece, own):
                hidden.add(index)
            if index not in hidden:
                kept.append({**piece, "index": places.setdefault(index, len(places))})
        choice = event["choices"][0]
        if kept or choice.get("finish_reason"):
            yield {**event, "choices": [{**choice, "delta": {**choice["delta"], "tool_calls": kept}}]}


def _is_own_function(call: Mapping[str, Any], own: Collection[str]) -> bool:
    return (call.get("function") or {}).get("name") in own


# The Responses API ---------------------------------------------------------------------------------------------------


def _items_of_response(reply: Reply) -> Sequence[Item]:
    if not reply.streams:
        return list(reply.events[0]["output"])
    ended = any(event["type"] in ("response.completed", "response.incomplete") for event in reply.events)
    return [event["item"] for event in reply.events if event["type"] == "response.output_item.done"] if ended else ()


def _calls_in_response(item: Item) -> list[Call]:
    if item.get("type") != "function_call":
        return []
    return [Call(item["call_id"], item["name"], parse_arguments(item["arguments"]))]


def _response_answers(answered: Sequence[tuple[Call, ToolResult]]) -> list[Item]:
    return [{"type": "function_call_output", "call_id": call.id, "output": result.text} for call, result in answered]


def _response_without(reply: Reply, own: Collection[str]) -> Iterator[Any]:
    if not reply.streams:
        yield _without_output(reply.events[0], own)
        return
    places: dict[int, int] = {}
    number = 0
    for event in reply.events:
        new = dict(event)
        if event["type"] == "response.output_item.added" and not _is_own(event["item"], own):
            places[event["output_index"]] = len(places)
        if "output_index" in event:
            if event["output_index"] not in places:
                continue
            new["output_index"] = places[event["output_index"]]
        if "response" in event:
            new["response"] = _without_output(event["response"], own)
        yield {**new, "sequence_number": number}
        number += 1


def _without_output(response: Mapping[str, Any], own: Collection[str]) -> Item:
    return {**response, "output": [item for item in response.get("output") or () if not _is_own(item, own)]}


# Gemini's generateContent --------------------------------------------------------------------------------------------


def _items_of_gemini(reply: Reply) -> Sequence[Item]:
    parts: list[Any] = []
    finished = False
    for event in reply.events:
        for candidate in event.get("candidates") or ():
            finished |= bool(candidate.get("finishReason"))
            parts += (candidate.get("content") or {}).get("parts") or ()
    return [{"role": "model", "parts": parts}] if finished and parts else ()


def _calls_in_gemini(item: Item) -> list[Call]:
    if item.get("role") != "model":
        return []
    calls = [part["functionCall"] for part in item["parts"] if "functionCall" in part]
    return [Call(call.get("id") or "", call["name"], call.get("args") or {}) for call in calls]


def _gemini_answers(answered: Sequence[tuple[Call, ToolResult]]) -> list[Item]:
    parts = []
    for call, result in answered:
        response = {"name": call.name, "response": {"error" if result.is_error else "result": result.text}}
        parts.append({"functionResponse": {**response, "id": call.id} if call.id else response})
    return [{"role": "user", "parts": parts}]


def _gemini_without(reply: Reply, own: Collection[str]) -> Iterator[Any]:
    for event in reply.events:
        candidates = []
        for candidate in event.get("candidates") or ():
            content = candidate.get("content") or {}
            kept = [
                part for part in content.get("parts") or () if (part.get("functionCall") or {}).get("name") not in own
            ]
            candidates.append({**candidate, "content": {**content, "parts": kept}})
        yield {**event, "candidates": candidates}


def _gemini_mark(item: Item, own: Collection[str]) -> str:
    """The calls themselves: most have no id."""
    calls = [call for call in _calls_in_gemini(item) if call.name not in own]
    return json_codec.dumps_text(calls) if calls else ""


FORMATS: Mapping[Api, ReplyFormat] = {
    "messages": ReplyFormat(
        "messages",
        lambda tools: [tool.for_messages() for tool in tools],
        _items_of_messages,
        _calls_in_message,
        _message_answers,
        _messages_without,
        _message_mark,
    ),
    "chat": ReplyFormat(
        "messages",
        lambda tools: [tool.for_chat() for tool in tools],
        _items_of_chat,
        _calls_in_chat,
        _chat_answers,
        _chat_without,
        lambda item, own: _first_call(_calls_in_chat(item), own),
    ),
    "responses": ReplyFormat(
        "input",
        lambda tools: [tool.for_responses() for tool in tools],
        _items_of_response,
        _calls_in_response,
        _response_answers,
        _response_without,
        lambda item, own: _first_call(_calls_in_response(item), own),
    ),
    "gemini": ReplyFormat(
        "contents",
        lambda tools: [{"functionDeclarations": [_declaration(tool) for tool in tools]}],
        _items_of_gemini,
        _calls_in_gemini,
        _gemini_answers,
        _gemini_without,
        _gemini_mark,
    ),
}


def _declaration(tool: ToolSchema) -> Item:
    schema = dict(tool.input_schema)
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": schema}
