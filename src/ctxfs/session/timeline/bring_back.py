"""Bring back, in its session, what left a context: contents are read first, and then it is recorded."""

from collections.abc import Callable, Sequence

from ctxfs.errors import ContextOverflow, NotRestorable
from ctxfs.session.filesystem import ContextFileSystem, reading_once
from ctxfs.session.records import Record
from ctxfs.session.timeline.back import Back
from ctxfs.storage.threads import run_in_steps

_OWNED = (
    "its messages are in a framework, a program or your own list, and what was replaced in them stays so, since the "
    "prompt cache holds it. Add the content, which `ctxfs cat` prints, to the history as a new message. To keep the "
    "results of a tool from now on, name it in keep_recent; a part with stays=True is never replaced"
)


async def bring_back(fs: ContextFileSystem, back: Back) -> None:
    """Record ``back`` in one commit. A context that is open on ``fs`` does not notice: use its own methods.

    Raises:
        CorruptContent: a content that comes back is damaged. Nothing changed.
        NotStored: a content that comes back is missing. Nothing changed.
        WriteFailed: ``back`` could not be recorded. Nothing changed.
        SessionClosed: the session is not open for writing.

    """
    for item_id in back.reads:
        await fs.load(item_id)
    if back:
        await fs.writer.record(back.records)


async def change_session(
    reader: ContextFileSystem, decide: Callable[[Sequence[Record]], Back], *, fits: bool = True
) -> tuple[Back, int]:
    """Bring back what ``decide`` returns in a session that nobody has open; return it, and the tokens before it.

    ``reader``: the session, open for reading only; if it is ``reading_once``, its journal is decoded only once.

    ``fits``: refuse it if the context would no longer fit the session's window. Where there is nothing to do, and where
    it is refused, nothing is written: the session stays as old as it was.

    Raises:
        NotRestorable: a framework owns the messages (see ``History``). Nothing changed.
        ContextOverflow: it would not fit. Nothing changed.
        SessionLocked: an agent has the session open.

    Also raises what ``decide`` and ``bring_back`` raise.

    """
    # Opening for writing adds lines to the journal, so it is decided first from the session as it is read.
    back, now = await _decided(reader, decide, fits=fits)
    for item_id in back.reads:
        await reader.load(item_id)
    if not back:
        return back, now
    fs = reading_once(ContextFileSystem(reader.session_id, root_path=reader.stores), after=reader)
    await fs.open(create=False)
    try:
        back, now = await _decided(fs, decide, fits=fits)  # another writer may have changed it since
        await bring_back(fs, back)
    finally:
        await fs.close()
    return back, now


async def _decided(
    fs: ContextFileSystem, decide: Callable[[Sequence[Record]], Back], *, fits: bool
) -> tuple[Back, int]:
    """What is to come back in an open session, and the tokens of its context now."""
    if fs.state.is_elsewhere:
        raise NotRestorable(fs.session_id, _OWNED, done="changed")
    records = await fs.history()
    back = await run_in_steps(lambda: decide(records))
    now = sum(item.token_count for item in fs.state.items.values())
    limit = None if fs.state.eviction is None else fs.state.eviction.window_tokens
    if fits and limit is not None and back.tokens > 0 and now + back.tokens > limit:
        what = back.change or "this"
        raise ContextOverflow(limit, now + back.tokens, back.item_ids, why=f"{what} would bring back")
    return back, now
