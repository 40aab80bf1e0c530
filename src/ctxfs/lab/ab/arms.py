"""The arms of a comparison: what is done to the context of a session. Pure.

One of them removes old results for good, as providers' context editing does: what that costs can be measured.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ctxfs.context.history.views import VIEWS, Api
from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings
from ctxfs.errors.spelling import did_you_mean
from ctxfs.messages.tokens import CharsCounter
from ctxfs.text.jsontext import codec as json_codec

_KEPT_WHEN_CLEARED = 3
"""How many results ``clear`` keeps, as Anthropic's ``clear_tool_uses`` does by default."""

_OFF: Mapping[str, Any] = {"window": None, "pricing": None, "preview_above_tokens": None}
"""Settings of a ``History`` that replaces nothing."""

ARM_NAMES = (
    "none (nothing is replaced, only measured), default (ctxfs as it comes), whole (without previews of large "
    "results), exact:N (each tool keeps its last N results), clear:TOKENS (above this size all results but the last 3 "
    "are removed for good, as providers do; TOKENS as in 100k or 2500)"
)


@names_settings()
@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One arm.

    Args:
        name: names it in the results.
        settings: the settings of each ``History`` and ``Context`` of a session; those that are not named are defaults.
        each_tool_keeps: how many results of each tool stay, whatever tools there are; None: no such rule.
        clears_above_tokens: above this size, results but the last ``clear_keeps`` are removed for good; None: never.
            Such an arm works through the proxy only.

    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    each_tool_keeps: int | None = None
    clears_above_tokens: int | None = None
    clear_keeps: int = _KEPT_WHEN_CLEARED

    @property
    def can_read_back(self) -> bool:
        """Whether something is replaced that the model can read back."""
        return self.each_tool_keeps is not None or self.settings != _OFF


def arm_named(name: str) -> Arm:
    """The arm of that name; see ``ARM_NAMES``. Raises ``ConfigError`` if there is no such arm."""
    if name == "none":
        return Arm(name=name, settings=_OFF)
    if name == "default":
        return Arm(name=name)
    if name == "whole":
        return Arm(name=name, settings={"preview_above_tokens": None})
    if found := re.fullmatch(r"exact:([1-9]\d{0,5})", name):
        return Arm(name=name, settings=_OFF, each_tool_keeps=int(found[1]))
    if found := re.fullmatch(r"clear:(\d{1,9})(k?)", name):
        above = int(found[1]) * (1_000 if found[2] else 1)
        return Arm(name=name, settings=_OFF, clears_above_tokens=above)
    question = did_you_mean(name, ("none", "default", "whole")) or "."
    raise ConfigError(f"no arm {name!r}{question} The arms are {ARM_NAMES}")


def checked_arms(given: Sequence[Arm | str]) -> list[Arm]:
    """The arms, those that are named by name. The first one is what the others are compared with.

    Raises:
        ConfigError: fewer than two, two of the same name, or an unknown name.

    """
    arms = [arm_named(one) if isinstance(one, str) else one for one in given]
    names = [arm.name for arm in arms]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"two arms are named {repeated!r}: give each arm a name of its own")
    if len(arms) < 2:
        raise ConfigError("a comparison needs two arms or more, as in none,default")
    return arms


CLEARED = "[Old tool result content cleared]"
"""What the model sees instead; there is no way back."""

_COUNT = CharsCounter()


class Clearing:
    """Removes all results but the last ``keeps`` of a session each time its prompt passes ``above_tokens``.

    What was removed stays removed, so that the prompt cache breaks only when something more leaves.
    """

    def __init__(self, above_tokens: int, keeps: int) -> None:
        self._above = above_tokens
        self._keeps = keeps
        self._cleared = set[str]()

    @property
    def cleared(self) -> int:
        """How many results were removed so far."""
        return len(self._cleared)

    def edited(self, api: Api, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The body to send: itself, if nothing is removed. Raises ``TranscriptError`` if it is not a request."""
        view = VIEWS[api]
        results = [part for part in view.parts_of(body) if part.kind == "result"]
        edited = view.applied(body, self._edits(results))
        if _COUNT.count(json_codec.dumps_text(dict(edited))) <= self._above:
            return edited
        old = results[: -self._keeps] if self._keeps else results
        self._cleared |= {part.id for part in old}
        return view.applied(body, self._edits(results))

    def _edits(self, results: Any) -> dict[Any, Any]:
        return {part.place: CLEARED for part in results if part.id in self._cleared}
