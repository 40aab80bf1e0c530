"""What a ledger holds, in blocks, so that a plan looks only at the items that may be ripe. Pure.

An item is ripe at the age ``patience`` times a factor that is the same for all items of its lesson, and that changes
from call to call. Of each block the first call is kept at which one of its items could be ripe, by a somewhat smaller
factor. Until then, and while the factor is not smaller still, the block is passed over as a number of tokens.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf
from typing import Final

from ctxfs.economics.held import Held
from ctxfs.economics.ledger import Ledger

__all__ = ["Ripening"]

_BLOCK: Final = 64
_LEAST: Final = 32
"""A block of fewer items is made again, so that changes do not leave many small ones."""

_LOWER: Final = 0.8
_CLOSE: Final = 0.95
"""By so much less than the factor of today the first call is reckoned: at first, and when that call has come."""

_ROUNDING: Final = 1e-6


@dataclass(slots=True, eq=False)
class _Block:
    """Consecutive items. ``first_ripe``: by lesson a factor, and the first call at which one could be ripe by it."""

    items: list[Held]
    as_one: Held = field(init=False)
    arrived: int = field(init=False)
    lessons: frozenset[str] = field(init=False)
    first_ripe: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arrived = max([h.arrived for h in self.items])
        tokens = sum([h.tokens + h.tokens_after for h in self.items])
        self.as_one = replace(self.items[0], tokens=tokens, tokens_after=0, arrived=self.arrived, patience=inf)
        self.lessons = frozenset([h.lesson for h in self.items])

    def may_be_ripe(self, lesson: str, factor: float, calls: int) -> bool:
        """Whether an item of ``lesson`` may be ripe; false only if certainly none is."""
        if not factor > 0:
            return True
        lower, first = self.first_ripe.get(lesson) or (factor + 1, 0.0)
        if lower > factor:
            lower, first = self._reckoned(lesson, factor * _LOWER)
        if first <= calls and lower < factor * _CLOSE:
            lower, first = self._reckoned(lesson, factor * _CLOSE)
        return first <= calls

    def _reckoned(self, lesson: str, factor: float) -> tuple[float, float]:
        first = min([h.born + h.patience * factor for h in self.items if h.lesson == lesson])
        found = self.first_ripe[lesson] = factor, first - _ROUNDING
        return found


class Ripening:
    """The blocks of one session's ledger; those that did not change are kept from one plan to the next."""

    def __init__(self) -> None:
        self._blocks: dict[str, _Block] = {}

    def newest_first(self, ledger: Ledger, factors: Mapping[str, float], *, early: float) -> Iterator[Held]:
        """The items that may be ripe, and those sent once, from the end of the context; other blocks are one item each.

        ``factors``: by lesson; ``early``: an item counts as ripe at this share of its ripe age.
        """
        if len(ledger.held) < _LEAST:
            return ledger.newest_first()
        return chain.from_iterable(self._runs(ledger, factors, early))

    def _runs(self, ledger: Ledger, factors: Mapping[str, float], early: float) -> Iterator[Iterable[Held]]:
        for block in reversed(self._blocks_of(ledger)):
            if block.arrived < ledger.calls - 1 and not any(
                block.may_be_ripe(lesson, factors[lesson] * early, ledger.calls) for lesson in block.lessons
            ):
                yield (block.as_one,)
            else:
                yield reversed(block.items)

    def _blocks_of(self, ledger: Ledger) -> list[_Block]:
        held, known = list(ledger.held.values()), self._blocks
        kept: dict[str, _Block] = {}
        start = 0
        while start < len(held):
            first = held[start].candidate.id
            block = known.get(first)
            if block is None or len(block.items) < _LEAST or held[start : start + len(block.items)] != block.items:
                block = _Block(held[start : _end(held, start, known)])
            kept[first] = block
            start += len(block.items)
        self._blocks = kept
        return list(kept.values())


def _end(held: list[Held], start: int, known: Mapping[str, _Block]) -> int:
    """Where a new block ends: where a known one begins, if it is long enough then."""
    last = min(len(held), start + _BLOCK)
    return next((end for end in range(start + _LEAST, last) if held[end].candidate.id in known), last)
