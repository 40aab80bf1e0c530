"""A long session with facts planted in it, which is compacted several times, without a model."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ctxfs.context import Context
from ctxfs.eviction import Window
from ctxfs.messages import AssistantMessage, Reply, ToolMessage, Usage, UserMessage

__all__ = ["Fact", "PlantedSession", "plant"]

_WORDS = [
    "request",
    "worker",
    "queue",
    "cache",
    "retry",
    "index",
    "shard",
    "replica",
    "socket",
    "buffer",
    "thread",
    "commit",
    "branch",
    "deploy",
    "metric",
]
_THINGS = ["port", "timeout", "owner", "checksum", "revision", "quota", "region", "deadline"]
_PLACES = ("result", "result", "result", "user", "reply", "arguments")


@dataclass(frozen=True)
class Fact:
    """Something that is said once: ``question`` are words that a model would still have; ``answer`` is asked for."""

    question: str
    answer: str
    sentence: str


@dataclass(frozen=True)
class PlantedSession:
    """The facts of a session, the summaries that took the place of its messages, and how often that happened."""

    facts: Sequence[Fact]
    summaries: Sequence[str]
    compactions: int


async def plant(context_root: Path, session_id: str, *, facts: int, seed: int = 1) -> PlantedSession:
    """Record a session in which ``facts`` facts are said, in results, questions, replies and arguments of calls.

    Summaries are written by a stand-in for a model: the beginning of what it is given, 1,000 characters.
    """
    rng = random.Random(seed)
    planted = [_fact(rng, n) for n in range(facts)]
    summaries: list[str] = []

    async def summarize(prompt: str) -> Reply:
        summaries.append(prompt[-1_000:])
        return Reply(message=AssistantMessage(prompt[-1_000:]), usage=Usage(), stop_reason="end_turn", model="stand-in")

    window = Window(window_tokens=24_000, reply_tokens=2_000, summarize=summarize)
    async with Context(session_id=session_id, root_path=context_root, window=window, pricing=None) as context:
        await context.add(UserMessage("Look into everything, and remember it."))
        for number, start in enumerate(range(0, facts, len(_PLACES)), start=1):
            await _turn(context, rng, number, planted[start : start + len(_PLACES)])
        archives = set(context.fs.state.archived.values())
    return PlantedSession(planted, summaries, len(archives))


async def _turn(context: Context, rng: random.Random, number: int, facts: Sequence[Fact]) -> None:
    """One exchange: a question, a call, its result and a reply, each with its facts."""
    said = {place: [f.sentence for f, p in zip(facts, _PLACES, strict=False) if p == place] for place in _PLACES}
    await context.add(UserMessage(" ".join(["Go on.", *said["user"]])))
    await context.request()
    arguments = {"command": f"inspect --part {number} # {' '.join(said['arguments'])}"}
    call = {"type": "tool_use", "id": f"call_{number}", "name": "inspect", "input": arguments}
    await context.add(AssistantMessage(({"type": "text", "text": " ".join(said["reply"]) or "Let me look."}, call)))
    lines = [_noise(rng) for _ in range(60)]
    for sentence in said["result"]:
        lines[rng.randrange(len(lines))] += f"; {sentence}"
    await context.add(ToolMessage(f"call_{number}", "inspect", "\n".join(lines)))
    await context.request()
    await context.add(AssistantMessage("Noted."))


def _noise(rng: random.Random) -> str:
    return f"{rng.choice(_THINGS)} of {rng.choice(_WORDS)} {rng.choice(_WORDS)} {rng.randrange(10_000)} is as it was"


def _fact(rng: random.Random, number: int) -> Fact:
    thing, first, second = rng.choice(_THINGS), rng.choice(_WORDS), rng.choice(_WORDS)
    name = f"{first}_{second}_{number}"
    answer = f"{rng.randrange(10**6):06}"
    return Fact(question=f"{thing} of {name}", answer=answer, sentence=f"the {thing} of {name} is {answer}")
