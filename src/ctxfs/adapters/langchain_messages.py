"""LangChain's messages as parts of a history, and copies of them with edits. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ctxfs.adapters.extras import needs
from ctxfs.context.history.host_cache import HostCache, asked_by, mark_of
from ctxfs.context.history.parts import Part, Replacement
from ctxfs.context.history.wire import blocks_or_text, spread
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import Block
from ctxfs.text.jsontext import codec as json_codec

with needs("langchain"):
    from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
    from langgraph.config import get_config

__all__ = ["bills_of", "branch_of", "content_of", "edited", "host_cache_of", "parts_of"]

_CALLS = {"tool_use": "input", "tool_call": "args", "function_call": "arguments"}
"""The kinds of blocks in a message's content that repeat its calls, with the key of the arguments in each."""


def content_of(message: BaseMessage) -> str | tuple[Block, ...]:
    """A message's content in ctxfs's form, where a text in a list is a block."""
    content = message.content
    if isinstance(content, str):
        return content
    return tuple({"type": "text", "text": block} if isinstance(block, str) else block for block in content)


def host_cache_of(request: Any) -> HostCache:
    """What the request's settings, its model's settings, or a mark in its last messages ask of the prompt cache."""
    of_model = getattr(request.model, "model_kwargs", None) or {}
    marked = mark_of([{"content": message.content} for message in request.messages])
    return asked_by((request.model_settings or {}).get("cache_control"), of_model.get("cache_control"), marked)


def parts_of(message: AnyMessage, number: int) -> Iterator[Part]:
    """A message's parts; the place of its content is (its number, None), that of a call (its number, the call's)."""
    content, place = content_of(message), (number, None)
    if isinstance(message, ToolMessage):
        yield Part("result", content, place, message.tool_call_id, message.name or "")
    elif isinstance(message, AIMessage):
        if said := content if isinstance(content, str) else [content[n] for n in _said(content)]:
            yield Part("reply", said, place)
        for n, call in enumerate(message.tool_calls):
            yield Part("call", call["args"], (number, n), call["id"] or "", call["name"])
    else:
        yield Part("user", content, place, stays=not isinstance(message, HumanMessage))


def _said(blocks: Sequence[Block]) -> list[int]:
    """The numbers of the blocks in a reply that do not repeat one of its calls."""
    return [n for n, block in enumerate(blocks) if block["type"] not in _CALLS]


def edited(messages: list[AnyMessage], edits: Mapping[Any, Replacement]) -> list[AnyMessage]:
    """The messages to send. Changed messages are copies that keep their ids and all other fields."""
    sent = list(messages)
    for (number, inner), new in edits.items():
        message = sent[number]
        sent[number] = message.model_copy(update=_update(message, inner, new))
    return sent


def _update(message: AnyMessage, inner: int | None, new: Replacement) -> dict[str, Any]:
    """The fields of a message that an edit changes."""
    content = content_of(message)
    blocks = () if isinstance(content, str) else content
    if inner is not None and isinstance(message, AIMessage):
        call = message.tool_calls[inner]
        calls = [{**one, "args": new} if one is call else one for one in message.tool_calls]
        return {"tool_calls": calls, "content": [_repeated(block, call["id"], new) for block in blocks] or content}
    if not isinstance(message, AIMessage) or not blocks:
        return {"content": blocks_or_text(new)}
    places = _said(blocks)
    by_place = dict(zip(places, spread([blocks[n] for n in places], new), strict=True))
    return {"content": [block for n, old in enumerate(blocks) for block in by_place.get(n, [old])]}


def _repeated(block: Block, call_id: str | None, new: Replacement) -> Block:
    """A block with the arguments of the call that it repeats."""
    if block["type"] not in _CALLS or call_id not in (block.get("id"), block.get("call_id")):
        return block
    name = _CALLS[block["type"]]
    return {**block, name: json_codec.dumps_text(new) if isinstance(block.get(name), str) else new}


def bills_of(messages: Iterable[BaseMessage]) -> Iterator[tuple[Usage, str | None]]:
    """The bills of the replies, each with its model's name; LangChain counts cached tokens as input."""
    for message in messages:
        if isinstance(message, AIMessage) and (usage := message.usage_metadata):
            details = usage.get("input_token_details", {})
            read, written = details.get("cache_read") or 0, details.get("cache_creation") or 0
            bill = Usage(
                input_tokens=max(0, usage["input_tokens"] - read - written),
                cache_read_input_tokens=read,
                cache_creation_input_tokens=written,
                output_tokens=usage["output_tokens"],
            )
            yield bill, message.response_metadata.get("model_name") or None


def branch_of(request: Any) -> str:
    """Which of a thread's histories this is: "" at the top; in a subgraph, its name and the id of the first message."""
    namespace = str(get_config().get("configurable", {}).get("checkpoint_ns", ""))
    graphs = [part.partition(":")[0] for part in namespace.split("|")[:-1]]  # without the tasks' ids, which change
    return "|".join([*graphs, request.messages[0].id or ""]) if graphs and request.messages else ""
