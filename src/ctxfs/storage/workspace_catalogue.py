"""The SQLite file of a workspace's catalogue: its tables, and how they are checked."""

import sqlite3
from pathlib import Path

from ctxfs.storage.database import DerivedDatabase, row_crc
from ctxfs.text.jsontext import codec as json_codec

CATALOGUE_NAME = ".catalogue.sqlite"
COLUMNS = (
    *("session_id", "artifact_id", "raw_id", "context_type", "biz_id"),
    *("agent_id", "task_id", "tool_name", "action_name", "artifact_type"),
)
_VERSION = 1
_SCHEMA = f"""
CREATE TABLE sessions (session_id TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, inode INTEGER, log_end INTEGER,
    last_seq INTEGER, anchor INTEGER, artifacts INTEGER, crc INTEGER) WITHOUT ROWID;
CREATE TABLE artifacts (session_id TEXT, position INTEGER, {", ".join(f"{name} TEXT" for name in COLUMNS[1:])},
    crc INTEGER, PRIMARY KEY (session_id, position)) WITHOUT ROWID;
CREATE TABLE records (session_id TEXT, position INTEGER, record BLOB, crc INTEGER,
    PRIMARY KEY (session_id, position)) WITHOUT ROWID;
CREATE INDEX by_id ON artifacts (artifact_id);
CREATE INDEX by_type ON artifacts (context_type, session_id, position, tool_name, task_id, agent_id, action_name);
CREATE INDEX by_raw_id ON artifacts (raw_id);
CREATE INDEX by_biz_id ON artifacts (biz_id);
CREATE INDEX by_task ON artifacts (task_id, session_id, position, context_type, tool_name, agent_id, action_name);
"""


def catalogue_file(root: Path) -> DerivedDatabase:
    """The file of the catalogue of the sessions under ``root``."""
    functions = (("metadata_of", 2, _metadata_of),)
    return DerivedDatabase(
        root / CATALOGUE_NAME, schema=_SCHEMA, version=_VERSION, check=_check_rows, functions=functions
    )


def _check_rows(db: sqlite3.Connection) -> None:
    counts = dict(db.execute("SELECT session_id, count(*) FROM artifacts GROUP BY session_id").fetchall())
    for session_id, *row in db.execute("SELECT * FROM sessions"):
        if row[-1] != row_crc(session_id, *row[:-1]) or counts.pop(session_id, 0) != row[-2]:
            raise sqlite3.DatabaseError("the catalogue is damaged")
    rows = db.execute("SELECT a.*, r.crc FROM artifacts a LEFT JOIN records r USING (session_id, position)")
    if counts or any(crc != row_crc(*row, record_crc) for *row, crc, record_crc in rows):
        raise sqlite3.DatabaseError("the catalogue is damaged")


def _metadata_of(record: bytes, key: str) -> str:
    return json_codec.dumps(json_codec.loads(record).get("metadata", {}).get(json_codec.loads(key))).decode()
