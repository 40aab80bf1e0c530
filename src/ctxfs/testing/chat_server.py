"""The Chat Completions API on loopback, following a script: what OpenAI-compatible servers do, in small."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ctxfs import json_codec
from ctxfs.errors import InvalidRequest
from ctxfs.llm.base import Usage
from ctxfs.llm.messages import AssistantMessage
from ctxfs.testing.loopback import Answer, LoopbackServer
from ctxfs.testing.prompt_cache import CHARS4, PromptCache
from ctxfs.testing.scripted import Script
from ctxfs.testing.server import Broken, Failure, ServerTurn, pieces
from ctxfs.tokens import TokenCounter, count_content

__all__ = ["ChatCompletionsServer", "violations"]

FINISH_REASONS = {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls"}


class ChatCompletionsServer(LoopbackServer):
    """Streams the turns of a script (see ``MessagesServer``) at ``url``, which ends in ``/v1``.

    Tool calls without an answer and answers without a call are refused with 400, kept in ``refusals``; all other
    requests are kept in ``requests``. Usage counts a cache of every prefix. No key is asked for.
    """

    def __init__(self, turns: Iterable[ServerTurn] = (), *, counter: TokenCounter = CHARS4) -> None:
        super().__init__()
        self.requests: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self.script = Script(turns)
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
        request = json_codec.loads(body)
        if found := list(violations(request["messages"])):
            return self._refuse("; ".join(found))
        self.requests.append(request)
        try:
            turn = self.script.take(request)
        except InvalidRequest as error:
            return self._refuse(str(error))
        if isinstance(turn, Failure):
            return _failed(turn)
        broken = turn if isinstance(turn, Broken) else None
        message, stop_reason = self.script.message(broken.turn if broken else turn)
        usage = self._cache.account(
            _as_messages_body(request), output_tokens=count_content(self._counter, message.content)
        )
        events = [b"data: %s\n\n" % json_codec.dumps(c) for c in _chunks(request, message, stop_reason, usage)]
        events.append(b"data: [DONE]\n\n")
        return Answer(200, events=events[: broken.after_events] if broken else events, whole=not broken or broken.clean)

    def _refuse(self, reason: str) -> Answer:
        self.refusals.append(reason)
        return _failed(Failure(status=400, kind="invalid_request_error", message=reason))


def violations(messages: list[dict[str, Any]]) -> Iterator[str]:
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


def _as_messages_body(request: Mapping[str, Any]) -> dict[str, Any]:
    blocks = [{"type": "text", "text": json_codec.dumps(m).decode()} for m in request["messages"]]
    return {"model": request["model"], "tools": request.get("tools", []), "messages": [{"role": "", "content": blocks}]}


def _chunks(
    request: Mapping[str, Any], message: AssistantMessage, stop_reason: str, usage: Usage
) -> Iterator[dict[str, Any]]:
    base = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": request["model"],
    }
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in pieces(message.text)]
    for index, call in enumerate(message.tool_calls):
        function = {"name": call.name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]})
        arguments = json_codec.dumps(call.arguments).decode()
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": p}}]} for p in pieces(arguments)]
    for delta in deltas:
        yield {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": FINISH_REASONS[stop_reason]}]}
    if (request.get("stream_options") or {}).get("include_usage"):
        counts = {
            "prompt_tokens": usage.total_input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_input_tokens + usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cache_read_input_tokens},
        }
        yield {**base, "choices": [], "usage": counts}


def _failed(failure: Failure) -> Answer:
    headers = {} if failure.retry_after_s is None else {"retry-after": f"{failure.retry_after_s:g}"}
    body = {"error": {"type": failure.kind, "message": failure.message, "param": None, "code": None}}
    return Answer(failure.status, body, headers=headers)
