"""What a session has for itself: a copy of its task's directory, a place for what is stored, a program's run."""

import os
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import anyio
from anyio import to_thread
from anyio.abc import Process

from ctxfs.errors import ConfigError
from ctxfs.storage.failures import reason_of
from ctxfs.storage.port import DIR_MODE
from ctxfs.storage.threads import uninterrupted


@dataclass(frozen=True, slots=True)
class SessionDirectory:
    """A directory of one session; its name does not tell the arm, since a model may see it.

    ``work``: where its program works. ``stored``: where its contents are stored.
    """

    path: Path
    is_kept: bool

    @classmethod
    def made(cls, keep: Path | None, name: str, copied: Path | None) -> Self:
        """Make it: in ``keep`` under ``name``, or among the temporary files. ``copied``: what it has.

        Raises ``ConfigError`` if it cannot be made; nothing is left of it then.
        """
        try:
            return cls._made(keep, name, copied)
        except OSError as error:
            what = "a session's directory" if copied is None else f"a copy of {copied}"
            raise ConfigError(f"{what} cannot be made: {_first_reason(error)}") from error

    @classmethod
    def _made(cls, keep: Path | None, name: str, copied: Path | None) -> Self:
        if keep is None:
            path = Path(tempfile.mkdtemp(prefix="ctxfs-ab-"))
        else:
            path = keep.resolve() / name
            shutil.rmtree(path, ignore_errors=True)  # of a session that was interrupted
            path.mkdir(parents=True)
        made = cls(path, keep is not None)
        try:
            made.stored.mkdir(mode=DIR_MODE)  # a program is let only into a directory that is there when it begins
            if copied is None:
                made.work.mkdir()
            else:
                shutil.copytree(copied, made.work, symlinks=True)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return made

    @property
    def work(self) -> Path:
        """Where its program works."""
        return self.path / "work"

    @property
    def stored(self) -> Path:
        """Where its contents are stored."""
        return self.path / "sessions"

    def remove(self) -> None:
        """Remove it at its end, unless it is to be kept."""
        if not self.is_kept:
            shutil.rmtree(self.path, ignore_errors=True)


def _first_reason(error: OSError) -> str:
    """Why a directory could not be made or copied: ``copytree`` lists each file that it failed for."""
    if isinstance(error, shutil.Error):
        _, _, reason = error.args[0][0]
        return str(reason)
    return reason_of(error)


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
