"""Model servers on loopback that follow a script: real HTTP for the real SDKs, strict as the providers are.

They know thinking that is signed together with what stood before it, and conversations that the Messages API keeps
between requests, of which each then holds only what is new.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ctxfs.agent.llm.bound_thinking import BINDING_BETA
from ctxfs.errors import InvalidRequest
from ctxfs.errors.checks import names_settings
from ctxfs.messages.base import CUT, Usage
from ctxfs.messages.messages import THINKING, AssistantMessage, Block
from ctxfs.messages.tokens import TokenCounter, count_content
from ctxfs.testing import invariants
from ctxfs.testing.loopback import Answer, LoopbackServer
from ctxfs.testing.prompt_cache import CHARS4, PromptCache
from ctxfs.testing.scripted import Cut, Script, Turn
from ctxfs.text.jsontext import codec as json_codec


class BoundThinking:
    """What stood before each thinking block that a server made; other thinking is not known by it, and let pass.

    Thinking before a block does not count, though the provider counts that too: of a run only the first may be gone.
    """

    def __init__(self) -> None:
        self._before: dict[str, str] = {}

    def made(self, request: Mapping[str, Any], content: Sequence[Block]) -> None:
        """A reply to ``request`` has ``content``."""
        whole = [*request["messages"], {"role": "assistant", "content": content}]
        for _, signature, before in _found({**request, "messages": whole}):
            self._before.setdefault(signature, before)

    def checked(self, request: Mapping[str, Any], headers: Mapping[str, str]) -> list[str]:
        """The places of invalid thinking, which is left out.

        Raises:
            InvalidRequest: the request does not ask for that, or asks for it without the name in its header.

        """
        binding = (request.get("thinking") or {}).get("block_binding")
        if binding is not None and BINDING_BETA not in headers.get("anthropic-beta", ""):
            raise InvalidRequest("thinking.block_binding: Extra inputs are not permitted")
        found = ((place, self._before.get(signature, before) == before) for place, signature, before in _found(request))
        invalid = [place for place, is_valid in found if not is_valid]
        if invalid and (binding or {}).get("prefix_mismatch_behavior") != "drop_block":
            raise InvalidRequest(
                f"{invalid[0]}: Invalid `signature` in `thinking` block. "
                "The block is bound to a different conversation."
            )
        return invalid


def _found(request: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Each thinking block: its place, its signature, and what stands before it."""
    before = hashlib.sha256(json_codec.dumps([_unmarked(request.get(head)) for head in ("system", "tools")]))
    for i, message in enumerate(request["messages"]):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for j, block in enumerate(blocks):
            if block["type"] in THINKING:
                yield f"messages.{i}.content.{j}", block.get("signature") or block["data"], before.hexdigest()
            else:
                before.update(json_codec.dumps([message["role"], _unmarked(block)]))


def _unmarked(value: Any) -> Any:
    """``value`` without cache breakpoints."""
    if isinstance(value, Mapping):
        return {key: _unmarked(inner) for key, inner in value.items() if key != "cache_control"}
    return [_unmarked(inner) for inner in value] if isinstance(value, list | tuple) else value


THREADS_BETA = "message-threads-2026-08-12"
"""The name in the header ``anthropic-beta`` without which the field ``thread`` is unknown."""

_KEPT = ("system", "tools")
"""What a thread keeps from the request that created it, so that no other may repeat it."""


class ThreadRefused(InvalidRequest):
    """A thread cannot be continued by a request. ``code``: by which an SDK knows the reason; None: it has no code."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class Threads:
    """The threads of one server, by the id of the reply that each ends with."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[str, Any]] = {}
        self._continued: set[str] = set()

    def whole(self, request: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        """``request`` as if it held all that its thread does.

        Raises:
            ThreadRefused: there is no such thread, or it cannot be continued by this request.

        """
        thread = request.get("thread")
        if thread is None:
            return request
        if THREADS_BETA not in headers.get("anthropic-beta", ""):
            raise ThreadRefused("thread: Extra inputs are not permitted")
        match thread:
            case {"type": "create"}:
                return {key: value for key, value in request.items() if key != "thread"}
            case {"type": "continue", "previous_message_id": str(previous)}:
                return self._continuing(request, previous)
        raise ThreadRefused("thread: use {'type': 'create'}, or {'type': 'continue', 'previous_message_id': ...}")

    def _continuing(self, request: dict[str, Any], previous: str) -> dict[str, Any]:
        if previous in self._continued:
            raise ThreadRefused(f"thread: {previous} was continued already", "thread_already_continued")
        if (kept := self._ends.get(previous)) is None:
            raise ThreadRefused(f"thread: there is none that ends with {previous}", "thread_not_found")
        if repeated := [key for key in _KEPT if key in request]:
            raise ThreadRefused(f"thread: {' and '.join(repeated)} cannot be set again: the thread keeps them")
        own = {key: value for key, value in request.items() if key != "thread"}
        new = own.get("messages")
        return {**kept, **own, "messages": [*kept["messages"], *new] if isinstance(new, list) else new}

    def replied(
        self, request: Mapping[str, Any], whole: Mapping[str, Any], reply_id: str, content: list[Block]
    ) -> None:
        """Keep the thread of ``request``, if it is in one; ``whole`` is what it came to, and its reply was given."""
        if (thread := request.get("thread")) is None:
            return
        if thread["type"] == "continue":
            del self._ends[thread["previous_message_id"]]
            self._continued.add(thread["previous_message_id"])
        messages = [*whole["messages"], {"role": "assistant", "content": content}]
        self._ends[reply_id] = {**{key: whole[key] for key in _KEPT if key in whole}, "messages": messages}


__all__ = ["Broken", "Failure", "MessagesServer", "ServerTurn"]

DELTA_CHARS = 24


@names_settings()
@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A turn that the server answers with an error; ``retry_after_s`` None sends no Retry-After."""

    status: int
    kind: str
    message: str
    retry_after_s: float | None = None
    code: str | None = None
    """By what an SDK knows the reason; None: it has no such code."""

    @classmethod
    def rate_limited(cls, retry_after_s: float | None = None) -> "Failure":
        """429."""
        message = "This request would exceed your rate limit"
        return cls(status=429, kind="rate_limit_error", message=message, retry_after_s=retry_after_s)

    @classmethod
    def overloaded(cls) -> "Failure":
        """529."""
        return cls(status=529, kind="overloaded_error", message="Overloaded")

    @classmethod
    def prompt_too_long(cls, actual_tokens: int, limit_tokens: int) -> "Failure":
        """400, as for a prompt over the model's context window."""
        message = f"prompt is too long: {actual_tokens} tokens > {limit_tokens} maximum"
        return cls(status=400, kind="invalid_request_error", message=message)

    @property
    def body(self) -> dict[str, Any]:
        """The error as the Messages API words it."""
        details = {} if self.code is None else {"details": {"error_code": self.code}}
        return {"type": "error", "error": {"type": self.kind, "message": self.message, **details}}


@names_settings()
@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A turn that is streamed until ``after_events`` events were sent; then comes ``error``, or nothing any more.

    ``clean`` ends the HTTP response as if it were whole; otherwise the connection breaks off.
    """

    turn: "str | Sequence[Any] | AssistantMessage | Cut"
    after_events: int = 4
    error: Failure | None = None
    clean: bool = False


ServerTurn = Turn | Failure | Broken | Callable[[dict[str, Any]], Turn | Failure | Broken]


class ScriptedServer(LoopbackServer):
    """Plays the turns of a script; a subclass knows an API whose provider caches every prefix.

    ``requests``: the accepted ones, as they came. ``refusals``: the reason for each of the others.
    """

    def __init__(
        self,
        turns: Iterable[ServerTurn] = (),
        *,
        context_window_tokens: int | None = None,
        counter: TokenCounter = CHARS4,
    ) -> None:
        super().__init__()
        self.requests: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self.script = Script(turns)
        self._window = context_window_tokens
        self._counter = counter
        self._cache = PromptCache(explicit=False, counter=counter)


@names_settings()
class MessagesServer(LoopbackServer):
    """The Anthropic Messages API on loopback: streaming or not, token counting, and threads that the server keeps.

    ``turns`` are those of ``ScriptedModel``, and ``Failure`` and ``Broken``. A request that the provider would refuse
    is refused with 400 and the reason, kept in ``refusals``; all others are kept in ``requests`` as they came: of a
    thread only what is new. Usage accounts a prompt cache by the request's ``cache_control`` (see ``PromptCache`` for
    ``min_tokens`` and ``clock``). ``context_window_tokens`` None: no prompt is too long. ``api_key`` None: any key will
    do, but one must be there. ``binds_thinking``: a thinking block is refused unless the messages before it are the
    same as when it was made, as by Anthropic's models from claude-fable-5-1 on. If a request asks to leave such blocks
    out instead, ``dropped`` lists them.
    """

    def __init__(
        self,
        turns: Iterable[ServerTurn] = (),
        *,
        api_key: str | None = None,
        context_window_tokens: int | None = None,
        counter: TokenCounter = CHARS4,
        min_cache_tokens: int = 0,
        clock: Callable[[], float] = time.monotonic,
        binds_thinking: bool = False,
    ) -> None:
        super().__init__()
        self.dropped: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self.script = Script(turns)
        self._api_key = api_key
        self._window = context_window_tokens
        self._counter = counter
        self._cache = PromptCache(counter=counter, min_tokens=min_cache_tokens, clock=clock)
        self._threads = Threads()
        self._bound = BoundThinking() if binds_thinking else None
        self._thinking: dict[str, list[Block]] = {}
        """The thinking that was sent along with each call."""

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Route, check, then play the next turn."""
        path = path.partition("?")[0]
        if path not in ("/v1/messages", "/v1/messages/count_tokens"):
            return _failed(Failure(status=404, kind="not_found_error", message=f"Not found: {path}"))
        if failure := self._unauthorized(headers):
            return _failed(failure)
        try:
            request = json_codec.loads(body)
        except ValueError as error:
            return self._refuse(f"the request body is not valid JSON: {error}")
        counting = path.endswith("count_tokens")
        try:
            whole = self._threads.whole(request, headers) if isinstance(request, dict) else request
        except ThreadRefused as error:
            return self._refuse(str(error), code=error.code)
        found = self._violations({"max_tokens": 1, **whole, "thinking": None} if counting else whole)
        if found := found or self._misplaced_thinking(whole, headers):
            return self._refuse("; ".join(found))
        total = self._cache.count_tokens(whole)
        return Answer(200, {"input_tokens": total}) if counting else self._play(request, whole, total)

    def _play(self, request: dict[str, Any], whole: dict[str, Any], total: int) -> Answer:
        if self._window is not None and total > self._window:
            return self._refuse(Failure.prompt_too_long(total, self._window).message)
        self.requests.append(request)
        try:
            turn = self.script.take(request)
        except InvalidRequest as error:
            return self._refuse(str(error))
        if isinstance(turn, Failure):
            return _failed(turn)
        broken = turn if isinstance(turn, Broken) else None
        message, stop_reason = self.script.message(broken.turn if broken else turn)
        content = _blocks(message)
        usage = self._cache.account(whole, output_tokens=count_content(self._counter, message.content))
        self._remember_thinking(content)
        if self._bound is not None:
            self._bound.made(whole, content)
        reply = {
            "id": f"msg_{len(self.requests):06d}",
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": _usage(usage),
        }
        if broken is None:
            self._threads.replied(request, whole, reply["id"], content)
        headers = {"request-id": f"req_{len(self.requests):06d}"}
        if not request.get("stream"):
            return Answer(200, reply, headers=headers)
        events = [_sse(event) for event in message_events(reply)]
        if broken:
            events = events[: broken.after_events]
            events += [_sse({**broken.error.body}, name="error")] if broken.error else []
        return Answer(200, events=events, whole=not broken or broken.clean or bool(broken.error), headers=headers)

    def _unauthorized(self, headers: Mapping[str, str]) -> Failure | None:
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if key and self._api_key in (None, key):
            return None
        message = "invalid x-api-key" if key else "x-api-key header is required"
        return Failure(status=401, kind="authentication_error", message=message)

    def _violations(self, request: Any) -> list[str]:
        if not isinstance(request, dict):
            return ["the request body should be an object"]
        return invariants.violations(request) or list(self._changed_thinking(request))

    def _misplaced_thinking(self, request: dict[str, Any], headers: Mapping[str, str]) -> list[str]:
        """Why thinking is refused that stands behind something else than it was made for."""
        try:
            self.dropped += self._bound.checked(request, headers) if self._bound is not None else []
        except InvalidRequest as error:
            return [str(error)]
        return []

    def _refuse(self, reason: str, *, code: str | None = None) -> Answer:
        self.refusals.append(reason)
        return _failed(Failure(status=400, kind="invalid_request_error", message=reason, code=code))

    def _remember_thinking(self, content: list[Block]) -> None:
        thinking = [b for b in content if b["type"] in THINKING]
        self._thinking.update((b["id"], thinking) for b in content if b["type"] == "tool_use")

    def _changed_thinking(self, request: dict[str, Any]) -> Iterator[str]:
        """While a tool loop is open, its thinking has to come back as it was sent."""
        last = next((m for m in reversed(request["messages"]) if m["role"] == "assistant"), None)
        if last is None or isinstance(last["content"], str):
            return
        calls = [b["id"] for b in last["content"] if b["type"] == "tool_use"]
        if not calls or calls[0] not in self._thinking or _is_closed(request["messages"]):
            return
        came = [_bare(b) for b in last["content"] if b["type"] in THINKING]
        sent = self._thinking[calls[0]]
        if came != sent and (came or request.get("thinking")):
            yield (
                "thinking or redacted_thinking blocks in the latest assistant message cannot be modified: "
                "they must remain as they were in the original response"
            )


def message_events(reply: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The stream of a Messages API reply, in the provider's order."""
    usage = {**reply["usage"], "output_tokens": 1}
    yield {"type": "message_start", "message": {**reply, "content": [], "stop_reason": None, "usage": usage}}
    for index, block in enumerate(reply["content"]):
        start, deltas = _split(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        if index == 0:
            yield {"type": "ping"}
        cut = reply["stop_reason"] in CUT and index == len(reply["content"]) - 1
        if cut and block["type"] == "tool_use":
            deltas = deltas[: len(deltas) // 2]
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": reply["stop_reason"], "stop_sequence": None},
        "usage": {"output_tokens": reply["usage"]["output_tokens"]},
    }
    yield {"type": "message_stop"}


def pieces(text: str) -> list[str]:
    """``text`` in the pieces in which it is streamed."""
    return [text[i : i + DELTA_CHARS] for i in range(0, len(text), DELTA_CHARS)]


def _split(block: Block) -> tuple[Block, list[Block]]:
    """A block as it starts in a stream, and the deltas that complete it."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": p} for p in pieces(block["text"])]
        case "thinking":
            deltas: list[Block] = [{"type": "thinking_delta", "thinking": p} for p in pieces(block["thinking"])]
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*deltas, signature]
        case "tool_use":
            text = json_codec.dumps(block["input"]).decode()
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces(text))
            ]
    return block, []


def _blocks(message: AssistantMessage) -> list[Block]:
    if isinstance(message.content, str):
        return [{"type": "text", "text": message.content}]
    return list(message.content)


def _bare(block: Block) -> Block:
    return {k: v for k, v in block.items() if k != "cache_control"}


def _is_closed(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether something else than tool results came after the last assistant message."""
    content = messages[-1]["content"]
    return isinstance(content, str) or any(b["type"] != "tool_result" for b in content)


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "output_tokens": usage.output_tokens,
    }


def _sse(event: Mapping[str, Any], *, name: str | None = None) -> bytes:
    return b"event: %s\ndata: %s\n\n" % ((name or event["type"]).encode(), json_codec.dumps(event))


def _failed(failure: Failure) -> Answer:
    headers = {} if failure.retry_after_s is None else {"retry-after": f"{failure.retry_after_s:g}"}
    return Answer(failure.status, failure.body, headers=headers)
