"""A comparison in Python: with contexts and scripted models, its honesty is tested for real."""

import asyncio
import os
import re
import resource
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs.errors import ConfigError
from ctxfs.lab.ab import Arm, Comparison, Session, Settings, Task, run
from ctxfs.lab.ab.directory import SessionDirectory
from ctxfs.messages import ModelRequest, Reply, ToolCall, ToolMessage, UserMessage
from ctxfs.testing import ScriptedModel

pytestmark = pytest.mark.anyio

MODEL = "claude-sonnet-5-5"
NONE: Mapping[str, Any] = {"pricing": None, "window": None, "preview_above_tokens": None}


def tasks(count: int) -> list[Task]:
    return [Task(id=f"t{n}", prompt=f"the code of t{n}", timeout_s=60) for n in range(count)]


async def looks_up(task: Task, session: Session) -> bool:
    """Read a log that has a code in its middle, then say the code: an agent that knows only what it is sent."""
    lines = [f"{task.id} line {n}\n" for n in range(2_000)]
    lines[1_000] = f"CODE {task.id}!\n"
    log = "".join(lines)

    def answered(body: dict[str, Any]) -> str:
        return f"CODE {task.id}!" if f"CODE {task.id}!" in str(body["messages"][2]) else "?"

    model = ScriptedModel([[ToolCall("log", {}, id="c1")], answered], model=MODEL)
    client = session.client(model)
    async with session.context(["log"], model=MODEL) as context:
        await context.add(UserMessage(task.prompt))
        first = await asked(client, await context.messages())
        await context.add(first.message, ToolMessage("c1", "log", log))
        second = await asked(client, await context.messages())
    return second.message.text == f"CODE {task.id}!"


async def asked(client: Any, messages: Any) -> Reply:
    found = [event async for event in client.stream(ModelRequest(messages=tuple(messages), max_tokens=500))]
    assert isinstance(found[-1], Reply)
    return found[-1]


async def compared(folder: Path, arms: Any, solve: Any, count: int = 6, **settings: Any) -> Comparison:
    return await run(tasks(count), arms, solve, Settings(results=folder / "r.jsonl", **settings))


async def test_an_a_a_comparison_shows_no_difference(tmp_path: Path) -> None:
    same = [Arm(name="a", settings=NONE), Arm(name="b", settings=NONE)]
    comparison = await compared(tmp_path, same, looks_up, parallel=2)
    (found,) = comparison.against
    assert (found.arm_solved, found.base_solved, found.pairs) == (6, 6, 6)
    assert found.solved is not None
    assert found.usd is not None
    assert found.solved.low < 0 < found.solved.high
    assert found.usd.low <= 0 <= found.usd.high
    assert found.arm_usd > 0
    assert not comparison.meets(5), "six tasks do not show so much"
    assert "not worse by more than 5 points is not shown" in found.sentence()


@pytest.mark.slow
async def test_an_arm_that_hides_what_the_model_needs_is_found_out(tmp_path: Path) -> None:
    hides = Arm(name="hides", settings={"pricing": None, "preview_above_tokens": 1_000})
    comparison = await compared(tmp_path, ["none", hides], looks_up, count=12)
    (found,) = comparison.against
    assert (found.base_solved, found.arm_solved) == (12, 0)
    assert [one.crashed for one in comparison.figures] == [0, 0], "it answered, and wrongly"
    assert found.solved is not None
    assert found.solved.high < 0
    assert not comparison.meets(50)


async def test_a_crash_in_one_arm_counts_for_this_arm_only(tmp_path: Path) -> None:
    async def crashes(task: Task, session: Session) -> bool:
        if "preview_above_tokens" not in session.settings():  # the default arm
            raise RuntimeError("broken")
        return await looks_up(task, session)

    comparison = await compared(tmp_path, ["none", "default"], crashes, count=4)
    base, arm = comparison.figures
    assert (base.solved, base.crashed, arm.solved, arm.crashed) == (4, 0, 0, 4)
    assert any("broken" in note for note in comparison.notes())


async def test_no_path_of_a_session_needs_quotes(tmp_path: Path) -> None:
    given = ["a b", "a/b", "a-b", "$(id)", "django__django-1"]
    places = list[str]()

    async def looks(task: Task, session: Session) -> bool:
        places.append(session.directory.parent.name)
        return True

    played = [Task(id=name, prompt="p") for name in given]
    await run(played, ["none", "whole"], looks, Settings(results=tmp_path / "r.jsonl", keep=tmp_path / "kept"))
    assert len(set(places)) == 2 * len(given)
    assert all(re.fullmatch(r"[\w.-]+", place) for place in places)
    assert "django__django-1-0-0" in places


async def test_a_model_that_loops_is_stopped_by_the_budget(tmp_path: Path) -> None:
    async def loops(task: Task, session: Session) -> bool:
        client = session.client(ScriptedModel(["again"] * 10_000, model=MODEL))
        while True:
            await asked(client, [UserMessage(task.prompt * 1_000)])

    comparison = await compared(tmp_path, ["none", "default"], loops, budget_usd=0.1)
    assert 0.05 < comparison.spent_usd <= 0.1
    assert [one.outcome for one in comparison.sessions] == ["budget"], "nothing is begun after it"
    assert "ended by the budget: left out" in comparison.text()
    other = tmp_path / "other"
    other.mkdir()
    limited = await compared(other, ["none", "default"], loops, count=2, budget_usd=1.0, session_usd=0.05)
    assert [one.outcome for one in limited.sessions] == ["limit"] * 4
    assert all(one.usd <= 0.05 for one in limited.sessions)


async def test_a_pair_that_cannot_be_afforded_is_not_begun(tmp_path: Path) -> None:
    full = await compared(tmp_path, ["none", "whole"], looks_up, count=3)
    (tmp_path / "r.jsonl").unlink()
    dearest = max(one.usd for one in full.sessions)
    most = max(one.most_usd for one in full.sessions)
    budget_usd = 2.5 * dearest + most
    comparison = await compared(tmp_path, ["none", "whole"], looks_up, count=3, budget_usd=budget_usd)
    assert comparison.spent_usd <= budget_usd
    assert (len(comparison.sessions), len(comparison.counted), comparison.unplayed) == (2, 2, 4)


async def test_what_is_done_is_kept_when_it_is_interrupted(tmp_path: Path) -> None:
    played = list[str]()
    fourth = anyio.Event()

    async def slow(task: Task, session: Session) -> bool:
        played.append(task.id)
        if len(played) == 4:
            fourth.set()
            await anyio.sleep_forever()
        return await looks_up(task, session)

    with anyio.move_on_after(20) as limit:
        async with anyio.create_task_group() as group:
            group.start_soon(compared, tmp_path, ["none", "whole"], slow)
            await fourth.wait()
            group.cancel_scope.cancel()
    assert not limit.cancelled_caught
    comparison = await compared(tmp_path, ["none", "whole"], slow)
    assert len(played) == 4 + 9, "three of the twelve sessions were kept"
    assert comparison.unplayed == 0
    with pytest.raises(ConfigError, match="begun with other tasks"):
        await compared(tmp_path, ["none", "whole"], slow, count=5)


async def test_a_session_that_ends_as_the_run_is_interrupted_is_kept(tmp_path: Path) -> None:
    played = list[str]()

    async def interrupted_at_its_end(task: Task, session: Session) -> bool:
        played.append(task.id)
        solved = await looks_up(task, session)
        if len(played) == 1:
            group.cancel_scope.cancel()
        return solved

    async with anyio.create_task_group() as group:
        group.start_soon(compared, tmp_path, ["none", "whole"], interrupted_at_its_end)
    assert len(played) == 1
    comparison = await compared(tmp_path, ["none", "whole"], interrupted_at_its_end)
    assert comparison.unplayed == 0
    assert len(played) == len(comparison.sessions), "none was played twice"


def test_a_session_that_ends_as_all_tasks_are_cancelled_is_kept(tmp_path: Path) -> None:
    """As the end of an event loop does it: no scope holds that back."""
    played = list[str]()

    async def cancelled_at_its_end(task: Task, session: Session) -> bool:
        played.append(task.id)
        solved = await looks_up(task, session)
        if len(played) == 1:
            for one in asyncio.all_tasks():
                one.cancel()
        return solved

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(compared(tmp_path, ["none", "whole"], cancelled_at_its_end))
    assert len(played) == 1
    comparison = asyncio.run(compared(tmp_path, ["none", "whole"], cancelled_at_its_end))
    assert comparison.unplayed == 0
    assert len(played) == len(comparison.sessions), "none was played twice"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where sessions have their directories."""
    found = tmp_path / "temporary"
    found.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(found))
    return found


@pytest.mark.parametrize("room", [0, 10])
def test_nothing_is_left_of_a_session_whose_result_cannot_be_written(
    room: int, tmp_path: Path, temporary: Path
) -> None:
    played = list[Path]()

    async def fills_the_disk(task: Task, session: Session) -> bool:
        played.append(session.directory)
        status = await anyio.Path(tmp_path / "r.jsonl").stat()
        resource.setrlimit(resource.RLIMIT_FSIZE, (status.st_size + room, most))
        return True

    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(ConfigError, match=r"cannot be written .*: make room"):
            anyio.run(compared, tmp_path, ["none", "whole"], fills_the_disk)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    assert len(played) == 1
    assert played[0].is_relative_to(temporary)
    assert list(temporary.iterdir()) == []


def test_nothing_is_left_of_a_session_whose_directory_cannot_be_copied(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "task").mkdir()
    os.mkfifo(tmp_path / "task" / "pipe")
    task = Task(id="t", prompt="", directory=tmp_path / "task")
    with pytest.raises(ConfigError, match=r"a copy of .* cannot be made: .* is a named pipe"):
        anyio.run(run, [task], ["none", "whole"], looks_up, Settings(results=tmp_path / "r.jsonl"))
    assert list(temporary.iterdir()) == []


def test_nothing_is_left_of_a_session_whose_place_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="a session's directory cannot be made: "):
        SessionDirectory.made(tmp_path / "file", "name", None)


async def test_time_and_checks_decide(tmp_path: Path) -> None:
    async def solve(task: Task, session: Session) -> str:
        await anyio.Path(session.directory / "answer.txt").write_text("42\n")
        if task.id == "slow":
            await anyio.sleep_forever()
        return "42"

    def is_42(task: Task, said: Any) -> bool:
        assert task.id == "callable"
        return bool(said == "42")

    given = [
        Task(id="command", prompt="p", check=("grep", "-q", "42", "answer.txt")),
        Task(id="fails", prompt="p", check=("grep", "-q", "43", "answer.txt")),
        Task(id="callable", prompt="p", check=is_42),
        Task(id="slow", prompt="p", check=is_42, timeout_s=0.05),
        Task(id="undecided", prompt="p"),
    ]
    comparison = await run(given, ["none", "default"], solve, Settings(results=tmp_path / "r.jsonl"))
    outcomes = {(one.task, one.outcome) for one in comparison.sessions}
    assert outcomes == {
        ("command", "solved"),
        ("fails", "unsolved"),
        ("callable", "solved"),
        ("slow", "timeout"),
        ("undecided", "failed"),
    }
    assert [one.pairs for one in comparison.against] == [4]
    with pytest.raises(ConfigError, match="through the proxy only"):
        await run(given, ["none", "clear:5k"], solve, Settings(results=tmp_path / "other.jsonl"))
