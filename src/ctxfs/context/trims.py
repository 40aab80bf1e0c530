"""The large arguments of a reply's calls, and what is sent in their place once they are evicted. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from ctxfs.eviction.economics.parameters import LEAST_SAVED_TOKENS, EvictionParameters
from ctxfs.eviction.economics.plans import Why
from ctxfs.eviction.offload_plan import Trim
from ctxfs.eviction.placeholder.arguments import as_json, large_arguments, without_large_arguments
from ctxfs.eviction.placeholder.text import render
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Block
from ctxfs.messages.names import NameAllocator
from ctxfs.messages.tokens import TokenCounter, count_json


def trim_of(
    reply_id: str,
    place: int,
    call: Block,
    *,
    digest: Callable[[int], str],
    names: NameAllocator,
    path_of: Callable[[str], str],
    short_of: Callable[[str], str | None],
    parameters: EvictionParameters,
    policy: OffloadPolicy,
    counter: TokenCounter,
    reader: str,
) -> Trim | None:
    """How the large arguments of ``call``, the block at ``place`` of a reply, would be evicted; None if they stay.

    ``digest`` returns a description within a number of tokens. The id and the file of what would be stored are taken
    from ``names``; ``short_of`` gives the short name of an id, if that is used. ``reader`` is the name of the tool that
    opens that file.
    """
    large = large_arguments(call["input"]) if parameters.tool_inputs else {}
    tokens = count_json(counter, call["input"]) if large else 0
    if not large or tokens < LEAST_SAVED_TOKENS:
        return None
    if not policy.allows(ItemType.TOOL_INPUT, tokens):
        return None
    blocks = _blocks(large)
    item_id, name = names.allocate(ItemType.TOOL_INPUT, f"{call['id']}.input", call["name"], blocks)
    placeholder = render(path_of(name), digest(tokens), reader=reader, short=short_of(item_id))
    arguments = without_large_arguments(call["input"], placeholder)
    return Trim(
        item_id=reply_id,
        block=place,
        arguments=arguments,
        stored=_stored(item_id, name, blocks, tokens),
        path=path_of(name),
        tokens_before=tokens,
        tokens_after=count_json(counter, arguments),
        reason=str(Why.BATCH),
    )


def _blocks(large: Mapping[str, Any]) -> tuple[Block, ...]:
    """The large arguments as a text block each, so that their lines can be read."""
    return tuple(
        {
            "type": "text",
            "text": value if isinstance(value, str) else as_json(value),
            "argument": key,
            "json": not isinstance(value, str),
        }
        for key, value in large.items()
    )


def _stored(item_id: str, name: str, blocks: tuple[Block, ...], tokens: int) -> ContextItem:
    """The large arguments as an item of their own."""
    return ContextItem(
        id=item_id,
        item_type=ItemType.TOOL_INPUT,
        message=AssistantMessage(blocks),
        name=name,
        token_count=tokens,
        content_tokens=tokens,
    )
