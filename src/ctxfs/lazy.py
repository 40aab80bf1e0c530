"""Names of a facade that are imported when they are first used, and what to write for those that it does not have."""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

from ctxfs.errors.spelling import did_you_mean

OTHER_NAMES: Mapping[str, str] = {
    "SelectiveCompactionPolicy": "from ctxfs.eviction import SelectiveCompaction",
    "EphemeralManager": "@tool(..., ephemeral=n), or Context(keep_recent={...}) in a loop of your own",
    "Budget": "Window(window_tokens=..., reply_tokens=...) of ctxfs.eviction",
    "Rule": "SelectiveCompaction(rules={ItemType.TOOL_RESULT: 5}), where a number says how many of the newest stay",
    "RetryPolicy": "ChatAnthropic(max_retries=...)",
    "quota": "await keep_quota(...) before the agent is opened",
}
"""Names that a facade does not have, and what to write instead.

They are of "Context FileSystem 上下文卸载功能", of its other implementations, or of ctxfs before its first release.
"""


def lazy(
    facade: str,
    names: Mapping[str, Iterable[str]],
    *,
    elsewhere: Mapping[str, Iterable[str]] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of the module ``facade``.

    ``names`` holds the names to import by the module that each lives in. ``dir(facade)``, which completion uses, lists
    all of ``__all__``, whether it has been imported yet or not. No submodule of the facade may have the name of one of
    them: once imported, Python would give that instead.

    ``elsewhere``: names that users look for here, by the module that has them. ``renamed``: what to write instead of a
    name. Both raise ``ImportError``, because ``from facade import name`` replaces the text of an ``AttributeError``.
    """
    homes = _by_name(names)
    homes_elsewhere = _by_name(elsewhere or {})

    def getattr_(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        if name in homes_elsewhere:
            raise ImportError(
                f"{facade} has no {name}: write `from {homes_elsewhere[name]} import {name}`", name=facade
            )
        if renamed and name in renamed:
            raise ImportError(f"{facade} has no {name}: write `{renamed[name]}`", name=facade)
        known = sys.modules[facade].__all__
        raise AttributeError(f"module {facade!r} has no attribute {name!r}{did_you_mean(name, known)}")

    def dir_() -> list[str]:
        return list(sys.modules[facade].__all__)

    return getattr_, dir_


def _by_name(homes: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """The module of each name."""
    by_name = {}
    for home, names in homes.items():
        for name in names:
            by_name[name] = home
    return by_name
