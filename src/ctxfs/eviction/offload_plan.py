"""A plan: what will be evicted from the context, decided as a value before anything is done."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Block, Content
from ctxfs.messages.tokens import TokenCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """Replace an item's content by ``placeholder``, once it is durable in ``path`` (absolute). Sizes in tokens.

    ``content``: the new content of the message, if that is more than the placeholder: the calls of a reply stay.
    """

    item_id: str
    path: str
    placeholder: str
    tokens_before: int
    tokens_after: int
    reason: str
    content: Content | None = None

    @classmethod
    def of(cls, item: ContextItem, path: str, reason: str) -> "Offload":
        """The offload that replaces ``item`` by the placeholder that it has."""
        assert item.placeholder is not None
        return cls(
            item_id=item.id,
            path=path,
            placeholder=item.placeholder,
            tokens_before=item.token_count,
            tokens_after=item.placeholder_tokens,
            reason=reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim:
    """Replace the arguments of one call in a reply by ``arguments``, once ``stored`` is durable. Sizes in tokens.

    ``block`` is the call's place in the reply's content. ``stored`` is an item of its own, which is never in the
    context: the large arguments, as text blocks that name their ``argument``; its file is ``path`` (absolute).
    """

    item_id: str
    block: int
    arguments: Mapping[str, Any]
    stored: ContextItem
    path: str
    tokens_before: int
    tokens_after: int
    reason: str


def stored_arguments(item_id: str, tokens: int, *, name: str = "", blocks: tuple[Block, ...] = ()) -> ContextItem:
    """The item ``stored`` of a trim. One that was carried out needs no name and no content."""
    return ContextItem(
        id=item_id,
        item_type=ItemType.TOOL_INPUT,
        message=AssistantMessage(blocks),
        name=name,
        token_count=tokens,
        content_tokens=tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """Move whole items into one file, and leave one placeholder for all of them. Sizes in tokens.

    ``item_id``, ``name`` and ``path`` are those of the new item that holds the placeholder. It takes the place of the
    last of ``item_ids``, or of the first one if a reply would otherwise come first of all.
    """

    item_id: str
    name: str
    path: str
    item_ids: tuple[str, ...]
    placeholder: str
    tokens_before: int
    tokens_after: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is evicted, oldest first; empty (falsy) if nothing is due.

    ``archive_first``: whether the first item of the archive precedes the items of ``offloads`` in the context.
    """

    offloads: tuple[Offload | Trim, ...] = ()
    archive: Archive | None = None
    archive_first: bool = True

    def __bool__(self) -> bool:
        return bool(self.offloads) or self.archive is not None

    @property
    def first_changed(self) -> str | None:
        """The oldest item that changes, None if none.

        Everything before it serialises to the same bytes as before, so that the prompt cache is valid up to there.
        """
        if self.archive is not None and (self.archive_first or not self.offloads):
            return self.archive.item_ids[0]
        return self.offloads[0].item_id if self.offloads else None

    @property
    def tokens_freed(self) -> int:
        """How much smaller the context gets, in tokens."""
        freed = sum(o.tokens_before - o.tokens_after for o in self.offloads)
        return freed + (self.archive.tokens_before - self.archive.tokens_after if self.archive else 0)

    def explain(self) -> str:
        """Say for every item why it is evicted and what that frees, one line each."""
        if not self:
            return "nothing leaves"
        lines = [f"{o.item_id}: {o.tokens_before:,} -> {o.tokens_after:,} tokens, {o.reason}" for o in self.offloads]
        if self.archive is not None:
            a = self.archive
            lines.append(f"{len(a.item_ids)} items: {a.tokens_before:,} -> {a.tokens_after:,} tokens, {a.reason}")
        return "\n".join([*lines, f"in all {self.tokens_freed:,} tokens leave, from {self.first_changed} on"])


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerOffload:
    """How ``item``, which may have a new file name, is evicted before it is sent: by ``offload``.

    ``chars`` is the size of its content.
    """

    item: ContextItem
    chars: int
    offload: Offload


class EagerPolicy(Protocol):
    """Decides about each item before it enters the context."""

    def decide(self, item: ContextItem, *, path_of: Callable[[str], str], counter: TokenCounter) -> EagerOffload | None:
        """Return how ``item`` is evicted, or None if it stays. Called in a worker thread if the item is large.

        ``path_of`` returns the absolute path of a file of the session. What this raises is raised to whoever adds the
        item, which is not added then.
        """
