"""Ask a stored content that is JSON, JSON lines or CSV with SQL, instead of reading its pages.

Its rows become tables of a database in memory, which is made for one question and dropped after it. A question can only
read them: no statement but SELECT is allowed, and none reaches a file, another database or a setting.
"""

import csv
import io
import math
import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from ctxfs.errors import ToolError
from ctxfs.messages.tokens import TokenCounter
from ctxfs.storage.threads import run_in_steps
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.text.steps import checkpoint
from ctxfs.tools.base import Tool, ToolResult
from ctxfs.tools.stored import Scope, reading_tool

MAX_BYTES = 12 * 1024 * 1024
"""A larger content is not parsed: that alone would take the time that a question has."""
MAX_SQL_CHARS = 10_000
MAX_COLUMNS = 500
_CPU_S = 0.9
"""The most CPU time of a question, in seconds, with the making of its tables."""
_STEPS = 20  # of SQLite's machine between two looks at the time; one takes a millisecond at most, by what is allowed
_ROWS_AT_ONCE = 500
_MAX_CELL_CHARS = 1_000
_MAX_VALUE_BYTES = 64 * 1024
"""No value may be larger: one step of SQLite may take as long as its values are, and cannot be stopped."""
_MAX_TRIMMED = 100
_MAX_PATTERN_CHARS = 1_000
_SHOWN_COLUMNS = 40
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:(\.\d+)?(?:[eE][+-]?\d{1,2})?)?")
_TEXT = re.compile(r"'(?:[^']|'')*'")
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_ALIAS = re.compile(r'(?i)\bas\s+"((?:[^"]|"")*)"')
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_FUNCTIONS = frozenset(
    re.findall(
        r"\S+",
        "abs avg ceil ceiling char coalesce concat concat_ws count cume_dist date datetime dense_rank first_value "
        "floor format group_concat if ifnull iif instr json json_array json_array_length json_each json_extract "
        "json_group_array json_group_object json_object json_quote json_tree json_type json_valid julianday lag "
        "last_value lead length like ln log log10 lower ltrim max min mod nth_value ntile nullif octet_length "
        "percent_rank pow power printf rank replace round row_number rtrim sign sqrt strftime string_agg substr "
        "substring sum time timediff total trim trunc typeof unicode unixepoch upper -> ->>",
    )
)
"""What a question may call. Not among them is what makes large values (``zeroblob``), or takes more than linear time
(``glob``); ``like``, ``instr`` and ``replace`` are our own, since SQLite's are slow on texts made for that."""

Cell = str | int | float | None


@dataclass
class Table:
    """Rows with the same columns. A row that is shorter has no values in the last columns."""

    name: str
    columns: dict[str, int] = field(default_factory=dict)
    rows: list[list[Cell]] = field(default_factory=list)

    def add(self, value: Any) -> None:
        """Add a row for a JSON value: an object's fields, with those of objects in it by "outer.inner"."""
        row: list[Cell] = [None] * len(self.columns)
        for name, cell in _fields(value, ""):
            place = self.columns.setdefault(name, len(self.columns))
            if place == len(row):
                row.append(cell)
            else:
                row[place] = cell
        self.check_columns()
        self.rows.append(row)

    def check_columns(self) -> None:
        """Raise ``ToolError`` if there are too many columns."""
        if len(self.columns) > MAX_COLUMNS:
            raise ToolError(f"this content has more than {MAX_COLUMNS} columns: read it by lines or by a path")


def tables_of(text: str, check: Callable[[], None] = checkpoint) -> list[Table]:
    """The tables in a content: ``rows`` for a list, JSON lines or CSV; of an object its lists, by their names.

    What else an object holds is the one row of ``top``, or of ``rows`` if it has no list. ``check`` is called now and
    then, and may raise.

    Raises:
        ToolError: the content has no rows, or more columns than a table may have.
        ValueError: a value is nested too deeply.

    """
    text = text.removeprefix("\ufeff")
    try:
        value = json_codec.loads(text)
    except ValueError:
        lines = [line for line in text.split("\n") if line.strip()]  # other separators may stand inside of JSON
        try:
            value = [json_codec.loads(line) for line in lines]
        except ValueError:
            return [_csv(text)]
    if isinstance(value, list):
        return [_table("rows", value, check)]
    if not isinstance(value, dict):
        raise ToolError("this content has no rows: it is a single value, so read it")
    lists = {key: one for key, one in value.items() if isinstance(one, list) and one}
    rest = {key: one for key, one in value.items() if key not in lists}
    made = [_table(key, one, check) for key, one in lists.items()]
    if rest:
        made.append(_table("top" if made else "rows", [rest], check))
    return made


def _table(name: str, values: Sequence[Any], check: Callable[[], None]) -> Table:
    table = Table(name)
    for number, value in enumerate(values):
        if number % _ROWS_AT_ONCE == 0:
            check()
        table.add(value)
    return table


def _fields(value: Any, prefix: str) -> Iterator[tuple[str, Cell]]:
    """The columns of a value and what stands in them; a value that is no object has the column ``value``."""
    if not isinstance(value, Mapping):
        yield "value", _cell(value)
        return
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, Mapping) and inner:
            yield from _fields(inner, f"{name}.")
        else:
            yield name, _cell(inner)


def _cell(value: Any) -> Cell:
    """A JSON value as SQLite has it: true is 1, and a list is JSON, for ``json_each`` and ``json_extract``."""
    if value is None or isinstance(value, float):
        return value
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return int(value)
        return str(value)
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # SQLite has no lone surrogates
    return json_codec.dumps_text(value).encode("utf-8", "replace").decode()


def _csv(text: str) -> Table:
    """The table in a content whose lines are split by a comma, a semicolon or a tab. Raises ``ToolError``."""
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    if first.count(delimiter) == 0:
        raise ToolError("this content has no rows: it is neither JSON, nor JSON lines, nor CSV, so read or search it")
    try:
        lines = list(csv.reader(io.StringIO(text), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise ToolError(f"this content has no rows: as CSV it is wrong: {error}") from error
    header = lines[0]
    lines = [line for line in lines[1:] if line]
    if not lines or any(len(line) != len(header) for line in lines):
        raise ToolError("this content has no rows: its lines do not have as many fields as the first one")
    table = Table("rows")
    for name in header:
        table.columns[_free(name or "column", table.columns)] = len(table.columns)
        table.check_columns()
    table.rows = [[_number(cell) for cell in line] for line in lines]
    return table


def _number(cell: str) -> Cell:
    """A field of CSV: a number if it is written as JSON writes one, so that 007 stays what it is; "" is no value."""
    if not cell:
        return None
    found = _NUMBER.fullmatch(cell)
    if found is None:
        return cell.encode("utf-8", "replace").decode()
    return int(cell) if cell.lstrip("-").isdecimal() else float(cell)


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """``name``, or with a number: SQLite does not tell A from a."""
    known = {one.casefold() for one in taken}
    free = name
    number = 1
    while free.casefold() in known:
        number += 1
        free = f"{name}_{number}"
    return free


class Question:
    """A question to tables, answered within a CPU time; ``clock`` gives the time that this thread has used."""

    def __init__(self, sql: str, *, clock: Callable[[], float] = time.thread_time) -> None:
        self._sql = sql
        self._clock = clock
        self._ends = clock() + _CPU_S

    def answer(self, text: str, max_rows: int) -> tuple[list[str], list[tuple[Any, ...]], bool]:
        """The columns and rows of the answer, and whether there are more than ``max_rows``.

        Raises:
            ToolError: what is wrong with the question, or the content; it names the tables and columns.

        """
        try:
            tables = tables_of(text, self._check)
        except (ValueError, RecursionError) as error:
            raise ToolError("a value in this content is nested too deeply for a question: read it by a path") from error
        with closing(sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
            database.setlimit(
                sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _MAX_PATTERN_CHARS
            )  # LIKE ... ESCAPE is SQLite's
            # So what is sorted takes little memory; the file has no name, and goes with the database.
            database.execute("PRAGMA temp_store = FILE")
            named: dict[str, list[str]] = {}
            for table in tables:
                name = _free(table.name or "rows", named)
                named[name] = self._load(database, name, table)
            self._lock(database)
            try:
                cursor = database.execute(self._sql)
                found = cursor.fetchmany(max_rows + 1)
            except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
                raise self._wrong(error, named) from error
            if cursor.description is None:
                raise ToolError(f"use one SELECT. {_described(named)}")
            self._check_quoted(named, {column[0] for column in cursor.description})
            return [column[0] for column in cursor.description], found[:max_rows], len(found) > max_rows

    def _load(self, database: sqlite3.Connection, name: str, table: Table) -> list[str]:
        """Make the table ``name``; return its columns, by the names that a question may use."""
        free: dict[str, int] = {}
        for column in table.columns:
            free[_free(column or "column", free)] = len(free)
        columns = list(free) or ["value"]
        width = len(columns)
        try:
            database.execute(f"CREATE TABLE {_quoted(name)} ({', '.join(map(_quoted, columns))})")
        except sqlite3.DataError as error:  # SQLite keeps this statement, which the limit on values bounds, too
            raise ToolError("the names of the columns of this content are too long: search it") from error
        insert = f"INSERT INTO {_quoted(name)} VALUES ({', '.join('?' * width)})"  # noqa: S608 - quoted
        database.execute("BEGIN")
        for start in range(0, len(table.rows), _ROWS_AT_ONCE):
            self._check()
            rows = table.rows[start : start + _ROWS_AT_ONCE]
            try:
                database.executemany(insert, [[*row, *[None] * (width - len(row))] for row in rows])
            except sqlite3.DataError as error:  # the limit on values
                raise ToolError(f"a value is larger than {_MAX_VALUE_BYTES:,} bytes: search this content") from error
        database.execute("COMMIT")
        return columns

    def _check(self) -> None:
        checkpoint()
        if self._clock() > self._ends:
            raise ToolError("this content has too many rows for a question: search it, or read a part by its path")

    def _lock(self, database: sqlite3.Connection) -> None:
        """Allow nothing from here on but to read these tables, for as long as there is time."""
        database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        database.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, MAX_SQL_CHARS * 4)
        for function in ("json_each", "json_tree"):  # these are tables, which are made when they are first used
            database.execute(f"SELECT 1 FROM {function}('[]')")  # noqa: S608 - one of two names
        for name, arguments, own in _OWN:
            database.create_function(name, arguments, own, deterministic=True)
        database.set_authorizer(_authorized)
        database.set_progress_handler(self._is_over, _STEPS)

    def _check_quoted(self, named: Mapping[str, Sequence[str]], given: Collection[str]) -> None:
        """Refuse a name in double quotes that nothing has: SQLite would take it for a text, and answer with that."""
        bare = _TEXT.sub("''", self._sql)
        names = [*named, *given, *_ALIAS.findall(bare)]
        for columns in named.values():
            names += columns
        known = set(map(str.casefold, names))
        for name in _QUOTED.findall(bare):
            if name.replace('""', '"').casefold() not in known:
                raise ToolError(f"no such column: {name}. {_described(named)}")

    def _is_over(self) -> int:
        checkpoint()
        return int(self._clock() > self._ends)

    def _wrong(self, error: Exception, named: Mapping[str, Sequence[str]]) -> ToolError:
        if "interrupted" in str(error):
            checkpoint()  # nobody waits any more
            return ToolError(f"the question took too long: ask for less, with WHERE or LIMIT. {_described(named)}")
        if re.search("not authori[sz]ed|authorization|prohibited|one statement", str(error)):
            return ToolError(f"only one SELECT of this content is allowed. {_described(named)}")
        return ToolError(f"{str(error).rstrip('.')}. {_described(named)}")


def _authorized(action: int, first: str | None, second: str | None, *_: Any) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        allowed = (second or "").casefold() in _FUNCTIONS
    elif action == sqlite3.SQLITE_READ:
        allowed = not (first or "").casefold().startswith("pragma_")
    else:
        allowed = action in _ALLOWED
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _like(pattern: Any, value: Any) -> bool | None:
    """SQLite's LIKE, also for letters beyond ASCII: the first place of each part between % is as good as any other."""
    if pattern is None or value is None:
        return None
    if len(str(pattern)) > _MAX_PATTERN_CHARS:
        raise ValueError("the pattern is too long")
    text = str(value)
    parts = [re.escape(part).replace("_", ".") for part in str(pattern).split("%")]
    if len(parts) == 1:
        return re.fullmatch(parts[0], text, re.IGNORECASE | re.DOTALL) is not None
    first, *middle, last = parts
    found = re.match(first, text, re.IGNORECASE | re.DOTALL)
    for part in middle:
        if found is None:
            return False
        found = re.compile(part, re.IGNORECASE | re.DOTALL).search(text, found.end())
    if found is None:
        return False
    return re.compile(rf"{last}\Z", re.IGNORECASE | re.DOTALL).search(text, found.end()) is not None


def _instr(value: Any, part: Any) -> int | None:
    if value is None or part is None:
        return None
    return str(value).find(str(part)) + 1


def _replace(value: Any, old: Any, new: Any) -> str | None:
    if value is None or old is None or new is None:
        return None
    if not str(old):
        return str(value)
    return str(value).replace(str(old), str(new))


def _trimming(strip: Callable[[str, str], str]) -> Callable[[Any, Any], str | None]:
    def trim(value: Any, letters: Any) -> str | None:
        if value is None or letters is None:
            return None
        return strip(str(value), str(letters)[:_MAX_TRIMMED])

    return trim


_OWN: Sequence[tuple[str, int, Callable[..., Any]]] = (
    ("like", 2, _like),
    ("instr", 2, _instr),
    ("replace", 3, _replace),
    ("trim", 2, _trimming(str.strip)),
    ("ltrim", 2, _trimming(str.lstrip)),
    ("rtrim", 2, _trimming(str.rstrip)),
)
"""In the place of SQLite's own, whose time is the product of their texts' lengths."""


def _quoted(name: str) -> str:
    plain = name.encode("utf-8", "replace").decode().replace("\0", " ").replace('"', '""')
    return f'"{plain}"'


def _described(named: Mapping[str, Sequence[str]]) -> str:
    """What a model needs to ask again: the tables, with their columns."""
    told = []
    for name, columns in named.items():
        shown = ", ".join(map(_quoted, columns[:_SHOWN_COLUMNS]))
        more = "" if len(columns) <= _SHOWN_COLUMNS else f", and {len(columns) - _SHOWN_COLUMNS} more"
        told.append(f"{_quoted(name)} has the columns {shown}{more}")
    return "; ".join(told)


def rendered_rows(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, more: bool, max_tokens: int, counter: TokenCounter
) -> str:
    """The answer, a JSON list a line: the columns, and then each row, as many as fit; the last line says the rest."""
    lines = [json_codec.dumps_text(list(columns))]
    used = counter.count(lines[0]) + 40
    shown = 0
    for row in rows:
        line = json_codec.dumps_text([_shown(cell) for cell in row])
        used += counter.count(line) + 1
        if used > max_tokens and shown:
            break
        lines.append(line)
        shown += 1
    if shown < len(rows) or more:
        lines.append(f"[the first {shown:,} rows; more follow: use LIMIT and OFFSET, or ask for less]")
    else:
        lines.append(f"[{shown:,} row{'' if shown == 1 else 's'}]")
    return "\n".join(lines)


def _shown(cell: Any) -> Any:
    if isinstance(cell, bytes):
        cell = cell.hex()
    if isinstance(cell, float) and not math.isfinite(cell):
        return str(cell)
    if isinstance(cell, str) and len(cell) > _MAX_CELL_CHARS:
        return f"{cell[:_MAX_CELL_CHARS]}… ({len(cell):,} characters)"
    return cell


def query_tool(scope: Scope, *, ids_from: str) -> Tool:
    """Make ``context_query`` for one session; ``ids_from``: the tool that shows the ids of what can be asked."""

    @reading_tool(
        "Ask a stored result that is JSON, JSON lines or CSV with one SELECT of SQLite's SQL, instead of reading it. "
        "Table rows: its list or lines; of a JSON object, each of its lists is a table by its name. Columns: the "
        'fields, "outer.inner" for those of inner objects; lists are JSON. A wrong name shows the right ones.',
        name="context_query",
        ids_from=ids_from,
    )
    async def context_query(
        ref: Annotated[str, Field(description="The id of a stored result, or the path in its placeholder")],
        sql: Annotated[
            str, Field(max_length=MAX_SQL_CHARS, description="Such as SELECT name FROM rows WHERE size > 9")
        ],
    ) -> ToolResult:
        reader = scope.fs.reader(scope.known(ref))
        if reader.stored.size_bytes > MAX_BYTES:
            raise ToolError(
                f"{reader.stored.size_bytes:,} bytes are too many for a question: search them, or read a part"
            )
        text = "".join([piece async for piece in reader.text_blocks()])

        def asked() -> ToolResult:
            columns, rows, more = Question(sql).answer(text, max_rows=scope.max_tokens)
            counter = scope.loaded_counter()
            shown = rendered_rows(columns, rows, more=more, max_tokens=scope.max_tokens, counter=counter)
            return ToolResult(shown)

        return await run_in_steps(asked)

    return context_query
