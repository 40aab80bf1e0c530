"""What a ledger holds: the items that could leave, in blocks, so that a plan looks only at those that may. Pure."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from ctxfs.eviction.economics.parameters import ItemKind

_BLOCK: Final = 64
"""So many items are one block: few enough to sum up again when one leaves, and many enough that blocks are few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A tool result, or the arguments of a tool call, that a placeholder could stand for.

    Args:
        id: unique in the session.
        kind: what it is; its read-backs are expected by that.
        tokens: its size in the context.
        placeholder_tokens: the size of its placeholder, with the digest.
        hidden_tokens: what is not in the context of its content, of which that holds a preview; 0: all is.
        is_counted: what is hidden was counted before, when the whole content left.
        pinned: only another rule may evict it, and what that costs is not counted.
    """

    id: str
    kind: ItemKind
    tokens: int
    placeholder_tokens: int
    hidden_tokens: int = 0
    is_counted: bool = False
    pinned: bool = False


@dataclass(slots=True, eq=False)
class Held:
    """An item that is in the context.

    Args:
        candidate: what it is.
        came: the calls that were made before it came.
        used: the calls that were made before it was last used; its age counts from there.
        saved_tokens: what its placeholder would save.
        hazard: the read-backs that a call would ask of it at the age of one call; they fall as 1 / age.
        tokens_after: what stands between it and the next held item, and stays.
    """

    candidate: Candidate
    came: int
    used: int
    saved_tokens: int
    hazard: float
    tokens_after: int = 0
    patience: float = field(init=False)
    """Its hazard against what it saves; its ripe age, at which risk and rent are level, is in proportion."""
    block: "ItemBlock" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.patience = self.hazard / self.saved_tokens

    @property
    def id(self) -> str:
        """The candidate's id."""
        return self.candidate.id

    def is_new(self, calls: int) -> bool:
        """Whether, after so many calls, no reply has followed it yet: the model has not seen it. See ``is_in_use``."""
        return self.came + (self.candidate.hidden_tokens > 0) >= calls

    def is_in_use(self, calls: int) -> bool:
        """Whether, after so many calls, no reply has followed its last use yet. A preview stays for one reply more."""
        return self.used + (self.candidate.hidden_tokens > 0) >= calls


class ItemBlock:
    """Consecutive items, and what a plan needs of them together: once it is summed up, until one of them changes.

    ``tokens``: with what stands between them; ``lead`` of them stand before the first that is not pinned.
    Of the items that are not pinned: ``free``, from the end on, ``saved``
    and ``hazard`` in all, ``saved_calls``, the sum of what each saves times ``used``, the ``least`` and the ``most``
    patience, and when the ``oldest`` and the ``newest`` of them were last used.
    """

    __slots__ = (
        "free",
        "hazard",
        "is_summed",
        "items",
        "lead",
        "least",
        "most",
        "newest",
        "oldest",
        "saved",
        "saved_calls",
        "tokens",
    )

    def __init__(self, items: list[Held]) -> None:
        self.items = items
        self.is_summed = False
        for held in items:
            held.block = self

    def sum_up(self) -> None:
        """Sum up the items as they are."""
        self.tokens = sum([h.candidate.tokens + h.tokens_after for h in self.items])
        self.free = [h for h in reversed(self.items) if not h.candidate.pinned]
        self.lead = 0
        for held in self.items:
            if not held.candidate.pinned:
                break
            self.lead += held.candidate.tokens + held.tokens_after
        self.saved = sum([h.saved_tokens for h in self.free])
        self.saved_calls = sum([h.saved_tokens * h.used for h in self.free])
        self.hazard = sum([h.hazard for h in self.free])
        patience = [h.patience for h in self.free]
        self.least = min(patience, default=float("inf"))
        self.most = max(patience, default=0.0)
        self.newest = max([h.used for h in self.free], default=0)
        self.oldest = min([h.used for h in self.free], default=0)
        self.is_summed = True


class Chain:
    """The held items in the order of the context, by id and in blocks."""

    def __init__(self) -> None:
        self.by_id: dict[str, Held] = {}
        self._blocks: list[ItemBlock] = []

    def copy(self) -> "Chain":
        """A copy that may change without this one."""
        other = Chain()
        for block in self._blocks:
            items = [Held(h.candidate, h.came, h.used, h.saved_tokens, h.hazard, h.tokens_after) for h in block.items]
            other._blocks.append(ItemBlock(items))
            other.by_id.update([(h.id, h) for h in items])
        return other

    def append(self, held: Held) -> None:
        """Put an item at the end."""
        self.by_id[held.candidate.id] = held
        if not self._blocks or len(self._blocks[-1].items) >= _BLOCK:
            self._blocks.append(ItemBlock([held]))
            return
        last = self._blocks[-1]
        last.items.append(held)
        last.is_summed = False
        held.block = last

    def followed_by(self, tokens: int) -> None:
        """So many tokens that stay follow the last item."""
        if tokens and self._blocks:
            last = self._blocks[-1]
            last.items[-1].tokens_after += tokens
            last.is_summed = False

    def with_tokens(self, item_ids: AbstractSet[str]) -> Iterator[tuple[Held, int]]:
        """These held items, the newest first, each with what the context has in tokens from it on."""
        to_find = {self.by_id[item_id].block for item_id in item_ids}
        tokens = 0
        for block in self.blocks():
            if not to_find:
                break
            if block not in to_find:
                tokens += block.tokens
                continue
            to_find.remove(block)
            for held in reversed(block.items):
                tokens += held.candidate.tokens + held.tokens_after
                if held.id in item_ids:
                    yield held, tokens

    def blocks(self) -> Iterator[ItemBlock]:
        """The blocks from the end to the start, summed up."""
        for block in reversed(self._blocks):
            if not block.is_summed:
                block.sum_up()
            yield block

    def change(self, held: Held, candidate: Candidate) -> None:
        """Note what an item is from now on: pinned or free, or with the exact size of its placeholder."""
        held.candidate = candidate
        held.saved_tokens = candidate.tokens - candidate.placeholder_tokens
        held.patience = held.hazard / held.saved_tokens
        held.block.is_summed = False

    def use(self, held: Held, calls: int) -> None:
        """Note that an item was used after so many calls."""
        held.used = calls
        held.block.is_summed = False

    def take_out(self, stays: Mapping[str, int]) -> None:
        """These are held no longer: so many tokens stand for each, and count with the item before it."""
        hit = {self.by_id.pop(one).block for one in stays}
        behind = 0
        for block in reversed(self._blocks):
            if block not in hit:
                if behind:
                    block.items[-1].tokens_after += behind
                    block.is_summed = False
                    behind = 0
                continue
            kept: list[Held] = []
            for held in reversed(block.items):
                if held.id in stays:
                    behind += stays[held.id] + held.tokens_after
                    continue
                held.tokens_after += behind
                behind = 0
                kept.append(held)
            block.items = kept[::-1]
            block.is_summed = False
        self._blocks = _joined(self._blocks) if hit else self._blocks


def _joined(blocks: list[ItemBlock]) -> list[ItemBlock]:
    """The blocks without the empty ones; neighbours that have room together are one."""
    found: list[ItemBlock] = []
    for block in blocks:
        if found and len(found[-1].items) + len(block.items) <= _BLOCK:
            found[-1] = ItemBlock(found[-1].items + block.items)
        elif block.items:
            found.append(block)
    return found
