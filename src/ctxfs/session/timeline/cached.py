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
    number of them, while prompts differ: these are a system prompt and tools, at whose end the only breakpoint stands.
    If something was changed before the call, that may be why, unless no bill of the session shows more.
    """
    bills = [call.usage for call in calls if call.usage is not None]
    fixed = _fixed_tokens(bills)
    is_never = all(_cached_tokens(usage) <= fixed for usage in bills)
    found = []
    for usage, is_changed in calls:
        if usage is None or (is_changed and not is_never):
            found.append(Cached.READ)
        elif _has_no_more(usage, fixed):
            found.append(Cached.NEVER)
        elif usage.cache_creation_input_tokens and not usage.cache_read_input_tokens:
            found.append(Cached.WRITTEN)
        else:
            found.append(Cached.READ)
    return found


def _fixed_tokens(bills: Sequence[Usage]) -> int:
    """What a cache holds beside the conversation, in all calls; 0: nothing, or it holds the conversation, too."""
    some = [_cached_tokens(usage) for usage in bills if _cached_tokens(usage)]
    prompts = {usage.total_input_tokens for usage in bills}
    is_fixed = len(some) >= _SURE_BILLS and len(set(some)) == 1 and len(prompts) > 1
    return some[0] if is_fixed else 0


def _cached_tokens(usage: Usage) -> int:
    return usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def _has_no_more(usage: Usage, fixed: int) -> bool:
    """Whether a bill has no cached tokens but the ``fixed`` ones, and has others."""
    return _cached_tokens(usage) <= fixed < usage.total_input_tokens
