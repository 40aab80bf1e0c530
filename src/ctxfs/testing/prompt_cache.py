"""A provider's prompt cache, simulated: which part of a request was read, written or billed in full."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ctxfs.jsontext import codec as json_codec
from ctxfs.llm.base import Usage
from ctxfs.tokens import CharsCounter, TokenCounter, count_block

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
    otherwise every block's end counts, as with a provider that caches by itself. ``min_tokens``: shorter prefixes are
    not cached; 0 caches all. ``clock`` gives seconds; a hit renews an entry's time to live.
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

    def count_tokens(self, body: Mapping[str, Any]) -> int:
        """The tokens of the whole prompt in ``body``."""
        positions = list(self._positions(body))
        return positions[-1].tokens if positions else 0

    def account(self, body: Mapping[str, Any], *, output_tokens: int = 0) -> Usage:
        """The usage of sending ``body`` now; what it writes is in the cache afterwards."""
        positions = list(self._positions(body))
        total = positions[-1].tokens if positions else 0
        marked = [i for i, p in enumerate(positions) if p.marked]
        if not marked:
            return Usage(input_tokens=total, output_tokens=output_tokens)
        now = self._clock()
        read = self._longest_hit(positions, marked, now)
        for index in marked:
            self._write(positions[index], now)
        written = max(read, *(positions[i].tokens for i in marked if self._cacheable(positions[i])), 0)
        return Usage(
            input_tokens=total - written,
            cache_creation_input_tokens=written - read,
            cache_read_input_tokens=read,
            output_tokens=output_tokens,
        )

    def _longest_hit(self, positions: list[_Position], marked: list[int], now: float) -> int:
        """The tokens of the longest cached prefix within reach of a breakpoint; 0 for none."""
        for mark in reversed(marked):
            stop = max(-1, mark - LOOKBACK_BLOCKS) if self._explicit else -1
            for index in range(mark, stop, -1):
                key = positions[index].key
                expires, ttl_s = self._entries.get(key, (now, 0.0))
                if expires > now:
                    self._entries[key] = (now + ttl_s, ttl_s)
                    return positions[index].tokens
        return 0

    def _write(self, position: _Position, now: float) -> None:
        if self._cacheable(position):
            ttl_s = position.ttl_s or TTL_S["5m"]
            self._entries[position.key] = (now + ttl_s, ttl_s)

    def _cacheable(self, position: _Position) -> bool:
        return position.tokens >= self._min_tokens

    def _positions(self, body: Mapping[str, Any]) -> Iterator[_Position]:
        digest = hashlib.sha256(str(body.get("model", "")).encode())
        tokens = 0
        for section, block in _prompt_blocks(body):
            control = block.get("cache_control")
            encoded = json_codec.dumps({k: v for k, v in block.items() if k != "cache_control"})
            digest.update(b"%s:%d:" % (section.encode(), len(encoded)))
            digest.update(encoded)
            tokens += count_block(self._counter, dict(block))
            yield _Position(
                key=digest.digest(),
                tokens=tokens,
                ttl_s=TTL_S[control.get("ttl", "5m")] if control else None,
                marked=bool(control) or not self._explicit,
            )


def _prompt_blocks(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every block of the prompt with its section, in the order in which a provider caches them."""
    for tool in body.get("tools", ()):
        yield "tools", tool
    for block in _as_blocks(body.get("system", ())):
        yield "system", block
    for message in body["messages"]:
        for block in _as_blocks(message["content"]):
            yield message["role"], block


def _as_blocks(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
