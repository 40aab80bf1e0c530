"""OpenAI's Responses API on loopback, following a script: its items, its events, and what the server keeps of them.

It refuses with a 400 what OpenAI refuses, in so far as it concerns the history.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ctxfs.errors.checks import names_settings
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import AssistantMessage, Block
from ctxfs.messages.tokens import TokenCounter
from ctxfs.testing.chat_server import FINISH_REASONS
from ctxfs.testing.openai_server import OpenAIServer, Refused
from ctxfs.testing.prompt_cache import CHARS4
from ctxfs.testing.server import Failure, ServerTurn, pieces
from ctxfs.text.jsontext import codec as json_codec

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


__all__ = ["ResponsesServer"]


@names_settings()
class ResponsesServer(OpenAIServer):
    """Plays the turns of a script (see ``MessagesServer``) at ``url``, which ends in ``/v1``: streaming or not.

    A request that OpenAI would refuse is refused with its reason, kept in ``refusals``; all others are kept in
    ``requests``. A request may go on from a reply (``previous_response_id``), or refer to an item of it
    (``item_reference``), unless that was made with ``store=False``; conversations are unknown here. Usage counts a
    cache of every prefix. ``context_window_tokens`` None: no prompt is too long. No key is asked for.
    """

    path = "/v1/responses"

    def __init__(
        self,
        turns: Iterable[ServerTurn] = (),
        *,
        context_window_tokens: int | None = None,
        counter: TokenCounter = CHARS4,
    ) -> None:
        super().__init__(turns, context_window_tokens=context_window_tokens, counter=counter)
        self._stored: dict[str, list[dict[str, Any]]] = {}
        self._stored_items: dict[str, dict[str, Any]] = {}

    def prompt(self, request: Any) -> list[Any]:
        """The instructions, and all items, those too that the server keeps."""
        before = self._before(request) if isinstance(request, dict) else []
        whole = request
        if isinstance(request, dict) and isinstance(request.get("input"), list):
            whole = {**request, "input": self._with_stored(request["input"])}
        if found := violations(whole, before):
            raise Refused("; ".join(found))
        return [request.get("instructions"), *before, *_items(whole["input"])]

    def _with_stored(self, items: Sequence[Any]) -> list[Any]:
        """The items, with those that the server keeps in the place of references to them."""
        whole = []
        for item in items:
            if not isinstance(item, dict) or item.get("type") != "item_reference":
                whole.append(item)
                continue
            stored = self._stored_items.get(str(item.get("id")))
            if stored is None:
                raise Refused(
                    f"Item with id {item.get('id')!r} not found. Items are not persisted when `store` is set to false.",
                    status=404,
                )
            whole.append(stored)
        return whole

    def _before(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The items that the server keeps of the conversation."""
        if request.get("conversation"):
            raise Refused(f"Conversation {request['conversation']!r} not found.", status=404)
        previous = request.get("previous_response_id")
        if previous is None:
            return []
        if (found := self._stored.get(previous)) is None:
            raise Refused(
                f"Previous response with id {previous!r} not found.", status=400, code="previous_response_not_found"
            )
        return found

    def reply(
        self, request: Mapping[str, Any], message: AssistantMessage, stop_reason: str, usage: Usage
    ) -> dict[str, Any]:
        """The reply in one piece."""
        reply_id = f"resp_{len(self.requests):06d}"
        whole = stop_reason in FINISH_REASONS
        output = [_output(block, f"{reply_id}_{n}") for n, block in enumerate(_blocks(message))]
        if request.get("store", True):
            given = self._with_stored(_items(request["input"]))
            self._stored[reply_id] = [*self._before(request), *given, *output]
            self._stored_items.update({item["id"]: item for item in output})
        return {
            "id": reply_id,
            "object": "response",
            "created_at": int(time.time()),
            "status": "completed" if whole else "incomplete",
            "error": None,
            "incomplete_details": None if whole else {"reason": "max_output_tokens"},
            "instructions": request.get("instructions"),
            "metadata": {},
            "model": request["model"],
            "output": output,
            "parallel_tool_calls": request.get("parallel_tool_calls", True),
            "previous_response_id": request.get("previous_response_id"),
            "temperature": 1.0,
            "tool_choice": request.get("tool_choice", "auto"),
            "tools": request.get("tools", []),
            "top_p": 1.0,
            "usage": _usage(usage),
        }

    def events(self, request: Mapping[str, Any], reply: Mapping[str, Any]) -> list[bytes]:
        """The reply as numbered events, the items of its output one after the other."""
        del request
        return [_sse({**event, "sequence_number": number}) for number, event in enumerate(_events(reply))]

    def error_event(self, failure: Failure) -> bytes:
        """An error in the middle of a stream."""
        return _sse({"type": "error", "code": failure.code or failure.kind, "message": failure.message, "param": None})


def _items(given: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _blocks(message: AssistantMessage) -> list[Block]:
    return [{"type": "text", "text": message.content}] if isinstance(message.content, str) else list(message.content)


def _output(block: Block, item_id: str) -> dict[str, Any]:
    """A block of a reply as an item."""
    match block["type"]:
        case "tool_use":
            arguments = json_codec.dumps_text(block["input"])
            # Codex offers the tools of an MCP server in a namespace, which a call names beside the tool.
            namespace, _, name = block["name"].rpartition(".")
            call = {"call_id": block["id"], "name": name, "arguments": arguments}
            if namespace:
                call["namespace"] = namespace
            return {"type": "function_call", "id": f"fc_{item_id}", **call, "status": "completed"}
        case "text":
            said = {"type": "output_text", "text": block["text"], "annotations": []}
            return {
                "type": "message",
                "id": f"msg_{item_id}",
                "role": "assistant",
                "content": [said],
                "status": "completed",
            }
    summary = [{"type": "summary_text", "text": block["thinking"]}] if block["type"] == "thinking" else []
    return {"type": "reasoning", "id": f"rs_{item_id}", "summary": summary}


def _events(reply: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**reply, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(reply["output"]):
        start, inside = _item_events(item)
        yield {"type": "response.output_item.added", "output_index": index, "item": start}
        for event in inside:
            yield {**event, "output_index": index, "item_id": item["id"]}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{reply['status']}", "response": reply}


def _item_events(item: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """An item as it starts, and the events that complete it."""
    match item["type"]:
        case "function_call":
            arguments = item["arguments"]
            name = "response.function_call_arguments"
            deltas = [{"type": f"{name}.delta", "delta": piece} for piece in pieces(arguments)]
            done = {"type": f"{name}.done", "arguments": arguments, "name": item["name"]}
            return {**item, "arguments": "", "status": "in_progress"}, [*deltas, done]
        case "message":
            part = item["content"][0]
            inside: list[dict[str, Any]] = [{"type": "response.content_part.added", "part": {**part, "text": ""}}]
            inside += [
                {"type": "response.output_text.delta", "delta": piece, "logprobs": []} for piece in pieces(part["text"])
            ]
            inside.append({"type": "response.output_text.done", "text": part["text"], "logprobs": []})
            inside.append({"type": "response.content_part.done", "part": part})
            return {**item, "content": [], "status": "in_progress"}, [{**one, "content_index": 0} for one in inside]
    return dict(item), []


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.total_input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cache_read_input_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total_input_tokens + usage.output_tokens,
    }


def _sse(event: Mapping[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), json_codec.dumps(event))
