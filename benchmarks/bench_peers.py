"""What an exchange costs beside other libraries that keep large results out of the context: CPU, in turn in one run.

    .venv-frameworks/deepagents-newest/bin/python benchmarks/bench_peers.py
    python benchmarks/bench_peers.py

The first runs in the environment with Deep Agents and LangChain, which ``make frameworks FRAMEWORKS='--only
deepagents'`` makes; the second runs it there. The same results of 20 KB go through:

- "ctxfs": a ``Context`` takes in a call and its result, durably, evicts what is due, and gives the next request;
- "Deep Agents": ``FilesystemMiddleware`` gets the result of a call, writes it to a file, without a sync, and returns
  the message that stands for it. Its limit is set so that it takes a result of this size;
- "LangChain": ``ContextEditingMiddleware`` with ``ClearToolUsesEdit`` copies the history of the last 100 messages,
  counts it, and clears old results. It stores nothing.

What each does differs: a ratio says what the difference costs, not that one is better than the other. Times are CPU of
the whole process, the lowest of eight parts of 60 exchanges; the ratios compare what ran in turn. Limit: 5 times Deep
Agents.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import anyio

from ctxfs import Context
from ctxfs.messages import load_counter

LIMIT_RATIO = 5.0
PARTS = 8
EXCHANGES = 60
RESULT_CHARS = 20_000
HELD_MESSAGES = 100
WORDS = ("error", "warn", "request", "cache", "file", "path", "query", "index", "socket", "retry", "thread", "buffer")
HOME = Path(__file__).resolve().parent.parent / ".venv-frameworks" / "deepagents-newest" / "bin" / "python"

Exchange = Callable[[str, str], None]
"""Does what a library does for one exchange, given the call's id and the text of its result."""


def log(seed: int) -> str:
    """A result: lines of a log, each unlike the others."""
    random, lines, size = Random(seed), list[str](), 0
    while size < RESULT_CHARS:
        words = " ".join(random.choice(WORDS) for _ in range(8))
        lines.append(
            f"2026-11-21T10:{random.randint(0, 59):02d} [{random.choice(WORDS)}] id={random.randint(0, 99999)} {words}"
        )
        size += len(lines[-1]) + 1
    return "\n".join(lines)[:RESULT_CHARS]


def deep_agents(folder: Path) -> Exchange:
    from deepagents.backends import FilesystemBackend  # noqa: PLC0415 - of an environment of its own
    from deepagents.middleware import FilesystemMiddleware  # noqa: PLC0415
    from langchain_core.messages import ToolMessage  # noqa: PLC0415
    from langgraph.prebuilt.tool_node import ToolCallRequest  # noqa: PLC0415

    limit_tokens = RESULT_CHARS // 5  # it takes a token for four characters
    middleware = FilesystemMiddleware(
        backend=FilesystemBackend(root_dir=folder, virtual_mode=True), tool_token_limit_before_evict=limit_tokens
    )

    def exchange(call_id: str, text: str) -> None:
        call = {"name": "run", "args": {}, "id": call_id, "type": "tool_call"}
        runtime: Any = None
        request = ToolCallRequest(tool_call=call, tool=None, state={"messages": []}, runtime=runtime)
        shown = middleware.wrap_tool_call(request, lambda _: ToolMessage(text, tool_call_id=call_id, name="run"))
        assert len(str(shown.content)) < len(text) // 2, "the result was not taken"

    return exchange


def langchain(_: Path) -> Exchange:
    from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware  # noqa: PLC0415
    from langchain.agents.middleware.types import ModelRequest  # noqa: PLC0415
    from langchain_core.language_models.fake_chat_models import FakeListChatModel  # noqa: PLC0415
    from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage  # noqa: PLC0415

    middleware = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=30_000, keep=1)])
    model = FakeListChatModel(responses=["ok"])
    held: list[AnyMessage] = [HumanMessage("go")]

    def exchange(call_id: str, text: str) -> None:
        held.append(AIMessage("", tool_calls=[{"name": "run", "args": {}, "id": call_id, "type": "tool_call"}]))
        held.append(ToolMessage(text, tool_call_id=call_id, name="run"))
        del held[1 : max(1, len(held) - HELD_MESSAGES)]
        middleware.wrap_model_call(ModelRequest(model=model, messages=held), lambda request: request)

    return exchange


async def compare(root: Path) -> dict[str, float]:
    """The CPU of an exchange by library, in milliseconds."""
    results = [log(seed) for seed in range(10)]
    others = {"Deep Agents": deep_agents(root / "deepagents"), "LangChain": langchain(root / "langchain")}
    lowest = dict.fromkeys(["ctxfs", *others], float("inf"))
    async with Context("s", root_path=root) as context:
        await context.add({"role": "user", "content": "go"})
        for part in range(PARTS):
            start = time.process_time()
            for number in range(EXCHANGES):
                call_id = f"call_{part}_{number}"
                call = {"type": "tool_use", "id": call_id, "name": "run", "input": {}}
                result = {"type": "tool_result", "tool_use_id": call_id, "content": results[number % 10]}
                await context.add({"role": "assistant", "content": [call]})
                await context.add({"role": "user", "content": [result]})
                await context.request()
            lowest["ctxfs"] = min(lowest["ctxfs"], time.process_time() - start)
            for name, exchange in others.items():
                start = time.process_time()
                for number in range(EXCHANGES):
                    exchange(f"call_{part}_{number}", results[number % 10])
                lowest[name] = min(lowest[name], time.process_time() - start)
    return {name: seconds / EXCHANGES * 1e3 for name, seconds in lowest.items()}


def main() -> int:
    if find_spec("deepagents") is None:
        if not HOME.exists():
            print("left out: `make frameworks FRAMEWORKS='--only deepagents'` makes the environment that it needs")
            return 0
        return subprocess.run([HOME, __file__], check=False).returncode
    with tempfile.TemporaryDirectory(dir=".") as root:
        cost = anyio.run(compare, Path(root).resolve())
    print(f"tokens counted by {anyio.run(load_counter).engine}")
    print(f"{'':12} {'ms CPU':>8} {'ctxfs is':>10}")
    for name, ms in cost.items():
        ratio = "" if name == "ctxfs" else f"{cost['ctxfs'] / ms:.1f} x"
        print(f"{name:12} {ms:8.2f} {ratio:>10}")
    ratio = cost["ctxfs"] / cost["Deep Agents"]
    print(f"limit: {LIMIT_RATIO:g} x Deep Agents{'' if ratio <= LIMIT_RATIO else '   OVER'}")
    return int(ratio > LIMIT_RATIO)


if __name__ == "__main__":
    sys.exit(main())
