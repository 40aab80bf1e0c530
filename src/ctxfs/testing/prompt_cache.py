"""A provider's prompt cache, simulated: which part of a request was read, written or billed in full."""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ctxfs.messages.base import Usage
from ctxfs.messages.messages import unchanged
from ctxfs.messages.tokens import CharsCounter, TokenCounter, count_block
from ctxfs.text.jsontext import codec as json_codec

__all__ = ["CHARS4", "PromptCache"]

LOOKBACK_BLOCKS = 20
CHARS4 = CharsCounter()
TTL_S = {"5m": 300.0, "1h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    """The end of one block of the prompt: the hash and the tokens of everything up to here."""

    key: bytes
    tokens: int
    ttl_s: float | None
    marked: bool


class PromptCache:
    """Accounts requests the way the Messages API does: tools, then system, then messages, block by block.

    ``explicit``: only ``cache_control`` breakpoints are written, and each is looked up ``LOOKBACK_BLOCKS`` blocks back;
    otherwise every block's end counts, as with a provider that caches automatically. ``min_tokens``: shorter prefixes
    are not cached; 0 caches all. ``clock`` gives seconds; a hit renews an entry's time to live. Messages that are the
    same objects as in the last request are not read again, so they must not be changed in place.
    """

    def __init__(
        self,
        *,
        explicit: bool = True,
        counter: TokenCounter = CHARS4,
        min_tokens: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._explicit = explicit
        self._counter = counter
        self._min_tokens = min_tokens
        self._clock = clock
        self._entries: dict[bytes, tuple[float, float]] = {}
        self._head: _Position | None = None
        self._messages: list[Mapping[str, Any]] = []
        self._ends: list[list[_Position]] = []  # of the blocks of each of these messages

    def count_tokens(self, body: Mapping[str, Any]) -> int:
        """The tokens of the whole prompt in ``body``."""
        positions = self._positions(body)
        return positions[-1].tokens if positions else 0

    def account(self, body: Mapping[str, Any], *, output_tokens: int = 0) -> Usage:
        """The usage of sending ``body`` now; what it writes is in the cache afterwards."""
        positions = self._positions(body)
        total = positions[-1].tokens if positions else 0
        marked = [i for i, p in enumerate(positions) if p.marked]
        if not marked:
            return Usage(input_tokens=total, output_tokens=output_tokens)
        now = self._clock()
        read = self._longest_hit(positions, marked, now)
        cacheable = [p for p in map(positions.__getitem__, marked) if p.tokens >= self._min_tokens]
        for position in cacheable:
            ttl_s = position.ttl_s or TTL_S["5m"]
            self._entries[position.key] = (now + ttl_s, ttl_s)
        written = max(read, cacheable[-1].tokens) if cacheable else read
        return Usage(
            input_tokens=total - written,
            cache_creation_input_tokens=written - read,
            cache_read_input_tokens=read,
            output_tokens=output_tokens,
        )

    def _longest_hit(self, positions: list[_Position], marked: list[int], now: float) -> int:
        """The tokens of the longest cached prefix within reach of a breakpoint; 0 for none."""
        for mark in reversed(marked) if self._explicit else marked[-1:]:
            stop = max(-1, mark - LOOKBACK_BLOCKS) if self._explicit else -1
            for index in range(mark, stop, -1):
                key = positions[index].key
                expires, ttl_s = self._entries.get(key, (now, 0.0))
                if expires > now:
                    self._entries[key] = (now + ttl_s, ttl_s)
                    return positions[index].tokens
        return 0

    def _positions(self, body: Mapping[str, Any]) -> list[_Position]:
        """The end of every block, in the order in which a provider caches them."""
        model = _Position(key=str(body.get("model", "")).encode(), tokens=0, ttl_s=None, marked=False)
        head = self._after(model, "tools", body.get("tools", ()))
        head += self._after(head[-1] if head else model, "system", _as_blocks(body.get("system", ())))
        last = head[-1] if head else model
        self._take(last, body["messages"])
        return [*head, *chain.from_iterable(self._ends)]

    def _take(self, head: _Position, messages: Sequence[Mapping[str, Any]]) -> None:
        """Follow ``messages``, which stand behind ``head``."""
        same = unchanged(self._messages, messages) if head == self._head else 0
        del self._messages[same:], self._ends[same:]
        self._head = head
        last = next((ends[-1] for ends in reversed(self._ends) if ends), head)
        for message in messages[same:]:
            ends = self._after(last, message["role"], _as_blocks(message["content"]))
            last = ends[-1] if ends else last
            self._messages.append(message)
            self._ends.append(ends)

    def _after(self, last: _Position, section: str, blocks: Iterable[Mapping[str, Any]]) -> list[_Position]:
        """The ends of ``blocks``, which stand behind ``last``."""
        ends: list[_Position] = []
        for block in blocks:
            control = block.get("cache_control")
            encoded = json_codec.dumps({k: v for k, v in block.items() if k != "cache_control"})
            digest = hashlib.sha256(b"%s:%s:%d:" % (last.key, section.encode(), len(encoded)))
            digest.update(encoded)
            last = _Position(
                key=digest.digest(),
                tokens=last.tokens + count_block(self._counter, dict(block)),
                ttl_s=TTL_S[control.get("ttl", "5m")] if control else None,
                marked=bool(control) or not self._explicit,
            )
            ends.append(last)
        return ends


def _as_blocks(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
