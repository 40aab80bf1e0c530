"""The interface of chat models: a request in, a stream of events out."""

import reprlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ctxfs.errors import InvalidReply
from ctxfs.messages.messages import AssistantMessage, Message, check_name

CUT = frozenset({"max_tokens", "model_context_window_exceeded"})
"""The stop reasons of a reply that is not whole: it reached its own limit, or the end of the model's window."""

_MOST_TOKENS = 2**53
"""Every reader of JSON gives whole numbers up to this back exactly."""

_GEMINI_INPUT = ("promptTokenCount", "prompt_token_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchema:
    """A tool as the model sees it; ``input_schema`` is a JSON schema of type object."""

    name: str
    description: str
    input_schema: Mapping[str, Any]

    def for_messages(self) -> dict[str, Any]:
        """Return the tool as the Messages API takes it."""
        return {"name": self.name, "description": self.description, "input_schema": dict(self.input_schema)}

    def for_chat(self) -> dict[str, Any]:
        """Return the tool as the Chat Completions API takes it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.input_schema)}
        return {"type": "function", "function": function}

    def for_responses(self) -> dict[str, Any]:
        """Return the tool as the Responses API takes it; not strict, as parameters may be optional."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.input_schema),
            "strict": False,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Everything one model call needs. A system prompt, if any, is the first message.

    ``max_tokens`` bounds the reply; None leaves it to the model's own default. ``breakpoints``: after how many of the
    messages the prompt is worth caching, for providers that have to be told; None leaves it to the serializer.
    ``status`` is shown after the messages in this request only, after everything that is cached; "" is nothing.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    max_tokens: int | None = None
    breakpoints: tuple[int, ...] | None = None
    status: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Billed tokens of one call. The three input counts are disjoint, as in the Anthropic Messages API.

    None is 0, and a whole float an int.

    Raises:
        InvalidReply: a count that is negative, not whole, or not a number.

    """

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            count = getattr(self, name)
            if type(count) is not int or not 0 <= count <= _MOST_TOKENS:
                object.__setattr__(self, name, _count(count, name))

    @property
    def total_input_tokens(self) -> int:
        """The whole prompt: what was cached, what was written to the cache, and the rest."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens

    @classmethod
    def of(cls, usage: "UsageLike | None") -> "Usage":
        """Take what an SDK or a response's JSON calls usage.

        That is the Messages API's; or that of OpenAI's Chat Completions or Responses API, or of Gemini, in which cached
        tokens are part of the input; as an object or as a dict. None, and an empty dict, are no tokens.

        Raises:
            InvalidReply: it has another type, or a count that ``Usage`` refuses.

        """
        if isinstance(usage, Usage):
            return usage
        if usage is None or usage == {}:
            return cls()
        # Each API has a name that no other has, but for the two that call the prompt ``input_tokens``: of these, the
        # Responses API alone gives details of it.
        if _first(usage, *_GEMINI_INPUT) is not None:
            return _gemini_usage(usage)
        if _first(usage, "input_tokens", "prompt_tokens") is None:
            raise InvalidReply(
                f"usage is {reprlib.repr(usage)}: pass the SDK's `reply.usage`, a dict with input_tokens and "
                "output_tokens, or Usage(...)"
            )
        if _first(usage, "prompt_tokens", "input_tokens_details") is not None:
            return _openai_usage(usage)
        return _messages_usage(usage)


class MessagesUsage(Protocol):
    """Usage of the Messages API, and of OpenAI's Responses API."""

    @property
    def input_tokens(self) -> int | None:
        """Tokens of the prompt."""

    @property
    def output_tokens(self) -> int | None:
        """Tokens of the reply."""


class ChatUsage(Protocol):
    """Usage of OpenAI's Chat Completions API."""

    @property
    def prompt_tokens(self) -> int | None:
        """Tokens of the prompt, cached ones too."""

    @property
    def completion_tokens(self) -> int | None:
        """Tokens of the reply."""


class GeminiUsage(Protocol):
    """Usage of Gemini, as Google's SDK gives it."""

    @property
    def prompt_token_count(self) -> int | None:
        """Tokens of the prompt, cached ones too."""

    @property
    def candidates_token_count(self) -> int | None:
        """Tokens of the reply, without those of its thinking."""


UsageLike = Usage | Mapping[str, Any] | MessagesUsage | ChatUsage | GeminiUsage
"""What ``Usage.of`` takes: ours, a provider's as its SDK gives it, or a dict in the shape of one."""


def _messages_usage(usage: Any) -> Usage:
    written = _entry(usage, "cache_creation_input_tokens")
    split = _entry(usage, "cache_creation")
    if written is None and split is not None:
        written = _counted(split, "ephemeral_5m_input_tokens") + _counted(split, "ephemeral_1h_input_tokens")
    return Usage(
        input_tokens=_entry(usage, "input_tokens"),
        cache_creation_input_tokens=written,
        cache_read_input_tokens=_entry(usage, "cache_read_input_tokens"),
        output_tokens=_entry(usage, "output_tokens"),
    )


def _openai_usage(usage: Any) -> Usage:
    """Disjoint counts: what was read from the cache, or written to it, is part of the input here."""
    details = _first(usage, "prompt_tokens_details", "input_tokens_details")
    whole = _counted(usage, "input_tokens", "prompt_tokens")
    read = min(whole, _counted(details, "cached_tokens"))
    written = min(whole - read, _counted(details, "cache_write_tokens"))
    return Usage(
        input_tokens=whole - read - written,
        cache_creation_input_tokens=written,
        cache_read_input_tokens=read,
        output_tokens=_first(usage, "completion_tokens", "output_tokens"),
    )


def _gemini_usage(usage: Any) -> Usage:
    """Disjoint counts; thinking is output. Names are in camel case in JSON, and in snake case in the SDK."""
    whole = _counted(usage, *_GEMINI_INPUT)
    read = min(whole, _counted(usage, "cachedContentTokenCount", "cached_content_token_count"))
    reply = _counted(usage, "candidatesTokenCount", "candidates_token_count")
    thoughts = _counted(usage, "thoughtsTokenCount", "thoughts_token_count")
    return Usage(input_tokens=whole - read, cache_read_input_tokens=read, output_tokens=reply + thoughts)


def _counted(value: Any, *names: str) -> int:
    """The first of these entries that there is, as a count of tokens; 0 when there is none. Raises ``InvalidReply``."""
    return _count(_first(value, *names), names[0])


def _first(value: Any, *names: str) -> Any:
    for name in names:
        found = _entry(value, name)
        if found is not None:
            return found
    return None


def _entry(value: Any, name: str) -> Any:
    """A dict's entry or an object's attribute; None when there is none."""
    if isinstance(value, Mapping):
        return value.get(name)
    return getattr(value, name, None)


def _count(value: Any, name: str) -> int:
    """``value`` as a count of tokens, None as 0. Raises ``InvalidReply``."""
    if value is None:
        return 0
    if isinstance(value, float):
        is_whole = value.is_integer()
    else:
        is_whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not is_whole or not 0 <= value <= _MOST_TOKENS:
        raise InvalidReply(f"{name} is {reprlib.repr(value)}: use a whole number of tokens, 0 or more")
    return int(value)


def check_model(model: str | None) -> str:
    """Return a model's name as it is recorded; None is "". Raises ``InvalidReply`` for anything but a text."""
    try:
        return check_name("" if model is None else model, "model")
    except ValueError as error:
        raise InvalidReply(str(error)) from error


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the reply's thinking."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """The call failed and is made again after ``delay_s`` seconds; deltas of this reply so far are void."""

    attempt: int
    delay_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The finished reply, always the last event of a stream. ``stop_reason`` is the Messages API's.

    ``usage`` may be given as whatever ``Usage.of`` takes, and ``model`` as None when it is not known.

    Raises:
        InvalidReply: ``usage`` or ``model`` cannot be recorded, or ``message`` is not an ``AssistantMessage``.

    """

    message: AssistantMessage
    usage: Usage
    stop_reason: str
    model: str

    def __post_init__(self) -> None:
        if not isinstance(self.message, AssistantMessage):
            raise InvalidReply(f"message is {reprlib.repr(self.message)}: use AssistantMessage(content)")
        object.__setattr__(self, "usage", Usage.of(self.usage))
        object.__setattr__(self, "model", check_model(self.model))


ModelEvent = TextDelta | ThinkingDelta | Retrying | Reply


class ChatModel(Protocol):
    """A model that streams one reply to one request.

    ``stream`` is an async generator: a caller that stops early closes it (``contextlib.aclosing``). It raises the
    ``ModelError`` family only, mapped in one place per provider. It is not guaranteed that any delta comes before the
    reply.

    A model may have ``max_tools``, too: how many tools a request may have, None for any number. An agent with more is
    refused when it is made.
    """

    @property
    def model(self) -> str:
        """The model's name as the provider knows it."""

    def check(self) -> None:
        """Raise ``MissingApiKey`` (or ``ConfigError``) when a call could not even be tried."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send ``request``; yield deltas, then exactly one ``Reply``."""

    async def close(self) -> None:
        """Release connections; idempotent."""
