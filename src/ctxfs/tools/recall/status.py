"""The state of a context in one bounded block: what is in it, what was evicted, and the model's notes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ctxfs.messages.items import ContextItem
from ctxfs.messages.tokens import TokenCounter, default_counter, require_counter
from ctxfs.storage.threads import run_in_steps
from ctxfs.tools.recall.archive import PastSession
from ctxfs.tools.recall.past import Past

_LARGEST = 10
_LEFT = 10
_NOTE_CHARS = 300


async def context_status(session: PastSession, max_tokens: int, counter: TokenCounter | None = None) -> str:
    """The state of the session's context in at most about ``max_tokens`` tokens, by ``counter`` (None: the default)."""
    require_counter(counter)
    past = await session.refresh()
    state = session.fs.state
    dashboard = Dashboard(
        items=tuple(state.items.values()),
        past=past,
        notes=dict(state.notes),
        window_tokens=None if state.eviction is None else state.eviction.window_tokens,
    )
    return await run_in_steps(lambda: dashboard.render(max_tokens, counter or default_counter()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """The state of a context.

    Attributes:
        items: what the context holds, in order.
        past: everything that was ever in it.
        notes: the model's notes, by number.
        window_tokens: the largest prompt; None: it is not known.

    """

    items: Sequence[ContextItem]
    past: Past
    notes: Mapping[int, str]
    window_tokens: int | None = None

    def render(self, max_tokens: int, counter: TokenCounter) -> str:
        """The block, of at most about ``max_tokens`` tokens: the summary first, then as many rows as fit."""
        rows: list[str] = []
        used = 0
        for row in [self._summary(), *self._notes(), *self._largest(), *self._left()]:
            used += counter.count(row) + 1
            if rows and used > max_tokens:
                rows.append("[cut]")
                break
            rows.append(row)
        return "\n".join(rows)

    def _summary(self) -> str:
        # If a framework owns the history, there are no items, but the size of its last request is known.
        tokens = sum(item.token_count for item in self.items) if self.items else self.past.prompt_tokens
        of = ""
        if self.window_tokens:
            of = f" ({tokens / self.window_tokens:.0%} of a window of {self.window_tokens:,})"
        where = f"in {len(self.items):,} items" if self.items else "in the last request"
        return f"Context: {tokens:,} tokens{of} {where}; {self.past.calls:,} calls so far."

    def _notes(self) -> list[str]:
        if not self.notes:
            return []
        rows = ["Your notes:"]
        for number, text in sorted(self.notes.items()):
            shown = " ".join(text.split())
            if len(shown) > _NOTE_CHARS:
                shown = f"{shown[: _NOTE_CHARS - 1]}…"
            rows.append(f"  {number}. {shown}")
        return rows

    def _largest(self) -> list[str]:
        whole = [item for item in self.items if not item.destroyed]
        largest = sorted(whole, key=lambda item: -item.token_count)[:_LARGEST]
        if not largest:
            return []
        return ["Largest in the context:", *(f"  {self._described(item)}" for item in largest)]

    def _described(self, item: ContextItem) -> str:
        known = self.past.items.get(item.id)
        since = f", since call {known.call}" if known is not None else ""
        name = f"{item.item_type.value} of {item.tool_name}" if item.tool_name else item.item_type.value
        return f"{item.id} ({name}): {item.token_count:,} tokens{since}"

    def _left(self) -> list[str]:
        left = [item for item in self.past.items.values() if item.left_after is not None]
        if not left:
            return []
        tokens = sum(item.tokens for item in left)
        recent = sorted(left, key=lambda item: -(item.left_after or 0))[:_LEFT]
        rows = [f"Left the context: {len(left):,} items, {tokens:,} tokens; history_search finds them. The last ones:"]
        for item in recent:
            what = f"{item.item_id} ({item.name}): {item.tokens:,} tokens"
            rows.append(f"  {what}, of call {item.call}, left after call {item.left_after}")
        return rows
