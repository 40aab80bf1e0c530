"""The large arguments of a reply's calls, and what would be sent in their place once they are evicted. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from ctxfs import json_codec
from ctxfs.context.economics import Why
from ctxfs.context.economics_parameters import EvictionParameters
from ctxfs.context.items import ContextItem, ItemType
from ctxfs.context.layout import Names
from ctxfs.context.offload import OffloadPolicy
from ctxfs.context.placeholder import render, render_argument
from ctxfs.context.plan import Trim
from ctxfs.llm.messages import AssistantMessage, Block
from ctxfs.tokens import TokenCounter

__all__ = ["trim_of", "without_large_arguments"]

_SMALL_ARGUMENT_CHARS = 200
"""Arguments up to this size stay as they are."""


def trim_of(
    reply_id: str,
    place: int,
    call: Block,
    *,
    digest: Callable[[int], str],
    names: Names,
    path_of: Callable[[str], str],
    parameters: EvictionParameters,
    policy: OffloadPolicy,
    counter: TokenCounter,
) -> Trim | None:
    """How the large arguments of ``call``, the block at ``place`` of a reply, would be evicted; None if they stay.

    ``digest`` gives what a placeholder says of so many tokens. The id and the file of what would be stored are taken
    from ``names``.
    """
    large = _large_arguments(call["input"])
    tokens = counter.count(_json(call["input"])) if large else 0
    if not large or not parameters.tool_inputs or not parameters.could_leave(tokens, 0):
        return None
    if not policy.allows(ItemType.TOOL_INPUT, tokens):
        return None
    item_id, name = names.claim(ItemType.TOOL_INPUT, f"{call['id']}.input", call["name"])
    arguments = without_large_arguments(call["input"], render(path_of(name), digest(tokens)))
    return Trim(
        item_id=reply_id,
        block=place,
        arguments=arguments,
        stored=_stored(item_id, name, large, tokens),
        path=path_of(name),
        tokens_before=tokens,
        tokens_after=counter.count(_json(arguments)),
        reason=str(Why.BATCH),
    )


def _json(value: Any) -> str:
    return json_codec.dumps(value).decode()


def _large_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in arguments.items() if len(v if isinstance(v, str) else _json(v)) > _SMALL_ARGUMENT_CHARS}


def without_large_arguments(arguments: Mapping[str, Any], placeholder: str) -> dict[str, Any]:
    """The arguments with a placeholder in the place of the first large one, and a pointer to it in the others'."""
    if not (large := _large_arguments(arguments)):
        return dict(arguments)
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
