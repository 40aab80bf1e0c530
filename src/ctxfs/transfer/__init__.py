"""Export and import: a session as one file."""

from ctxfs.transfer.sessions import MAX_BYTES, MAX_FILES, Transferred, export_session, import_session

__all__ = ["MAX_BYTES", "MAX_FILES", "Transferred", "export_session", "import_session"]
