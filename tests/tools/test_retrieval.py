import json
import re
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import pytest
from anyio import to_thread
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.errors import CorruptContent, WorkLimitReached
from ctxfs.messages.items import ContentRange
from ctxfs.messages.messages import Content
from ctxfs.messages.tokens import default_counter
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.memory import MemoryStore
from ctxfs.text.steps import CpuBudget
from ctxfs.tools import ToolResult, read_tool, recall_tools, retrieval_tools
from ctxfs.tools.decorator import _Arguments
from ctxfs.tools.paging import MAX_LINE_CHARS
from ctxfs.tools.search.contents import in_order
from ctxfs.tools.search.line_pattern import MAX_CPU_S, LinePattern
from ctxfs.tools.search.page import grep_page
from ctxfs.tools.stored import Scope
from session_items import tool_result

pytestmark = pytest.mark.anyio

LOG = [f"12:00:{n % 60:02} {'ERROR' if n % 100 == 0 else 'info'} step {n}" for n in range(1, 1001)]


class Session:
    """A session with its tools, as a model uses them."""

    def __init__(self, fs: ContextFileSystem, max_tokens: int = 4_000) -> None:
        self.fs = fs
        self.max_tokens = max_tokens
        self.tools = {tool.name: tool for tool in retrieval_tools(fs, max_tokens=max_tokens)}

    async def store(self, content: Content, raw_id: str = "call_1") -> str:
        return await self.fs.offload(tool_result(self.fs, content, raw_id, "Bash"))

    async def result(self, name: str, **arguments: Any) -> ToolResult:
        return await self.tools[f"context_{name}"].run(arguments)

    async def text(self, name: str, **arguments: Any) -> str:
        result = await self.result(name, **arguments)
        assert isinstance(result.content, str)
        assert not result.is_error, result.content
        return result.content

    async def error(self, name: str, **arguments: Any) -> str:
        result = await self.result(name, **arguments)
        assert isinstance(result.content, str)
        assert result.is_error
        return result.content

    async def grep(self, pattern: str, *, budget: CpuBudget | None = None, **arguments: Any) -> str:
        """What ``context_grep`` finds, however slow the machine is: with ``budget``, or without a bound on CPU time."""
        searched = LinePattern(pattern, budget=budget or CpuBudget(None))
        result = await grep_page(Scope(self.fs, self.max_tokens), "call_1", searched, **arguments)
        assert isinstance(result.content, str)
        return result.content


def still() -> CpuBudget:
    """The budget of one search, on a machine so fast that none of it is ever used."""
    return CpuBudget(MAX_CPU_S, clock=lambda: 0.0)


async def test_the_type_hints_of_the_tools_are_read_once_in_a_process() -> None:
    first = ContextFileSystem(store=MemoryStore(), session_id="first")
    other = ContextFileSystem(store=MemoryStore(), session_id="other")
    async with first, other:
        tools = [*retrieval_tools(first), *recall_tools(first), read_tool(first)]
        models = set(_Arguments.__subclasses__())
        again = [*retrieval_tools(other), *recall_tools(other), read_tool(other, name="Open")]
        assert set(_Arguments.__subclasses__()) == models
        assert [tool.input_schema for tool in again] == [tool.input_schema for tool in tools]
        dict(again[0].input_schema)["properties"].clear()  # only that session's own
        assert tools[0].input_schema["properties"]
        found = await first.offload(tool_result(first, "\n".join(LOG), "call_1", "Bash"))
        assert "step 7" in (await tools[0].run({"ref": found, "offset": 7, "limit": 1})).text
        assert "context_list" in (await again[0].run({"ref": found})).text  # each reads its own session


def damage(path: Path) -> None:
    """Change one byte in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.fixture
async def fs(tmp_path: Path) -> AsyncIterator[ContextFileSystem]:
    async with ContextFileSystem(root_path=tmp_path / "sessions") as opened:
        yield opened


@pytest.fixture
def session(fs: ContextFileSystem) -> Session:
    return Session(fs)


async def test_the_names_are_ones_that_providers_allow(session: Session) -> None:
    assert list(session.tools) == ["context_read", "context_tail", "context_grep", "context_list"]


async def test_read_shows_lines_and_where_they_came_from(session: Session) -> None:
    path = await session.store("\n".join(LOG))
    result = await session.result("read", ref="call_1", offset=500, limit=2)
    assert result.content == f"500\t{LOG[499]}\n501\t{LOG[500]}\n[lines 500-501 of 1,000; next: offset=502]"
    assert result.source == ContentRange(item_id="call_1", path=path, first_line=500, last_line=501)
    assert await session.text("read", ref=path, offset=1000) == f"1000\t{LOG[999]}\n[line 1,000 of 1,000; end]"


async def test_tail_shows_the_last_lines(session: Session) -> None:
    await session.store("\n".join(LOG) + "\n")
    result = await session.result("tail", ref="call_1", lines=3)
    numbered = "\n".join(f"{n}\t{LOG[n - 1]}" for n in (998, 999, 1000))
    assert result.content == f"{numbered}\n[lines 998-1,000 of 1,000; end]"
    assert result.source is not None
    assert (result.source.first_line, result.source.last_line) == (998, 1000)
    assert await session.text("tail", ref="call_1", lines=1) == f"1000\t{LOG[999]}\n[line 1,000 of 1,000; end]"


async def test_a_bounded_tail_still_ends_with_the_last_line(fs: ContextFileSystem) -> None:
    session = Session(fs, max_tokens=300)
    await session.store("\n".join(LOG))
    shown = await session.text("tail", ref="call_1", lines=500)
    assert default_counter().count(shown) <= 300
    assert f"1000\t{LOG[999]}\n[lines 9" in shown
    await session.store("x " * 9_000 + "end", "call_2")
    shown = await session.text("tail", ref="call_2")
    assert default_counter().count(shown) <= 300
    assert shown.endswith(" x x end")
    await session.store("", "call_3")
    assert await session.text("tail", ref="call_3") == "[it is empty]"


async def test_of_a_long_line_the_tail_shows_the_end_and_says_where_that_begins(session: Session) -> None:
    log = "".join(f"progress {n}\r" for n in range(9_000)) + "disk full"
    await session.store(f"start\n{log}\nlast\n")
    shown = await session.text("tail", ref="call_1")
    found = re.fullmatch(r"1\tstart\n2\t\[from offset=2, char_offset=(\d+)\]… (.*)\n3\tlast", shown, re.DOTALL)
    assert found is not None
    begin, text = int(found[1]), found[2]
    assert text == log[begin:]
    assert len(text) == MAX_LINE_CHARS
    page = await session.text("read", ref="call_1", offset=2, char_offset=begin - 5)
    assert page.startswith(f"2\t{log[begin - 5 :]}\n[line 2 of 3, ")
    assert (await session.text("tail", ref="call_1", lines=2)).endswith("3\tlast\n[lines 2-3 of 3; end]")


async def test_grep_finds_lines_by_number(session: Session) -> None:
    await session.store("\n".join(LOG))
    result = await session.result("grep", ref="call_1", pattern="ERROR")
    rows = [f"{n}:{LOG[n - 1]}" for n in range(100, 1001, 100)]
    assert result.content == "\n".join([*rows, "[10 lines match]"])
    assert result.source is not None
    assert (result.source.first_line, result.source.last_line) == (100, 1000)
    number = rows[3].split(":")[0]
    assert LOG[399] in await session.text("read", ref="call_1", offset=int(number), limit=1)


async def test_grep_goes_on_where_it_stopped_and_finds_every_match_once(fs: ContextFileSystem) -> None:
    session = Session(fs, max_tokens=250)
    await session.store("\n".join(LOG))
    found: list[int] = []
    offset: int | None = 1
    while offset is not None:
        shown = await session.text("grep", ref="call_1", pattern="step .*7$", offset=offset, max_matches=30)
        assert default_counter().count(shown) <= 250
        found += [int(m) for m in re.findall(r"^(\d+):", shown, re.MULTILINE)]
        following = re.search(r"next: offset=(\d+)\]$", shown)
        offset = int(following[1]) if following else None
    assert found == [n for n in range(1, 1001) if n % 10 == 7]


async def test_grep_shows_lines_around_a_match_once(session: Session) -> None:
    await session.store("a\nb\nhit 1\nc\nhit 2\nd\ne\nf\ng\nhit 3")
    shown = await session.text("grep", ref="call_1", pattern="hit", context_lines=1)
    assert shown == "2-b\n3:hit 1\n4-c\n5:hit 2\n6-d\n--\n9-g\n10:hit 3\n[3 lines match]"


async def test_grep_cuts_a_long_line_around_its_match(session: Session) -> None:
    await session.store("a\n" + "x" * 5_000 + "needle" + "y" * 5_000)
    shown = await session.text("grep", ref="call_1", pattern="needle")
    assert shown.startswith("2:…xxx")
    assert "needle" in shown
    go_on = re.search(r"offset=(\d+), char_offset=(\d+)\]", shown)
    assert go_on is not None
    rest = await session.text("read", ref="call_1", offset=int(go_on[1]), char_offset=int(go_on[2]))
    assert rest.startswith("2\tyyy")
    shown_ys = shown.split("needle")[1].split(" …")[0]
    assert f"characters {5_006 + len(shown_ys):,}-10,006" in rest


async def test_grep_shows_several_matches_of_a_long_line_and_how_to_read_on(session: Session) -> None:
    log = '{"events":[' + ",".join(f'{{"n":{n},"msg":"ok"}}' for n in range(5_000)) + "]}"
    await session.store(f"start\n{log}\nend\n")
    shown = await session.grep('"msg"')
    *rows, note, footer = shown.split("\n")
    assert [row.split(":", 1)[0] for row in rows] == ["2"] * 5
    assert footer == "[1 line matches]"
    found = re.fullmatch(r"\[in line 2 there are at least 20 more matches, after offset=2, char_offset=(\d+)\]", note)
    assert found is not None
    assert f"goes on: offset=2, char_offset={found[1]}]" in rows[-1]
    numbers = [int(n) for n in re.findall(r'"n":(\d+),"msg"', "".join(rows))]
    assert numbers == sorted(set(numbers))
    page = await session.text("read", ref="call_1", offset=2, char_offset=int(found[1]))
    assert re.search(r'"n":(\d+),"msg"', page) is not None
    assert log[int(found[1]) :].startswith(page[2:300])
    assert "more matches" not in await session.grep('"n":(7|4000),')
    assert (await session.grep('"n":(7|4000),')).count("\n") == 2
    small = Session(session.fs, max_tokens=200)
    shown = await small.grep('"msg"')
    assert default_counter().count(shown) <= 200
    assert shown.endswith("\n[in line 2 there are more matches]\n[1 line matches]")


async def test_grep_on_one_huge_match_stays_bounded(fs: ContextFileSystem) -> None:
    session = Session(fs, max_tokens=200)
    await session.store("\n".join("\u4e00\u9fa5" * 3_000 for _ in range(60)))
    for context_lines in (0, 5):
        shown = await session.grep("\u9fa5", context_lines=context_lines)
        assert default_counter().count(shown) <= 200
        assert "next: offset=2]" in shown


async def test_grep_says_that_nothing_matches(session: Session) -> None:
    await session.store("\n".join(LOG))
    assert await session.text("grep", ref="call_1", pattern="nowhere") == "[no line matches; 1,000 lines searched]"
    assert "1 line matches" in await session.text("grep", ref="call_1", pattern="STEP 7$", ignore_case=True)


async def test_grep_searches_blocks_and_surrogates(session: Session) -> None:
    await session.store(({"type": "text", "text": "one\ntwo"}, {"type": "text", "text": "three"}))
    assert await session.text("grep", ref="call_1", pattern="^t", offset=2) == "2:two\n3:three\n[2 lines match]"
    await session.store("a\ud800\nb\ud800", "call_2")
    assert await session.text("grep", ref="call_2", pattern="b") == "2:b\ud800\n[1 line matches]"


async def test_grep_over_many_chunks_equals_a_search_line_by_line(session: Session) -> None:
    lines = [f"{n} {'é' * (n % 50)} {n * 7919 % 1000}" for n in range(60_000)]
    await session.store("\n".join(lines))
    expected = [n for n, line in enumerate(lines, 1) if re.search(r" 99\d$", line)]
    found: list[int] = []
    offset: int | None = 1
    while offset is not None:
        shown = await session.grep(r" 99\d$", offset=offset, max_matches=1000)
        found += [int(m) for m in re.findall(r"^(\d+):", shown, re.MULTILINE)]
        following = re.search(r"next: offset=(\d+)\]$", shown)
        offset = int(following[1]) if following else None
    assert found == expected


@given(st.permutations(range(8)))
async def test_results_that_come_in_any_order_are_taken_in_theirs(numbers: list[int]) -> None:
    async def results() -> AsyncIterator[tuple[int, str]]:
        for number in numbers:
            yield number, f"result {number}"

    assert [result async for result in in_order(results())] == [f"result {number}" for number in range(8)]


async def test_grep_stops_at_damage_unless_enough_was_found_before(session: Session) -> None:
    damage(Path(await session.store("\n".join(f"line {n}" for n in range(1_000_000)))))
    assert "next: offset=6]" in await session.grep("line", max_matches=5)
    with pytest.raises(CorruptContent, match="does not match"):
        await session.grep("line 999999")


class GatedStore(MemoryStore):
    """Blocks after the first run's are read when the gate is open; it tells which of their readers began and ended."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.began, self.ended = threading.Semaphore(0), threading.Semaphore(0)
        self.blocks = 0
        self.first = True

    def pieces(self, name: str, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        if self.first:  # it is searched alone
            self.first = False
            for offset, length in spans:
                yield self._file(name)[offset : offset + length]
            return
        self.began.release()
        self.gate.wait()
        try:
            for offset, length in spans:
                self.blocks += 1
                yield self._file(name)[offset : offset + length]
        finally:
            self.ended.release()


@pytest.mark.both_loops
async def test_threads_whose_search_was_cancelled_end_soon(tmp_path: Path) -> None:
    store = GatedStore()
    async with ContextFileSystem(root_path=tmp_path, store=store) as fs:
        session = Session(fs)
        await session.store("x\n" * 4_000_000)
        async with anyio.create_task_group() as group:
            group.start_soon(partial(session.text, "grep", ref="call_1", pattern="y"))
            for _ in range(4):
                await to_thread.run_sync(store.began.acquire)
            group.cancel_scope.cancel()
        store.gate.set()
        for _ in range(4):
            await to_thread.run_sync(store.ended.acquire)
        assert store.blocks == 4


async def test_grep_in_a_session_that_was_closed_says_so(tmp_path: Path) -> None:
    async with ContextFileSystem(root_path=tmp_path / "sessions") as fs:
        session = Session(fs)
        await session.store("x\n" * 1_000_000)
    assert "this session is closed" in await session.error("grep", ref="call_1", pattern="y")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"pattern": "(a"}, "missing \\)"),
        ({"pattern": "(?=a)"}, "no look-around"),
        ({"pattern": "a", "offset": 9}, "past the end"),
    ],
)
async def test_a_wrong_search_says_what_is_wrong(session: Session, arguments: dict[str, Any], reason: str) -> None:
    await session.store("a\nb")
    assert re.search(reason, await session.error("grep", ref="call_1", **arguments))


async def test_a_json_value_is_addressed_by_path(session: Session) -> None:
    rows = [{"id": n, "name": f"name {n}"} for n in range(3_000)]
    path = await session.store(json.dumps({"rows": rows, "log": "one\ntwo"}))
    result = await session.result("read", ref="call_1", path="$.rows[10:12].name")
    assert result.content == '1\t"name 10"\n2\t"name 11"'
    assert result.source == ContentRange(item_id="call_1", path=path, first_line=1, last_line=1)
    assert await session.text("read", ref="call_1", path="$.log", offset=2) == "2\ttwo\n[line 2 of 2; end]"
    assert "of 3,000; next: offset=" in await session.text("read", ref="call_1", path="$.rows[*].id")
    last = await session.text("read", ref="call_1", path="$.rows[*].id", offset=3_000)
    assert last == "3000\t2999\n[line 3,000 of 3,000; end]"
    assert "past the end" in await session.error("read", ref="call_1", path="$.rows[*].id", offset=3_001)
    assert "the keys are rows, log" in await session.error("read", ref="call_1", path="$.row")
    assert "is not a path" in await session.error("read", ref="call_1", path="rows")


async def test_list_shows_what_was_stored(fs: ContextFileSystem, session: Session) -> None:
    assert await session.text("list") == "[it is empty]"
    await session.store("\n".join(LOG))
    await session.store("x", "call_2")
    shown = await session.text("list")
    assert shown.startswith("1\tcall_1: tool_result of Bash, 1,000 lines, ")
    assert "2\tcall_2: tool_result of Bash, 1 line, 1 character" in shown
    assert (await session.text("list", offset=2)).startswith("2\tcall_2")
    assert "past the end" in await session.error("list", offset=3)


@pytest.mark.parametrize("name", ["read", "tail", "grep"])
async def test_another_sessions_items_fail_exactly_like_unknown_ones(
    session: Session, tmp_path: Path, name: str
) -> None:
    more = {"pattern": "a"} if name == "grep" else {}
    async with ContextFileSystem(root_path=tmp_path / "sessions") as other:
        foreign = await Session(other).store("foreign", "call_9")
    for ref, unknown in (("call_9", "call_8"), (foreign, foreign.replace("call_9", "call_8"))):
        message = await session.error(name, ref=ref, **more)
        assert message.replace("call_9", "call_8") == await session.error(name, ref=unknown, **more)
        assert "no item" in message


async def test_list_says_what_a_command_had_not_finished(tmp_path: Path) -> None:
    async with ContextFileSystem("one", root_path=tmp_path) as fs:
        log = await fs.writer.grow("Bash")
        await log.append(b"one line\n")
    async with ContextFileSystem("one", root_path=tmp_path) as fs:
        listed = await Session(fs).text("list")
        assert "terminal_001: tool_result, 1 line, 9 characters, partial: its command had not ended" in listed


async def test_a_long_list_is_paged(fs: ContextFileSystem) -> None:
    session = Session(fs, max_tokens=200)
    for n in range(1, 41):
        await session.store("x", f"call_{n}")
    seen: list[str] = []
    offset: int | None = 1
    while offset is not None:
        shown = await session.text("list", offset=offset)
        assert default_counter().count(shown) <= 200
        seen += re.findall(r"^\d+\t(call_\d+):", shown, re.MULTILINE)
        following = re.search(r"next: offset=(\d+)\]$", shown)
        offset = int(following[1]) if following else None
    assert seen == [f"call_{n}" for n in range(1, 41)]


async def test_a_content_too_large_for_a_path_says_to_read_it_by_lines(session: Session) -> None:
    await session.store("x" * (32 * 1024 * 1024 + 1))
    assert "read it by lines" in await session.error("read", ref="call_1", path="$.a")


async def test_a_search_that_would_take_too_long_says_how_to_ask_better(session: Session) -> None:
    ref = await session.store("needle " + "a" * 12_000_000)
    assert "characters" in await session.error("grep", ref=ref, pattern="a" * 1_001)
    assert "1 line matches" in await session.grep("needle.{0,200}", budget=still())
    assert "there may be more matches" in await session.grep("needle.*", budget=still())
    with pytest.raises(WorkLimitReached, match=r"Bound what repeats: (?!.*To search the lines after)"):
        await session.grep(".*(b|c)d", budget=still())


async def test_a_search_stops_where_its_budget_is_used_up_and_goes_on_from_there(fs: ContextFileSystem) -> None:
    """Whatever stops which thread first, each call says up to where it is complete, and gets at least one line on."""
    total = 30_000
    await Session(fs).store("\n".join(f"{n} {'x' * 60} {'hit' if n % 997 == 0 else ''}" for n in range(1, total)))
    readings = count()
    found: list[int] = []
    offset: int | None = 1
    calls = 0
    while offset is not None:
        budget = CpuBudget(12, clock=lambda: float(next(readings)))
        result = await grep_page(
            Scope(fs), "call_1", LinePattern("hit", budget=budget, max_step_bytes=65_536), offset=offset
        )
        assert not result.is_error
        text = str(result.content)
        found += [int(n) for n in re.findall(r"^(\d+):", text, re.MULTILINE)]
        following = re.search(r"lines ([\d,]+)-([\d,]+) of 29,999 were searched.*; next: offset=(\d+)\]$", text)
        if following is not None:
            assert [int(n.replace(",", "")) for n in following.groups()] == [
                offset,
                int(following[3]) - 1,
                int(following[3]),
            ]
            assert int(following[3]) > offset
        offset, calls = (int(following[3]) if following else None), calls + 1
    assert found == list(range(997, total, 997))
    assert calls > 1


async def test_a_search_says_which_line_it_could_not_search_and_goes_on_after_it(session: Session) -> None:
    await session.store("one abd\ntwo\n" + "a" * 12_000_000 + "\nacd")
    shown = await session.grep(".*(b|c)d", budget=still())
    assert re.fullmatch(
        r"1:one abd\n\[the first 1 line matches, lines 1-2 of 4 were searched, but not line 3: .*Bound what repeats.*; "
        r"next: offset=4\]",
        shown,
    )
    with pytest.raises(WorkLimitReached, match="To search the lines after line 3: offset=4"):
        await session.grep(".*(b|c)d", offset=3, budget=still())
    assert await session.grep(".*(b|c)d", offset=4, budget=still()) == "4:acd\n[1 line matches]"


@asynccontextmanager
async def loop_calls() -> AsyncIterator[Counter[str]]:
    """Count the calls of this package's functions on this thread: work that no clock of a busy machine makes larger.

    Others' functions are not counted: how often the loop wakes, and what the garbage collector frees, is the machine's.
    """
    calls = Counter[str]()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith("ctxfs."):
            calls[frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def test_the_loop_does_none_of_the_work_that_grows_with_the_lines(fs: ContextFileSystem) -> None:
    await Session(fs).store("ab\n" * 60_000)
    tools = [read_tool(fs, max_tokens=100_000), *retrieval_tools(fs, max_tokens=100_000)]
    run = {tool.name: tool.run for tool in tools}
    for name, arguments in (
        ("Read", {"file_path": "call_1", "limit": 1_000_000}),
        ("context_read", {"ref": "call_1", "limit": 2_000}),
        ("context_tail", {"ref": "call_1", "lines": 1_000}),
    ):
        async with loop_calls() as calls:
            result = await run[name](arguments)
        assert str(result.content).count("\n") >= 999
        assert calls.total() < 1_000, (name, calls.most_common(3))


async def test_the_loop_does_none_of_the_work_that_grows_with_a_list() -> None:
    async with ContextFileSystem("s1", root_path="/memory", store=MemoryStore("s1")) as fs:
        session = Session(fs)
        for number in range(300):
            await session.store("x", f"call_{number}")
        async with loop_calls() as calls:
            shown = await session.text("list")
        assert shown.count("\n") > 100
        assert calls.total() < 300, calls.most_common(3)
