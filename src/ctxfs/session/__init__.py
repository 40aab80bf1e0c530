"""A session on a store: its log, contents, recovery, history, transfer and clean-up.

The names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import lazy

if TYPE_CHECKING:
    from ctxfs.session.archive_reading import archived
    from ctxfs.session.cleanup.contents import Pruned, prune, prune_plans, prune_session
    from ctxfs.session.cleanup.erasing import ErasedItem, Erasure, erase, erase_plan
    from ctxfs.session.cleanup.live import Collectable, PrunePlan
    from ctxfs.session.cleanup.policy import ForgetPlan, ForgetPolicy, Verdict
    from ctxfs.session.cleanup.sessions import Forgotten, forget, forget_plan, keep_quota, quota, tag_session
    from ctxfs.session.cleanup.usage import DiskUsage, usage_by_item, usage_by_session, usage_by_tool
    from ctxfs.session.cleanup.verification import CheckedSession, check
    from ctxfs.session.content.blocks import BlockIndex
    from ctxfs.session.content.growing import GrowingLog
    from ctxfs.session.content.reader import BlockRange, ContentReader, IndexCache
    from ctxfs.session.content.stored import Stored
    from ctxfs.session.damaged import DamagedContent
    from ctxfs.session.filesystem import ContextFileSystem
    from ctxfs.session.journal import Damage
    from ctxfs.session.records import (
        CallMade,
        Closed,
        ContentRemoved,
        Decided,
        EvictionSet,
        ItemAdded,
        NoteWritten,
        PartsNoted,
        Pinned,
        Record,
        Removed,
        Replaced,
        RequestSent,
        Restored,
        SessionStarted,
        SessionTagged,
        ToolsDefined,
        Undone,
        UnknownRecord,
        WriterOpened,
    )
    from ctxfs.session.recovery import Recovery
    from ctxfs.session.redaction import Redaction
    from ctxfs.session.shared import SharedFileSystem
    from ctxfs.session.state import OffloadStats, SessionState
    from ctxfs.session.timeline.calls import Call
    from ctxfs.session.timeline.changes import Changes, ItemChange, What
    from ctxfs.session.timeline.effect import Effect
    from ctxfs.session.timeline.fork import Forked, fork_session
    from ctxfs.session.timeline.reading import past_request, read_timeline
    from ctxfs.session.timeline.request import PastRequest
    from ctxfs.session.timeline.timeline import Timeline, Walk
    from ctxfs.session.transfer.copies import CopiedSession, copy_session
    from ctxfs.session.transfer.sessions import MAX_BYTES, MAX_FILES, Transferred, export_session, import_session
    from ctxfs.session.verify import Problem, VerifyReport
    from ctxfs.session.writer import SessionWriter
    from ctxfs.storage.local import list_sessions, remove_session

__all__ = [
    "MAX_BYTES",
    "MAX_FILES",
    "BlockIndex",
    "BlockRange",
    "Call",
    "CallMade",
    "Changes",
    "CheckedSession",
    "Closed",
    "Collectable",
    "ContentReader",
    "ContentRemoved",
    "ContextFileSystem",
    "CopiedSession",
    "Damage",
    "DamagedContent",
    "Decided",
    "DiskUsage",
    "Effect",
    "ErasedItem",
    "Erasure",
    "EvictionSet",
    "ForgetPlan",
    "ForgetPolicy",
    "Forgotten",
    "Forked",
    "GrowingLog",
    "IndexCache",
    "ItemAdded",
    "ItemChange",
    "NoteWritten",
    "OffloadStats",
    "PartsNoted",
    "PastRequest",
    "Pinned",
    "Problem",
    "PrunePlan",
    "Pruned",
    "Record",
    "Recovery",
    "Redaction",
    "Removed",
    "Replaced",
    "RequestSent",
    "Restored",
    "SessionStarted",
    "SessionState",
    "SessionTagged",
    "SessionWriter",
    "SharedFileSystem",
    "Stored",
    "Timeline",
    "ToolsDefined",
    "Transferred",
    "Undone",
    "UnknownRecord",
    "Verdict",
    "VerifyReport",
    "Walk",
    "What",
    "WriterOpened",
    "archived",
    "check",
    "copy_session",
    "erase",
    "erase_plan",
    "export_session",
    "forget",
    "forget_plan",
    "fork_session",
    "import_session",
    "keep_quota",
    "list_sessions",
    "past_request",
    "prune",
    "prune_plans",
    "prune_session",
    "quota",
    "read_timeline",
    "remove_session",
    "tag_session",
    "usage_by_item",
    "usage_by_session",
    "usage_by_tool",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.storage.local": (
            "list_sessions",
            "remove_session",
        ),
        "ctxfs.session.archive_reading": ("archived",),
        "ctxfs.session.cleanup.contents": (
            "Pruned",
            "prune",
            "prune_plans",
            "prune_session",
        ),
        "ctxfs.session.cleanup.erasing": (
            "ErasedItem",
            "Erasure",
            "erase",
            "erase_plan",
        ),
        "ctxfs.session.cleanup.live": (
            "Collectable",
            "PrunePlan",
        ),
        "ctxfs.session.cleanup.policy": (
            "ForgetPlan",
            "ForgetPolicy",
            "Verdict",
        ),
        "ctxfs.session.cleanup.sessions": (
            "Forgotten",
            "forget",
            "forget_plan",
            "keep_quota",
            "quota",
            "tag_session",
        ),
        "ctxfs.session.cleanup.usage": (
            "DiskUsage",
            "usage_by_item",
            "usage_by_session",
            "usage_by_tool",
        ),
        "ctxfs.session.cleanup.verification": (
            "CheckedSession",
            "check",
        ),
        "ctxfs.session.content.blocks": ("BlockIndex",),
        "ctxfs.session.content.growing": ("GrowingLog",),
        "ctxfs.session.content.reader": (
            "BlockRange",
            "ContentReader",
            "IndexCache",
        ),
        "ctxfs.session.content.stored": ("Stored",),
        "ctxfs.session.damaged": ("DamagedContent",),
        "ctxfs.session.filesystem": ("ContextFileSystem",),
        "ctxfs.session.journal": ("Damage",),
        "ctxfs.session.records": (
            "CallMade",
            "Closed",
            "ContentRemoved",
            "Decided",
            "EvictionSet",
            "ItemAdded",
            "NoteWritten",
            "PartsNoted",
            "Pinned",
            "Record",
            "Removed",
            "Replaced",
            "RequestSent",
            "Restored",
            "SessionStarted",
            "SessionTagged",
            "ToolsDefined",
            "Undone",
            "UnknownRecord",
            "WriterOpened",
        ),
        "ctxfs.session.recovery": ("Recovery",),
        "ctxfs.session.redaction": ("Redaction",),
        "ctxfs.session.shared": ("SharedFileSystem",),
        "ctxfs.session.state": (
            "OffloadStats",
            "SessionState",
        ),
        "ctxfs.session.timeline.calls": ("Call",),
        "ctxfs.session.timeline.changes": (
            "Changes",
            "ItemChange",
            "What",
        ),
        "ctxfs.session.timeline.effect": ("Effect",),
        "ctxfs.session.timeline.fork": (
            "Forked",
            "fork_session",
        ),
        "ctxfs.session.timeline.reading": (
            "past_request",
            "read_timeline",
        ),
        "ctxfs.session.timeline.request": ("PastRequest",),
        "ctxfs.session.timeline.timeline": (
            "Timeline",
            "Walk",
        ),
        "ctxfs.session.transfer.copies": (
            "CopiedSession",
            "copy_session",
        ),
        "ctxfs.session.transfer.sessions": (
            "MAX_BYTES",
            "MAX_FILES",
            "Transferred",
            "export_session",
            "import_session",
        ),
        "ctxfs.session.verify": (
            "Problem",
            "VerifyReport",
        ),
        "ctxfs.session.writer": ("SessionWriter",),
    },
)
