"""Does a model find what it once knew? The retrieval tools against the summaries, without a model.

    python benchmarks/bench_recall.py [FACTS]

FACTS (default: 1,000) facts are said in a session that is compacted at least five times. Then each is asked for: by
words that a model would still have, with at most three calls of the tools. Found means that the answer is in a result.
The tokens are those of the calls and their results; a summary is read as it is, all of it.
"""

import sys
import tempfile
import time
from pathlib import Path

import anyio

from ctxfs import ContextFileSystem
from ctxfs.messages import load_counter
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.recall.tools import recall_tools

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests")]

from planted_facts import Fact, PlantedSession, plant  # noqa: E402 - the path comes first

MAX_CALLS = 3
COMPACTIONS = 5


async def main(facts: int) -> bool:
    with tempfile.TemporaryDirectory() as root:
        planted = await plant(Path(root), "facts", facts=facts)
        async with ContextFileSystem("facts", root_path=root, read_only=True) as fs:
            return await _measure(fs, planted)


async def _measure(fs: ContextFileSystem, planted: PlantedSession) -> bool:
    counter = await load_counter()
    tools = {tool.name: tool for tool in recall_tools(fs, notes=False)}
    found, calls, tokens = 0, 0, 0

    async def call(name: str, **arguments: object) -> str:
        nonlocal calls, tokens
        text = (await tools[name].run(arguments)).text
        calls += 1
        tokens += counter.count(text) + counter.count(name + json_codec.dumps_text(arguments))
        return text

    async def look_for(fact: Fact) -> bool:
        text = await call("history_search", query=fact.question, max_matches=3)
        if fact.answer in text:
            return True
        for hit in text.splitlines()[: MAX_CALLS - 1]:
            item, _, rest = hit.partition(":")
            line = rest.partition(" ")[0]
            if line.isdigit() and fact.answer in await call("history_read", item=item, line=int(line), lines=20):
                return True
        return False

    await tools["history_search"].run({"query": "first"})  # makes the index
    started = time.process_time()
    for fact in planted.facts:
        found += await look_for(fact)
    spent = time.process_time() - started
    count = len(planted.facts)
    summary = planted.summaries[-1] if planted.summaries else ""
    in_summaries = sum(any(fact.answer in text for text in planted.summaries) for fact in planted.facts)
    print(f"{count} facts, {planted.compactions} compactions")
    print("| way | found | calls a fact | tokens a fact |")
    print("|---|---:|---:|---:|")
    print(f"| search and read | {found / count:.1%} | {calls / count:.2f} | {tokens / count:,.0f} |")
    print(f"| all summaries | {in_summaries / count:.1%} | 0 | {counter.count(summary):,} (in every request) |")
    print(f"CPU: {1_000 * spent / count:.1f} ms a fact")
    return found == count and planted.compactions >= COMPACTIONS


if __name__ == "__main__":
    sys.exit(0 if anyio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 1_000) else 1)
