"""Waiting until another writer releases the session."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from ctxfs.errors import SessionLocked

FIRST_PAUSE_S = 0.001
LONGEST_PAUSE_S = 0.05

T = TypeVar("T")


async def patiently(attempt: Callable[[], Awaitable[T]], wait_s: float) -> T:
    """Make the attempt again while another writer has the session, for up to ``wait_s`` seconds."""
    until = anyio.current_time() + wait_s
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return await attempt()
        except SessionLocked:
            if anyio.current_time() + pause_s > until:
                raise
        await anyio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
