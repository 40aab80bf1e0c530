"""Server-sent events from the bytes of a response."""

from collections.abc import AsyncGenerator, AsyncIterator

__all__ = ["event_data"]


async def event_data(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    """The data of each event in ``chunks``; an event that is not finished at the end is dropped.

    Lines end in LF or CRLF only: other separators of Unicode may stand inside of JSON.
    """
    rest = b""
    data: list[bytes] = []
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            bare = line.rstrip(b"\r")
            if bare.startswith(b"data:"):
                data.append(bare[5:].removeprefix(b" "))
            elif not bare and data:
                yield b"\n".join(data).decode()
                data = []
