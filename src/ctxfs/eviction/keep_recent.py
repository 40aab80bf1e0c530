"""Keep-recent: of each tool that asks for it, only the last n results stay in the context.

Follows "Context FileSystem 上下文卸载功能", ephemeral tools. What is due leaves whatever its size, but never before the
model has seen it once, and never for a placeholder that is not smaller. A result that was evicted before it was sent,
for a long placeholder, counts as held: when it is due, a short one replaces that.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ctxfs.eviction.plan import Offload, Plan
from ctxfs.items import ContextItem

__all__ = ["EphemeralLedger"]


@dataclass(frozen=True, slots=True)
class _Held:
    """A result that is still in the context, at ``position`` in the order of arrival; ``offload`` None: it stays."""

    position: int
    offload: Offload | None


def _shrinking(held: _Held, item: ContextItem) -> _Held:
    """The same result, of which only a long placeholder is left."""
    assert held.offload is not None
    return replace(held, offload=Offload.of(item, held.offload.path, held.offload.reason))


class EphemeralLedger:
    """What each keep-recent tool holds, kept up in place: a result costs the same however many are held.

    ``keep_recent``: how many results a tool keeps; tools that are not in it keep all.
    """

    def __init__(self, keep_recent: Mapping[str, int]) -> None:
        self._keep_recent = dict(keep_recent)
        self._held: dict[str, list[_Held]] = {tool: [] for tool in keep_recent}
        self._seen = 0

    def entered(self, item: ContextItem, position: int, path: str) -> None:
        """Take in a result that stands at ``position`` and would go to ``path``; any other item changes nothing."""
        tool = item.tool_name
        if tool is None or tool not in self._held or (item.destroyed and not item.can_shrink):
            return
        held, keep = self._held[tool], self._keep_recent[tool]
        can_leave = item.placeholder is not None
        held.append(_Held(position, Offload.of(item, path, f"{tool} keeps its last {keep}") if can_leave else None))
        if len(held) > keep and held[-keep - 1].offload is None:
            del held[-keep - 1]  # beyond the last n, and it cannot shrink: it is not looked at again

    def seen_up_to(self, position: int) -> None:
        """The model has replied to everything before ``position``."""
        self._seen = position

    def left(self, item_ids: Collection[str], shrinkable: Mapping[str, ContextItem] = MappingProxyType({})) -> None:
        """Forget results that left the context, but for those whose placeholder is still ``shrinkable``, by id."""
        gone = frozenset(item_ids)
        for held in self._held.values():
            held[:] = [
                h if h.offload is None or (item := shrinkable.get(h.offload.item_id)) is None else _shrinking(h, item)
                for h in held
                if h.offload is None or h.offload.item_id not in gone or h.offload.item_id in shrinkable
            ]

    def plan(self) -> Plan:
        """Every result that is due now, oldest first."""
        due = [
            (h.position, h.offload)
            for tool, held in self._held.items()
            for h in held[: -self._keep_recent[tool]]
            if h.offload is not None and h.position < self._seen
        ]
        offloads = tuple(offload for _, offload in sorted(due, key=lambda h: h[0]))
        return Plan(offloads=offloads, first_changed=offloads[0].item_id if offloads else None)
