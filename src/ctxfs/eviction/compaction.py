"""Selective compaction: when the budget is exceeded, type by type, until the context is small enough. Pure.

Follows "Context FileSystem 上下文卸载功能", compaction. Types are compacted in order; an item that is worth a file
of its own gets one (``OffloadPolicy``); whole old exchanges go together into one archive. A call and its result leave
together.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings
from ctxfs.eviction.offload_plan import Archive, Offload, Plan
from ctxfs.eviction.placeholder.text import READ_TOOL, render
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import has_media
from ctxfs.messages.tokens import TokenCounter

_ALONE = frozenset({ItemType.TOOL_RESULT, ItemType.USER_MESSAGE, ItemType.SKILL_PROMPT})
_ARCHIVE_TOKENS = 100
"""About the largest size of an archive's placeholder."""


class Strategy(StrEnum):
    """What compaction does with the items of a type, unless a number says how many of the newest stay."""

    KEEP = "keep"
    DROP = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSlot:
    """The id and the file that an archive would get."""

    item_id: str
    name: str
    path: str

    def archive(
        self, items: Sequence[ContextItem], placeholder: str, *, counter: TokenCounter, reason: str
    ) -> Archive | None:
        """The archive of ``items`` here; None: ``placeholder`` would not be smaller than they are."""
        before = sum(item.token_count for item in items)
        after = counter.count(placeholder)
        if after >= before:
            return None
        return Archive(
            item_id=self.item_id,
            name=self.name,
            path=self.path,
            item_ids=tuple(i.id for i in items),
            placeholder=placeholder,
            tokens_before=before,
            tokens_after=after,
            reason=reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The context as it is now.

    ``counted_tokens``: the next prompt by our own count, with all that every call sends. ``paths``: the file
    that each item has or would get, absolute, by item id. ``slot``: the id and the file of the next archive; None:
    whole messages cannot be moved into one, since somebody else owns their order. ``with_placeholder`` returns an item
    with the placeholder that may replace it, and is called only if a decision depends on it. ``reader`` is the name of
    the tool that opens the files; None: none is known. ``staying``: ids of items that only the last resort evicts.
    ``pinned``: ids of those among them that are never evicted.
    """

    items: Sequence[ContextItem]
    counted_tokens: int
    paths: Mapping[str, str]
    slot: ArchiveSlot | None
    with_placeholder: Callable[[ContextItem], ContextItem]
    reader: str | None = READ_TOOL
    staying: Collection[str] = ()
    pinned: Collection[str] = ()


_DEFAULT_RULES: Mapping[ItemType, Strategy | int] = MappingProxyType(
    {ItemType.TOOL_RESULT: 5, ItemType.SKILL_PROMPT: 1, ItemType.USER_MESSAGE: 5}
)


def _checked_rule(kind: str, rule: object) -> Strategy | int:
    """``rule``. Raises ``ConfigError`` for one that is invalid, or that could have no effect."""
    if kind not in set(ItemType):
        raise ConfigError(f"rules: unknown item type {kind!r}: use one of {', '.join(ItemType)}")
    if isinstance(rule, str) and rule in set(Strategy):
        rule = Strategy(rule)
    elif not isinstance(rule, int) or isinstance(rule, bool) or rule < 0:
        raise ConfigError(f"the rule of {kind} is {rule!r}: use {', '.join(Strategy)}, or how many of the newest stay")
    if rule is Strategy.KEEP:
        return rule
    if kind == ItemType.TOOL_INPUT:
        raise ConfigError(
            "rules: a tool input is not an item of the context: OffloadPolicy(type_enabled=...) governs it"
        )
    if kind == ItemType.SYSTEM_PROMPT:
        raise ConfigError("rules: the system prompt always stays: use KEEP, or leave it out")
    if kind == ItemType.COMPACTION_SUMMARY and rule is not Strategy.DROP:
        raise ConfigError(f"rules: {kind} is never evicted alone: use KEEP or DROP")
    return rule


@names_settings(
    dict.fromkeys(("policy", "offload_policy"), "give offload_policy beside window: it says what may be evicted")
)
@dataclass(frozen=True, slots=True, kw_only=True)
class SelectiveCompaction:
    """How to make the context smaller without a model.

    ``rules``: what becomes of each type, in the order in which types are compacted; types that are not named are kept.
    A number truncates: so many of the newest items stay, and older ones that are worth a file are offloaded, oldest
    first, until enough is free. DROP removes all of them, KEEP none. For ASSISTANT_MESSAGE a number and DROP move whole
    exchanges (a reply and the results of its calls) into an archive; a tool result is never removed without its call.
    Items that the model has not seen yet stay. What is worth a file of its own, ``offload_policy`` says.

    Raises:
        ConfigError: a rule that is invalid, or that could have no effect.
    """

    rules: Mapping[ItemType, Strategy | int] = field(default_factory=lambda: _DEFAULT_RULES)

    def __post_init__(self) -> None:
        if self.has_default_rules:
            return  # a type that must not leave is simply left alone
        if not isinstance(self.rules, Mapping):
            raise ConfigError(f"rules is {self.rules!r}: use a mapping from types of items to rules")
        checked = {kind: _checked_rule(kind, rule) for kind, rule in self.rules.items()}
        rules = MappingProxyType({ItemType(kind): rule for kind, rule in checked.items()})
        object.__setattr__(self, "rules", rules)

    @property
    def has_default_rules(self) -> bool:
        """Whether nobody wrote the rules."""
        return self.rules is _DEFAULT_RULES

    def check_policy(self, policy: OffloadPolicy) -> None:
        """Raise ``ConfigError`` if a rule that somebody wrote evicts a type that ``policy`` keeps."""
        if self.has_default_rules:
            return
        for kind, rule in self.rules.items():
            if kind in _ALONE and rule is not Strategy.KEEP and not policy.type_enabled[kind]:
                raise ConfigError(
                    f"the rule {rule} of {kind} evicts, offload_policy's type_enabled says that it stays: change "
                    "one of them"
                )

    def plan(
        self,
        view: View,
        *,
        policy: OffloadPolicy,
        free_tokens: int,
        counter: TokenCounter,
        staying: Collection[str] = (),
    ) -> Plan:
        """Free at least ``free_tokens`` (by the counter), type by type; less if there is no more to free.

        ``policy``: what may be evicted, and what is worth a file of its own. Items that are ``staying``, by id, are not
        evicted, and neither are their exchanges.
        """
        items = view.items
        offloads: dict[str, Offload] = {}
        moved: set[str] = set()
        stays = with_exchanges(items, staying)
        seen = seen_items(items)
        for kind, rule in self.rules.items():
            wanted = free_tokens - _freed(items, offloads, moved)
            if wanted <= 0:
                break
            if rule is Strategy.KEEP:
                continue
            if kind is ItemType.ASSISTANT_MESSAGE:
                moved |= _old_exchanges(seen, rule, wanted, stays)
                continue
            of_kind = [item for item in seen if item.item_type is kind]
            if rule is Strategy.DROP and kind is not ItemType.TOOL_RESULT:
                moved |= {item.id for item in of_kind if item.id not in stays}
                continue
            older = of_kind[: _end(of_kind, rule)]
            going = [item for item in older if item.id not in staying and policy.should_offload(item)]
            for offload in _offloads(view, going):
                offloads[offload.item_id] = offload
                wanted -= offload.tokens_before - offload.tokens_after
                if wanted <= 0 and rule is not Strategy.DROP:
                    break
        archive = archive_of([item for item in items if item.id in moved], view=view, counter=counter)
        if archive is None:
            return Plan(offloads=tuple(offloads[i.id] for i in items if i.id in offloads))
        kept = tuple(offloads[i.id] for i in items if i.id in offloads and i.id not in moved)
        changed = moved.union(offload.item_id for offload in kept)
        first = next(i.id for i in items if i.id in changed)
        return Plan(offloads=kept, archive=archive, archive_first=first in moved)


OLD_EXCHANGES = SelectiveCompaction(rules={ItemType.ASSISTANT_MESSAGE: 2})
"""Move exchanges before the last two into an archive: what can be done without a summary."""

SEEN_EXCHANGES = SelectiveCompaction(rules={ItemType.ASSISTANT_MESSAGE: 0})
"""Move exchanges that the model has replied to, even the last ones: for when nothing else fits the window."""


def _end(items: Sequence[object], rule: Strategy | int) -> int:
    """How many of ``items``, the oldest first, ``rule`` may evict."""
    return max(0, len(items) - rule) if isinstance(rule, int) else len(items)


def _offloads(view: View, items: Iterable[ContextItem]) -> Iterator[Offload]:
    """The offload of each of these items of one type, as far as a placeholder is smaller than the item."""
    for item in items:
        written = view.with_placeholder(item)
        if written.placeholder is not None:
            yield Offload.of(written, view.paths[item.id], f"compaction of {item.item_type}s")


def seen_items(items: Sequence[ContextItem]) -> Sequence[ContextItem]:
    """The items that the model has replied to; it has not seen the rest yet."""
    for index in range(len(items) - 1, 0, -1):  # nothing stands before the first
        if items[index].item_type is ItemType.ASSISTANT_MESSAGE:
            return items[:index]
    return ()


def readable_later(items: Sequence[ContextItem]) -> Sequence[ContextItem]:
    """The items that may be evicted: an image or a document stays until the model has seen it."""
    seen = len(seen_items(items))
    return [*items[:seen], *(i for i in items[seen:] if not has_media(i.message.content))]


def _exchanges(items: Sequence[ContextItem]) -> list[list[ContextItem]]:
    """The replies, each with the results of its calls."""
    exchanges: list[list[ContextItem]] = []
    for item in items:
        if item.item_type is ItemType.ASSISTANT_MESSAGE:
            exchanges.append([item])
        elif item.item_type is ItemType.TOOL_RESULT and exchanges:
            exchanges[-1].append(item)
    return exchanges


def with_exchanges(items: Sequence[ContextItem], item_ids: Collection[str]) -> frozenset[str]:
    """``item_ids``, and the ids of all that is in the same exchanges."""
    if not item_ids:
        return frozenset()
    exchanges = ([item.id for item in exchange] for exchange in _exchanges(items))
    return frozenset(item_ids).union(*(ids for ids in exchanges if not frozenset(item_ids).isdisjoint(ids)))


def _old_exchanges(
    seen: Sequence[ContextItem], rule: Strategy | int, wanted_tokens: int, stays: Collection[str]
) -> set[str]:
    """The ids of whole exchanges, oldest first, until they free enough.

    If the rule is a number, so many of the newest stay; DROP takes them all. Exchanges whose ids are in ``stays`` stay.
    """
    exchanges = _exchanges(seen)
    wanted_tokens += _ARCHIVE_TOKENS
    moved: set[str] = set()
    for exchange in exchanges[: _end(exchanges, rule)]:
        if exchange[0].id in stays:
            continue
        if wanted_tokens <= 0 and rule is not Strategy.DROP:
            break
        moved |= {item.id for item in exchange}
        wanted_tokens -= sum(item.token_count for item in exchange)
    return moved


def _freed(items: Sequence[ContextItem], offloads: Mapping[str, Offload], moved: set[str]) -> int:
    gone = sum(i.token_count for i in items if i.id in moved)
    return gone + sum(o.tokens_before - o.tokens_after for o in offloads.values() if o.item_id not in moved)


def archive_of(items: Sequence[ContextItem], *, view: View, counter: TokenCounter) -> Archive | None:
    """The archive for ``items``; None if there are none, no place for one, or its placeholder would not be smaller."""
    if view.slot is None or not items:
        return None
    text = render(view.slot.path, f"{len(items)} earlier messages were moved there, in order.", reader=view.reader)
    return view.slot.archive(items, text, counter=counter, reason="whole exchanges, stored together")
