"""``ctxfs explain``: why each item of a session left or stays, what goes next, and what that saved and cost."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from math import isinf
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from rich.console import Console

from ctxfs.cli.options import AsJson, Root, SessionArgument
from ctxfs.cli.output import console, for_terminal, label, print_json, table, tokens
from ctxfs.cli.session import Entry, entries, open_session, sessions_directory
from ctxfs.context.entry import Known
from ctxfs.context.repair import repaired
from ctxfs.context.transcript import Transcript
from ctxfs.economics.economy import CacheTerms, Economy
from ctxfs.economics.parameters import EvictionParameters
from ctxfs.economics.planner import Verdict
from ctxfs.economics.prices import ANTHROPIC_RATES, TTL_SECONDS, CacheTtl, Prices, Rates, prices_for
from ctxfs.errors import ConfigError
from ctxfs.eviction.budget import Budget
from ctxfs.eviction.plan import Plan
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.items import ItemType
from ctxfs.llm.base import Usage
from ctxfs.replay.journal_costs import Account, Departure, account
from ctxfs.session.damaged import counted
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.names import Names
from ctxfs.session.records import EvictionSet
from ctxfs.tokens import load_counter

__all__ = ["explain"]

_STAYS = {
    ItemType.SYSTEM_PROMPT: "stays: the system prompt never leaves",
    ItemType.TOOL_RESULT: "stays: its placeholder would hardly be smaller",
    ItemType.COMPACTION_SUMMARY: "stands for what left in its file",
}
_MESSAGE_STAYS = "stays: messages leave only when the window is full"
_NO_RULE_STAYS = "stays: results of this tool leave only when the window is full"
_TTL: CacheTtl = "5m"
_NO_RULES = EvictionSet(
    parameters=EvictionParameters().to_mapping(), rates=asdict(ANTHROPIC_RATES), ttl_s=TTL_SECONDS[_TTL]
)
"""What is taken for the rules of a session that recorded none: the defaults."""

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Next:
    """What a session that goes on now would do."""

    plan: Plan
    verdicts: dict[str, Verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Explained:
    """All that is known of a session. ``prices`` None: the model has no known ones."""

    fs: ContextFileSystem
    rules: EvictionSet
    entries: Sequence[Entry]
    account: Account
    next: _Next
    prices: Prices | None

    @property
    def model(self) -> str:
        """The model of the last call on the context; empty when no call was recorded."""
        return self.account.turns[-1].model if self.account.turns else ""

    @property
    def rates(self) -> Rates:
        """What tokens cost, in units of one uncached input token."""
        return _rates(self.rules) or (self.prices.rates(_TTL) if self.prices else ANTHROPIC_RATES)

    @property
    def window_tokens(self) -> int:
        """The largest prompt: as it was set, or that of the model."""
        return self.rules.window_tokens or Budget.of_model(self.model).limit_tokens

    @property
    def context_tokens(self) -> int:
        """The context now."""
        return sum(e.tokens for e in self.entries)

    def usd(self, input_tokens: float) -> float | None:
        """The price of so many uncached input tokens; None when it is not known."""
        return input_tokens * self.prices.input / _MILLION if self.prices else None


def explain(session: SessionArgument, root: Root = None, as_json: AsJson = False) -> None:
    """Say why each item left or stays, and what that saved.

    Also what goes next by the rules that the session was last opened with, what all of it cost, and what the calls
    were billed.
    """
    anyio.run(_explain, sessions_directory(root), session, as_json)


async def _explain(root: Path, session: str, as_json: bool) -> None:
    async with open_session(root, session) as fs:
        told = account(await fs.history())
        model = told.turns[-1].model if told.turns else ""
        rules = fs.eviction or _NO_RULES
        planned = await _next(fs, rules, told)  # reads the items, and so finds what is damaged
        explained = _Explained(
            fs=fs,
            rules=rules,
            entries=await entries(fs),
            account=told,
            next=planned,
            prices=prices_for(model),
        )
        if as_json:
            print_json(_as_dict(explained))
        else:
            _print(explained, console())


def _rates(rules: EvictionSet) -> Rates | None:
    """What the planner reckoned with; None when there was none. Raises ``ConfigError`` for another version's prices."""
    try:
        return Rates(**rules.rates) if rules.rates else None
    except TypeError as error:
        raise ConfigError(f"the session's prices cannot be read: {error}") from error


def _economy(rules: EvictionSet) -> Economy | None:
    """The planner by these rules. Raises ``ConfigError`` when another version's numbers cannot be read."""
    if rules.parameters is None:
        return None
    return Economy(
        parameters=EvictionParameters.from_mapping(rules.parameters),
        terms=CacheTerms(rates=_rates(rules) or ANTHROPIC_RATES, ttl_s=rules.ttl_s),
    )


async def _next(fs: ContextFileSystem, rules: EvictionSet, told: Account) -> _Next:
    """Plan as a session that goes on now would, without being its writer."""
    counter = await load_counter()
    items = counted(await fs.items(), counter)
    names = Names({item.id for item in items} | fs.stored().keys(), layout=fs.layout)
    policy = OffloadPolicy.from_mapping(rules.policy) if rules.policy is not None else None
    transcript = Transcript(rules.keep_recent, fs.path_of, economy=_economy(rules), policy=policy)
    last_call_at = told.turns[-1].made_at if told.turns else None

    def plan() -> _Next:
        going_on = repaired(items, names=names, counter=counter).items
        known = Known(names)
        transcript.resume(going_on, known=known, counter=counter, last_call_at=last_call_at)
        verdicts = transcript.economy.verdicts() if transcript.economy is not None else ()
        return _Next(plan=transcript.plan(), verdicts={v.item_id: v for v in verdicts})

    return await anyio.to_thread.run_sync(plan)


# Why -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One item: where it is and why. ``tokens`` is what it takes in the context now, ``content_tokens`` what it took.

    ``item_type`` None: it stands in an archive only. ``departure`` None: it never left.
    """

    item_id: str
    item_type: ItemType | None
    tool_name: str | None
    place: str
    tokens: int
    content_tokens: int | None
    why: str
    departure: Departure | None = None
    verdict: Verdict | None = None


def _rows(explained: _Explained) -> list[_Row]:
    """Every item: the context in order, what is only stored, what could leave of replies, and what is archived."""
    departures: dict[str, Departure] = {}
    for departure in explained.account.departures:  # of an item whose placeholder shrank later, the first counts
        departures |= {item_id: departure for item_id in departure.item_ids if item_id not in departures}
    verdicts = explained.next.verdicts
    rows = [_entry_row(e, departures.get(e.item_id), verdicts.get(e.item_id), explained) for e in explained.entries]
    known = {row.item_id for row in rows}
    for item_id, verdict in verdicts.items():
        if item_id not in known:
            rows.append(_input_row(verdict))
    for item_id, departure in departures.items():
        if item_id not in known and departure.archive is not None:
            rows.append(_archived_row(item_id, departure))
    return rows


def _entry_row(entry: Entry, departure: Departure | None, verdict: Verdict | None, explained: _Explained) -> _Row:
    return _Row(
        item_id=entry.item_id,
        item_type=entry.item_type,
        tool_name=entry.tool_name,
        place=entry.place,
        tokens=entry.tokens,
        content_tokens=entry.content_tokens,
        why=_why(entry, departure, verdict, explained),
        departure=departure,
        verdict=verdict,
    )


def _why(entry: Entry, departure: Departure | None, verdict: Verdict | None, explained: _Explained) -> str:
    if departure is not None:
        return departure.reason if entry.damaged is None else f"{departure.reason}; damaged: {entry.damaged}"
    if entry.damaged is not None:
        return f"damaged: {entry.damaged}"
    if entry.item is None:
        return "stored, and not in the context"
    for archived in explained.account.departures:
        if archived.archive == entry.item_id:
            return f"stands for {len(archived.item_ids)} messages: {archived.reason}"
    return _why_here(entry, verdict, explained)


def _why_here(entry: Entry, verdict: Verdict | None, explained: _Explained) -> str:
    """Why an item is in the context."""
    keep = explained.rules.keep_recent.get(entry.tool_name or "")
    if keep is not None:
        due = any(offload.item_id == entry.item_id for offload in explained.next.plan.offloads)
        return f"{'leaves next' if due else 'stays'}: {entry.tool_name} keeps its last {keep}"
    if verdict is not None:
        return str(verdict.why)
    if entry.item_type is ItemType.TOOL_RESULT and explained.rules.parameters is None:
        return _NO_RULE_STAYS
    return _STAYS.get(entry.item_type, _MESSAGE_STAYS)


def _input_row(verdict: Verdict) -> _Row:
    return _Row(
        item_id=verdict.item_id,
        item_type=ItemType.TOOL_INPUT,
        tool_name=None,
        place="context",
        tokens=verdict.tokens,
        content_tokens=verdict.tokens,
        why=str(verdict.why),
        verdict=verdict,
    )


def _archived_row(item_id: str, departure: Departure) -> _Row:
    return _Row(
        item_id=item_id,
        item_type=None,
        tool_name=None,
        place="archive",
        tokens=0,
        content_tokens=None,
        why=departure.reason,
        departure=departure,
    )


# Printing ------------------------------------------------------------------------------------------------------------


def _as_dict(explained: _Explained) -> dict[str, Any]:
    told, plan = explained.account, explained.next.plan
    return {
        "session_id": explained.fs.session_id,
        "model": explained.model,
        "replies": told.replies,
        "context_tokens": explained.context_tokens,
        "items": [_row_dict(row, told) for row in _rows(explained)],
        "next": [
            {"item_id": o.item_id, "tokens_before": o.tokens_before, "tokens_after": o.tokens_after, "why": o.reason}
            for o in plan.offloads
        ],
        "effect": _effect(explained),
        "billed": _billed(explained),
    }


def _row_dict(row: _Row, told: Account) -> dict[str, Any]:
    left = row.departure
    return {
        "item_id": row.item_id,
        "item_type": row.item_type,
        "tool_name": row.tool_name,
        "place": row.place,
        "tokens": row.tokens,
        "content_tokens": row.content_tokens,
        "why": row.why,
        "left_after_reply": None if left is None else left.after_call,
        "replies_since": None if left is None else told.calls_since(left),
        "ripe_in_calls": None if row.verdict is None or isinf(row.verdict.ripe_in_calls) else row.verdict.ripe_in_calls,
    }


def _effect(explained: _Explained) -> dict[str, Any]:
    """What eviction did, in uncached input tokens; ``net_usd`` is None when the model has no known prices."""
    told, rates = explained.account, explained.rates
    saved = told.saved(rates, window_tokens=explained.window_tokens)
    rewriting, reading_back = told.rewriting(rates), told.reading_back(rates)
    net = saved - rewriting - reading_back
    return {
        "evictions": len(told.departures),
        "tokens_freed": sum(d.tokens_freed for d in told.departures),
        "saved": saved,
        "rewriting": rewriting,
        "read_backs": len(told.read_backs),
        "reading_back": reading_back,
        "net": net,
        "net_usd": explained.usd(net),
    }


def _billed(explained: _Explained) -> dict[str, Any]:
    """What the provider billed for the calls, and what that comes to by list prices; None: not known."""
    usages = [call.usage for call in explained.account.calls]
    counts = {f.name: sum(getattr(usage, f.name) for usage in usages) for f in fields(Usage)}
    rates = explained.rates
    cost = (
        counts["input_tokens"]
        + counts["cache_read_input_tokens"] * rates.read
        + counts["cache_creation_input_tokens"] * rates.write
        + counts["output_tokens"] * rates.output
    )
    return {"calls": len(usages), **counts, "usd": explained.usd(cost)}


def _print(explained: _Explained, out: Console) -> None:
    told = explained.account
    out.print(str(explained.fs.session_path), style="bold", soft_wrap=True)
    listed = table("item", "tool", "tokens", "of", "left", "why", right=("tokens", "of", "left"))
    for row in _rows(explained):
        if row.place == "archive":
            continue  # the archive's own row speaks for them
        left = "" if row.departure is None else _replies_ago(told.calls_since(row.departure))
        listed.add_row(
            row.item_id,
            label(row.tool_name or (row.item_type or "")),
            tokens(row.tokens),
            tokens(row.content_tokens) if row.departure is not None else "",
            left,
            label(row.why),
            style="" if row.place == "context" else "dim",
        )
    out.print(listed)
    for line in _summary(explained):
        out.print(for_terminal(line), soft_wrap=True)


def _summary(explained: _Explained) -> list[str]:
    did, billed, plan = _effect(explained), _billed(explained), explained.next.plan
    goes_next = ", ".join(o.item_id for o in plan.offloads) or "nothing"
    lines = [
        f"now: {explained.context_tokens:,} tokens after {explained.account.replies:,} replies; next leaves {goes_next}"
    ]
    if did["evictions"]:
        lines.append(
            f"{did['evictions']:,} evictions freed {did['tokens_freed']:,} tokens: about {did['saved']:,.0f} input "
            f"tokens saved since, {did['rewriting']:,.0f} spent on writing anew, {did['reading_back']:,.0f} on "
            f"{did['read_backs']:,} read-backs; net {did['net']:,.0f}{_dollars(did['net_usd'])}"
        )
    if billed["calls"]:
        lines.append(
            f"{billed['calls']:,} calls of {explained.model or 'an unnamed model'} were billed: "
            f"{billed['input_tokens']:,} input, {billed['cache_read_input_tokens']:,} cache read, "
            f"{billed['cache_creation_input_tokens']:,} cache write, {billed['output_tokens']:,} output"
            f"{_dollars(billed['usd'])}"
        )
    return lines


def _dollars(usd: float | None) -> str:
    return "" if usd is None else f" (${usd:,.2f})"


def _replies_ago(count: int) -> str:
    return "1 reply ago" if count == 1 else f"{count:,} replies ago"
