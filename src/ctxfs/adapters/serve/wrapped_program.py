"""An MCP server that is a program: it is started here, and speaks over its standard input and output."""

import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import ByteReceiveStream, Process

from ctxfs.adapters.serve.stdio import lines_of
from ctxfs.adapters.serve.wrap import ENDS_S, Line, Upstream
from ctxfs.errors import ConfigError

_READ_BYTES = 64 * 1024


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
