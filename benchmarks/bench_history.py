"""What a history costs that a framework owns: CPU of one rewrite when nothing is replaced, and of the first one.

    python benchmarks/bench_history.py [MESSAGES…]

A history alternates replies with a call and results of about 1.5 KB. "warm" is a call after one more exchange, "same"
a retry, "wire" the same as a request to the Messages API, "restart" the first call of a new process, for each message.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ctxfs.context.history.history import History
from ctxfs.context.history.parts import Part
from ctxfs.eviction.economics.economy import EvictionPricing
from ctxfs.eviction.economics.parameters import EvictionParameters

LINE = "service: request {} of client {} served in {} ms, nothing to report\n"


def body_of(messages: int) -> dict[str, Any]:
    made: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for n in range(messages // 2):
        call = {"type": "tool_use", "id": f"c{n}", "name": "search", "input": {"query": f"question {n}"}}
        made.append({"role": "assistant", "content": [{"type": "text", "text": f"looking at {n}"}, call]})
        text = "".join(LINE.format(n, i, i * n % 97) for i in range(24))
        made.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{n}", "content": text}]})
    return {"model": "m", "messages": made}


def parts_of(body: dict[str, Any]) -> list[Part]:
    parts = []
    for i, message in enumerate(body["messages"]):
        if isinstance(message["content"], str):
            parts.append(Part("user", message["content"], i))
        elif message["role"] == "assistant":
            text, call = message["content"]
            parts.append(Part("reply", text["text"], (i, 0)))
            parts.append(Part("call", call["input"], (i, 1), call["id"], call["name"]))
        else:
            (result,) = message["content"]
            parts.append(Part("result", result["content"], i, result["tool_use_id"], "search"))
    return parts


def cpu(func: Any, times: int) -> float:
    """The best CPU time of a call, in milliseconds."""
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        func()
        best = min(best, time.process_time() - start)
    return best * 1_000


def measure(messages: int, root: Path) -> None:
    body = body_of(messages + 40)
    whole = parts_of(body)
    start = 1 + (messages // 2) * 3
    pricing = EvictionPricing(parameters=EvictionParameters(read_back_weight=1e12))
    settings: dict[str, Any] = {"root_path": root, "pricing": pricing, "window": None}
    history = History(f"s{messages}", **settings)
    first = cpu(lambda: history.rewrite(whole[:start]), 1)
    ends = iter(range(start + 3, len(whole), 3))
    warm = cpu(lambda: history.rewrite(whole[: next(ends)]), 15)
    same = cpu(lambda: history.rewrite(whole), 5)
    wire = History(f"w{messages}", **settings)
    wire.messages(body)
    on_wire = cpu(lambda: wire.messages(body), 5)
    history.close()
    restart = cpu(lambda: History(f"s{messages}", **settings).rewrite(whole[:start]), 3)
    print(
        f"{messages:>7,} messages: warm {warm:6.2f} ms, same {same:6.2f} ms, wire {on_wire:6.2f} ms; "
        f"first {first * 1000 / messages:6.1f} us a message, restart {restart * 1000 / messages:6.1f} us a message"
    )


def main() -> None:
    sizes = [int(size) for size in sys.argv[1:]] or [100, 1_000, 10_000]
    with tempfile.TemporaryDirectory() as root:
        History("load", root_path=root).arrive("x", tool="t")  # the counter
        for size in sizes:
            measure(size, Path(root))


if __name__ == "__main__":
    main()
