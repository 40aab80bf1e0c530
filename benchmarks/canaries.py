"""A public kit for compaction (compaction-conformance-kit): which of its canaries are still known afterwards.

    python benchmarks/canaries.py

It needs the package ``compaction-conformance-kit``. The window is half of the kit's session, and nothing is written
into the summary, which is the worst that a summary can be. A canary counts as found if the kit's own probe says so.
"""

import json
import tempfile
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import anyio

from ctxfs import Context
from ctxfs.eviction import Window
from ctxfs.messages import CharsCounter
from ctxfs.tools import recall_tools

SHARE = 0.5


async def canaries(*, pins: bool) -> tuple[int, int, int]:
    """How many there are, how many are in the last request, and how many with one search for each of the others."""
    session = import_module("compaction_kit.session").build_seeded_session()
    known = import_module("compaction_kit.canaries").seeded_canaries()
    probe = import_module("compaction_kit.probes").BehaviorProbe()
    window = Window(window_tokens=int(len(session.full_text()) / 4 * SHARE) + 60, reply_tokens=40)
    with tempfile.TemporaryDirectory() as root:
        async with Context(root_path=root, counter=CharsCounter(), pricing=None, window=window) as context:
            await context.set_system_prompt(next(turn.text for turn in session.turns if turn.role == "system"))
            request: Any = None
            for turn in session.turns:
                if turn.role == "system":
                    continue
                role = turn.role if turn.role in ("user", "assistant") else "user"
                await context.add({"role": role, "content": turn.text})
                if pins and turn.canary_id:
                    await context.pin(context.items[-1].id)
                if role == "user":
                    request = await context.request()
            text = json.dumps(request, ensure_ascii=False)
            search = next(tool for tool in recall_tools(context.fs) if tool.name == "history_search")
            in_request = 0
            found = 0
            for canary in known:
                result = await search.run({"query": canary.direct_question[:200]})
                in_request += probe.probe(canary, text).survived
                found += probe.probe(canary, f"{text}\n{result.content}").survived
    return len(known), in_request, found


async def table() -> None:
    """Print it."""
    print("| | in the request | with one search each |")
    print("|---|---:|---:|")
    for what, pins in (("a summary that keeps nothing", False), ("the same, the canaries pinned", True)):
        total, in_request, found = await canaries(pins=pins)
        print(f"| {what} | {in_request} of {total} | {found} of {total} |")


if __name__ == "__main__":
    if find_spec("compaction_kit") is None:
        print("SKIPPED: compaction-conformance-kit is not installed")
    else:
        anyio.run(table)
