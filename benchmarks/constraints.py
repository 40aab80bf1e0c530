"""Public cases for compaction (compactbench): whether what a user laid down is still known after a compaction.

    python benchmarks/constraints.py FOLDER

``FOLDER`` is the unpacked source distribution of compactbench 0.1.0, whose wheel has no cases; the package has to be
installed too. Each public template of at least ``LEAST_TURNS`` turns is generated with three seeds, at its longest. The
window is half of the session, and nothing is written into the summary, which is the worst that a summary can be. A
constraint or decision counts as found if the words that the case's own question asks for are there: no model is asked.
"""

import json
import sys
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio

from ctxfs import Context
from ctxfs.eviction import Window
from ctxfs.messages import CharsCounter
from ctxfs.tools import recall_tools

LEAST_TURNS = 15
"""In half of a shorter session there is no room for the newest exchange beside what is pinned."""
SHARE = 0.5
ROOM_TOKENS = 100
"""What the window has beyond half of the session: the question and the answer that are asked at the end."""
REPLY_TOKENS = 40
SEEDS = range(3)


async def known(case: Any, *, pins: bool) -> list[tuple[bool, bool]]:
    """For each question of a case: whether the last request has its answer, and whether it does with one search."""
    turns = [(turn.role.value, turn.content) for turn in case.transcript.turns]
    said = "\n".join(content for _, content in turns)
    asked = [item for item in case.evaluation_items if item.expected["check"] == "contains_normalized"]
    asked = [item for item in asked if item.expected["value"] in said]
    answers = [item.expected["value"] for item in asked]
    window = Window(window_tokens=int(len(said) / 4 * SHARE) + ROOM_TOKENS, reply_tokens=REPLY_TOKENS)
    with tempfile.TemporaryDirectory() as root:
        async with Context(root_path=root, counter=CharsCounter(), pricing=None, window=window) as context:
            request: Any = None
            for role, content in turns:
                await context.add({"role": role, "content": content})
                if pins and any(answer in content for answer in answers):
                    await context.pin(context.items[-1].id)
                if role == "user":
                    request = await context.request()
            text = json.dumps(request, ensure_ascii=False)
            search = next(tool for tool in recall_tools(context.fs) if tool.name == "history_search")
            found: list[tuple[bool, bool]] = []
            for item, answer in zip(asked, answers, strict=True):
                result = await search.run({"query": item.prompt[:200]})
                found.append((answer in text, answer in f"{text}\n{result.content}"))
            return found


async def table(root: Path) -> None:
    """Print it."""
    generate_case = import_module("compactbench.engine").generate_case
    language = import_module("compactbench.dsl")
    suites = sorted(path for path in (root / "benchmarks" / "public").iterdir() if path.is_dir())
    templates = [template for suite in suites for template in language.load_suite(suite)]
    cases = [generate_case(template, seed, language.DifficultyLevel.HARD) for template in templates for seed in SEEDS]
    long = [case for case in cases if len(case.transcript.turns) >= LEAST_TURNS]
    print("| | in the request | with one search each |")
    print("|---|---:|---:|")
    for what, pins in (("a summary that keeps nothing", False), ("the same, what was laid down pinned", True)):
        results: list[tuple[bool, bool]] = []
        for case in long:
            results += await known(case, pins=pins)
        in_request = sum(has for has, _ in results)
        found = sum(has for _, has in results)
        print(f"| {what} | {in_request} of {len(results)} | {found} of {len(results)} |", flush=True)


if __name__ == "__main__":
    if find_spec("compactbench") is None:
        print("SKIPPED: compactbench is not installed")
    else:
        anyio.run(table, Path(sys.argv[1]))
