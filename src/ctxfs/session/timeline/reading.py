"""Read the timeline of a session from its files, even while another process writes to it."""

from dataclasses import replace
from functools import partial

from ctxfs.errors.checks import names_settings
from ctxfs.session.damaged import with_contents
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.item_records import absolute
from ctxfs.session.timeline.timeline import PastRequest, Timeline
from ctxfs.storage.threads import run_in_steps


async def read_timeline(fs: ContextFileSystem) -> Timeline:
    """Read the journal of an open session, which may be open read-only.

    Raises:
        SessionClosed: the session is not open.

    """
    records = await fs.history()
    return await run_in_steps(lambda: Timeline(records))


@names_settings()
async def past_request(
    fs: ContextFileSystem, call: int | None = None, *, timeline: Timeline | None = None
) -> PastRequest:
    """The request of ``call`` as it was sent; None: the next one, as the context stands now.

    A content that cannot be read is replaced by a text that says so, and its item is marked (``damaged``).
    ``timeline``: the result of ``read_timeline``, to use it for many calls; None reads the journal.

    Raises:
        UnknownCall: there was no such call.
        SessionClosed: the session is not open.

    """
    if timeline is None:
        timeline = await read_timeline(fs)
    state = await run_in_steps(partial(timeline.state_at, call))
    items, _ = await with_contents(tuple(state.items.values()), state.content_stored, fs.load)
    return replace(timeline.request(call, state=state), items=tuple(absolute(item, fs.base) for item in items))
