"""The size of what a framework's request holds besides its messages: the system prompt and the tools' schemas."""

from functools import lru_cache
from typing import Any, Final

from anyio import to_thread

from ctxfs.messages.tokens import default_counter, json_counted

_AGENTS: Final = 32
"""Each agent has a prompt and tools of its own, which seldom change: those of so many are counted once."""


async def beside_tokens(*beside: Any) -> int:
    """Return the tokens of ``beside`` as JSON; they are counted in a thread, since a first count loads a vocabulary."""
    return await to_thread.run_sync(_counted, json_counted(beside))


@lru_cache(maxsize=_AGENTS)
def _counted(text: str) -> int:
    return default_counter().count(text)
