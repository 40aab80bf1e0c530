"""A session on a store: the write-ahead log, its state, and what opening it finds."""

from ctxfs.content.blocks import BlockIndex
from ctxfs.content.growing import GrowingLog
from ctxfs.content.reader import BlockRange, ContentReader, IndexCache
from ctxfs.content.stored import Stored
from ctxfs.session.archive_reading import archived
from ctxfs.session.damaged import DamagedContent
from ctxfs.session.filesystem import ContextFileSystem, list_sessions, remove_session
from ctxfs.session.journal import Damage
from ctxfs.session.names import ENVELOPE, TEXT, Layout, NameAllocator
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
from ctxfs.session.shared import SharedFileSystem
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
    "ContentRemoved",
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
    "NoteWritten",
    "OffloadStats",
    "PartsNoted",
    "Pinned",
    "Problem",
    "Record",
    "Recovery",
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
    "ToolsDefined",
    "Undone",
    "UnknownRecord",
    "VerifyReport",
    "WriterOpened",
    "archived",
    "list_sessions",
    "remove_session",
]
