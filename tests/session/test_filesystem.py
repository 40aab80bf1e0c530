"""The session's file system: durable before acknowledged, exact, and the same after every end."""

import asyncio
import json
import math
import os
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contents import CONTENTS
from ctxfs.errors import (
    ConfigError,
    InvalidRecord,
    SessionClosed,
    SessionLocked,
    SessionNotFound,
    UnknownItem,
    WriteFailed,
)
from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContentRange, ItemType
from ctxfs.messages.messages import Content
from ctxfs.messages.names import ENVELOPE, TEXT, Layout
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.local import LocalStore, remove_session
from ctxfs.storage.memory import MemoryStore
from failing_fs import FailingFileSystem, as_port
from prove.cancelling import cancelled_at
from session_items import PLACEHOLDER, evicted, tool_result, user_message

pytestmark = pytest.mark.anyio


def bytes_of(path: str) -> bytes:
    return Path(path).read_bytes()


def written_at(path: str) -> int:
    return Path(path).stat().st_mtime_ns


LONG = "a line of a long result\n" * 1000


@pytest.mark.not_measured
@pytest.mark.parametrize("layout", [ENVELOPE, TEXT])
@pytest.mark.parametrize("value", [math.nan, date(2026, 1, 1), {1: 2}, b"x", (1,)])
async def test_metadata_that_would_not_read_back_equal_is_refused(tmp_path: Path, value: Any, layout: Layout) -> None:
    async with ContextFileSystem("session_1", root_path=tmp_path, layout=layout) as fs:
        first = tool_result(fs, "one")
        with pytest.raises(InvalidRecord, match=r"metadata\['note'\]"):
            await fs.writer.store([first], metadata={first.id: {"note": value}})
        await fs.writer.store([first], metadata={first.id: {"note": 2**70}})
    async with ContextFileSystem("session_1", root_path=tmp_path) as fs:
        assert fs.state.stored[first.id].metadata["note"] == 2**70
        assert (await fs.verify()).ok


@pytest.mark.parametrize("long", ["", LONG])
async def test_blocks_that_would_not_read_back_equal_are_refused(tmp_path: Path, long: str) -> None:
    async with ContextFileSystem("session_1", root_path=tmp_path) as fs:
        for value in (math.nan, date(2026, 1, 1), {1: 2}, b"x", (1,)):
            with pytest.raises(InvalidRecord, match=r"\['note'\]"):
                await fs.writer.add([user_message(fs, ({"type": "text", "text": long, "note": value},))])
        await fs.writer.add([user_message(fs, ({"type": "text", "text": long, "note": 2**70},))])
    async with ContextFileSystem("session_1", root_path=tmp_path) as fs:
        (item,) = await fs.items()
        assert item.message.content == ({"type": "text", "text": long, "note": 2**70},)


async def test_a_relative_root_is_that_of_the_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    fs = ContextFileSystem("session_1", root_path="sessions")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert fs.session_path == tmp_path / "sessions" / "session_1"
    async with fs:
        await fs.writer.add([user_message(fs, "hello")])
    assert await anyio.Path(tmp_path / "sessions" / "session_1" / "journal.jsonl").exists()


async def test_offload_writes_the_specs_file_and_returns_its_path(tmp_path: Path) -> None:
    async with ContextFileSystem("session_1", root_path=tmp_path, clock=lambda: 1705300100.9) as fs:
        path = await fs.offload(tool_result(fs, "... 原始内容 ...", "call_abc123"))
        assert path == str(tmp_path / "session_1" / "tool_result" / "Read" / "call_abc123.json")
        assert json.loads(bytes_of(path)) == {
            "schema_version": "1.0",
            "item_id": "call_abc123",
            "item_type": "tool_result",
            "offloaded_at": 1705300100,
            "metadata": {"tool_name": "Read", "encoding": "text"},
            "content": "... 原始内容 ...",
        }
        assert await fs.load("call_abc123") == "... 原始内容 ..."
        assert fs.find(path) == "call_abc123"


@given(contents=st.lists(CONTENTS, min_size=1, max_size=5), text_layout=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_any_session_resumes_as_it_was(contents: list[Content], text_layout: bool) -> None:
    store = MemoryStore("session_1")
    layout = TEXT if text_layout else ENVELOPE
    async with ContextFileSystem("session_1", store=store, inline_limit_chars=40, layout=layout) as fs:
        items = [tool_result(fs, content) for content in contents]
        await fs.writer.add(items)
        await fs.writer.evict([(item, evicted(fs, item), "keep_recent") for item in items[::2]])
        expected = [evicted(fs, item) if n % 2 == 0 else item for n, item in enumerate(items)]
        assert list(await fs.items()) == expected
    async with ContextFileSystem("session_1", store=store.peer()) as fs:
        assert list(await fs.items()) == expected
        for item in items[::2]:
            assert await fs.load(item.id) == item.message.content
        assert (await fs.verify()).problems == ()
        assert fs.recovery.clean


async def test_a_session_that_was_never_closed_loses_nothing(tmp_path: Path) -> None:
    store = MemoryStore("session_1")
    fs = ContextFileSystem("session_1", store=store)
    await fs.open()
    item = tool_result(fs, LONG)
    await fs.writer.add([user_message(fs, "hello"), item])
    await fs.writer.evict([(item, evicted(fs, item), "keep_recent")])
    await fs.writer.record_call(Usage(input_tokens=7), "model")
    reader = ContextFileSystem("session_1", store=store.peer(), read_only=True)
    async with reader:
        assert [entry.id for entry in await reader.items()] == ["msg_001", "call_1"]
        assert await reader.load("call_1") == LONG
        assert [call.usage.input_tokens for call in reader.state.calls] == [7]
        with pytest.raises(SessionClosed):
            await reader.writer.add([])
        with pytest.raises(SessionClosed):
            reader.writer.allocate(ItemType.USER_MESSAGE, None)


async def test_large_content_is_stored_once(tmp_path: Path) -> None:
    async with ContextFileSystem(root_path=tmp_path) as fs:
        large, small = tool_result(fs, LONG, "large"), tool_result(fs, "small", "small")
        await fs.writer.add([large, small])
        assert set(fs.state.stored) == {"large"}
        before = written_at(str(fs.session_path / large.name))
        await fs.writer.evict([(large, evicted(fs, large), "r"), (small, evicted(fs, small), "r")])
        assert set(fs.state.stored) == {"large", "small"}
        assert written_at(str(fs.session_path / large.name)) == before
        assert "a line of a long" not in (fs.session_path / "journal.jsonl").read_text()


async def test_repeated_ids_never_overwrite(tmp_path: Path) -> None:
    async with ContextFileSystem(root_path=tmp_path) as fs:
        items = [tool_result(fs, f"content {n}", raw) for n, raw in enumerate(["a", "a", "A", "../a", "a"])]
        for item in items:
            await fs.offload(item)
        for n, item in enumerate(items):
            assert await fs.load(item.id) == f"content {n}"


async def test_what_only_repeats_stored_content_is_not_stored_again(tmp_path: Path) -> None:
    async with ContextFileSystem(root_path=tmp_path) as fs:
        source = ContentRange(item_id="call_1", path=str(fs.session_path / "x"), first_line=1, last_line=2)
        item = replace(tool_result(fs, LONG), source=source)
        await fs.writer.add([item])
        await fs.writer.evict([(item, evicted(fs, item), "r")])
        assert dict(fs.state.stored) == {}


async def test_restored_content_is_back(tmp_path: Path) -> None:
    async with ContextFileSystem(root_path=tmp_path) as fs:
        item = tool_result(fs, LONG)
        await fs.writer.add([item])
        await fs.writer.evict([(item, evicted(fs, item), "r")])
        await fs.restore(item.id)
        assert await fs.items() == (item,)
        with pytest.raises(UnknownItem):
            await fs.restore("never")


async def test_an_archive_takes_the_place_of_what_it_holds(tmp_path: Path) -> None:
    async with ContextFileSystem("session_1", root_path=tmp_path) as fs:
        first, second, third = (user_message(fs, text) for text in ("one", "two", "three"))
        await fs.writer.add([first, second, third])
        summary = user_message(fs, "summary")
        await fs.writer.archive(summary, "one\ntwo\n", [first.id, second.id], before=third.id, reason="compaction")
    async with ContextFileSystem("session_1", root_path=tmp_path) as fs:
        assert [item.id for item in await fs.items()] == [summary.id, third.id]
        assert (await fs.items())[0].message.content == "summary"
        assert await fs.load(summary.id) == "one\ntwo\n"
        assert fs.state.archived.get(first.id) == summary.id


async def test_paths_are_known_by_the_index_alone(tmp_path: Path) -> None:
    async with ContextFileSystem("session_1", root_path=tmp_path / "a") as fs:
        item = tool_result(fs, LONG)
        path = await fs.offload(item)
        await fs.writer.add([evicted(fs, item)])
        assert fs.find(item.name) == item.id
        for unknown in (
            "/etc/passwd",
            str(fs.session_path / "index.json"),
            str(fs.session_path / f"x/../{item.name}"),
            "",
            path + "/",
        ):
            assert fs.find(unknown) is None
    (tmp_path / "a").rename(tmp_path / "b")
    async with ContextFileSystem("session_1", root_path=tmp_path / "b") as fs:
        assert fs.find(path) == item.id  # placeholders still say where it was
        assert (await fs.items())[0].offload_path == str(tmp_path / "b" / "session_1" / item.name)


async def test_sessions_that_are_not_there_closed_or_taken(tmp_path: Path) -> None:
    fs = ContextFileSystem("session_1", root_path=tmp_path)
    with pytest.raises(SessionClosed):
        await fs.load("a")
    with pytest.raises(SessionNotFound):
        await fs.open(create=False)
    with pytest.raises(SessionNotFound):
        await ContextFileSystem("session_1", root_path=tmp_path, read_only=True).open()
    await fs.open()
    await fs.open()
    with pytest.raises(SessionLocked):
        await ContextFileSystem("session_1", root_path=tmp_path).open()
    with pytest.raises(UnknownItem):
        await fs.load("a")
    with pytest.raises(UnknownItem):
        fs.reader("a")
    await fs.close()
    await fs.close()
    with pytest.raises(SessionClosed):
        await fs.writer.flush()
    await remove_session(tmp_path, "session_1")
    with pytest.raises(ConfigError):
        ContextFileSystem("../session_1", root_path=tmp_path)
    with pytest.raises(ConfigError, match="session id 5: use letters"):
        ContextFileSystem(5, root_path=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="sessions cannot be in 5: give the path"):
        ContextFileSystem(root_path=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "value"), [("inline_limit_chars", -1), ("inline_limit_chars", True), ("read_only", 1), ("clock", 5)]
)
def test_a_setting_of_the_wrong_type_is_refused_by_name(tmp_path: Path, setting: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{setting} is {value}"):
        ContextFileSystem("session_1", root_path=tmp_path, **{setting: value})


async def test_a_layout_is_named_as_in_the_settings_of_an_agent(tmp_path: Path) -> None:
    async with ContextFileSystem(root_path=tmp_path, layout="text") as fs:
        path = await fs.offload(tool_result(fs, "what the tool said"))
    assert await anyio.Path(path).read_text() == "what the tool said"


async def test_every_writer_has_its_epoch(tmp_path: Path) -> None:
    store = MemoryStore("session_1")
    for _ in range(3):
        async with ContextFileSystem("session_1", store=store):
            pass
    assert (await reader_of(store)).recovery.clean
    log = [json.loads(line)["rec"] for line in bytes(store.disk.log).splitlines()]
    opened = [part for rec in log for part in rec.get("records", [rec]) if part["type"] == "writer_opened"]
    assert [part["epoch"] for part in opened] == [1, 2, 3]


async def reader_of(store: MemoryStore) -> ContextFileSystem:
    fs = ContextFileSystem("session_1", store=store.peer(), read_only=True)
    await fs.open()
    return fs


async def test_a_reader_follows_the_writer(tmp_path: Path) -> None:
    async with ContextFileSystem("session_1", root_path=tmp_path) as fs:
        async with ContextFileSystem("session_1", root_path=tmp_path, read_only=True) as reader:
            for number in range(5):
                await fs.writer.add([user_message(fs, f"message {number}")])
                await reader.refresh()
                assert len(await reader.items()) == number + 1
            with (fs.session_path / "journal.jsonl").open("ab") as log:
                log.write(b'{"v":1,"seq":99')  # the writer is at it
            await reader.refresh()
            assert len(await reader.items()) == 5
        async with ContextFileSystem("session_1", root_path=tmp_path, read_only=True) as reader:
            assert reader.recovery.clean
        os.truncate(fs.session_path / "journal.jsonl", (fs.session_path / "journal.jsonl").stat().st_size - 15)


@pytest.mark.both_loops
async def test_concurrent_offloads_share_commits_and_all_arrive(tmp_path: Path) -> None:
    calls = FailingFileSystem()
    store = LocalStore(tmp_path, "session_1", fs=as_port(calls))
    async with ContextFileSystem("session_1", root_path=tmp_path, store=store) as fs:
        items = [tool_result(fs, f"content {n}", f"call_{n}") for n in range(20)]
        calls.log.clear()
        async with anyio.create_task_group() as tasks:
            for item in items:
                tasks.start_soon(fs.offload, item)
                tasks.start_soon(fs.offload, item)
        assert calls.log.count("sync") < 20 + 16  # one a file, and a few for all
        for n, item in enumerate(items):
            assert await fs.load(item.id) == f"content {n}"


@pytest.mark.both_loops
async def test_one_callers_failure_is_not_anothers(tmp_path: Path) -> None:
    async with ContextFileSystem(root_path=tmp_path) as fs:
        good = [tool_result(fs, f"content {n}", f"call_{n}") for n in range(6)]
        bad = tool_result(fs, ({"type": "x", "value": float("nan")},), "bad")
        failed: list[str] = []

        async def offload(item_id: str) -> None:
            try:
                await fs.offload(next(item for item in (*good, bad) if item.id == item_id))
            except InvalidRecord:
                failed.append(item_id)

        async with anyio.create_task_group() as tasks:
            for item in (*good[:3], bad, *good[3:]):
                tasks.start_soon(offload, item.id)
        assert failed == ["bad"]
        assert set(fs.state.stored) == {item.id for item in good}


@pytest.mark.slow
async def test_a_failed_write_changes_nothing_whatever_call_fails(tmp_path: Path) -> None:
    number = 0
    finished = False
    while not finished:
        number += 1
        finished = await evict_with_failure(tmp_path / str(number), number)
    assert number > 20


async def evict_with_failure(root: Path, failing: int) -> bool:
    """Evict with one failing call; say whether the commit has fewer calls than that."""
    calls = FailingFileSystem(lambda number, name: number == failing)
    calls.armed = False
    fs = ContextFileSystem("session_1", root_path=root, store=LocalStore(root, "session_1", fs=as_port(calls)))
    await fs.open()
    item = tool_result(fs, "small")
    await fs.writer.add([item])
    step = (item, evicted(fs, item), "keep_recent")
    calls.armed = True
    try:
        await fs.writer.evict([step])
    except WriteFailed:
        assert await fs.items() == (item,)
        assert dict(fs.state.stored) == {}
        calls.armed = False
        async with ContextFileSystem("session_1", root_path=root, read_only=True) as reader:
            assert await reader.items() == (item,)
        await fs.writer.evict([step])
    calls.armed = False
    assert await fs.items() == (evicted(fs, item),)
    assert await fs.load(item.id) == "small"
    await fs.close()
    async with ContextFileSystem("session_1", root_path=root) as again:
        assert await again.items() == (evicted(again, item),)
        assert (await again.verify()).ok
    return len(calls.log) < failing


@pytest.mark.not_measured
@pytest.mark.both_loops
async def test_a_cancelled_eviction_is_whole_or_absent(tmp_path: Path, anyio_backend_name: str) -> None:
    async with ContextFileSystem("session_1", root_path=tmp_path) as fs:
        items = [tool_result(fs, f"content {n}", f"call_{n}") for n in range(20)]
        await fs.writer.add(items)
        for number, item in enumerate(items):
            eviction = partial(fs.writer.evict, [(item, evicted(fs, item), "r")])
            await cancelled_at(f"scope on {anyio_backend_name}", number + 1, eviction)
        now = await fs.items()
        for item, entry in zip(items, now, strict=True):
            if entry.offloaded:
                assert await fs.load(item.id) == item.message.content
            else:
                assert entry == item
    async with ContextFileSystem("session_1", root_path=tmp_path) as again:
        assert await again.items() == now
        assert again.recovery.clean


@pytest.mark.both_loops
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_task_cancel_waits_for_the_outcome_and_cancels_once(tmp_path: Path) -> None:
    async with ContextFileSystem("session_1", root_path=tmp_path) as fs:
        for number in range(20):
            item = tool_result(fs, f"content {number}", f"call_{number}")
            task = asyncio.create_task(fs.offload(item))
            for _ in range(number):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled() or task.done()
            async with ContextFileSystem("session_1", root_path=tmp_path, read_only=True) as reader:
                assert set(reader.state.stored) == set(fs.state.stored)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await fs.offload(tool_result(fs, "late", "late"))


@pytest.mark.not_measured
async def test_the_index_is_there_from_the_first_moment_and_rewritten_seldom(tmp_path: Path) -> None:
    calls = FailingFileSystem()
    store = LocalStore(tmp_path, "session_1", fs=as_port(calls), durability="process")
    async with ContextFileSystem("session_1", root_path=tmp_path, store=store) as fs:
        index = fs.session_path / "index.json"
        assert json.loads(index.read_bytes())["items"] == []
        for number in range(300):
            await fs.offload(tool_result(fs, "x", f"call_{number}"))
        assert calls.log.count("rename") < 12
        await fs.writer.flush()
        entries = json.loads(index.read_bytes())["items"]
        assert [entry["item_id"] for entry in entries] == [f"call_{number}" for number in range(300)]
        assert entries[0]["name"] == "tool_result/Read/call_0.json"
        before = index.stat().st_mtime_ns
        await fs.writer.flush()
        assert index.stat().st_mtime_ns == before


@pytest.mark.not_measured
async def test_the_index_lags_behind_by_half_of_itself_at_most() -> None:
    store = MemoryStore("session_1")
    async with ContextFileSystem("session_1", store=store) as fs:
        lags = []
        for number in range(200):
            await fs.offload(tool_result(fs, "x", f"call_{number}"))
            entries = len(json.loads(store.disk.files["index.json"])["items"])
            lags.append(number + 1 - entries)
            assert lags[-1] < max(32, entries // 2)
        assert max(lags) > 31  # and is not rewritten each time


async def test_verify_names_every_damage(tmp_path: Path) -> None:
    async with ContextFileSystem("session_1", root_path=tmp_path) as fs:
        items = [tool_result(fs, f"content {n}", f"call_{n}") for n in range(3)]
        await fs.writer.add(items)
        await fs.writer.store(items)
        await fs.writer.flush()
        assert await fs.verify() == type(await fs.verify())(checked=3, problems=())
        first, second = (fs.session_path / item.name for item in items[:2])
        first.write_bytes(first.read_bytes().replace(b"content 0", b"content X"))
        second.unlink()
        (fs.session_path / "index.json").write_text("{}")
        report = await fs.verify()
        assert not report.ok
        assert [problem.name for problem in report.problems] == [items[0].name, items[1].name, "index.json"]


async def test_an_index_that_cannot_be_written_stops_nothing_but_flush(tmp_path: Path) -> None:
    async with ContextFileSystem("session_1", root_path=tmp_path) as fs:
        (fs.session_path / "index.json").unlink()
        (fs.session_path / "index.json").mkdir()
        for number in range(40):
            await fs.offload(tool_result(fs, "x", f"call_{number}"))
        with pytest.raises(WriteFailed):
            await fs.writer.flush()
        (fs.session_path / "index.json").rmdir()
        await fs.writer.flush()
        assert len(fs.state.stored) == 40


async def test_a_replaced_item_stands_in_its_new_form_until_it_is_removed(tmp_path: Path) -> None:
    async with ContextFileSystem(root_path=tmp_path) as fs:
        item = tool_result(fs, ({"type": "text", "text": "x"},))
        await fs.writer.add([item])
        await fs.writer.store([item])
        await fs.writer.evict([(item, evicted(fs, item), "r")])
        assert (await fs.items())[0].message.content == PLACEHOLDER
        await fs.writer.remove([item.id], reason="r")
        assert await fs.items() == ()
        assert isinstance(fs.state.stored[item.id], Stored)
        assert fs.state.stored[item.id].tool_name == "Read"
