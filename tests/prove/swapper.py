"""Exchanges two names over and over, from a process of its own, until it is told to stop.

Each line of the input is a JSON pair of paths, or ``stop``; a line with the number of exchanges answers ``stop``, once
everything is where it was.
"""

import ctypes
import json
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["main"]

AT_FDCWD = -100
RENAME_EXCHANGE = 2
BETWEEN_LOOKS = 8


def _exchanger() -> Callable[[str, str], bool]:
    """Return what exchanges two names; atomically where the system can."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)

    def at_once(first: str, second: str) -> bool:
        assert call is not None
        done: int = call(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE)
        return done == 0

    def in_steps(first: str, second: str) -> bool:
        aside = Path(f"{second}.aside")
        try:
            Path(first).rename(aside)
            Path(second).rename(first)
            aside.rename(second)
        except OSError:
            return False
        return True

    return in_steps if call is None else at_once


def main() -> None:
    """Serve the input."""
    exchange = _exchanger()
    for line in iter(sys.stdin.readline, ""):
        first, second = json.loads(line)
        print("go", flush=True)
        count = 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            count += sum(exchange(first, second) for _ in range(BETWEEN_LOOKS))
        sys.stdin.readline()
        if count % 2 and exchange(first, second):
            count += 1
        print(count, flush=True)


if __name__ == "__main__":
    main()
