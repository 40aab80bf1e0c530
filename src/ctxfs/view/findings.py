"""Things in a session that an operator should know: damage, waste, and evicted contents never read back. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ctxfs.eviction.placeholder.lines import plural
from ctxfs.session.recovery import Recovery
from ctxfs.view.activity import Activity, Call, EventKind, ShadowRun

FULL_SHARE = 0.9
"""A request that takes more than this share of the window is close to the limit."""
RATE_CALLS = 8
"""The number of calls over which the cache's hit rate is measured."""
NAMES_SHOWN = 3
FALLEN_RATE = 0.15
"""A hit rate has fallen if it is lower by at least this much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something to look at.

    Args:
        level: "damage" (bytes are lost or changed), "warning" (it cost money or knowledge) or "note".
        title: what it is, in a few words.
        detail: what it means, and what can be done.
        item_ids: the items that it concerns.
        calls: the calls that it concerns.
        beside: what the model did next, to be shown side by side; its texts are not trusted.
    """

    level: Literal["damage", "warning", "note"]
    title: str
    detail: str
    item_ids: tuple[str, ...] = ()
    calls: tuple[int, ...] = ()
    beside: tuple[ShadowRun, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """What was written but not recorded, in a session that no writer has open.

    ``files``: stored contents that the journal does not name. ``torn_bytes``: the size of the journal's last line if
    it is incomplete; else 0.
    """

    files: Sequence[str] = ()
    torn_bytes: int = 0


def findings(
    activity: Activity,
    *,
    window_tokens: int | None,
    recovery: Recovery,
    unfinished: Unfinished = Unfinished(),
) -> Sequence[Finding]:
    """All findings, the worst first.

    Args:
        activity: the session.
        window_tokens: the largest prompt; None: not known.
        recovery: what opening the session found.
        unfinished: what was written but not recorded.
    """
    found = [
        *_damage(recovery),
        *_unrecorded(unfinished),
        *_full(activity, window_tokens),
        *_cache_rate(activity.calls),
        *_misses(activity),
        *_repeated(activity),
        *_never_read(activity),
        *_shadowed(activity.shadow_runs),
    ]
    order = ("damage", "warning", "note")
    return sorted(found, key=lambda finding: order.index(finding.level))


def _damage(recovery: Recovery) -> Iterator[Finding]:
    for content in recovery.contents:
        yield Finding(
            level="damage",
            title="A stored content cannot be read",
            detail=f"{content.name}: {content.detail}. Restore the file from a copy of the session.",
            item_ids=(content.item_id,),
        )
    for damage in recovery.damages:
        yield Finding(
            level="damage",
            title="The journal has a damaged line",
            detail=f"At byte {damage.offset:,}: {damage.reason}. What the line recorded is missing here.",
        )


def _unrecorded(unfinished: Unfinished) -> Iterator[Finding]:
    if unfinished.files:
        yield Finding(
            level="warning",
            title="Contents were stored but not recorded",
            detail=f"The agent ended before the journal named {', '.join(unfinished.files[:NAMES_SHOWN])}"
            f"{' and others' if len(unfinished.files) > NAMES_SHOWN else ''}. "
            "When an agent opens the session again, they become part of it.",
        )
    if unfinished.torn_bytes:
        yield Finding(
            level="warning",
            title="The last change was not completely written",
            detail=f"The journal's last {unfinished.torn_bytes:,} bytes are an incomplete line: the agent ended while "
            "it wrote them. Nothing that had been confirmed as stored is missing.",
        )


def _full(activity: Activity, window_tokens: int | None) -> Iterator[Finding]:
    if window_tokens is None:
        return
    full = tuple(call.number for call in activity.calls if _prompt(call) > FULL_SHARE * window_tokens)
    if full:
        most = max(_prompt(call) for call in activity.calls)
        yield Finding(
            level="warning",
            title=f"The window was over {FULL_SHARE:.0%} full",
            detail=f"The largest request took {most:,} of {window_tokens:,} tokens.",
            calls=full,
        )


def _prompt(call: Call) -> int:
    return call.usage.total_input_tokens if call.usage is not None else call.tokens


def _cache_rate(calls: Sequence[Call]) -> Iterator[Finding]:
    billed = [call for call in calls if call.usage is not None]
    rates = [_rate(billed[n : n + RATE_CALLS]) for n in range(0, len(billed) - RATE_CALLS + 1, RATE_CALLS)]
    if len(rates) < 2:
        return
    best, last = max(rates[:-1]), rates[-1]
    if best - last >= FALLEN_RATE:
        yield Finding(
            level="warning",
            title="The prompt cache is used less than before",
            detail=f"{last:.0%} of the last {RATE_CALLS} prompts was read from it; at best it was {best:.0%}.",
            calls=tuple(call.number for call in billed[-RATE_CALLS:]),
        )


def _rate(calls: Sequence[Call]) -> float:
    usages = [call.usage for call in calls if call.usage is not None]
    total = sum(usage.total_input_tokens for usage in usages)
    return sum(usage.cache_read_input_tokens for usage in usages) / total if total else 0.0


def _misses(activity: Activity) -> Iterator[Finding]:
    missed = [event for event in activity.events if event.kind is EventKind.CACHE_MISSED]
    if missed:
        lost = sum(event.tokens_before - event.tokens_after for event in missed)
        yield Finding(
            level="warning",
            title="The prompt cache lost its contents",
            detail=f"About {lost:,} tokens were written again or paid in full, though nothing before them had changed.",
            calls=tuple(event.call for event in missed),
        )


def _repeated(activity: Activity) -> Iterator[Finding]:
    again = [life for life in activity.items.values() if life.repeated]
    if again:
        times = sum(len(life.repeated) for life in again)
        were = "was" if times == 1 else "were"
        yield Finding(
            level="note",
            title=f"{plural(times, 'call')} {were} made again after the first result had left",
            detail="The same tool, with the same arguments. That is right where something had changed in between, as "
            "when tests run again; where nothing had, the stored result could have been read back.",
            item_ids=tuple(life.item_id for life in again),
            calls=tuple(sorted({call for life in again for call in life.repeated})),
        )


def _never_read(activity: Activity) -> Iterator[Finding]:
    unread = [
        life
        for life in activity.items.values()
        if life.left is not None and life.left.is_eviction and not life.read_backs
    ]
    if unread and not activity.account.is_elsewhere:
        unread.sort(key=lambda life: -(life.tokens or 0))
        were = "was" if len(unread) == 1 else "were"
        yield Finding(
            level="note",
            title=f"{plural(len(unread), 'evicted content')} {were} never needed again",
            detail="The model never read them back. All are still stored, and can be read. The largest come first.",
            item_ids=tuple(life.item_id for life in unread),
        )


def _shadowed(compared: Sequence[ShadowRun]) -> Iterator[Finding]:
    other = tuple(run for run in compared if run.found.differs)
    if compared:
        noise = sum(run.found.is_noise for run in compared)
        back = sum(run.found.reads_back for run in compared)
        yield Finding(
            level="note",
            title=f"The model did something else in {len(other):,} of {plural(len(compared), 'shadow run')}, "
            f"and in {noise:,} without any rewriting",
            detail="Of some requests the original was sent twice more, and the rewritten one once. Models do not "
            "answer the same twice, so what counts is how much more often the rewritten one differs: the command ctxfs "
            f"explain has that with its interval. In {back:,} of the {len(other):,} the model read back what was "
            "hidden.",
            beside=other,
        )
