"""Keep-recent: of each tool that asks for it, only the last n results stay in the context.

Follows "Context FileSystem 上下文卸载功能", ephemeral tools. What is due leaves whatever its size, but never before the
model has seen it once, and never for a placeholder that is not smaller.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ctxfs.context.items import ContextItem
from ctxfs.context.plan import Offload, Plan

__all__ = ["EphemeralLedger"]


@dataclass(frozen=True, slots=True)
class _Held:
    """A result that is still in the context, at ``position`` in the order of arrival."""

    position: int
    offload: Offload | None


@dataclass(frozen=True, slots=True)
class EphemeralLedger:
    """What each keep-recent tool holds, kept up as items come and go; every transition costs what changed.

    ``keep_recent``: how many results a tool keeps; tools that are not in it keep all.
    ``seen``: results before this position have been in front of the model.
    """

    keep_recent: Mapping[str, int]
    held: Mapping[str, tuple[_Held, ...]] = field(default_factory=lambda: MappingProxyType({}))
    seen: int = 0

    def added(self, item: ContextItem, position: int, path: str) -> "EphemeralLedger":
        """Take in a result that stands at ``position`` and would go to ``path``; any other item changes nothing."""
        tool = item.tool_name
        keep = self.keep_recent.get(tool) if tool is not None else None
        if tool is None or keep is None or item.destroyed:
            return self
        can_leave = item.placeholder is not None
        offload = Offload.of(item, path, f"{tool} keeps its last {keep}") if can_leave else None
        held = (*self.held.get(tool, ()), _Held(position, offload))
        # What is beyond the last n and cannot shrink stays for good, and is not looked at again.
        beyond = tuple(h for h in held[:-keep] if h.offload is not None)
        return replace(self, held=MappingProxyType({**self.held, tool: beyond + held[-keep:]}))

    def seen_up_to(self, position: int) -> "EphemeralLedger":
        """The model has replied to everything before ``position``."""
        return replace(self, seen=position)

    def left(self, item_ids: Collection[str]) -> "EphemeralLedger":
        """Forget results that left the context."""
        gone = frozenset(item_ids)
        kept = {
            tool: tuple(h for h in held if h.offload is None or h.offload.item_id not in gone)
            for tool, held in self.held.items()
        }
        return replace(self, held=MappingProxyType(kept))

    def plan(self) -> Plan:
        """Every result that is due now, oldest first."""
        due = [
            h
            for tool, held in self.held.items()
            for h in held[: -self.keep_recent[tool]]
            if h.offload is not None and h.position < self.seen
        ]
        due.sort(key=lambda h: h.position)
        offloads = tuple(h.offload for h in due if h.offload is not None)
        return Plan(offloads=offloads, first_changed=offloads[0].item_id if offloads else None)
