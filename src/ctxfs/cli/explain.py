"""``ctxfs explain``: why each item was evicted or kept, what is evicted next, and what that saved and cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from ctxfs.cli.changes import change_keys, changes_of, print_changes, print_history, undone_changes, without_settled
from ctxfs.cli.options import AsJson, Root, StoreUrl, known_items, known_sessions
from ctxfs.cli.output import (
    ALL_COLUMNS,
    Reasons,
    item_names,
    print_columns,
    print_json,
    print_line,
    stdout_columns,
    tokens,
)
from ctxfs.cli.session import SessionsAt, session_or_file, sessions_at, shown_session
from ctxfs.errors import ConfigError
from ctxfs.eviction.economics.plans import Why
from ctxfs.eviction.placeholder.lines import plural
from ctxfs.eviction.preview import PREVIEW_TOKENS
from ctxfs.lab.replay import explanation
from ctxfs.lab.replay.answer import LIMITS, answer
from ctxfs.lab.replay.explanation import ExplainedItem, Explanation
from ctxfs.lab.replay.recorded import RecordedSession, explain_recording
from ctxfs.lab.shadow import COLUMNS, shadow_figures
from ctxfs.messages.items import ItemType
from ctxfs.messages.rates import Rates
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import Shadowed
from ctxfs.session.timeline.changes import ItemChange
from ctxfs.session.timeline.effect import Effect
from ctxfs.session.timeline.reading import read_timeline
from ctxfs.session.timeline.timeline import READ_BACKS_ELSEWHERE, Timeline
from ctxfs.text import figures

_Session = Annotated[
    str,
    typer.Argument(
        metavar="SESSION",
        autocompletion=known_sessions,
        help="A session's id, the beginning of one, 'last' for the newest, or the file of a recorded session.",
    ),
]


_Item = Annotated[
    str | None,
    typer.Argument(
        metavar="ITEM",
        autocompletion=known_items,
        help="An item's id, or the beginning of one: only this item, with all that happened to it.",
        show_default=False,
    ),
]


def explain(
    session: _Session,
    item: _Item = None,
    *,
    changes: Annotated[
        bool, typer.Option("--changes", help="List what left or came back, with the ids that `ctxfs undo` takes.")
    ] = False,
    root: Root = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show why items were evicted or kept, and the savings.

    Also shows what would be evicted next, by the rules that the session was last opened with, what the evictions
    cost, and what the calls were billed. For a recorded session: what ctxfs would have evicted, and when.
    """
    if changes and item is not None:
        raise ConfigError("--changes lists those of all items: leave out ITEM, or --changes")
    if store is None and Path(session).is_file():
        if changes or item is not None:
            raise ConfigError(f"{session} is a recording: all of it is explained, so leave out ITEM and --changes")
        _explain_file(Path(session), as_json)
        return
    with session_or_file(session):
        anyio.run(partial(_explain, item=item, changes=changes, as_json=as_json), sessions_at(root, store), session)


def _explain_file(path: Path, as_json: bool) -> None:
    found = explain_recording(path)
    if as_json:
        told = [
            {"answer": answer(r.report), "session": _named(r), "items": [asdict(i) for i in r.items]} for r in found
        ]
        print_json({"path": str(path), "recordings": told})
        return
    for recorded in found:
        _print_recorded(recorded)


def _named(recorded: RecordedSession) -> str:
    return recorded.report.sessions[0].session


def _print_recorded(recorded: RecordedSession) -> None:
    print_line(_named(recorded), style="bold")
    print_line(answer(recorded.report))
    threads = max((item.thread for item in recorded.items), default=1)
    reasons = Reasons()
    rows: list[tuple[str, ...]] = []
    for item in recorded.items:
        if item.left_before_call is not None:
            part = str(item.thread) if threads > 1 else ""
            of = " (arguments)" if item.kind == "arguments" else ""
            left = str(item.left_before_call)
            sizes = (tokens(item.tokens), tokens(item.tokens_after), left, tokens(item.read_backs or None))
            rows.append((part, str(item.call), f"{item.tool}{of}", *sizes, reasons.cell(item.why)))
    stays = [item for item in recorded.items if item.left_before_call is None]
    columns = ""
    if rows:
        columns = (
            " call: the first that saw it; left: the first that did not; back: how often a reply needed it afterwards."
        )
    print_line(
        f"{len(recorded.items) - len(stays):,} of {len(recorded.items):,} results and arguments would have left; "
        f"{sum(item.tokens for item in stays):,} tokens of them stay.{columns}"
    )
    if rows:
        head = ("part", "call", "tool", "tokens", "after", "left", "back", "why")
        print_columns(head, rows, right=("part", "call", "tokens", "after", "left", "back"))
        reasons.print_below()
    kept = (
        f"After {recorded.cache_ttl_s:,.0f} seconds without a call the prompt cache counts as lost."
        if math.isfinite(recorded.cache_ttl_s)
        else "No times were recorded, so the prompt cache never counts as lost."
    )
    print_line(f"{kept} {LIMITS}")


async def _explain(root: SessionsAt, session: str, *, item: str | None, changes: bool, as_json: bool) -> None:
    async with shown_session(root, session, with_history=True) as fs:
        if changes:
            await print_history(fs, as_json=as_json)
            return
        timeline = await read_timeline(fs)
        explained = await explanation.explain(fs, timeline=timeline)
        if item is not None:
            await _explain_item(fs, timeline, explained, item, as_json=as_json)
            return
        shadowed = fs.state.shadowed
    if as_json:
        print_json({**_as_dict(explained), "shadow": [asdict(one) for one in shadow_figures(shadowed)]})
        return
    _print(explained)
    _print_shadow(shadowed)


async def _explain_item(
    fs: ContextFileSystem, timeline: Timeline, explained: Explanation, given: str, *, as_json: bool
) -> None:
    """Print why one item is where it is, and everything that happened to it."""
    arguments = [i.item_id for i in explained.items if i.item_type is ItemType.TOOL_INPUT and i.place == "context"]
    changes: Sequence[ItemChange] = ()
    if given not in arguments:  # they are part of a reply until they leave
        changes = await changes_of(fs, timeline, given)
    undone = undone_changes(fs)
    item_id = changes[0].item_id if changes else given
    found = next((item for item in explained.items if item.item_id == item_id), None)
    is_next = any(offload.item_id == item_id for offload in explained.next.offloads)
    if as_json:
        keys = None if found is None else asdict(found)
        happened = [change_keys(change, undone) for change in changes]
        print_json({"item_id": item_id, "item": keys, "is_next": is_next, "changes": happened})
        return
    if found is not None:
        print_line(_headline(found), style="bold")
        for line in _figures(found, explained):
            print_line(line)
    print_changes(without_settled(fs, changes, undone), fs.state.ids, undone)


def _headline(item: ExplainedItem) -> str:
    """Where an item is, its size, and why."""
    name = item.tool_name or item.item_type or ""
    size = f"{item.tokens:,} tokens"
    if item.content_tokens is not None and item.place != "context":
        size = f"{size} of {item.content_tokens:,}"
    return f"{item.item_id}  {name}, {item.place}, {size}: {item.why}"


def _figures(item: ExplainedItem, explained: Explanation) -> list[str]:
    """What an item's eviction saved and cost, or what keeping it costs and its absence would."""
    if item.tokens_freed is not None:
        left = 0 if item.left_after_reply is None else item.left_after_reply + 1
        return [*_when_it_left(item, left, explained.rates), *_since_it_left(item, explained.effect)]
    if item.weighed is not None:
        return _when_it_left(item, explained.replies + 1, explained.rates)
    if item.rent is None or item.risk is None:
        return []
    line = (
        f"with each call, keeping it costs about {item.rent:,.0f} input tokens; without it, the read-backs to expect "
    )
    line += f"would cost about {item.risk:,.0f}"
    if item.ripe_in_calls:
        line += f": in about {item.ripe_in_calls:,.0f} calls less than keeping it"
    return [line]


def _when_it_left(item: ExplainedItem, call: int, rates: Rates) -> list[str]:
    """What the planner compared of an item that left, or leaves next, and why it does so before ``call``."""
    if item.is_preview:
        return [_PREVIEW]
    weighed = item.weighed
    if weighed is None:
        return []
    back = weighed["read_backs"] * weighed["read_back"]
    reading = f"about {weighed['rent']:,.0f} in each call, to read it from the prompt cache"
    if item.rule is Why.SEEN:
        keeping = f"{reading}, but no more than caching it again costs: by then it leaves with others"
    else:
        keeping = f"{reading}; {weighed['calls']:,} calls are to expect, as many again as were made, and ten"
    how_often = f"{weighed['read_backs']:.2g} times in the {weighed['calls']:,} calls to expect"
    lines = [
        f"why: keeping it costs about {weighed['keeping']:,.0f} input tokens, reading it back about {back:,.0f}",
        f"keeping: {keeping}",
        f"reading back: {how_often}, each about {weighed['read_back']:,.0f}: one more call for the whole context",
        f"why before call {call:,}: {_moment(item.rule, weighed, call)}",
    ]
    if item.rule is not Why.STEP:
        lines.append(
            "limit: what leaves may cost, with its read-backs, at most what was saved before and "
            f"{weighed['max_loss']:.0%} of what all calls would have cost without evictions (max_loss)"
        )
    counts = f"an input token counts {rates.read:g} if it is read from the prompt cache, and {rates.write:g} if written"
    if weighed["billed_per_counted"] != 1.0:
        counts += f"; about {weighed['billed_per_counted']:.2f} are billed for a token that ctxfs counts"
    return [*lines, counts]


def _moment(rule: Why | None, weighed: Mapping[str, float], call: int) -> str:
    """Why an item left before ``call``, and not earlier or later."""
    again = f"about {weighed['rewriting']:,.0f} input tokens"
    if rule is Why.SEEN:
        return "the model had seen it, and only one reply followed it: hardly anything else is cached again"
    if rule is Why.STEP:
        return "the request had come to a length from which on each token costs more"
    if rule is Why.EXPIRED or not weighed["rewriting"]:
        return "the prompt cache holds nothing that follows it (by its time, or by the bills): nothing is cached again"
    if weighed["dearer_from_call"] > call and weighed["together"] > 1:
        return f"others left then, for which what follows is cached again ({again}), and it left with them"
    others = f"the {weighed['together']:,} items that left together" if weighed["together"] > 1 else "it"
    return (
        f"from about call {weighed['dearer_from_call']:,} on, a call more with it cost more than the read-backs to "
        f"expect of it. It waited until that had added up, for {others}, to what caching again what follows costs: "
        f"{again}"
    )


def _since_it_left(item: ExplainedItem, did: Effect) -> list[str]:
    calls = plural(item.replies_since or 0, "call")
    saved = item.saved or 0.0
    rewriting = item.rewriting or 0.0
    saved_usd = ""
    rewriting_usd = ""
    if did.usd_per_token is not None:
        saved_usd = _dollars(saved * did.usd_per_token)
        rewriting_usd = _dollars(rewriting * did.usd_per_token)
    since = (
        f"since then: {calls} without its {item.tokens_freed or 0:,} tokens saved about {saved:,.0f} input "
        f"tokens{saved_usd}; its share of caching again what followed it: about {rewriting:,.0f}{rewriting_usd}"
    )
    if did.too_long_from is not None:
        since += f". Counted before call {did.too_long_from:,}: without ctxfs, no more would have fitted the window"
    how_often = READ_BACKS_ELSEWHERE if item.read_backs is None else item.read_backs or "never"
    read_backs = f"read back since then: {how_often}"
    if item.read_backs_expected is not None:
        read_backs += f"; expected of such an item in as many calls: {item.read_backs_expected:,.1f} times"
    return [since, read_backs]


def _as_dict(explained: Explanation) -> dict[str, Any]:
    return {
        "session_id": explained.session_id,
        "model": explained.model,
        "replies": explained.replies,
        "context_tokens": explained.context_tokens,
        "content_tokens": explained.content_tokens,
        "request_tokens": explained.request_tokens,
        "window_tokens": explained.window_tokens,
        "items": [asdict(item) for item in explained.items],
        "next": [
            {"item_id": o.item_id, "tokens_before": o.tokens_before, "tokens_after": o.tokens_after, "why": o.reason}
            for o in explained.next.offloads
        ],
        "effect": asdict(explained.effect),
        "billed": asdict(explained.billed),
    }


def _print(explained: Explanation) -> None:
    print_line(explained.session_path, style="bold")
    names = item_names(item.item_id for item in explained.items)
    reasons = Reasons()
    items = [item for item in explained.items if item.place != "archive"]  # the archive has a row of its own
    columns = [name for name in _COLUMNS if name != "of" or stdout_columns() >= ALL_COLUMNS]
    rows: list[list[str]] = []
    for item in items:
        has_left = item.replies_since is not None
        cells = {
            "item": names[item.item_id],
            "tool": item.tool_name or (item.item_type or ""),
            "tokens": tokens(item.tokens),
            "of": tokens(item.content_tokens) if has_left else "",
            "before call": "" if item.left_after_reply is None else tokens(item.left_after_reply + 1),
            "why": reasons.cell(item.why),
        }
        rows.append([cells[name] for name in columns])
    for line in _summary(explained):
        print_line(line)
    if rows:
        print_line("")
        print_columns(
            columns, rows, right=("tokens", "of", "before call"), dim=[item.place != "context" for item in items]
        )
        reasons.print_below()


_PREVIEW = (
    f"why: a result of this size is never sent whole. The model sees {PREVIEW_TOKENS:,} tokens of it at most: its "
    "size, its outline, its first and last lines, lines with errors, and how to read the rest. No price decides that"
)
_NAMED_NEXT = 5
_COLUMNS = ("item", "tool", "tokens", "of", "before call", "why")
_HOW = (
    "Keeping an item costs a read from the prompt cache with every call. Evicting it costs caching again what follows "
    "it and, if the model needs it, a call more to read it back. `ctxfs explain SESSION ITEM` has the figures of one "
    "item. Below, tokens: now, of what it was; before call: when it left; a placeholder of the new size names the file "
    "with the rest"
)


def _summary(explained: Explanation) -> list[str]:
    did, billed = explained.effect, explained.billed
    lines: list[str] = []
    replies = plural(explained.replies, "reply")
    ids = [offload.item_id for offload in explained.next.offloads]
    goes_next = ", ".join(ids[:_NAMED_NEXT]) or "nothing"
    if len(ids) > _NAMED_NEXT:
        goes_next += f" and {len(ids) - _NAMED_NEXT:,} more"
    is_elsewhere = bool(explained.items) and all(item.place != "context" for item in explained.items)
    now = "the last request" if is_elsewhere else "now"
    full = ""
    if explained.window_tokens is not None:
        share = figures.share(explained.request_tokens, explained.window_tokens)
        full = f", {share} of the {explained.window_tokens:,} that fit its window"
    beside = ""
    if explained.request_tokens > explained.context_tokens:
        beside = f" (with tools, a request has {explained.request_tokens:,})"
    lines.append(
        f"{now}: {explained.context_tokens:,} tokens of messages as ctxfs counts them{beside}, after {replies}{full}; "
        f"evicted next: {goes_next}"
    )
    if did.evictions:
        without = ""
        if explained.content_tokens:
            without = f" (without ctxfs, the context would hold {explained.content_tokens:,})"
        if did.read_backs is None:
            reading_back = f"without read-backs, which are {READ_BACKS_ELSEWHERE}"
        else:
            reading_back = f"{did.reading_back:,.0f} on {plural(did.read_backs, 'read-back')}"
        lines.append(
            f"{plural(did.evictions, 'eviction')} freed {did.tokens_freed:,} tokens{without}: about the price of "
            f"{did.saved:,.0f} uncached input tokens saved since, {did.rewriting:,.0f} spent on rewriting, "
            f"{reading_back}; net {did.net:,.0f}{_dollars(did.net_usd)}"
        )
        lines.append(_units(*did.billed_per_counted))
    if did.too_long_from is not None:
        paid = "" if billed.usd is None else f"{figures.usd(billed.usd)} paid; "
        lines.append(
            f"{paid}without ctxfs, the session would not have fitted its window from call {did.too_long_from:,} on: "
            "what was saved and spent is counted up to there"
        )
    if billed.calls:
        lines.append(
            f"{plural(billed.calls, 'call')} of {explained.model or 'an unnamed model'} "
            f"{'was' if billed.calls == 1 else 'were'} billed: "
            f"{billed.input_tokens:,} input, {billed.cache_read_input_tokens:,} cache read, "
            f"{billed.cache_creation_input_tokens:,} cache write, {billed.output_tokens:,} output"
            f"{_dollars(billed.usd)}"
        )
    return [*lines, _HOW] if did.evictions else lines


def _units(least: float, most: float) -> str:
    """In which tokens figures are, by how many are billed for a counted one."""
    if least == most == 1.0:
        return "all in tokens as ctxfs counts them: the bills do not show that the provider counts others"
    return (
        "sizes are in tokens as ctxfs counts them; what was saved and spent is in tokens as the provider bills them: "
        f"{_between(least, most)} for one of these"
    )


def _between(least: float, most: float) -> str:
    if f"{least:.2f}" == f"{most:.2f}":
        return f"about {most:.2f}"
    return f"by the model {least:.2f} to {most:.2f}"


def _print_shadow(shadowed: Sequence[Shadowed]) -> None:
    """What shadow runs found; nothing if there were none."""
    rows = shadow_figures(shadowed)
    if not rows:
        return
    print_columns(COLUMNS, [row.cells() for row in rows], right=COLUMNS[1:])
    print_line(
        f"shadow runs cost {figures.usd(rows[0].usd)}. differ: the next action of the model is not that of the "
        "original request; noise: two replies to the original are not the same; excess: the difference, with the "
        "interval that holds the true one with 95 %."
    )


def _dollars(usd: float | None) -> str:
    return "" if usd is None else f" ({figures.usd(usd)})"
