"""What ``OffloadPolicy(repeats=True)`` saves: "the same as call 7" instead of an equal result, or what has changed.

    CTXFS_TRACES=FOLDER python benchmarks/bench_repeats.py

The first table counts results of 200 characters and more that are equal to one which stands before them in the same
context, in the recorded sessions of the folder and of its parts ``long`` and ``billed``. A repeated result is paid in
each request after it, until the context is emptied; four characters are a token. Nothing is replaced in these sessions,
so this is an upper bound.

The second table replays the sessions, with the cache at 0.1 and writes to it at 1.25 of an uncached token, under what
ctxfs does by default, and with ``repeats``. It counts lines and diffs, the tokens by which they are shorter, those
whose earlier result left after them, what the replies used that stood nowhere, and the read-backs that this took. A
cost differs by more than those tokens where a shorter context makes the planner choose other batches.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ctxfs.errors import CtxfsError
from ctxfs.eviction.preview import named_by
from ctxfs.lab.recordings.formats.table import load
from ctxfs.lab.recordings.recording import Kind, Recording, Role
from ctxfs.lab.replay.cost import Cost, Replacement, Run, replay_session
from ctxfs.lab.replay.economic import Economic, EconomicRun
from ctxfs.lab.replay.lab import counter_named
from ctxfs.lab.replay.session import Item, Session, prepare
from ctxfs.messages.base import Usage
from ctxfs.messages.rates import ANTHROPIC_RATES

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


COUNT = counter_named("chars4")
DEFAULT = Economic(name="default", rates=ANTHROPIC_RATES, count=COUNT)
WITH_REPEATS = Economic(name="repeats", rates=ANTHROPIC_RATES, count=COUNT, repeats=True)


@dataclass(slots=True)
class Told:
    """What was told of repeated results. ``named``: by the item that a line or a diff names, how many name it."""

    equal: int = 0
    changed: int = 0
    saved_tokens: int = 0
    left_later: int = 0
    named: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Watched:
    """A policy that counts what it tells."""

    policy: Economic
    told: Told
    name: str = "watched"

    def start(self, session: Session) -> Run:
        """Begin with a session."""
        self.told.named.clear()
        run = self.policy.start(session)
        assert isinstance(run, EconomicRun)
        return WatchedRun(run, self.told)


@dataclass(frozen=True, slots=True)
class WatchedRun:
    """The policy at work."""

    run: EconomicRun
    told: Told

    def plan(self, added: Sequence[Item], at: float) -> Sequence[Replacement]:
        """Count the lines and diffs before a request, and how often what one named leaves."""
        planned = self.run.plan(added, at)
        new = {item.index: item for item in added}
        for one in planned:
            self.told.left_later += self.told.named.pop(one.index, 0)
        for one in planned:
            if earlier := named_by(one.why):
                index = self.run.item(earlier).index
                self.told.named[index] = self.told.named.get(index, 0) + 1
                self.told.saved_tokens += new[one.index].tokens - one.tokens
                self.told.equal += one.why.startswith("the same")
                self.told.changed += not one.why.startswith("the same")
        return planned

    def replied(self, reply: Sequence[Item], billed: Usage) -> None:
        """Pass it on."""
        self.run.replied(reply, billed)

    def read_back(self, index: int, call: Item, page: Item, billed: Usage) -> None:
        """Pass it on."""
        self.run.read_back(index, call, page, billed)


def replayed(recordings: Sequence[Recording]) -> tuple[Told, list[Cost], list[Cost]]:
    """What is told in the sessions, and what they cost by default and with repeats."""
    told = Told()
    by_default: list[Cost] = []
    with_repeats: list[Cost] = []
    for recording in recordings:
        for thread in recording.threads():
            session = prepare(thread, COUNT)
            by_default.append(replay_session(session, DEFAULT, ANTHROPIC_RATES))
            with_repeats.append(replay_session(session, Watched(WITH_REPEATS, told), ANTHROPIC_RATES))
    return told, by_default, with_repeats


def row(title: str, told: Told, by_default: Sequence[Cost], with_repeats: Sequence[Cost]) -> str:
    """A row of the second table."""
    ratio = sum(one.cost for one in with_repeats) / sum(one.cost for one in by_default)
    worst = max(new.cost / old.cost for new, old in zip(with_repeats, by_default, strict=True) if old.cost)
    hidden = " → ".join(f"{sum(one.hidden_uses for one in costs):,}" for costs in (by_default, with_repeats))
    read_backs = " → ".join(f"{sum(one.read_backs for one in costs):,}" for costs in (by_default, with_repeats))
    counts = f"{told.equal} | {told.changed} | {told.saved_tokens:,} | {told.left_later}"
    return f"| {title} | {counts} | {ratio - 1:+.2%} | {worst - 1:+.2%} | {hidden} | {read_backs} |"


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
    rows: list[str] = []
    print("| sessions | results | equal to one still visible | prompt tokens that they are |")
    print("|---|---:|---:|---:|")
    for part in ("", "long", "billed"):
        folder = Path(named) / part
        if not folder.is_dir():
            print(f"SKIPPED: there is no {folder}")
            continue
        recordings = list(found(folder))
        results, repeated, sent, saved = (sum(column) for column in zip(*map(repeats, recordings), strict=True))
        title = f"{part or 'all'}, {len(recordings)}"
        print(f"| {title} | {results:,} | {repeated:,} ({repeated / results:.1%}) | {saved / sent:.2%} |")
        rows.append(row(title, *replayed(recordings)))
    print(
        "\n| sessions | lines | diffs | tokens fewer | named one left later | cost | worst | hidden uses | read-backs |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
