"""What was in a session's context at every call of the model, and what changed from one call to the next."""

from ctxfs.timeline.calls import Call
from ctxfs.timeline.changes import Changes, ItemChange, What
from ctxfs.timeline.fork import Forked, fork_session
from ctxfs.timeline.reading import past_request, read_timeline
from ctxfs.timeline.request import PastRequest
from ctxfs.timeline.timeline import Timeline, Walk

__all__ = [
    "Call",
    "Changes",
    "Forked",
    "ItemChange",
    "PastRequest",
    "Timeline",
    "Walk",
    "What",
    "fork_session",
    "past_request",
    "read_timeline",
]
