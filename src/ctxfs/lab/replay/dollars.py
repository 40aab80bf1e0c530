"""What replays cost in dollars, and bills that stand in two files."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ctxfs.lab.replay.cost import READ_BACK_OUTPUT_TOKENS, Cost
from ctxfs.lab.replay.report import SessionReport
from ctxfs.lab.replay.session import Session, Turn
from ctxfs.lab.replay.tariff import Tariff


def written_tokens(session: Session, cost: Cost) -> int:
    """What the model wrote: its replies as billed, or as counted where that is more, and the read-backs."""
    return sum(map(reply_tokens, session.turns)) + cost.read_backs * READ_BACK_OUTPUT_TOKENS


def session_usd(threads: Sequence[tuple[Session, Tariff]], costs: Sequence[Cost]) -> float | None:
    """What replays of all threads cost; None: the price of one is not known. Read-backs' output is in their cost."""
    total = 0.0
    for (session, tariff), cost in zip(threads, costs, strict=True):
        if tariff.usd_per_token is None:
            return None
        output = sum(map(reply_tokens, session.turns))
        total += (cost.cost + tariff.rates.output * output) * tariff.usd_per_token
    return total


def reply_tokens(turn: Turn) -> int:
    """The tokens of a reply: as billed, or as counted where that is more.

    Some recordings have only the beginning of what was billed for output: what they hold cannot be less.
    """
    billed = turn.call.usage.output_tokens if turn.call is not None and turn.call.usage is not None else 0
    return max(billed, sum(item.tokens for item in turn.reply))


def once_billed(sessions: Iterable[SessionReport]) -> tuple[SessionReport, ...]:
    """The sessions with each call in the bill of one only: agents copy a session's beginning when they resume it."""
    seen: set[str] = set()
    found = []
    for session in sessions:
        own = tuple(call for call in session.bill if not call.id or call.id not in seen)
        seen.update(call.id for call in own if call.id)
        found.append(replace(session, bill=own, repeated_calls=len(session.bill) - len(own)))
    return tuple(found)
