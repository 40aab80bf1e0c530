"""How much of what is sent repeats a result that the model can still see: what "the same as call 7" could save at most.

    CTXFS_TRACES=FOLDER python benchmarks/bench_repeats.py

Counts results of 200 characters and more that are equal to one which stands before them in the same context, in the
recorded sessions of the folder and of its parts ``long`` and ``billed``. A repeated result is paid in each request
after it, until the context is emptied; four characters are a token. Nothing is replaced in these sessions, so this is
an upper bound.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ctxfs.errors import CtxfsError
from ctxfs.lab.recordings.formats.table import load
from ctxfs.lab.recordings.recording import Kind, Recording, Role

LEAST_CHARS = 200
"""Shorter results cost less than the line that would replace them."""
CHARS_PER_TOKEN = 4
LINE_TOKENS = 30
"""What the line costs that would say what the result is equal to."""


def repeats(recording: Recording) -> tuple[int, int, int, int]:
    """How many results there are, and how many are repeated; how many tokens were sent, and how many could be saved."""
    results = repeated = sent = saved = 0
    held = held_twice = 0
    seen: set[str] = set()
    for message in recording.messages:
        if message.is_fresh:
            held = held_twice = 0
            seen = set()
        if message.role is Role.ASSISTANT:
            usage = message.call.usage if message.call else None
            sent += usage.total_input_tokens if usage else held
            saved += held_twice
        for block in message.blocks:
            tokens = len(block.text) // CHARS_PER_TOKEN
            held += tokens
            if block.kind is not Kind.TOOL_RESULT or len(block.text) < LEAST_CHARS:
                continue
            results += 1
            if block.text in seen:
                repeated += 1
                held_twice += max(0, tokens - LINE_TOKENS)
            seen.add(block.text)
    return results, repeated, sent, saved


def found(folder: Path) -> Iterator[Recording]:
    """The recordings of a folder."""
    for file in sorted(folder.iterdir()):
        if file.suffix in {".json", ".jsonl"} and not file.name.endswith(".times.json"):
            try:
                yield from load(file)
            except CtxfsError as error:
                print(f"not read: {file.name}: {error}"[:150], file=sys.stderr)


def main() -> int:
    """Print a row for each part."""
    if (named := os.environ.get("CTXFS_TRACES")) is None:
        print("SKIPPED: set CTXFS_TRACES to a folder of recorded sessions")
        return 0
    print("| sessions | results | equal to one still visible | prompt tokens that they are |")
    print("|---|---:|---:|---:|")
    for part in ("", "long", "billed"):
        folder = Path(named) / part
        if not folder.is_dir():
            print(f"SKIPPED: there is no {folder}")
            continue
        rows = [repeats(recording) for recording in found(folder)]
        results, repeated, sent, saved = (sum(column) for column in zip(*rows, strict=True))
        counts = f"{len(rows)} | {results:,} | {repeated:,} ({repeated / results:.1%})"
        print(f"| {part or 'all'}, {counts} | {saved / sent:.2%} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
