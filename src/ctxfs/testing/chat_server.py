"""The Chat Completions API on loopback, following a script: what OpenAI-compatible servers do, in small."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ctxfs.errors import InvalidRequest
from ctxfs.jsontext import codec as json_codec
from ctxfs.llm.base import Usage
from ctxfs.llm.chat_completions import Dialect
from ctxfs.llm.chat_invariants import violations
from ctxfs.llm.messages import AssistantMessage, ToolCall
from ctxfs.testing.loopback import Answer, LoopbackServer
from ctxfs.testing.prompt_cache import CHARS4, PromptCache
from ctxfs.testing.scripted import Script
from ctxfs.testing.server import Broken, Failure, ServerTurn, pieces
from ctxfs.tokens import TokenCounter, count_content

__all__ = ["ChatCompletionsServer"]

FINISH_REASONS = {"end_turn": "stop", "tool_use": "tool_calls"}
"""The reasons of replies that are whole; any other one is cut, which is "length"."""


class ChatCompletionsServer(LoopbackServer):
    """Plays the turns of a script (see ``MessagesServer``) at ``url``, which ends in ``/v1``: streaming or not.

    A request that OpenAI would refuse is refused with 400 and the reason, kept in ``refusals``; all others are kept in
    ``requests``. Usage counts a cache of every prefix. ``context_window_tokens`` None: no prompt is too long.
    ``dialect`` "mistral": refuses what Mistral's API refuses as well. No key is asked for.
    """

    def __init__(
        self,
        turns: Iterable[ServerTurn] = (),
        *,
        context_window_tokens: int | None = None,
        dialect: Dialect = "openai",
        counter: TokenCounter = CHARS4,
    ) -> None:
        super().__init__()
        self.requests: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self.script = Script(turns)
        self._window = context_window_tokens
        self._dialect: Dialect = dialect
        self._counter = counter
        self._cache = PromptCache(explicit=False, counter=counter)

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return f"{super().url}/v1"

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Check, then play the next turn."""
        del headers
        if path != "/v1/chat/completions":
            return _failed(Failure(status=404, kind="not_found_error", message=f"Not found: {path}"))
        try:
            request = json_codec.loads(body)
        except ValueError as error:
            return self._refuse(f"the request body is not valid JSON: {error}")
        if found := violations(request, self._dialect):
            return self._refuse("; ".join(found))
        total = self._cache.count_tokens(_as_messages_body(request))
        if self._window is not None and total > self._window:
            return self._refuse(
                f"This model's maximum context length is {self._window} tokens. However, your messages resulted in "
                f"{total} tokens. Please reduce the length of the messages.",
                code="context_length_exceeded",
            )
        return self._play(request)

    def _play(self, request: dict[str, Any]) -> Answer:
        self.requests.append(request)
        try:
            turn = self.script.take(request)
        except InvalidRequest as error:
            return self._refuse(str(error))
        if isinstance(turn, Failure):
            return _failed(turn)
        broken = turn if isinstance(turn, Broken) else None
        message, stop_reason = self.script.message(broken.turn if broken else turn)
        output_tokens = count_content(self._counter, message.content)
        usage = _usage(self._cache.account(_as_messages_body(request), output_tokens=output_tokens))
        if not request.get("stream"):
            return Answer(200, _completion(request, message, stop_reason, usage))
        chunks = _chunks(request, message, stop_reason, usage, asks_usage=self._dialect == "openai")
        events = [_sse(chunk) for chunk in chunks]
        events.append(b"data: [DONE]\n\n")
        if broken:
            events = events[: broken.after_events]
            events += [_sse(_error(broken.error))] if broken.error else []
        return Answer(200, events=events, whole=not broken or broken.clean or bool(broken.error))

    def _refuse(self, reason: str, *, code: str | None = None) -> Answer:
        self.refusals.append(reason)
        return _failed(Failure(status=400, kind="invalid_request_error", message=reason), code=code)


def _as_messages_body(request: Mapping[str, Any]) -> dict[str, Any]:
    blocks = [{"type": "text", "text": json_codec.dumps(m).decode()} for m in request["messages"]]
    return {"model": request["model"], "tools": request.get("tools", []), "messages": [{"role": "", "content": blocks}]}


def _base(request: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": int(time.time()), "model": request["model"]}


def _completion(
    request: Mapping[str, Any], message: AssistantMessage, stop_reason: str, usage: dict[str, Any]
) -> dict[str, Any]:
    """The reply in one piece."""
    calls = [{"id": c.id, "type": "function", "function": _function(c)} for c in message.tool_calls]
    said = {"role": "assistant", "content": message.text or None, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": said, "finish_reason": FINISH_REASONS.get(stop_reason, "length")}
    return {**_base(request, "chat.completion"), "choices": [choice], "usage": usage}


def _chunks(
    request: Mapping[str, Any], message: AssistantMessage, stop_reason: str, usage: dict[str, Any], *, asks_usage: bool
) -> Iterator[dict[str, Any]]:
    base = _base(request, "chat.completion.chunk")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in pieces(message.text)]
    for index, call in enumerate(message.tool_calls):
        function = _function(call)
        start = {"index": index, "id": call.id, "type": "function", "function": {**function, "arguments": ""}}
        deltas.append({"tool_calls": [start]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": p}}]} for p in pieces(function["arguments"])
        ]
    for delta in deltas:
        yield {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": FINISH_REASONS.get(stop_reason, "length")}]}
    if not asks_usage or (request.get("stream_options") or {}).get("include_usage"):
        yield {**base, "choices": [], "usage": usage}


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


def _error(failure: Failure, *, code: str | None = None) -> dict[str, Any]:
    return {"error": {"type": failure.kind, "message": failure.message, "param": None, "code": code}}


def _failed(failure: Failure, *, code: str | None = None) -> Answer:
    headers = {} if failure.retry_after_s is None else {"retry-after": f"{failure.retry_after_s:g}"}
    return Answer(failure.status, _error(failure, code=code), headers=headers)
