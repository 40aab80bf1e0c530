"""What eviction would have done to a recorded session, item by item."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ctxfs.errors import ReplayFormatError
from ctxfs.errors.checks import names_settings
from ctxfs.lab.recordings.formats.table import EXPECTED, load
from ctxfs.lab.recordings.recording import Kind
from ctxfs.lab.replay.lab import Loaded, Thread, Tokens, load_threads, policy_for, replay_thread, run_policies, ttl_of
from ctxfs.lab.replay.report import Eviction, Report, Watched
from ctxfs.lab.replay.session import Item
from ctxfs.lab.replay.tariff import PriceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedItem:
    """A result of a tool, or the arguments of a call, in a recording.

    Args:
        thread: the part of the recording that it is in, from 1; compactions and sub-agents begin another.
        call: the call of the model, from 1 in its thread, that was the first to see it.
        kind: whether it is a result, or the arguments of a call.
        tool: the tool's name.
        tokens: what it takes.
        left_before_call: the call that no longer saw it; None: it stays.
        tokens_after: what is in its place at the end.
        why: the planner's reason; empty for what stays.
        read_backs: how often a reply needed it afterwards.
    """

    thread: int
    call: int
    kind: Literal["result", "arguments"]
    tool: str
    tokens: int
    left_before_call: int | None
    tokens_after: int
    why: str
    read_backs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSession:
    """One recording with ctxfs: what it comes to, and its items in order.

    ``cache_ttl_s``: after how many seconds without a call its prompt cache is lost; infinite where no times are known.
    """

    report: Report
    items: tuple[RecordedItem, ...]
    cache_ttl_s: float


@names_settings()
def explain_recording(
    path: Path,
    tokens: Tokens = "o200k",
    *,
    prices: PriceOptions = PriceOptions(),  # noqa: B008 - a frozen value
) -> tuple[RecordedSession, ...]:
    """Replay the recordings in a file with what ctxfs does by default, and say what happens to each item.

    Raises:
        ReplayFormatError: the file is in no known format, or has no reply of a model in it.
        MissingExtra: its format needs a package that is not installed.
        OSError: the file cannot be read.
    """
    loaded = [load_threads(recording, tokens, prices) for recording in load(path)]
    found = tuple(_explained(one, tokens, is_repriced=prices.is_own) for one in loaded if one.threads)
    if not found:
        raise ReplayFormatError(f"{path}: no reply of a model in it, so nothing to explain; expected {EXPECTED}")
    return found


def _explained(loaded: Loaded, tokens: Tokens, *, is_repriced: bool) -> RecordedSession:
    session = run_policies(loaded, policies=("none", "economic"))
    items = [item for number, thread in enumerate(loaded.threads, 1) for item in _items(number, thread)]
    report = Report(tokens=tokens, sessions=(session,), is_repriced=is_repriced)
    return RecordedSession(report=report, items=tuple(items), cache_ttl_s=min(map(ttl_of, loaded.threads)))


def _items(number: int, thread: Thread) -> Sequence[RecordedItem]:
    watched = Watched(policy_for("economic", "prefix", thread))
    replay_thread(thread, watched)
    found = []
    for place, turn in enumerate(thread.session.turns, 1):
        seen = [(item, place) for item in turn.added] + [(item, place + 1) for item in turn.reply]
        found += [
            _item(number, call, item, watched.evictions.get(item.index))
            for item, call in seen
            if item.kind in (Kind.TOOL_RESULT, Kind.TOOL_INPUT)
        ]
    return found


def _item(thread: int, call: int, item: Item, eviction: Eviction | None) -> RecordedItem:
    return RecordedItem(
        thread=thread,
        call=call,
        kind="result" if item.kind is Kind.TOOL_RESULT else "arguments",
        tool=item.tool,
        tokens=item.tokens,
        left_before_call=eviction.call if eviction is not None else None,
        tokens_after=eviction.tokens if eviction is not None else item.tokens,
        why=eviction.why if eviction is not None else "",
        read_backs=eviction.read_backs if eviction is not None else 0,
    )
