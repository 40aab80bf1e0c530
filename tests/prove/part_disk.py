"""Part: an agent whose disk is full or read-only; what was stored stays, the run goes on, the user is told.

And sessions of which the disk has damaged or lost a content.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from ctxfs import Agent, AgentConfig
from ctxfs.errors import CtxfsError
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.testing import ScriptedModel
from prove import full_disk
from prove.damaged_contents import Shut, examine
from prove.full_disk import Report
from prove.parts import MEMORY, Part, Result

__all__ = ["NEEDS_MOUNT", "PART", "agent_with_a_full_disk", "agent_with_a_read_only_disk", "damaged", "why_not"]

NEEDS_MOUNT = {"bytes": ("tmpfs", "size=2m"), "inodes": ("tmpfs", "nr_inodes=64"), "read-only": ("ext4", "loop")}
IMAGE_BYTES = 16 << 20
DAMAGED_SESSIONS = 400
TESTS = str(Path(__file__).resolve().parent.parent)


def why_not(way: str) -> str | None:
    """Say why this cannot be tried here; None when it can."""
    if way not in NEEDS_MOUNT:
        return None
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return "mounting needs root"
    if way == "read-only" and shutil.which("mkfs.ext4") is None:
        return "mkfs.ext4 is not installed"
    try:
        with tempfile.TemporaryDirectory() as base, _mounted(way, Path(base)):
            return None
    except subprocess.CalledProcessError as error:
        return f"mounting is refused: {error.stderr.decode().strip()}"


@contextmanager
def _mounted(way: str, base: Path) -> Iterator[Path]:
    """Mount what the way needs, and take it away again."""
    kind, options = NEEDS_MOUNT[way]
    root, device = base / "root", "none"
    root.mkdir(exist_ok=True)
    if kind == "ext4":
        image = base / "image"
        device = str(image)
        if not image.exists():
            with image.open("wb") as file:
                file.truncate(IMAGE_BYTES)
            subprocess.run(["mkfs.ext4", "-q", device], check=True, capture_output=True)
    subprocess.run(["mount", "-t", kind, "-o", options, device, str(root)], check=True, capture_output=True)
    try:
        yield root
    finally:
        subprocess.run(["umount", str(root)], check=True, capture_output=True)


def agent_with_a_full_disk(way: str, base: Path) -> Report:
    """Run the agent in a process of its own."""
    if way not in NEEDS_MOUNT:
        return _run(way, base)
    with _mounted(way, base) as root:
        report = _run(way, root)
    if way == "read-only":  # mounted again, all that was stored before must be there
        with _mounted(way, base) as root:
            (session,) = [path.name for path in root.iterdir() if path.name.startswith("session_")]
            report.problems += anyio.run(full_disk.intact, root, session, 2)
            report.problems += anyio.run(_goes_on, root, session)
    return report


def _run(way: str, root: Path) -> Report:
    command = [sys.executable, full_disk.__file__, way, str(root)]
    environment = {**os.environ, "PYTHONPATH": TESTS}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return Report(problems=[f"{way}: {done.stderr[-600:]}"])
    return Report(**json.loads(done.stdout))


async def _goes_on(root: Path, session_id: str) -> list[str]:
    config = AgentConfig(offload_root_path=root, session_id=session_id)
    async with Agent(ScriptedModel(["here again"]), config) as agent:
        answer = await agent.query("Still there?")
    async with ContextFileSystem(session_id, root_path=root) as fs:
        problems = [str(problem) for problem in (await fs.verify()).problems]
    return problems if answer == "here again" else [*problems, "the session does not go on"]


def agent_with_a_read_only_disk(base: Path) -> list[str]:
    """Open sessions on a disk that was read-only from the start; say what should not be so. Needs root."""
    with _mounted("bytes", base) as root:
        model = ScriptedModel([*full_disk.turns(0)])
        session = anyio.run(_some_session, root, model)
        subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True, capture_output=True)
        found = anyio.run(full_disk.intact, root, session, 1)
        for session_id in (session, None):
            config = AgentConfig(offload_root_path=root, session_id=session_id)
            agent = Agent(ScriptedModel(["never"]), config)
            try:
                anyio.run(agent.query, "hello")
                found.append("an agent that can write nothing says nothing")
            except CtxfsError as error:
                if "Read-only" not in str(error):
                    found.append(f"the user is told something else: {error}")
        return found


async def _some_session(root: Path, model: ScriptedModel) -> str:
    async with Agent(model, AgentConfig(tools=[full_disk.fetch], offload_root_path=root)) as agent:
        await agent.query("question")
        return agent.session_id


def damaged(numbers: Iterable[int], *, kind: type[ContextFileSystem] = ContextFileSystem) -> tuple[int, list[str]]:
    """Damage every content of random sessions, one at a time: how many there were, and what should not be so."""
    contents, found = 0, list[str]()
    for number in numbers:
        with tempfile.TemporaryDirectory(dir=MEMORY) as base:
            count, problems = anyio.run(partial(examine, number, Path(base), kind=kind))
        contents += count
        found += problems
    return contents, found


def run(budget_s: float, state_dir: Path) -> Result:
    """Try every way in which a disk can refuse, then damage what it holds, in as many sessions as there is time for."""
    ends_at = time.monotonic() + budget_s
    figures: dict[str, int | float | str] = {}
    violations: list[str] = []
    for way in full_disk.WAYS:
        reason = why_not(way)
        if reason is not None:
            figures[way] = f"NOT PROVED: {reason}"
            continue
        with tempfile.TemporaryDirectory() as base:
            report = agent_with_a_full_disk(way, Path(base))
        violations += [f"{way}: {problem}" for problem in report.problems]
        figures[way] = f"{len(report.answers)} answers, {sum(report.failures.values())} failures told"
    if why_not("bytes") is None:
        with tempfile.TemporaryDirectory() as base:
            violations += [f"read-only from the start: {found}" for found in agent_with_a_read_only_disk(Path(base))]
    progress = state_dir / "damaged.json"
    kept: dict[str, Any] = (
        json.loads(progress.read_text()) if progress.exists() else {"sessions": 0, "contents": 0, "violations": []}
    )
    while kept["sessions"] < DAMAGED_SESSIONS and time.monotonic() < ends_at:
        contents, found = damaged([kept["sessions"]])
        kept = {
            "sessions": kept["sessions"] + 1,
            "contents": kept["contents"] + contents,
            "violations": [*kept["violations"], *found],
        }
        progress.write_text(json.dumps(kept))
    return Result(
        figures={**figures, "contents damaged": kept["contents"], "in sessions": kept["sessions"]},
        violations=[*violations, *kept["violations"]],
        controls={"one damaged content keeps the session shut": bool(damaged([0], kind=Shut)[1])},
        complete=kept["sessions"] >= DAMAGED_SESSIONS,
    )


PART = Part(name="disk", title="disks that are full, read-only, or out of something", run=run, share=0.2)
