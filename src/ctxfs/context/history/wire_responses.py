"""The view of a request to the Responses API: its ``input`` as parts. Pure.

The place of an item is (its number, None). Items that are neither a message, a call nor a result are counted as they
are, and stay.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from typing_extensions import override

from ctxfs.context.history.parts import Part, Replacement
from ctxfs.context.history.wire import Body, WireMemory, WireView
from ctxfs.context.history.wire_chat import call_part, edited_arguments, image_block
from ctxfs.errors import ConfigError
from ctxfs.messages.messages import Block, to_plain

_TEXTS = frozenset({"input_text", "output_text", "text"})
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})


class _ResponsesView(WireView):
    """Refuses a history that the server holds; a text alone is one message."""

    @override
    def parts_of(self, body: Body, memory: WireMemory | None = None) -> list[Part]:
        given: object = body
        known = given if isinstance(given, Mapping) else {}
        for key in ("previous_response_id", "conversation"):
            if known.get(key):
                raise ConfigError(
                    f"{key} is set: the server holds this history, so nothing in it can be replaced in a request; "
                    "leave it out and send the whole input, or replace results where they are made, with arrive()"
                )
        text = known.get("input")
        if isinstance(text, str):
            return [Part("user", text, (0, None), stays=True)]
        return super().parts_of(body, memory)


def _read(item: Mapping[str, Any], number: int, parts: list[Part], tools: dict[str, str]) -> None:
    parts.append(_part(item, (number, None), tools))


def _part(item: Mapping[str, Any], place: Hashable, tools: dict[str, str]) -> Part:
    kind = item.get("type", "message")
    if kind == "message":
        role = item["role"]
        content = item["content"] if isinstance(item["content"], str) else _blocks(item["content"])
        if role == "assistant":
            return Part("reply", content, place)
        return Part("user", content, place, stays=role != "user")
    if kind in _CALLS:
        tools[item["call_id"]] = item["name"]
        return call_part(item[_CALLS[kind]], place, item["call_id"], item["name"], is_json=_CALLS[kind] == "arguments")
    if kind in _RESULTS:
        call_id = item["call_id"]
        output = item["output"]
        content = output if isinstance(output, str) else _blocks(output)
        return Part("result", content, place, call_id, tools.get(call_id, ""))
    return Part("user" if kind.endswith("_output") else "reply", [dict(item)], place, stays=True)


def _blocks(content: Sequence[Any]) -> tuple[Block, ...]:
    return tuple([_block(to_plain(part)) for part in content])


def _block(part: Block) -> Block:
    if part["type"] in _TEXTS:
        return {"type": "text", "text": part["text"]}
    if part["type"] == "input_image" and part.get("image_url"):
        return image_block(part["image_url"])
    return part


def _edited(item: Mapping[str, Any], edits: Mapping[Any, Replacement]) -> Mapping[str, Any]:
    new = edits[None]
    kind = item.get("type", "message")
    if kind in _CALLS:
        return {**item, _CALLS[kind]: edited_arguments(new, is_json=_CALLS[kind] == "arguments")}
    if kind in _RESULTS:
        return {**item, "output": new}
    return {**item, "content": _message_content(item["content"], new, assistant=item["role"] == "assistant")}


def _message_content(old: Any, new: Replacement, *, assistant: bool) -> Any:
    """The content of a message in the form of its role; if a single text is replaced, its other fields stay."""
    if isinstance(new, str):
        if isinstance(old, str):
            return new
        return [{"type": "output_text" if assistant else "input_text", "text": new}]
    texts = [block["text"] if block["type"] == "text" else None for block in new if isinstance(block, dict)]
    olds = [to_plain(part) for part in old]
    return [
        part if text in (None, part.get("text")) else _new_text(part, text)
        for part, text in zip(olds, texts, strict=True)
    ]


def _new_text(part: Block, text: str | None) -> Block:
    """The part with another text, without annotations, since they refer to positions in the old text."""
    return {**part, "text": text, **({"annotations": []} if "annotations" in part else {})}


RESPONSES = _ResponsesView(
    key="input",
    what="an item of the Responses API",
    read=_read,
    edit=_edited,
    beside_keys=("instructions", "tools", "text"),
)
"""A request to the Responses API."""
