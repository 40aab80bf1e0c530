"""The Bash tool: a command's output streams into the session, however much it is; the model gets a part of it.

Follows "Tool Output Materialization（工具输出文件化）规格", terminal output. Linux and macOS.
"""

import math
import os
import signal
import subprocess
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

import anyio
import anyio.abc
import anyio.lowlevel
from anyio import to_thread

from ctxfs.errors import ConfigError, StorageError
from ctxfs.errors.checks import names_settings, require_kind, require_number, require_text
from ctxfs.eviction.placeholder.attach import DIGEST_FRACTION
from ctxfs.eviction.placeholder.excerpts import Ends
from ctxfs.eviction.placeholder.text import render_advice, render_materialized, render_size
from ctxfs.messages.items import ContentRange
from ctxfs.messages.names import path_of, safe_name
from ctxfs.session.content.growing import GrowingLog
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.task_group import TaskGroup
from ctxfs.storage.threads import run_in_steps, uninterrupted
from ctxfs.text.jsontext.tokens import is_json
from ctxfs.tools.base import CALL, Tool, ToolResult, told
from ctxfs.tools.materialization import SNIPPET_BYTES, SNIPPET_LINES, ContextRef, Materialize, snippet_bounds

_NAME = "Bash"

_MAX_TIMEOUT_S = 600.0
"""Ten minutes are enough for a build or a test suite, and a command that hangs ends within an agent's lifetime."""
_READ_BYTES = 65_536
_FLUSH_BYTES = 524_288
_FLUSH_S = 0.05
"""How long output waits for more of it before readers see it."""

_JSON_BYTES = 16 * 1024 * 1024
"""Output that begins like JSON is read once more to see whether it is, up to this size."""

_GRACE_S = 2.0
"""How long a command that ran out of time may take to end by itself, and how long its pipe may be silent before the
tool stops waiting for it."""

_PIPE_BYTES = 1_048_576
"""More than what a command that has ended can have left in its pipe and in the loop's buffers."""

_DESCRIPTION = (
    "Run a command in bash. Standard output and standard error come back together, with the exit code. Long output is "
    "shortened to its beginning, its end and a reference to the full text. The command has no terminal and no input; "
    "its background processes are ended with it."
)


@names_settings(
    {
        "max_timeout_s": "the model may ask for up to 600 seconds, or timeout_s if that is more",
        "max_output_bytes": "a command that prints more than 256 MiB is ended; let it write to a file, as in make >log",
        "shell": 'commands are run by bash; for another shell, let the command begin with it, as in zsh -c "..."',
        "allow_unapproved": "to run every command, give an agent approve=lambda call: True",
    }
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Bash:
    """The settings of the Bash tool. A command that prints more than 256 MiB is ended; its output until then is kept.

    cwd: where commands run; None means where the agent runs.
    env: the whole environment of commands; None passes the agent's own environment, with its secrets.
    timeout_s: how long a command may run, in seconds, unless the model asks for another time. It may ask for up to
        600 seconds, or for as much as this if that is more.

    Raises:
        ConfigError: the time-out is not positive.
    """

    max_output_bytes: ClassVar[int] = 256 * 1024 * 1024
    """A command that never stops printing would fill the disk; no build and no test suite prints as much as this."""

    cwd: str | Path | None = None
    env: Mapping[str, str] | None = None
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        require_kind("cwd", self.cwd, str | Path, "a path")
        require_kind("env", self.env, Mapping, "a mapping of names to values")
        for variable, value in (self.env or {}).items():
            require_text(f"env[{variable!r}]", value)
        require_number("timeout_s", self.timeout_s, at_least=0)
        if not 0 < self.timeout_s < math.inf:
            raise ConfigError(f"timeout_s is {self.timeout_s}: use more than 0 seconds, and not infinity")

    @property
    def max_timeout_s(self) -> float:
        """The longest time that the model may ask for, in seconds."""
        return max(self.timeout_s, _MAX_TIMEOUT_S)


@names_settings()
def bash_tool(
    fs: ContextFileSystem,
    settings: Bash | None = None,
    *,
    asks_first: bool = False,
    limits: Materialize | None = None,
    tools: Collection[str] = (),
) -> Tool:
    """Make the tool "Bash" for one session.

    Everything that a command prints goes to ``artifacts/terminal/<id>.log`` of the session as it comes, and can be read
    while the command runs. Output within ``limits`` comes back whole as well. A process that leaves its group (with
    ``setsid``, say) is not ended with the command.

    Args:
        fs: the session.
        settings: None means the defaults.
        asks_first: True says that the caller asks for approval before each call, as ``Agent`` does with ``approve``, or
            answers for running without.
        limits: what comes back whole, and how much of what does not; None means the defaults.
        tools: names of the tools that the model can read the rest with.

    Raises:
        ConfigError: ``asks_first`` is not True.
    """
    # An agent's settings import this module for ``Bash``; only the tool itself needs pydantic.
    from pydantic import Field  # noqa: PLC0415

    from ctxfs.tools.decorator import tool  # noqa: PLC0415

    if not asks_first:
        raise ConfigError("the model chooses the commands: ask for approval before each call, and give asks_first=True")
    bash = settings or Bash()
    shown = _Shown(fs, limits or Materialize(), tools)

    @tool(_DESCRIPTION, name=_NAME)
    async def run(
        command: Annotated[str, Field(description="The command")],
        timeout_s: Annotated[
            float | None, Field(gt=0, le=bash.max_timeout_s, description="How long it may run, in seconds")
        ] = None,
    ) -> ToolResult:
        try:
            return await _Command(bash, await fs.writer.grow(_NAME), shown).run(command, timeout_s or bash.timeout_s)
        except StorageError as error:
            return ToolResult(f"The output could not be stored: {told(error)}", is_error=True)

    return run


class _Command:
    """One command that runs."""

    def __init__(self, bash: Bash, log: GrowingLog, shown: "_Shown") -> None:
        self._bash = bash
        self._log = log
        self._shown = shown
        self._ends = shown.ends()
        self._room = bash.max_output_bytes
        self._printed_too_much = False
        self._received = 0
        self._storing = False
        self._failure: StorageError | None = None

    async def run(self, command: str, timeout_s: float) -> ToolResult:
        try:
            process = await self._start(command)
        except (OSError, ValueError) as error:
            await self._log.finish({"exit_code": None})
            return ToolResult(f"The command could not be started: {error}", is_error=True)
        timed_out = False
        try:
            timed_out = await self._until_end(process, timeout_s)
        finally:
            stored = await self._end(process, timed_out=timed_out)
        if self._failure is not None:
            raise self._failure
        if self._printed_too_much:
            outcome = f"ended, since it printed more than {self._bash.max_output_bytes:,} bytes; the rest is not stored"
        elif timed_out:
            outcome = f"timed out after {timeout_s:g} s and was ended"
        else:
            outcome = _outcome(process.returncode)
        is_error = self._printed_too_much or timed_out or process.returncode != 0
        self._ends.feed(b"", last=True)
        return await self._shown.result(stored, self._ends, outcome, is_error=is_error)

    @uninterrupted
    async def _end(self, process: anyio.abc.Process, *, timed_out: bool) -> Stored:
        """End whatever of the command still runs, and make what it printed durable."""
        _kill_group(process, signal.SIGKILL)
        await process.aclose()
        ended = {"exit_code": process.returncode, "timed_out": timed_out}
        if self._printed_too_much:
            ended["printed_too_much"] = True
        return await self._log.finish(ended)

    async def _start(self, command: str) -> anyio.abc.Process:
        nothing = await to_thread.run_sync(os.open, os.devnull, os.O_RDONLY)
        try:
            return await anyio.open_process(
                ["bash", "-c", command],
                stdin=nothing,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self._bash.cwd,
                env=self._bash.env,
                start_new_session=True,
            )
        finally:
            os.close(nothing)

    async def _until_end(self, process: anyio.abc.Process, timeout_s: float) -> bool:
        """Let the command run, and take in what it prints; True when its time ran out."""
        drained = anyio.Event()
        async with TaskGroup() as group:
            group.start_soon(self._pump, process, drained)
            with anyio.move_on_after(timeout_s) as in_time:
                await process.wait()
            if in_time.cancelled_caught:
                _kill_group(process, signal.SIGTERM)
                with anyio.move_on_after(_GRACE_S):
                    await process.wait()
            _kill_group(process, signal.SIGKILL)
            await self._drain(drained)
            group.cancel()
        return in_time.cancelled_caught

    async def _drain(self, drained: anyio.Event) -> None:
        """Wait until the output of a command that has ended is taken in, however slow the disk is.

        A process that left the group may hold the pipe open for ever: it is left when nothing comes for a while, or
        when more comes than the command can have printed.
        """
        received = -1
        most = self._received + _PIPE_BYTES
        while not drained.is_set() and (self._storing or received < self._received <= most):
            received = self._received
            with anyio.move_on_after(_GRACE_S):
                await drained.wait()
            await anyio.lowlevel.checkpoint()  # what came meanwhile is taken in first, on a busy machine too

    async def _pump(self, process: anyio.abc.Process, drained: anyio.Event) -> None:
        """Bring the output into the log, in pieces that are large or a moment old."""
        assert process.stdout is not None
        pending = bytearray()
        try:
            while not self._printed_too_much:
                with anyio.move_on_after(_FLUSH_S if pending else None) as waiting:
                    data = await process.stdout.receive(_READ_BYTES)
                    self._received += len(data)
                    pending += self._bounded(data)
                if waiting.cancelled_caught or len(pending) >= _FLUSH_BYTES:
                    await self._flush(pending)
            _kill_group(process, signal.SIGKILL)
        except anyio.EndOfStream:
            pass
        except StorageError as error:
            self._failure = error
            _kill_group(process, signal.SIGKILL)
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    await self._flush(pending)
                except StorageError as error:
                    self._failure = error
            drained.set()

    def _bounded(self, data: bytes) -> bytes:
        """As much of ``data`` as may still be stored."""
        self._printed_too_much = len(data) > self._room
        data = data[: self._room]
        self._room -= len(data)
        return data

    async def _flush(self, pending: bytearray) -> None:
        if pending and self._failure is None:
            data = bytes(pending)
            pending.clear()
            self._storing = True
            await self._take(data)
            self._storing = False

    @uninterrupted
    async def _take(self, data: bytes) -> None:
        await self._log.append(data)
        await to_thread.run_sync(self._ends.feed, data)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the model sees of a command's output."""

    fs: ContextFileSystem
    limits: Materialize
    tools: Collection[str]

    def ends(self) -> Ends:
        head_bytes = max(self.limits.max_inline_bytes, SNIPPET_BYTES)
        return Ends(
            head_bytes=head_bytes,
            tail_bytes=SNIPPET_BYTES,
            error_lines=2 * SNIPPET_LINES,  # those in the head are not shown twice
        )

    async def result(self, stored: Stored, ends: Ends, outcome: str, *, is_error: bool) -> ToolResult:
        text = ends.whole
        if text is None or self.limits.is_over(text):
            text = self._part(stored, ends, outcome, is_json=await self._is_json(stored, ends))
        else:
            if text and not text.endswith("\n"):
                text += "\n"
            text += f"[{outcome}]"
        source: ContentRange | None = None
        if stored.lines:
            path = path_of(self.fs.base, stored.name)
            source = ContentRange(item_id=stored.item_id, path=path, first_line=1, last_line=stored.lines)
        return ToolResult(text, is_error=is_error, source=source)

    async def _is_json(self, stored: Stored, ends: Ends) -> bool | None:
        """Whether the output is JSON; None: it may be, and is too large to be read for that."""
        if not ends.may_be_json:
            return False
        if stored.size_bytes > _JSON_BYTES:
            return None
        text = str(await self.fs.load(stored.item_id))
        return await run_in_steps(lambda: is_json(text))

    def _part(self, stored: Stored, ends: Ends, outcome: str, *, is_json: bool | None) -> str:
        title = _NAME
        hint: dict[str, Any] = {"tool": _NAME}
        call = CALL.get()
        if call is not None:
            title += f", call {safe_name(call.call_id)}"
            hint["call_id"] = call.call_id
        hint["chars"] = ends.chars
        hint["bytes"] = stored.size_bytes
        hint["exit_code"] = stored.metadata["exit_code"]
        return render_materialized(
            title=f"{title}, {stored.item_id}: {outcome}",
            size=render_size(chars=ends.chars, size_bytes=stored.size_bytes, lines=stored.lines, is_json=is_json),
            ref=ContextRef(id=stored.item_id, hint=MappingProxyType(hint)).to_json(),
            advice=render_advice(stored.item_id, path_of(self.fs.base, stored.name), self.tools),
            stored="up to its limit" if stored.metadata.get("printed_too_much") else "in full",
            passages=self._passages(stored, ends),
        )

    def _passages(self, stored: Stored, ends: Ends) -> dict[str, list[str]]:
        """The longest passages that take a digest's share of the output; tokens are not counted of so much of it."""
        for lines, size_bytes in snippet_bounds():
            passages = ends.passages(line_count=stored.lines, lines=lines, size_bytes=size_bytes)
            chars = sum(len(row) + 1 for row in chain.from_iterable(passages.values()))
            if chars <= ends.chars // DIGEST_FRACTION:
                return passages
        return {}


def _outcome(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        return f"killed by signal {-returncode}"
    return f"exit code {returncode}"


def _kill_group(process: anyio.abc.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # all of it has ended; macOS says it the second way
        os.killpg(process.pid, number)
