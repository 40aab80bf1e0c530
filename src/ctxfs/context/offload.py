"""Which items are worth a file and a placeholder of their own.

Follows "Context FileSystem 上下文卸载功能", the table of default policies.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ctxfs.context.items import ContextItem, ItemType
from ctxfs.errors import ConfigError

__all__ = ["DEFAULT_THRESHOLD_TOKENS", "OffloadPolicy"]

DEFAULT_THRESHOLD_TOKENS = 2000

_TYPE_ENABLED: Mapping[str, bool] = MappingProxyType(
    {
        ItemType.TOOL_RESULT: True,
        ItemType.TOOL_INPUT: True,
        ItemType.USER_MESSAGE: True,
        ItemType.SKILL_PROMPT: True,
        ItemType.ASSISTANT_MESSAGE: False,
        ItemType.COMPACTION_SUMMARY: False,
        ItemType.SYSTEM_PROMPT: False,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadPolicy:
    """The per-type table that compaction asks.

    ``token_threshold``: an item of more tokens than this is worth a file of its own; 0 means every item that is not
    empty. ``type_enabled``: which types may be offloaded at all; types left out keep their default.
    ``type_thresholds``: a threshold for single types, in tokens, instead of ``token_threshold``.

    Raises ``ConfigError`` for an unknown type or a negative threshold.
    """

    token_threshold: int = DEFAULT_THRESHOLD_TOKENS
    type_enabled: Mapping[str, bool] = field(default_factory=dict)
    type_thresholds: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = set(ItemType)
        for name in (*self.type_enabled, *self.type_thresholds):
            if name not in known:
                raise ConfigError(f"unknown item type {name!r}: use one of {', '.join(sorted(known))}")
        for threshold in (self.token_threshold, *self.type_thresholds.values()):
            if threshold < 0:
                raise ConfigError(f"a threshold of {threshold} tokens: use 0 or more")
        object.__setattr__(self, "type_enabled", MappingProxyType({**_TYPE_ENABLED, **self.type_enabled}))
        object.__setattr__(self, "type_thresholds", MappingProxyType(dict(self.type_thresholds)))

    def should_offload(self, item: ContextItem) -> bool:
        """Is this item worth a file and a placeholder of its own? What has left already is not."""
        if item.destroyed or not self.type_enabled[item.item_type]:
            return False
        return item.content_tokens > self.type_thresholds.get(item.item_type, self.token_threshold)
