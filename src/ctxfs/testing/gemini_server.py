"""Gemini's ``generateContent`` on loopback, following a script: streaming or not."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ctxfs.errors import InvalidRequest
from ctxfs.errors.checks import names_settings
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import AssistantMessage
from ctxfs.messages.tokens import count_content
from ctxfs.testing.loopback import Answer
from ctxfs.testing.server import Broken, Failure, ScriptedServer
from ctxfs.text.jsontext import codec as json_codec

__all__ = ["GeminiServer"]

_PATH = re.compile(r"/v1(?:beta|alpha)?/models/([^/:]+):(generateContent|streamGenerateContent|countTokens)$")


@names_settings()
class GeminiServer(ScriptedServer):
    """Plays the turns of a script (see ``MessagesServer``) at ``url``; calls and results are matched by name and order.

    A request that Gemini would refuse is refused with 400 and the reason, kept in ``refusals``; all others are kept in
    ``requests``. Usage counts a cache of every prefix. ``context_window_tokens`` None: no prompt is too long. No key is
    asked for, and calls have no ids, as with Gemini's own API.
    """

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Check, then play the next turn."""
        del headers
        found = _PATH.search(path.partition("?")[0])
        if found is None:
            return _failed(404, f"Not found: {path}")
        model, method = found.groups()
        try:
            request = json_codec.loads(body)
            reasons = list(_violations(request))
        except ValueError as error:
            reasons = [f"the request body is not valid JSON: {error}"]
        if reasons:
            return self._refuse("; ".join(reasons))
        seen = _as_messages_body(model, request)
        total = self._cache.count_tokens(seen)
        if method == "countTokens":
            return Answer(200, {"totalTokens": total})
        if self._window is not None and total > self._window:
            return self._refuse(
                f"The input token count ({total}) exceeds the maximum number of tokens allowed ({self._window})."
            )
        return self._play(request, seen, model, streams=method == "streamGenerateContent")

    def _play(self, request: dict[str, Any], seen: dict[str, Any], model: str, *, streams: bool) -> Answer:
        self.requests.append(request)
        try:
            turn = self.script.take(request)
        except InvalidRequest as error:
            return self._refuse(str(error))
        if isinstance(turn, Broken):
            raise TypeError("GeminiServer does not play Broken turns")
        if isinstance(turn, Failure):
            return _failed(turn.status, turn.message)
        message, _ = self.script.message(turn)
        usage = self._cache.account(seen, output_tokens=count_content(self._counter, message.content))
        reply = _reply(message, usage, model)
        return Answer(200, events=[b"data: %s\r\n\r\n" % json_codec.dumps(reply)]) if streams else Answer(200, reply)

    def _refuse(self, reason: str) -> Answer:
        self.refusals.append(reason)
        return _failed(400, reason)


def _violations(request: Any) -> Iterator[str]:
    """What Gemini refuses in a request."""
    contents = request.get("contents") if isinstance(request, dict) else None
    if not isinstance(contents, list) or not contents:
        yield "contents is not specified"
        return
    open_calls: list[str] = []
    for number, content in enumerate(contents):
        parts = content.get("parts")
        if content.get("role") not in ("user", "model"):
            yield f"contents[{number}]: please use a valid role: user, model"
        if not parts:
            yield f"contents[{number}].parts must not be empty"
            return
        results = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if results and sorted(result["name"] for result in results) != sorted(open_calls):
            yield f"contents[{number}]: the function responses must answer the function calls before them"
        if any(not isinstance(result.get("response"), dict) for result in results):
            yield f"contents[{number}]: a function response must be an object"
        open_calls = [part["functionCall"]["name"] for part in parts if "functionCall" in part]


def _as_messages_body(model: str, request: Mapping[str, Any]) -> dict[str, Any]:
    told = [request.get("systemInstruction"), *request["contents"]]
    blocks = [{"type": "text", "text": json_codec.dumps_text(one)} for one in told]
    return {"model": model, "tools": request.get("tools", []), "messages": [{"role": "", "content": blocks}]}


def _reply(message: AssistantMessage, usage: Usage, model: str) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": message.text}] if message.text else []
    parts += [{"functionCall": {"name": call.name, "args": call.arguments}} for call in message.tool_calls]
    whole = usage.total_input_tokens
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": whole,
            "cachedContentTokenCount": usage.cache_read_input_tokens,
            "candidatesTokenCount": usage.output_tokens,
            "totalTokenCount": whole + usage.output_tokens,
        },
        "modelVersion": model,
    }


def _failed(status: int, reason: str) -> Answer:
    return Answer(status, {"error": {"code": status, "message": reason, "status": "INVALID_ARGUMENT"}})
