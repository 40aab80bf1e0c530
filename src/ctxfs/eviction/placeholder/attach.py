"""The placeholder that may replace an item's content one day, written when it is needed, and the digest in it. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ctxfs.eviction.placeholder.digest import DEFAULT_BUDGET_TOKENS, describe
from ctxfs.eviction.placeholder.text import READ_TOOL, render, render_range
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.tokens import TokenCounter

DEFAULT_DIGEST_TOKENS: Final = 1_000
"""A placeholder's digest has at most this many tokens, unless another bound is set."""

DIGEST_FRACTION = 5
"""A digest takes at most this part of the tokens of what it describes."""

_LONG_FRACTION = 16
"""The same for a digest of more than ``DEFAULT_BUDGET_TOKENS``."""

_MAY_LEAVE = frozenset({ItemType.TOOL_RESULT, ItemType.USER_MESSAGE, ItemType.SKILL_PROMPT})


class Placeholder:
    """A text that may replace a content: written when it is first asked for, always the same, and kept.

    ``least_tokens``: it has no fewer tokens. ``write`` gives the text and its tokens; an empty text means that there is
    nothing to say about the content, which has ``content_tokens``: what writing costs grows with them.
    """

    def __init__(self, least_tokens: int, write: Callable[[], tuple[str, int]], *, content_tokens: int = 0) -> None:
        self.least_tokens = least_tokens
        self.content_tokens = content_tokens
        self._make = write
        self._written: tuple[str, int] | None = None

    @classmethod
    def of(cls, item: ContextItem) -> "Placeholder | None":
        """The one that ``item`` has already; None if it has none."""
        if item.placeholder is None:
            return None
        written = item.placeholder, item.placeholder_tokens
        placeholder = cls(item.placeholder_tokens, lambda: written)
        placeholder.write()
        return placeholder

    @property
    def is_written(self) -> bool:
        """Whether its text is known."""
        return self._written is not None

    @property
    def known_tokens(self) -> int:
        """Its size or, as long as it is not written, the least that this may be."""
        return self.least_tokens if self._written is None else self._written[1]

    def write(self) -> tuple[str, int]:
        """Write the text now if it was not before; return it and its size."""
        if self._written is None:
            self._written = self._make()
        return self._written

    def __eq__(self, other: object) -> bool:
        """Two are equal when they read the same."""
        return isinstance(other, Placeholder) and self.write() == other.write()

    __hash__ = None  # type: ignore[assignment]


def digest_of(item: ContextItem, *, counter: TokenCounter, digest_tokens: int) -> str:
    """Describe the item's content in at most ``digest_tokens``, and in a fraction of what it takes; "" for 0."""
    budget = digest_budget(item.content_tokens, digest_tokens)
    if not budget:
        return ""
    return describe(item.message.content, budget_tokens=budget, counter=counter, content_tokens=item.content_tokens)


def digest_budget(content_tokens: int, digest_tokens: int) -> int:
    """How many tokens the digest of a placeholder may have: more for a large content, ``digest_tokens`` at most."""
    long = max(DEFAULT_BUDGET_TOKENS, content_tokens // _LONG_FRACTION)
    return min(digest_tokens, content_tokens // DIGEST_FRACTION, long)


def placeholder_for(
    item: ContextItem,
    *,
    path: str,
    counter: TokenCounter,
    digest: Callable[[], str],
    reader: str | None = READ_TOOL,
    short: str | None = None,
) -> Placeholder | None:
    """The longest placeholder for an item that is smaller than its content; None when none is, and for what stays.

    ``path`` is the file that it would go to (absolute), ``short`` its short name if that is used instead. ``digest``
    describes its content, when the text is written. ``reader`` is the name of the tool that opens the file.
    """
    if item.item_type not in _MAY_LEAVE:
        return None
    render_bare = partial(render, path) if item.source is None else partial(render_range, item.source)
    bare = render_bare(reader=reader, short=short)
    bare_tokens = counter.count(bare)
    if bare_tokens >= item.content_tokens:
        return None

    write = _Written(item, path, counter, digest, reader, short, bare, bare_tokens)
    return Placeholder(bare_tokens, write, content_tokens=item.content_tokens)


@dataclass(slots=True, eq=False)
class _Written:
    """What gives the text of a placeholder: one object, since a session holds one for each of its items."""

    item: ContextItem
    path: str
    counter: TokenCounter
    digest: Callable[[], str]
    reader: str | None
    short: str | None
    bare: str
    bare_tokens: int

    def __call__(self) -> tuple[str, int]:
        described = self.digest() if self.item.source is None else ""
        if described:
            text = render(self.path, described, reader=self.reader, short=self.short)
            if (tokens := self.counter.count(text)) < self.item.content_tokens:
                return text, tokens
        return self.bare, self.bare_tokens


def with_placeholder(item: ContextItem, *, path: str, counter: TokenCounter, reader: str = READ_TOOL) -> ContextItem:
    """``item`` with the short placeholder that names ``path`` (absolute) alone; without one when it is not smaller."""
    found = placeholder_for(item, path=path, counter=counter, digest=str, reader=reader)
    text, tokens = (None, 0) if found is None else found.write()
    return replace(item, placeholder=text, placeholder_tokens=tokens)
