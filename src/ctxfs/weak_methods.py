"""A method that does not keep its object: who drops the object is rid of it at once, and of the lock that it holds."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar
from weakref import WeakMethod

__all__ = ["weak_method"]

P = ParamSpec("P")
T = TypeVar("T")


def weak_method(method: Callable[P, T]) -> Callable[P, T]:
    """Return a function that calls ``method``, a bound one, for what its object owns: that never outlives it."""
    found = WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = found()
        assert bound is not None
        return bound(*args, **kwargs)

    return call
