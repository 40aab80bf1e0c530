"""How often this process had trouble with stores on servers, for whoever watches it."""

import threading
from collections import Counter
from typing import Literal

Trouble = Literal["retry", "unknown outcome", "lost session"]
"""A request was made again since it was not answered; whether a change was stored is not known; another writer took a
session over from this process."""


class Troubles:
    """Counts of troubles that only grow; any thread may use them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Trouble] = Counter()

    def met(self, trouble: Trouble) -> None:
        """Count one."""
        with self._lock:
            self._counts[trouble] += 1

    def count(self, trouble: Trouble) -> int:
        """How many there were."""
        with self._lock:
            return self._counts[trouble]


TROUBLES = Troubles()
"""Of all sessions of this process: what exports metrics sees no store."""
