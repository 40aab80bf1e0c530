"""The kinds of item, and the planner's numbers that a user can set: what each means, its unit, where it comes from."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings, require_number

_READING = (
    "read",
    "read_file",
    "open",
    "view",
    "view_file",
    "cat",
    "nl",
    "sed",
    "head",
    "tail",
    "less",
    "bat",
    "git show",
    "task",
    "agent",
)
_COMMAND_KEYS = ("command", "cmd")
_COMMAND_ENDS = re.compile(r"&&|\|\||;|\n")
_COMMAND_CHARS = 1_000
_SILENT = ("cd", "echo", "export", "set", "source", "true")


class ItemKind(StrEnum):
    """Kinds of items that differ in how often they are read back."""

    FILE = "file"
    """The result of reading a file, and any page that was read back."""
    RESULT = "result"
    """Any other result: of a command, a search, an API."""
    ARGUMENTS = "arguments"
    """What the model wrote to call a tool."""


def kind_of_result(name: str) -> ItemKind:
    """The kind of a result, by the name of its tool, or of the program that a shell ran."""
    return ItemKind.FILE if name.lower() in _READING else ItemKind.RESULT


def program_of(arguments: Mapping[str, Any]) -> str:
    """The program whose output a call of a shell shows: the first word of its last command; "" for any other call.

    ``git show`` prints files as they were, so it is told apart from ``git``.
    ``cd``, assignments and output that is redirected to a file show nothing. The text after ``<<`` is data.
    """
    command = next((found for found in map(arguments.get, _COMMAND_KEYS) if found), "")
    if not command:
        return ""
    if isinstance(command, list):
        command = command[-1] if command else ""  # as in ["bash", "-lc", "cat a.py"]
    program = ""
    for line in _COMMAND_ENDS.split(str(command)[:_COMMAND_CHARS].partition("<<")[0]):
        words = [word for word in line.split("|")[0].split() if "=" not in word]
        if words and words[0] not in _SILENT and ">" not in line:
            program = "git show" if words[:2] == ["git", "show"] else words[0].rpartition("/")[2]
    return program


COUNTED_READ_BACKS: Mapping[ItemKind, float] = MappingProxyType(
    {ItemKind.FILE: 0.14, ItemKind.RESULT: 0.04, ItemKind.ARGUMENTS: 0.29}
)
"""Counted on recorded sessions by ``scripts/fit_planner.py``, which prints these numbers and those of each fold."""

LEAST_SAVED_TOKENS: Final = 10
"""A placeholder that saves fewer tokens is not worth its line."""

_SIZE_UNIT_TOKENS: Final = 1_000

_READ_BACKS = "read_backs (counted by `ctxfs replay --tune`)"
_BOUND = "max_loss and cover"
_NOTHING = "nothing: its rule is gone"
_REPLACEMENTS: Final = (
    dict.fromkeys(("needs_by_class", "arrival_needs_by_class", "seen_needs_by_class", "memory_weight"), _READ_BACKS)
    | dict.fromkeys(("arrival_caution", "seen_caution", "caution"), "read_back_weight")
    | dict.fromkeys(("least_cost", "rent_share", "company_factor"), _BOUND)
    | dict.fromkeys(("age_exponent", "activity_factor", "changed_factor", "arrival_memory_weight"), _NOTHING)
    | dict.fromkeys(("horizon_calls", "horizon_growth", "seen_tokens", "min_saved_tokens"), _NOTHING)
    | dict.fromkeys(("page_tokens", "read_back_output_tokens"), "nothing: they are the reading tool's own")
    | dict.fromkeys(("digest_share", "digest_identifiers"), "digest_tokens of OffloadPolicy")
    | {"size_exponent": "by_size", "arrival_tokens": "preview_above_tokens of the context"}
    | {"tool_inputs": "OffloadPolicy(type_thresholds={'tool_input': 1_000_000}): only a full window goes past it"}
    | {"short_placeholders": "the layout: with 'text', whose files any tool reads, placeholders have paths"}
)
"""What replaces a number that is no longer one."""

_REPLACED: Final = {name: f"it is replaced by {instead}" for name, instead in _REPLACEMENTS.items()}


@names_settings(_REPLACED)
@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionParameters:
    """How the planner weighs what it knows.

    Args:
        read_backs: by kind, the read-backs that the next call asks of an item of 1,000 tokens that the model has just
            seen. They fall with the item's age in calls, as 1 / age. Counted on recordings: `ctxfs replay --tune`
            counts them on yours.
        by_size: how they grow with the item's size, as an exponent; 0: not at all, 1: in proportion. Counted as well.
        read_back_weight: how many times its price a read-back counts. 1: its price; a user who does not want to wait
            for read-backs takes more, and pays more.
        max_loss: no session may cost more than this share above what it has cost so far without eviction, the
            read-backs to expect included; 0: nothing may leave before it has paid for itself.
        cover: how many standard deviations of the read-backs to expect must be covered as well; 0: none.

    Raises:
        ConfigError: a value that cannot work.
        TypeError: a name that is not here, or not any more: the error says what was meant, or what replaces it.
    """

    read_backs: Mapping[ItemKind, float] = field(default_factory=lambda: COUNTED_READ_BACKS)
    by_size: float = 0.7
    read_back_weight: float = 1.0
    max_loss: float = 0.03
    cover: float = 1.0

    def __post_init__(self) -> None:
        for name in ("by_size", "read_back_weight", "max_loss", "cover"):
            require_number(name, getattr(self, name), at_least=0)
        given: object = self.read_backs
        if not isinstance(given, Mapping) or frozenset(ItemKind) != frozenset(given):
            raise ConfigError(f"read_backs is {self.read_backs!r}: use a number for each of {', '.join(ItemKind)}")
        for kind, rate in self.read_backs.items():
            require_number(f"read_backs.{kind}", rate, at_least=0)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_mapping, (self.to_mapping(),)  # a read-only mapping cannot be pickled

    def hazard(self, kind: ItemKind, tokens: int) -> float:
        """The read-backs that the next call asks of such an item, were it new."""
        return float(self.read_backs[kind] * (tokens / _SIZE_UNIT_TOKENS) ** self.by_size)

    def to_mapping(self) -> dict[str, Any]:
        """All parameters as ``from_mapping`` reads them."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return plain | {"read_backs": {kind.value: rate for kind, rate in self.read_backs.items()}}

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "EvictionParameters":
        """Read parameters from a TOML table or a journal; what is missing keeps its default.

        Raises:
            ConfigError: an unknown name, or a value that cannot work.
        """
        given = dict(values)
        try:
            if "read_backs" in given:
                counted = {ItemKind(kind): float(rate) for kind, rate in given["read_backs"].items()}
                given["read_backs"] = MappingProxyType({**COUNTED_READ_BACKS, **counted})
            return cls(**given)
        except (TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"eviction parameters: {error}") from error
