"""What was said from one model call to another: the beginning of each item, up to a limit."""

from collections.abc import Sequence
from functools import partial

from ctxfs.errors import SessionError, StorageError, ToolError
from ctxfs.storage.threads import run_in_steps
from ctxfs.tools.base import ToolResult, told
from ctxfs.tools.paging import Line
from ctxfs.tools.recall.archive import PastSession
from ctxfs.tools.recall.past import PastItem
from ctxfs.tools.stored import Scope

_ITEM_LINES = 12
_ITEM_CHARS = 800
_FOOTER_TOKENS = 60


async def conversation(session: PastSession, scope: Scope, first: int, last: int) -> ToolResult:
    """What was new at the calls ``first`` to ``last``, as many as fit: the items that each sent first, and its reply.

    Raises:
        ToolError: there were no such calls.

    """
    past = session.past
    if first > last or first > past.calls + 1:
        raise ToolError(
            f"there are no calls {first} to {last}: the model was called {past.calls} times, counted from 1"
        )
    last = min(last, past.calls + 1)
    rows: list[str] = []
    used = _FOOTER_TOKENS
    shown_to = first - 1
    for call in range(first, last + 1):
        block = await _call(session, call)
        fitting, cost = await run_in_steps(partial(_fitting, block, scope, used))
        is_whole = len(fitting) == len(block)
        if rows and not is_whole:
            break
        rows += fitting
        used += cost
        shown_to = call
        if not is_whole:
            rows.append("…")
            break
    more = f"; next: first={shown_to + 1}" if shown_to < last else ""
    return ToolResult(
        "\n".join([*rows, f"[calls {first}-{shown_to} of {past.calls}{more}; history_read shows whole items]"])
    )


async def _call(session: PastSession, call: int) -> list[str]:
    rows = [f"== call {call}"]
    for item in session.past.of_calls(call, call):
        try:
            lines = await session.lines(item, 1, _ITEM_LINES + 1, max_chars=_ITEM_CHARS)
        except (StorageError, SessionError) as error:
            rows.append(f"-- {item.item_id} ({item.name}): {told(error)}")
            continue
        rows += _rows(item, lines)
    return rows


def _rows(item: PastItem, lines: Sequence[Line]) -> list[str]:
    shown = lines[:_ITEM_LINES]
    cut = len(lines) > len(shown) or any(line.more for line in shown)
    tokens = f", {item.tokens:,} tokens" if cut and item.tokens else ""
    rows = [f"-- {item.item_id} ({item.name}{tokens})", *(line.text for line in shown)]
    if cut:
        rows.append("…")
    return rows


def _fitting(rows: list[str], scope: Scope, used_before: int) -> tuple[list[str], int]:
    """As many of the rows as fit, at least one; and their tokens."""
    counter = scope.loaded_counter()
    kept: list[str] = []
    used = 0
    for row in rows:
        cost = counter.count(row) + 1
        if kept and used_before + used + cost > scope.max_tokens:
            break
        kept.append(row)
        used += cost
    return kept, used
