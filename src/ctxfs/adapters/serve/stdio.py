"""The lines of standard input, read without a thread: one that still reads would keep the process from ending."""

import os
import stat
import sys
from collections.abc import AsyncGenerator, AsyncIterable

import anyio

_READ_BYTES = 64 * 1024


async def lines_of(stream: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """The lines in a stream of bytes; what stands after the last newline is one, too."""
    beginning: list[bytes] = []
    async for data in stream:
        *whole, rest = data.split(b"\n")
        for end in whole:
            yield b"".join((*beginning, end, b"\n"))
            beginning.clear()
        if rest:
            beginning.append(rest)
    if beginning:
        yield b"".join((*beginning, b"\n"))


async def standard_input() -> AsyncGenerator[bytes, None]:
    """What comes on the process's standard input, until it ends; what ``sys.stdin`` has in its buffer is lost."""
    number = sys.stdin.fileno()
    mode = os.fstat(number).st_mode
    comes_later = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(number)
    while True:
        if comes_later:  # a file, which has all of it, cannot be waited for
            await anyio.wait_readable(number)
        data = os.read(number, _READ_BYTES)
        if not data:
            return
        yield data
