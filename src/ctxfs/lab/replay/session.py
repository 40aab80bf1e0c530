"""A recording made ready for replay: blocks counted, and what the model could only quote from them indexed.

Counting and indexing are done once per recording; every policy is then replayed on the same value.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ctxfs.eviction.placeholder.identifiers import identifiers_in
from ctxfs.lab.recordings.recording import Block, Kind, ModelCall, Recording, Role
from ctxfs.messages.base import Usage

MIN_LINE_CHARS: Final = 20
_LINE_NUMBER = re.compile(r"^\s*\d+(?:→|\t|:|\||\s\|)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A block of the recording with its size. ``index`` is its place in the session; a page read back has a new one.

    ``quotable``: the distinctive strings in it that some reply of the session uses, by number.
    """

    index: int
    kind: Kind
    tokens: int
    text: str = ""
    tool: str = ""
    call_id: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    quotable: tuple[int, ...] = ()
    page_of: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of the model: what is new in the request, and the reply.

    ``at``: when it was sent, in seconds since any moment that is the same for the session; 0 when nobody knows.
    ``call``: what was recorded of it. ``cleared``: the items that the recorded agent removed before it. ``kept``: the
    share of the last prompt that the cache still held, by the bill; 1 when nobody knows.
    """

    added: tuple[Item, ...]
    reply: tuple[Item, ...]
    at: float = 0.0
    call: ModelCall | None = None
    cleared: tuple[int, ...] = ()
    kept: float = 1.0

    @property
    def usage(self) -> Usage | None:
        """What the call was billed; None: not recorded."""
        return self.call.usage if self.call is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A thread of a recording, ready for replay. ``vocabulary`` numbers the distinctive strings that replies use.

    ``warm_items``: so many of the first were in the cache before the first call. ``scale``: the tokens that were billed
    for each that is counted.
    """

    name: str
    turns: tuple[Turn, ...]
    vocabulary: Mapping[str, int]
    warm_items: int = 0
    scale: float = 1.0

    @property
    def strings(self) -> tuple[str, ...]:
        """The vocabulary by number."""
        return tuple(self.vocabulary)

    def quotable(self, text: str) -> tuple[int, ...]:
        """The distinctive strings of ``text`` that replies of this session use."""
        return tuple(self.vocabulary[s] for s in distinctive(text) if s in self.vocabulary)


def tokens_of(items: Sequence[Item]) -> int:
    """The tokens of some items together."""
    return sum(item.tokens for item in items)


def distinctive(text: str) -> dict[str, None]:
    """What a reply can only use if the model has seen it: identifiers and whole stripped lines, in order.

    Identifiers have 12 or more of ``[A-Za-z0-9_./:-]``, lines 20 or more characters without the number before them.
    """
    found = identifiers_in(text)
    for line in text.split("\n"):
        stripped = _LINE_NUMBER.sub("", line).strip()
        if len(stripped) >= MIN_LINE_CHARS:
            found[stripped] = None
    return found


def prepare(recording: Recording, count: Callable[[str], int]) -> Session:
    """Count and index ``recording``, which is one thread; ``count`` gives the tokens of a text."""
    strings = [[distinctive(b.text) for b in m.blocks] for m in recording.messages]
    vocabulary = _vocabulary(recording, strings)
    turns: list[Turn] = []
    added: list[Item] = []
    results: dict[str, int] = {}  # a call's id: the index of its result
    cleared: list[int] = []
    sent_at = 0.0
    index = 0
    for message, found in zip(recording.messages, strings, strict=True):
        items = []
        for block, texts in zip(message.blocks, found, strict=True):
            items.append(_item(block, index, count, tuple(vocabulary[s] for s in texts if s in vocabulary)))
            index += 1
        cleared += [results[call_id] for call_id in message.cleared if call_id in results]
        if message.role is Role.ASSISTANT:
            sent_at = message.at if message.at is not None and not added else sent_at
            turns.append(Turn(tuple(added), tuple(items), sent_at, message.call, tuple(cleared)))
            added, cleared = [], []
        else:
            added += items
            sent_at = message.at if message.at is not None else sent_at
            results |= {item.call_id: item.index for item in items if item.kind is Kind.TOOL_RESULT}
    return Session(name=recording.name, turns=tuple(turns), vocabulary=vocabulary)


def _vocabulary(recording: Recording, strings: list[list[dict[str, None]]]) -> dict[str, int]:
    """The strings that a reply uses after they stood somewhere before it: no others can be missed."""
    seen: set[str] = set()
    used: dict[str, int] = {}
    for message, blocks in zip(recording.messages, strings, strict=True):
        if message.role is Role.ASSISTANT:
            for text in _all(blocks):
                if text in seen:
                    used.setdefault(text, len(used))
        seen.update(_all(blocks))
    return used


def _all(blocks: Iterable[dict[str, None]]) -> Iterable[str]:
    return (text for block in blocks for text in block)


def _item(block: Block, index: int, count: Callable[[str], int], quotable: tuple[int, ...]) -> Item:
    tokens = count(block.text if block.counted is None else block.counted)
    return Item(
        index=index,
        kind=block.kind,
        tokens=tokens + block.media_tokens + (count(block.tool) if block.kind is Kind.TOOL_INPUT else 0),
        text=block.text,
        tool=block.tool,
        call_id=block.call_id,
        arguments=block.arguments,
        quotable=quotable,
    )
