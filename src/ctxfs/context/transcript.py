"""The messages of a session in memory: their order, open calls, and what is due. No I/O; ``Context`` is its shell."""

import json
from collections import ChainMap, Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import indexOf
from types import MappingProxyType
from typing import Any, TypeVar

from ctxfs.context.entry import Entry
from ctxfs.errors import TranscriptError
from ctxfs.errors.base import quoted
from ctxfs.eviction.candidates import RESTORED_REPLIES, Candidates, EvictionOptions, Holds
from ctxfs.eviction.economics.economy import ModelPricing, SessionPricing
from ctxfs.eviction.keep_recent import EphemeralLedger
from ctxfs.eviction.offload_plan import Plan
from ctxfs.eviction.placeholder.attach import Placeholder
from ctxfs.eviction.placeholder.identifiers import strings_of
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import (
    AssistantMessage,
    Content,
    Message,
    MessageLike,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_content,
    check_message,
    is_blank,
    to_plain,
)
from ctxfs.messages.names import path_of, safe_name
from ctxfs.messages.serialize import from_dict
from ctxfs.text.jsontext.codec import json_copy

_K = TypeVar("_K")

_COMPARED = 8
"""A new result is compared with at most so many of its length, and so many of the same call: a poll may have had
thousands of different ones."""

_CALL_CHARS = 2_000
"""A call with longer arguments (as JSON), such as a text to be written, is hardly made twice: it has no versions."""


class Transcript:
    """Items in order, rewritten by id, and the ledgers that planning needs, updated as items enter and are evicted.

    ``keep_recent``: how many results of each tool stay. ``base``: the beginning of the absolute paths of its files.
    ``economy``: the settings by which other items are evicted when that pays; None: no other items are. ``policy``:
    what may be evicted by price and eagerly; None means the default. ``candidates``: how each item can be evicted.
    ``items``: by id, oldest first; a view that follows.
    """

    def __init__(
        self,
        keep_recent: Mapping[str, int],
        base: str,
        *,
        economy: ModelPricing | None = None,
        policy: OffloadPolicy | None = None,
    ) -> None:
        self._items: dict[str, ContextItem] = {}
        self.items: Mapping[str, ContextItem] = MappingProxyType(self._items)
        self._base = base
        self._keep_recent = keep_recent
        self._pricing = economy
        self._policy = policy
        self._position = 0
        self._positions: dict[str, int] = {}
        self._tool_names: dict[str, str] = {}
        self._tells_repeats = policy is not None and policy.repeats
        self._results: dict[int, list[str]] = {}  # ids by the length of what they hold, to find equal ones
        self._versions: dict[tuple[str, str], list[str]] = {}  # ids by the call, to find what it returned before
        self._answers = Counter[str]()  # results by call id: a provider may use an id again
        self._last_reply: tuple[int, AssistantMessage] | None = None  # and its position
        self.tokens = 0
        self.open_calls: list[ToolCall] = []
        self.candidates = Candidates()
        self.holds = Holds()
        self._ephemeral = EphemeralLedger(keep_recent, self.candidates, self.holds)
        self.economy: SessionPricing | None = None
        if economy is not None:
            own = policy or OffloadPolicy()
            self.economy = SessionPricing(economy, self.candidates, exact=keep_recent, policy=own)

    def path_of(self, item: ContextItem) -> str:
        """The file that an item's placeholder names, absolute: its own, or the one that it was read back from."""
        return item.source.path if item.source else path_of(self._base, item.name)

    def with_placeholder(self, item: ContextItem) -> ContextItem:
        """``item``, with the placeholder that may replace it if it has one, which is written now if it was not yet."""
        return self.candidates.written(item)

    def parse(self, messages: Iterable[MessageLike]) -> list[Message]:
        """Our messages for a mix of ours and the Messages API's, as dicts or models of its SDK; these are copied.

        Raises:
            TranscriptError: something is not a message, or cannot be recorded; or a result has an unknown call.

        """
        parsed: list[Message] = []
        new_names: dict[str, str] = {}
        names = ChainMap(new_names, self._tool_names)
        for message in messages:
            try:
                converted = _parsed(message, names)
            except (KeyError, TypeError, ValueError) as error:
                said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
                raise TranscriptError([f"not a message of the Messages API: {said}"]) from error
            for one in converted:
                if isinstance(one, AssistantMessage):
                    new_names.update([(call.id, call.name) for call in one.tool_calls])
            parsed.extend(converted)
        return parsed

    def check_order(self, messages: Sequence[Message]) -> None:
        """Raise ``TranscriptError`` if ``messages`` cannot follow what is here."""
        waiting = [call.id for call in self.open_calls]
        begun = any(not isinstance(item.message, SystemMessage) for item in self._items.values())
        for message in messages:
            if isinstance(message, AssistantMessage) and not begun:
                raise TranscriptError(["a reply comes first: add the user's message that it answers before it"])
            begun = begun or not isinstance(message, SystemMessage)
            if isinstance(message, UserMessage) and is_blank(message.content):
                raise TranscriptError(["a user's message is blank: a provider refuses it, so say what to do"])
            if isinstance(message, ToolMessage):
                if message.tool_call_id not in waiting:
                    what = f"a result for {quoted(message.tool_call_id)}, which is not an open tool call"
                    raise TranscriptError([f"{what}: add the reply with the call first"])
                waiting.remove(message.tool_call_id)
            elif waiting and not isinstance(message, SystemMessage):
                raise TranscriptError(no_result(call) for call in waiting)
            if isinstance(message, AssistantMessage):
                waiting = [call.id for call in message.tool_calls]

    def check_answered(self) -> None:
        """Raise ``TranscriptError`` if a tool call has no result yet."""
        if self.open_calls:
            raise TranscriptError(no_result(call.id) for call in self.open_calls)

    def chosen(self) -> list[str]:
        """What ``plan`` starts from: ids of items, and of arguments of calls. If it is empty, so is the plan."""
        due = [item_id for _, item_id, _ in self._ephemeral.due()]
        if self.economy is not None:
            due += self.economy.chosen()
        return due

    def seen_before(self, result: ToolMessage, replies: Sequence[AssistantMessage] = ()) -> ContextItem | None:
        """The last equal result that the model has seen and that is still here whole, or else the one of the same call.

        None: there is neither; or repeats are not told (``OffloadPolicy.repeats``), or a line could not name the
        earlier one. ``replies``: those before the result that have not entered yet; the last one asked for it.
        """
        if not self._tells_repeats:
            return None
        if replies:
            seen_up_to = self._position
            reply = replies[-1]
        elif self._last_reply is not None:
            seen_up_to, reply = self._last_reply
        else:
            return None
        call = next((call for call in reply.tool_calls if call.id == result.tool_call_id), None)
        if call is None or self._reads_session(call):
            return None
        # A provider may use ids again in each turn: one of these is soon that of another result.
        asked = {one.id for one in self.open_calls}
        for waiting in replies:
            asked |= {one.id for one in waiting.tool_calls}
        last = self._last_whole(self._results, _length(result.content))
        equal = [item for item in last if item.message.content == result.content]
        asked_by = _asked_by(call)
        versions = [] if asked_by is None else self._last_whole(self._versions, asked_by)
        for item in (*equal, *versions):
            if self._positions[item.id] < seen_up_to and self._is_named(item, asked):
                return item
        return None

    def _last_whole(self, table: dict[_K, list[str]], key: _K) -> list[ContextItem]:
        """The last items of a table's entry that are here whole, the newest first; it forgets the others."""
        whole = [item for item_id in table.get(key, ()) if (item := self._whole(item_id)) is not None]
        last = whole[-_COMPARED:]
        table[key] = [item.id for item in last]
        last.reverse()
        return last

    def _is_named(self, item: ContextItem, asked: Collection[str]) -> bool:
        """Whether the id of its call names this result, and no other; ``asked``: the calls that have no result yet."""
        message = item.message
        assert isinstance(message, ToolMessage)
        call_id = message.tool_call_id
        names_one = self._answers[call_id] == 1 and call_id not in asked and safe_name(call_id) == call_id
        return names_one and not message.is_error

    def _whole(self, item_id: str) -> ContextItem | None:
        """The item, if it is here with its content; None: it went into a file, or into an archive."""
        item = self._items.get(item_id)
        return None if item is None or item.destroyed else item

    def _reads_session(self, call: ToolCall) -> bool:
        """Whether a call names the session's files: its result is what the model could not see, and asked for."""
        directory = f"/{self._base.rpartition('/')[2]}/"
        return any(self._base in text or directory in text for text in strings_of(call.arguments))

    def refers(self, item_id: str, to: str) -> None:
        """Note that a result is sent as a line or a diff that names ``to``; "": it is sent in another way."""
        self._ephemeral.refers(item_id, to)

    def keep_for_next(self, item_id: str) -> None:
        """Keep an item, if it is here whole, until the model has replied once more: the next request refers to it."""
        if item_id in self.holds or self._whole(item_id) is None:
            return
        self.holds.restored(item_id, replies_since=RESTORED_REPLIES - 1)
        if self.economy is not None:
            self.economy.pin([item_id], pinned=True)

    def before_next_eviction(self) -> int | None:
        """How many items precede the first one of the next batch; None: no batch is expected soon."""
        if self.economy is None:
            return None
        start = self.economy.next_start()
        if start not in self._items:
            return None
        return indexOf(self._items, start)

    def plan(self) -> Plan:
        """What is due now: by keep-recent, and because it pays."""
        due = self._ephemeral.plan()
        if self.economy is None:
            return due
        paying = self.economy.plan()
        steps = sorted((*due.offloads, *paying), key=lambda step: self._positions[step.item_id])
        return Plan(offloads=tuple(steps))

    def keep_recent_warning(self) -> str | None:
        """What to tell the user, if keep-recent costs more than never evicting; None: nothing, or no price is known."""
        if self.economy is None:
            return None
        return self.economy.keep_recent_cost.warning(self.economy.ledger.spent)

    def empty(self, *, clock: Callable[[], float]) -> "Transcript":
        """A transcript by the same rules that holds nothing, and reads the time from ``clock``."""
        economy = None if self._pricing is None else replace(self._pricing, clock=clock)
        return Transcript(self._keep_recent, self._base, economy=economy, policy=self._policy)

    def now(self) -> float:
        """The time by which the prompt cache expires, in seconds since the epoch; 0 where nothing is priced."""
        return 0.0 if self._pricing is None else self._pricing.clock()

    def resumed(self, before: "Transcript") -> None:
        """Take over what the planner knew of these items: ``before`` was led through all that happened to them."""
        assert self.economy is not None  # nobody replays what has no prices
        assert before.economy is not None
        self.economy.pin(self._with_trims(self.holds), pinned=True)
        self.economy.resumed(before.economy)

    def billed(self, usage: Usage) -> None:
        """Take in the bill of the request whose reply enters next: it shows what the provider's cache holds."""
        if self.economy is not None:
            self.economy.billed(usage)

    def enter(self, entry: Entry) -> None:
        """Put an item at the end."""
        item = entry.item
        message = item.message
        self.candidates.enter(item, self.path_of(item), entry.options)
        if isinstance(message, AssistantMessage):
            self.open_calls = list(message.tool_calls)
            self._tool_names.update([(call.id, call.name) for call in self.open_calls])
            self._ephemeral.seen_up_to(self._position)
            self._last_reply = (self._position, message)
        elif isinstance(message, ToolMessage):
            for number, call in enumerate(self.open_calls):  # a history of others may hold a result without its call
                if call.id == message.tool_call_id:
                    del self.open_calls[number]
                    asked_by = _asked_by(call) if self._tells_repeats else None
                    if asked_by is not None:
                        self._versions.setdefault(asked_by, []).append(item.id)
                    break
            self._ephemeral.entered(item, self._position)
            if self._tells_repeats:
                self._answers[message.tool_call_id] += 1
                self._results.setdefault(_length(message.content), []).append(item.id)
        if self.economy is not None:
            self.economy.entered(item)
        if isinstance(message, AssistantMessage):
            free = self.holds.replied()
            if free and self.economy is not None:
                self.economy.pin(self._with_trims(free), pinned=False)
        self._items[item.id] = item
        self._positions[item.id] = self._position
        self._position += 1
        self.tokens += item.token_count

    def rewrite(
        self,
        items: Sequence[ContextItem],
        left: Collection[str],
        sizes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Replace items by their new forms; ``left`` are the ids of the items that this evicted.

        ``sizes``: the tokens of a preview that stands for an item now, and not its placeholder, by the item's id.
        """
        for item in items:
            self.tokens += item.token_count - self._items[item.id].token_count
            self._items[item.id] = item
        if not left:
            return
        self.holds.left(left)
        shrinkable = {item.id: item for item in items if item.can_shrink}
        self._ephemeral.left(left, shrinkable)
        if self.economy is not None:
            self.economy.left(left, shrinkable, sizes)
        self.candidates.left(left, shrinkable)
        whole = {item.id for item in items if item.id in left and not isinstance(item.message, ToolMessage)}
        if self.economy is not None and whole:
            # The planner knows such a message as text that stays, and of a reply the arguments that could be evicted.
            unchanged = next(n for n, item_id in enumerate(self._items) if item_id in whole)
            self.economy.rebuilt(self._items.values(), unchanged=unchanged)
        elif self.economy is not None:
            self._text_left([item for item in items if item.id not in left] or items)

    def _text_left(self, items: Sequence[ContextItem]) -> None:
        """Tell the planner what ``items`` lost of the text that it takes to stay.

        That is the copy of a part, which is replaced with it (a reply may have one beside the call that left), or a
        result that another rule evicts although its placeholder saves next to nothing.
        """
        assert self.economy is not None
        freed = self.economy.ledger.total_tokens - self.tokens
        if freed:
            seen_up_to = -1 if self._last_reply is None else self._last_reply[0]
            are_new = all(self._positions[item.id] >= seen_up_to for item in items)
            new = freed if are_new else 0
            self.economy.recounted(self._items.values(), freed_tokens=freed - new, freed_new_tokens=new)

    def restore(self, item: ContextItem) -> None:
        """Put an item with its content back in place of the evicted one, to stay for a while (``Holds``)."""
        placeholder = _shown_as_placeholder(self._items[item.id])
        self.rewrite([item], ())
        self.holds.restored(item.id)
        self.candidates.enter(item, self.path_of(item), EvictionOptions(placeholder))
        self._ephemeral.restored(item, self._positions[item.id])
        if self.economy is not None:
            self.economy.restored(item, self._items.values(), self._arguments_of(item))
            self.economy.pin([item.id], pinned=True)

    def pin(self, item: ContextItem) -> None:
        """Keep an item whose content is here, whatever rule evicts others; ``item`` is the pinned one."""
        self._items[item.id] = item
        self.holds.pinned(item.id)
        if self.economy is not None:
            self.economy.pin(self._with_trims([item.id]), pinned=True)

    def unpin(self, item: ContextItem) -> bool:
        """Let an item be evicted again that ``pin`` has kept; ``item`` is the free one. False: it came in pinned."""
        if not self.holds.unpinned(item.id):
            return False
        self._items[item.id] = item
        if self.economy is not None:
            self.economy.pin(self._with_trims([item.id]), pinned=False)
        return True

    def _with_trims(self, item_ids: Iterable[str]) -> list[str]:
        """``item_ids``, and the ids under which arguments of replies among them would be stored."""
        ids: list[str] = []
        for item_id in item_ids:
            ids.append(item_id)
            ids += [trim.stored.id for trim in self.candidates.trims_of(item_id)]
        return ids

    def _arguments_of(self, item: ContextItem) -> Mapping[str, Any]:
        """The arguments of the call that ``item`` is the result of; none for anything else."""
        if not isinstance(item.message, ToolMessage):
            return {}
        call_id = item.message.tool_call_id
        replies = [one.message for one in self._items.values() if isinstance(one.message, AssistantMessage)]
        calls = chain.from_iterable(reply.tool_calls for reply in replies)
        return next((call.arguments for call in calls if call.id == call_id), {})

    def move(self, item_ids: Collection[str], *, item: ContextItem | None = None, before: str | None = None) -> None:
        """Take items out, and put ``item`` before another one (None: at the end). Costs a copy of the order."""
        self.holds.left(item_ids)
        self._ephemeral.left(item_ids)
        self.candidates.left(item_ids)
        old = list(self._items)
        for item_id in item_ids:
            self.tokens -= self._items.pop(item_id).token_count
        if item is not None:
            order = list(self._items)
            behind = order[order.index(before) :] if before in self._items else []
            self._items[item.id] = item
            for item_id in behind:
                self._items[item_id] = self._items.pop(item_id)
            self._positions[item.id] = self._positions.get(before or "", self._position)
            self.tokens += item.token_count
        if self.economy is not None:
            pairs = enumerate(zip(old, self._items, strict=False))
            unchanged = next((n for n, (one, other) in pairs if one != other), min(len(old), len(self._items)))
            self.economy.rebuilt(self._items.values(), unchanged=unchanged)


def _asked_by(call: ToolCall) -> tuple[str, str] | None:
    """What is equal for calls that ask for the same: the tool, and its arguments; None: they are too long."""
    if sum(map(len, strings_of(call.arguments))) > _CALL_CHARS:  # no JSON is made of a large text
        return None
    arguments = json.dumps(call.arguments, sort_keys=True, default=dict)
    return None if len(arguments) > _CALL_CHARS else (call.name, arguments)


def _length(content: Content) -> int:
    """The characters of a content's texts: equal contents have as many."""
    if isinstance(content, str):
        return len(content)
    return sum(len(block["text"]) for block in content if block["type"] == "text")


def _shown_as_placeholder(item: ContextItem) -> Placeholder | None:
    """The placeholder that stands for an evicted item, to be used again, or the short one that would replace it."""
    if item.placeholder is not None:
        return Placeholder.of(item)
    content = item.message.content
    assert isinstance(content, str), "only a reply is more than a placeholder, and its content comes back another way"
    return Placeholder.of(replace(item, placeholder=content, placeholder_tokens=item.token_count))


def _parsed(message: Any, tool_names: Mapping[str, str]) -> list[Message]:
    given = to_plain(message)
    if not isinstance(given, Mapping):
        return [check_message(given)]
    if missing := [key for key in ("role", "content") if key not in given]:
        raise ValueError(f"it has no {' and no '.join(missing)}")
    # Copied, so that what the caller does to its own dicts later does not reach us.
    content = check_content(given["content"])
    if not isinstance(content, str):
        content = tuple(map(json_copy, content))
    return [check_message(one) for one in from_dict({**given, "content": content}, tool_names)]


def no_result(call_id: str) -> str:
    """What is wrong with a transcript in which the call has no result, and what to do."""
    return f"tool call {quoted(call_id)} has no result: add it first, or answer_open_calls()"
