"""How long the ways through the code are: which functions of ctxfs one operation enters, and in how many files.

    python benchmarks/bench_ways.py
    python benchmarks/bench_ways.py add      # name every function of one way, in order

A way is what the profiler sees, in the calling thread and in those that start meanwhile. A context's files are written
by a thread that has started before, which it does not see; a history's are seen. "Inside" are functions inside of
functions: lambdas, nested functions and, before Python 3.12, comprehensions. The figures depend on the version of
Python, and not on how busy the machine is: all threads are started before, and of five runs the one with the fewest
calls counts.
"""

import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import anyio

import ctxfs
from ctxfs import Context, History, Part
from ctxfs.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.storage.threads import STEPPING_THREADS, WORKING_THREADS, run_in_steps, run_to_completion
from ctxfs.tools import read_tool

HOME = f"{Path(ctxfs.__file__).parent}/"
LOG = "\n".join(f"line {number} of a log: the quick brown fox, identifier_{number}" for number in range(300))
"""A result that is sent whole at first: a larger one would be previewed when it is added."""

LIMITS = {
    "add": (80, 20, 8),
    "evict": (110, 25, 12),
    "rewrite": (180, 32, 20),
    "open": (100, 30, 12),
    "read": (69, 18, 8),
}
"""Functions, files, functions inside of functions."""

RUNS = 5
"""The first one is not warm; of the others the one with the fewest calls waited least for its threads."""

COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")


class Way:
    """The functions that are entered while it is open. ``calls``: how often any function is called, of C too."""

    def __init__(self) -> None:
        self.entered: dict[tuple[str, str], None] = {}
        self.calls = 0

    def __enter__(self) -> Self:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        self.calls += event in ("call", "c_call")
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(HOME):
            self.entered[code.co_filename.removeprefix(HOME), getattr(code, "co_qualname", code.co_name)] = None

    @property
    def figures(self) -> tuple[int, int, int]:
        """Functions, files, functions inside of functions."""
        functions = [name for _, name in self.entered if not name.endswith(COMPREHENSIONS)]
        inner = [name for _, name in self.entered if "<locals>" in name or "<lambda>" in name]
        return len(functions), len({file for file, _ in self.entered}), len(inner)


def call(number: int) -> AssistantMessage:
    block = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": f"/a/{number}.py"}}
    return AssistantMessage((block,))


def parts(exchanges: int) -> list[Part]:
    shown = [Part("user", "go", "u")]
    for number in range(1, exchanges + 1):
        path = {"path": f"/a/{number}.py"}
        shown.append(Part("call", path, ("c", number), id=f"c{number}", tool="read"))
        shown.append(Part("result", f"{LOG}{number}", ("r", number), id=f"c{number}", tool="read"))
    return shown


async def start_threads() -> None:
    """Start all worker threads: one that starts while a way is open is seen, and only a busy machine starts one."""
    for run, threads in (run_to_completion, WORKING_THREADS), (run_in_steps, STEPPING_THREADS):
        all_there = threading.Barrier(threads)
        async with anyio.create_task_group() as group:
            for _ in range(threads):
                group.start_soon(run, all_there.wait)


async def ways_of_a_context(root: Path, ways: dict[str, Way]) -> None:
    await start_threads()
    async with Context("s1", root_path=root, keep_recent={"read": 1}) as context:
        await context.add(UserMessage("go"))
        for number in (1, 2):
            await context.messages()
            await context.add(call(number))
            await context.add(ToolMessage(f"c{number}", "read", LOG))
        await context.messages()
        await context.add(call(3))
        with ways["add"]:
            await context.add(ToolMessage("c3", "read", f"{LOG}!"))
        with ways["evict"]:
            await context.messages()
        path = next(item.offload_path for item in context.items if item.offloaded)
        tool = read_tool(context.fs)
        await tool.run({"file_path": path, "limit": 50})
        with ways["read"]:
            await tool.run({"file_path": path, "limit": 50})
    again = Context("s1", root_path=root, keep_recent={"read": 1})
    with ways["open"]:
        await again.open()
    await again.close()


def way_of_a_history(root: Path, ways: dict[str, Way]) -> None:
    with History("h1", root_path=root, keep_recent={"read": 1}) as history:
        history.rewrite(parts(1))
        history.rewrite(parts(2))
        with ways["rewrite"]:
            history.rewrite(parts(3))


def measured() -> dict[str, Way]:
    ways = {name: Way() for name in LIMITS}
    with tempfile.TemporaryDirectory() as root:
        anyio.run(ways_of_a_context, Path(root), ways)
        way_of_a_history(Path(root), ways)
    return ways


def main() -> int:
    runs = [measured() for _ in range(RUNS)]
    # On a busy machine an event loop turns more often until a thread has ended.
    ways = {name: min((run[name] for run in runs), key=lambda way: way.calls) for name in LIMITS}
    print("         functions    files        inside       (limits)     calls")
    failed = False
    for name, way in ways.items():
        pairs = list(zip(way.figures, LIMITS[name], strict=True))
        over = any(figure > limit for figure, limit in pairs)
        failed = failed or over
        shown = "  ".join(f"{figure:>4} {f'({limit})':5}" for figure, limit in pairs)
        print(f"{name:8} {shown} {'OVER' if over else '':4} {way.calls:>14,}")
    for name in sys.argv[1:]:
        for file, function in ways[name].entered:
            print(f"{file:44} {function}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
