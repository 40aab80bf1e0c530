"""Messages of Anthropic's API: JSON, or a message a line; replies may have their ``usage``, ``model`` and time."""

from collections.abc import Iterable
from typing import Any

from ctxfs.lab.recordings.formats.builder import Builder, Document, media, model_call, plain, seconds, text
from ctxfs.lab.recordings.recording import Block, Kind, Recording, Role
from ctxfs.messages.tokens import json_counted

_TIMES = ("timestamp", "created_at", "at")


def is_anthropic(doc: Document) -> bool:
    """Whether every row has a role."""
    return all("role" in row for row in doc.rows)


def read(doc: Document) -> Iterable[Recording]:
    """The one recording of the file."""
    builder = Builder()
    if doc.head.get("system"):
        builder.add(Role.SYSTEM, [text(plain(doc.head["system"]))])
    for row in doc.rows:
        role, at = Role(row["role"]), next((row[key] for key in _TIMES if key in row), None)
        call = None
        if role is Role.ASSISTANT and ("usage" in row or "model" in row):
            call = model_call(row.get("usage"), reply_id=row.get("id"), model=row.get("model"), at=at)
        builder.add(role, blocks(row["content"], builder), at=seconds(at), call=call)
    yield builder.finish(name=str(doc.head.get("id") or doc.name), model=str(doc.head.get("model") or ""))


def blocks(content: Any, builder: Builder) -> Iterable[Block]:
    """The blocks of a message's content."""
    if isinstance(content, str):
        yield text(content)
        return
    for block in content:
        match block["type"]:
            case "text":
                yield text(block["text"])
            case "thinking":
                yield text(block["thinking"], Kind.THINKING)
            case "tool_use" | "server_tool_use":
                yield builder.call(block["id"], block["name"], block["input"])
            case "tool_result":
                yield builder.result(block["tool_use_id"], block.get("content"))
            case "image" | "document":
                yield media([block])
            case _:
                yield Block(kind=Kind.TEXT, text="", counted=json_counted(block))
