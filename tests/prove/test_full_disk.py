"""An agent's disk is full, read-only or out of something: nothing stored is lost, the run goes on, the user is told."""

from pathlib import Path

import pytest

from ctxfs.context.context import Context
from ctxfs.errors import WriteFailed
from ctxfs.eviction.events import ContextEvent, RecordFailed
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.local import LocalStore
from failing_fs import as_port
from prove.damaged_contents import Shut
from prove.faults import ERRORS, Fault, FaultyFileSystem
from prove.full_disk import WAYS
from prove.part_disk import agent_with_a_full_disk, agent_with_a_read_only_disk, damaged, why_not

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("way", WAYS)
def test_the_run_goes_on_to_its_answer_which_is_not_returned(way: str, tmp_path: Path) -> None:
    reason = why_not(way)
    if reason is not None:
        pytest.skip(f"NOT TESTED on a disk without {way} (limits of the process are): {reason}")
    report = agent_with_a_full_disk(way, tmp_path)
    assert report.problems == []
    assert report.failures["RecordFailed"] > 0
    assert report.inline > 0


def test_a_disk_that_is_read_only_from_the_start(tmp_path: Path) -> None:
    reason = why_not("bytes")
    if reason is not None:
        pytest.skip(f"NOT TESTED on a read-only disk: {reason}")
    assert agent_with_a_read_only_disk(tmp_path) == []


@pytest.mark.anyio
@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT", "EROFS"])
async def test_a_context_whose_disk_refuses_keeps_all_and_says_so(tmp_path: Path, error: str) -> None:
    """Needs no privilege: the port refuses every change from one moment on."""
    port = FaultyFileSystem(Fault(kind="error", at=1, error=ERRORS[error], for_good=True))
    port.armed = False
    told: list[ContextEvent] = []
    store = LocalStore(tmp_path, "session_1", fs=as_port(port))
    fs = ContextFileSystem("session_1", root_path=tmp_path, store=store)
    context = Context(fs, keep_recent={"fetch": 1}, on_event=told.append)
    await context.open()
    for number in range(6):
        port.armed = number in {2, 3}
        call = {"type": "tool_use", "id": f"call_{number}", "name": "fetch", "input": {}}
        await context.add(UserMessage("go on"), AssistantMessage((call,)))
        await context.add(ToolMessage(f"call_{number}", "fetch", f"{number} line\n" * 2000))
        messages = await context.messages()
        if port.armed:
            assert any(isinstance(event, RecordFailed) for event in told)
            assert context.unrecorded
            assert messages[-1].content == f"{number} line\n" * 2000
        else:
            assert not context.unrecorded
    port.armed = True
    with pytest.raises(WriteFailed):
        await context.close()
    async with ContextFileSystem("session_1", root_path=tmp_path) as again:
        assert [await again.load(f"call_{n}") for n in range(6)] == [f"{n} line\n" * 2000 for n in range(6)]
        assert (await again.verify()).ok


def test_a_content_that_the_disk_has_damaged_or_lost_keeps_no_session_shut() -> None:
    contents, found = damaged(range(1, 5))
    assert found == []
    assert contents > 20
    assert damaged([1], kind=Shut)[1]
