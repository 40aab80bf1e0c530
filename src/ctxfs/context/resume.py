"""Resume a session: its recorded items, made a valid transcript again if the journal was damaged."""

import logging
from dataclasses import replace

from ctxfs.context.live import LiveTranscript
from ctxfs.context.repair import repaired
from ctxfs.eviction.window import CompactionController
from ctxfs.messages.items import ContextItem
from ctxfs.messages.tokens import TokenCounter
from ctxfs.session.damaged import counted
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import Pinned
from ctxfs.session.timeline.back import Back
from ctxfs.session.timeline.bring_back import bring_back
from ctxfs.storage.threads import uninterrupted

_log = logging.getLogger("ctxfs.context")


async def resume(live: LiveTranscript, controller: CompactionController, counter: TokenCounter) -> None:
    """Fill ``live`` with the items of its open session, and let ``controller`` learn from the session's calls."""
    live.begin()
    fs = live.fs
    items = await _repaired(counted(await fs.items(), counter), fs, counter)
    for found in fs.recovery.contents:
        _log.warning("session %s: %s", fs.session_id, found)
    await live.take_in(items, counter)
    controller.resumed()
    for call in fs.state.calls:
        if not call.summary:
            controller.observe(call.usage, call.model, call.counted_tokens)
    text = "session %s: opened with %d items, %s tokens, after %d calls, in %s"
    held = f"{live.transcript.tokens:,}"
    _log.info(text, fs.session_id, len(items), held, len(fs.state.calls), fs.base)


@uninterrupted
async def go_back(live: LiveTranscript, back: Back, counter: TokenCounter) -> None:
    """Record ``back``, and rebuild the transcript from the session, as after a restart."""
    await bring_back(live.fs, back)
    if back:
        await _rebuild(live, counter)


@uninterrupted
async def pin_whole(live: LiveTranscript, item: ContextItem) -> ContextItem:
    """Record that an item whose content is in the context is pinned, and keep it: nothing has to be read for that."""
    await live.fs.writer.record([Pinned(item_ids=(item.id,))])
    kept = replace(item, pinned=True)
    live.transcript.pin(kept)
    return kept


@uninterrupted
async def unpin(live: LiveTranscript, item: ContextItem, counter: TokenCounter) -> None:
    """Record that an item is not pinned any more, and let the rules evict it again.

    What was pinned since the session was opened is known as it was before. An item that came in pinned has no
    placeholder, and one that was restored a moment ago stays for a while: these are built again from the session.
    """
    await live.fs.writer.record([Pinned(item_ids=(item.id,), pinned=False)])
    if item.id in live.fs.state.restored or not live.transcript.unpin(replace(item, pinned=False)):
        await _rebuild(live, counter)


async def _rebuild(live: LiveTranscript, counter: TokenCounter) -> None:
    live.begin()
    items = counted(await live.fs.items(), counter)
    await live.take_in(items, counter)


async def _repaired(
    items: tuple[ContextItem, ...], fs: ContextFileSystem, counter: TokenCounter
) -> tuple[ContextItem, ...]:
    """Make a valid transcript of what a damaged journal left, and record the changes; safe to repeat after a crash."""
    repairs = repaired(items, names=fs.writer.names, counter=counter)
    if not repairs:
        return items
    for item, before in repairs.added:
        await fs.writer.add([item], before=before)
    if repairs.removed:
        await fs.writer.remove(repairs.removed, reason="its call is lost: the journal was damaged")
    text = (
        "session %s: the journal was damaged; %d messages were added and %d left out, so that the transcript is valid"
    )
    _log.warning(text, fs.session_id, len(repairs.added), len(repairs.removed))
    return repairs.items
