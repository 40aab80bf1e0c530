"""Who has the messages of a session: a context, which records them here, or a program that keeps them itself. Pure."""

from typing import Literal

from ctxfs.errors import ConfigError
from ctxfs.session.state import SessionState

Owner = Literal["Context", "History"]
"""Who opens a session to go on with its conversation."""


class OtherOwner(ConfigError):
    """The session cannot be continued here, since its messages are kept by another kind of program."""


def check_owner(session_id: str, state: SessionState, owner: Owner | None) -> None:
    """Raise ``OtherOwner`` if ``owner`` cannot go on with a session, since it would find none of its messages.

    None goes on with no conversation. A session that holds neither kind yet may become either. Where a context's
    messages stand beside a history's decisions or notes, as earlier versions let both write, both may go on; bills
    alone do not say that there was a history, since a context has them, too.
    """
    # A context would send an empty conversation, and a history would decide again about what the other one replaced.
    if owner == "Context" and state.is_elsewhere:
        raise OtherOwner(
            f"session {session_id!r} has no messages: a History, an adapter, a proxy or a plug-in wrote it, for a "
            f"program that keeps them itself. Continue it there, or as History({session_id!r}) with the same "
            "root_path; a Context or an Agent needs another session_id"
        )
    has_both = state.decisions or state.noted_tokens or state.noted_sources
    if owner == "History" and state.has_messages and not has_both:
        raise OtherOwner(
            f"session {session_id!r} has messages of its own, which a Context or an Agent wrote: continue it as "
            f"Context({session_id!r}) or with AgentConfig(session_id={session_id!r}); a History or an adapter needs "
            "another session_id"
        )
