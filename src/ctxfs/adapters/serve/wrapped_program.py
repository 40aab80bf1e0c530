"""An MCP server that is a program: it is started here, and speaks over its standard input and output."""

import os
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import ByteReceiveStream, Process

from ctxfs.adapters.serve.wrap import ENDS_S, Line, Upstream
from ctxfs.errors import ConfigError

_READ_BYTES = 64 * 1024


async def lines_of(stream: AsyncIterable[bytes]) -> AsyncGenerator[Line, None]:
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
    """What comes on the process's standard input, until it ends.

    It waits for what comes without a thread: one that still reads when the server has ended would keep the process.
    """
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


class _Program:
    """A server that was started here; it speaks over its standard input and output."""

    def __init__(self, process: Process) -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._to, self._from = process.stdin, process.stdout

    async def send(self, line: Line) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # lines() ends, too
            await self._to.send(line)

    async def end(self) -> None:
        await self._to.aclose()

    def lines(self) -> AsyncIterator[Line]:
        return lines_of(_received(self._from))


async def _received(stream: ByteReceiveStream) -> AsyncGenerator[bytes, None]:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            yield await stream.receive(_READ_BYTES)


@asynccontextmanager
async def program(command: Sequence[str]) -> AsyncGenerator[Upstream, None]:
    """Run a server; what it writes to its standard error goes to ours.

    On exit its input ends, and it has two seconds to end; then it is asked to, and after two more it is killed.

    Raises:
        ConfigError: the command cannot be run.

    """
    try:
        process = await anyio.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None)
    except OSError as error:
        raise ConfigError(f"the MCP server {command[0]!r} cannot be run: {error.strerror}") from error
    try:
        yield _Program(process)
    finally:
        with anyio.CancelScope(shield=True):
            await _stopped(process)


async def _stopped(process: Process) -> None:
    assert process.stdin is not None
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.aclose()
    for signal in (process.terminate, process.kill):
        with anyio.move_on_after(ENDS_S):
            await process.wait()
            return
        with suppress(ProcessLookupError):
            signal()
    await process.wait()
