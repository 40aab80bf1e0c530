"""What a prompt cache would have done for what evictions kept out of each call, as the bills say. Pure.

This is the one rule by which a session is compared with itself without evictions: ``explain``, the page, and the
figures of a transport use it.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from ctxfs.messages.base import Usage

_SURE_BILLS: Final = 3
"""Of fewer bills, the same number of cached tokens may be chance: caches count in steps of 128 tokens or more."""

_SURE_GROWTH_TOKENS: Final = 1_024
"""Nor do prompts that differ by less show it: a few short turns end within one step of a cache that holds them all."""


class Billed(NamedTuple):
    """A call: its bill, None if it is not recorded; and whether something that was sent before it was changed."""

    usage: Usage | None
    is_changed: bool


class Cached(Enum):
    """How a call would have been billed for what the call before had sent, too."""

    READ = "read from the cache"
    WRITTEN = "written to the cache, which had expired"
    NEVER = "at the full price: no cache held the conversation"


def cached(calls: Sequence[Billed]) -> list[Cached]:
    """Say it of each call; of one without a bill, that it would have been read.

    No cache held the conversation where a bill has no cached tokens. Nor where all bills that have some have the same
    number of them, while prompts clearly differ: these are a system prompt and tools, at whose end the only breakpoint
    stands. If something was changed before the call, that may be why, unless no bill of the session shows more.

    If nothing was changed, and a call writes and reads far less than was sent before, the conversation had expired.
    What it reads is a system prompt that other conversations keep warm.
    """
    bills = [call.usage for call in calls if call.usage is not None]
    fixed = _fixed_tokens(bills)
    is_never = all(_cached_tokens(usage) <= fixed for usage in bills)
    found = []
    before: Usage | None = None
    for usage, is_changed in calls:
        if usage is None or (is_changed and not is_never):
            found.append(Cached.READ)
        elif _has_no_more(usage, fixed):
            found.append(Cached.NEVER)
        elif _is_written(usage, before):
            found.append(Cached.WRITTEN)
        else:
            found.append(Cached.READ)
        before = usage or before
    return found


def _fixed_tokens(bills: Sequence[Usage]) -> int:
    """What a cache holds beside the conversation, in all calls; 0: nothing, or it holds the conversation, too."""
    some = [_cached_tokens(usage) for usage in bills if _cached_tokens(usage)]
    if len(some) < _SURE_BILLS or len(set(some)) > 1:
        return 0
    prompts = [usage.total_input_tokens for usage in bills]
    if max(prompts) - min(prompts) < _SURE_GROWTH_TOKENS:
        return 0
    return some[0]


def _cached_tokens(usage: Usage) -> int:
    return usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def _has_no_more(usage: Usage, fixed: int) -> bool:
    """Whether a bill has no cached tokens but the ``fixed`` ones, and has others."""
    return _cached_tokens(usage) <= fixed < usage.total_input_tokens


def _is_written(usage: Usage, before: Usage | None) -> bool:
    """Whether a call wrote, and read less than half of what it could: the prompt before it, or its own if shorter."""
    read = usage.cache_read_input_tokens
    if not usage.cache_creation_input_tokens:
        return False
    if not read or before is None:
        return not read
    return 2 * read < min(before.total_input_tokens, usage.total_input_tokens)
