"""The SQL of sessions in Postgres. Pure: each statement is a value, and runs as a transaction of its own.

A writer changes a session with one statement. It begins with ``fenced``, which increments the commit count in the
session's row, provided that the epoch is the writer's own and the count is the one that the writer knows. Everything
else in the statement takes its rows from ``fenced``, so nothing is done for a writer that was taken over, nor for a
statement that arrives twice. No connection has to be kept for a session: there are no prepared statements, no settings
and no locks that outlive a statement.

A file is a sequence of rows of at most 1 MiB, so that reading a page does not read the whole file, and output can grow.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

__all__ = [
    "Change",
    "Part",
    "Statement",
    "forget",
    "list_sessions",
    "log_from",
    "look",
    "names_with",
    "parts_of",
    "read_part",
    "size_of",
    "take",
]

PART_BYTES: Final = 1 << 20

SCHEMA: Final = """
select pg_advisory_xact_lock(hashtext('ctxfs_schema'));
create table if not exists ctxfs_session (
    id text collate "C" primary key,
    epoch bigint not null,                 -- counts the writers
    writer text not null,                  -- the writer's random name; '' when it released the session
    was_let_go boolean not null,           -- whether the writer before it released the session
    until timestamptz not null,            -- the end of the lease
    commits bigint not null,               -- counts the changes
    nonce text not null,                   -- names the last change, for a writer that got no answer
    log_end bigint not null,
    changed timestamptz not null,
    removed boolean not null
);
create table if not exists ctxfs_log (
    session text collate "C",
    start bigint,
    data bytea not null,
    primary key (session, start)
);
create table if not exists ctxfs_part (
    session text collate "C",
    name text collate "C",
    start bigint,
    data bytea not null,
    primary key (session, name, start)
);
alter table ctxfs_part alter data set storage external;
"""
"""EXTERNAL storage is not compressed, so reading a range is cheap; ctxfs compresses contents itself."""


class Statement(NamedTuple):
    """SQL, and the values of its named parameters."""

    sql: str
    values: Mapping[str, Any]


class Part(NamedTuple):
    """A row of a file."""

    name: str
    start: int
    data: bytes


def parts_of(name: str, data: bytes) -> list[Part]:
    """Divide a content into rows; an empty one has a row too."""
    return [Part(name, start, data[start : start + PART_BYTES]) for start in range(0, len(data) or 1, PART_BYTES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one commit changes.

    ``new``: files that must not exist. ``over``: files that may exist. ``grown``: bytes to append to files. ``gone``:
    files to delete. ``line``: bytes to append to the log. ``cut``: the length to which the log is cut. ``relog``: bytes
    that replace the log, and have the same length. ``release``: the writer releases the session. ``remove``: the
    session is removed.
    """

    new: Sequence[Part] = ()
    over: Sequence[Part] = ()
    grown: Mapping[str, bytes] = field(default_factory=dict)
    gone: Sequence[str] = ()
    line: bytes = b""
    cut: int | None = None
    relog: bytes | None = None
    release: bool = False
    remove: bool = False

    def statement(self, *, session: str, epoch: int, commits: int, nonce: str, ttl_s: float) -> Statement:
        """Return the statement. It returns a row unless the writer was fenced or the change was made before."""
        steps, values = self._steps()
        head = {"id": session, "epoch": epoch, "commits": commits, "nonce": nonce, "ttl": ttl_s}
        values |= {**head, "length": len(self.line), "cut": self.cut}
        sql = ", ".join([f"fenced as ({_FENCED.format(more=self._columns())})", *steps])
        return Statement(f"with {sql} select log_end from fenced", values)  # noqa: S608 - only our own text

    def _columns(self) -> str:
        columns = [
            ", log_end = least(log_end, %(cut)s)" if self.cut is not None else ", log_end = log_end + %(length)s"
        ]
        columns += [", writer = ''"] * (self.release or self.remove)
        return "".join([*columns, *([", removed = true"] * self.remove)])

    def _steps(self) -> tuple[list[str], dict[str, Any]]:
        """The changes to rows other than the session's. Their order is undefined, so no two change the same row."""
        steps: list[str] = []
        values: dict[str, Any] = {}
        if self.line:
            steps.append("line as (insert into ctxfs_log select id, log_end - %(length)s, %(line)b from fenced)")
            values["line"] = self.line
        if self.new:
            steps.append(f"made as ({_INSERT.format(rows='new')})")
            values |= _columns_of("new", self.new)
        if self.over:
            steps.append(f"put as ({_INSERT.format(rows='over')} on conflict (session, name, start) {_OVERWRITE})")
            steps.append(f"rest as ({_REST})")
            values |= _columns_of("over", self.over)
        if self.grown:
            steps.append(f"grown as ({_GROW})")
            values |= {"grown_names": list(self.grown), "grown_data": list(self.grown.values())}
        if self.gone:
            steps.append(
                "gone as (delete from ctxfs_part using fenced where session = id and name = any(%(gone)s::text[]))"
            )
            values["gone"] = list(self.gone)
        if self.cut is not None:
            steps += [f"cut as ({_CUT})", f"torn as ({_TORN})"]
        if self.relog is not None:
            steps.append(f"relog as ({_RELOG})")
            values["relog"] = self.relog
        if self.remove:
            steps += [f"no_{table} as ({_DELETE.format(table=table)})" for table in ("log", "part")]
        return steps, values


_FENCED = """
    update ctxfs_session set commits = commits + 1, nonce = %(nonce)s, changed = clock_timestamp(),
        until = clock_timestamp() + %(ttl)s * interval '1 second'{more}
    where id = %(id)s and epoch = %(epoch)s and commits = %(commits)s returning id, log_end"""
_ROWS = (
    "unnest(%({rows}_names)s::text[], %({rows}_starts)s::bigint[], %({rows}_data)b::bytea[]) as p (name, start, data)"
)
_INSERT = "insert into ctxfs_part select id, p.name, p.start, p.data from fenced, {source}".replace("{source}", _ROWS)
_OVERWRITE = "do update set data = excluded.data"
_REST = """
    delete from ctxfs_part using fenced where session = id and name = any(%(over_names)s::text[])
    and not exists (select from unnest(%(over_names)s::text[], %(over_starts)s::bigint[]) as p (name, start)
        where p.name = ctxfs_part.name and p.start = ctxfs_part.start)"""
_GROW = """
    insert into ctxfs_part select id, p.name, coalesce((select max(f.start + octet_length(f.data)) from ctxfs_part as f
        where f.session = id and f.name = p.name), 0), p.data
    from fenced, unnest(%(grown_names)s::text[], %(grown_data)b::bytea[]) as p (name, data)
    on conflict (session, name, start) do update set data = excluded.data"""  # an empty file's one row is replaced
_CUT = "delete from ctxfs_log using fenced where session = id and start >= %(cut)s"
_TORN = """
    update ctxfs_log set data = substr(data, 1, (%(cut)s - start)::int) from fenced
    where session = id and start < %(cut)s and start + octet_length(data) > %(cut)s"""
_RELOG = """
    update ctxfs_log set data = substr(%(relog)b, start::int + 1, octet_length(data)) from fenced
    where session = id and data <> substr(%(relog)b, start::int + 1, octet_length(data))"""
_DELETE = "delete from ctxfs_{table} using fenced where session = id"


def _columns_of(rows: str, parts: Iterable[Part]) -> dict[str, Any]:
    names, starts, data = zip(*parts, strict=True)
    return {f"{rows}_names": list(names), f"{rows}_starts": list(starts), f"{rows}_data": list(data)}


def take(session: str, *, writer: str, mine: Iterable[str], ttl_s: float, nonce: str, create: bool) -> Statement:
    """Become the writer: a row of epoch, commits, and whether the last writer let go; no row: another one has it."""
    values = {"id": session, "writer": writer, "mine": list(mine), "ttl": ttl_s, "nonce": nonce}
    taken = """
        set epoch = s.epoch + 1, was_let_go = s.writer = '', writer = %(writer)s, nonce = %(nonce)s, removed = false,
            until = clock_timestamp() + %(ttl)s * interval '1 second', changed = clock_timestamp()
        where {which} (s.writer = '' or s.until <= clock_timestamp() or s.writer = any(%(mine)s::text[]))
        returning epoch, commits, was_let_go"""
    if not create:
        return Statement("update ctxfs_session as s" + taken.format(which="id = %(id)s and not removed and"), values)
    insert = """
        insert into ctxfs_session as s values (%(id)s, 1, %(writer)s, true,
            clock_timestamp() + %(ttl)s * interval '1 second', 0, %(nonce)s, 0, clock_timestamp(), false)
        on conflict (id) do update"""
    return Statement(insert + taken.format(which=""), values)


def look(session: str) -> Statement:
    """Ask for a session's epoch, commits, nonce, writer, and whether it was removed; no row: no such session."""
    return Statement(
        "select epoch, commits, nonce, writer, removed from ctxfs_session where id = %(id)s", {"id": session}
    )


def read_part(session: str, name: str, offset: int, length: int | None) -> Statement:
    """Read a range of a file: rows of bytes, in order; no row: there is no such file, or nothing in the range."""
    end = None if length is None else offset + length
    values = {"id": session, "name": name, "offset": offset, "end": end}
    sql = """
        select substr(data, greatest(1, %(offset)s - start + 1)::int,
            greatest(0, least(octet_length(data), {end} - start) - greatest(0, %(offset)s - start))::int)
        from ctxfs_part where session = %(id)s and name = %(name)s and start < {end}
        and start + octet_length(data) > %(offset)s order by start"""
    last = "9223372036854775807" if end is None else "%(end)s"
    return Statement(sql.replace("{end}", last), values)


def size_of(session: str, name: str) -> Statement:
    """Ask for the size of a file; None: there is no such file."""
    sql = "select max(start + octet_length(data)) from ctxfs_part where session = %(id)s and name = %(name)s"
    return Statement(sql, {"id": session, "name": name})


def names_with(session: str, prefix: str) -> Statement:
    """List the files whose names begin with ``prefix``, sorted."""
    sql = """
        select name from ctxfs_part
        where session = %(id)s and start = 0 and starts_with(name, %(prefix)s) order by name"""
    return Statement(sql, {"id": session, "prefix": prefix})


def log_from(session: str, offset: int) -> Statement:
    """Read the log from the row that contains ``offset`` on: starts and bytes."""
    sql = """
        select start, data from ctxfs_log where session = %(id)s and start >= coalesce((select max(start) from ctxfs_log
        where session = %(id)s and start <= %(offset)s), 0) order by start"""
    return Statement(sql, {"id": session, "offset": offset})


def forget(session: str) -> Statement:
    """Delete a session and its row. Its id must never be used again, and no writer of it may still be running."""
    sql = """
        with parts as (delete from ctxfs_part where session = %(id)s),
            lines as (delete from ctxfs_log where session = %(id)s)
        delete from ctxfs_session where id = %(id)s"""
    return Statement(sql, {"id": session})


def list_sessions() -> Statement:
    """List the sessions, sorted: ids, epochs, commits, and when each was changed, in seconds since the epoch."""
    sql = """
        select id, epoch, commits, extract(epoch from changed)::double precision
        from ctxfs_session where not removed order by id"""
    return Statement(sql, {})
