"""A session on a store: its log, contents, recovery, history, transfer and clean-up.

The names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import OTHER_NAMES, lazy

if TYPE_CHECKING:
    from ctxfs.session.cleanup.contents import Pruned, prune, prune_session
    from ctxfs.session.cleanup.erasing import ErasedItem, Erasure, erase, erase_plan
    from ctxfs.session.cleanup.live import Collectable, PrunePlan
    from ctxfs.session.cleanup.policy import ForgetPlan, ForgetPolicy, Verdict
    from ctxfs.session.cleanup.sessions import Forgotten, forget, forget_plan, keep_quota, tag_session
    from ctxfs.session.cleanup.usage import DiskUsage, usage_by_item, usage_by_session, usage_by_tool
    from ctxfs.session.cleanup.verification import CheckedSession, check
    from ctxfs.session.content.growing import GrowingLog
    from ctxfs.session.content.reader import ContentReader
    from ctxfs.session.content.stored import Stored
    from ctxfs.session.copying import CopiedSession, copy_session
    from ctxfs.session.damaged import DamagedContent
    from ctxfs.session.entries import archived
    from ctxfs.session.filesystem import ContextFileSystem
    from ctxfs.session.journal import Damage
    from ctxfs.session.records import (
        CallMade,
    )
    from ctxfs.session.recovery import Recovery
    from ctxfs.session.redaction import Redaction
    from ctxfs.session.state import SessionState
    from ctxfs.session.timeline.changes import Call, Changes, ItemChange, What
    from ctxfs.session.timeline.effect import Effect
    from ctxfs.session.timeline.fork import Forked, fork_session
    from ctxfs.session.timeline.reading import past_request, read_timeline
    from ctxfs.session.timeline.timeline import PastRequest, Timeline
    from ctxfs.session.transfer.sessions import Transferred, export_session, import_session
    from ctxfs.session.verify import Problem, VerifyReport
    from ctxfs.session.writer import SessionWriter
    from ctxfs.storage.local import remove_session

__all__ = [
    "Call",
    "CallMade",
    "Changes",
    "CheckedSession",
    "Collectable",
    "ContentReader",
    "ContextFileSystem",
    "CopiedSession",
    "Damage",
    "DamagedContent",
    "DiskUsage",
    "Effect",
    "ErasedItem",
    "Erasure",
    "ForgetPlan",
    "ForgetPolicy",
    "Forgotten",
    "Forked",
    "GrowingLog",
    "ItemChange",
    "PastRequest",
    "Problem",
    "PrunePlan",
    "Pruned",
    "Recovery",
    "Redaction",
    "SessionState",
    "SessionWriter",
    "Stored",
    "Timeline",
    "Transferred",
    "Verdict",
    "VerifyReport",
    "What",
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
    "past_request",
    "prune",
    "prune_session",
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
        "ctxfs.storage.local": ("remove_session",),
        "ctxfs.session.entries": ("archived",),
        "ctxfs.session.cleanup.contents": (
            "Pruned",
            "prune",
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
        "ctxfs.session.content.growing": ("GrowingLog",),
        "ctxfs.session.content.reader": ("ContentReader",),
        "ctxfs.session.content.stored": ("Stored",),
        "ctxfs.session.damaged": ("DamagedContent",),
        "ctxfs.session.filesystem": ("ContextFileSystem",),
        "ctxfs.session.journal": ("Damage",),
        "ctxfs.session.records": ("CallMade",),
        "ctxfs.session.recovery": ("Recovery",),
        "ctxfs.session.redaction": ("Redaction",),
        "ctxfs.session.state": ("SessionState",),
        "ctxfs.session.timeline.changes": (
            "Call",
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
        "ctxfs.session.timeline.timeline": (
            "PastRequest",
            "Timeline",
        ),
        "ctxfs.session.copying": (
            "CopiedSession",
            "copy_session",
        ),
        "ctxfs.session.transfer.sessions": (
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
    renamed=OTHER_NAMES,
)
