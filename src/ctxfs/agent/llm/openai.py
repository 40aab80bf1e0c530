"""Models behind the Chat Completions API through the ``openai`` SDK, the only module that knows it."""

import logging
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, cast, get_args
from urllib.parse import urlsplit

from ctxfs.agent.llm.chat_completions import (
    MAX_TOOLS,
    WIRE_LIMITS,
    ChatReplyBuilder,
    Dialect,
    to_chat_body,
    with_empty_texts,
)
from ctxfs.agent.llm.connection import REPLACED, Connection, check_client, require_sdk
from ctxfs.agent.llm.retry import MAX_RETRIES, AttemptFailed, broken, classify, retrying
from ctxfs.agent.llm.sse import streamed_reply
from ctxfs.errors import ConfigError, InvalidRequest, MissingApiKey
from ctxfs.errors.checks import names_settings
from ctxfs.messages.base import ModelEvent, ModelRequest, Reply
from ctxfs.messages.serialize import MessagesSerializer
from ctxfs.messages.wire_names import with_options, with_own_names

if TYPE_CHECKING:
    from openai import AsyncOpenAI

KEY_VARIABLE = "OPENAI_API_KEY"
URL_VARIABLE = "OPENAI_BASE_URL"


_log = logging.getLogger("ctxfs.agent")


@names_settings(REPLACED)
class ChatOpenAI:
    """A model behind the Chat Completions API, streaming, with retries; needs the extra ``openai``.

    ``base_url`` None: from ``OPENAI_BASE_URL``, else OpenAI's own. With a base URL (a local server) the key is
    optional, and ``max_tokens`` is sent under that name, as compatible servers expect it. ``api_key`` None: from
    ``OPENAI_API_KEY``. ``dialect`` "mistral": the server refuses what Mistral's API refuses, such as call ids of any
    other form than nine letters and digits; None: "mistral" if the base URL is on ``mistral.ai``, else "openai".
    ``options`` and the other settings are those of ``ChatAnthropic``. Thinking is streamed where a server sends it, and
    is not kept. If a server sends several choices, the first one is the reply, and a warning is logged.

    Raises:
        ConfigError: a setting of another type or one that cannot work, or ``stream`` or ``n`` in ``options``.

    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        dialect: Dialect | None = None,
        max_tokens: int = 16_384,
        options: Mapping[str, Any] | None = None,
        max_retries: int = MAX_RETRIES,
        timeout_s: float = 600.0,
    ) -> None:
        check_client(
            model=model,
            api_key=api_key,
            base_url=base_url,
            max_tokens=max_tokens,
            options=options,
            timeout_s=timeout_s,
            max_retries=max_retries,
        )
        self._model = model
        self._api_key = api_key
        self._base_url = base_url
        self._max_tokens = max_tokens
        self._options = dict(options or {})
        if self._options.get("n", 1) != 1:
            raise ConfigError("options: a reply is one choice: leave out n")
        self._max_retries = max_retries
        self._timeout_s = timeout_s
        if dialect is not None and dialect not in get_args(Dialect):
            raise ConfigError(f"dialect is {dialect!r}: use one of {', '.join(get_args(Dialect))}, or None")
        self._dialect: Dialect = dialect or _dialect_of(self._url() or "")
        self._limits = WIRE_LIMITS[self._dialect]
        self._serializer = MessagesSerializer(self._limits)
        self._connection: Connection[AsyncOpenAI] = Connection()
        self._null_refused = False

    @property
    def model(self) -> str:
        """The model's name as the server knows it."""
        return self._model

    @property
    def max_tools(self) -> int | None:
        """How many tools a request may have; None where only the server knows."""
        return None if self._url() else MAX_TOOLS

    def check(self) -> None:
        """Raise ``MissingExtra`` without the SDK, ``MissingApiKey`` without a key where one is needed."""
        require_sdk("openai")
        self._key()

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """The Chat Completions body that ``stream`` sends for ``request``, without the streaming options.

        Raises ``InvalidRequest`` for more tools than OpenAI takes.
        """
        if self.max_tools is not None and len(request.tools) > self.max_tools:
            raise InvalidRequest(f"{len(request.tools)} tools: OpenAI takes at most {MAX_TOOLS}, so leave some out")
        body = self._serializer.body(request, model=self._model, max_tokens=self._max_tokens, cache=False)
        field = "max_tokens" if self._url() else "max_completion_tokens"
        chat = to_chat_body(body, max_tokens_field=field, dialect=self._dialect)
        return with_options(chat, self._options, request.tools, self._limits)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send ``request``; yield deltas (and ``Retrying``, after which they start over), then one ``Reply``.

        Raises:
            MissingExtra: the SDK is not installed.
            ModelError: the call failed, after all retries where retrying could help.

        """
        client = await self._connect()
        body = self.body(request)
        # Mistral's API sends the usage unasked, and refuses to be asked for it.
        extra = {} if self._dialect == "mistral" else {"stream_options": {"include_usage": True}}
        async with aclosing(retrying(lambda: self._attempt(client, extra | body), self._max_retries)) as events:
            async for event in events:
                if isinstance(event, Reply):
                    yield with_own_names(event, request.tools, self._limits)
                else:
                    yield event

    async def close(self) -> None:
        """Release connections; the next call opens new ones."""
        await self._connection.close()

    async def _attempt(self, client: "AsyncOpenAI", body: dict[str, Any]) -> AsyncGenerator[ModelEvent, None]:
        """One call. If the server refuses the content null beside calls, the same call with empty texts instead.

        No form of a message that has calls and no text is taken by every server. null is what OpenAI's API documents,
        and what frameworks send. Of those that refuse it (llama-cpp-python, some releases of LM Studio and Ollama, some
        gateways) each takes an empty text, which in turn is refused by other gateways, and where nothing is refused a
        model's template may render it differently. Leaving the field out is refused by some of either.
        """
        sent = with_empty_texts(body) if self._null_refused else body
        try:
            async with aclosing(_call(client, sent)) as events:
                async for event in events:
                    yield event
        except AttemptFailed as failure:
            emptied = with_empty_texts(body)
            if emptied == sent or not isinstance(failure.error, InvalidRequest) or "content" not in str(failure):
                raise
            refused = failure
        else:
            return
        try:
            async with aclosing(_call(client, emptied)) as events:
                async for event in events:
                    self._null_refused = True
                    yield event
        except AttemptFailed as failure:
            if not isinstance(failure.error, InvalidRequest):
                raise
            raise refused from refused.__cause__  # null was not the cause: the first refusal says what is wrong
        _log.warning("the server refuses null as content: calls without text get an empty one (%.200s)", refused)

    def _url(self) -> str | None:
        return self._base_url or os.environ.get(URL_VARIABLE)

    def _key(self) -> str:
        key = self._api_key or os.environ.get(KEY_VARIABLE)
        if not key and not self._url():
            raise MissingApiKey(
                f"no API key for OpenAI: set {KEY_VARIABLE}, or {URL_VARIABLE} for a local server (in Python, "
                "ChatOpenAI(api_key=..., base_url=...))"
            )
        return key or "not-needed"

    async def _connect(self) -> "AsyncOpenAI":
        self.check()
        return await self._connection.client(partial(_new_client, self._key(), self._url(), self._timeout_s))


def _dialect_of(url: str) -> Dialect:
    host = urlsplit(url).hostname or ""
    return "mistral" if f".{host}".endswith(".mistral.ai") else "openai"


def _new_client(api_key: str, base_url: str | None, timeout_s: float) -> "AsyncOpenAI":
    from openai import AsyncOpenAI  # noqa: PLC0415 — an optional extra

    return AsyncOpenAI(api_key=api_key, base_url=base_url, timeout=timeout_s, max_retries=0)


async def _call(client: "AsyncOpenAI", body: dict[str, Any]) -> AsyncGenerator[ModelEvent, None]:
    """One request, its SDK errors mapped to ``AttemptFailed``."""
    from openai import APIError  # noqa: PLC0415 — an optional extra

    # Through extra_body goes what this version of the SDK may have no name for.
    extra = {k: v for k, v in body.items() if k not in ("model", "messages")}
    opening = cast("Any", client.chat.completions.with_streaming_response).create(
        model=body["model"],
        messages=body["messages"],
        stream=True,
        extra_body=extra,
    )
    try:
        async with aclosing(streamed_reply(opening, ChatReplyBuilder())) as events:
            async for event in events:
                yield event
    except APIError as error:
        raise _failure(error) from error


def _failure(error: Exception) -> AttemptFailed:
    """What an error of the SDK means, from the answer that it carries, if any."""
    from openai import APIStatusError  # noqa: PLC0415 — an optional extra

    if not isinstance(error, APIStatusError):
        return broken(error)
    return classify(error.body or str(error), status=error.status_code, headers=error.response.headers)
