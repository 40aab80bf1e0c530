"""What OpenAI's Chat Completions API refuses with a 400: the rules of the strictest of the compatible servers."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ctxfs.llm.chat_completions import MAX_CALLS, MAX_ID_CHARS, MAX_NAME_CHARS

__all__ = ["violations"]

MAX_TOOLS = 128
NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME_CHARS}}}")
PARTS: Mapping[str, frozenset[str]] = {
    "system": frozenset({"text"}),
    "developer": frozenset({"text"}),
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
    "tool": frozenset({"text"}),
    "function": frozenset(),
}
"""The roles, and the content parts that may stand in a message of each."""


def violations(body: Any) -> list[str]:
    """Every rule of the Chat Completions API that ``body`` breaks, each with its place; empty when it is valid."""
    if not isinstance(body, Mapping):
        return ["the request body should be an object"]
    found = [] if isinstance(body.get("model"), str) and body["model"] else ["you must provide a model parameter"]
    found += _tools(body.get("tools") or [])
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return [*found, "messages: should be a list of at least one message"]
    if misshapen := [fault for index, message in enumerate(messages) for fault in _message(index, message)]:
        return [*found, *misshapen]
    return [*found, *_calls_and_results(messages)]


def _tools(tools: Any) -> Iterator[str]:
    if not isinstance(tools, list):
        yield "tools: should be a list"
        return
    if len(tools) > MAX_TOOLS:
        yield f"tools: array too long: expected at most {MAX_TOOLS}, but got {len(tools)}"
    for index, tool in enumerate(tools):
        match tool:
            case {"type": "function", "function": {"name": str(name)}}:
                if not NAME.fullmatch(name):
                    yield f"tools[{index}].function.name: {name[:80]!r} should match {NAME.pattern!r}"
            case _:
                yield f"tools[{index}]: should be a function with a name"


def _message(index: int, message: Any) -> Iterator[str]:
    place = f"messages[{index}]"
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or message["role"] not in PARTS:
        yield f"{place}: should be an object with one of the roles {', '.join(PARTS)}"
        return
    role, content = message["role"], message.get("content")
    if content is None and not (role == "assistant" and (message.get("tool_calls") or message.get("function_call"))):
        yield f"{place}.content: null is allowed for assistant messages with calls only"
    elif isinstance(content, list):
        kinds = [part.get("type") if isinstance(part, Mapping) else part for part in content]
        yield from (
            f"{place}.content: {k!r} parts cannot stand in {role} messages" for k in kinds if k not in PARTS[role]
        )
        if not kinds:
            yield f"{place}.content: array too short"
    elif not isinstance(content, str | None):
        yield f"{place}.content: should be a text or a list of parts"
    if "tool_calls" in message:
        yield from _tool_calls(f"{place}.tool_calls", role, message["tool_calls"])
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        yield f"{place}: tool messages need a tool_call_id"


def _tool_calls(place: str, role: str, calls: Any) -> Iterator[str]:
    if role != "assistant" or not isinstance(calls, list) or not calls:
        yield f"{place}: should be a list of at least one call, in an assistant message"
        return
    if len(calls) > MAX_CALLS:
        yield f"{place}: array too long: expected at most {MAX_CALLS}, but got {len(calls)}"
    for index, call in enumerate(calls):
        match call:
            case {"id": str(call_id), "type": "function", "function": {"name": str(name), "arguments": str()}}:
                if (length := len(call_id)) > MAX_ID_CHARS:
                    yield f"{place}[{index}].id: string too long: expected at most {MAX_ID_CHARS}, but got {length}"
                if not NAME.fullmatch(name):
                    yield f"{place}[{index}].function.name: {name[:80]!r} should match {NAME.pattern!r}"
            case _:
                yield f"{place}[{index}]: should be a function call with an id, a name and arguments, all texts"


def _calls_and_results(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Calls that are not answered right away, and answers to nothing."""
    open_calls: list[str] = []
    for index, message in enumerate([*messages, {"role": "end"}]):
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                yield f"messages[{index}]: role 'tool' must answer a preceding message with 'tool_calls'"
            else:
                open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            yield f"messages[{index}]: tool_call_ids did not have response messages: {', '.join(open_calls)}"
        open_calls = [call["id"] for call in message.get("tool_calls", ())]
