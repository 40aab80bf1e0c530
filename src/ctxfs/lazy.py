"""Names of a facade that are imported when they are first used, for what is costly to import."""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy"]


def lazy(facade: str, names: Mapping[str, Iterable[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of the module ``facade``.

    ``names`` holds the names to import by the module that each lives in. ``dir(facade)``, which completion uses, lists
    all of ``__all__``, whether it has been imported yet or not. No submodule of the facade may have the name of one of
    them: once imported, Python would give that instead.
    """
    homes = {name: home for home, its_names in names.items() for name in its_names}

    def getattr_(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        raise AttributeError(f"module {facade!r} has no attribute {name!r}")

    def dir_() -> list[str]:
        return list(sys.modules[facade].__all__)

    return getattr_, dir_
