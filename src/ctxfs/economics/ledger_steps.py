"""What a ledger takes in: what could be evicted, and what happened in the session, step by step."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ctxfs.economics.features import ToolClass
from ctxfs.llm.base import Usage

__all__ = ["Added", "Billed", "Candidate", "Left", "ReadBack", "Replied", "Step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A tool result, or the arguments of a tool call, that a placeholder could stand for.

    ``id`` is unique in the session. ``tool`` is the tool's name; what the session learns of read-backs is kept per tool
    and class. ``paths``: the files it is about. Sizes in tokens; the placeholder's with its digest. ``pinned``: only
    another rule may evict it, and what that costs is not counted. ``is_placeholder``: it is the part of a long
    placeholder that a short one would save; read-backs of such items are counted separately.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """What a request was billed, in tokens as the provider counts them.

    ``read``: those of the prompt that the cache held; ``held``: those that it holds since then. None: the provider
    caches automatically, and does not say what.
    """

    prompt: int
    read: int
    held: int | None = None

    @classmethod
    def of(cls, usage: Usage, *, charges_writes: bool) -> "Billed":
        """``usage``; a provider that charges for what it writes to the cache says what it wrote."""
        read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
        held = read + written if charges_writes or written else None
        return cls(prompt=usage.total_input_tokens, read=read, held=held)


@dataclass(frozen=True, slots=True)
class Replied:
    """The model has seen everything and replied with ``parts``.

    ``paths``: the files its calls name; ``changed_paths``: those of them that the calls change. ``cache_expires_at``:
    as in ``Ledger``. ``billed``: what the request was billed; None: not known, so all of it is taken to be cached.
    """

    parts: Iterable[Candidate | int]
    paths: Collection[str] = ()
    changed_paths: Collection[str] = ()
    cache_expires_at: float | None = None
    billed: Billed | None = None


@dataclass(frozen=True, slots=True)
class ReadBack:
    """The next request will carry ``parts``, which the model read back of an evicted item.

    If no item of this id was evicted, they are parts like any other.
    """

    item_id: str
    parts: Iterable[Candidate | int] = ()


@dataclass(frozen=True, slots=True)
class Left:
    """These items were replaced by their placeholders; ids that are not held change nothing.

    ``cold``: the cache has expired, so that nothing is rewritten for it. ``longer``: what these placeholders have more
    than those that may replace them later; the next request will carry it.
    """

    item_ids: Collection[str]
    cold: bool = False
    longer: Iterable[Candidate | int] = ()


Step = Added | Replied | ReadBack | Left
