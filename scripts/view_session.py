"""A session to look at: a scripted agent looks for a bug, with evictions, read-backs and cache misses.

``python scripts/view_session.py ROOT`` makes it under ROOT. The same every time, but for its times on disk.
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio

from ctxfs.context.context import Context
from ctxfs.messages import CharsCounter
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.testing.prompt_cache import PromptCache
from ctxfs.tools.stored import Scope, read_page

__all__ = ["SESSION", "make_session"]

SESSION = "checkout-flaky-test"
MODEL = "claude-sonnet-4-5"
SYSTEM = "You are a careful engineer. Work in small steps, read before you write, and run the tests after each change."
READ_BACK = "Read"
QUESTION = "test_checkout fails about once in twenty runs on CI. Find out why, and mend it."
FILES = (
    *("shop/checkout.py", "shop/cart.py", "shop/stock.py", "shop/payment.py", "shop/db.py", "tests/test_checkout.py"),
    *("shop/worker.py", "shop/events.py", "tests/conftest.py", "shop/models.py", "shop/settings.py"),
)


def source(name: str, lines: int, draw: random.Random) -> str:
    """A source file of so many lines."""
    words = ("order", "stock", "lock", "session", "amount", "retry", "event", "customer", "total", "reserve")
    out = [f'"""{name}: part of the shop."""', "", "import logging", ""]
    while len(out) < lines:
        a, b, c = draw.sample(words, 3)
        out += [
            f"def {a}_{b}({c}: int, *, timeout_s: float = {draw.randint(1, 30)}.0) -> bool:",
            f'    """Whether the {a} of {c} has its {b}."""',
            f"    with {b}_lock({c}), session() as db:",
            f"        {a} = db.get({a.title()}, {c})",
            f'        logging.info("{a} %s: {b} %d", {c}, {a}.{b})',
            f"        return {a}.{b} >= {draw.randint(1, 900)}",
            "",
        ]
    return "\n".join(out[:lines]) + "\n"


def test_log(runs: int, draw: random.Random) -> str:
    """What a test runner printed, with a failure in it."""
    out = [
        f"2026-11-20T10:{n // 60:02}:{n % 60:02}Z run {n:03} test_checkout PASSED in {draw.random():.3f}s"
        for n in range(runs)
    ]
    at = runs * 2 // 3
    out[at] = out[at].replace("PASSED", "FAILED") + "\nE   AssertionError: stock 3 != 2 after reserve()"
    return "\n".join(out) + "\n"


def steps(draw: random.Random) -> Iterator[tuple[str, Sequence[tuple[str, dict[str, Any], str]]]]:
    """What the model says at each call, and which tools it calls, with their results."""
    yield "I look at the layout first.", [("list_dir", {"path": "."}, "\n".join(FILES) + "\n")]
    for name in FILES[:6]:
        yield f"Reading {name}.", [("read_file", {"path": name}, source(name, draw.randint(150, 420), draw))]
    yield (
        "Let me see how often it fails.",
        [("run", {"command": "pytest tests/test_checkout.py --count 300"}, test_log(300, draw))],
    )
    yield (
        "The stock is wrong after reserve().",
        [
            (
                "search",
                {"pattern": "reserve"},
                "\n".join(f"{f}:{draw.randint(3, 200)}: reserve(order)" for f in FILES * 9),
            ),
            ("read_file", {"path": "shop/stock.py"}, source("shop/stock.py", 300, draw)),
        ],
    )
    for name in FILES[6:]:
        yield f"{name} may take part.", [("read_file", {"path": name}, source(name, draw.randint(120, 380), draw))]
    for n in range(3):
        yield (
            f"I try to reproduce it, attempt {n + 1}.",
            [("run", {"command": f"pytest -x --seed {n}"}, test_log(180 + 60 * n, draw))],
        )
    yield "The log of the first runs is in a file: I read its beginning.", [(READ_BACK, {"item": "call_008"}, "")]
    yield "And the cart once more.", [(READ_BACK, {"item": "call_003"}, "")]
    yield (
        "The worker releases the lock before the commit. I mend it.",
        [("write_file", {"path": "shop/worker.py", "content": source("shop/worker.py", 90, draw)}, "ok")],
    )
    for n in range(4):
        yield "Running the tests again.", [("run", {"command": "pytest -q"}, test_log(140 + 50 * n, draw))]
        yield (
            "One more file to be sure.",
            [("read_file", {"path": FILES[n]}, source(FILES[n], draw.randint(180, 360), draw))],
        )
    yield "All green: 1,000 runs without a failure.", [("run", {"command": "pytest --count 1000"}, test_log(400, draw))]


async def make_session(root: Path, session_id: str = SESSION) -> None:
    """Make the session under ``root``."""
    draw = random.Random(7)  # noqa: S311 - it has to be the same every time
    clock = [1_795_000_000.0]
    cache = PromptCache(counter=CharsCounter(), clock=lambda: clock[0], min_tokens=1_024)
    context = Context(
        session_id,
        root_path=root,
        model=MODEL,
        keep_recent={"read_file": 4},
        window=48_000,
    )
    async with context:
        await context.set_system_prompt(SYSTEM)
        await context.add(UserMessage(QUESTION))
        number = 0
        for said, calls in [*steps(draw), ("The flaky test is mended: the lock is held until the commit.", ())]:
            clock[0] += 400 if number in {11, 19} else 20
            request = await context.request()
            blocks: list[dict[str, Any]] = [{"type": "text", "text": said}]
            results = []
            sources = {}
            for name, arguments, made in calls:
                number += 1
                result = made
                if name == READ_BACK:
                    page = await read_page(Scope(context.fs, 1_500), arguments["item"], limit=40)
                    assert page.source is not None
                    result, sources[f"call_{number:03}"] = page.text, page.source
                blocks.append({"type": "tool_use", "id": f"call_{number:03}", "name": name, "input": arguments})
                results.append(ToolMessage(f"call_{number:03}", name, result))
            usage = cache.account(dict(request), output_tokens=40 + 30 * len(calls))
            await context.add(AssistantMessage(tuple(blocks)), usage=usage, model=MODEL)
            for one in results:
                await context.add(one, sources={i: s for i, s in sources.items() if i == one.tool_call_id})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, help="the directory of sessions, made if it is not there")
    anyio.run(make_session, parser.parse_args().root)
