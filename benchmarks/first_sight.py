"""What a model sees of a new result in the first request that has it: sizes, kinds of content, names and models.

    python benchmarks/first_sight.py

Through ``Context`` with its defaults, tokens counted with o200k. "=": whole.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping

import anyio

from ctxfs import Context
from ctxfs.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.messages.tokens import default_counter

KINDS: Mapping[str, Callable[[int], str]] = {
    "log": lambda n: "".join(f"unit::test_{i} passed quickly in {i % 7}.{i % 10} s\n" for i in range(n)),
    "prose": lambda n: "".join(f"The revenue of region {i} was {i * 37} million, up {i % 9} %.\n" for i in range(n)),
    "JSON": lambda n: json.dumps([{"id": i, "name": f"user{i}", "mail": f"u{i}@x.org", "ok": True} for i in range(n)]),
    "code": lambda n: "".join(f"def handler_{i}(request, store):\n    return store.get({i})\n" for i in range(n)),
}
SIZES = (400, 2_000, 7_500, 9_000, 20_000, 60_000)
NAMES = ("run_tests", "web_search", "read_file", "Bash")
MODELS = ("claude-opus-5-5", "claude-sonnet-5-5", "gpt-5.4", "gemini-2.5-pro", "deepseek-v4-pro", "")
NAMING_TOKENS = 60
"""By how much previews differ because they name the tool and a path."""


async def seen(text: str, name: str, model: str) -> int:
    """How many tokens of a result are in the first request."""
    with tempfile.TemporaryDirectory() as root:
        async with Context(root_path=root, model=model) as context:
            call = {"type": "tool_use", "id": "c1", "name": name, "input": {}}
            await context.add(UserMessage("go"), AssistantMessage((call,)), ToolMessage("c1", name, text))
            content = (await context.messages())[-1].content
            return default_counter().count(str(content))


def sized(kind: str, tokens: int) -> str:
    """A content of about so many tokens."""
    count = default_counter().count
    a_piece = count(KINDS[kind](200)) / 200
    return KINDS[kind](round(tokens / a_piece))


async def table() -> int:
    """Print it; return in how many cells a name or a model sees something else than the others."""
    print("| content | " + " | ".join(f"{size:,} tokens" for size in SIZES) + " |")
    print("|---|" + "---:|" * len(SIZES))
    differ = 0
    for kind in KINDS:
        cells = []
        for size in SIZES:
            text = sized(kind, size)
            whole = default_counter().count(text)
            found = {await seen(text, name, MODELS[0]) for name in NAMES}
            found |= {await seen(text, NAMES[0], model) for model in MODELS}
            differ += max(found) - min(found) > NAMING_TOKENS
            shown = min(found)
            cells.append("=" if shown == whole else f"{shown:,}")
        print(f"| {kind} | " + " | ".join(cells) + " |")
    print(f"\n{len(NAMES)} names of tools, {len(MODELS)} models: {differ} cells in which they differ")
    return differ


if __name__ == "__main__":
    sys.exit(min(anyio.run(table), 1))
