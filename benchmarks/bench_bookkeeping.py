"""What deciding costs a turn: taking in one exchange, planning, and taking out what is due.

By keep-recent, and by the economic planner with all results about one file: as things leave, and with 5,000 results
that stay. Limits: at 10,000 items at most 2 ms (5 ms where all stay), and at most twice what it costs at 100 items
where things leave. No disk is touched.
"""

import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from ctxfs.context.entry import Entry
from ctxfs.context.transcript import Transcript
from ctxfs.eviction.economics.economy import ModelPricing
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, ToolMessage

LIMIT_MS = 2.0
LIMIT_RATIO = 2.0
STAYING_LIMIT_MS = 5.0
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


def turn_ms(items: int, economy: ModelPricing | None = None) -> float:
    """Return the median cost of one turn in a transcript of so many items."""
    keep_recent = {} if economy else {"Read": 3}
    transcript = Transcript(keep_recent, "/s", economy=economy)
    number = 0
    times: list[float] = []
    while len(times) < TURNS:
        said, read = reply(number), result(number)
        start = time.perf_counter()
        transcript.enter(Entry(item=said))
        transcript.enter(Entry(item=read))
        plan = transcript.plan()
        gone = [replace(transcript.items[o.item_id], destroyed=True, token_count=40) for o in plan.offloads]
        transcript.rewrite(gone, [item.id for item in gone])
        if len(transcript.items) >= items:
            times.append((time.perf_counter() - start) * 1000)
        number += 1
    return statistics.median(times)


def main() -> int:
    stays = EvictionParameters(read_back_weight=1e9)
    rows: list[tuple[str, Callable[[], ModelPricing | None], float, float]] = [
        ("keep-recent", lambda: None, LIMIT_MS, LIMIT_RATIO),
        ("economic", lambda: ModelPricing(clock=lambda: 0.0), LIMIT_MS, LIMIT_RATIO),
        (
            "economic, all stay",
            lambda: ModelPricing(clock=lambda: 0.0, parameters=stays),
            STAYING_LIMIT_MS,
            math.inf,
        ),
    ]
    missed = False
    print(f"{'a turn, ms':20} {'100 items':>12} {'10,000 items':>14} {'limit':>7}")
    for title, economy, limit, ratio in rows:
        small, large = turn_ms(100, economy()), turn_ms(10_000, economy())
        missed |= large > limit or large / small > ratio
        print(f"{title:20} {small:12.4f} {large:14.4f} {limit:7.1f}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
