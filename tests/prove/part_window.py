"""Generated sessions that overflow a window: no request is larger than it, bursts of oversized results included."""

import random
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import anyio

from ctxfs import json_codec
from ctxfs.context.budget import Budget
from ctxfs.context.context import Context
from ctxfs.context.economics_parameters import EvictionParameters
from ctxfs.context.window import Window
from ctxfs.errors import ContextOverflow, PromptTooLong
from ctxfs.llm.base import Usage
from ctxfs.llm.messages import Message
from ctxfs.tokens import CharsCounter, count_content
from prove.parts import Part, Result
from prove.play import Clock, InlineStore, Policy, check_request
from prove.sessions import Session, Skill, session
from prove.workers import in_order

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
"""More than expected: a request may be refused once, and has to fit then."""


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


async def _play(one: Session, context: Context, provider: _Provider) -> list[str]:
    wrong: list[str] = []

    async def reply(message: Message) -> None:
        messages = await context.messages()
        try:
            real = provider.bill(messages)
        except PromptTooLong as error:
            messages = await context.refused(error)
            real = provider.bill(messages)
        wrong.extend(check_request(messages))
        await context.add(message, usage=Usage(input_tokens=real), model="a-model")

    if one.system is not None:
        await context.set_system_prompt(one.system)
    for turn in one.turns:
        if isinstance(turn.user, Skill):
            await context.add_skill_prompt("a-skill", turn.user.text)
        else:
            await context.add(turn.user)
        for step in turn.steps:
            await reply(step.reply)
            await context.add(*step.results)
        await reply(turn.answer)
    return wrong


async def _one(number: int, make_window: type[Window]) -> tuple[Counter[str], list[str]]:
    draw = random.Random(number)
    policy = replace(draw.choice(POLICIES), budget=_budget(draw.choice((16_000, 32_000))))
    ratio = draw.choice(EXPECTED if draw.random() < 0.7 else UNEXPECTED)
    assert policy.budget is not None
    provider = _Provider(ratio, policy.budget.window_tokens, tells=draw.random() < 0.7)
    context = policy.context(InlineStore("session_1"), draw, Clock())
    if make_window is not Window:
        context._window = make_window(policy.budget)
    wrong: list[str] = []
    try:
        async with context:
            wrong += await _play(session(number * 10, sizes=_SIZES), context, provider)
    except (PromptTooLong, ContextOverflow) as error:
        wrong.append(f"{type(error).__name__}: {error}")
    if provider.refused and ratio in EXPECTED:
        wrong.append(f"{provider.refused} requests were over the window")
    counted = Counter({"sessions": 1, "refused": provider.refused, "full": provider.peak_tokens > 0.8 * 16_000})
    what = f"session {number}, {policy.name}, {provider.window_tokens:,} tokens, ratio {ratio}"
    return counted, [f"{what}: {found}" for found in wrong]


def _budget(window_tokens: int) -> Budget:
    return Budget(window_tokens=window_tokens, reply_tokens=_REPLY_TOKENS)


def run_sessions(numbers: Iterable[int], make_window: type[Window] = Window) -> tuple[Counter[str], list[str]]:
    """Play sessions in a window; what was counted, and everything that was wrong."""
    counted: Counter[str] = Counter()
    wrong: list[str] = []

    async def all_of_them() -> None:
        for number in numbers:
            more, bad = await _one(number, make_window)
            counted.update(more)
            wrong.extend(bad)

    anyio.run(all_of_them)
    return counted, wrong


class _NoWindow(Window):
    """Does nothing until it is too late."""

    async def fit(self, context: Any) -> None:
        pass


def controls() -> dict[str, bool]:
    """A window that is never looked at has to be noticed."""
    return {"no window": bool(run_sessions(range(20), _NoWindow)[1])}


def _batch(first: int) -> tuple[Counter[str], list[str]]:
    return run_sessions(range(first, min(SESSIONS, first + _BATCH)))


def _run(budget_s: float, state_dir: Path) -> Result:
    ends_at = time.monotonic() + budget_s
    file = state_dir / "window.json"
    state: dict[str, Any] = json_codec.loads(file.read_bytes()) if file.exists() else {}
    counted: Counter[str] = Counter(state.get("counted", {}))
    wrong: list[str] = state.get("wrong", [])
    for more, bad in in_order(_batch, range(counted["sessions"], SESSIONS, _BATCH), ends_at):
        counted += more
        wrong += bad
        file.write_bytes(json_codec.dumps({"counted": dict(counted), "wrong": wrong}))
        if counted["sessions"] % 1_000 == 0:
            print(f"window: {counted['sessions']:,} of {SESSIONS:,} sessions, {len(wrong)} violations", flush=True)
    complete = counted["sessions"] >= SESSIONS
    return Result(figures=dict(counted), violations=wrong, controls=controls(), complete=complete)


PART = Part(name="window", title="No request larger than the window", run=_run, share=0.4)
