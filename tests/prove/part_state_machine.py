"""A session against a model, on a disk that crashes: what was acknowledged is there, and one writer writes."""

import asyncio
import random
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import anyio
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from ctxfs.errors import SessionLocked, SessionNotFound
from ctxfs.messages import CharsCounter
from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import Content, ToolMessage, UserMessage, readable_text
from ctxfs.session import export_session, import_session
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import Pinned, Record, Removed
from ctxfs.session.timeline.back import Back, undone
from ctxfs.session.timeline.bring_back import bring_back
from ctxfs.session.timeline.fork import fork_session
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.base import Tool
from ctxfs.tools.retrieval import retrieval_tools
from prove.crash_disk import Captured, CrashDisk, State
from prove.crash_session import EXPORTS, ROOT, LocalStore
from prove.parts import Part, Result, seed_in
from prove.workers import in_order, in_turns
from session_items import PLACEHOLDER, claimed_item, evicted, tool_result

__all__ = ["PART", "SessionMachine", "controls", "run_machine"]

STEPS = 1_000_000
_RULES_A_RUN = 40
_RUNS_A_BATCH = 50
_STATES = 40
_T = TypeVar("_T")
_COUNTER = CharsCounter()
_CONTENTS: tuple[Content, ...] = (
    "",
    "short",
    "one\ntwo\nthree\n",
    "a line of text\n" * 40,
    "no newline at the end, " * 20,
    "lone \ud800 surrogate, and a pair of lone ones \ud83d\ude00",
    "\x00\r\n\u2028\x85\x1b[0m",
    "日本語の行\n" * 30,
    "[Content offloaded]\nPath: /etc/passwd\nUse Read tool to view details.",
    ({"type": "text", "text": "blocks\nof text"}, {"type": "image", "source": {"type": "url", "url": "x"}}),
    (),
    "x" * 9_000 + "\nend",
)
_PATTERNS = ("line", "e", "^two$", "[0-9]+", "日本")
_IDS = ("call", "CALL", "../up", "con", "call~2", "é", "")

_numbers = st.integers(0, 1 << 16)
_some = st.lists(_numbers, min_size=1, max_size=8)


@dataclass(frozen=True, slots=True)
class _Evicted:
    """What the context held before the last change that evicted something, and after it."""

    before: dict[str, ContextItem]
    after: dict[str, ContextItem]


class SessionMachine(RuleBasedStateMachine):
    """Steps in any order. ``steps`` counts them over all machines."""

    steps: ClassVar[int] = 0
    loop: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self._disk = CrashDisk(State((("/home", None, 1),)))
        self._session_id = "session_1"
        self._made = 0
        self._last: _Evicted | None = None
        self._items: dict[str, ContextItem] = {}
        self._stored: dict[str, Content] = {}
        self._calls = 0
        self._fs = self._open()

    # ---- small things

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self.loop.run(work)

    def _new(self, *, read_only: bool = False, disk: CrashDisk | None = None) -> ContextFileSystem:
        return ContextFileSystem(
            self._session_id,
            root_path=ROOT,
            store=LocalStore(ROOT, self._session_id, fs=disk or self._disk),
            clock=lambda: 1.75e9,
            inline_limit_chars=64,
            read_only=read_only,
        )

    def _open(self) -> ContextFileSystem:
        self._grep: Tool | None = None
        fs = self._new()
        self._run(fs.open())
        return fs

    def _pick(self, number: int) -> ContextItem:
        return list(self._items.values())[number % len(self._items)]

    def _draw(self, number: int) -> ContextItem:
        """A new item, which nothing knows of yet."""
        content = _CONTENTS[number % len(_CONTENTS)]
        return tool_result(self._fs, content, raw_id=_IDS[number // len(_CONTENTS) % len(_IDS)])

    def _keep_content(self, item: ContextItem) -> None:
        if not item.offloaded:
            self._stored.setdefault(item.id, item.message.content)

    def _check(self, fs: ContextFileSystem) -> None:
        """What ``fs`` shows is what the model holds."""
        assert self._run(fs.items()) == tuple(self._items.values())
        assert len(fs.state.calls) == self._calls
        stored = fs.state.stored
        assert self._stored.keys() <= stored.keys()
        for item in self._items.values():
            assert item.offload_path is None or item.id in stored

    def teardown(self) -> None:
        self._check(self._fs)
        report = self._run(self._fs.verify())
        assert report.ok, report.problems
        for item_id, content in self._stored.items():
            assert self._run(self._fs.load(item_id)) == content
        self._run(self._fs.close())

    def _step(self) -> None:
        SessionMachine.steps += 1

    # ---- the operations, each as a coroutine and as what it does to the model

    def _add(self, number: int) -> tuple[Callable[[], Awaitable[None]], Callable[[], None]]:
        item = self._draw(number)

        def model() -> None:
            self._items[item.id] = item
            if item.id in self._fs.state.stored:
                self._keep_content(item)

        return lambda: self._fs.writer.add([item]), model

    def _evict(self, number: int) -> tuple[Callable[[], Awaitable[None]], Callable[[], None]]:
        old = self._pick(number)
        if old.item_type != ItemType.TOOL_RESULT:
            return self._add(number)
        new, changes = evicted(self._fs, old), self._fs.state.changes

        def model() -> None:
            before = dict(self._items)
            self._keep_content(old)
            self._items[old.id] = new
            if self._fs.state.changes > changes:
                self._last = None if old.offloaded else _Evicted(before, dict(self._items))
            elif self._last is not None:  # records that follow each other are one change
                self._last = _Evicted(self._last.before, dict(self._items))

        return lambda: self._fs.writer.evict([(old, new, "due")]), model

    def _offload(self, number: int) -> tuple[Callable[[], Awaitable[None]], Callable[[], None]]:
        item = self._pick(number)
        return lambda: self._fs.writer.store([item]), lambda: self._keep_content(item)

    def _remove(self, number: int) -> tuple[Callable[[], Awaitable[None]], Callable[[], None]]:
        item = self._pick(number)

        def model() -> None:
            del self._items[item.id]

        return lambda: self._fs.writer.remove([item.id], reason="enough"), model

    def _archive(self, number: int) -> tuple[Callable[[], Awaitable[None]], Callable[[], None]]:
        going = list(self._items)[: number % len(self._items) + 1]
        content = f"archive of {going}\n" * 5
        item = claimed_item(self._fs, UserMessage(PLACEHOLDER), 5, kind=ItemType.COMPACTION_SUMMARY, content_tokens=9)
        item = replace(item, offload_path=f"{self._fs.base}/{item.name}")
        item_id = item.id
        before = next((i for i in self._items if i not in going), None)

        def model() -> None:
            gone, rest = self._items, {i: kept for i, kept in self._items.items() if i not in going}
            self._items = {item_id: item, **rest}
            self._stored[item_id] = content
            self._last = _Evicted(gone, dict(self._items))

        return lambda: self._fs.writer.archive(item, content, going, before=before, reason="old"), model

    def _undo(self, number: int) -> tuple[Callable[[], Awaitable[None]], Callable[[], None]]:
        """Undo the last change, if the context is still as that left it: it is as it was before again."""
        last = self._last
        if last is None or list(self._items.items()) != list(last.after.items()):
            return self._add(number)

        async def work() -> None:
            await bring_back(self._fs, self._back(await self._fs.history()))

        def model() -> None:
            self._items, self._last = dict(last.before), None

        return work, model

    @staticmethod
    def _back(records: Sequence[Record]) -> Back:
        return undone(records)

    def _flush(self, number: int) -> tuple[Callable[[], Awaitable[None]], Callable[[], None]]:
        return self._fs.writer.flush, lambda: None

    def _operation(self, number: int) -> tuple[Callable[[], Awaitable[None]], Callable[[], None]]:
        makers = (
            self._add,
            self._evict,
            self._undo,
            self._offload,
            self._remove,
            self._archive,
            self._undo,
            self._flush,
        )
        make = makers[number % len(makers)] if self._items else self._add
        return make(number // len(makers))

    # ---- the steps

    def _do(self, operation: tuple[Callable[[], Awaitable[None]], Callable[[], None]]) -> None:
        self._step()
        work, model = operation
        self._run(_awaited(work()))
        model()

    @rule(numbers=_some)
    def add(self, numbers: list[int]) -> None:
        for number in numbers:
            self._do(self._add(number))

    @rule(first=_numbers, second=_numbers, third=_numbers)
    def add_side_by_side(self, first: int, second: int, third: int) -> None:
        self._step()
        made = [self._draw(number) for number in (first, second, third)]

        async def together() -> None:
            async with anyio.create_task_group() as group:
                for item in made:
                    group.start_soon(self._fs.writer.add, [item])
                    group.start_soon(self._fs.offload, item)

        self._run(together())
        there = [item for item in self._run(self._fs.items()) if item.id not in self._items]
        assert sorted(i.id for i in there) == sorted(i.id for i in made)
        self._items.update((item.id, next(m for m in made if m.id == item.id)) for item in there)
        for item in made:
            self._keep_content(item)

    @rule(numbers=_some)
    def change(self, numbers: list[int]) -> None:
        for number in numbers:
            self._do(self._operation(number))

    @precondition(lambda self: self._items)
    @rule(numbers=_some)
    def evict(self, numbers: list[int]) -> None:
        for number in numbers:
            self._do(self._evict(number))

    @precondition(lambda self: any(i.offloaded and i.item_type == "tool_result" for i in self._items.values()))
    @rule(number=_numbers)
    def restore(self, number: int) -> None:
        self._step()
        gone = [i for i in self._items.values() if i.offloaded and i.item_type == "tool_result"]
        item = gone[number % len(gone)]
        assert isinstance(item.message, ToolMessage)
        message = replace(item.message, content=self._stored[item.id], offloaded=False, offload_path=None)
        self._run(self._fs.restore(item.id))
        self._items[item.id] = replace(
            item, message=message, offloaded=False, destroyed=False, offload_path=None, token_count=item.content_tokens
        )

    @precondition(lambda self: self._items)
    @rule(number=_numbers)
    def pin(self, number: int) -> None:
        self._step()
        item = self._pick(number)
        self._run(_awaited(self._fs.writer.record([Pinned(item_ids=(item.id,), pinned=not item.pinned)])))
        self._items[item.id] = replace(item, pinned=not item.pinned)

    @precondition(lambda self: self._stored)
    @rule(numbers=_some)
    def read(self, numbers: list[int]) -> None:
        for number in numbers:
            self._read(number)

    def _read(self, number: int) -> None:
        self._step()
        item_id, text = self._picked_text(number)
        lines = text.removesuffix("\n").split("\n") if text else []
        first = number % (len(lines) + 1) + 1
        found = self._run(self._fs.reader(item_id).lines(first, first + number % 7))
        assert list(found) == lines[first - 1 : first + number % 7]
        assert self._run(self._fs.load(item_id)) == self._stored[item_id]

    @precondition(lambda self: self._stored)
    @rule(number=_numbers, pattern=st.sampled_from(_PATTERNS))
    def grep(self, number: int, pattern: str) -> None:
        self._step()
        item_id, text = self._picked_text(number)
        if self._grep is None:
            self._grep = next(t for t in retrieval_tools(self._fs, counter=_COUNTER) if t.name == "context_grep")
        result = self._run(self._grep.run({"ref": item_id, "pattern": pattern, "max_matches": 1000}))
        lines = text.removesuffix("\n").split("\n") if text else []
        expected = [n for n, line in enumerate(lines, 1) if re.search(pattern, line)]
        found = [int(row) for row in re.findall(r"^(\d+):", str(result.content), re.MULTILINE)]
        assert list(dict.fromkeys(found)) == expected  # of a long line, several parts may be shown
        assert not result.is_error

    def _picked_text(self, number: int) -> tuple[str, str]:
        item_id = list(self._stored)[number % len(self._stored)]
        return item_id, readable_text(self._stored[item_id])

    @rule(number=_numbers, at=st.floats(0, 1), state=st.integers(0, _STATES - 1))
    def crash(self, number: int, at: float, state: int) -> None:
        """Lose the power at some moment of an operation; in one of the states that it may leave, go on."""
        self._step()
        moments: list[Captured] = []
        work, model = self._operation(number)
        self._disk.before_sync = lambda: moments.append(self._disk.capture())
        self._run(_awaited(work()))
        moments.append(self._disk.capture())
        chosen = round(at * (len(moments) - 1))
        before = (dict(self._items), dict(self._stored))
        model()
        *_, left = islice(moments[chosen].states(), state + 1)
        self._disk, self._last = CrashDisk(left, process=2), None
        self._fs = self._open()
        if chosen < len(moments) - 1 and self._run(self._fs.items()) != tuple(self._items.values()):
            self._items, self._stored = before  # never acknowledged, and not there
        elif chosen < len(moments) - 1:
            self._stored = {i: c for i, c in self._stored.items() if i in before[1] or i in self._fs.state.stored}
        self._check(self._fs)

    @rule(at=st.floats(0, 1), state=st.integers(0, _STATES - 1))
    def crash_in_a_fork(self, at: float, state: int) -> None:
        """Lose the power while the session is forked: it is as it was, and the fork is whole or not there."""
        self._step()
        self._made += 1
        new_id, moments = f"session_1_{self._made}", list[Captured]()
        self._disk.before_sync = lambda: moments.append(self._disk.capture())
        self._run(fork_session(self._session_id, new_id=new_id, root_path=ROOT, fs=self._disk))
        moments.append(self._disk.capture())
        chosen = round(at * (len(moments) - 1))
        *_, left = islice(moments[chosen].states(), state + 1)
        self._disk, self._last = CrashDisk(left, process=2), None
        self._fs = self._open()
        self._check(self._fs)
        source, self._session_id = self._session_id, new_id
        fork = self._new(read_only=True)
        self._session_id = source
        try:
            self._run(fork.open(create=False))
        except SessionNotFound:
            assert chosen < len(moments) - 1, "the fork was acknowledged"
            return
        assert [item.id for item in self._run(fork.items())] == list(self._items)
        report = self._run(fork.verify())
        assert report.ok, report.problems
        self._run(fork.close())

    @rule(number=_numbers)
    def whole_session(self, number: int) -> None:
        """What happens to the session as a whole, the slower things less often."""
        self._step()
        often = (self._call, self._close_and_open, self._second_writer, self._reader, self._kill)
        seldom = (self._lose_the_lock, self._lose_the_lock, self._export_and_import, self._fork)
        (*often, *often, *often, *seldom)[number % 19]()

    def _call(self) -> None:
        self._run(self._fs.writer.record_call(Usage(input_tokens=1), "a-model"))
        self._calls += 1

    def _close_and_open(self) -> None:
        self._run(self._fs.close())
        self._fs = self._open()
        assert self._fs.recovery.clean
        self._check(self._fs)

    def _kill(self) -> None:
        """End the process; the system goes on."""
        self._disk.kill()
        self._fs = self._open()
        self._check(self._fs)

    def _second_writer(self) -> None:
        try:
            self._run(self._new().open())
        except SessionLocked:
            return
        raise AssertionError("two writers")

    def _lose_the_lock(self) -> None:
        """Two writers after all, as on a file system without locks: the newer one stays, the older one stops."""
        self._disk.forget_locks()
        older, self._fs = self._fs, self._open()
        item = tool_result(older, "of the older one", raw_id="older")
        try:
            self._run(older.writer.add([item]))
        except SessionLocked:
            self._check(self._fs)
            return
        raise AssertionError("the older writer wrote on")

    def _reader(self) -> None:
        fs = self._new(read_only=True)
        self._run(fs.open())
        self._check(fs)
        self._run(fs.close())

    def _export_and_import(self) -> None:
        """Go on in the session that an export and an import made."""
        self._made += 1
        files = [EXPORTS / f"export_{self._made}_{n}" for n in (1, 2)]
        self._run(export_session(self._session_id, files[0], root_path=ROOT, fs=self._disk))
        new_id = f"session_1_{self._made}"
        exported = self._disk.contents().files[str(files[0])]
        assert exported is not None
        with tempfile.NamedTemporaryFile() as archive:  # what is imported is read from the real disk
            Path(archive.name).write_bytes(exported)
            self._run(import_session(archive.name, root_path=ROOT, session_id=new_id, fs=self._disk))
        self._run(export_session(new_id, files[1], root_path=ROOT, fs=self._disk))
        assert self._disk.contents().files[str(files[1])] == exported
        self._go_on_in(new_id)

    def _go_on_in(self, session_id: str) -> None:
        self._run(self._fs.close())
        before, self._session_id = self._fs.session_path, session_id
        self._fs = self._open()
        self._items = {i: _moved(item, str(before), str(self._fs.session_path)) for i, item in self._items.items()}
        self._last = None
        self._check(self._fs)

    def _fork(self) -> None:
        """Go on in a fork."""
        self._made += 1
        new_id = f"session_1_{self._made}"
        self._run(fork_session(self._session_id, new_id=new_id, root_path=ROOT, fs=self._disk))
        self._go_on_in(new_id)


async def _awaited(work: Awaitable[_T]) -> _T:
    return await work


def _moved(item: ContextItem, before: str, after: str) -> ContextItem:
    if item.offload_path is None:
        return item
    path = item.offload_path.replace(before, after)
    message = item.message
    if isinstance(message, ToolMessage):
        message = replace(message, offload_path=path)
    return replace(item, message=message, offload_path=path)


class _Forgetting(SessionMachine):
    """A machine whose disk does not bring contents to the medium: it has to be noticed."""

    def _open(self) -> ContextFileSystem:
        self._disk.syncs = lambda kind: kind != "content"
        return super()._open()


class _HalfUndone(SessionMachine):
    """A machine whose undo of a compaction leaves the archive where it was: it has to be noticed."""

    @staticmethod
    def _back(records: Sequence[Record]) -> Back:
        back = undone(records)
        return replace(back, records=tuple(one for one in back.records if not isinstance(one, Removed)))


def run_machine(
    runs: int, number: int, machine: type[RuleBasedStateMachine] = SessionMachine, *, shrink: bool = True
) -> int:
    """Run ``runs`` sequences of steps; how many steps there were. Raises what was broken, with its steps."""
    before = SessionMachine.steps
    limits = settings(
        max_examples=runs,
        stateful_step_count=_RULES_A_RUN,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    seed(number)(machine)
    with asyncio.Runner() as SessionMachine.loop, in_turns():
        run_state_machine_as_test(machine, settings=limits)
    return SessionMachine.steps - before


def controls() -> dict[str, bool]:
    """A disk that forgets contents in a crash has to be noticed, and an undo that leaves an archive where it was."""
    return {"a disk that forgets": _is_noticed(_Forgetting), "an undo that is not whole": _is_noticed(_HalfUndone)}


def _is_noticed(machine: type[SessionMachine]) -> bool:
    try:
        run_machine(50, 3, machine, shrink=False)  # soon, whatever is imported: Hypothesis draws constants of that, too
    except Exception:  # noqa: BLE001 - whatever the machine says of it
        return True
    return False


def _batch(number: int) -> tuple[int, str]:
    """Run the batch ``number``; how many steps it had, and what was broken, if anything."""
    try:
        return run_machine(_RUNS_A_BATCH, random.Random(number).getrandbits(32)), ""
    except Exception as error:  # noqa: BLE001 - all that goes wrong is the outcome
        notes = "\n".join(getattr(error, "__notes__", []))
        return 0, f"batch {number}: {type(error).__name__}: {error}\n{notes}"


def _run(budget_s: float, state_dir: Path) -> Result:
    ends_at = time.monotonic() + budget_s
    file = state_dir / "state_machine.json"
    state: dict[str, Any] = json_codec.loads(file.read_bytes()) if file.exists() else {}
    steps, batch, wrong = state.get("steps", 0), state.get("batch", 0), state.get("wrong", [])
    found = in_order(_batch, count(seed_in(state_dir) + batch + 1), ends_at)
    while steps < STEPS and not wrong and (more := next(found, None)) is not None:
        batch += 1
        steps += more[0]
        wrong += [more[1]] * bool(more[1])
        file.write_bytes(json_codec.dumps({"steps": steps, "batch": batch, "wrong": wrong}))
        print(f"state machine: {steps:,} of {STEPS:,} steps, {len(wrong)} violations", flush=True)
    found.close()
    figures = {"steps": steps, "batches": batch}
    return Result(figures=figures, violations=wrong, controls=controls(), complete=steps >= STEPS)


PART = Part(name="state_machine", title="A session against a model, on a disk that crashes", run=_run, share=1.0)
