"""Keep-recent: only the last n results of each tool that asks for it stay in the context.

Follows "Context FileSystem 上下文卸载功能", ephemeral tools. A due result is evicted whatever its size, but never
before the model has seen it once, and never if its placeholder would not be smaller. A result that was evicted before
it was sent, with a long placeholder, counts as held: when it is due, a short placeholder replaces the long one.
Restored results stay for a while (``Holds``). What one of the last n refers to, since it is sent as a line or a diff,
stays with it: the last n results can be read in the context.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ctxfs.errors.spelling import nearest
from ctxfs.eviction.candidates import Candidates, Holds
from ctxfs.eviction.offload_plan import Plan
from ctxfs.messages.items import ContextItem
from ctxfs.messages.rates import Rates

_SURE_REWRITES: Final = 10
"""Before so many rewrites a figure says little of the session: each result that is due costs one at first."""

_COSTLY: Final = 1.1
"""Above this multiple of never evicting, a user is told."""


def keep_recent_reason(tool: str, count: int) -> str:
    """Why a result of ``tool``, of which the last ``count`` stay, is evicted or stays: for people, with the setting."""
    return f"{tool} keeps its last {count} (setting: keep_recent)"


def unknown_tools(setting: str, named: Iterable[str], tools: Collection[str]) -> str | None:
    """What to log of the tools that a setting names and requests do not have; None: ``tools`` has them all.

    It is not an error, since a later request, or another agent's, may have the tool.
    """
    unknown = [name for name in sorted(named) if name not in tools]
    if not unknown:
        return None
    said = ", ".join(f"{name!r}{_meant(name, tools)}" for name in unknown)
    return f"{setting} names tools that the requests do not have so far, so it does nothing for them: {said}"


def _meant(name: str, tools: Collection[str]) -> str:
    likely = nearest(name, tools)
    return "" if likely is None else f" (did you mean {likely!r}?)"


@dataclass(slots=True)
class _Held:
    """A result that is still in the context, at ``position`` in the order of arrival.

    ``refers_to``: the id of the result that its line or diff names; "": it was sent in another way.
    """

    position: int
    refers_to: str = ""


@dataclass(slots=True)
class KeepRecentCost:
    """What keep-recent has cost a session so far, beside never evicting, in units of one uncached input token.

    With a prompt cache each result that is due costs a rewrite of what stands behind it. ``extra``: what rewrites cost
    more than reading the same from the cache. ``saved``: what calls did not read since.
    """

    rewrites: int = 0
    rewritten_tokens: int = 0
    gone_tokens: int = 0
    extra: float = 0.0
    saved: float = 0.0

    def evicted(self, saved_tokens: int, rewritten_tokens: int, rates: Rates) -> None:
        """Results left together, and so many tokens behind them are written again."""
        self.rewrites += 1
        self.rewritten_tokens += rewritten_tokens
        self.gone_tokens += saved_tokens
        self.extra += (rates.write - rates.read) * rewritten_tokens

    def called(self, rates: Rates) -> None:
        """The model was called, without what left before."""
        self.saved += rates.read * self.gone_tokens

    def warning(self, spent: float) -> str | None:
        """What to tell the user; None: nothing. ``spent``: what the session cost without these rewrites."""
        if self.rewrites < _SURE_REWRITES or spent + self.extra <= _COSTLY * (spent + self.saved):
            return None
        times = (spent + self.extra) / (spent + self.saved)
        return (
            f"keep_recent (ephemeral=n) has cost {times:.1f} times what never evicting would have cost so far: "
            f"{self.rewrites} times a result left, and {self.rewritten_tokens:,} tokens behind them had to be cached "
            "again. With a prompt cache, leave it out: then the price decides what is evicted, and when"
        )


class EphemeralLedger:
    """The results that each keep-recent tool holds, updated in place: a result costs the same however many are held.

    ``keep_recent``: how many results a tool keeps; tools that are not in it keep all. ``candidates``: how the items of
    the context can be evicted; ``holds``: items that stay because they were restored. Their owner updates both.
    """

    def __init__(self, keep_recent: Mapping[str, int], candidates: Candidates, holds: Holds) -> None:
        self._keep_recent = dict(keep_recent)
        self._candidates = candidates
        self._holds = holds
        self._held: dict[str, dict[str, _Held]] = {tool: {} for tool in keep_recent}  # by id, oldest first
        self._seen = 0

    def entered(self, item: ContextItem, position: int) -> None:
        """Take in a result at ``position``; other items change nothing.

        One that the model sees as a preview is one of the last n, too, although it cannot leave.
        """
        held = self._held.get(item.tool_name or "")
        if held is not None:
            held[item.id] = _Held(position)

    def restored(self, item: ContextItem, position: int) -> None:
        """Take in a result whose content is back at ``position``, its old one; other items change nothing."""
        held = self._held.get(item.tool_name or "")
        if held is None:
            return
        held[item.id] = _Held(position)
        in_order = sorted(held, key=lambda one: held[one].position)
        self._held[item.tool_name or ""] = {one: held[one] for one in in_order}

    def refers(self, item_id: str, to: str) -> None:
        """Note that a result is sent as a line or a diff that names ``to``, which stays while it is one of the last n.

        An item that is not held changes nothing.
        """
        for held in self._held.values():
            if item_id in held:
                held[item_id].refers_to = to

    def seen_up_to(self, position: int) -> None:
        """Note that the model has replied to everything before ``position``."""
        self._seen = position

    def left(self, item_ids: Collection[str], shrinkable: Collection[str] = ()) -> None:
        """Forget results that left the context, but for those whose placeholder is still ``shrinkable``.

        One that the model has not seen yet is sent as a preview: it stays one of the last n.
        """
        gone = frozenset(item_ids) - frozenset(shrinkable)
        for held in self._held.values():
            for item_id in gone & held.keys():
                if held[item_id].position < self._seen:
                    del held[item_id]

    def due(self) -> list[tuple[int, str, str]]:
        """Every result that is due now, oldest first: its position, its id, and why."""
        found: list[tuple[int, str, str]] = []
        for tool, held in self._held.items():
            reason = keep_recent_reason(tool, self._keep_recent[tool])
            for item_id in list(held)[: -self._keep_recent[tool]]:
                if not self._candidates.can_leave(item_id):
                    del held[item_id]  # not one of the last n, it would be looked at again before each request
                elif held[item_id].position < self._seen and item_id not in self._holds:
                    found.append((held[item_id].position, item_id, reason))
        if not found:
            return []
        referred: set[str] = set()
        for tool, held in self._held.items():
            referred |= {one.refers_to for one in islice(reversed(held.values()), self._keep_recent[tool])}
        return sorted(one for one in found if one[1] not in referred)

    def plan(self) -> Plan:
        """How everything that is due is evicted."""
        due = self.due()
        return Plan(offloads=tuple(self._candidates.offload(item_id, reason) for _, item_id, reason in due))
