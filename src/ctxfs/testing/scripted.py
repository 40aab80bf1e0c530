"""A model that follows a script: for tests, demos and examples that need no key and no network.

Each request is checked as a provider would, by the rules of ``invariants``.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import anyio.lowlevel

from ctxfs.errors import InvalidRequest, TranscriptError
from ctxfs.errors.checks import names_settings
from ctxfs.messages.base import ModelEvent, ModelRequest, Reply, TextDelta, ThinkingDelta
from ctxfs.messages.messages import AssistantMessage, Block, ToolCall, unchanged
from ctxfs.messages.serialize import MessagesSerializer
from ctxfs.messages.tokens import TokenCounter, count_content
from ctxfs.testing.invariants import Before, Placed, cacheable, found_after, turns_of, violations, with_breakpoint
from ctxfs.testing.prompt_cache import CHARS4, PromptCache


class Checker:
    """Checks the bodies of one conversation: finds what ``violations`` finds, but reads only what changed.

    Messages that are the same objects as in the last valid body are not read again, so they must not be changed in
    place. No rule looks further back than from a user message to the reply before it, but for two: call ids are unique,
    and breakpoints are few. What those two need is kept.
    """

    def __init__(self) -> None:
        self._messages: list[Mapping[str, Any]] = []
        self._calls: dict[str, int] = {}  # which message each call is in, in order
        self._marked: list[tuple[int, Placed]] = []  # the same for each block with a breakpoint

    def check(self, body: Mapping[str, Any]) -> None:
        """Raise ``TranscriptError`` with every violation in ``body``."""
        if found := self.violations(body):
            raise TranscriptError(found)

    def violations(self, body: Mapping[str, Any]) -> list[str]:
        """What ``invariants.violations(body)`` returns."""
        messages = body.get("messages")
        if not isinstance(messages, list):
            return violations(body)
        start = _last_reply(self._messages, unchanged(self._messages, messages))
        self._forget(start)
        before = Before(self._calls, [placed for _, placed in self._marked]) if start else None
        if found_after(before, {**body, "messages": messages[start:]}):
            return violations(body)  # with the places in the whole body
        self._remember(messages, start)
        return []

    def _forget(self, start: int) -> None:
        """Forget the messages from ``start`` on."""
        del self._messages[start:]
        while self._calls and next(reversed(self._calls.values())) >= start:
            self._calls.popitem()
        while self._marked and self._marked[-1][0] >= start:
            self._marked.pop()

    def _remember(self, messages: Sequence[Mapping[str, Any]], start: int) -> None:
        """Take in the messages from ``start`` on, which are valid."""
        for number, message in enumerate(messages[start:], start):
            turns = turns_of([message])
            self._calls |= {block["id"]: number for _, block in turns[0][1] if block["type"] == "tool_use"}
            self._marked += [(number, placed) for placed in with_breakpoint(cacheable(turns))]
            self._messages.append(message)


def _last_reply(messages: Sequence[Mapping[str, Any]], count: int) -> int:
    """Where the last run of assistant messages begins in the first ``count``; 0 if there is none."""
    for number in range(count - 1, 0, -1):
        if messages[number]["role"] == "assistant" and messages[number - 1]["role"] == "user":
            return number
    return 0


__all__ = ["Cut", "Script", "ScriptedModel", "Turn"]


@names_settings()
@dataclass(frozen=True, slots=True)
class Cut:
    """A turn that is cut off after ``turn``: by the token limit, unless ``stop_reason`` names another reason."""

    turn: "str | Sequence[str | ToolCall] | AssistantMessage"
    stop_reason: str = "max_tokens"


Turn = str | Sequence[str | ToolCall] | AssistantMessage | Cut | BaseException | Callable[[dict[str, Any]], "Turn"]
"""What a model does when it is asked: a final answer, tool calls (texts may stand between them), a message as it is
(with thinking, for example), a truncated reply, an error to raise, or a function of the request that returns one of
these."""


class Script:
    """The turns that are still to come; call ids that are empty become ``call_001``, ``call_002`` and so on."""

    def __init__(self, turns: Iterable[Any]) -> None:
        self._turns = list(turns)
        self._played = 0
        self._call_numbers = count(1)

    def take(self, body: dict[str, Any]) -> Any:
        """The next turn, a function of the request resolved to what it returns for ``body``.

        Raises:
            InvalidRequest: the script is over.

        """
        if self._played == len(self._turns):
            raise InvalidRequest(f"the script ends at turn {self._played}; request {self._played + 1} came: add a turn")
        turn = self._turns[self._played]
        self._played += 1
        while callable(turn):
            turn = turn(body)
        return turn

    def message(self, turn: str | Sequence[str | ToolCall] | AssistantMessage | Cut) -> tuple[AssistantMessage, str]:
        """The message that ``turn`` stands for, and its stop reason."""
        if isinstance(turn, Cut):
            return self._message(turn.turn), turn.stop_reason
        reply = self._message(turn)
        return reply, "tool_use" if reply.tool_calls else "end_turn"

    @property
    def remaining(self) -> int:
        """How many turns are still to come."""
        return len(self._turns) - self._played

    def _message(self, turn: str | Sequence[str | ToolCall] | AssistantMessage) -> AssistantMessage:
        if isinstance(turn, AssistantMessage):
            return turn
        parts = [turn] if isinstance(turn, str) else turn
        return AssistantMessage(tuple(self._block(part) for part in parts))

    def _block(self, part: str | ToolCall) -> Block:
        if isinstance(part, str):
            return {"type": "text", "text": part}
        call_id = part.id or f"call_{next(self._call_numbers):03d}"
        return {"type": "tool_use", "id": call_id, "name": part.name, "input": dict(part.arguments)}


@names_settings()
class ScriptedModel:
    """A chat model that plays ``turns`` and keeps every request in ``requests`` as a Messages API body.

    A request that a provider would refuse raises ``TranscriptError``; one after the last turn raises
    ``InvalidRequest``. Usage is what a provider that caches every prefix automatically would report, with tokens
    counted by ``counter`` (four characters a token by default). Bodies in ``requests``
    carry no cache breakpoints.
    """

    def __init__(
        self,
        turns: Iterable[Turn],
        *,
        model: str = "scripted",
        max_tokens: int = 4096,
        counter: TokenCounter = CHARS4,
    ) -> None:
        self.requests: list[dict[str, Any]] = []
        self.script = Script(turns)
        self._serializer = MessagesSerializer()
        self._checker = Checker()
        self._model = model
        self._max_tokens = max_tokens
        self._counter = counter
        self._cache = PromptCache(explicit=False, counter=counter)

    @property
    def model(self) -> str:
        """The name given at construction."""
        return self._model

    def check(self) -> None:
        """Nothing is needed: a script can always be played."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Play the next turn."""
        await anyio.lowlevel.checkpoint()
        body = self._serializer.body(request, model=self._model, max_tokens=self._max_tokens, cache=False)
        self._checker.check(body)
        self.requests.append(body)
        turn = self.script.take(body)
        if isinstance(turn, BaseException):
            raise turn
        message, stop_reason = self.script.message(turn)
        for event in _deltas(message):
            yield event
            await anyio.lowlevel.checkpoint()
        usage = self._cache.account(body, output_tokens=count_content(self._counter, message.content))
        yield Reply(message=message, usage=usage, stop_reason=stop_reason, model=self._model)

    async def close(self) -> None:
        """Nothing to release."""


def _deltas(message: AssistantMessage) -> Iterable[TextDelta | ThinkingDelta]:
    if isinstance(message.content, str):
        return [TextDelta(message.content)] if message.content else []
    return [event for block in message.content if (event := _delta(block)) is not None]


def _delta(block: Mapping[str, Any]) -> TextDelta | ThinkingDelta | None:
    match block.get("type"):
        case "text" if block["text"]:
            return TextDelta(block["text"])
        case "thinking" if block["thinking"]:
            return ThinkingDelta(block["thinking"])
    return None
