"""What a ledger takes in: what could be evicted, and what happened in the session, step by step."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ctxfs.economics.features import ToolClass

__all__ = ["Added", "Candidate", "ReadBack", "Replied", "Step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A tool result, or the arguments of a tool call, that a placeholder could stand for.

    ``id`` is unique in the session. ``tool`` is the tool's name; what the session learns of read-backs is kept per tool
    and class. ``paths``: the files it is about. Sizes in tokens; the placeholder's with its digest. ``pinned``: it
    leaves by another rule, never because it pays, and what that costs is not weighed. ``is_placeholder``: it is what a
    placeholder has more than the short one that would replace it; read-backs of such items are remembered apart.
    """

    id: str
    tool: str
    tool_class: ToolClass
    tokens: int
    placeholder_tokens: int
    paths: tuple[str, ...] = ()
    pinned: bool = False
    is_placeholder: bool = False


@dataclass(frozen=True, slots=True)
class Added:
    """The next request will carry these, in order: items that could leave, and tokens that stay."""

    parts: Iterable[Candidate | int]


@dataclass(frozen=True, slots=True)
class Replied:
    """The model has seen everything and replied with ``parts``.

    ``paths``: the files its calls name; ``changed_paths``: those of them that the calls change. ``cache_expires_at``:
    as in ``Ledger``.
    """

    parts: Iterable[Candidate | int]
    paths: Collection[str] = ()
    changed_paths: Collection[str] = ()
    cache_expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class ReadBack:
    """The model came back for something of an item that had left; an id that never left changes nothing."""

    item_id: str


Step = Added | Replied | ReadBack
