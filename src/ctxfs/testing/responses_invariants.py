"""What OpenAI's Responses API refuses with a 400, in so far as it concerns the history."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["violations"]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
ROLES: Mapping[str, frozenset[str]] = {
    "system": frozenset({"input_text"}),
    "developer": frozenset({"input_text"}),
    "user": frozenset({"input_text", "input_image", "input_file"}),
    "assistant": frozenset({"output_text", "refusal"}),
}
"""The roles, and the content parts that may stand in a message of each."""

CALLS: Mapping[str, tuple[str, str]] = {
    "function_call": ("arguments", "function_call_output"),
    "custom_tool_call": ("input", "custom_tool_call_output"),
}
"""The kinds of calls: under which key each has its arguments, and what its output is called."""

OUTPUTS = {output: call for call, (_, output) in CALLS.items()}


def violations(body: Any, before: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Every rule of the Responses API that ``body`` breaks, each with its place; empty when it is valid.

    ``before`` are the items of the conversation that the server holds.
    """
    if not isinstance(body, Mapping):
        return ["the request body should be an object"]
    found = [] if isinstance(body.get("model"), str) and body["model"] else ["you must provide a model parameter"]
    found += _tools(body.get("tools") or [])
    given = body.get("input")
    if isinstance(given, str):
        return [*found, *_calls_and_outputs(before)]
    if not isinstance(given, list) or not given:
        return [*found, "input: should be a text, or a list of at least one item"]
    if misshapen := [fault for index, item in enumerate(given) for fault in _item(f"input[{index}]", item)]:
        return [*found, *misshapen]
    return [*found, *_calls_and_outputs([*before, *given])]


def _tools(tools: Any) -> Iterator[str]:
    if not isinstance(tools, list):
        yield "tools: should be a list"
        return
    for index, tool in enumerate(tools):
        match tool:
            case {"type": "function" | "custom", "name": str(name)}:
                if not NAME.fullmatch(name):
                    yield f"tools[{index}].name: {name[:80]!r} should match {NAME.pattern!r}"
            case {"type": "function" | "custom"}:
                yield f"tools[{index}]: missing required parameter: 'name'"
            case {"type": str()}:
                pass
            case _:
                yield f"tools[{index}]: should be an object with a type"


def _item(place: str, item: Any) -> Iterator[str]:
    match item:
        case {"type": "function_call" | "custom_tool_call" as kind}:
            for key in ("call_id", "name", CALLS[kind][0]):
                if not isinstance(item.get(key), str):
                    yield f"{place}.{key}: should be a text"
        case {"type": "function_call_output" | "custom_tool_call_output"}:
            if not isinstance(item.get("call_id"), str):
                yield f"{place}.call_id: should be a text"
            if not isinstance(item.get("output"), str | list):
                yield f"{place}.output: should be a text or a list of parts"
        case {"type": str(kind)} if kind != "message":
            pass
        case {"role": str(role), "content": str()} if role in ROLES:
            pass
        case {"role": str(role), "content": list() as parts} if role in ROLES:
            kinds = [part.get("type") if isinstance(part, Mapping) else part for part in parts]
            foreign = [kind for kind in kinds if kind not in ROLES[role]]
            yield from (f"{place}.content: {kind!r} parts cannot stand in {role} messages" for kind in foreign)
        case _:
            yield f"{place}: should be an item with a type, or a message with a role and a content"


def _calls_and_outputs(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Calls without an output, and outputs of nothing."""
    calls: dict[str, str] = {}
    for item in items:
        kind = item.get("type", "message")
        if kind in CALLS:
            calls[item["call_id"]] = kind
        elif kind in OUTPUTS and calls.pop(item["call_id"], None) != OUTPUTS[kind]:
            yield f"No tool call found for {kind.replace('_', ' ')} with call_id {item['call_id']}."
    for call_id, kind in calls.items():
        yield f"No tool output found for {kind.replace('_', ' ')} {call_id}."
