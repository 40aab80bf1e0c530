"""Gemini CLI: a session as one JSON object, or, in newer versions, as JSON lines that add to it and change it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ctxfs.lab.recordings.formats.builder import Builder, Document, plain, seconds, text
from ctxfs.lab.recordings.recording import Block, Kind, ModelCall, Recording, Role
from ctxfs.messages.base import Usage

_Json = Mapping[str, Any]


def is_gemini_cli(doc: Document) -> bool:
    """Whether its head, or its first line, is that of a session."""
    head = doc.head or doc.rows[0]
    return "sessionId" in head and "projectHash" in head


def read(doc: Document) -> Iterable[Recording]:
    """The one session of the file."""
    head = doc.head or doc.rows[0]
    messages = doc.rows if doc.head else _folded(doc.rows)
    builder = Builder()
    for message in messages:
        at = seconds(message.get("timestamp"))
        match message.get("type"):
            case "user":
                builder.add(Role.USER, [text(said)] if (said := _text(message)) else [], at=at)
            case "gemini":
                _reply(message, builder, at)
    directories = head.get("directories") or [""]
    yield builder.finish(name=str(head["sessionId"]), project=str(directories[0]))


def _folded(rows: Iterable[_Json]) -> Iterable[_Json]:
    """The messages that the lines come to: a line may repeat a message with its results, replace all, or rewind."""
    messages: dict[str, _Json] = {}
    for row in rows:
        if "$rewindTo" in row:
            ids = list(messages)
            for gone in ids[ids.index(row["$rewindTo"]) :] if row["$rewindTo"] in messages else ids:
                del messages[gone]
        elif "messages" in (row.get("$set") or {}):
            messages = {message["id"]: message for message in row["$set"]["messages"]}
        elif "id" in row and "type" in row:
            messages[row["id"]] = row
    return messages.values()


def _text(message: _Json) -> str:
    """What a person or the model said: results of tools, which stand here too, are taken from the calls."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    return "\n".join(part if isinstance(part, str) else str(part.get("text") or "") for part in parts).strip()


def _reply(message: _Json, builder: Builder, at: float | None) -> None:
    calls = message.get("toolCalls") or []
    builder.add(Role.ASSISTANT, _blocks(message, builder), at=at, call=_billed(message, at))
    builder.add(Role.USER, [builder.result(call["id"], _output(call)) for call in calls], at=at)


def _blocks(message: _Json, builder: Builder) -> Iterator[Block]:
    for thought in message.get("thoughts") or []:
        yield text(f"{thought.get('subject', '')}\n{thought.get('description', '')}", Kind.THINKING)
    yield text(_text(message))
    for call in message.get("toolCalls") or []:
        yield builder.call(call["id"], call["name"], call.get("args") or {})


def _output(call: _Json) -> str:
    """A call's result as the model got it: the texts of its responses."""
    result = call.get("result")
    parts = result if isinstance(result, list) else [result]
    texts = []
    for part in parts:
        if isinstance(part, Mapping) and "functionResponse" in part:
            response = part["functionResponse"].get("response") or {}
            output = response.get("output", response.get("error"))
            texts.append(output if isinstance(output, str) else json.dumps(response, ensure_ascii=False))
        elif part is not None:
            texts.append(plain(part))
    return "\n".join(texts)


def _billed(message: _Json, at: float | None) -> ModelCall:
    """A reply's bill. Gemini counts cached tokens as part of the input, and thinking beside the output."""
    tokens = message.get("tokens") or {}
    cached = tokens.get("cached") or 0
    usage = Usage(
        input_tokens=max(0, (tokens.get("input") or 0) - cached) + (tokens.get("tool") or 0),
        cache_read_input_tokens=cached,
        output_tokens=(tokens.get("output") or 0) + (tokens.get("thoughts") or 0),
    )
    return ModelCall(
        id=str(message.get("id") or ""),
        model=str(message.get("model") or ""),
        at=at,
        usage=usage if usage.total_input_tokens else None,
    )
