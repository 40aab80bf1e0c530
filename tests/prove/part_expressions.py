"""Regular expressions that take other engines for ever: every search ends soon, and the event loop goes on."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from ctxfs.errors import InvalidToolArguments
from ctxfs.messages import CharsCounter
from ctxfs.messages.messages import ToolMessage
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.memory import MemoryStore
from ctxfs.tools.base import Tool
from ctxfs.tools.retrieval import retrieval_tools
from prove.parts import Part, Result
from session_items import make_item

__all__ = ["PART", "expressions", "search_all", "session_tools"]

MAX_STALL_S = 0.05
MAX_CALL_S = 1.0
TRIES = 8
TICK_S = 0.002

# Each is put around atoms: what makes a backtracking engine try everything, or an automaton grow.
_SHAPES: tuple[str, ...] = (
    "(%s+)+$",
    "(%s*)*b",
    "(%s|%s)*c",
    "(%s|%s%s)+$",
    "(.*%s){12}",
    "^(%s?){30}%s{30}$",
    "(%s{1,30}){1,30}",
)
_SHAPES += (
    "(%s{1,30}){1,30}",
    "(.*)(.*)(.*)(.*)%s$",
    "%s.{200}%s.{200}z",
    "(?i)(%s|.)*%sq$",
    "(%s+%s+)+y",
    "[^%s]*%s.{900}",
    "\\b(%s\\w*\\s*)+$",
)
_SHAPES += ("(%s|b|ab)*bc", "(\\w+\\d+)+%s", "^(([%s-z])+.)+[A-Z]([a-z])+$", "(%s.*)*(b.*)*(c.*)*d")
_ATOMS = ("a", "x", "[ab]", "\\w", ".", "(a|a)", "\\pL", "\u00e9", "(?:a?){9}", "[^b]", "\\s?a", "(a*)")
_ALONE: tuple[str, ...] = (
    "(?=a)",
    "(a)\\1",
    "(?<!x)a",
    "(?>a+)b",
    "a{1001}",
    "(a{1000}){1000}",
    "((((a{9}){9}){9}){9}){9}",
    "(" * 900,
    "[" * 900,
)
_ALONE += (
    "\\" * 999,
    "(?P<a>",
    "a**",
    "\\x{110000}",
    "\\pZZ",
    "(?#x)",
    ".*" * 400,
    "(a?)" * 300,
    "|" * 999,
    "(|a)+",
    "\0*",
)


def expressions() -> list[str]:
    """All of them, about two hundred."""
    shaped = [shape.replace("%s", atom) for shape in _SHAPES for atom in _ATOMS]
    return list(dict.fromkeys([*shaped, *_ALONE]))


def texts(size: int) -> Mapping[str, str]:
    """What is searched, about ``size`` characters each: one endless line, many lines, words, letters of two bytes."""
    return {
        "line": "a" * size,
        "lines": ("a" * 63 + "\n") * (size // 64),
        "words": "ab ax1 xx aa9 " * (size // 14),
        "accents": "\u00e9a" * (size // 2),
    }


async def session_tools(size: int) -> Mapping[str, Tool]:
    """Make the tools of a session in memory with the texts."""
    fs = ContextFileSystem("s", root_path="/nowhere", store=MemoryStore("s"))
    await fs.open()
    for item_id, text in texts(size).items():
        await fs.writer.store([make_item(item_id, ToolMessage(item_id, "Bash", text))])
    return {tool.name: tool for tool in retrieval_tools(fs, counter=CharsCounter())}


async def search_all(tools: Mapping[str, Tool], some: list[str]) -> Iterator[tuple[str, str]]:
    """Search every text for every expression; what each was told."""
    told: list[tuple[str, str]] = []
    for expression in some:
        for ref in ("line", "lines", "words", "accents"):
            with suppress(InvalidToolArguments):
                result = await tools["context_grep"].run({"ref": ref, "pattern": expression})
                told.append((expression, str(result.content)))
    return iter(told)


async def _watched(tool: Tool, arguments: Mapping[str, Any]) -> tuple[float, float]:
    """Run a call; the seconds of this process's CPU that it took, and that passed in the loop's longest stall."""
    worst = 0.0

    async def tick() -> None:
        nonlocal worst
        while True:
            before, used = time.perf_counter(), time.process_time()
            await anyio.sleep(TICK_S)
            # On a busy machine the loop is late through others' work: only what this process computed counts.
            worst = max(worst, min(time.perf_counter() - before - TICK_S, time.process_time() - used))

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        await anyio.lowlevel.checkpoint()
        before = time.process_time()
        with suppress(InvalidToolArguments):
            await tool.run(arguments)
        took = time.process_time() - before
        await anyio.sleep(2 * TICK_S)  # a stall is seen after it
        group.cancel_scope.cancel()
    return took, worst


async def _measure(ends: float, size: int, done: set[str]) -> tuple[float, float, list[str]]:
    """Measure each expression on each text; the best of a few, since other programs take their time too."""
    tools = await session_tools(size)
    await tools["context_grep"].run({"ref": "lines", "pattern": "warm up"})
    slowest, stall = 0.0, 0.0
    wrong: list[str] = []
    for expression in expressions():
        if expression in done or time.monotonic() > ends:
            continue
        for ref in texts(1):
            arguments = {"ref": ref, "pattern": expression}
            runs = [await _watched(tools["context_grep"], arguments)]
            while len(runs) < TRIES and (min(r[0] for r in runs) > MAX_CALL_S or min(r[1] for r in runs) > MAX_STALL_S):
                runs.append(await _watched(tools["context_grep"], arguments))
            took, stood = min(r[0] for r in runs), min(r[1] for r in runs)
            slowest, stall = max(slowest, took), max(stall, stood)
            if took > MAX_CALL_S or stood > MAX_STALL_S:
                wrong.append(
                    f"{expression[:60]!r} on {ref}: {took:.2f} s, the loop stood still for {stood * 1e3:.0f} ms"
                )
        done.add(expression)
    return slowest, stall, wrong


async def _control() -> bool:
    """Whether a search on the loop itself is seen to stop it."""

    async def run(_: Mapping[str, Any]) -> str:
        ends = time.process_time() + 3 * MAX_STALL_S
        while time.process_time() < ends:
            pass
        return ""

    blocking = Tool(name="blocking", description="blocks", input_schema={"type": "object"}, handler=run)
    return (await _watched(blocking, {}))[1] > MAX_STALL_S


def run(budget_s: float, state_dir: Path) -> Result:
    """Search texts of a megabyte each."""
    ends = time.monotonic() + budget_s
    notes = state_dir / "expressions.json"
    done = set(json.loads(notes.read_text())) if notes.exists() else set()
    slowest, stall, wrong = anyio.run(_measure, ends, 1 << 20, done)
    notes.write_text(json.dumps(sorted(done)))
    figures: dict[str, int | float | str] = {
        "expressions": len(done),
        "slowest call in ms": round(slowest * 1e3),
        "longest stall of the loop in ms": round(stall * 1e3),
    }
    seen = {"a search on the event loop": anyio.run(_control)}
    complete = len(done) == len(expressions())
    return Result(figures=figures, violations=wrong, controls=seen, complete=complete)


PART = Part(name="expressions", title="200 hostile regular expressions: bounded time, no stall", run=run)
