"""Server-sent events from the response of an SDK."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol

import anyio

__all__ = ["StreamedResponse", "event_data"]

UNWIND_S = 5.0
"""A bound for what takes no time: never wait for a server while closing."""


class StreamedResponse(Protocol):
    """What the SDKs give for a streamed response."""

    def iter_bytes(self) -> AsyncIterator[bytes]:
        """The body's bytes as they come."""

    async def close(self) -> None:
        """Close the connection; idempotent."""


async def event_data(response: StreamedResponse) -> AsyncGenerator[str, None]:
    """The data of each event in ``response``; an event that is not finished at the end is dropped.

    Lines end in LF or CRLF only: other separators of Unicode may stand inside of JSON.
    """
    chunks = response.iter_bytes()
    rest = b""
    data: list[bytes] = []
    try:
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                bare = line.rstrip(b"\r")
                if bare.startswith(b"data:"):
                    data.append(bare[5:].removeprefix(b" "))
                elif not bare and data:
                    yield b"\n".join(data).decode()
                    data = []
    except GeneratorExit:
        await _unwind(response, chunks)
        raise


async def _unwind(response: StreamedResponse, chunks: AsyncIterator[bytes]) -> None:
    """Close ``response`` and run its half-read generators to their end, which else only the garbage collector would.

    They stand inside each other in the SDK and its HTTP client, out of reach of ``aclose``; on a closed connection the
    innermost one fails, and all of them with it.
    """
    import httpx2  # noqa: PLC0415 — comes with the SDKs

    with anyio.move_on_after(UNWIND_S, shield=True):
        await response.close()
        try:
            async for _ in chunks:
                continue
        except (httpx2.HTTPError, httpx2.StreamError, anyio.ClosedResourceError):
            return
