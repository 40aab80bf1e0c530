"""Items of OpenAI's Responses API, alone or inside of response objects with their ``usage``.

A file is a list of items, a list (or lines) of items and response objects, or one response object with the ``input``
that it answered.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ctxfs.lab.recordings.formats.builder import Builder, Document, arguments, media, model_call, plain, seconds, text
from ctxfs.lab.recordings.recording import Kind, Recording, Role

_ITEMS = ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "reasoning")


def is_responses(doc: Document) -> bool:
    """Whether a row is an item that only this API has, or one of its responses."""
    return any(row.get("type") in _ITEMS or _is_response(row) for row in doc.rows)


def _is_response(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("output"), list) and (row.get("object") == "response" or "input" in row)


def read(doc: Document) -> Iterable[Recording]:
    """The one recording of the file."""
    builder = Builder()
    instructions = next((row["instructions"] for row in doc.rows if isinstance(row.get("instructions"), str)), "")
    builder.add(Role.SYSTEM, [text(instructions)])
    for row in doc.rows:
        if _is_response(row):
            _add_response(row, builder)
        else:
            add_item(row, builder, at=seconds(row.get("timestamp")))
    yield builder.finish(name=str(doc.head.get("id") or doc.name), model=str(doc.head.get("model") or ""))


def _add_response(row: Mapping[str, Any], builder: Builder) -> None:
    at = row.get("completed_at", row.get("created_at"))
    for item in _input(row.get("input")):
        add_item(item, builder)
    before, reply = len(builder), object()
    for item in row["output"]:
        add_item(item, builder, at=seconds(at), reply=reply)
    if len(builder) > before:
        builder.bill(model_call(row.get("usage"), reply_id=row.get("id"), model=row.get("model"), at=at))


def _input(given: Any) -> Sequence[Mapping[str, Any]]:
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return given or []


def add_item(item: Mapping[str, Any], builder: Builder, *, at: float | None = None, reply: object = "reply") -> None:
    """Add one item; consecutive items with the same ``reply`` form one reply of the model.

    Reasoning, texts and calls are items of their own.
    """
    match item.get("type", "message" if "role" in item else ""):
        case "message":
            said = [text(plain(item["content"])), media(item["content"])]
            if item["role"] == "assistant":
                builder.add(Role.ASSISTANT, said, group=reply, at=at)
            else:
                builder.add(Role.USER if item["role"] == "user" else Role.SYSTEM, said, at=at)
        case "reasoning":
            thought = text(plain(item.get("summary")), Kind.THINKING)
            builder.add(Role.ASSISTANT, [thought], group=reply, at=at)
        case "function_call" | "custom_tool_call" | "local_shell_call":
            given = item.get("arguments", item.get("input", item.get("action")))
            call = builder.call(item["call_id"], item.get("name", "local_shell"), arguments(given))
            builder.add(Role.ASSISTANT, [call], group=reply, at=at)
        case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
            builder.add(Role.USER, [builder.result(item["call_id"], item["output"])], group="results", at=at)
