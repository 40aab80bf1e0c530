"""Recorded sessions from files: Anthropic messages, Claude Code, OpenAI chat messages, Codex rollouts.

The format is told by the content, never by the file's name. Each reader turns one format into blocks; what they share
(pairing results with calls, leaving out empty messages) is in ``_Builder``.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ctxfs.economics.features import strings_of
from ctxfs.errors import ReplayFormatError
from ctxfs.replay.recording import Block, Kind, Message, Recording, Role

__all__ = ["EXPECTED", "load", "load_any", "parse"]

EXPECTED = (
    'Anthropic messages (JSON: {"messages": [...]}, or the list itself), Claude Code (JSONL of "user" and "assistant" '
    'lines), OpenAI chat messages (JSON: {"messages": [...]} with "tool_calls"), or a Codex rollout (JSONL of '
    '"response_item" lines)'
)


def load(path: Path) -> Recording:
    """Read one recorded session.

    Raises:
        ReplayFormatError: the file is in none of the known formats, or has no reply of a model in it.
        OSError: the file cannot be read.
    """
    recording = load_any(path)
    _check_reply(recording, str(path))
    return recording


def load_any(path: Path) -> Recording:
    """Read one recorded session, which may be without a reply: what agents write when nothing was asked yet.

    Raises:
        ReplayFormatError: the file is in none of the known formats.
        OSError: the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ReplayFormatError(f"{path}: not UTF-8 text ({error.reason}); expected {EXPECTED}") from error
    return _recording(text, path.stem, str(path))


def parse(text: str, *, name: str, where: str = "the recording") -> Recording:
    """Read one recorded session from text; ``where`` names it in errors.

    Raises:
        ReplayFormatError: the text is in none of the known formats, or has no reply of a model in it.
    """
    recording = _recording(text, name, where)
    _check_reply(recording, where)
    return recording


def _recording(text: str, name: str, where: str) -> Recording:
    document = _document(text, where)
    builder = _Builder()
    try:
        _read(document, builder, where)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ReplayFormatError):
            raise
        detail = f"{type(error).__name__}: {error}"
        raise ReplayFormatError(f"{where}: a message is not as expected ({detail}); expected {EXPECTED}") from error
    head = document if isinstance(document, Mapping) else {}
    return Recording(name=str(head.get("id") or name), messages=builder.finish(), model=str(head.get("model") or ""))


def _check_reply(recording: Recording, where: str) -> None:
    if not recording.has_reply:
        raise ReplayFormatError(f"{where}: no reply of a model in it, so nothing to replay; expected {EXPECTED}")


def _document(text: str, where: str) -> Any:
    """The JSON value, or the list of JSON objects of a JSONL file."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise ReplayFormatError(f"{where}: empty; expected {EXPECTED}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        failure: Exception = error
    found = []
    for number, line in lines:
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            if found:
                raise ReplayFormatError(
                    f"{where}: line {number} of its JSON lines is cut or broken ({error})"
                ) from error
            raise ReplayFormatError(f"{where}: neither JSON nor JSON lines ({failure}); expected {EXPECTED}") from error
    return found


def _read(document: Any, builder: "_Builder", where: str) -> None:
    rows = document.get("messages") if isinstance(document, Mapping) and "messages" in document else document
    if isinstance(rows, Mapping):
        rows = [rows]
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise ReplayFormatError(f"{where}: no list of messages; expected {EXPECTED}")
    if isinstance(document, Mapping) and document.get("system"):
        builder.add(Role.SYSTEM, [_text(_plain(document["system"]))])
    if any(row.get("type") in _CODEX_LINES for row in rows):
        _codex(rows, builder)
    elif any(_is_claude_code(row) for row in rows):
        _claude_code(rows, builder)
    elif all("role" in row for row in rows):
        openai = any(row["role"] in ("tool", "function") or row.get("tool_calls") for row in rows)
        (_openai if openai else _anthropic)(rows, builder)
    else:
        raise ReplayFormatError(f"{where}: JSON, but in none of the known formats; expected {EXPECTED}")


def _is_claude_code(row: Mapping[str, Any]) -> bool:
    """Whether it is a line of Claude Code's: one of a conversation, or of those that stand alone in some files."""
    if row.get("type") in ("user", "assistant"):
        return isinstance(row.get("message"), Mapping)
    return (row.get("type") == "summary" and "leafUuid" in row) or row.get("type") == "file-history-snapshot"


class _Builder:
    """Collects messages; results take the tool's name and arguments from their call."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._calls: dict[str, Block] = {}
        self._open: tuple[Role, object, list[Block]] | None = None

    def add(self, role: Role, blocks: Iterable[Block], *, group: object = None) -> None:
        """Add blocks; those of one role and one ``group`` (not None) that follow each other are one message."""
        for block in blocks:
            if self._open is None or group is None or self._open[:2] != (role, group):
                self._close()
                self._open = (role, group, [])
            self._open[2].append(block)
        if group is None:
            self._close()

    def call(self, call_id: Any, tool: Any, arguments: Any) -> Block:
        """A call of a tool."""
        call_id, tool = _string(call_id), _string(tool)
        values = arguments if isinstance(arguments, Mapping) else {"input": arguments}
        text = "\n".join(strings_of(values))
        counted = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
        block = Block(kind=Kind.TOOL_INPUT, text=text, counted=counted, tool=tool, call_id=call_id, arguments=values)
        self._calls[call_id] = block
        return block

    def result(self, call_id: Any, content: str) -> Block:
        """The result of an earlier call."""
        call = self._calls.get(_string(call_id))
        return Block(
            kind=Kind.TOOL_RESULT,
            text=content,
            tool=call.tool if call else "",
            call_id=call_id,
            arguments=call.arguments if call else {},
        )

    def finish(self) -> tuple[Message, ...]:
        """All messages, empty ones left out."""
        self._close()
        return tuple(self._messages)

    def _close(self) -> None:
        if self._open is not None:
            role, _, blocks = self._open
            kept = tuple(b for b in blocks if b.text or b.counted)
            if kept:
                self._messages.append(Message(role, kept))
        self._open = None


def _text(text: Any, kind: Kind = Kind.TEXT) -> Block:
    return Block(kind=kind, text=_string(text))


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} where text is expected")
    return value


def _plain(content: Any) -> str:
    """The text of a string or of a list of blocks; other blocks by their JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(
            part if isinstance(part, str) else str(part["text"]) if "text" in part else json.dumps(part)
            for part in content
        )
    return json.dumps(content, ensure_ascii=False)


def _anthropic_blocks(content: Any, builder: _Builder) -> Iterable[Block]:
    if isinstance(content, str):
        yield _text(content)
        return
    for block in content:
        match block["type"]:
            case "text":
                yield _text(block["text"])
            case "thinking":
                yield _text(block["thinking"], Kind.THINKING)
            case "tool_use" | "server_tool_use":
                yield builder.call(block["id"], block["name"], block["input"])
            case "tool_result":
                yield builder.result(block["tool_use_id"], _plain(block.get("content")))
            case _:
                yield Block(kind=Kind.TEXT, text="", counted=json.dumps(block, ensure_ascii=False))


def _anthropic(rows: Sequence[Mapping[str, Any]], builder: _Builder) -> None:
    for row in rows:
        builder.add(Role(row["role"]), list(_anthropic_blocks(row["content"], builder)), group=object())


def _claude_code(rows: Sequence[Mapping[str, Any]], builder: _Builder) -> None:
    """One line is one block; those of one reply share the message's id. Side chains are sessions of their own."""
    for row in rows:
        if row.get("type") not in ("user", "assistant") or row.get("isSidechain"):
            continue
        message = row["message"]
        group = message.get("id") or row.get("uuid") or object()
        builder.add(Role(message["role"]), list(_anthropic_blocks(message["content"], builder)), group=group)


def _openai(rows: Sequence[Mapping[str, Any]], builder: _Builder) -> None:
    for row in rows:
        match row["role"]:
            case "assistant":
                calls = [
                    builder.call(c["id"], c["function"]["name"], _arguments(c["function"]["arguments"]))
                    for c in row.get("tool_calls") or ()
                ]
                if legacy := row.get("function_call"):  # answered by a message of the function's name
                    calls.append(builder.call(legacy["name"], legacy["name"], _arguments(legacy["arguments"])))
                builder.add(Role.ASSISTANT, [_text(_plain(row.get("content"))), *calls], group=object())
            case "tool" | "function":
                call_id = str(row.get("tool_call_id") or row.get("name") or "")
                builder.add(Role.USER, [builder.result(call_id, _plain(row.get("content")))], group="results")
            case "system" | "developer":
                builder.add(Role.SYSTEM, [_text(_plain(row.get("content")))])
            case role:
                builder.add(Role(role), [_text(_plain(row.get("content")))])


_CODEX_LINES = ("response_item", "session_meta", "function_call", "function_call_output", "reasoning")


def _codex(rows: Sequence[Mapping[str, Any]], builder: _Builder) -> None:
    """A reply is what stands between two inputs: reasoning, texts and calls are items of their own."""
    for row in rows:
        item = row["payload"] if row.get("type") == "response_item" else row
        match item.get("type"):
            case "message":
                text = [_text(_plain(item["content"]))]
                if item["role"] == "assistant":
                    builder.add(Role.ASSISTANT, text, group="reply")
                else:
                    builder.add(Role.USER if item["role"] == "user" else Role.SYSTEM, text)
            case "reasoning":
                builder.add(Role.ASSISTANT, [_text(_plain(item.get("summary")), Kind.THINKING)], group="reply")
            case "function_call" | "custom_tool_call" | "local_shell_call":
                given = item.get("arguments", item.get("input", item.get("action")))
                call = builder.call(item["call_id"], item.get("name", "local_shell"), _arguments(given))
                builder.add(Role.ASSISTANT, [call], group="reply")
            case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
                builder.add(Role.USER, [builder.result(item["call_id"], _plain(item["output"]))], group="results")


def _arguments(given: Any) -> Any:
    """A call's arguments: mostly JSON in a string, else whatever the model wrote."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except ValueError:
        return given
