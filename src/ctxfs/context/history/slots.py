"""The place of each part in a message: how parts become messages of our own, and what replaces them. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ctxfs.context.history.parts import Part
from ctxfs.eviction.offload_plan import Offload, Trim, stored_arguments
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import THINKING, AssistantMessage, Block, Message, ToolMessage, UserMessage
from ctxfs.messages.tokens import TokenCounter, count_content
from ctxfs.session.fingerprint import Key
from ctxfs.session.records import Decided
from ctxfs.text.jsontext.codec import json_copy

REPLY_KINDS = frozenset({"reply", "call"})
"""The kinds of parts that a reply is made of."""

BY_ANOTHER_LIBRARY = "another library replaced it"
"""The reason of a decision that saves nothing: the content would not be in the request without ctxfs either."""


@dataclass(slots=True)
class Slot:
    """A part of the history and where it is in the transcript. ``original``: it is not its own replacement already.

    ``blocks``: which blocks of a reply it is; None if it is an item of its own. ``ledger_id``: its id in the ledger.
    ``replies_before``: how many replies the history has before its message.
    """

    part: Part
    key: Key
    original: bool
    item_id: str = ""
    blocks: tuple[int, int] | None = None
    ledger_id: str = ""
    replies_before: int = 0


class Seen(NamedTuple):
    """How much a model has seen: whether a request had carried a part, and how many replies the history has."""

    sent: bool
    replies: int


def groups_of(slots: Sequence[Slot]) -> Iterator[Sequence[Slot]]:
    """The parts message by message: what a model says between two inputs is one reply."""
    group: list[Slot] = []
    for slot in slots:
        if group and not (group[-1].part.kind in REPLY_KINDS and slot.part.kind in REPLY_KINDS):
            yield group
            group = []
        group.append(slot)
    if group:
        yield group


def snapshot(content: str | tuple[Block, ...] | dict[str, Any]) -> Any:
    """``content`` as a copy that cannot change: a framework may edit its own dicts in place."""
    if isinstance(content, str):
        return content
    if isinstance(content, tuple):
        return tuple(map(json_copy, content))
    return json_copy(content)


def message_of(part: Part) -> Message:
    """The message of a result, or of a text of the user."""
    content: Any = part.content
    if part.kind == "result":
        return ToolMessage(part.id, part.tool, content)
    return UserMessage(content)


def blocks_of(part: Part, content: Any) -> list[Block]:
    """The blocks that a part of a reply is, with ``content``."""
    if part.kind == "call":
        return [{"type": "tool_use", "id": part.id, "name": part.tool, "input": dict(content)}]
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content)


def decided_by(slot: Slot, step: Offload | Trim, content: Any, item_id: str, seen: Seen) -> Decided:
    """What a step of a plan means for one part: ``content`` replaces its own, which is stored as ``item_id``."""
    return Decided(
        kind=slot.key.kind,
        call_id=slot.key.call_id,
        sha256=slot.key.sha256,
        item_id=item_id,
        content=content,
        tokens_before=step.tokens_before,
        tokens=step.tokens_after,
        reason=step.reason,
        tool=slot.part.tool,
        sent=seen.sent,
        replies_since=seen.replies - slot.replies_before,
    )


def aligned(old: Sequence[Block], new: Sequence[Block]) -> list[tuple[Block, ...]]:
    """The new blocks in the place of each old block of a reply; its thinking may be dropped, and one text be added."""
    keeps_thinking = any(block["type"] in THINKING for block in new)
    stays = [keeps_thinking or block["type"] not in THINKING for block in old]
    position = len(new) - sum(stays)
    added = tuple(new[:position])
    found: list[tuple[Block, ...]] = []
    for block_stays in stays:
        if block_stays:
            found.append((new[position],))
            position += 1
        else:
            found.append(added)
            added = ()
    assert not added, "a text is added only where thinking is dropped"
    return found


def replaced_item(item: ContextItem, decided: Decided) -> ContextItem:
    """``item`` as it is sent; its replacement is never replaced again."""
    content: Any = decided.content
    return replace(
        item.with_content(content),
        token_count=decided.tokens,
        content_tokens=decided.tokens_before,
        placeholder=None,
        placeholder_tokens=0,
        offloaded=True,
        destroyed=True,
    )


def whole_item(item: ContextItem, decided: Decided) -> ContextItem:
    """``item``, the result that was replaced, as large as it was before that."""
    return replace(
        item,
        token_count=decided.tokens_before,
        content_tokens=decided.tokens_before,
        placeholder="",
        placeholder_tokens=decided.tokens,
    )


def trim_by(decided: Decided, item: ContextItem, block: int) -> Trim:
    """The arguments in a block of the reply ``item`` that were replaced, as they could be before that."""
    assert isinstance(decided.content, Mapping)
    return Trim(
        item_id=item.id,
        block=block,
        arguments=decided.content,
        stored=stored_arguments(decided.item_id, decided.tokens_before),
        path="",
        tokens_before=decided.tokens_before,
        tokens_after=decided.tokens,
        reason=decided.reason,
    )


def replaced_part(item: ContextItem, slot: Slot, decided: Decided, counter: TokenCounter) -> ContextItem:
    """``item`` with the decision about one part of it, which a process with another counter may have made."""
    if slot.blocks is None:
        return replaced_item(item, decided)
    blocks: list[Any] = list(item.message.content)
    first, end = slot.blocks
    blocks[first:end] = blocks_of(slot.part, decided.content)
    return replace(
        item,
        message=AssistantMessage(tuple(blocks)),
        token_count=count_content(counter, tuple(blocks)),
        trimmed=(*item.trimmed, first) if slot.part.kind == "call" else item.trimmed,
    )
