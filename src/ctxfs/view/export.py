"""The page of a session as one file that opens without a server: its figures, charts, warnings, calls and items."""

import base64
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ctxfs.errors import CtxfsError
from ctxfs.messages.messages import readable_text, title_of
from ctxfs.session.listing.summary import Question
from ctxfs.session.redaction import Redaction
from ctxfs.storage.threads import run_in_steps, run_to_completion
from ctxfs.view.activity import Call, Event, ItemLife
from ctxfs.view.activity_builder import ActivityBuilder
from ctxfs.view.content import message_of
from ctxfs.view.pages import Pages, static_files
from ctxfs.view.session_page import SessionPage
from ctxfs.view.sources import OpenSession

CONTENT_CHARS = 3_000
"""The most characters of one content in the file."""
SEARCHED_CHARS = 32_000_000
"""The most characters of one content that are searched for what must not be shown: they are held in memory at once. No
beginning of a larger one is shown, since a match may start in it and end behind it."""
ALL_CHARS = 12_000_000
"""The most characters of all contents together."""
_BATCH_CHARS = 1_000_000
"""How many characters are searched in one step. A step of its own for each content would cost more than the search."""
_BATCH_ITEMS = 500
"""The most contents of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedItem:
    """An item and the beginning of its content; ``more``: there is more of it. ``problem``: why it cannot be read."""

    life: ItemLife
    text: str
    more: bool
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedCall:
    """A call, and what happened before it."""

    call: Call
    events: Sequence[Event]


async def exported_page(opened: OpenSession, redaction: Redaction) -> str:
    """The file's text. ``redaction``: what is left out of it.

    Raises what reading the session raises, except for damaged contents: the file shows the error in their place.
    """
    builder = ActivityBuilder(redaction=redaction)
    await run_in_steps(lambda: builder.feed(opened.records))
    activity = builder.activity
    chars = min(CONTENT_CHARS, ALL_CHARS // max(1, len(activity.items)))
    items = await _items(opened, list(activity.items.values()), redaction, chars)
    page = (await SessionPage.of(opened)).redacted(activity, _question(opened.question, items))
    pages, files = await run_to_completion(lambda: (Pages(redaction.shown), static_files()))
    style = b"\n".join(files[name][0] for name in sorted(files) if name.endswith(".css")).decode()
    scripts = [files[name][0].decode() for name in sorted(files) if name.endswith(".js") and "htmx" not in name]
    allowed = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    return pages.render(
        "export.html",
        page=page,
        items=items,
        calls=[
            ExportedCall(call=call, events=[e for e in activity.events if e.call == call.number])
            for call in activity.calls
        ],
        data=_chart(page, redaction),
        style=pages.markup(style),
        scripts=[pages.markup(script) for script in scripts],
        policy=(
            f"default-src 'none'; script-src {allowed}; style-src 'sha256-{_hash(style)}'; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        ),
        hides_contents=redaction.contents,
    )


def _question(first: Question | None, items: Sequence[ExportedItem]) -> str:
    """The headline: the beginning of the first question, from which everything is left out already."""
    return next((title_of(one.text) for one in items if first is not None and one.life.item_id == first.item_id), "")


def _chart(page: SessionPage, redaction: Redaction) -> Mapping[str, Any]:
    """The data of the charts. The ids in it are the only texts that are not ours."""
    chart = page.chart
    lanes = [{**lane, "items": [redaction.shown(item_id) for item_id in lane["items"]]} for lane in chart["lanes"]]
    return {**chart, "lanes": lanes}


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


class _Read(NamedTuple):
    """A content as it was read, before anything is left out of it; ``problem``: why it cannot be shown."""

    life: ItemLife
    text: str
    problem: str = ""


async def _items(
    opened: OpenSession, lives: Sequence[ItemLife], redaction: Redaction, chars: int
) -> list[ExportedItem]:
    if redaction.contents:
        return [ExportedItem(life=life, text="", more=False) for life in lives]
    items: list[ExportedItem] = []
    batch: list[_Read] = []
    batch_chars = 0
    for life in lives:
        read = await _read(opened, life, SEARCHED_CHARS if redaction.patterns else chars, redaction)
        batch.append(read)
        batch_chars += len(read.text)
        if batch_chars >= _BATCH_CHARS or len(batch) >= _BATCH_ITEMS:
            items += await run_in_steps(partial(_shown, batch, redaction, chars))
            batch = []
            batch_chars = 0
    return items + await run_in_steps(partial(_shown, batch, redaction, chars))


async def _read(opened: OpenSession, life: ItemLife, limit: int, redaction: Redaction) -> _Read:
    """The first ``limit`` characters of a content, and one more if there are more."""
    try:
        text = "".join([piece async for piece in _beginning(opened, life.item_id, limit + 1)])
    except CtxfsError as error:
        return _Read(life, "", str(error))
    if redaction.patterns and len(text) > limit:
        problem = f"it has more than {limit:,} characters, too many to search for what is to be left out of this file"
        return _Read(life, "", problem)
    return _Read(life, text)


def _shown(batch: Sequence[_Read], redaction: Redaction, chars: int) -> list[ExportedItem]:
    items: list[ExportedItem] = []
    for read in batch:
        if read.problem:
            items.append(ExportedItem(life=read.life, text="", more=False, problem=read.problem))
            continue
        text = redaction.content(read.text)
        items.append(ExportedItem(life=read.life, text=text[:chars], more=len(text) > chars))
    return items


async def _beginning(opened: OpenSession, item_id: str, chars: int) -> AsyncIterator[str]:
    """The first ``chars`` characters of a content."""
    fs, left = opened.fs, chars
    if item_id not in fs.state.stored:
        yield readable_text(await message_of(fs, item_id))[:left]
        return
    async with aclosing(fs.reader(item_id).text_blocks()) as pieces:
        async for piece in pieces:
            yield piece[:left]
            left -= len(piece)
            if left <= 0:
                return
