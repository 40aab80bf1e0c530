"""What evicting by price costs against never evicting, for each set of recorded sessions, prices and cache.

``CTXFS_TRACES=FOLDER python benchmarks/bench_economics.py [NAME=VALUE …]`` takes half a minute on two processes. Tokens
are characters / 4. The folder holds sessions (``*.json``), and in ``long``, ``mini`` and ``times`` further ones, short
ones, and when each message came (``NAME.times.json``). ``NAME=VALUE``: eviction parameters to use instead.
"""

import json
import math
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.lab.recordings.formats.table import load
from ctxfs.lab.replay.cost import Cached, Cost, replay_session
from ctxfs.lab.replay.economic import Economic
from ctxfs.lab.replay.lab import PROCESSES, counter_named
from ctxfs.lab.replay.policies import Never
from ctxfs.lab.replay.session import Session, prepare
from ctxfs.messages.rates import ANTHROPIC_RATES, Rates

COUNT = counter_named("chars4")
STEPPED = replace(ANTHROPIC_RATES, steps=((100_000, Rates(read=0.5, write=6.25, output=25.0)),))
CHEAPER = replace(ANTHROPIC_RATES, read=0.05)
CHEAPEST = replace(ANTHROPIC_RATES, read=0.025)
FOR_AN_HOUR = replace(ANTHROPIC_RATES, write=2.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: which sessions, at what prices, with which cache.

    ``timed``: cache prices and time to live are those of the recording's bills, and its pauses can expire the cache.
    ``knows_times``: the planner knows that time to live. ``pauses``: False: the cache never expires.
    """

    title: str
    folder: str
    rates: Rates = ANTHROPIC_RATES
    cached: Cached = "prefix"
    timed: bool = False
    knows_times: bool = True
    pauses: bool = True


ROWS = (
    Row("33 sessions, 0.1 / 1.25", "."),
    Row("… 0.05 / 1.25", ".", rates=CHEAPER),
    Row("… 0.025 / 1.25", ".", rates=CHEAPEST),
    Row("… a host's breakpoints at the tail", ".", cached="tail"),
    Row("… five times as dear above 100k", ".", rates=STEPPED),
    Row("times as recorded", "times", timed=True),
    Row("… the planner does not know them", "times", timed=True, knows_times=False),
    Row("… at the same prices without pauses", "times", timed=True, pauses=False),
    Row("… at 0.1 / 1.25 without pauses", "times"),
    Row("long sessions, 0.1 / 1.25", "long"),
    Row("… times as recorded", "long", timed=True),
    Row("… the planner does not know them", "long", timed=True, knows_times=False),
    Row("short runs, 0.1 / 1.25", "mini"),
    Row("… 0.05 / 1.25", "mini", rates=CHEAPER),
    Row("… 0.025 / 1.25", "mini", rates=CHEAPEST),
)


def sessions_of(folder: Path, row: Row) -> list[Path]:
    """The recordings that a row is about."""
    if row.folder == "times":
        names = {path.name.removesuffix(".times.json") for path in (folder / "times").glob("*.times.json")}
        paths = [path for path in sorted(folder.glob("*.json")) if path.stem in names]
        return [path for path in paths if None not in times_of(path)["at"]]
    return [p for p in sorted((folder / row.folder).glob("*.json")) if not p.name.endswith(".times.json")]


@cache
def ready(path: Path) -> Session:
    """A recording made ready, with the times of its requests if those are known."""
    (recording,) = load(path)
    session = prepare(recording, COUNT)
    known = times_of(path)
    if "at" not in known:
        return session
    roles = [message["role"] for message in json.loads(path.read_bytes())["messages"]]
    sent = [known["at"][n - 1] or 0.0 for n, role in enumerate(roles) if role == "assistant"]
    turns = zip(session.turns, sent, strict=True)
    return replace(session, turns=tuple(replace(turn, at=at) for turn, at in turns))


def times_of(path: Path) -> dict[str, Any]:
    """What is known of when a recording's messages came; empty when nothing is."""
    for folder in (path.parent, path.parent / "times"):
        if (found := folder / f"{path.stem}.times.json").exists():
            read: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
            return read
    return {}


def cache_of(path: Path, row: Row) -> tuple[Rates, float]:
    """What the recording's calls paid for writing to the cache, and for how many seconds that was kept."""
    if not row.timed:
        return row.rates, math.inf
    kept_an_hour = any((u or {}).get("cache_write_1h") for u in times_of(path).get("usage", ()))
    rates, ttl_s = (FOR_AN_HOUR, 3_600.0) if kept_an_hour else (row.rates, 300.0)
    return rates, ttl_s if row.pauses else math.inf


def replayed(path: Path, row: Row, given: Mapping[str, Any]) -> tuple[float, Cost]:
    """What never evicting costs, and what the planner does."""
    session, (rates, ttl_s) = ready(path), cache_of(path, row)
    parameters = EvictionParameters.from_mapping(given)
    told = replace(rates, rewrites_all=row.cached == "tail")
    known_ttl_s = ttl_s if row.knows_times else math.inf
    policy = Economic(name="economic", rates=told, count=COUNT, parameters=parameters, ttl_s=known_ttl_s)
    never = replay_session(session, Never(), rates, cached=row.cached, ttl_s=ttl_s)
    return never.cost, replay_session(session, policy, rates, cached=row.cached, ttl_s=ttl_s)


def on_one(path: Path, rows: Sequence[Row], given: Mapping[str, Any]) -> list[tuple[float, Cost]]:
    """One recording in every row that it is in: it is made ready once."""
    return [replayed(path, row, given) for row in rows]


Figures = list[tuple[Path, float, Cost]]


def replay_rows(folder: Path, rows: Sequence[Row], given: Mapping[str, Any]) -> list[Figures]:
    """Every recording of every row."""
    rows_of: dict[Path, list[int]] = {}
    for number, row in enumerate(rows):
        for path in sessions_of(folder, row):
            rows_of.setdefault(path, []).append(number)
    found: list[Figures] = [[] for _ in rows]
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        largest_first = sorted(rows_of, key=lambda path: -path.stat().st_size)
        futures = {path: pool.submit(on_one, path, [rows[n] for n in rows_of[path]], given) for path in largest_first}
        for path, numbers in rows_of.items():
            for number, (never, cost) in zip(numbers, futures[path].result(), strict=True):
                found[number].append((path, never, cost))
    return found


def line(title: str, figures: Iterable[tuple[Path, float, Cost]]) -> str:
    """One line of the table."""
    found = list(figures)
    never, calls = sum(n for _, n, _ in found), sum(len(c.calls) for _, _, c in found)
    shares = [cost.cost / n for _, n, cost in found]
    read_backs = 100 * sum(c.read_backs for _, _, c in found) / calls
    over = 100 * sum(share > 1.02 for share in shares) / len(shares)
    total = sum(c.cost for _, _, c in found) / never
    relative = " | ".join(f"{share:.3f}" for share in (total, fmean(shares), max(shares)))
    return f"| {title:40} | {len(found):3} | {relative} | {over:5.1f} | {read_backs:6.1f} |"


LENGTHS: Sequence[tuple[str, Callable[[int], bool]]] = (
    ("under 50 calls", lambda calls: calls < 50),
    ("50 to 150 calls", lambda calls: 50 <= calls < 150),
    ("150 calls and more", lambda calls: calls >= 150),
)


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    folder = Path(os.environ["CTXFS_TRACES"])
    given = {name: json.loads(value) for name, value in (argument.split("=", 1) for argument in arguments)}
    EvictionParameters.from_mapping(given)  # a wrong name is found before any work
    found = replay_rows(folder, ROWS, given)
    print(f"| {'sessions, cached / written token':40} |   n | cost  | mean  | worst | >1.02 | rb/100 |")
    print(f"| {'-' * 40} | --: | ----: | ----: | ----: | ----: | -----: |")
    for row, figures in zip(ROWS, found, strict=True):
        print(line(row.title, figures))
    print()
    everything = {
        path: (path, never, cost) for row, f in zip(ROWS, found, strict=True) if plain(row) for path, never, cost in f
    }
    for title, fits in LENGTHS:
        print(line(title, [f for f in everything.values() if fits(len(f[2].calls))]))
    return 0


def plain(row: Row) -> bool:
    """Whether a row has the usual prices, and a cache that nothing is lost from."""
    return (row.rates, row.cached, row.timed) == (ANTHROPIC_RATES, "prefix", False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
