"""What a framework asks of the provider's prompt cache, as far as its requests and settings show it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ctxfs.messages.messages import to_plain
from ctxfs.messages.models.prices import TTL_SECONDS, CacheTtl

_LAST: Final = 3
"""How many messages at the end of a request may have breakpoints that the program moves with each request."""


class HostCache(NamedTuple):
    """``at_end``: the framework's breakpoints are at the end of its requests. ``ttl``: how long they keep a prefix.

    None: not known.
    """

    at_end: bool = False
    ttl: CacheTtl | None = None

    def then(self, later: "HostCache") -> "HostCache":
        """What is known once ``later`` has also been seen."""
        return HostCache(self.at_end or later.at_end, later.ttl or self.ttl)


NO_HOST_CACHE = HostCache()
"""Nothing is known about breakpoints."""


def asked_by(*settings: Any) -> HostCache:
    """What the first of these settings that is set (to True, a time or a mark) asks for at the end of requests."""
    given = next((setting for setting in settings if setting), None)
    if given is None:
        return NO_HOST_CACHE
    ttl = given.get("ttl") if isinstance(given, Mapping) else getattr(given, "ttl", given)
    for known in TTL_SECONDS:
        if known == ttl:
            return HostCache(at_end=True, ttl=known)
    return HostCache(at_end=True)


def mark_of(messages: Sequence[Any], key: str = "cache_control") -> Any:
    """The mark ``key`` that a program set in one of its last messages, or in a block of its content; None: none."""
    for given in reversed(messages[-_LAST:]):
        message = to_plain(given)
        content = message.get("content")
        blocks: Iterable[Any] = () if content is None or isinstance(content, str) else content
        # Of a message, the last block with a mark, else its own.
        for part in reversed([message, *map(to_plain, blocks)]):
            if isinstance(part, Mapping) and part.get(key):
                return part[key]
    return None
