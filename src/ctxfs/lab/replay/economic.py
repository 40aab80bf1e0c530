"""What ctxfs itself does, as a policy of the replay."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from ctxfs.context.commit import evicted, trimmed
from ctxfs.context.entry import EntryRules, Known, new_entry, recorded_entry
from ctxfs.context.transcript import Transcript
from ctxfs.eviction.economics.economy import ModelPricing, SessionPricing
from ctxfs.eviction.economics.ledger import Ledger
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.offload_plan import Offload, Trim
from ctxfs.eviction.placeholder.text import READ_TOOL
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.preview import DEFAULT_PREVIEW_ABOVE_TOKENS, Preview, PreviewRule, named_by
from ctxfs.lab.recordings.recording import Kind
from ctxfs.lab.replay.cost import Replacement, Run
from ctxfs.lab.replay.session import Item, Session
from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContentRange, ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Block, Message, ToolMessage, UserMessage
from ctxfs.messages.names import NameAllocator
from ctxfs.messages.rates import Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Economic:
    """What ctxfs does with its defaults: the economy of a context itself.

    ``session_path`` is where the session would lie: placeholders name it, and so have its length. ``ttl_s``: how long
    the cache keeps what nobody reads. ``preview_above_tokens``: a larger result is sent as a preview; None: whole.
    ``repeats``: as in ``OffloadPolicy``.
    """

    name: str
    rates: Rates
    count: Callable[[str], int]
    ttl_s: float = math.inf
    parameters: EvictionParameters = field(default_factory=EvictionParameters)
    preview_above_tokens: int | None = DEFAULT_PREVIEW_ABOVE_TOKENS
    repeats: bool = False
    session_path: str = "/home/user/.agent/context/session_20260101_000000_abcdef"

    def start(self, session: Session) -> Run:
        """Begin with a session."""
        return EconomicRun(self, session)


class EconomicRun:
    """The economy of a context, fed with the recording's items as a context feeds it."""

    def __init__(self, policy: Economic, session: Session) -> None:
        self._session, self._path = session, policy.session_path
        rules = OffloadPolicy(repeats=policy.repeats)
        self._rules = EntryRules(
            counter=_Counter(policy.count),
            base=self._path,
            by_price=True,
            policy=rules,
            eager=_preview(policy.preview_above_tokens),
        )
        economy = ModelPricing(
            parameters=policy.parameters,
            rates=policy.rates,
            ttl_s=policy.ttl_s,
            clock=lambda: self._at,
        )
        self._at = 0.0
        self._transcript = Transcript({}, self._path, economy=economy, policy=rules)
        self._known = Known(NameAllocator())
        self._items: dict[str, Item] = {}  # by the id that the economy knows
        self._ids: dict[int, str] = {}

    @property
    def _economy(self) -> SessionPricing:
        assert self._transcript.economy is not None
        return self._transcript.economy

    @property
    def ledger(self) -> Ledger:
        """What the planner knows now."""
        return self._economy.ledger

    def item(self, item_id: str) -> Item:
        """The recording's item that the ledger knows by this id."""
        return self._items[item_id]

    def plan(self, added: Sequence[Item], at: float) -> Sequence[Replacement]:
        """What the next request shows a preview of, and what the planner evicts before it."""
        previews = self.take_in(added, at)
        return [*previews, *self.leave(self._economy.plan())]

    def take_in(self, added: Sequence[Item], at: float) -> list[Replacement]:
        """The next request carries these, and is sent at this time in seconds: which of them as a preview."""
        self._at = at
        previews: list[Replacement] = []
        for item in added:
            offload = self._enter(item)
            if offload is not None:
                previews.append(self._replacement(offload))
        return previews

    def evict(self, item_ids: Collection[str]) -> Sequence[Replacement]:
        """These are evicted, whatever it costs."""
        return self.leave([self._transcript.candidates.step(one, "chosen") for one in item_ids])

    def leave(self, steps: Sequence[Offload | Trim]) -> Sequence[Replacement]:
        """Placeholders replace these from the next request on."""
        changed: dict[str, ContextItem] = {}
        for step in steps:  # several may be of one reply
            item = changed.get(step.item_id) or self._transcript.items[step.item_id]
            changed[item.id] = trimmed(item, step) if isinstance(step, Trim) else evicted(item, step)
        self._transcript.rewrite(list(changed.values()), [_left(step) for step in steps])
        return [self._replacement(step) for step in steps]

    def replied(self, reply: Sequence[Item], billed: Usage) -> None:
        """The model replied."""
        self._economy.billed(billed)
        message = AssistantMessage(tuple(_block(item) for item in reply))
        item = self._item(ItemType.ASSISTANT_MESSAGE, "", message, sum(i.tokens for i in reply))
        entry = recorded_entry(item, self._known, self._rules)
        self._transcript.enter(entry)
        trims = entry.options.trims
        self._items.update((trim.stored.id, reply[trim.block]) for trim in trims)
        self._ids.update((reply[trim.block].index, trim.stored.id) for trim in trims)

    def read_back(self, index: int, call: Item, page: Item, billed: Usage) -> None:
        """The model read back a page of an item."""
        self.replied((call,), billed)
        source = ContentRange(item_id=self._ids[index], path=self._path_of(self._ids[index]), first_line=1, last_line=1)
        self._enter(page, source)

    def _enter(self, item: Item, source: ContentRange | None = None) -> Offload | None:
        """Take in an item; what leaves of it at once, if it is previewed."""
        if item.kind is not Kind.TOOL_RESULT:
            entered = self._item(ItemType.USER_MESSAGE, "", UserMessage(item.text), item.tokens)
            self._transcript.enter(recorded_entry(entered, self._known, self._rules))
            return None
        message = ToolMessage(item.call_id, item.tool, item.text)
        entered = replace(self._item(ItemType.TOOL_RESULT, item.call_id, message, item.tokens), source=source)
        self._items[entered.id], self._ids[item.index] = item, entered.id
        seen = self._transcript.seen_before(message)
        entry = new_entry(entered, self._known, self._rules, seen=seen)
        offload = None if entry.eager is None else entry.eager.offload
        if offload is not None:
            entry = replace(entry, item=evicted(entry.item, offload))
            self._transcript.keep_for_next(named_by(offload.reason))
        self._transcript.enter(entry)
        return offload

    def _item(self, kind: ItemType, raw_id: str, message: Message, tokens: int) -> ContextItem:
        tool = message.tool_name if isinstance(message, ToolMessage) else None
        item_id, name = self._known.names.allocate(kind, raw_id, tool)
        return ContextItem(
            id=item_id, item_type=kind, message=message, name=name, token_count=tokens, content_tokens=tokens
        )

    def _path_of(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _replacement(self, step: Offload | Trim) -> Replacement:
        item = self._items[_left(step)]
        if isinstance(step, Offload):
            text, size = step.placeholder, step.tokens_after
        else:
            text, size = str(step.arguments), item.tokens - (step.tokens_before - step.tokens_after)
        return Replacement(item.index, size, self._session.quotable(text), step.reason)


def _preview(above_tokens: int | None) -> Preview | None:
    if above_tokens is None:
        return None
    return Preview(rule=PreviewRule(preview_above_tokens=above_tokens), tools=(READ_TOOL,))


@dataclass(frozen=True, slots=True)
class _Counter:
    """A counting function as the counter that a context has."""

    count: Callable[[str], int]


def _left(step: Offload | Trim) -> str:
    return step.stored.id if isinstance(step, Trim) else step.item_id


def _block(item: Item) -> Block:
    if item.kind is Kind.TOOL_INPUT:
        return {"type": "tool_use", "id": item.call_id, "name": item.tool, "input": item.arguments}
    if item.kind is Kind.THINKING:
        return {"type": "thinking", "thinking": item.text}
    return {"type": "text", "text": item.text} if item.kind is Kind.TEXT else {"type": item.kind.value}
