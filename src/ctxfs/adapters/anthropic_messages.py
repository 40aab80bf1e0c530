"""The SDK's requests as the Messages API gets them, and the bills in its replies, read while the caller reads."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, cast

from ctxfs.agent.llm.bound_thinking import ThinkingDropper, beta_headers
from ctxfs.agent.llm.sse import UsageReader

__all__ = ["body_of", "is_refusal", "is_reply", "listen", "listen_async", "sent_body", "with_body"]

_MESSAGES = "/v1/messages"
_COUNTING = f"{_MESSAGES}/count_tokens"
_REFUSED = 400


def _route(request: Any) -> str:
    return str(request.url).partition("?")[0]


def body_of(request: Any) -> dict[str, Any] | None:
    """The body of a request that holds a history; None for any other request."""
    if request.method.lower() != "post" or _route(request) not in (_MESSAGES, _COUNTING):
        return None
    return cast("dict[str, Any]", request.json)


def is_reply(request: Any, status: int) -> bool:
    """Whether the answer is a model's reply, which says what was billed."""
    return status == 200 and _route(request) == _MESSAGES


def is_refusal(response: Any) -> bool:
    """Whether the request was refused because of its contents."""
    return bool(response.status_code == _REFUSED)


def sent_body(request: Any) -> Mapping[str, Any]:
    """The body of a request that holds a history, as it is sent."""
    return cast("Mapping[str, Any]", request.json)


def with_body(request: Any, body: Mapping[str, Any], dropper: ThinkingDropper) -> Any:
    """The request with ``body`` as ``dropper`` changes it, and with the header that the change needs."""
    request.options.json_data = asking = dropper.asking(body)
    if asking is not body:
        request.options.headers = beta_headers(asking, request.headers)
    return request


def listen(http: Any, take: Callable[[UsageReader], None]) -> None:
    """Call ``take`` with the bill: now, or when the caller has read the reply as far as it wants."""
    heard = UsageReader()
    if http.is_closed:
        heard.feed(http.content)
        return take(heard)
    pieces, close = http.iter_bytes, http.close

    def iter_bytes(*arguments: Any) -> Iterator[bytes]:
        for chunk in pieces(*arguments):
            heard.feed(chunk)
            yield chunk

    def close_and_take() -> None:
        close()
        take(heard)

    http.iter_bytes, http.close = iter_bytes, close_and_take  # every way to read a reply in pieces calls these
    return None


async def listen_async(http: Any, take: Callable[[UsageReader], Awaitable[None]]) -> None:
    """``listen`` for the asynchronous client."""
    heard = UsageReader()
    if http.is_closed:
        heard.feed(http.content)
        return await take(heard)
    pieces, close = http.aiter_bytes, http.aclose

    async def aiter_bytes(*arguments: Any) -> AsyncIterator[bytes]:
        async for chunk in pieces(*arguments):
            heard.feed(chunk)
            yield chunk

    async def close_and_take() -> None:
        await close()
        await take(heard)

    http.aiter_bytes, http.aclose = aiter_bytes, close_and_take
    return None
