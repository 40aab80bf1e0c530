"""An agent whose disk fills up, turns read-only or runs out of something, in the middle of its work.

As a program: ``full_disk.py <what runs out> <directory>``; prints a report as JSON. What was stored before must stay
intact, the run must go on with what it has in memory, the user must be told, and once there is room again all must be
on the disk.
"""

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import anyio

from ctxfs import Agent, AgentConfig, tool
from ctxfs.agent import Done
from ctxfs.errors import CtxfsError, Unrecorded
from ctxfs.eviction.events import OffloadFailed, RecordFailed
from ctxfs.messages import ToolCall
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.testing import ScriptedModel

__all__ = ["WAYS", "Report"]

LINES = 400
QUERIES = 2


@dataclass(slots=True)
class Report:
    """What happened: ``failures`` told by type, the answers, and ``problems``, which should be none."""

    answers: list[str] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    inline: int = 0
    stored: int = 0
    problems: list[str] = field(default_factory=list)


def output(name: str) -> str:
    return "\n".join(f"{name}, line {n} of what the tool said" for n in range(LINES))


@tool("Fetch something", ephemeral=1, read_only=True)
async def fetch(name: str) -> str:
    return output(name)


def turns(first: int) -> list[list[ToolCall] | str]:
    calls = [[ToolCall("fetch", {"name": f"n{first}-{part}"})] for part in range(3)]
    return [*calls, f"answer {first}"]


class Model(ScriptedModel):
    """A model that knows whether it was closed."""

    closed = False

    async def close(self) -> None:
        self.closed = True


# ---- what runs out: each returns how to make room again


def use_up_bytes(root: Path) -> Callable[[], None]:
    filler = root / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    return filler.unlink


def use_up_inodes(root: Path) -> Callable[[], None]:
    folder = root / "fillers"
    folder.mkdir()
    made: list[Path] = []
    with suppress(OSError):
        for number in range(1_000_000):
            made.append(folder / str(number))
            made[-1].touch()

    def free() -> None:
        for path in made:
            path.unlink(missing_ok=True)

    return free


def limit_size(root: Path) -> Callable[[], None]:
    """Let no file grow beyond what the journal has now, and a little: first writes fall short, then they fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(path.stat().st_size for path in root.rglob("journal.jsonl"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 100, hard))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def limit_descriptors(root: Path) -> Callable[[], None]:
    """Leave no descriptor free."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = os.dup(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (held, hard))
    taken: list[int] = []
    with suppress(OSError):  # those that are free below
        while True:
            taken.append(os.dup(0))

    def free() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in (*taken, held):
            os.close(fd)

    return free


def turn_read_only(root: Path) -> Callable[[], None] | None:
    """Do what the kernel does to a file system with an error: it takes no more writes until it is mounted again."""
    subprocess.run(["mount", "-o", "remount,abort", str(root)], check=False, capture_output=True)
    probe = root / "probe"
    try:
        probe.write_text("")
    except OSError as error:
        if error.errno == errno.EROFS:
            return None
        raise
    raise SystemExit("the file system could not be made read-only")


WAYS: dict[str, Callable[[Path], Callable[[], None] | None]] = {
    "bytes": use_up_bytes,
    "inodes": use_up_inodes,
    "file size": limit_size,
    "descriptors": limit_descriptors,
    "read-only": turn_read_only,
}


# ---- the agent


async def run(way: str, root: Path) -> Report:
    """Let an agent work before, while and after something runs out."""
    report = Report()
    model = Model([turn for number in range(3) for turn in turns(number)])
    agent = Agent(model, AgentConfig(tools=[fetch], offload_root_path=root))
    await query(agent, 0, report)
    if report.failures:
        report.problems.append(f"failures before anything ran out: {report.failures}")
    before = dict(agent.context.fs.state.stored)
    free = WAYS[way](root)
    try:
        await query(agent, 1, report)
        report.problems.append("an answer that is not durable was returned")
    except Unrecorded:
        report.answers.append(str(agent.context.items[-1].message.content))
    if not report.failures:
        report.problems.append("the user was not told")
    report.problems += shown(model, agent)
    report.inline = len(agent.context.unrecorded)
    if free is None:
        await refused(agent, model, report)
        return report
    free()
    report.problems += await intact(root, agent.session_id, len(before))
    await query(agent, 2, report)
    if agent.context.unrecorded:
        report.problems.append(f"not recorded though there is room again: {agent.context.unrecorded}")
    items = len(agent.context.items)
    await agent.close()
    report.problems += await intact(root, agent.session_id, len(before))
    async with ContextFileSystem(agent.session_id, root_path=root) as fs:
        report.stored = len(fs.state.stored)
        if len(await fs.items()) != items:
            report.problems.append("the session does not hold what the agent had")
    return report


async def query(agent: Agent, number: int, report: Report) -> None:
    async with aclosing(agent.stream(f"question {number}")) as events:
        async for event in events:
            if isinstance(event, RecordFailed | OffloadFailed):
                name = type(event).__name__
                report.failures[name] = report.failures.get(name, 0) + 1
            elif isinstance(event, Done):
                report.answers.append(event.text)
    if report.answers[number:] != [f"answer {number}"]:
        report.problems.append(f"query {number} was answered with {report.answers[number:]}")


def shown(model: ScriptedModel, agent: Agent) -> list[str]:
    """Say which results the model's last request has neither whole nor as a placeholder of a stored file."""
    sent = json.dumps(model.requests[-1], ensure_ascii=False)
    found = []
    for item in agent.context.items:
        if item.tool_name != "fetch":
            continue
        if item.offloaded and item.id not in agent.context.fs.state.stored:
            found.append(f"{item.id} left without being stored")
        elif json.dumps(item.message.content, ensure_ascii=False) not in sent:
            found.append(f"{item.id} was not sent")
    return found


async def refused(agent: Agent, model: Model, report: Report) -> None:
    """Close what can write no more: that is said, and all is released."""
    try:
        await agent.close()
    except CtxfsError:
        if not model.closed:
            report.problems.append("the model's connections are left open")
        return
    report.problems.append("closing says nothing of what could not be written")


async def intact(root: Path, session_id: str, stored: int) -> list[str]:
    """Read what was stored as another process would."""
    async with ContextFileSystem(session_id, root_path=root, read_only=True) as fs:
        found = [] if len(fs.state.stored) >= stored else ["what was stored is not all there"]
        known = {output(f"n{number}-{part}") for number in range(3) for part in range(3)}
        contents = {item_id: await fs.load(item_id) for item_id in fs.state.stored}
        return found + [f"{name} is not what the tool said" for name in contents if contents[name] not in known]


if __name__ == "__main__":
    print(json.dumps(asdict(anyio.run(run, sys.argv[1], Path(sys.argv[2])))))
