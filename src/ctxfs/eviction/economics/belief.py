"""What the provider's cache was believed to hold, checked by what a request was billed. Pure."""

from dataclasses import dataclass
from typing import Final

from ctxfs.messages.base import Usage

_NO_CACHE_AFTER: Final = 4
"""So many misses in a row say that there is no cache, where the provider does not say what it holds.

After one or two, the next call finds it in 87 and 79 of 100 cases (3,957 recorded calls of such a provider).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """What a request was billed, in tokens as the provider counts them.

    ``read``: those of the prompt that the cache held; ``held``: those that it holds since then. None: the provider
    caches automatically, and does not say what.
    """

    prompt: int
    read: int
    held: int | None = None

    @classmethod
    def of(cls, usage: Usage, *, charges_writes: bool) -> "Billed":
        """``usage``; a provider that charges for what it writes to the cache says what it wrote."""
        read = usage.cache_read_input_tokens
        written = usage.cache_creation_input_tokens
        held = read + written if charges_writes or written else None
        return cls(prompt=usage.total_input_tokens, read=read, held=held)


@dataclass(frozen=True, slots=True)
class Checked:
    """What a bill says of the cache, in tokens of the ledger.

    ``missed``: what the request did not find of what was believed to be cached; ``lost``: the end of the request that
    is not cached now; ``misses``: how many calls in a row found less than half of what was believed.
    """

    missed: int = 0
    lost: int = 0
    misses: int = 0

    @classmethod
    def of(cls, billed: Billed, *, total: int, written: int, misses: int) -> "Checked":
        """Check a request of ``total`` tokens, of which the provider was expected to write ``written``."""
        ours = total / max(1, billed.prompt)  # tokens of the ledger for one that was billed
        known = max(0, total - written)
        missed = min(known, max(0, round((billed.prompt - billed.read) * ours) - written))
        misses = misses + 1 if 2 * missed > known else 0
        held = billed.held
        if held is None:
            held = billed.prompt if misses < _NO_CACHE_AFTER else 0
        return cls(missed, round((billed.prompt - held) * ours), misses)


NO_BILL = Checked()
"""All is as it was believed."""
