"""From a message to the entry that it becomes, decided as a value before anything changes. Pure.

An entry has the item, counted and with the placeholder that may replace it later, and everything else that a session
needs to know to add it. A message that is refused or cancelled leaves no trace.
"""

import reprlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ctxfs.errors import TranscriptError
from ctxfs.eviction.candidates import NO_OPTIONS, NO_PINS, EvictionOptions, Pins
from ctxfs.eviction.economics.parameters import LEAST_SAVED_TOKENS
from ctxfs.eviction.economics.plans import Why
from ctxfs.eviction.offload_plan import EagerOffload, EagerPolicy, Trim, stored_arguments
from ctxfs.eviction.placeholder.attach import digest_budget, digest_of, placeholder_for
from ctxfs.eviction.placeholder.identifiers import Brought, IdentifierIndex, entries_of, mentions, strings_of
from ctxfs.eviction.placeholder.text import READ_TOOL, as_json, large_arguments, render, without_large_arguments
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.preview import Preview
from ctxfs.messages.incoming import Incoming, new_item
from ctxfs.messages.items import ContentRange, ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Block, Message, ToolMessage, check_name, text_of
from ctxfs.messages.names import NameAllocator, path_of, short_name
from ctxfs.messages.tokens import TokenCounter, count_content, count_json
from ctxfs.session.field_types import check_types

_DIGEST_SHARE = 0.2
"""A placeholder mentions names in at most this share of its content's tokens: more costs more than it saves."""

_DIGEST_NAMES = 300
"""A placeholder mentions at most so many names."""


def skill_prompt(name: str, message: Message) -> Incoming:
    """The prompt of the skill ``name``, as a message to add. Raises ``TranscriptError`` if either is missing."""
    for what, value in (("name", name), ("text", message.content)):
        if isinstance(value, str) and not value.strip():
            raise TranscriptError([f"the skill's {what} is blank: give the skill's name and its prompt"])
    try:
        return Incoming(message=message, label=check_name(name, "the skill's name"))
    except ValueError as error:
        raise TranscriptError([str(error)]) from error


def with_sources(
    messages: Iterable[Message], sources: Mapping[str, ContentRange], data: Collection[str] = ()
) -> list[Incoming]:
    """Messages that are about to be added.

    ``sources`` are the stored lines that results repeat, by call id; ``data`` are the calls whose results are the JSON
    of data. Raises ``TranscriptError`` when a source is not a ``ContentRange``, or ``data`` no collection of ids.
    """
    if isinstance(data, str) or not isinstance(data, Collection):
        raise TranscriptError([f"data is {reprlib.repr(data)}: use a collection of call ids"])
    incoming: list[Incoming] = []
    for message in messages:
        call_id = message.tool_call_id if isinstance(message, ToolMessage) else ""
        source = sources.get(call_id)
        if not isinstance(source, ContentRange | None):
            raise TranscriptError([f"a source is {reprlib.repr(source)}: use a ContentRange"])
        is_data = call_id in data and isinstance(message.content, str)
        incoming.append(Incoming(message=message, source=source, is_data=is_data))
    return incoming


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRules:
    """The rules for each message of a session: made once of its settings, and passed whole."""

    counter: TokenCounter
    base: str
    """The beginning of the absolute paths of the session's files."""
    by_price: bool = False
    """Whether the economic planner evicts what pays."""
    exact: frozenset[str] = frozenset()
    """Tools whose results are evicted by a rule other than price."""
    policy: OffloadPolicy = field(default_factory=OffloadPolicy)
    """What may be evicted at all, eagerly or by price, and how long the digest in a placeholder is."""
    eager: EagerPolicy | None = None
    """Decides what is evicted before it is ever sent; None: nothing is."""
    reader: str | None = READ_TOOL
    """The name of the tool that opens the files that placeholders name; None: there is none."""
    by_path: bool = False
    """Placeholders name files by their paths: no tool of ctxfs opens them, so that short names mean nothing."""
    pins: Pins = NO_PINS
    """Which items are pinned when they enter."""

    def short_of(self, item_id: str, names: NameAllocator) -> str | None:
        """The name that a placeholder gives instead of the path; None: the path, for files that any tool can read."""
        if not self.by_price or self.by_path or names.layout.raw:
            return None
        return short_name(item_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A message as it will enter a session. ``eager``: how it is evicted before it is sent; None: it stays."""

    item: ContextItem
    options: EvictionOptions = NO_OPTIONS
    eager: EagerOffload | None = None

    @property
    def new_ids(self) -> tuple[str, ...]:
        """The ids that the entry uses: the item's, and those under which arguments of its calls would be stored."""
        return (self.item.id, *[trim.stored.id for trim in self.options.trims])


@dataclass(frozen=True, slots=True)
class Known:
    """What is known before an entry: the allocated ids, and the identifiers that the model can already read.

    ``build_entry`` takes each entry in at once. To try messages, give it a draft; ``take`` then takes in the draft.
    """

    names: NameAllocator
    identifiers: IdentifierIndex = field(default_factory=IdentifierIndex)

    def draft(self) -> "Known":
        """A copy that can take in more without changing the original."""
        return Known(self.names.draft(), self.identifiers.draft())

    def take(self, draft: "Known") -> None:
        """Take in what was taken into a draft of this."""
        self.names.take(draft.names.drafted)
        self.identifiers.take(draft.identifiers)


def build_entry(incoming: Incoming, known: Known, rules: EntryRules, *, seen: ContextItem | None = None) -> Entry:
    """Decide how ``incoming`` enters a session that knows ``known``, which takes in the entry.

    ``seen``: an equal result that the model sees in the same request; None: there is none.

    Raises ``InvalidRecord`` when the item could not be recorded: the counter or the eager policy returned a wrong type.
    """
    return new_entry(new_item(incoming, names=known.names, counter=rules.counter), known, rules, seen=seen)


def new_entry(item: ContextItem, known: Known, rules: EntryRules, *, seen: ContextItem | None = None) -> Entry:
    """Decide how an item enters that has an id and is counted; see ``build_entry``."""
    known.names.take([item.id])
    is_pinned = rules.pins.holds(item)
    eager = None
    if rules.eager is not None and not is_pinned and rules.policy.allows(item.item_type, item.content_tokens):
        if isinstance(rules.eager, Preview) and seen is not None:
            eager = rules.eager.decide_repeat(item, seen, path=path_of(rules.base, item.name), counter=rules.counter)
        if eager is None:
            eager = rules.eager.decide(item, path_of=partial(path_of, rules.base), counter=rules.counter)
    read = item
    if eager is not None and isinstance(item.message, ToolMessage):
        read = item.with_content(eager.offload.placeholder)  # if it can be stored, the model sees no more of it
    trims, brought = _read(read, known, rules)
    if is_pinned:
        item = replace(item, pinned=True)
        options = NO_OPTIONS
    elif eager is not None:
        item = eager.item
        options = EvictionOptions(trims=trims)
    else:
        options = _options(item, trims, brought, known, rules)
    check_types(item)
    return Entry(item=item, options=options, eager=eager)


def recorded_entry(item: ContextItem, known: Known, rules: EntryRules) -> Entry:
    """The entry of a recorded item, with the placeholder that it has, if any. ``known`` takes it in.

    A reply whose arguments may be evicted is counted again, as they are: the session may have had another counter.
    """
    known.names.take([item.id])
    trims, brought = _read(item, known, rules)
    if item.pinned:
        return Entry(item=item)
    if trims:
        item = replace(item, token_count=count_content(rules.counter, item.message.content))
    if item.placeholder is not None or item.destroyed or item.damaged is not None:
        options = EvictionOptions(trims=trims)
    else:
        options = _options(item, trims, brought, known, rules)
    return Entry(item=item, options=options)


# By price ------------------------------------------------------------------------------------------------------------


def _read(item: ContextItem, draft: Known, rules: EntryRules) -> tuple[tuple[Trim, ...], Brought | None]:
    """Read an item once: the trims of a reply, and the identifiers that a result adds.

    None for the latter: the result is not evicted by its price.
    """
    message = item.message
    if not rules.by_price:
        return (), None
    if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
        return tuple(_trims(item, message.content, draft, rules)), None
    brought = _bring([text_of(message.content)], draft, rules)
    if not isinstance(message, ToolMessage) or message.tool_name in rules.exact:
        return (), None
    if not rules.policy.allows(item.item_type, item.content_tokens):
        return (), None
    return (), brought


def _bring(texts: Sequence[str], draft: Known, rules: EntryRules) -> Brought:
    """The identifiers that ``texts`` add; none if no placeholder would mention them."""
    return draft.identifiers.bring(texts if rules.policy.digest_tokens else ())


def _trims(item: ContextItem, blocks: Sequence[Block], draft: Known, rules: EntryRules) -> Iterator[Trim]:
    for place, block in enumerate(blocks):
        if block.get("type") == "text":
            _bring([block["text"]], draft, rules)
        if block.get("type") != "tool_use" or place in item.trimmed:
            continue
        brought = _bring(strings_of(block["input"]), draft, rules)
        trim = _trim_of(item.id, place, block, brought, names=draft.names, rules=rules)
        if trim is not None:
            yield trim


def _trim_of(
    reply_id: str, place: int, call: Block, brought: Brought, *, names: NameAllocator, rules: EntryRules
) -> Trim | None:
    """How the large arguments of ``call``, the block at ``place`` of a reply, would be evicted; None if they stay.

    The placeholder mentions what it ``brought`` in. ``names`` gives the id and the file of what would be stored.
    """
    large = large_arguments(call["input"])
    if not large:
        return None
    tokens = count_json(rules.counter, call["input"])
    if tokens < LEAST_SAVED_TOKENS or not rules.policy.allows(ItemType.TOOL_INPUT, tokens):
        return None
    blocks = _argument_blocks(large)
    item_id, name = names.allocate(ItemType.TOOL_INPUT, f"{call['id']}.input", call["name"], blocks)
    path = path_of(rules.base, name)
    short = rules.short_of(item_id, names)
    placeholder = render(path, _mentions(brought, tokens, rules=rules), reader=rules.reader, short=short)
    arguments = without_large_arguments(call["input"], placeholder)
    return Trim(
        item_id=reply_id,
        block=place,
        arguments=arguments,
        stored=stored_arguments(item_id, tokens, name=name, blocks=blocks),
        path=path,
        tokens_before=tokens,
        tokens_after=count_json(rules.counter, arguments),
        reason=str(Why.BATCH),
    )


def _argument_blocks(large: Mapping[str, Any]) -> tuple[Block, ...]:
    """Large arguments as a text block each, so that their lines can be read."""
    blocks: list[Block] = []
    for key, value in large.items():
        is_text = isinstance(value, str)
        text = value if is_text else as_json(value)
        blocks.append({"type": "text", "text": text, "argument": key, "json": not is_text})
    return tuple(blocks)


def _mentions(brought: Brought, tokens: int, *, rules: EntryRules) -> str:
    """What a placeholder for content of ``tokens`` tokens mentions."""
    budget = min(digest_budget(tokens, rules.policy.digest_tokens), int(_DIGEST_SHARE * tokens))
    if budget <= 0:
        return ""
    entries = entries_of(brought.names(), limit=_DIGEST_NAMES)
    return mentions(entries, budget_tokens=budget, counter=rules.counter)


# Placeholders --------------------------------------------------------------------------------------------------------


def _options(
    item: ContextItem, trims: tuple[Trim, ...], brought: Brought | None, known: Known, rules: EntryRules
) -> EvictionOptions:
    """How an item can be evicted that stays at first.

    What is evicted because that pays has been read by the model: its placeholder mentions what it ``brought`` in.
    Everything else (None) is described.
    """
    if isinstance(item.message, AssistantMessage):
        return EvictionOptions(trims=trims)
    stored_id = item.id if item.source is None else item.source.item_id
    digest = partial(digest_of, item, counter=rules.counter, digest_tokens=rules.policy.digest_tokens)
    if brought is not None and item.source is None:
        digest = partial(_mentions, brought, item.content_tokens, rules=rules)
    placeholder = placeholder_for(
        item,
        path=path_of(rules.base, item.name),
        counter=rules.counter,
        digest=digest,
        reader=rules.reader,
        short=None if brought is None else rules.short_of(stored_id, known.names),
    )
    return EvictionOptions(placeholder)
