"""The placeholder that may replace an item's content one day, and the digest in it. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from ctxfs.items import ContextItem, ItemType
from ctxfs.placeholder.digest import describe
from ctxfs.placeholder.text import render, render_range
from ctxfs.tokens import TokenCounter

__all__ = ["DIGEST_FRACTION", "digest_budget", "digest_of", "with_placeholder"]

DIGEST_FRACTION = 5
"""A digest takes at most this part of the tokens of what it describes."""

_MAY_LEAVE = frozenset({ItemType.TOOL_RESULT, ItemType.USER_MESSAGE, ItemType.SKILL_PROMPT})


def digest_of(item: ContextItem, *, counter: TokenCounter, digest_tokens: int) -> str:
    """Describe the item's content in at most ``digest_tokens``, and in a fraction of what it takes; "" for 0."""
    budget = digest_budget(item.content_tokens, digest_tokens)
    if not budget:
        return ""
    return describe(item.message.content, budget_tokens=budget, counter=counter, content_tokens=item.content_tokens)


def digest_budget(content_tokens: int, digest_tokens: int) -> int:
    """How many tokens the digest of a placeholder may have."""
    return min(digest_tokens, content_tokens // DIGEST_FRACTION)


def with_placeholder(item: ContextItem, *, path: str, counter: TokenCounter, digest: str) -> ContextItem:
    """``item`` with the placeholder that may stand for it: the longest that is smaller than the content, if any is.

    ``path`` is the file that it would go to (absolute), ``digest`` describes its content.
    """
    if item.item_type not in _MAY_LEAVE:
        return item
    for text in _candidates(item, path, digest):
        tokens = counter.count(text)
        if tokens < item.content_tokens:
            return replace(item, placeholder=text, placeholder_tokens=tokens)
    return replace(item, placeholder=None, placeholder_tokens=0)


def _candidates(item: ContextItem, path: str, digest: str) -> Iterator[str]:
    if item.source is not None:
        yield render_range(item.source)
        return
    if digest:
        yield render(path, digest)
    yield render(path)
