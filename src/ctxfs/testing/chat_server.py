"""The Chat Completions API on loopback, following a script: what OpenAI-compatible servers do, in small."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import uuid4

from ctxfs.agent.llm.chat_completions import Dialect
from ctxfs.errors.checks import names_settings
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import AssistantMessage, ToolCall
from ctxfs.messages.tokens import TokenCounter
from ctxfs.testing.chat_invariants import violations
from ctxfs.testing.openai_server import OpenAIServer, Refused, error_body
from ctxfs.testing.prompt_cache import CHARS4
from ctxfs.testing.server import Failure, ServerTurn, pieces
from ctxfs.text.jsontext import codec as json_codec

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
