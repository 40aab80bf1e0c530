"""Anthropic's models through the ``anthropic`` SDK, the only module that knows it."""

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ctxfs.agent.llm.accumulate import ReplyBuilder
from ctxfs.agent.llm.bound_thinking import ThinkingDropper, beta_headers
from ctxfs.agent.llm.connection import REPLACED, Connection, check_client, require_sdk
from ctxfs.agent.llm.retry import MAX_RETRIES, AttemptFailed, broken, classify, retrying
from ctxfs.agent.llm.sse import streamed_reply
from ctxfs.errors import MissingApiKey, UnsupportedCacheTtl
from ctxfs.errors.checks import names_settings
from ctxfs.messages.base import ModelEvent, ModelRequest, Reply, Retrying
from ctxfs.messages.models.prices import CacheTtl
from ctxfs.messages.serialize import CACHE_TTLS, MessagesSerializer
from ctxfs.messages.wire_names import with_options, with_own_names

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

DEFAULT_MODEL = "claude-sonnet-5-5"
KEY_VARIABLE = "ANTHROPIC_API_KEY"

T = TypeVar("T")


@names_settings(
    {
        **REPLACED,
        "cache": "cache_ttl=None sets no breakpoints",
        "thinking": 'give options={"thinking": {"type": "enabled", "budget_tokens": 4096}}',
    }
)
class ChatAnthropic:
    """A model of Anthropic's, streaming, with prompt-cache breakpoints and retries; needs the extra ``anthropic``.

    ``api_key`` None: from ``ANTHROPIC_API_KEY``, when it is first needed. ``base_url`` None: from
    ``ANTHROPIC_BASE_URL``, else Anthropic's own. ``max_tokens`` bounds a reply unless the request says otherwise.
    Every field of ``options`` (``thinking``, ``temperature``, ``tool_choice`` …) goes into the body as it is; only a
    ``tool_choice`` is left out of a request without tools, and names its tool as the tool is sent. ``cache_ttl`` "1h"
    costs more to write than "5m"; None sets no breakpoints. ``max_retries``: how often a failed call is made
    again, 0: never; the delay before it begins at half a second and doubles, up to 30 seconds, and the provider's
    Retry-After counts instead where it is longer, up to 60. ``timeout_s`` bounds the silence on the connection. It
    works on asyncio and on trio.

    A reply that the token limit cut has the stop reason "max_tokens". A tool call whose arguments are no JSON object
    has the single argument ``INVALID_JSON``.

    Newer models refuse thinking once something before it changed, as with an eviction. After the first such refusal
    each request asks for that thinking to be left out, unless ``thinking`` in ``options`` has a ``block_binding``
    or is disabled.

    Raises:
        ConfigError: a setting of another type or one that cannot work, or ``stream`` in ``options``.
        UnsupportedCacheTtl: a ``cache_ttl`` that the Messages API does not take.

    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        max_tokens: int = 16_384,
        options: Mapping[str, Any] | None = None,
        cache_ttl: CacheTtl | None = "5m",
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
        if cache_ttl is not None and cache_ttl not in CACHE_TTLS:
            raise UnsupportedCacheTtl(cache_ttl, CACHE_TTLS, model=model)
        self._model = model
        self._api_key = api_key
        self._base_url = base_url
        self._max_tokens = max_tokens
        self._options = dict(options or {})
        self._cache_ttl: CacheTtl | None = cache_ttl
        self._max_retries = max_retries
        self._timeout_s = timeout_s
        self._dropper = ThinkingDropper()
        self._serializer = MessagesSerializer()
        self._connection: Connection[AsyncAnthropic] = Connection()

    @property
    def model(self) -> str:
        """The model's name as Anthropic knows it."""
        return self._model

    def check(self) -> None:
        """Raise ``MissingExtra`` without the SDK, ``MissingApiKey`` without a key."""
        require_sdk("anthropic")
        self._key()

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """The Messages API body that ``stream`` sends for ``request``, without ``stream`` itself."""
        ttl = self._cache_ttl
        body = self._serializer.body(
            request, model=self._model, max_tokens=self._max_tokens, cache=ttl is not None, cache_ttl=ttl or "5m"
        )
        body = with_options(body, self._options, request.tools)
        return dict(self._dropper.asking(body))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send ``request``; yield deltas (and ``Retrying``, after which they start over), then one ``Reply``.

        Raises:
            MissingExtra: the SDK is not installed.
            ModelError: the call failed, after all retries where retrying could help.

        """
        client = await self._connect()
        attempt = partial(self._attempts, partial(_attempt, client), partial(self.body, request))
        async with aclosing(retrying(attempt, self._max_retries)) as events:
            async for event in events:
                if isinstance(event, Reply):
                    yield with_own_names(event, request.tools)
                else:
                    yield event

    async def count_tokens(self, request: ModelRequest) -> int:
        """The tokens of ``request`` as the provider counts them.

        Raises:
            ModelError: as for ``stream``.

        """
        client = await self._connect()
        accepted = ("model", "messages", "system", "tools", "thinking", "tool_choice")

        def body() -> dict[str, Any]:
            return {k: v for k, v in self.body(request).items() if k in accepted}

        attempt = partial(self._attempts, partial(_count_attempt, client), body)
        async with aclosing(retrying(attempt, self._max_retries)) as counts:
            async for count in counts:
                if not isinstance(count, Retrying):
                    return count
        raise AssertionError

    async def _attempts(
        self, once: Callable[[dict[str, Any]], AsyncGenerator[T, None]], make_body: Callable[[], dict[str, Any]]
    ) -> AsyncGenerator[T, None]:
        """One call, and at once another if it was refused for thinking that can be left out: nothing was sent yet."""
        body = make_body()
        try:
            async with aclosing(once(body)) as events:
                async for event in events:
                    yield event
        except AttemptFailed as failure:
            if not self._dropper.refused(body, failure):
                raise
            async with aclosing(once(make_body())) as events:
                async for event in events:
                    yield event

    async def close(self) -> None:
        """Release connections; the next call opens new ones."""
        await self._connection.close()

    def _key(self) -> str:
        key = self._api_key or os.environ.get(KEY_VARIABLE)
        if not key:
            raise MissingApiKey(f"no API key for Anthropic: set {KEY_VARIABLE} (in Python, ChatAnthropic(api_key=...))")
        return key

    async def _connect(self) -> "AsyncAnthropic":
        self.check()
        return await self._connection.client(partial(_new_client, self._key(), self._base_url, self._timeout_s))


def _new_client(api_key: str, base_url: str | None, timeout_s: float) -> "AsyncAnthropic":
    from anthropic import AsyncAnthropic  # noqa: PLC0415 — the SDK takes longer to import than all of ctxfs

    return AsyncAnthropic(api_key=api_key, base_url=base_url, timeout=timeout_s, max_retries=0)


async def _attempt(client: "AsyncAnthropic", body: dict[str, Any]) -> AsyncGenerator[ModelEvent, None]:
    """One call, its SDK errors mapped to ``AttemptFailed``."""
    from anthropic import APIError  # noqa: PLC0415 — loaded with the client

    opening = cast("Any", client.messages.with_streaming_response).create(**_arguments(body), stream=True)
    try:
        async with aclosing(streamed_reply(opening, ReplyBuilder())) as events:
            async for event in events:
                yield event
    except APIError as error:
        raise _failure(error) from error


def _arguments(body: dict[str, Any]) -> dict[str, Any]:
    """The SDK's arguments that send ``body`` as it is, whatever fields this version of the SDK has names for."""
    named = {k: v for k, v in body.items() if k in ("model", "max_tokens", "messages")}
    headers = beta_headers(body, {})
    return {**named, "extra_body": {k: v for k, v in body.items() if k not in named}, "extra_headers": headers}


async def _count_attempt(client: "AsyncAnthropic", body: dict[str, Any]) -> AsyncGenerator[int, None]:
    from anthropic import APIError  # noqa: PLC0415 — loaded with the client

    try:
        counted = await cast("Any", client.messages).count_tokens(**_arguments(body))
    except APIError as error:
        raise _failure(error) from error
    yield counted.input_tokens


def _failure(error: Exception) -> AttemptFailed:
    """What an error of the SDK means, from the answer that it carries, if any."""
    from anthropic import APIStatusError  # noqa: PLC0415 — loaded with the client

    if not isinstance(error, APIStatusError):
        return broken(error)
    said = error.body.get("error") if isinstance(error.body, dict) else None
    return classify(said or str(error), status=error.status_code, headers=error.response.headers)
