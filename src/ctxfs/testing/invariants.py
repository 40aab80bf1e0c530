"""What a provider refuses with a 400: checked before sending, so that the reason is ours and the place is exact.

Adjacent messages of one role count as one message, as the provider merges them. Block types that are not known here
pass, as they do through the messages.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from ctxfs.errors import TranscriptError
from ctxfs.messages.messages import THINKING
from ctxfs.messages.serialize import MAX_BREAKPOINTS
from ctxfs.text.media import base64_bytes, image_fault

__all__ = ["check", "violations"]

CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
SURROGATE = re.compile("[\ud800-\udfff]")
ASSISTANT_ONLY = THINKING | {"tool_use"}
USER_ONLY = frozenset({"tool_result", "image", "document", "search_result"})
TOOL_CHOICES = frozenset({"auto", "any", "tool", "none"})
RESULT_ONLY = frozenset({"text", "image", "document", "search_result", "tool_reference"})

Placed = tuple[str, Mapping[str, Any]]
"""A block and its place in the body."""


def violations(body: Mapping[str, Any]) -> list[str]:
    """Every rule of the Messages API that ``body`` breaks, each with its place and reason; empty when valid.

    A body with values of the wrong types gets only these reported: no other rule could read it.
    """
    return found_after(None, body)


def check(body: Mapping[str, Any]) -> None:
    """Raise ``TranscriptError`` with every violation in ``body``."""
    if found := violations(body):
        raise TranscriptError(found)


@dataclass(frozen=True, slots=True)
class Before:
    """The valid messages before the checked ones: the ids of their calls, and their blocks with a breakpoint."""

    calls: Container[str]
    marked: Sequence[Placed]


def found_after(before: Before | None, body: Mapping[str, Any]) -> list[str]:
    """The violations in ``body``, whose messages, a reply first, follow those ``before``; None: they are all."""
    if misshapen := list(_shape(body)):
        return misshapen
    found = [*_surrogates(body), *_settings(body), *_tools(body.get("tools") or ())]
    if not (turns := turns_of(body["messages"])):
        return [*found, "messages: at least one message is required"]
    if before is None and turns[0][0] != "user":
        found.append("messages.0.role: the first message must have the role 'user'")
    found += _last_turn(turns)
    for role, blocks in turns:
        for block in blocks:
            found += _block(*block, role)
    for system_block in _system(body):
        found += _content_block(*system_block)
    found += _calls(turns, before.calls if before else ())
    found += _results(turns)
    found += _thinking(body, turns)
    head = [(f"tools.{i}", tool) for i, tool in enumerate(body.get("tools") or ())]
    first = with_breakpoint([*head, *_system(body)])
    found += _breakpoints([*first, *(before.marked if before else ()), *with_breakpoint(cacheable(turns))])
    return found


def _surrogates(body: Mapping[str, Any]) -> Iterator[str]:
    try:
        orjson.dumps(body)
    except TypeError:
        if any(SURROGATE.search(text) for text in _strings(body)):
            yield "the request body is not valid JSON: a string holds a lone surrogate"


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for key, item in value.items():
                yield str(key)
                yield from _strings(item)
        case list() | tuple():
            for item in value:
                yield from _strings(item)


def _settings(body: Mapping[str, Any]) -> Iterator[str]:
    if not body.get("model"):
        yield "model: field required"
    max_tokens = body.get("max_tokens")
    if not isinstance(max_tokens, int) or max_tokens < 1:
        yield "max_tokens: must be an integer greater than or equal to 1"
        return
    thinking = body.get("thinking") or {}
    budget = thinking.get("budget_tokens")
    if thinking.get("type") == "enabled" and not (isinstance(budget, int) and 1024 <= budget < max_tokens):
        yield "thinking.budget_tokens: must be at least 1024 and less than max_tokens"
    if body.get("tool_choice") is not None:
        yield from _tool_choice(body["tool_choice"], body.get("tools") or (), thinks=thinking.get("type") == "enabled")


def _tool_choice(choice: Mapping[str, Any], tools: Sequence[Mapping[str, Any]], *, thinks: bool) -> Iterator[str]:
    kind, name = choice.get("type"), choice.get("name")
    if kind not in TOOL_CHOICES:
        yield f"tool_choice.type: should be one of {', '.join(sorted(TOOL_CHOICES))}"
    if not tools:
        yield "tool_choice: may only be specified while providing tools"
    elif kind == "tool" and name not in [tool.get("name") for tool in tools]:
        yield f"tool_choice.name: tool {name!r} not found in the provided tools"
    if thinks and kind in ("any", "tool"):
        yield "thinking: may not be enabled when tool_choice forces tool use"


def _tools(tools: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        name = tool.get("name") or ""
        if not TOOL_NAME.fullmatch(name):
            yield f"tools.{index}.name: {name[:80]!r} should match {TOOL_NAME.pattern!r}"
        if name in seen:
            yield f"tools.{index}.name: tool names must be unique, and {name!r} repeats"
        seen.add(name)
        if "type" not in tool and (tool.get("input_schema") or {}).get("type") != "object":
            yield f"tools.{index}.input_schema.type: should be 'object'"


def _shape(body: Mapping[str, Any]) -> Iterator[str]:
    """What is not of the type that it has to be."""
    for field in ("thinking", "tool_choice"):
        if not isinstance(body.get(field), Mapping | None):
            yield f"{field}: should be an object"
    yield from _objects("tools", body.get("tools") or [], name=str, input_schema=Mapping)
    system = body.get("system") or ""
    if not isinstance(system, str):
        yield from _objects("system", system, type=str)
    messages = body.get("messages", [])
    yield from _objects("messages", messages)
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, Mapping):
            yield from _message_shape(f"messages.{index}", message)


def _objects(place: str, values: Any, **fields: type) -> Iterator[str]:
    """``values`` should be a list of objects, in which ``fields``, if they are there, have these types."""
    if not isinstance(values, list):
        yield f"{place}: should be a list of objects"
        return
    for index, value in enumerate(values):
        if not isinstance(value, Mapping):
            yield f"{place}.{index}: should be an object"
            continue
        for name, kind in {"cache_control": Mapping, **fields}.items():
            if not isinstance(value.get(name), kind | None):
                yield f"{place}.{index}.{name}: should be {'a string' if kind is str else 'an object'}"


def _message_shape(place: str, message: Mapping[str, Any]) -> Iterator[str]:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        yield f"{place}.role: should be 'user' or 'assistant', not {role!r}"
    if not isinstance(content, str):
        yield from _content_shape(f"{place}.content", content)


def _content_shape(place: str, content: Any) -> Iterator[str]:
    if not isinstance(content, list):
        yield f"{place}: should be a string or a list of blocks"
        return
    yield from _objects(place, content, id=str, name=str, tool_use_id=str, source=Mapping)
    for index, block in enumerate(content):
        if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
            yield f"{place}.{index}: each block should be an object with a type"
        elif block["type"] == "tool_result" and not isinstance(block.get("content", ""), str):
            yield from _content_shape(f"{place}.{index}.tool_result.content", block["content"])


def turns_of(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Placed]]]:
    """The messages with adjacent ones of one role merged, each block with its place; without system messages."""
    turns: list[tuple[str, list[Placed]]] = []
    for index, message in enumerate(messages):
        if message["role"] == "system":
            continue  # it may stand anywhere, and counts for none of the rules about turns
        content, place = message["content"], f"messages.{index}"
        if isinstance(content, str):
            placed: list[Placed] = [(f"{place}.content", {"type": "text", "text": content})]
        else:
            placed = [(f"{place}.content.{i}", b) for i, b in enumerate(content)]
        if not placed:
            placed = [(f"{place}.content", {"type": "nothing"})]
        if turns and turns[-1][0] == message["role"]:
            turns[-1][1].extend(placed)
        else:
            turns.append((message["role"], placed))
    return turns


def _last_turn(turns: Sequence[tuple[str, list[Placed]]]) -> Iterator[str]:
    role, blocks = turns[-1]
    place, last = blocks[-1]
    text = str(last.get("text", ""))
    if role == "assistant" and last["type"] == "text" and text != text.rstrip():
        yield f"{place}: final assistant content cannot end with trailing whitespace"


def _block(place: str, block: Mapping[str, Any], role: str) -> Iterator[str]:
    kind = block["type"]
    if (kind in ASSISTANT_ONLY and role != "assistant") or (kind in USER_ONLY and role != "user"):
        yield f"{place}: {kind} blocks cannot stand in {role} messages"
    match kind:
        case "nothing":
            yield f"{place}: all messages must have non-empty content"
        case "tool_use":
            yield from _tool_use(place, block)
        case "tool_result":
            yield from _tool_result(place, block)
        case "thinking":
            if not isinstance(block.get("thinking"), str) or not block.get("signature"):
                yield f"{place}: a thinking block needs its thinking and its signature"
        case "redacted_thinking":
            if not block.get("data"):
                yield f"{place}: a redacted_thinking block needs its data"
        case _:
            yield from _content_block(place, block)


def _content_block(place: str, block: Mapping[str, Any]) -> Iterator[str]:
    match block["type"]:
        case "text":
            if not isinstance(block.get("text"), str) or not block["text"].strip():
                yield f"{place}: text content blocks must contain non-whitespace text"
        case "image":
            yield from _image(f"{place}.image.source", block.get("source") or {})
        case "document":
            yield from _document(f"{place}.document.source", block.get("source") or {})


def _tool_use(place: str, block: Mapping[str, Any]) -> Iterator[str]:
    if not CALL_ID.fullmatch(str(block.get("id", ""))):
        yield f"{place}.tool_use.id: should match {CALL_ID.pattern!r}"
    if not TOOL_NAME.fullmatch(str(block.get("name", ""))):
        yield f"{place}.tool_use.name: should match {TOOL_NAME.pattern!r}"
    if not isinstance(block.get("input"), Mapping):
        yield f"{place}.tool_use.input: should be an object"


def _tool_result(place: str, block: Mapping[str, Any]) -> Iterator[str]:
    content = block.get("content", "")
    if block.get("is_error") and not content:
        yield f"{place}.tool_result: content cannot be empty if is_error is true"
    if isinstance(content, str):
        return
    if block.get("is_error") and any(inner.get("type") != "text" for inner in content):
        yield f'{place}.tool_result: all content must be type "text" if "is_error" is true'
    for index, inner in enumerate(content):
        inner_place = f"{place}.tool_result.content.{index}"
        if inner.get("type") not in RESULT_ONLY:
            yield f"{inner_place}: {inner.get('type')!r} blocks cannot stand in a tool_result"
        else:
            yield from _content_block(inner_place, inner)


def _image(place: str, source: Mapping[str, Any]) -> Iterator[str]:
    if source.get("type") != "base64":
        if source.get("type") not in ("url", "file"):
            yield f"{place}.type: should be 'base64', 'url' or 'file'"
    elif fault := image_fault(source.get("media_type"), source.get("data")):
        yield f"{place}.{fault[0]}: {fault[1]}"


def _document(place: str, source: Mapping[str, Any]) -> Iterator[str]:
    match source.get("type"):
        case "base64":
            if source.get("media_type") != "application/pdf":
                yield f"{place}.media_type: should be 'application/pdf'"
            head = base64_bytes(source.get("data"))
            if head is None:
                yield f"{place}.data: invalid base64 data"
            elif b"%PDF" not in head[:1024]:
                yield f"{place}.data: the PDF specified was not valid"
        case "text":
            if not str(source.get("data", "")).strip():
                yield f"{place}.data: the document must contain non-whitespace text"
        case "url" | "file" | "content":
            return
        case other:
            yield f"{place}.type: {other!r} is not a document source"


def _system(body: Mapping[str, Any]) -> Iterator[Placed]:
    """The blocks of the system prompt."""
    system = body.get("system")
    if isinstance(system, list):
        yield from ((f"system.{index}", {"type": "text", **block}) for index, block in enumerate(system))


def _calls(turns: Sequence[tuple[str, list[Placed]]], before: Container[str]) -> Iterator[str]:
    """Each call is answered in the next message, and unique, also among the calls ``before``."""
    seen: set[str] = set()
    for index, (role, blocks) in enumerate(turns):
        if role != "assistant":
            continue
        following = turns[index + 1][1] if index + 1 < len(turns) else []
        answered = {b.get("tool_use_id") for _, b in following if b["type"] == "tool_result"}
        for place, block in blocks:
            if block["type"] != "tool_use":
                continue
            call_id = str(block.get("id"))
            if call_id in seen or call_id in before:
                yield f"{place}: tool_use ids must be unique, and {call_id!r} repeats"
            elif call_id not in answered:
                yield f"{place}: tool_use {call_id!r} has no tool_result in the next message"
            seen.add(call_id)


def _results(turns: Sequence[tuple[str, list[Placed]]]) -> Iterator[str]:
    """Each result answers a call of the message before, once, and results stand first."""
    for index, (role, blocks) in enumerate(turns):
        if role != "user":
            continue
        before = turns[index - 1][1] if index else []
        called = {b.get("id") for _, b in before if b["type"] == "tool_use"}
        answered: set[Any] = set()
        other_seen = False
        for place, block in blocks:
            if block["type"] != "tool_result":
                other_seen = True
                continue
            call_id = block.get("tool_use_id")
            if call_id not in called:
                yield f"{place}: unexpected tool_use_id {call_id!r}: no tool_use of that id in the message before"
            elif call_id in answered:
                yield f"{place}: each tool_use must have a single result, and {call_id!r} has more"
            elif other_seen:
                yield f"{place}: tool_result blocks must come before all other content of the message"
            answered.add(call_id)


def _thinking(body: Mapping[str, Any], turns: Sequence[tuple[str, list[Placed]]]) -> Iterator[str]:
    for role, blocks in turns:
        place, last = blocks[-1]
        if role == "assistant" and last["type"] in THINKING:
            yield f"{place}: the final block in an assistant message cannot be {last['type']}"
    if (body.get("thinking") or {}).get("type") != "enabled":
        return
    if turns[-1][0] == "assistant":
        yield "messages: the conversation must end with a user message when thinking is enabled"
    elif len(turns) > 1 and turns[-1][1][0][1]["type"] == "tool_result":
        place, first = turns[-2][1][0]
        if first["type"] not in THINKING:
            yield f"{place}: expected thinking or redacted_thinking, but found {first['type']}, in an open tool loop"


def _breakpoints(marked: Sequence[Placed]) -> Iterator[str]:
    """At most four, on what can be cached, longer lives first."""
    if len(marked) > MAX_BREAKPOINTS:
        yield f"a maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided, found {len(marked)}"
    short_seen = False
    for place, block in marked:
        control = block["cache_control"]
        ttl = control.get("ttl", "5m")
        if control.get("type") != "ephemeral" or ttl not in ("5m", "1h"):
            yield f"{place}.cache_control: should be of type 'ephemeral' with a ttl of '5m' or '1h'"
        if ttl == "1h" and short_seen:
            yield f"{place}.cache_control: a ttl of '1h' must not come after a ttl of '5m'"
        short_seen = short_seen or ttl == "5m"
        if block.get("type") == "text" and not str(block.get("text", "")).strip():
            yield f"{place}.cache_control: cannot be set for empty text blocks"
        if block.get("type") in THINKING:
            yield f"{place}.cache_control: cannot be set for thinking blocks"


def with_breakpoint(blocks: Iterable[Placed]) -> list[Placed]:
    """Those of ``blocks`` that have a breakpoint."""
    return [(place, block) for place, block in blocks if block.get("cache_control") is not None]


def cacheable(turns: Sequence[tuple[str, list[Placed]]]) -> Iterator[Placed]:
    """The blocks of ``turns``, and those in their results."""
    for _, blocks in turns:
        for place, block in blocks:
            yield place, block
            inner = block.get("content")
            if block["type"] == "tool_result" and isinstance(inner, list):
                yield from ((f"{place}.tool_result.content.{i}", b) for i, b in enumerate(inner))
