"""How the items of a context could be evicted: one table that every rule reads, and which of them stay. Pure.

A rule decides by sizes and positions alone. Only the placeholders of the items that it chose are then written, and
kept: most items are never evicted, and describing them would cost more than everything else that is done for them.

Pinned items (``ContextItem.pinned``) stay for good. A restored content stays until the model has replied
``RESTORED_REPLIES`` times; only the last resort of the window's guard evicts it earlier, if the prompt could not be
sent otherwise. Then it may be evicted like any other: by keep-recent at once, if there are enough newer results of its
tool.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ctxfs.eviction.offload_plan import Offload, Trim
from ctxfs.eviction.placeholder.attach import Placeholder
from ctxfs.messages.items import ContextItem, ItemType

RESTORED_REPLIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What is pinned as it comes in: results of ``tools``, by name, and messages of the user."""

    tools: frozenset[str] = frozenset()
    user_messages: bool = False

    def holds(self, item: ContextItem) -> bool:
        """Whether ``item``, which is new, is pinned."""
        if item.item_type is ItemType.USER_MESSAGE:
            return self.user_messages
        return item.tool_name is not None and item.tool_name in self.tools


NO_PINS = Pins()


class Holds:
    """The ids of the items that stay because they were restored, or pinned in the context, updated in place."""

    def __init__(self) -> None:
        self._replies_left: dict[str, int] = {}
        self._pinned: set[str] = set()

    def pinned(self, item_id: str) -> None:
        """Hold an item of the context for good."""
        self._replies_left.pop(item_id, None)
        self._pinned.add(item_id)

    def unpinned(self, item_id: str) -> bool:
        """Hold it no more; whether ``pinned`` held it."""
        was_held = item_id in self._pinned
        self._pinned.discard(item_id)
        return was_held

    def restored(self, item_id: str, *, replies_since: int = 0) -> None:
        """Hold an item that was restored ``replies_since`` model replies ago, unless that is too long ago."""
        if replies_since < RESTORED_REPLIES:
            self._replies_left[item_id] = RESTORED_REPLIES - replies_since

    def left(self, item_ids: Iterable[str]) -> None:
        """Note that these items were evicted or moved."""
        for item_id in item_ids:
            self._replies_left.pop(item_id, None)
            self._pinned.discard(item_id)

    def replied(self) -> list[str]:
        """Note a reply of the model; return the ids of the items that may be evicted again."""
        if not self._replies_left:
            return []
        self._replies_left = {item_id: left - 1 for item_id, left in self._replies_left.items()}
        free = [item_id for item_id, left in self._replies_left.items() if not left]
        self.left(free)
        return free

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._replies_left or item_id in self._pinned

    def __iter__(self) -> Iterator[str]:
        yield from self._replies_left
        yield from self._pinned


@dataclass(frozen=True, slots=True)
class EvictionOptions:
    """How an item may be evicted.

    ``placeholder`` replaces it; None: the one that the item has, if it has one. ``trims``: by its price, the large
    arguments of the calls of a reply.
    """

    placeholder: Placeholder | None = None
    trims: tuple[Trim, ...] = ()


NO_OPTIONS = EvictionOptions()
"""By the placeholder that the item has, if it has one."""


@dataclass(slots=True)
class _Option:
    """An item that a placeholder may replace."""

    item: ContextItem
    path: str
    placeholder: Placeholder

    def written(self, item: ContextItem) -> ContextItem:
        text, tokens = self.placeholder.write()
        return replace(item, placeholder=text, placeholder_tokens=tokens)


@dataclass(slots=True)
class Candidates:
    """The items of one context that could be evicted, and the arguments of calls; updated as they come and go."""

    _options: dict[str, _Option] = field(default_factory=dict)
    _trims: dict[str, Trim] = field(default_factory=dict)
    _trims_of: dict[str, tuple[Trim, ...]] = field(default_factory=dict)

    def enter(self, item: ContextItem, path: str, options: EvictionOptions = NO_OPTIONS) -> None:
        """Take in an item at the end of the context, which would go to the file ``path`` (absolute)."""
        if options.trims:
            self._trims_of[item.id] = options.trims
            self._trims |= {trim.stored.id: trim for trim in options.trims}
        placeholder = None if item.pinned else options.placeholder or Placeholder.of(item)
        if placeholder is not None and (not item.destroyed or item.can_shrink):
            self._options[item.id] = _Option(item, path, placeholder)

    def left(self, ids: Iterable[str], shrinkable: Mapping[str, ContextItem] = MappingProxyType({})) -> None:
        """Note that these were evicted or moved: items, or the stored arguments of a call.

        ``shrinkable``: the items whose placeholder a shorter one may replace once the model has seen it.
        """
        for one in ids:
            option = self._options.pop(one, None)
            for trim in self._trims_of.pop(one, ()):
                self._trims.pop(trim.stored.id, None)
            self._trims.pop(one, None)
            if option is not None and one in shrinkable:
                # The item's own one: a restored item was evicted again for the text that the model had seen before.
                own = Placeholder.of(shrinkable[one])
                assert own is not None
                self._options[one] = _Option(shrinkable[one], option.path, own)

    # What the rules ask ----------------------------------------------------------------------------------------------

    def can_leave(self, item_id: str) -> bool:
        """Whether a placeholder may replace the item."""
        return item_id in self._options

    def known_tokens(self, item_id: str) -> int | None:
        """The size of the item's placeholder or, until it is written, the least it can be; None: no placeholder."""
        option = self._options.get(item_id)
        return None if option is None else option.placeholder.known_tokens

    def trims_of(self, item_id: str) -> list[Trim]:
        """How large arguments that are still in a reply may be evicted."""
        return [trim for trim in self._trims_of.get(item_id, ()) if trim.stored.id in self._trims]

    def owner(self, one: str) -> str:
        """The item that ``one`` names, or the reply whose arguments would be stored under that id."""
        return self._trims[one].item_id if one in self._trims else one

    def unwritten_tokens(self, ids: Iterable[str]) -> int:
        """How large the contents are whose placeholders have yet to be written: what writing costs grows with it."""
        unwritten = [option.placeholder for option in self._options_of(ids) if not option.placeholder.is_written]
        return sum([placeholder.content_tokens for placeholder in unwritten])

    def write(self, ids: Iterable[str]) -> None:
        """Write the placeholders of these that are not written yet; a large content takes a while."""
        for option in self._options_of(ids):
            option.placeholder.write()

    def sizes(self, ids: Iterable[str]) -> dict[str, int]:
        """The exact token counts of the placeholders of whole items among these, as far as they are written."""
        found: dict[str, int] = {}
        for option in self._options_of(ids):
            if not option.item.destroyed and option.placeholder.is_written:
                found[option.item.id] = option.placeholder.known_tokens
        return found

    def _options_of(self, ids: Iterable[str]) -> list[_Option]:
        """The options of the items among these that can leave."""
        return [self._options[one] for one in ids if one in self._options]

    def written(self, item: ContextItem) -> ContextItem:
        """``item`` with its placeholder; as it is if it has none."""
        option = self._options.get(item.id)
        return item if option is None else option.written(item)

    def offload(self, item_id: str, reason: str) -> Offload:
        """How an item that can leave is evicted."""
        option = self._options[item_id]
        return Offload.of(option.written(option.item), option.path, reason)

    def step(self, one: str, reason: str) -> Offload | Trim:
        """How an item that can leave, or the arguments of a call, are evicted by price."""
        trim = self._trims.get(one)
        if trim is None:
            return self.offload(one, reason)
        if trim.reason == reason:
            return trim
        return replace(trim, reason=reason)
