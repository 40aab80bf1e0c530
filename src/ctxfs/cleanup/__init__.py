"""Cleaning up: forget sessions, prune and erase contents, check them, see what takes the space."""

from ctxfs.cleanup.contents import Pruned, prune, prune_plans, prune_session
from ctxfs.cleanup.erasing import ErasedItem, Erasure, erase, erase_plan
from ctxfs.cleanup.live import Collectable, PrunePlan
from ctxfs.cleanup.policy import ForgetPlan, ForgetPolicy, Verdict
from ctxfs.cleanup.sessions import Forgotten, forget, forget_plan, keep_quota, quota, tag_session
from ctxfs.cleanup.usage import DiskUsage, usage_by_item, usage_by_session, usage_by_tool
from ctxfs.cleanup.verification import CheckedSession, check

__all__ = [
    "CheckedSession",
    "Collectable",
    "DiskUsage",
    "ErasedItem",
    "Erasure",
    "ForgetPlan",
    "ForgetPolicy",
    "Forgotten",
    "PrunePlan",
    "Pruned",
    "Verdict",
    "check",
    "erase",
    "erase_plan",
    "forget",
    "forget_plan",
    "keep_quota",
    "prune",
    "prune_plans",
    "prune_session",
    "quota",
    "tag_session",
    "usage_by_item",
    "usage_by_session",
    "usage_by_tool",
]
