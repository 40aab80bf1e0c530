"""Export and import: a session as one file; copies of a session in two places."""

from ctxfs.transfer.copies import CopiedSession, copy_session
from ctxfs.transfer.sessions import MAX_BYTES, MAX_FILES, Transferred, export_session, import_session

__all__ = [
    "MAX_BYTES",
    "MAX_FILES",
    "CopiedSession",
    "Transferred",
    "copy_session",
    "export_session",
    "import_session",
]
