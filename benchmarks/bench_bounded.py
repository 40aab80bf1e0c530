"""What hostile searches and paths cost at most: seconds of CPU, and of CPU after the caller was cancelled.

Limits: 1 s of CPU a call, and 50 ms after a cancellation.
"""

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import anyio

from ctxfs.errors import WorkLimitReached
from ctxfs.storage.threads import run_in_steps
from ctxfs.text.jsontext.path import select_lines
from ctxfs.tools.search.line_pattern import LinePattern

CALL_LIMIT_S = 1.0
CANCELLED_LIMIT_S = 0.05
PATTERNS = ("(a{1,30}){1,30}b", "(a|b)*c", "(a|b)*a(a|b){20}c", "needle", "a.{0,200}b")
BRACKETS = 6_000_000


def search(pattern: str, line: bytes) -> int:
    return len(list(LinePattern(pattern).matches(line)))


def select(text: str, path: str) -> int:
    return sum(map(len, select_lines(text, path)))


def searches() -> dict[str, Callable[[], object]]:
    line = b"a" * 100_000_000
    return {f"100 MB line, {pattern}": partial(search, pattern, line) for pattern in PATTERNS}


def paths() -> dict[str, Callable[[], object]]:
    deep, pairs = "[" * BRACKETS + "]" * BRACKETS, "[" + "[]," * (BRACKETS // 2) + "[]]"
    table = {"rows": [{"id": n, "name": f"item {n}", "tags": ["a", "b"], "at": {"y": n}} for n in range(100_000)]}
    rows, indented = json.dumps(table), json.dumps(table, indent=1)
    asked = [(deep, "$" + "[0]" * 64), (deep, "$" + "[-1]" * 64), (pairs, "$[-1]"), (rows, "$.rows[*].name")]
    asked += [(indented, "$.rows[*].name"), (indented, "$.rows[*].at.y"), (indented, "$.rows[-1]")]
    return {f"{len(text) / 1e6:.0f} MB of JSON, {path[:20]}": partial(select, text, path) for text, path in asked}


def cpu_s(work: Callable[[], object]) -> tuple[float, str]:
    start = time.process_time()
    try:
        work()
    except WorkLimitReached:
        return time.process_time() - start, "WorkLimitReached"
    return time.process_time() - start, "answered"


async def after_cancelling_s(work: Callable[[], object]) -> float:
    """Return the CPU time that the process uses in the second after the work was cancelled."""
    with suppress(WorkLimitReached), anyio.move_on_after(0.05):
        await run_in_steps(work)
    start = time.process_time()
    await anyio.sleep(1)
    return time.process_time() - start


async def main() -> int:
    failed = False
    for name, work in {**searches(), **paths()}.items():
        took, outcome = cpu_s(work)
        after = await after_cancelling_s(work)
        print(f"{name:38} {took:6.3f} s of CPU ({outcome}), {after * 1000:5.1f} ms after cancelling")
        failed |= took > CALL_LIMIT_S or after > CANCELLED_LIMIT_S
    return int(failed)


if __name__ == "__main__":
    sys.exit(anyio.run(main))
