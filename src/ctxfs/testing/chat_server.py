"""The Chat Completions API on loopback, following a script: what OpenAI-compatible servers do, in small.

It refuses with a 400 what the strictest of them refuse.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any
from uuid import uuid4

from ctxfs.agent.llm.chat_completions import MAX_CALLS, MAX_TOOLS, WIRE_LIMITS, Dialect
from ctxfs.errors.checks import names_settings
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import AssistantMessage, ToolCall
from ctxfs.messages.tokens import TokenCounter
from ctxfs.messages.wire_names import NEED_TOOLS, WireLimits
from ctxfs.testing.openai_server import OpenAIServer, Refused, error_body
from ctxfs.testing.prompt_cache import CHARS4
from ctxfs.testing.server import Failure, ServerTurn, pieces
from ctxfs.text.jsontext import codec as json_codec

NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{WIRE_LIMITS['openai'].max_name_chars}}}")
ALPHANUMERIC = re.compile("[a-zA-Z0-9]*")
MODES = frozenset({"none", "auto", "required"})
PARTS: Mapping[str, frozenset[str]] = {
    "system": frozenset({"text"}),
    "developer": frozenset({"text"}),
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
    "tool": frozenset({"text"}),
    "function": frozenset(),
}
"""The roles, and the content parts that may stand in a message of each."""


def violations(body: Any, dialect: Dialect = "openai") -> list[str]:
    """Every rule of the Chat Completions API that ``body`` breaks, each with its place; empty when it is valid."""
    if not isinstance(body, Mapping):
        return ["the request body should be an object"]
    found = [] if isinstance(body.get("model"), str) and body["model"] else ["you must provide a model parameter"]
    found += _tools(body.get("tools") or [])
    found += _tool_choice(body)
    if dialect == "mistral":
        found += _mistral_fields(body)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return [*found, "messages: should be a list of at least one message"]
    if misshapen := [fault for index, message in enumerate(messages) for fault in _message(index, message, dialect)]:
        return [*found, *misshapen]
    if dialect == "mistral":
        found += _user_after_tool(messages)
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


def _tool_choice(body: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the choice of a tool, or with its being there at all."""
    if not (tools := body.get("tools")):
        yield from (f"{field}: only allowed when tools are specified" for field in NEED_TOOLS if field in body)
        return
    match body.get("tool_choice"):
        case {"type": "function", "function": {"name": str(name)}}:
            if name not in [tool.get("function", {}).get("name") for tool in tools if isinstance(tool, Mapping)]:
                yield f"tool_choice: the function {name[:80]!r} is not among the tools"
        case {"type": "allowed_tools"} | None:
            pass
        case choice:
            if not isinstance(choice, str) or choice not in MODES:
                yield f"tool_choice: should be a function with a name, or one of {', '.join(sorted(MODES))}"


def _mistral_fields(body: Mapping[str, Any]) -> Iterator[str]:
    options = body.get("stream_options")
    if isinstance(options, Mapping) and "include_usage" in options:
        yield "stream_options.include_usage: extra inputs are not permitted"
    if "max_completion_tokens" in body:
        yield "max_completion_tokens: extra inputs are not permitted"


def _user_after_tool(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for index, (before, message) in enumerate(pairwise(messages), start=1):
        if (before["role"], message["role"]) == ("tool", "user"):
            yield f"messages[{index}]: unexpected role 'user' after role 'tool'"


def _message(index: int, message: Any, dialect: Dialect) -> Iterator[str]:
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
        yield from _tool_calls(f"{place}.tool_calls", role, message["tool_calls"], WIRE_LIMITS[dialect])
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        yield f"{place}: tool messages need a tool_call_id"


def _tool_calls(place: str, role: str, calls: Any, limits: WireLimits) -> Iterator[str]:
    if role != "assistant" or not isinstance(calls, list) or not calls:
        yield f"{place}: should be a list of at least one call, in an assistant message"
        return
    if len(calls) > MAX_CALLS:
        yield f"{place}: array too long: expected at most {MAX_CALLS}, but got {len(calls)}"
    for index, call in enumerate(calls):
        match call:
            case {"id": str(call_id), "type": "function", "function": {"name": str(name), "arguments": str()}}:
                if (length := len(call_id)) > (longest := limits.max_id_chars):
                    yield f"{place}[{index}].id: string too long: expected at most {longest}, but got {length}"
                elif limits.exact_ids and not (length == longest and ALPHANUMERIC.fullmatch(call_id)):
                    yield f"{place}[{index}].id: was {call_id!r}, but must be a-z, A-Z, 0-9, with a length of {longest}"
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


__all__ = ["ChatCompletionsServer"]

FINISH_REASONS = {"end_turn": "stop", "tool_use": "tool_calls"}
"""The reasons of replies that are whole; any other one is cut, which is "length"."""


@names_settings()
class ChatCompletionsServer(OpenAIServer):
    """Plays the turns of a script (see ``MessagesServer``) at ``url``, which ends in ``/v1``: streaming or not.

    A request that OpenAI would refuse is refused with 400 and the reason, kept in ``refusals``; all others are kept in
    ``requests``. Usage counts a cache of every prefix. ``context_window_tokens`` None: no prompt is too long.
    ``dialect`` "mistral": refuses what Mistral's API refuses as well. No key is asked for.
    """

    path = "/v1/chat/completions"

    def __init__(
        self,
        turns: Iterable[ServerTurn] = (),
        *,
        context_window_tokens: int | None = None,
        dialect: Dialect = "openai",
        counter: TokenCounter = CHARS4,
    ) -> None:
        super().__init__(turns, context_window_tokens=context_window_tokens, counter=counter)
        self._dialect: Dialect = dialect

    def prompt(self, request: Any) -> list[Any]:
        """The messages."""
        if found := violations(request, self._dialect):
            raise Refused("; ".join(found))
        messages: list[Any] = request["messages"]
        return messages

    def reply(
        self, request: Mapping[str, Any], message: AssistantMessage, stop_reason: str, usage: Usage
    ) -> dict[str, Any]:
        """The reply in one piece."""
        calls = [{"id": c.id, "type": "function", "function": _function(c)} for c in message.tool_calls]
        said = {"role": "assistant", "content": message.text or None, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "message": said, "finish_reason": FINISH_REASONS.get(stop_reason, "length")}
        reply_id = f"chatcmpl-{uuid4().hex}"  # clients take replies of one id for one message
        base = _base(request, "chat.completion", reply_id)
        return {**base, "choices": [choice], "usage": _usage(usage)}

    def events(self, request: Mapping[str, Any], reply: Mapping[str, Any]) -> list[bytes]:
        """The reply as chunks."""
        chunks = _chunks(request, reply, asks_usage=self._dialect == "openai")
        return [*map(_sse, chunks), b"data: [DONE]\n\n"]

    def error_event(self, failure: Failure) -> bytes:
        """An error instead of a chunk."""
        return _sse(error_body(failure))


def _base(request: Mapping[str, Any], kind: str, reply_id: str) -> dict[str, Any]:
    return {"id": reply_id, "object": kind, "created": int(time.time()), "model": request["model"]}


def _chunks(request: Mapping[str, Any], reply: Mapping[str, Any], *, asks_usage: bool) -> Iterator[dict[str, Any]]:
    base, choice = _base(request, "chat.completion.chunk", reply["id"]), reply["choices"][0]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in pieces(message["content"] or "")]
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        deltas.append({"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": p}}]} for p in pieces(function["arguments"])
        ]
    for delta in deltas:
        yield {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if not asks_usage or (request.get("stream_options") or {}).get("include_usage"):
        yield {**base, "choices": [], "usage": reply["usage"]}


def _function(call: ToolCall) -> dict[str, str]:
    return {"name": call.name, "arguments": json_codec.dumps(call.arguments).decode()}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.total_input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_input_tokens},
    }


def _sse(event: Mapping[str, Any]) -> bytes:
    return b"data: %s\n\n" % json_codec.dumps(event)
