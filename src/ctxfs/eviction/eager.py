"""What leaves the context the moment it comes in, before it is ever sent: decided as a value. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ctxfs.eviction.plan import Offload
from ctxfs.items import ContextItem
from ctxfs.tokens import TokenCounter

__all__ = ["ArrivalPolicy", "Leaving"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """``item``, which may have got another file name, leaves at once, as ``decide`` says.

    ``decide`` is pure, and may take a while: it is called in a worker thread while the content is being written.
    ``chars`` is the size of that content.
    """

    item: ContextItem
    chars: int
    decide: Callable[[], Offload]


class ArrivalPolicy(Protocol):
    """Decides about each item as it comes in."""

    def arrive(self, item: ContextItem, *, path_of: Callable[[str], str], counter: TokenCounter) -> Leaving | None:
        """Say how ``item`` leaves, or None: it stays. Called in a worker thread when the item is large.

        ``path_of`` gives the absolute path of a file of the session.
        """
