"""opencode: its database (SQLite, many sessions), and what ``opencode export`` writes (JSON, one session).

A message of the assistant is one call of the model, with the results of its calls of tools in it. A result that
opencode has pruned, and a session that it has compacted, count as it sent them.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ctxfs.errors import ReplayFormatError
from ctxfs.lab.recordings.formats.builder import Builder, Document, seconds, text
from ctxfs.lab.recordings.recording import Block, Kind, ModelCall, Recording, Role
from ctxfs.messages.base import Usage

_Json = Mapping[str, Any]
_SESSIONS = "SELECT id, directory FROM session ORDER BY time_created, id"
_MESSAGES = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
_PARTS = "SELECT message_id, data FROM part WHERE session_id = ? ORDER BY message_id, id"


def is_opencode(doc: Document) -> bool:
    """Whether it is an export: a session's ``info``, and messages of ``info`` and ``parts``."""
    return "info" in doc.head and all("info" in row and "parts" in row for row in doc.rows)


def read(doc: Document) -> Iterable[Recording]:
    """The one session of an export."""
    info = doc.head["info"]
    messages = ((row["info"], row["parts"]) for row in doc.rows)
    yield _session(str(info.get("id") or doc.name), str(info.get("directory") or ""), messages)


def read_database(path: Path) -> Iterator[Recording]:
    """All sessions of a database, which is only read.

    Raises:
        ReplayFormatError: it is another program's database, or it is damaged.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            for session_id, directory in opened.execute(_SESSIONS).fetchall():
                parts: dict[str, list[_Json]] = {}
                for message_id, data in opened.execute(_PARTS, (session_id,)):
                    parts.setdefault(message_id, []).append(json.loads(data))
                rows = [
                    (json.loads(data), parts.get(key, [])) for key, data in opened.execute(_MESSAGES, (session_id,))
                ]
                yield _session(str(session_id), str(directory or ""), rows)
    except (sqlite3.Error, ValueError) as error:
        raise ReplayFormatError(f"{path}: SQLite, but no database of opencode's that can be read ({error})") from error


def _session(name: str, project: str, messages: Iterable[tuple[_Json, Sequence[_Json]]]) -> Recording:
    builder = Builder()
    for info, parts in messages:
        if info["role"] == "user":
            _question(info, parts, builder)
        else:
            _reply(info, parts, builder)
    return builder.finish(name=name, project=project)


def _question(info: _Json, parts: Sequence[_Json], builder: Builder) -> None:
    """A question; one with a part ``compaction`` asks for a summary, with which the context begins again."""
    if any(part.get("type") == "compaction" for part in parts):
        builder.fresh()
    said = [text(part["text"]) for part in parts if part.get("type") == "text" and not part.get("ignored")]
    builder.add(Role.USER, said, at=seconds(info["time"].get("created")))


def _reply(info: _Json, parts: Sequence[_Json], builder: Builder) -> None:
    at = seconds(info["time"].get("completed") or info["time"].get("created"))
    tools = [part for part in parts if part.get("type") == "tool"]
    builder.add(Role.ASSISTANT, _blocks(parts, builder), at=at, call=_billed(info, at))
    results = [builder.result(part["callID"], _result(part["state"])) for part in tools]
    builder.add(Role.USER, results, at=at)


def _blocks(parts: Sequence[_Json], builder: Builder) -> Iterator[Block]:
    for part in parts:
        match part.get("type"):
            case "text":
                yield text(part["text"])
            case "reasoning":
                yield text(part["text"], Kind.THINKING)
            case "tool":
                yield builder.call(part["callID"], part["tool"], part["state"].get("input") or {})


def _result(state: _Json) -> str:
    given = state.get("output", state.get("error"))
    return given if isinstance(given, str) else ""


def _billed(info: _Json, at: float | None) -> ModelCall:
    tokens = info.get("tokens") or {}
    cache = tokens.get("cache") or {}
    usage = Usage(
        input_tokens=tokens.get("input") or 0,
        cache_creation_input_tokens=cache.get("write") or 0,
        cache_read_input_tokens=cache.get("read") or 0,
        output_tokens=(tokens.get("output") or 0) + (tokens.get("reasoning") or 0),
    )
    is_billed = usage.total_input_tokens > 0
    return ModelCall(
        id=str(info.get("id") or ""),
        model=str(info.get("modelID") or ""),
        at=at,
        usage=usage if is_billed else None,
        usd=float(info["cost"]) if is_billed and info.get("cost") else None,
    )
