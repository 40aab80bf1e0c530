"""What may be evicted from the context, and what is worth a file and a placeholder of its own.

Follows "Context FileSystem 上下文卸载功能", the table of default policies.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings, require_bool, require_int
from ctxfs.eviction.placeholder.attach import DEFAULT_DIGEST_TOKENS
from ctxfs.messages.items import ContextItem, ItemType

DEFAULT_THRESHOLD_TOKENS = 2000
"""What compaction gives a file of its own when nobody said otherwise."""

_NEVER: Mapping[ItemType, str] = MappingProxyType(
    {
        ItemType.ASSISTANT_MESSAGE: "a reply is evicted together with the results of its calls, into an archive: give "
        "it a rule, SelectiveCompaction(rules={ItemType.ASSISTANT_MESSAGE: 2})",
        ItemType.COMPACTION_SUMMARY: "its content was stored when it was made",
        ItemType.SYSTEM_PROMPT: "the model needs it in every call",
    }
)
"""The types that never get files of their own, and why."""

_TYPE_ENABLED: Mapping[ItemType, bool] = MappingProxyType({kind: kind not in _NEVER for kind in ItemType})


@names_settings({"threshold": "it is token_threshold, or type_thresholds for some types"})
@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadPolicy:
    """Which items may be evicted. Every rule but ``ephemeral=n`` obeys it.

    ``token_threshold``: items of at most this many tokens get no file of their own; 0 means that every item that is not
    empty may get one. None, the default: the price decides, and compaction gives files to items of over 2,000 tokens.
    ``type_enabled``: which types may be evicted at all; types that are not named keep their default.
    ``type_thresholds``: thresholds for single types, in tokens, instead of ``token_threshold``. ``digest_tokens``: the
    longest digest in a placeholder: content of up to 3,200 tokens gets 200 at most, larger content a sixteenth of its
    tokens; 0 means no digests, also for ``ephemeral=n``.
    ``repeats``: True sends one line instead of a result that equals one which the model has seen and still sees, and a
    unified diff instead of one that the same call returned before in another version, if the diff is at most half as
    long; the result is stored first. False, the default, sends it whole.

    When the window is full, whole old exchanges go into an archive whatever this says. If the rest still does not fit,
    thresholds no longer count; types that ``type_enabled`` forbids stay even then.

    Raises ``ConfigError`` for an unknown type, a type that is never evicted alone, or an invalid threshold.
    """

    token_threshold: int | None = None
    type_enabled: Mapping[str, bool] = field(default_factory=dict)
    type_thresholds: Mapping[str, int] = field(default_factory=dict)
    digest_tokens: int = DEFAULT_DIGEST_TOKENS
    repeats: bool = False

    def __post_init__(self) -> None:
        if self.token_threshold is not None:
            require_int("token_threshold", self.token_threshold, at_least=0)
        require_int("digest_tokens", self.digest_tokens, at_least=0)
        for setting in ("type_enabled", "type_thresholds"):
            if not isinstance(getattr(self, setting), Mapping):
                raise ConfigError(f"{setting} is {getattr(self, setting)!r}: use a mapping from types of items")
            _check_types(setting, getattr(self, setting))
        for name, enabled in self.type_enabled.items():
            require_bool(f"type_enabled[{str(name)!r}]", enabled)
        for name, threshold in self.type_thresholds.items():
            require_int(f"type_thresholds[{str(name)!r}]", threshold, at_least=0)
        for name in self.type_thresholds:
            if self.type_enabled.get(name) is False:
                raise ConfigError(
                    f"type_thresholds[{str(name)!r}] has no effect: type_enabled says that the type stays"
                )
        require_bool("repeats", self.repeats)
        if self.repeats and self.type_enabled.get(ItemType.TOOL_RESULT) is False:
            raise ConfigError("repeats has no effect: type_enabled says that tool results stay")
        object.__setattr__(self, "type_enabled", MappingProxyType({**_TYPE_ENABLED, **self.type_enabled}))
        object.__setattr__(self, "type_thresholds", MappingProxyType(dict(self.type_thresholds)))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], *, digest_tokens: int) -> "OffloadPolicy":
        """The policy that ``to_mapping`` returned. Raises ``ConfigError`` if another version wrote it."""
        try:
            return cls(**values, digest_tokens=digest_tokens)
        except TypeError as error:
            raise ConfigError(f"a policy that cannot be read: {error}") from error

    def to_mapping(self) -> dict[str, Any]:
        """What may be evicted, as JSON; how long digests are is not in it."""
        return {
            "token_threshold": self.token_threshold,
            "type_enabled": dict(self.type_enabled),
            "type_thresholds": dict(self.type_thresholds),
            "repeats": self.repeats,
        }

    def should_offload(self, item: ContextItem) -> bool:
        """Whether compaction gives this item a file and a placeholder of its own; False if it was evicted already."""
        if item.destroyed or not self.type_enabled[item.item_type]:
            return False
        threshold = self.threshold(item.item_type)
        return item.content_tokens > (DEFAULT_THRESHOLD_TOKENS if threshold is None else threshold)

    def allows(self, kind: ItemType, tokens: int) -> bool:
        """Whether content of this type and size may be evicted eagerly (before it is sent), or by price."""
        threshold = self.threshold(kind)
        return self.type_enabled[kind] and (threshold is None or tokens > threshold)

    def threshold(self, kind: ItemType) -> int | None:
        """Items of this type get no file of their own up to so many tokens; None: the price decides."""
        return self.type_thresholds.get(kind, self.token_threshold)


def _check_types(setting: str, table: Mapping[str, object]) -> None:
    known = set(ItemType)
    for name, value in table.items():
        if name not in known:
            raise ConfigError(f"{setting}: unknown item type {name!r}: use one of {', '.join(sorted(known))}")
        if ItemType(name) in _NEVER and value is not False:
            raise ConfigError(f"{setting}: {ItemType(name)} is never evicted alone: {_NEVER[ItemType(name)]}")
