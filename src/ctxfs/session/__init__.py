"""A session on a store: the write-ahead log, its state, and what opening it finds."""

from ctxfs.content.blocks import BlockIndex
from ctxfs.content.growing import GrowingLog
from ctxfs.content.reader import BlockRange, ContentReader, IndexCache
from ctxfs.content.stored import Stored
from ctxfs.session.damaged import DamagedContent
from ctxfs.session.filesystem import ContextFileSystem, list_sessions, remove_session
from ctxfs.session.journal import Damage
from ctxfs.session.names import ENVELOPE, TEXT, Layout, NameAllocator
from ctxfs.session.records import (
    CallMade,
    Closed,
    Decided,
    EvictionSet,
    ItemAdded,
    PartsNoted,
    Record,
    Removed,
    Replaced,
    Restored,
    SessionStarted,
    UnknownRecord,
    WriterOpened,
)
from ctxfs.session.recovery import Recovery
from ctxfs.session.state import OffloadStats, SessionState
from ctxfs.session.verify import Problem, VerifyReport
from ctxfs.session.writer import SessionWriter

__all__ = [
    "ENVELOPE",
    "TEXT",
    "BlockIndex",
    "BlockRange",
    "CallMade",
    "Closed",
    "ContentReader",
    "ContextFileSystem",
    "Damage",
    "DamagedContent",
    "Decided",
    "EvictionSet",
    "GrowingLog",
    "IndexCache",
    "ItemAdded",
    "Layout",
    "NameAllocator",
    "OffloadStats",
    "PartsNoted",
    "Problem",
    "Record",
    "Recovery",
    "Removed",
    "Replaced",
    "Restored",
    "SessionStarted",
    "SessionState",
    "SessionWriter",
    "Stored",
    "UnknownRecord",
    "VerifyReport",
    "WriterOpened",
    "list_sessions",
    "remove_session",
]
