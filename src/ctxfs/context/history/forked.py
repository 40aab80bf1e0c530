"""What a forked process has to forget: threads, handles and locks belong to its parent."""

import os
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_known: "WeakKeyDictionary[Any, Callable[[Any], None]]" = WeakKeyDictionary()


def forget_in_forked(one: T, forget: Callable[[T], None]) -> None:
    """Call ``forget`` on ``one`` in every process that is forked from this one, as long as ``one`` exists."""
    _known[one] = forget


def _forget_all() -> None:
    for one, forget in list(_known.items()):
        forget(one)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
