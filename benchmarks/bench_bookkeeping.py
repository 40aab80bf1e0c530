"""What deciding costs a turn: taking in one exchange, planning, and taking out what is due.

Limits: at 10,000 items at most 2 ms, and at most twice what it costs at 100 items. No disk is touched.
"""

import statistics
import sys
import time
from dataclasses import replace

from ctxfs.context.items import ContextItem, ItemType
from ctxfs.context.transcript import Transcript
from ctxfs.llm.messages import AssistantMessage, ToolMessage

LIMIT_MS = 2.0
LIMIT_RATIO = 2.0
TURNS = 300


def reply(number: int) -> ContextItem:
    block = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"path": "x"}}
    return ContextItem(
        id=f"a{number}",
        item_type=ItemType.ASSISTANT_MESSAGE,
        message=AssistantMessage((block,)),
        name=f"assistant_message/a{number}.json",
        token_count=20,
        content_tokens=20,
    )


def result(number: int) -> ContextItem:
    return ContextItem(
        id=f"t{number}",
        item_type=ItemType.TOOL_RESULT,
        message=ToolMessage(f"t{number}", "Read", "content"),
        name=f"tool_result/Read/t{number}.json",
        token_count=1000,
        content_tokens=1000,
        placeholder="[Content offloaded]",
        placeholder_tokens=40,
    )


def turn_ms(items: int) -> float:
    """Return the median cost of one turn in a transcript of so many items."""
    transcript = Transcript({"Read": 3}, lambda name: f"/session/{name}")
    number = 0
    times: list[float] = []
    while len(times) < TURNS:
        pair = reply(number), result(number)
        start = time.perf_counter()
        for item in pair:
            transcript.enter(item)
        plan = transcript.plan()
        gone = [replace(transcript.items[o.item_id], destroyed=True, token_count=40) for o in plan.offloads]
        transcript.rewrite(gone, [item.id for item in gone])
        if len(transcript.items) >= items:
            times.append((time.perf_counter() - start) * 1000)
        number += 1
    return statistics.median(times)


def main() -> int:
    small, large = turn_ms(100), turn_ms(10_000)
    print(f"a turn at    100 items  {small:8.4f} ms")
    print(f"a turn at 10,000 items  {large:8.4f} ms  (limit {LIMIT_MS} ms)")
    print(f"ratio                   {large / small:8.2f}     (limit {LIMIT_RATIO})")
    return int(large > LIMIT_MS or large / small > LIMIT_RATIO)


if __name__ == "__main__":
    sys.exit(main())
