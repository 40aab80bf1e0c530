"""The Bash tool: output streams into the session, is read while it comes, and nothing outlives its command."""

import errno
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs import Agent, AgentConfig, ContextFileSystem
from ctxfs.errors import ConfigError
from ctxfs.messages.items import ContentRange, ItemType
from ctxfs.messages.messages import ToolCall
from ctxfs.session.content.blocks import RAW_BLOCK
from ctxfs.session.content.encoding import RawBytes
from ctxfs.session.content.file import ContentFile
from ctxfs.session.content.growing import GrowingBlocks
from ctxfs.storage.local import LocalStore
from ctxfs.testing import ScriptedModel
from ctxfs.tools import Materialize
from ctxfs.tools.base import ToolResult
from ctxfs.tools.bash import Bash, bash_tool
from ctxfs.tools.retrieval import retrieval_tools
from failing_fs import FailingFileSystem, as_port
from patience import HANGS_S

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


async def run(fs: ContextFileSystem, command: str, settings: Bash | None = None, **arguments: Any) -> ToolResult:
    bash = bash_tool(fs, settings, asks_first=True, tools=["context_tail", "context_grep"])
    return await bash.run({"command": command, **arguments})


def session(tmp_path: Path, **settings: Any) -> ContextFileSystem:
    return ContextFileSystem("s1", root_path=tmp_path, **settings)


def log_of(tmp_path: Path, number: int = 1) -> bytes:
    return (tmp_path / "s1" / "artifacts" / "terminal" / f"terminal_{number:03}.log").read_bytes()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def wait_for_end(pid: int) -> None:
    """Wait for a process that was killed: the system ends it when it comes to it."""
    with anyio.fail_after(HANGS_S):
        while is_running(pid):  # noqa: ASYNC110 - nothing tells of the end of another's child
            await anyio.sleep(0.001)


# Approval ------------------------------------------------------------------------------------------------------------


def test_it_refuses_to_be_made_when_nobody_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="asks_first=True"):
        bash_tool(session(tmp_path))
    with pytest.raises(ConfigError, match="approve"):
        AgentConfig(bash=Bash())


def test_redaction_and_streaming_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="redact"):
        AgentConfig(bash=Bash(), approve=lambda _: True, redact=lambda call, content: content)


def test_it_is_off_unless_it_is_configured(tmp_path: Path) -> None:
    assert AgentConfig().bash is None


@pytest.mark.parametrize("timeout_s", [0, -1, math.inf, math.nan])
def test_a_time_out_that_cannot_work_is_refused(timeout_s: float) -> None:
    with pytest.raises(ConfigError, match="timeout_s"):
        Bash(timeout_s=timeout_s)


def test_the_model_may_ask_for_ten_minutes_or_for_what_is_set_if_that_is_more() -> None:
    assert Bash().max_timeout_s == 600
    assert Bash(timeout_s=601).max_timeout_s == 601


async def test_the_agent_asks_before_each_command(tmp_path: Path) -> None:
    asked: list[str] = []

    def approve(call: ToolCall) -> bool | str:
        asked.append(str(call.arguments["command"]))
        return True if "safe" in call.arguments["command"] else "not that one"

    calls = [ToolCall("Bash", {"command": "echo safe"}), ToolCall("Bash", {"command": f"touch {tmp_path}/danger"})]
    model = ScriptedModel([calls, "done"])
    async with Agent(model, AgentConfig(bash=Bash(), approve=approve, offload_root_path=tmp_path)) as agent:
        await agent.query("go")
    first, second = (block["content"] for block in model.requests[1]["messages"][-1]["content"])
    assert first == "safe\n[exit code 0]"
    assert second == "The call was denied: not that one"
    assert len(asked) == 2
    assert not (tmp_path / "danger").exists()


# Output --------------------------------------------------------------------------------------------------------------


class PrintsLittle(Bash):
    """The tool with a bound that a test reaches soon."""

    max_output_bytes = 100_000


class PrintsSix(Bash):
    max_output_bytes = 6


async def test_a_command_that_prints_too_much_is_ended_and_that_is_said(tmp_path: Path) -> None:
    settings = PrintsLittle()
    async with session(tmp_path) as fs:
        with anyio.fail_after(HANGS_S):
            result = await run(fs, "yes", settings)
        stored = fs.state.stored["terminal_001"]
        assert log_of(tmp_path) == b"y\n" * 50_000
        assert (stored.size_bytes, stored.metadata["printed_too_much"]) == (100_000, True)
    assert result.is_error
    first_line = str(result.content).split("\n", 1)[0]
    assert first_line == (
        "[Output stored up to its limit: Bash, terminal_001: ended, since it printed more than 100,000 bytes; "
        "the rest is not stored]"
    )


async def test_output_up_to_the_bound_is_stored_in_full(tmp_path: Path) -> None:
    settings = PrintsSix()
    async with session(tmp_path) as fs:
        assert await run(fs, "printf 123456", settings) == ToolResult(
            "123456\n[exit code 0]",
            source=ContentRange(
                item_id="terminal_001",
                path=str(fs.session_path / "artifacts/terminal/terminal_001.log"),
                first_line=1,
                last_line=1,
            ),
        )
        assert "printed_too_much" not in fs.state.stored["terminal_001"].metadata
        result = await run(fs, "printf 1234567; sleep 60", settings)
        assert result.content == "123456\n[ended, since it printed more than 6 bytes; the rest is not stored]"


async def test_both_outputs_come_back_together_with_the_exit_code(tmp_path: Path) -> None:
    async with session(tmp_path) as fs:
        result = await run(fs, "echo out; echo err >&2; printf end; exit 3")
    assert result.content == "out\nerr\nend\n[exit code 3]"
    assert result.is_error


async def test_every_byte_is_in_the_log_and_can_be_loaded(tmp_path: Path) -> None:
    async with session(tmp_path) as fs:
        await run(fs, r"printf 'a\377\000b\r\n'")
        assert log_of(tmp_path) == b"a\xff\x00b\r\n"
        assert await fs.load("terminal_001") == "a\udcff\x00b\r\n"
        assert fs.state.stored["terminal_001"].metadata["exit_code"] == 0
        assert (await fs.verify()).ok


async def test_no_output_is_no_error(tmp_path: Path) -> None:
    async with session(tmp_path) as fs:
        result = await run(fs, "true")
        assert result == ToolResult("[exit code 0]")
        assert await fs.load("terminal_001") == ""


async def test_long_output_gives_a_part_and_a_reference(tmp_path: Path) -> None:
    async with session(tmp_path) as fs:
        result = await run(fs, "seq 1 20000")
        assert isinstance(result.content, str)
        assert result.content.startswith("[Output stored in full: Bash, terminal_001: exit code 0]\n")
        assert "\n40: 40\nLast lines:\n19961: 19961\n" in result.content
        assert result.content.endswith("\n20000: 20000")
        assert '"id":"terminal_001","kind":"artifact"' in result.content
        assert 'context_tail(ref="terminal_001", lines=200)' in result.content
        assert len(result.content) < 4_000
        assert log_of(tmp_path) == b"".join(b"%d\n" % n for n in range(1, 20_001))
        page = await retrieval_tools(fs)[0].run({"ref": "terminal_001", "offset": 12_345, "limit": 1})
        assert "12345\t12345" in str(page.content)


@pytest.mark.parametrize(("count", "inline"), [(4_000, True), (4_001, False)])
async def test_the_limit_is_the_one_of_every_tool(count: int, inline: bool, tmp_path: Path) -> None:
    async with session(tmp_path) as fs:
        result = await run(fs, f"head -c {count} /dev/zero | tr '\\0' x")
    assert str(result.content).startswith("x" * count) is inline


async def test_the_summary_says_what_that_of_every_tool_says(tmp_path: Path) -> None:
    script = "seq 1 3000; printf 'Traceback (most recent call last):\\n  File \"x.py\"\\nValueError: ü\\n'; seq 1 3000"
    model = ScriptedModel([[ToolCall("Bash", {"command": script})], "done"])
    config = AgentConfig(bash=Bash(), approve=lambda _: True, offload_root_path=tmp_path)
    async with Agent(model, config) as agent:
        await agent.query("go")
        (item,) = [i for i in agent.context.items if i.item_type is ItemType.TOOL_RESULT]
        text = str(item.message.content)
        output = str(await agent.context.fs.load("terminal_001"))
    assert text.startswith("[Output stored in full: Bash, call call_001, terminal_001: exit code 0]\n")
    assert f"Size: {len(output):,} characters, {len(output) + 1:,} bytes, 6,003 lines; JSON: no\n" in text
    assert f'"hint":{{"tool":"Bash","call_id":"call_001","chars":{len(output)},"bytes":{len(output) + 1},"exit' in text
    assert '3001: Traceback (most recent call last):\n3002:   File "x.py"\n3003: ValueError: ü\nLast lines:\n' in text


@pytest.mark.parametrize(
    ("command", "told"), [("seq -s, 1 2000 | sed 's/.*/[&]/'", "yes"), ("seq -s, 1 2000 | sed 's/.*/[&/'", "no")]
)
async def test_the_summary_says_whether_it_is_json(command: str, told: str, tmp_path: Path) -> None:
    async with session(tmp_path) as fs:
        assert f"; JSON: {told}\n" in str((await run(fs, command)).content)


@pytest.mark.parametrize("count", [80, 200, 400])
async def test_what_is_shown_of_the_output_takes_at_most_a_fifth_of_it(count: int, tmp_path: Path) -> None:
    async with session(tmp_path) as fs:
        text = str((await run(fs, f"seq -f 'an error %g {'x' * 60}' 1 {count}")).content)
        size = len(str(await fs.load("terminal_001")))
    assert (
        0 < len(text) - text.index("First lines:") <= size / 5 + len("First lines:\nLines with errors:\nLast lines:\n")
    )


async def test_what_it_shows_is_not_materialized_once_more(tmp_path: Path) -> None:
    model = ScriptedModel([[ToolCall("Bash", {"command": "seq -f 'a long line with number %g' 1 900"})], "done"])
    config = AgentConfig(
        bash=Bash(), approve=lambda _: True, materialize=Materialize(max_inline_chars=500), offload_root_path=tmp_path
    )
    async with Agent(model, config) as agent:
        await agent.query("go")
        (item,) = [i for i in agent.context.items if i.item_type is ItemType.TOOL_RESULT]
        assert not item.offloaded
        assert item.source is not None
        assert item.source.item_id == "terminal_001"
        assert agent.context.eager_stats.count == 0


async def test_it_can_be_read_while_it_runs(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    results: list[ToolResult] = []

    async def command(fs: ContextFileSystem) -> None:
        results.append(await run(fs, f"echo first; cat {gate}"))

    async with session(tmp_path) as fs:
        tail = next(tool for tool in retrieval_tools(fs) if tool.name == "context_tail")
        with anyio.fail_after(HANGS_S):
            async with anyio.create_task_group() as group:
                group.start_soon(command, fs)
                while "first" not in str((await tail.run({"ref": "terminal_001"})).content):
                    await anyio.lowlevel.checkpoint()
                async with session(tmp_path, read_only=True) as other:
                    assert await other.load("terminal_001") == "first\n"
                    assert other.state.stored["terminal_001"].metadata["partial"]
                await anyio.to_thread.run_sync(gate.write_text, "second\n")
        assert results[0].content == "first\nsecond\n[exit code 0]"
        assert "partial" not in fs.state.stored["terminal_001"].metadata


async def test_logs_are_numbered_over_the_whole_session(tmp_path: Path) -> None:
    async with session(tmp_path) as fs:
        await run(fs, "echo 1")
    async with session(tmp_path) as fs:
        await run(fs, "echo 2")
        assert list(fs.state.stored) == ["terminal_001", "terminal_002"]


# Ends ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_time_out_ends_the_whole_process_group(tmp_path: Path) -> None:
    # A shell that has not come to its echo when the time is over says nothing: the next one gets more time.
    async with session(tmp_path) as fs:
        for number, timeout_s in enumerate((0.3, 3, 30, 300), start=1):
            result = await run(fs, "trap '' TERM; sleep 1000 & echo $!; wait; sleep 1000", timeout_s=timeout_s)
            assert result.is_error
            assert f"timed out after {timeout_s} s" in str(result.content)
            if said := log_of(tmp_path, number):
                break
    await wait_for_end(int(said))


async def test_what_runs_in_the_background_ends_with_its_command(tmp_path: Path) -> None:
    async with session(tmp_path) as fs:
        result = await run(fs, "sleep 1000 & echo $!")
    assert not result.is_error
    await wait_for_end(int(log_of(tmp_path)))


@pytest.mark.slow
async def test_a_process_that_left_the_group_cannot_hold_the_call(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with session(tmp_path) as fs:
        with anyio.fail_after(HANGS_S):
            # It has left when it writes to the gate.
            result = await run(fs, f"setsid sh -c 'echo left > {gate}; exec sleep 1000' & read said < {gate}; echo $!")
    assert not result.is_error
    os.kill(int(log_of(tmp_path)), 9)


async def test_a_cancelled_call_ends_the_command_and_keeps_its_output(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with session(tmp_path) as fs:
        with anyio.fail_after(HANGS_S):
            async with anyio.create_task_group() as group:
                group.start_soon(run, fs, f"echo $$; exec cat {gate}")
                while not (fs.find("terminal_001") and await fs.load("terminal_001")):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        await wait_for_end(int(str(await fs.load("terminal_001"))))
        assert fs.state.stored["terminal_001"].metadata["exit_code"] == -9


async def test_the_signal_that_ended_it_is_told(tmp_path: Path) -> None:
    async with session(tmp_path) as fs:
        assert (await run(fs, "kill -9 $$")).content == "[killed by signal 9]"


@pytest.mark.parametrize("settings", [{"cwd": "/nowhere/at/all"}, {"env": {"PATH": "/nowhere"}}])
async def test_a_command_that_cannot_start_is_told(settings: dict[str, Any], tmp_path: Path) -> None:
    async with session(tmp_path) as fs:
        result = await run(fs, "echo hi", Bash(**settings))
    assert result.is_error
    assert "could not be started" in str(result.content)


async def test_directory_and_environment_are_what_is_configured(tmp_path: Path) -> None:
    settings = Bash(cwd=tmp_path, env={"PATH": os.environ["PATH"], "ONLY": "this"})
    async with session(tmp_path) as fs:
        result = await run(fs, "pwd; echo $ONLY$HOME", settings)
    assert result.content == f"{tmp_path}\nthis\n[exit code 0]"


async def test_commands_get_no_input(tmp_path: Path) -> None:
    async with session(tmp_path) as fs:
        assert (await run(fs, "cat")).content == "[exit code 0]"


@pytest.mark.slow
async def test_what_a_slow_disk_had_no_time_for_is_still_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctxfs.tools.bash._GRACE_S", 0.05)

    def slowly(_: int, name: str) -> bool:
        if name == "write":
            time.sleep(0.3)
        return False

    disk = FailingFileSystem(slowly, errno.ENOSPC)
    async with session(tmp_path, store=LocalStore(tmp_path, "s1", fs=as_port(disk))) as fs:
        await run(fs, "printf x; sleep 0.1; head -c 60000 /dev/zero | tr '\\0' x")
        assert fs.state.stored["terminal_001"].size_bytes == 60_001


# Failures ------------------------------------------------------------------------------------------------------------


async def test_a_full_disk_ends_the_command_and_is_told(tmp_path: Path) -> None:
    full = False
    disk = FailingFileSystem(lambda _, name: full and name == "write", errno.ENOSPC)
    async with session(tmp_path, store=LocalStore(tmp_path, "s1", fs=as_port(disk))) as fs:
        await run(fs, "echo fine")
        full = True
        result = await run(fs, "echo lost; sleep 1000")
        full = False
        assert result.is_error
        assert "could not be stored" in str(result.content)
        assert await fs.load("terminal_001") == "fine\n"


async def test_a_log_that_a_crash_cut_off_is_adopted(tmp_path: Path) -> None:
    program = """
import os, sys, anyio
from ctxfs import ContextFileSystem
async def main():
    fs = ContextFileSystem("s1", root_path=sys.argv[1])
    await fs.open()
    log = await fs.writer.grow("Bash")
    for n in range(3):
        await log.append(b"piece %d\\n" % n)
    os._exit(9)
anyio.run(main)
"""
    done = await anyio.run_process([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == 9
    async with session(tmp_path) as fs:
        assert fs.recovery.adopted == ("artifacts/terminal/terminal_001.log",)
        assert await fs.load("terminal_001") == "piece 0\npiece 1\npiece 2\n"
        assert fs.state.stored["terminal_001"].metadata["partial"]
        await run(fs, "echo next")
        assert await fs.load("terminal_002") == "next\n"


PIECES = st.lists(
    st.builds(
        lambda text, times: text * times,
        st.sampled_from([b"", b"a", b"\n", b"line\n"]),
        st.sampled_from([1, 7, RAW_BLOCK // 5, RAW_BLOCK]),
    ),
    max_size=6,
)


@given(pieces=PIECES)
def test_content_that_grew_is_checked_like_content_that_came_at_once(pieces: list[bytes]) -> None:
    blocks = GrowingBlocks()
    for piece in pieces:
        blocks.feed(piece)
    at_once = ContentFile(
        RawBytes(b"".join(pieces)),
        item_id="t",
        item_type=ItemType.TOOL_RESULT,
        name="t",
        raw=True,
        offloaded_at=0,
        extra={},
    )
    for _ in at_once:
        pass
    stored = at_once.stored
    assert blocks.index().root == stored.digest
    assert (blocks.size_bytes, blocks.lines, blocks.index().count) == (stored.size_bytes, stored.lines, stored.blocks)
