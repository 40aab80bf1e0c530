"""``ctxfs explain``: why each item was evicted or kept, what is evicted next, and what that saved and cost."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import anyio
from rich.console import Console

from ctxfs.cli.options import AsJson, Root, SessionArgument
from ctxfs.cli.output import console, for_terminal, label, print_json, table, tokens
from ctxfs.cli.session import open_session, sessions_directory
from ctxfs.replay import explanation
from ctxfs.replay.explanation import Explanation

__all__ = ["explain"]


def explain(session: SessionArgument, root: Root = None, as_json: AsJson = False) -> None:
    """Show why each item was evicted or kept, and what that saved.

    Also what would be evicted next, by the rules that the session was last opened with, what the evictions cost, and
    what the calls were billed.
    """
    anyio.run(_explain, sessions_directory(root), session, as_json)


async def _explain(root: Path, session: str, as_json: bool) -> None:
    async with open_session(root, session) as fs:
        explained = await explanation.explain(fs)
    if as_json:
        print_json(_as_dict(explained))
    else:
        _print(explained, console())


def _as_dict(explained: Explanation) -> dict[str, Any]:
    return {
        "session_id": explained.session_id,
        "model": explained.model,
        "replies": explained.replies,
        "context_tokens": explained.context_tokens,
        "items": [asdict(item) for item in explained.items],
        "next": [
            {"item_id": o.item_id, "tokens_before": o.tokens_before, "tokens_after": o.tokens_after, "why": o.reason}
            for o in explained.next.offloads
        ],
        "effect": asdict(explained.effect),
        "billed": asdict(explained.billed),
    }


def _print(explained: Explanation, out: Console) -> None:
    out.print(str(explained.session_path), style="bold", soft_wrap=True)
    listed = table("item", "tool", "tokens", "of", "left", "why", right=("tokens", "of", "left"))
    for item in explained.items:
        if item.place == "archive":
            continue  # the archive's own row speaks for them
        has_left = item.replies_since is not None
        listed.add_row(
            item.item_id,
            label(item.tool_name or (item.item_type or "")),
            tokens(item.tokens),
            tokens(item.content_tokens) if has_left else "",
            "" if item.replies_since is None else _replies_ago(item.replies_since),
            label(item.why),
            style="" if item.place == "context" else "dim",
        )
    out.print(listed)
    for line in _summary(explained):
        out.print(for_terminal(line), soft_wrap=True)


def _summary(explained: Explanation) -> list[str]:
    did, billed = explained.effect, explained.billed
    goes_next = ", ".join(o.item_id for o in explained.next.offloads) or "nothing"
    lines = [f"now: {explained.context_tokens:,} tokens after {explained.replies:,} replies; evicted next: {goes_next}"]
    if did.evictions:
        lines.append(
            f"{did.evictions:,} evictions freed {did.tokens_freed:,} tokens: about {did.saved:,.0f} input "
            f"tokens saved since, {did.rewriting:,.0f} spent on rewriting, {did.reading_back:,.0f} on "
            f"{did.read_backs:,} read-backs; net {did.net:,.0f}{_dollars(did.net_usd)}"
        )
    if billed.calls:
        lines.append(
            f"{billed.calls:,} calls of {explained.model or 'an unnamed model'} were billed: "
            f"{billed.input_tokens:,} input, {billed.cache_read_input_tokens:,} cache read, "
            f"{billed.cache_creation_input_tokens:,} cache write, {billed.output_tokens:,} output"
            f"{_dollars(billed.usd)}"
        )
    return lines


def _dollars(usd: float | None) -> str:
    return "" if usd is None else f" (${usd:,.2f})"


def _replies_ago(count: int) -> str:
    return "1 reply ago" if count == 1 else f"{count:,} replies ago"
