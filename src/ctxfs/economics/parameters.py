"""The few numbers of the economic planner, each with what it stands for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from ctxfs.checks import names_settings, require_bool, require_number
from ctxfs.economics.features import ToolClass
from ctxfs.errors import ConfigError

__all__ = ["DEFAULT_NEEDS", "EvictionParameters"]

DEFAULT_NEEDS: Mapping[ToolClass, float] = MappingProxyType(
    {
        ToolClass.FILE: 0.1,
        ToolClass.SEARCH: 0.015,
        ToolClass.OTHER: 0.02,
        ToolClass.WHOLE: 0.25,
        ToolClass.EDIT: 0.12,
    }
)
"""Read-backs per call to expect of a new item of 500 tokens, counted in recorded sessions."""

DEFAULT_SEEN_NEEDS: Mapping[ToolClass, float] = MappingProxyType({ToolClass.SEARCH: 0.15, ToolClass.OTHER: 0.08})
"""Read-backs to expect of a result of one page that the model saw once, counted in recorded sessions."""

_GROWTH = MappingProxyType(dict.fromkeys(ToolClass, 0.4) | {ToolClass.FILE: 1.0, ToolClass.SEARCH: 0.1})
"""How they grow with its pages, as an exponent: a file is read page by page, the others are looked up."""

_NEEDS_UNIT_TOKENS = 500

_TABLES = {
    "needs_by_class": DEFAULT_NEEDS,
    "seen_needs_by_class": DEFAULT_SEEN_NEEDS,
}


def _check_classes(name: str, table: object) -> None:
    if not isinstance(table, Mapping) or not frozenset(ToolClass).issuperset(table):
        raise ConfigError(f"{name} is {table!r}: use a number for each of {', '.join(ToolClass)}")


@names_settings()
@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionParameters:
    """How the planner weighs what it knows. Every rule of it can be switched off.

    needs_by_class: the read-backs that the next call is expected to want of a new item of 500 tokens.
    size_exponent: how that grows with size; 0 means not at all, 1 in proportion.
    age_exponent: how fast it falls with age in calls (age to the minus this); above 1.
    activity_factor: what is left of an item's age when a call names one of its files; 1 means all of it.
    changed_factor: it is multiplied by this once a file of the item was changed; 1 means no difference.
    caution: how much a read-back counts against a saving; 1 is its price. Where a cached token costs less than a tenth
        of an uncached one, it counts less, but no less than its price.
    page_tokens: what a read-back brings into the context.
    read_back_output_tokens: what the model writes to ask for it.
    horizon_calls: the calls still expected at the first one; ``horizon_growth``: how many more with each call made.
    rent_share: a batch waits until the cache reads that it could have saved reach this share of its rewrite; 0 means it
        goes as soon as it pays by the horizon.
    company_factor: an item joins a batch early when its risk is up to this many times its rent; 1 means never early.
    max_loss: a batch may cost at most this share of what the session would have cost so far without eviction, and what
        was saved so far; so a session that ends at once after it has lost no more than that. The share
        grows, up to twice, with how often the reads saved in an eighth of the calls still expected pay for the rewrite.
    seen_tokens: a result of this many tokens may be evicted when the model has seen it once and only the last reply
        follows it, so that nothing is rewritten for it; 0 means that it stays until a batch takes it.
    seen_needs_by_class: the read-backs to expect in all of such a result of one page. A class that is missing, as files
        are, stays.
    seen_caution: how much these count against what staying costs; 1 is their price. It counts less where
        ``caution`` does.
    least_cost: what a session is expected to cost in all at least, in uncached input tokens, where writing a token
        costs 1.25 of them; in proportion where it costs more or less. The share ``max_loss`` of what it is expected to
        cost, and what was saved so far, must cover the read-backs of results that were seen once.
    memory_weight: how many items of a tool must have been evicted for their history to count as much as
        ``needs_by_class``; 0 means no memory.
    tool_inputs: whether the arguments of calls may be evicted.
    min_saved_tokens: no eviction saves fewer tokens than this.
    short_placeholders: a placeholder is one line, with a short name that the tools of ctxfs find; False: three lines,
        with the path. In a session with the layout "text", whose files any tool can read, it has the path anyway.
    digest_share, digest_identifiers: a placeholder lists identifiers, in at most this share of the content's tokens and
        at most this number of them; 0 means none. The bounds on every digest hold as well.

    Raises:
        ConfigError: a value that cannot work.
    """

    needs_by_class: Mapping[ToolClass, float] = field(default_factory=lambda: DEFAULT_NEEDS)
    size_exponent: float = 0.75
    age_exponent: float = 1.4
    activity_factor: float = 0.3
    changed_factor: float = 0.4
    caution: float = 6.75
    page_tokens: int = 1_000
    read_back_output_tokens: int = 120
    horizon_calls: float = 10.0
    horizon_growth: float = 1.65
    rent_share: float = 0.95
    company_factor: float = 4.0
    max_loss: float = 0.03
    seen_tokens: int = 250
    seen_needs_by_class: Mapping[ToolClass, float] = field(default_factory=lambda: DEFAULT_SEEN_NEEDS)
    seen_caution: float = 2.5
    least_cost: float = 30_000
    memory_weight: float = 7.0
    tool_inputs: bool = True
    min_saved_tokens: int = 10
    short_placeholders: bool = True
    digest_share: float = 0.2
    digest_identifiers: int = 300

    def __post_init__(self) -> None:
        for table in _TABLES:
            _check_classes(table, getattr(self, table))
        if missing := [c for c in ToolClass if c not in self.needs_by_class]:
            raise ConfigError(f"needs_by_class has no number for {', '.join(missing)}: give each class one")
        numbers = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _TABLES}
        needs = {f"{table}.{c}": n for table in _TABLES for c, n in getattr(self, table).items()}
        for name, value in (numbers | needs).items():
            if name in {"tool_inputs", "short_placeholders"}:
                require_bool(name, value)
            else:
                require_number(name, value, at_least=0)
        if not self.age_exponent > 1:
            raise ConfigError(f"age_exponent is {self.age_exponent}: use more than 1")
        if not self.company_factor >= 1:
            raise ConfigError(f"company_factor is {self.company_factor}: use 1 or more")

    def needs(self, tool_class: ToolClass, tokens: int) -> float:
        """The read-backs per call to expect of an item at the age of one call."""
        size = tokens / _NEEDS_UNIT_TOKENS
        return float(self.needs_by_class[tool_class] * size**self.size_exponent)

    def seen_needs(self, tool_class: ToolClass, tokens: int) -> float:
        """The read-backs to expect in all of a result that is evicted once the model has seen it."""
        pages = tokens / max(1, self.page_tokens)
        return float(self.seen_needs_by_class[tool_class] * pages ** _GROWTH[tool_class])

    def pages(self, tokens: int) -> float:
        """How many read-backs it takes to see all of so many tokens."""
        return max(1.0, tokens / max(1, self.page_tokens))

    def age_of(self, risk_to_rent: float) -> float:
        """The age in calls at which the risk is as low as the rent; at one call it is ``risk_to_rent`` times that."""
        return float(risk_to_rent ** (1 / self.age_exponent))

    def could_leave(self, tokens: int, placeholder_tokens: int) -> bool:
        """Whether a placeholder would save enough to be worth it."""
        return tokens - placeholder_tokens >= max(1, self.min_saved_tokens)

    def horizon(self, calls: int) -> float:
        """How many more calls to expect after ``calls``: sessions that lasted go on."""
        return self.horizon_calls + self.horizon_growth * calls

    def to_mapping(self) -> dict[str, Any]:
        """All parameters as ``from_mapping`` reads them."""
        tables = {
            name: {tool_class.value: need for tool_class, need in getattr(self, name).items()} for name in _TABLES
        }
        return {f.name: getattr(self, f.name) for f in fields(self)} | tables

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "EvictionParameters":
        """Read parameters from a TOML table; what is missing keeps its default.

        Raises:
            ConfigError: an unknown name, or a value that cannot work.
        """
        known = {f.name: f for f in fields(cls)}
        if unknown := sorted(values.keys() - known.keys()):
            raise ConfigError(f"unknown parameters {', '.join(unknown)}: use {', '.join(known)}")
        given = dict(values)
        try:
            for name in _TABLES.keys() & given.keys():
                table = {ToolClass(one): float(need) for one, need in given[name].items()}
                given[name] = MappingProxyType({**_TABLES[name], **table})
            return cls(**given)
        except (TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"eviction parameters: {error}") from error
