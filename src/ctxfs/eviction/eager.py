"""Eager offload: content that is evicted before it is ever sent, decided as a value. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ctxfs.eviction.offload_plan import Offload
from ctxfs.messages.items import ContextItem
from ctxfs.messages.tokens import TokenCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerOffload:
    """How ``item``, which may have a new file name, is evicted before it is sent: by ``offload``.

    ``chars`` is the size of its content.
    """

    item: ContextItem
    chars: int
    offload: Offload


class EagerPolicy(Protocol):
    """Decides about each item before it enters the context."""

    def decide(self, item: ContextItem, *, path_of: Callable[[str], str], counter: TokenCounter) -> EagerOffload | None:
        """Return how ``item`` is evicted, or None if it stays. Called in a worker thread if the item is large.

        ``path_of`` returns the absolute path of a file of the session. What this raises is raised to whoever adds the
        item, which is not added then.
        """
