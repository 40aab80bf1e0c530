"""OpenAI chat messages, with calls as ``tool_calls`` or in the legacy form; replies may have their ``usage``."""

from collections.abc import Iterable, Mapping
from typing import Any

from ctxfs.lab.recordings.formats.builder import Builder, Document, arguments, media, model_call, plain, seconds, text
from ctxfs.lab.recordings.recording import Block, Kind, ModelCall, Recording, Role


def is_openai_chat(doc: Document) -> bool:
    """Whether all rows have a role, and one is of the kind that only this format has."""
    is_own = any(row.get("role") in ("tool", "function") or row.get("tool_calls") for row in doc.rows)
    return is_own and all("role" in row for row in doc.rows)


def read(doc: Document) -> Iterable[Recording]:
    """The one recording of the file."""
    builder = Builder()
    if doc.head.get("system"):
        builder.add(Role.SYSTEM, [text(plain(doc.head["system"]))])
    for row in doc.rows:
        at = row.get("timestamp", row.get("created_at"))
        call = None
        if row["role"] == "assistant" and ("usage" in row or "model" in row):
            call = model_call(row.get("usage"), reply_id=row.get("id"), model=row.get("model"), at=at)
        add_message(row, builder, at=seconds(at), call=call)
    yield builder.finish(name=str(doc.head.get("id") or doc.name), model=str(doc.head.get("model") or ""))


def add_message(
    row: Mapping[str, Any], builder: Builder, *, at: float | None = None, call: ModelCall | None = None
) -> None:
    """Take in one message of a chat; results that follow each other are one message."""
    match row["role"]:
        case "assistant":
            builder.add(Role.ASSISTANT, _reply(row, builder), at=at, call=call)
        case "tool" | "function":
            call_id = str(row.get("tool_call_id") or row.get("name") or "")
            builder.add(Role.USER, [builder.result(call_id, row.get("content"))], group="results", at=at)
        case "system" | "developer":
            builder.add(Role.SYSTEM, [text(plain(row.get("content")))], at=at)
        case role:
            builder.add(Role(role), [text(plain(row.get("content"))), media(row.get("content"))], at=at)


def _reply(row: Mapping[str, Any], builder: Builder) -> Iterable[Block]:
    yield text(plain(row.get("reasoning_content")), Kind.THINKING)
    yield text(plain(row.get("content")))
    for c in row.get("tool_calls") or ():
        yield builder.call(c["id"], c["function"]["name"], arguments(c["function"]["arguments"]))
    if legacy := row.get("function_call"):  # answered by a message of the function's name
        yield builder.call(legacy["name"], legacy["name"], arguments(legacy["arguments"]))
