"""Count the numbers of the economic planner on billed sessions, show each fold, and what they cost.

``CTXFS_TRACES=FOLDER python scripts/fit_planner.py`` prints the numbers of ``EvictionParameters`` as they are counted
on all sessions and on all but those of each group of repositories, with what these cost on the sessions held out.
``… fit_planner.py table`` prints what the planner, and others, cost at billed sizes: by set, agent, length and price.

The folder holds ``billed`` (sessions in their original formats) and, in ``times`` and ``long``, when each message of
other sessions came and what its call was billed. Tokens are characters / 4, in the proportion that each bill shows.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from ctxfs.eviction.economics.parameters import EvictionParameters, ItemKind
from ctxfs.lab.recordings.formats.table import load
from ctxfs.lab.recordings.recording import ModelCall
from ctxfs.lab.replay.cost import Cached, Policy, replay_session
from ctxfs.lab.replay.economic import Economic
from ctxfs.lab.replay.lab import PROCESSES, Thread, counter_named, load_threads
from ctxfs.lab.replay.policies import Never, oracle_cost, policy_named
from ctxfs.lab.replay.prediction import calibrated
from ctxfs.lab.replay.session import Session, prepare
from ctxfs.lab.replay.tariff import PriceOptions, tariff_of
from ctxfs.lab.replay.tune import Cells, Counted, count, counted, joined
from ctxfs.messages.base import Usage
from ctxfs.messages.rates import ANTHROPIC_RATES, Rates

FOLDS: Final = 5
STEPPED = replace(ANTHROPIC_RATES, steps=((200_000, Rates(read=0.2, write=2.5, output=7.5)),))
PRICES: Sequence[tuple[str, Rates, Cached]] = (
    ("0.1 / 1.25", ANTHROPIC_RATES, "prefix"),
    ("0.05 / 1.25", replace(ANTHROPIC_RATES, read=0.05), "prefix"),
    ("0.025 / 1.25", replace(ANTHROPIC_RATES, read=0.025), "prefix"),
    ("0.25 / 1.0", Rates(read=0.25, write=1.0, output=4.0), "prefix"),
    ("breakpoints at the tail", replace(ANTHROPIC_RATES, rewrites_all=True), "tail"),
    ("twice as dear above 200k", STEPPED, "prefix"),
)
WHOLE: Final = "economic, no previews"
OTHERS: Final = ("economic", WHOLE, "clear-100k-keep-3", "ski-rental", "oracle")
_count = counter_named("chars4")  # that of ``ctxfs replay --tokens chars4``: parts of a token count as one
AGENTS: Final = {"cc": "Claude Code", "cod": "Codex", "codex": "Codex", "oc": "opencode"}


@dataclass(frozen=True, slots=True)
class Source:
    """A session: its set, its file, the file with its bills (None: its own), and its repository."""

    group: str
    path: Path
    times: Path | None
    repository: str

    @property
    def agent(self) -> str:
        """Which agent recorded it, by its name."""
        return AGENTS.get(self.path.stem.removeprefix("a-").split("-")[0], "others")


@dataclass(frozen=True, slots=True)
class Row:
    """What one session costs under one policy at one price, and never evicting."""

    source: Source
    policy: str
    price: str
    calls: int
    cost: float
    never: float
    read_backs: int


def sources(folder: Path, *, all_sets: bool) -> Iterator[Source]:
    """The billed sessions; with ``all_sets``, those too that are shown and not counted on."""
    for path in sorted((folder / "billed").glob("*.json*")):
        yield Source("billed", path, None, _repositories(folder / "billed")[path.stem])
    for name, where, home in (("times", folder / "times", folder), ("times", folder / "long", folder / "long")):
        known = _repositories(home)
        for times in sorted(where.glob("*.times.json")):
            stem = times.name.removesuffix(".times.json")
            if any(json.loads(times.read_text())["usage"]):
                yield Source(name, home / f"{stem}.json", times, known.get(stem, stem.split("-")[1]))
    if all_sets:
        for group, where in (("the 33", folder), ("short runs", folder / "mini")):
            for path in sorted(where.glob("*.json")):
                yield Source(group, path, None, group)


def _repositories(folder: Path) -> dict[str, str]:
    lines = (folder / "MANIFEST.tsv").read_text().splitlines()
    columns = lines[0].split("\t")
    key = columns.index("id")
    value = next(n for n, name in enumerate(columns) if name in {"repository", "source"})
    return {row[key]: row[value].split()[0] for row in (line.split("\t") for line in lines[1:])}


def thread_of(source: Source) -> Thread:
    """The session's first thread at billed sizes, where there is a bill."""
    (recording, *_) = load(source.path)
    if source.group == "billed":
        return load_threads(recording, "chars4", PriceOptions()).threads[0]
    session = prepare(recording, _count)
    if source.times is not None:
        session = calibrated([_with_bills(session, source)])[0]
    return Thread(session, tariff_of(recording, PriceOptions()), partial(_scaled, session.scale))


def _scaled(scale: float, text: str) -> int:
    return round(_count(text) * scale)


def _with_bills(session: Session, source: Source) -> Session:
    """The session with the bill of each call: bills and messages are in the same order."""
    assert source.times is not None
    told = json.loads(source.times.read_text())
    roles = [message["role"] for message in json.loads(source.path.read_text())["messages"]]
    usages = [usage for usage, role in zip(told["usage"], roles, strict=False) if role == "assistant"]
    turns = [
        replace(turn, call=ModelCall(usage=_usage(usage)) if usage else None)
        for turn, usage in zip(session.turns, usages, strict=True)
    ]
    return replace(session, turns=tuple(turns))


def _usage(told: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=told["input"],
        cache_read_input_tokens=told["cache_read"],
        cache_creation_input_tokens=told["cache_write_5m"] + told["cache_write_1h"],
        output_tokens=told["output"],
    )


# Counting ------------------------------------------------------------------------------------------------------------


def cells_of(source: Source) -> Cells:
    """What one session counts."""
    return count(thread_of(source))


def cost_with(source: Source, tried: Sequence[EvictionParameters]) -> list[float]:
    """What never evicting costs in one session, and what each of the parameters."""
    thread = thread_of(source)
    policies: list[Policy] = [Never()]
    whole = Economic(name="tried", rates=ANTHROPIC_RATES, count=thread.count, preview_above_tokens=None)
    policies += [replace(whole, parameters=p) for p in tried]
    return [replay_session(thread.session, policy, ANTHROPIC_RATES).cost for policy in policies]


def fit(folder: Path, pool: ProcessPoolExecutor) -> None:
    """Print what is counted on everything, and on each fold's others with what that costs on the fold."""
    found = list(sources(folder, all_sets=False))
    cells = list(pool.map(cells_of, found))
    repositories = sorted({source.repository for source in found})
    folds = [frozenset(repositories[n::FOLDS]) for n in range(FOLDS)]
    print(f"{len(found)} billed sessions of {len(repositories)} repositories, {FOLDS} folds by repository\n")
    print(
        "| counted on | file | result | arguments | by size | by age | read-backs | held out: cost | with the code's |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for number, fold in enumerate(folds, 1):
        others = counted(joined(c for c, s in zip(cells, found, strict=True) if s.repository not in fold))
        held_out = [source for source in found if source.repository in fold]
        tried = (others.parameters(), EvictionParameters())
        costs = list(pool.map(partial(cost_with, tried=tried), held_out))
        never, fitted, ours = (sum(one[n] for one in costs) for n in range(3))
        print(_counted_row(f"all but fold {number}", others, f"{fitted / never:.3f}", f"{ours / never:.3f}"))
    everything = counted(joined(cells))
    print(_counted_row("all", everything, "", ""))
    print(f"\nstandard errors: {', '.join(f'{name} {error:.2f}' for name, error in everything.errors.items())}")
    same = everything.parameters() == EvictionParameters()
    print(f"the numbers in the code {'are' if same else 'ARE NOT'} these, rounded")


def _counted_row(name: str, found: Counted, held_out: str, ours: str) -> str:
    rates = " | ".join(f"{found.read_backs[kind]:.3f}" for kind in ItemKind)
    return f"| {name} | {rates} | {found.by_size:.2f} | {found.by_age:.2f} | {found.events:,} | {held_out} | {ours} |"


# The table -----------------------------------------------------------------------------------------------------------


def rows_of(source: Source) -> list[Row]:
    """Every policy at the usual prices, and the planner, with previews and without, at the others."""
    thread = thread_of(source)
    session = thread.session
    rows = []
    for price, rates, cached in PRICES:
        plain = replace(rates, rewrites_all=False)
        never = replay_session(session, Never(), plain, cached=cached).cost
        for name in OTHERS if price == PRICES[0][0] else OTHERS[:2]:
            if name == "oracle":
                cost, read_backs = oracle_cost(session, rates, tool_inputs=True), 0
            else:
                policy: Policy = Economic(name=WHOLE, rates=rates, count=thread.count, preview_above_tokens=None)
                if name != WHOLE:
                    policy = policy_named(name, rates=rates, count=thread.count)
                replayed = replay_session(session, policy, plain, cached=cached)
                cost, read_backs = replayed.cost, replayed.read_backs
            rows.append(Row(source, name, price, len(session.turns), cost, never, read_backs))
    return rows


GROUPS: Sequence[tuple[str, Callable[[Row], bool]]] = (
    ("50 billed sessions", lambda row: row.source.group == "billed"),
    ("… Claude Code", lambda row: row.source.group == "billed" and row.source.agent == "Claude Code"),
    ("… Codex", lambda row: row.source.group == "billed" and row.source.agent == "Codex"),
    ("… opencode", lambda row: row.source.group == "billed" and row.source.agent == "opencode"),
    ("30 sessions with times, at billed sizes", lambda row: row.source.group == "times"),
    ("both, under 50 calls", lambda row: row.source.group in {"billed", "times"} and row.calls < 50),
    ("both, 50 to 150 calls", lambda row: row.source.group in {"billed", "times"} and 50 <= row.calls <= 150),
    ("both, over 150 calls", lambda row: row.source.group in {"billed", "times"} and row.calls > 150),
    ("the 33 as transcripts (not counted on)", lambda row: row.source.group == "the 33"),
    ("109 short runs (not counted on)", lambda row: row.source.group == "short runs"),
)


def table(folder: Path, pool: ProcessPoolExecutor) -> None:
    """Print what each policy costs in each group, and the planner at each price."""
    rows = [row for rows in pool.map(rows_of, sources(folder, all_sets=True)) for row in rows]
    head = "| {} | policy | sessions | cost | mean | worst | over 1.02 | over 1.03 | read-backs per 100 calls |"
    print(head.format("sessions") + "\n| --- | --- |" + " ---: |" * 7)
    for title, fits in GROUPS:
        for name in OTHERS:
            print(_cost_row(title, name, [r for r in rows if r.policy == name and r.price == PRICES[0][0] and fits(r)]))
    print("\n" + head.format("prices, sets") + "\n| --- | --- |" + " ---: |" * 7)
    by_set: defaultdict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.policy in OTHERS[:2]:
            by_set[row.policy, row.price, row.source.group].append(row)
    for (policy, price, group), found in sorted(by_set.items()):
        print(_cost_row(f"{price}, {group}", policy, found))


def _cost_row(title: str, policy: str, rows: Sequence[Row]) -> str:
    shares = [row.cost / row.never for row in rows]
    total = sum(row.cost for row in rows) / sum(row.never for row in rows)
    over = 100 * sum(share > 1.02 for share in shares) / len(shares)
    above = sum(share > 1.03 for share in shares)
    read_backs = 100 * sum(row.read_backs for row in rows) / sum(row.calls for row in rows)
    figures = f"{total:.3f} | {fmean(shares):.2f} | {max(shares):.2f} | {over:.0f} % | {above} | {read_backs:.1f}"
    return f"| {title} | {policy} | {len(rows)} | {figures} |"


def main(arguments: Sequence[str]) -> int:
    """Count, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["table"], help="print the table, and count nothing")
    given = parser.parse_args(arguments)
    if "CTXFS_TRACES" not in os.environ:
        parser.error("CTXFS_TRACES names no folder of recordings")
    run = fit if given.what is None else table
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        run(Path(os.environ["CTXFS_TRACES"]), pool)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
