"""What a reply of the Messages API was billed, read while the caller of the SDK reads the reply."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from ctxfs.llm.sse import UsageReader

__all__ = ["listen", "listen_async"]


def listen(http: Any, take: Callable[[UsageReader], None]) -> None:
    """Call ``take`` with what was billed: now, or when the caller has read the reply as far as it wants."""
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

    http.iter_bytes, http.close = iter_bytes, close_and_take  # all that reads a reply in pieces calls them
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
