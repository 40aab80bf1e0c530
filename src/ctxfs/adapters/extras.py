"""What adapters share: the error of a missing framework, and the size of what a request holds besides its messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from anyio import to_thread

from ctxfs.errors import MissingExtra
from ctxfs.messages.tokens import default_counter, json_counted

__all__ = ["needs"]


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Import a framework in this context: if it is missing, ``MissingExtra`` names the ``extra`` to install."""
    try:
        yield
    except (MissingExtra, ModuleNotFoundError) as error:  # one adapter may be built on another
        raise MissingExtra(extra, error.name or extra) from error


_AGENTS: Final = 32
"""Each agent has a prompt and tools of its own, which seldom change: those of so many are counted once."""


async def beside_tokens(*beside: Any) -> int:
    """Return the tokens of ``beside`` as JSON; they are counted in a thread, since a first count loads a vocabulary."""
    return await to_thread.run_sync(_counted, json_counted(beside))


@lru_cache(maxsize=_AGENTS)
def _counted(text: str) -> int:
    return default_counter().count(text)
