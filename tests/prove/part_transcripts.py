"""Random transcripts under every policy: a provider accepts all that is sent, and nothing is lost."""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import anyio

from ctxfs.eviction import Window
from ctxfs.eviction.compaction import SelectiveCompaction, Strategy
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.messages.items import ItemType
from ctxfs.testing.invariants import violations
from ctxfs.tools import Materialize, Materializer
from prove.corruptions import CORRUPTIONS, corrupt, valid_body
from prove.parts import Part, Result, seed_in
from prove.play import LosingStore, Policy, check_request, play
from prove.sessions import session
from prove.workers import counted_in_batches, no_threads

__all__ = ["PART", "POLICIES", "controls", "run_sessions"]

SESSIONS = 25_000
"""Some four requests each: a hundred thousand transcripts under every policy."""

_BATCH = 200
_KEEP = {"Read": 1, "Bash": 2, "web-search": 1}
_SMALL = Window(window_tokens=7_000, reply_tokens=1_000)
_DROP = SelectiveCompaction(
    rules={
        ItemType.SKILL_PROMPT: Strategy.DROP,
        ItemType.TOOL_RESULT: Strategy.DROP,
        ItemType.USER_MESSAGE: Strategy.DROP,
        ItemType.ASSISTANT_MESSAGE: Strategy.DROP,
    }
)

POLICIES = (
    Policy(name="keep-recent", settings={"keep_recent": _KEEP}),
    Policy(name="compaction", budget=_SMALL, settings={"offload_policy": OffloadPolicy(token_threshold=200)}),
    Policy(
        name="dropping compaction",
        budget=_SMALL,
        compaction=_DROP,
        settings={"offload_policy": OffloadPolicy(token_threshold=50)},
    ),
    Policy(name="summary", budget=_SMALL, summarize=True),
    Policy(name="materialization", eager=Materializer(settings=Materialize(max_inline_chars=500))),
    Policy(name="economic", economic=EvictionParameters()),
    Policy(
        name="economic, careless, in a window",
        settings={"keep_recent": {"Read": 1}},
        budget=_SMALL,
        summarize=True,
        economic=EvictionParameters(read_back_weight=0.0, max_loss=1000.0),
    ),
    Policy(
        name="all of them",
        settings={"keep_recent": _KEEP, "offload_policy": OffloadPolicy(digest_tokens=60)},
        budget=_SMALL,
        summarize=True,
        eager=Materializer(settings=Materialize(max_inline_chars=2_000)),
    ),
)


def run_sessions(
    numbers: Iterable[int], policies: Sequence[Policy] = POLICIES, *, backend: str = "asyncio"
) -> tuple[Counter[str], list[str]]:
    """Play sessions under every policy; what was counted, and everything that was wrong."""
    counted: Counter[str] = Counter()
    wrong: list[str] = []

    async def all_of_them() -> None:
        for number in numbers:
            one = session(number)
            for policy in policies:
                played = await play(one, policy)
                counted.update(
                    {
                        "played": 1,
                        "transcripts": played.requests,
                        "left": played.left,
                        "archives": played.archives,
                        "overflows": played.overflows,
                        "restored": played.restored,
                        f"transcripts, {policy.name}": played.requests,
                    }
                )
                wrong.extend(f"session {number}, {policy.name}: {what}" for what in played.wrong)

    with no_threads() if backend == "asyncio" else nullcontext():
        anyio.run(all_of_them, backend=backend)
    return counted, wrong


def controls() -> dict[str, bool]:
    """Bad transcripts, each refused with its reason; a policy that tears pairs, and a store that loses content."""
    seen = {}
    for name in CORRUPTIONS:
        bad = corrupt(name, valid_body())
        seen[f"refused: {name}"] = any(bad.reason in found for found in violations(bad.body))
    step = next(turn.steps[0] for one in map(session, range(100)) for turn in one.turns if turn.steps)
    seen["a result that leaves without its call"] = bool(check_request([step.reply, *step.results[1:]]))
    seen["a call that leaves without its result"] = bool(check_request(list(step.results)))
    for policy in POLICIES:
        losing = [anyio.run(play, session(number), policy, LosingStore) for number in range(10)]
        seen[f"content that is lost: {policy.name}"] = any("is lost" in what for one in losing for what in one.wrong)
    return seen


def _batch(seed: int, first: int) -> tuple[Counter[str], list[str]]:
    """Play the sessions of a batch, on asyncio and on trio in turn."""
    backend = ("asyncio", "trio")[first // _BATCH % 2]
    return run_sessions(range(seed + first, seed + min(SESSIONS, first + _BATCH)), backend=backend)


def _run(budget_s: float, state_dir: Path) -> Result:
    batch, numbers = partial(_batch, seed_in(state_dir)), range(0, SESSIONS, _BATCH)
    done, counted, wrong = counted_in_batches(
        batch, numbers, "sessions", file=state_dir / "transcripts.json", budget_s=budget_s
    )
    figures = {"sessions": done, "policies": len(POLICIES), **dict(sorted(counted.items()))}
    return Result(figures=figures, violations=wrong, controls=controls(), complete=done >= SESSIONS)


PART = Part(name="transcripts", title="Random transcripts under every policy", run=_run, share=1.4)
