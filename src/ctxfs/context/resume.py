"""Resuming a session: what was recorded, made a valid transcript again where the journal was damaged."""

import logging

from anyio import to_thread

from ctxfs.context.live import LiveTranscript
from ctxfs.context.repair import repaired
from ctxfs.eviction.window import CompactionController
from ctxfs.items import ContextItem
from ctxfs.session.damaged import counted
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.tokens import TokenCounter

__all__ = ["resume"]

_log = logging.getLogger("ctxfs")


async def resume(live: LiveTranscript, controller: CompactionController, counter: TokenCounter) -> None:
    """Fill ``live`` with what its open session holds, and let ``controller`` learn from the session's calls."""
    live.begin()
    fs = live.fs
    items = await _repaired(counted(await fs.items(), counter), fs, counter)
    for found in fs.recovery.contents:
        _log.warning("session %s: %s", fs.session_id, found)
    turns = [call for call in fs.calls if not call.summary]

    def take_in() -> None:
        last_call_at = turns[-1].made_at if turns else None
        live.transcript.resume(
            items,
            known=live.known,
            rules=live.entry_rules(counter),
            last_call_at=last_call_at,
            restored=fs.state.replies_since_restored(),
        )
        controller.resumed(turns)

    await to_thread.run_sync(take_in)


async def _repaired(
    items: tuple[ContextItem, ...], fs: ContextFileSystem, counter: TokenCounter
) -> tuple[ContextItem, ...]:
    """Make what a damaged journal left a valid transcript, and record how; what is cut short goes on next time."""
    repairs = repaired(items, names=fs.writer.names, counter=counter)
    if not repairs:
        return items
    for item, before in repairs.added:
        await fs.writer.add([item], before=before)
    if repairs.removed:
        await fs.writer.remove(repairs.removed, reason="its call is lost: the journal was damaged")
    text = "session %s: the journal was damaged; to go on, %d messages were put in and %d left out"
    _log.warning(text, fs.session_id, len(repairs.added), len(repairs.removed))
    return repairs.items
