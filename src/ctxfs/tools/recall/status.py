"""The dashboard of an open session, as the model sees it."""

from ctxfs.messages.tokens import TokenCounter, default_counter, require_counter
from ctxfs.text.steps import run_in_steps
from ctxfs.tools.recall.archive import PastSession
from ctxfs.tools.recall.dashboard import Dashboard


async def context_status(session: PastSession, max_tokens: int, counter: TokenCounter | None = None) -> str:
    """The state of the session's context in at most about ``max_tokens`` tokens, by ``counter`` (None: the default)."""
    require_counter(counter)
    past = await session.refresh()
    state = session.fs.state
    dashboard = Dashboard(
        items=tuple(state.items.values()),
        past=past,
        notes=dict(state.notes),
        window_tokens=None if state.eviction is None else state.eviction.window_tokens,
    )
    return await run_in_steps(lambda: dashboard.render(max_tokens, counter or default_counter()))
