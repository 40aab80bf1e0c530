"""The economic planner inside a context: what an item is to it, and what its verdicts mean for the context. No I/O.

What leaves is decided in ``economics``. Besides tool results, the arguments of tool calls may leave: the large ones are
replaced by a placeholder, small ones stay as they are.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ctxfs import json_codec
from ctxfs.context.economics import Eviction, Verdict, Why, plan, verdicts
from ctxfs.context.economics_features import IdentifierIndex, classify, paths_of, strings_of, writes
from ctxfs.context.economics_ledger import Added, Candidate, Ledger, ReadBack, Replied, Step
from ctxfs.context.economics_parameters import EvictionParameters
from ctxfs.context.economics_prices import ANTHROPIC_RATES, Rates
from ctxfs.context.ingest import digest_of, with_placeholder
from ctxfs.context.items import ContextItem, ItemType
from ctxfs.context.placeholder import render, render_argument
from ctxfs.context.plan import Offload, Trim
from ctxfs.llm.messages import AssistantMessage, Block, ToolMessage, has_media, text_of
from ctxfs.tokens import TokenCounter, chunks

__all__ = ["NOTHING_PREPARED", "CacheTerms", "Economy", "Prepared", "with_placeholders"]

_SMALL_ARGUMENT_CHARS = 200

Claim = Callable[[ItemType, str, str | None], tuple[str, str]]
"""Gives a new item's id and the name of its file, for a type, an id and a tool (None: none)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTerms:
    """What a token costs, and for how many seconds the provider keeps a prefix; 0 means that it keeps none."""

    rates: Rates = ANTHROPIC_RATES
    ttl_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """What could be done with an item one day: the trims of a reply, or the digest of a result's placeholder.

    ``digest`` None means that the result leaves by another rule, which describes it its own way. ``unseen``: the
    placeholder of a result that leaves before the model has seen it, which says more, and its tokens; None if it won't.
    """

    trims: tuple[Trim, ...] = ()
    digest: str | None = None
    unseen: tuple[str, int] | None = None


NOTHING_PREPARED = Prepared()


def with_placeholders(
    item: ContextItem,
    prepared: Prepared,
    *,
    economy: "Economy | None",
    path: str,
    counter: TokenCounter,
    digest_tokens: int,
) -> tuple[ContextItem, Prepared]:
    """Write the placeholders that may stand for an item one day; ``path`` is the file it would go to (absolute).

    What leaves because it pays has been read by the model: its placeholder lists what it mentions. Everything else is
    described, in at most ``digest_tokens``; what leaves unseen is both.
    """
    if economy is None or prepared.digest is None or item.source is not None:
        digest = digest_of(item, counter=counter, digest_tokens=digest_tokens)
        return with_placeholder(item, path=path, counter=counter, digest=digest), prepared
    listed = with_placeholder(item, path=path, counter=counter, digest=prepared.digest)
    described = digest_of(item, counter=counter, digest_tokens=digest_tokens)
    unseen = render(path, "\n".join(part for part in (described, prepared.digest) if part))
    return listed, economy.unseen(item, prepared, unseen, counter)


class Economy:
    """Keeps the ledger of one session.

    A ``Context`` keeps its own, with the settings of the one that it is given. ``clock`` gives seconds since the epoch;
    the prompt cache expires by it.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        parameters: EvictionParameters | None = None,
        terms: CacheTerms | None = None,
    ) -> None:
        self._terms = terms or CacheTerms()
        self._parameters = parameters or EvictionParameters()
        self._clock = clock
        self._exact: frozenset[str] = frozenset()
        self._identifiers = IdentifierIndex()
        self._arguments: dict[str, Mapping[str, Any]] = {}
        self._prepared: dict[str, Trim] = {}
        self._offloads: dict[str, Offload] = {}
        self._unseen: dict[str, tuple[str, int] | None] = {}  # None: it may not leave before the model has seen it
        self._ledger = Ledger(parameters=self._parameters, rates=self._terms.rates)
        self._steps: list[Step] = []  # what the ledger has yet to take in

    def for_session(self, exact: Collection[str]) -> "Economy":
        """One with the same settings that has seen nothing yet.

        ``exact``: tools whose results leave by another rule; they are counted, and never leave because it pays.
        """
        economy = Economy(clock=self._clock, parameters=self._parameters, terms=self._terms)
        economy._exact = frozenset(exact)
        return economy

    @property
    def parameters(self) -> EvictionParameters:
        """The planner's numbers."""
        return self._parameters

    @property
    def terms(self) -> CacheTerms:
        """What the planner reckons with."""
        return self._terms

    @property
    def ledger(self) -> Ledger:
        """What the planner knows now."""
        if self._steps:
            self._ledger, self._steps = self._ledger.after(self._steps), []
        return self._ledger

    # In a worker thread, in the order of the messages ----------------------------------------------------------------

    def prepare(
        self, item: ContextItem, *, claim: Claim, path_of: Callable[[str], str], counter: TokenCounter
    ) -> Prepared:
        """Read an item once: the identifiers that it brings in, and what its arguments would be without large ones."""
        message = item.message
        if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
            return Prepared(trims=tuple(self._trims(item, message.content, claim, path_of, counter)))
        names = self._new_identifiers([text_of(message.content)])
        if not isinstance(message, ToolMessage) or message.tool_name in self._exact:
            return NOTHING_PREPARED
        return Prepared(digest=_mentions(self._parameters.digest(names, item.content_tokens)))

    def _trims(
        self,
        item: ContextItem,
        blocks: Sequence[Block],
        claim: Claim,
        path_of: Callable[[str], str],
        counter: TokenCounter,
    ) -> Iterable[Trim]:
        for index, block in enumerate(blocks):
            if block.get("type") == "text":
                self._new_identifiers([block["text"]])
            if block.get("type") != "tool_use" or index in item.trimmed:
                continue
            names = self._new_identifiers(strings_of(block["input"]))
            large = _large_arguments(block["input"])
            tokens = counter.count(_json(block["input"])) if large else 0
            if not large or not self._parameters.tool_inputs or not self._parameters.could_leave(tokens, 0):
                continue
            item_id, name = claim(ItemType.TOOL_INPUT, f"{block['id']}.input", block["name"])
            digest = _mentions(self._parameters.digest(names, tokens))
            arguments = _without(block["input"], large, render(path_of(name), digest))
            yield Trim(
                item_id=item.id,
                block=index,
                arguments=arguments,
                stored=_stored(item_id, name, large, tokens),
                path=path_of(name),
                tokens_before=tokens,
                tokens_after=counter.count(_json(arguments)),
                reason=str(Why.BATCH),
            )

    def _new_identifiers(self, texts: Iterable[str]) -> list[str]:
        # In pieces, so that other threads can run in between.
        return [name for text in texts for part in chunks(text) for name in self._identifiers.new_in(part)]

    def unseen(self, item: ContextItem, prepared: Prepared, text: str, counter: TokenCounter) -> Prepared:
        """Add ``text``, the placeholder for a result that the model has not seen, if the result may leave so early.

        An image or a document may not: no text says what is in it.
        """
        small = not 0 < self._parameters.arrival_tokens < item.content_tokens
        if prepared.digest is None or small or has_media(item.message.content):
            return prepared
        return replace(prepared, unseen=(text, counter.count(text)))

    # On the loop, in the same order ----------------------------------------------------------------------------------

    def entered(self, item: ContextItem, prepared: Prepared, path: str) -> None:
        """Take in an item at the end of the context; ``path`` is where it would go."""
        message = item.message
        if isinstance(message, AssistantMessage):
            self._replied(item, message, prepared.trims)
            return
        if item.source is not None:
            self._steps.append(ReadBack(item.source.item_id))
        if item.item_type is ItemType.TOOL_RESULT:
            self._unseen[item.id] = prepared.unseen
        part = self._result(item, message, path) if isinstance(message, ToolMessage) else item.token_count
        self._steps.append(Added((part,)))

    def _replied(self, item: ContextItem, message: AssistantMessage, trims: Sequence[Trim]) -> None:
        self._unseen.clear()
        calls = message.tool_calls
        self._arguments = {call.id: call.arguments for call in calls}
        parts: list[Candidate | int] = [max(0, item.token_count - sum(t.tokens_before for t in trims))]
        for trim in trims:
            self._prepared[trim.stored.id] = trim
            parts.append(_candidate_of(trim, message))
        step = Replied(
            parts,
            paths=[p for call in calls for p in paths_of(call.arguments)],
            changed_paths=[p for call in calls if writes(call.name) for p in paths_of(call.arguments)],
            cache_expires_at=self._clock() + self._terms.ttl_s,
        )
        self._steps.append(step)

    def _result(self, item: ContextItem, message: ToolMessage, path: str) -> Candidate | int:
        if item.placeholder is None or item.destroyed:
            return item.token_count
        self._offloads[item.id] = Offload.of(item, path, str(Why.BATCH))
        return Candidate(
            id=item.id,
            tool=message.tool_name,
            tool_class=classify(message.tool_name, is_input=False),
            tokens=item.token_count,
            placeholder_tokens=item.placeholder_tokens,
            paths=paths_of(self._arguments.get(message.tool_call_id, {})),
            pinned=message.tool_name in self._exact,
        )

    def left(self, item_ids: Collection[str]) -> None:
        """These left, by whatever rule; ids are those of results, or of trimmed arguments."""
        self._ledger = self._without(self.ledger, item_ids)
        known: tuple[dict[str, Any], ...] = (self._offloads, self._prepared, self._unseen)
        for table, item_id in product(known, item_ids):
            table.pop(item_id, None)

    def _without(self, ledger: Ledger, item_ids: Collection[str]) -> Ledger:
        expires = ledger.cache_expires_at
        unseen = {i: described for i in item_ids if (described := self._unseen.get(i)) and i in self._offloads}
        longer = sum(tokens - self._offloads[i].tokens_after for i, (_, tokens) in unseen.items())
        ledger = ledger.evicted(item_ids, cold=expires is not None and self._clock() >= expires)
        return ledger.added([longer]) if longer > 0 else ledger

    def rebuilt(self, items: Iterable[ContextItem]) -> None:
        """The context was rewritten in the middle: it now holds ``items``, and nothing of it is cached."""
        parts: list[Candidate | int] = []
        held = {item_id: h.candidate for item_id, h in self.ledger.held.items()}
        trims: dict[str, list[Trim]] = {}
        for trim in self._prepared.values():
            trims.setdefault(trim.item_id, []).append(trim)
        for item in items:
            inside = [held[t.stored.id] for t in trims.get(item.id, ()) if t.stored.id in held]
            if item.id in held:
                parts.append(held[item.id])
            else:
                parts += [max(0, item.token_count - sum(c.tokens for c in inside)), *inside]
        self._ledger = self.ledger.rebuilt(parts)
        self._offloads = {k: v for k, v in self._offloads.items() if k in self.ledger.held}
        self._prepared = {k: v for k, v in self._prepared.items() if k in self.ledger.held}

    def resumed(self, last_call_at: float) -> None:
        """The session was taken up again; its cache counts from its last call, in seconds of the clock (0: unknown)."""
        self._ledger = replace(self.ledger, cache_expires_at=last_call_at + self._terms.ttl_s)

    # Deciding --------------------------------------------------------------------------------------------------------

    def plan(self) -> tuple[Offload | Trim, ...]:
        """What leaves now because it pays, each with its reason; nothing is left that would leave right after it."""
        now = self._clock()
        ledger, steps = self.ledger, dict[str, Offload | Trim]()
        while True:
            found = {e.item_id: step for e in plan(ledger, now=now).evictions if (step := self._step(e)) is not None}
            if not found.keys() - steps.keys():
                return tuple(steps.values())
            steps.update(found)
            ledger = self._without(ledger, found)

    def _step(self, eviction: Eviction) -> Offload | Trim | None:
        step = self._offloads.get(eviction.item_id) or self._prepared[eviction.item_id]
        if eviction.item_id in self._unseen:
            described = self._unseen[eviction.item_id]
            if described is None:
                return None
            assert isinstance(step, Offload)
            step = replace(step, placeholder=described[0], tokens_after=described[1])
        return step if step.reason == eviction.why else replace(step, reason=str(eviction.why))

    def verdicts(self) -> tuple[Verdict, ...]:
        """What the planner thinks of every item that could leave: why it leaves or stays, and when it would go."""
        return tuple(
            replace(v, why=Why.NEW) if v.why is Why.ARRIVAL and self._unseen.get(v.item_id) is None else v
            for v in verdicts(self.ledger, now=self._clock())
        )


def _candidate_of(trim: Trim, message: AssistantMessage) -> Candidate:
    block = message.content[trim.block]
    assert isinstance(block, dict)
    return Candidate(
        id=trim.stored.id,
        tool=block["name"],
        tool_class=classify(block["name"], is_input=True),
        tokens=trim.tokens_before,
        placeholder_tokens=trim.tokens_after,
        paths=paths_of(block["input"]),
    )


def _mentions(identifiers: str) -> str:
    return f"Mentions: {identifiers}" if identifiers else ""


def _json(value: Any) -> str:
    return json_codec.dumps(value).decode()


def _large_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in arguments.items() if len(v if isinstance(v, str) else _json(v)) > _SMALL_ARGUMENT_CHARS}


def _without(arguments: Mapping[str, Any], large: Collection[str], placeholder: str) -> dict[str, Any]:
    """The arguments with a placeholder in the place of the first large one, and a pointer to it in the others'."""
    first, *others = large
    shown = {first: placeholder, **{key: render_argument(first) for key in others}}
    return {key: shown.get(key, value) for key, value in arguments.items()}


def _stored(item_id: str, name: str, large: Mapping[str, Any], tokens: int) -> ContextItem:
    """The large arguments as an item of their own: a text block each, so that their lines can be read."""
    blocks = tuple(
        {
            "type": "text",
            "text": value if isinstance(value, str) else _json(value),
            "argument": key,
            "json": not isinstance(value, str),
        }
        for key, value in large.items()
    )
    return ContextItem(
        id=item_id,
        item_type=ItemType.TOOL_INPUT,
        message=AssistantMessage(blocks),
        name=name,
        token_count=tokens,
        content_tokens=tokens,
    )
