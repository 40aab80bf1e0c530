"""What the servers of OpenAI's two APIs share: a request is checked, counted, and answered by the next turn."""

from collections.abc import Mapping
from typing import Any

from ctxfs.errors import InvalidRequest
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import AssistantMessage
from ctxfs.messages.tokens import count_content
from ctxfs.testing.loopback import Answer
from ctxfs.testing.server import Broken, Failure, ScriptedServer
from ctxfs.text.jsontext import codec as json_codec

__all__ = ["OpenAIServer", "Refused", "error_body"]


class Refused(Exception):
    """A request that is answered with ``status`` and the reasons; ``code`` None: the error has no code."""

    def __init__(self, reason: str, *, status: int = 400, code: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.code = code


class OpenAIServer(ScriptedServer):
    """Plays the turns of a script at ``url``, which ends in ``/v1``; a subclass knows one API.

    ``requests``: the accepted ones, as they came. ``refusals``: the reason for each of the others.
    """

    path: str
    """The API's path under the server's address."""

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return f"{super().url}/v1"

    # What an API is --------------------------------------------------------------------------------------------------

    def prompt(self, request: Any) -> list[Any]:
        """All that the model is told by ``request``, in order, as JSON; raise ``Refused`` for one that is not valid."""
        raise NotImplementedError

    def reply(
        self, request: Mapping[str, Any], message: AssistantMessage, stop_reason: str, usage: Usage
    ) -> dict[str, Any]:
        """The reply in one piece."""
        raise NotImplementedError

    def events(self, request: Mapping[str, Any], reply: Mapping[str, Any]) -> list[bytes]:
        """The reply as server-sent events."""
        raise NotImplementedError

    def error_event(self, failure: Failure) -> bytes:
        """The event of an error in the middle of a stream."""
        raise NotImplementedError

    # Answering -------------------------------------------------------------------------------------------------------

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Check, then play the next turn."""
        del headers
        if path != self.path:
            return failed(Failure(status=404, kind="not_found_error", message=f"Not found: {path}"))
        try:
            return self._checked(json_codec.loads(body))
        except ValueError as error:
            return self._refuse(Refused(f"the request body is not valid JSON: {error}"))
        except Refused as refused:
            return self._refuse(refused)

    def _checked(self, request: Any) -> Answer:
        seen = _as_messages_body(request, self.prompt(request))
        total = self._cache.count_tokens(seen)
        if self._window is not None and total > self._window:
            raise Refused(
                f"This model's maximum context length is {self._window} tokens. However, your messages resulted in "
                f"{total} tokens. Please reduce the length of the messages.",
                code="context_length_exceeded",
            )
        self.requests.append(request)
        try:
            turn = self.script.take(request)
        except InvalidRequest as error:
            raise Refused(str(error)) from error
        if isinstance(turn, Failure):
            return failed(turn)
        broken = turn if isinstance(turn, Broken) else None
        message, stop_reason = self.script.message(broken.turn if broken else turn)
        usage = self._cache.account(seen, output_tokens=count_content(self._counter, message.content))
        reply = self.reply(request, message, stop_reason, usage)
        if not request.get("stream"):
            return Answer(200, reply)
        events = self.events(request, reply)
        if broken:
            events = events[: broken.after_events]
            events += [self.error_event(broken.error)] if broken.error else []
        return Answer(200, events=events, whole=not broken or broken.clean or bool(broken.error))

    def _refuse(self, refused: Refused) -> Answer:
        self.refusals.append(str(refused))
        failure = Failure(status=refused.status, kind="invalid_request_error", message=str(refused), code=refused.code)
        return failed(failure)


def _as_messages_body(request: Mapping[str, Any], prompt: list[Any]) -> dict[str, Any]:
    blocks = [{"type": "text", "text": json_codec.dumps(one).decode()} for one in prompt]
    return {"model": request["model"], "tools": request.get("tools", []), "messages": [{"role": "", "content": blocks}]}


def error_body(failure: Failure) -> dict[str, Any]:
    """The error as OpenAI words it."""
    error = {"type": failure.kind, "message": failure.message, "param": None, "code": failure.code}
    return {"error": error}


def failed(failure: Failure) -> Answer:
    """The answer of an error."""
    headers = {} if failure.retry_after_s is None else {"retry-after": f"{failure.retry_after_s:g}"}
    return Answer(failure.status, error_body(failure), headers=headers)
