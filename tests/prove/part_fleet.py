"""Eight processes want one session of each engine: stopped past their lease, killed, while its server is restarted."""

import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prove.parts import Part, Result
from storage.contest import Outcome, contest
from storage.object_servers import azurite, seaweedfs
from storage.postgres_server import postgres

__all__ = ["ENGINES", "PART", "controls", "round_of"]

PROCESSES = 8
ENGINE_S = 30 * 60.0
ROUND_S = 300.0
RESTART_EACH_S = 60.0


@dataclass(frozen=True, slots=True)
class _Running:
    """A server, and the directory that its data are in."""

    url: str
    options: dict[str, Any]
    restart: Callable[[], None] | None
    data: Path


@contextmanager
def _s3(directory: Path) -> Iterator[_Running]:
    with seaweedfs(directory, fsync=True) as server:
        yield _Running(server.url, server.options, server.restart, directory)


@contextmanager
def _azure(directory: Path) -> Iterator[_Running]:
    """Azurite is told to stop, since it saves what it acknowledged a few seconds later: killed, it loses that."""
    with azurite(directory) as server:
        yield _Running(server.url, server.options, lambda: server.restart(gently=True), directory)


@contextmanager
def _postgres(_directory: Path) -> Iterator[_Running]:
    with postgres() as server:
        yield _Running(server.url, {}, server.restart, server.directory)


@contextmanager
def _directory(directory: Path) -> Iterator[_Running]:
    yield _Running(directory.as_uri(), {}, None, directory)


ENGINES = {"s3": _s3, "azure": _azure, "postgres": _postgres, "directory": _directory}


def round_of(engine: str, seconds: float, *, broken: bool = False, keep: Path | None = None) -> Outcome:
    """One contest on a server of its own, whose data are copied to ``keep`` if something is wrong; None: they go."""
    with tempfile.TemporaryDirectory(prefix="ctxfs-fleet-") as folder, ENGINES[engine](Path(folder)) as running:
        outcome = contest(
            running.url,
            running.options,
            seconds=seconds,
            processes=PROCESSES,
            broken=broken,
            restart=running.restart,
            restart_each_s=RESTART_EACH_S,
        )
        if outcome.violations and keep is not None:
            shutil.copytree(running.data, keep, symlinks=True, ignore=shutil.ignore_patterns("*.sock", ".s.*"))
        return outcome


def controls() -> dict[str, bool]:
    """Stores that write without their condition must be noticed."""
    return {
        f"{engine} without its condition": any(round_of(engine, 20, broken=True).violations for _ in range(3))
        for engine in ("directory", "postgres")
    }


def _run(budget_s: float, state_dir: Path) -> Result:
    ends = time.monotonic() + budget_s
    file = state_dir / "fleet.json"
    state = json.loads(file.read_text()) if file.exists() else {"figures": {}, "seconds": {}, "wrong": []}
    figures: Counter[str] = Counter(state["figures"])
    seconds: Counter[str] = Counter(state["seconds"])
    wrong: list[str] = state["wrong"]
    while due := [engine for engine in ENGINES if seconds[engine] < ENGINE_S]:
        left = ends - time.monotonic()
        if left < 10:
            break
        engine = min(due, key=lambda one: seconds[one])
        lasting = min(ROUND_S, ENGINE_S - seconds[engine], left)
        kept = state_dir / f"{engine}-{seconds[engine]:.0f}"
        outcome = round_of(engine, lasting, keep=kept)
        seconds[engine] += int(lasting)
        for name in ("acknowledged", "turns", "stops_and_kills", "restarts"):
            figures[f"{engine} {name}"] += getattr(outcome, name)
        wrong += [f"{engine}: {violation} (the data are in {kept})" for violation in outcome.violations]
        file.write_text(json.dumps({"figures": figures, "seconds": seconds, "wrong": wrong}))
        print(f"fleet: {engine} {seconds[engine]:.0f} of {ENGINE_S:.0f} s, {len(wrong)} violations", flush=True)
    complete = all(seconds[engine] >= ENGINE_S - 1 for engine in ENGINES)
    return Result(figures=dict(figures), violations=wrong, controls=controls(), complete=complete)


PART = Part(name="fleet", title="Eight processes want one session of each engine", run=_run, share=5.0)
