"""Run a program to its end, or to the end of its time; nothing that it started is left running."""

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from anyio.abc import Process

from ctxfs.storage.threads import uninterrupted

_GRACE_S = 5.0
"""How long a program that is asked to end may take before it is killed."""


async def exit_code(
    words: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: bytes = b"", output: Path, timeout_s: float
) -> int | None:
    """Run a command and return its exit code, as a shell would; None: its time was over, and it was ended.

    What it prints is written to ``output``. Raises OSError if it cannot be started.
    """
    with await to_thread.run_sync(output.open, "ab") as printed:
        process = await anyio.open_process(
            list(words), cwd=cwd, env=env, stdout=printed, stderr=printed, start_new_session=True
        )
        try:
            with anyio.move_on_after(timeout_s) as limit:
                await _give(process, stdin)
                await process.wait()
        finally:
            await _end(process)
    if limit.cancelled_caught:
        return None
    code = process.returncode
    assert code is not None
    return code if code >= 0 else 128 - code


async def _give(process: Process, stdin: bytes) -> None:
    assert process.stdin is not None
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, BrokenPipeError, ConnectionResetError):
        if stdin:  # a program may end without reading all of it
            await process.stdin.send(stdin)
        await process.stdin.aclose()


@uninterrupted
async def _end(process: Process) -> None:
    """End the program, if it still runs, and everything that it started."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with anyio.move_on_after(_GRACE_S):
            await process.wait()
    _signal(process, signal.SIGKILL)
    if process.returncode is None:
        await process.wait()
    await process.aclose()


def _signal(process: Process, number: Any) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
