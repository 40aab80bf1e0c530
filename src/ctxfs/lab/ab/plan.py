"""Which sessions a comparison plays, and in which order: each task in each arm, paired, at random. Pure."""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ctxfs.lab.ab.arms import Arm
from ctxfs.lab.ab.results import LEFT_OUT, SessionKey, SessionResult
from ctxfs.lab.ab.tasks import Task


@dataclass(frozen=True, slots=True)
class Pair:
    """One task in each arm, in the order in which they are played."""

    task: Task
    repeat: int
    arms: tuple[Arm, ...]

    def key(self, arm: Arm) -> SessionKey:
        """Which session an arm's is."""
        return SessionKey(self.task.id, self.repeat, arm.name)


def pairs_in_order(tasks: Sequence[Task], arms: Sequence[Arm], repeats: int, seed: int) -> list[Pair]:
    """All pairs, shuffled, and the arms of each: the same seed gives the same order.

    Each repeat is shuffled alone, so that a budget that ends early has every task about as often.
    """
    draw = random.Random(seed)  # noqa: S311 - an order, and no secret
    pairs = []
    for repeat in range(repeats):
        shuffled = list(tasks)
        draw.shuffle(shuffled)
        for task in shuffled:
            order = list(arms)
            draw.shuffle(order)
            pairs.append(Pair(task, repeat, tuple(order)))
    return pairs


def left_to_play(pair: Pair, ended: Collection[SessionResult]) -> list[Arm]:
    """The arms of a pair whose session did not end, or is left out and played again."""
    done = {result.key for result in ended if result.outcome not in LEFT_OUT}
    return [arm for arm in pair.arms if pair.key(arm) not in done]


def pair_cost_usd(ended: Collection[SessionResult], arms: int) -> float:
    """What the next pair may need: as much as the dearest sessions so far; 0 before the first one.

    The last session of a pair needs what one reserves at most, which is more than what it costs.
    """
    dearest = max((result.usd for result in ended), default=0.0)
    most = max((result.most_usd for result in ended), default=0.0)
    return (arms - 1) * dearest + most
