"""Recorded sessions as the page shows them: their cost under each policy, and what would have been evicted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from ctxfs.errors import ReplayFormatError
from ctxfs.lab.recordings.formats.table import load
from ctxfs.lab.recordings.recording import Block, Recording, Role
from ctxfs.lab.replay.answer import LIMITS, answer, cheaper, check
from ctxfs.lab.replay.lab import replay_files
from ctxfs.lab.replay.policies import LAB_POLICIES
from ctxfs.lab.replay.recorded import RecordedItem, explain_recording
from ctxfs.lab.replay.report import Report, SessionReport, cumulative

TEXT_SHOWN = 4_000
"""The most characters of a block that are shown with its call."""
TEXT_A_PAGE = 40_000
"""The most characters of a block on a page of its own."""
EVICTIONS_SHOWN = 60
"""How many evictions are listed, unless all are requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One call of a recording: what was new in its request, and the reply. Nothing in it is trusted."""

    number: int
    added: Sequence[tuple[Role, Block]]
    reply: Sequence[Block]

    @property
    def blocks(self) -> Sequence[Block]:
        """All blocks, in order."""
        return [*(block for _, block in self.added), *self.reply]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A recording, replayed.

    Args:
        report: the report of this recording alone, under all policies.
        items: what happened to each result and to the arguments of each call.
        calls: the calls of all its threads.
        starts: for each thread, how many calls come before it.
    """

    report: Report
    items: Sequence[RecordedItem]
    calls: Sequence[RecordedCall]
    starts: Sequence[int]

    @property
    def session(self) -> SessionReport:
        """The recording under all policies."""
        return self.report.sessions[0]

    def left_before(self, item: RecordedItem) -> int | None:
        """The first call that no longer saw the item, counted over all threads; None: it stays."""
        return None if item.left_before_call is None else self.starts[item.thread - 1] + item.left_before_call

    def came_with(self, item: RecordedItem) -> int:
        """The first call that saw the item, counted over all threads."""
        return self.starts[item.thread - 1] + item.call

    def contexts(self, call: int) -> Mapping[str, int]:
        """What the request of a call carries with nothing evicted, and with the default policy, in tokens."""
        runs = [run for run in self.session.runs if run.policy in ("none", "economic")]
        return {run.policy: run.figures.calls[call - 1].context_tokens for run in runs}

    @property
    def chart(self) -> Mapping[str, Any]:
        """Lines over the calls, for the page's script: the context of each policy, and its cost so far."""
        runs = self.session.runs
        return {
            "calls": list(range(1, self.session.calls + 1)),
            "window": self.session.compacts_at,
            "steps": [],
            "lines": [{"name": r.policy, "values": [c.context_tokens for c in r.figures.calls]} for r in runs],
            "costs": [{"name": r.policy, "values": [round(c) for c in cumulative(r.figures.calls)]} for r in runs],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPage:
    """What is on the page of a recording.

    Args:
        number: the place of its file among the files that were given.
        place: the place of the recording in its file, from 1.
        names: the names of the recordings in that file.
        file: the recording, replayed.
        answer: the result, in a sentence.
        check: how far the replay is from the bill; empty without a bill.
        cheaper: why each policy that costs less here is not the default.
        limits: what such a replay cannot know.
        call: the call that is shown; None: there is none.
        contexts: what its request carries with nothing evicted ("none") and with ctxfs ("economic"), in tokens.
        left: what would have been evicted before that call.
        evictions: the evictions that there would have been, in order: the first ones, or all.
        more_evictions: how many more there are that are not listed.
        text_shown: how many characters of a block are shown; a page of its own shows all of it.
    """

    number: int
    place: int
    names: Sequence[str]
    file: Replayed
    answer: str
    check: str
    cheaper: Sequence[str]
    limits: str
    call: RecordedCall | None
    contexts: Mapping[str, int]
    left: Sequence[RecordedItem]
    evictions: Sequence[RecordedItem]
    more_evictions: int
    text_shown: int = TEXT_SHOWN


def recorded_page(
    number: int, files: Sequence[Replayed], place: int, call: int | None, *, shows_all: bool = False
) -> RecordedPage:
    """The page of the recording at ``place``, from 1, with one of its calls; if they do not exist, the nearest ones.

    ``call``: None is the last one. ``shows_all``: all evictions are listed.
    """
    place = min(max(1, place), len(files))
    file = files[place - 1]
    shown = len(file.calls) if call is None else min(max(1, call), len(file.calls))
    gone = [item for item in file.items if item.left_before_call is not None]
    evictions = gone if shows_all else gone[:EVICTIONS_SHOWN]
    return RecordedPage(
        number=number,
        place=place,
        names=[one.session.session for one in files],
        file=file,
        answer=answer(file.report),
        check=check(file.report),
        cheaper=cheaper(file.report),
        limits=LIMITS,
        call=file.calls[shown - 1] if file.calls else None,
        contexts=file.contexts(shown) if file.calls else {},
        left=[item for item in gone if file.left_before(item) == shown],
        evictions=evictions,
        more_evictions=len(gone) - len(evictions),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedText:
    """A page of one block of a call. Not trusted. ``first``: the place of its first character, from 0, of ``total``."""

    call: RecordedCall
    block: Block
    text: str
    first: int
    total: int

    @property
    def previous_first(self) -> int | None:
        """Where the page before begins; None: this is the first one."""
        return max(0, self.first - TEXT_A_PAGE) if self.first else None

    @property
    def next_first(self) -> int | None:
        """Where the next page begins; None: this is the last one."""
        end = self.first + len(self.text)
        return end if end < self.total else None


def recorded_text(page: RecordedPage, place: int, first: int) -> RecordedText:
    """The text of a block of the page's call from the character ``first`` on.

    ``place``: the block's index in ``RecordedCall.blocks``. Raises ``ReplayFormatError`` if there is no such block.
    """
    if page.call is None or not place < len(page.call.blocks):
        raise ReplayFormatError(f"no block {place}: go back to the recording and choose one")
    block = page.call.blocks[place]
    first = min(first, max(0, len(block.text) - 1))
    text = block.text[first : first + TEXT_A_PAGE]
    return RecordedText(call=page.call, block=block, text=text, first=first, total=len(block.text))


@dataclass(slots=True)
class RecordedFiles:
    """The files that were given; each is read and replayed when it is first shown."""

    paths: Sequence[Path] = ()
    _known: dict[int, Sequence[Replayed]] = field(default_factory=dict)
    _turn: anyio.Lock = field(default_factory=anyio.Lock)

    @property
    def names(self) -> Sequence[str]:
        """The names of the files."""
        return [path.name for path in self.paths]

    async def page(self, number: int, *, place: int, call: int | None, shows_all: bool) -> RecordedPage:
        """The page of one call of a recording: see ``recorded_page``. Raises as ``get``."""
        return recorded_page(number, await self.get(number), place, call, shows_all=shows_all)

    def text(self, page: RecordedPage, block: int, first: int) -> RecordedText:
        """A page of the text of one block: see ``recorded_text``."""
        return recorded_text(page, block, first)

    async def get(self, number: int) -> Sequence[Replayed]:
        """The recordings in file ``number``, from 0.

        Raises:
            ReplayFormatError: there is no such file, its format is unknown, or it contains no reply of a model.
            OSError: the file cannot be read.
        """
        async with self._turn:
            if not number < len(self.paths):
                raise ReplayFormatError(f"there is no recording {number}: {len(self.paths)} were given")
            if number not in self._known:
                self._known[number] = await anyio.to_thread.run_sync(partial(_read, self.paths[number]))
            return self._known[number]


def _read(path: Path) -> Sequence[Replayed]:
    explained, report = explain_recording(path), replay_files([path], LAB_POLICIES)
    recordings = [one for one in load(path) if one.threads()]
    found = []
    for session, told in zip(report.sessions, explained, strict=True):
        while recordings[0].name != session.session:
            del recordings[0]  # the report leaves out recordings in which nothing can be counted
        threads = [list(_calls(thread)) for thread in recordings.pop(0).threads()]
        calls = [replace(call, number=n) for n, call in enumerate((c for thread in threads for c in thread), 1)]
        starts = tuple(accumulate(map(len, threads), initial=0))
        found.append(
            Replayed(report=replace(report, sessions=(session,)), items=told.items, calls=calls, starts=starts)
        )
    return found


def _calls(thread: Recording) -> Iterator[RecordedCall]:
    added: list[tuple[Role, Block]] = []
    for message in thread.messages:
        if message.role is Role.ASSISTANT:
            yield RecordedCall(number=0, added=tuple(added), reply=message.blocks)
            added = []
        else:
            added += [(message.role, block) for block in message.blocks]
