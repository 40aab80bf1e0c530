"""Generated sessions that overflow a window: no request is larger than it, and no run ends because of it.

Bursts of oversized results, single messages, replies and arguments larger than the window, refusals with figures and
without, and disks that are full when room has to be made.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import anyio

from ctxfs.context.context import Context
from ctxfs.errors import ContextOverflow, PromptTooLong, StorageError, WriteFailed
from ctxfs.eviction import Window
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.messages import CharsCounter
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import AssistantMessage, Block, Message, UserMessage
from ctxfs.messages.tokens import count_content
from ctxfs.storage import MemoryStore
from ctxfs.storage.base import NewFile
from ctxfs.text.jsontext import codec as json_codec
from prove.parts import Part, Result, seed_in
from prove.play import Clock, Policy, check_request
from prove.sessions import Session, Skill, Step, session
from prove.workers import in_order, no_threads

__all__ = ["PART", "controls", "run_sessions"]

SESSIONS = 10_000
_BATCH = 100
_REPLY_TOKENS = 1_000
_SIZES = (20, 120, 600, 6_000, 20_000, 60_000)
_COUNTER = CharsCounter()
_KEEP = {"Read": 2}
POLICIES = (
    Policy(name="compaction"),
    Policy(name="summary", summarize=True),
    Policy(name="keep-recent and summary", settings={"keep_recent": _KEEP}, summarize=True),
    Policy(name="economic", economic=EvictionParameters(), summarize=True),
)
EXPECTED = (0.7, 1.0, 1.2, 1.35)
"""Billed tokens for each counted one, up to what is expected before anything was billed: no request may be refused."""

UNEXPECTED = (1.8, 3.0)
"""More than expected: a request may be refused, and is made smaller until it fits."""


GIANT_CHARS = 240_000
"""Far more than any of the windows here."""


@dataclass(slots=True)
class _Provider:
    """Bills a multiple of our own count, and refuses what is larger than the window."""

    ratio: float
    window_tokens: int
    tells: bool
    peak_tokens: int = 0
    refused: int = 0

    def bill(self, messages: Iterable[Message]) -> int:
        real = ceil(self.ratio * sum(count_content(_COUNTER, m.content) for m in messages))
        if real > self.window_tokens - _REPLY_TOKENS:
            self.refused += 1
            raise PromptTooLong(
                "prompt is too long",
                actual_tokens=real if self.tells else None,
                limit_tokens=self.window_tokens if self.tells else None,
            )
        self.peak_tokens = max(self.peak_tokens, real)
        return real


class _Disk(MemoryStore):
    """A store whose disk is full at times."""

    full = False

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        if self.full:
            raise WriteFailed("journal.jsonl", "No space left on device")
        super().commit(files, log)


@dataclass(slots=True)
class _Loop:
    """A loop around a context, as a user's; ``disk_fills`` is the call before which there is no more room on the disk.

    When that ends the run, room is made and the call made again.
    """

    context: Context
    provider: _Provider
    disk: _Disk
    disk_fills: int | None = None
    calls: int = 0
    wrong: list[str] = field(default_factory=list)
    overflows: int = 0

    async def play(self, one: Session) -> None:
        if one.system is not None:
            await self.context.set_system_prompt(one.system)
        for turn in one.turns:
            if isinstance(turn.user, Skill):
                await self.context.add_skill_prompt("a-skill", turn.user.text)
            else:
                await self.context.add(turn.user)
            for step in turn.steps:
                await self._reply(step.reply)
                await self.context.add(*step.results)
            await self._reply(turn.answer)

    async def _reply(self, message: Message) -> None:
        self.calls += 1
        self.disk.full = self.calls == self.disk_fills
        try:
            messages, real = await self._asked()
        except ContextOverflow as error:
            if not self.disk.full:
                raise
            self.overflows += 1
            if not isinstance(error.__cause__, StorageError) or "No space left" not in str(error):
                self.wrong.append(f"nothing says that the disk is full: {error}")
            self.disk.full = False
            messages, real = await self._asked()
        self.disk.full = False
        self.wrong += check_request(messages)
        await self.context.add(message, usage=Usage(input_tokens=real), model="a-model")

    async def _asked(self) -> tuple[tuple[Message, ...], int]:
        messages = await self.context.messages()
        while True:
            try:
                return messages, self.provider.bill(messages)
            except PromptTooLong as error:
                messages = await self._refused(error)

    async def _refused(self, error: PromptTooLong) -> tuple[Message, ...]:
        before, largest = self.context.counted_tokens, max(item.token_count for item in self.context.items)
        messages = await self.context.refused(error)
        if error.actual_tokens is None and self.context.counted_tokens < before * 0.7 - largest:
            self.wrong.append(f"a refusal without figures cut {before} to {self.context.counted_tokens} tokens")
        return messages


def _with_giant(one: Session, draw: random.Random) -> Session:
    """The session with one message that is larger than the window."""
    text = "".join(f"{n} is a line of it\n" for n in range(GIANT_CHARS // 20))
    number = draw.randrange(len(one.turns))
    turn = one.turns[number]
    kind = draw.choice(("user", "answer", "result", "arguments", "said"))
    if kind == "user" or (kind != "answer" and not turn.steps):
        turn = replace(turn, user=UserMessage(text))
    elif kind == "answer":
        turn = replace(turn, answer=AssistantMessage(text))
    else:
        turn = replace(turn, steps=(*turn.steps[:-1], _giant_step(turn.steps[-1], kind, text)))
    return replace(one, turns=(*one.turns[:number], turn, *one.turns[number + 1 :]))


def _giant_step(step: Step, kind: str, text: str) -> Step:
    if kind == "result":
        return replace(step, results=(replace(step.results[0], content=text), *step.results[1:]))
    said: list[Block] = [dict(block) for block in step.reply.content if isinstance(block, dict)]
    if kind == "arguments":
        last = said[-1]
        said[-1] = {**last, "input": {**last["input"], "content": text, "more": text}}
    else:
        said.insert(len(said) - len(step.results), {"type": "text", "text": text})
    return replace(step, reply=AssistantMessage(tuple(said)))


async def _one(number: int, *, guarded: bool) -> tuple[Counter[str], list[str]]:
    draw = random.Random(number)
    policy = replace(draw.choice(POLICIES), budget=_budget(draw.choice((16_000, 32_000))))
    if number % 2 == 0:  # every other session sees large results whole: a preview makes room before any is needed
        policy = replace(policy, settings={**policy.settings, "preview_above_tokens": None})
    ratio = draw.choice(EXPECTED if draw.random() < 0.7 else UNEXPECTED)
    assert policy.budget is not None
    assert isinstance(policy.budget.window_tokens, int)
    provider = _Provider(ratio, policy.budget.window_tokens, tells=draw.random() < 0.7)
    disk = _Disk("session_1")
    unguarded = replace(policy, budget=None, compaction=None, summarize=False)
    context = (policy if guarded else unguarded).context(disk, draw, Clock())
    one = session(number * 10, sizes=_SIZES)
    has_giant = number % 3 == 0
    loop = _Loop(context, provider, disk, disk_fills=draw.randint(1, 12) if number % 5 == 0 else None)
    wrong = loop.wrong
    try:
        async with context:
            await loop.play(_with_giant(one, draw) if has_giant else one)
    except (PromptTooLong, ContextOverflow) as error:
        wrong.append(f"{type(error).__name__}: {error}")
    if provider.refused and ratio in EXPECTED and loop.disk_fills is None:
        wrong.append(f"{provider.refused} requests were over the window")
    counted = Counter(
        {
            "sessions": 1,
            "refused": provider.refused,
            "full": provider.peak_tokens > 0.8 * 16_000,
            "larger than the window": has_giant,
            "disk full": loop.overflows,
        }
    )
    what = f"session {number}, {policy.name}, {provider.window_tokens:,} tokens, ratio {ratio}"
    return counted, [f"{what}: {found}" for found in wrong]


def _budget(window_tokens: int) -> Window:
    return Window(window_tokens=window_tokens, reply_tokens=_REPLY_TOKENS)


def run_sessions(numbers: Iterable[int], *, guarded: bool = True) -> tuple[Counter[str], list[str]]:
    """Play sessions in a window, of which a context that is not ``guarded`` knows nothing.

    What was counted, and everything that was wrong.
    """
    counted: Counter[str] = Counter()
    wrong: list[str] = []

    async def all_of_them() -> None:
        for number in numbers:
            more, bad = await _one(number, guarded=guarded)
            counted.update(more)
            wrong.extend(bad)

    with no_threads():
        anyio.run(all_of_them)
    return counted, wrong


def controls() -> dict[str, bool]:
    """A context without a window has to be noticed."""
    return {"no window": bool(run_sessions(range(20), guarded=False)[1])}


def _batch(seed: int, first: int) -> tuple[Counter[str], list[str]]:
    return run_sessions(range(seed + first, seed + min(SESSIONS, first + _BATCH)))


def _run(budget_s: float, state_dir: Path) -> Result:
    ends_at = time.monotonic() + budget_s
    file = state_dir / "window.json"
    state: dict[str, Any] = json_codec.loads(file.read_bytes()) if file.exists() else {}
    counted: Counter[str] = Counter(state.get("counted", {}))
    wrong: list[str] = state.get("wrong", [])
    for more, bad in in_order(
        partial(_batch, seed_in(state_dir)), range(counted["sessions"], SESSIONS, _BATCH), ends_at
    ):
        counted += more
        wrong += bad
        file.write_bytes(json_codec.dumps({"counted": dict(counted), "wrong": wrong}))
        if counted["sessions"] % 1_000 == 0:
            print(f"window: {counted['sessions']:,} of {SESSIONS:,} sessions, {len(wrong)} violations", flush=True)
    complete = counted["sessions"] >= SESSIONS
    return Result(figures=dict(counted), violations=wrong, controls=controls(), complete=complete)


PART = Part(name="window", title="No request larger than the window", run=_run, share=0.4)
