"""Who has the messages of a session: a context, which records them here, or a program that keeps them itself. Pure."""

from typing import Literal

from ctxfs.errors import ConfigError
from ctxfs.session.state import SessionState

Owner = Literal["Context", "History"]
"""Who opens a session to go on with its conversation."""


def check_owner(session_id: str, state: SessionState, owner: Owner | None) -> None:
    """Raise ``ConfigError`` if ``owner`` cannot go on with a session, since it would find none of its messages.

    None goes on with no conversation. A session that holds neither kind yet may become either; one that both wrote, as
    earlier versions let them, may be gone on with by both.
    """
    # A context would send an empty conversation, and a history would decide again about what the other one replaced.
    if owner == "Context" and state.is_elsewhere:
        raise ConfigError(
            f"session {session_id!r} has no messages: a History, an adapter, a proxy or a plug-in wrote it, for a "
            f"program that keeps them itself. Continue it there, or as History({session_id!r}); a Context or an Agent "
            "needs another session_id"
        )
    if owner == "History" and state.has_messages and not state.decisions:
        raise ConfigError(
            f"session {session_id!r} has messages of its own, which a Context or an Agent wrote: continue it as "
            f"Context({session_id!r}) or with AgentConfig(session_id={session_id!r}); a History or an adapter needs "
            "another session_id"
        )
