"""What the model sees of a result that it has seen before: a line that says so, or the lines that are new. Pure.

The result is stored under its own id first, like any that leaves, so that it can be read whatever becomes of the
earlier one. The lines that only the earlier one had are not repeated: what is erased from it must not stay here.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from ctxfs.eviction.economics.parameters import LEAST_SAVED_TOKENS
from ctxfs.eviction.offload_plan import Offload
from ctxfs.eviction.placeholder.lines import line_count
from ctxfs.eviction.placeholder.text import READ_TOOL, READING_TOOLS, render_changed, render_same, way_to_read
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import ToolMessage, has_media
from ctxfs.messages.readable import readable_text
from ctxfs.messages.tokens import TokenCounter

_LEAST_TOKENS: Final = 50
"""A shorter result costs hardly more than the line that would replace it."""


class Earlier(NamedTuple):
    """A result that the model has seen. ``is_same``: a new one equals it; else it is the whole of an older version."""

    item_id: str
    text: str
    is_same: bool


def may_be_told(item: ContextItem) -> bool:
    """Whether a new result may be told by an earlier one; errors, images and what was read back are seen whole."""
    message = item.message
    if not isinstance(message, ToolMessage) or item.content_tokens < _LEAST_TOKENS or item.source is not None:
        return False
    is_read_back = message.tool_name.rpartition("__")[2] in READING_TOOLS
    return not (is_read_back or message.is_error or has_media(message.content))


def told_again(
    item: ContextItem,
    earlier: Earlier,
    *,
    path: str,
    tools: Collection[str],
    reader: str = READ_TOOL,
    counter: TokenCounter,
) -> Offload | None:
    """How a new result is stored in the file ``path`` (absolute), and told by an ``earlier`` one; None: it is not.

    ``tools``: names of those tools of the request that open what was stored; ``reader``: the one that opens files.
    """
    if not tools:
        return None
    text = readable_text(item.message.content)
    way = way_to_read(item.id, path, tools, reader=reader)
    if earlier.is_same:
        why = "repeats"
        told = render_same(earlier.item_id, line_count(text), way=way)
    else:
        why = "a newer version of"
        told = render_changed(earlier.item_id, new_lines(earlier.text, text), way=way)
    tokens = counter.count(told)
    if tokens + LEAST_SAVED_TOKENS > item.content_tokens:
        return None
    return Offload(
        item_id=item.id,
        path=path,
        placeholder=told,
        tokens_before=item.token_count,
        tokens_after=tokens,
        reason=f"{why} {earlier.item_id} (setting: tell_repeats)",
    )


def new_lines(old: str, new: str) -> str:
    """One hunk of a unified diff from ``old`` to ``new``, without context and without the lines of ``old``.

    It reaches from the first line that differs to the last one: that is found in linear time, whatever the texts are.
    """
    before = old.split("\n")
    after = new.split("\n")
    most = min(len(before), len(after))
    first = 0
    while first < most and before[first] == after[first]:
        first += 1
    last = 0
    while last < most - first and before[-1 - last] == after[-1 - last]:
        last += 1
    added = after[first : len(after) - last]
    removed = len(before) - last - first
    hunk = f"@@ -{first + bool(removed)},{removed} +{first + bool(added)},{len(added)} @@"
    return "\n".join([hunk, *[f"+{line}" for line in added]])
