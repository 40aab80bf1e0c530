"""Questions in SQL to stored contents: as Python computes it, within bounds, and nothing but reading."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs import Context
from ctxfs.errors import ToolError
from ctxfs.tools.query import Question, query_tool
from ctxfs.tools.stored import Scope

ROWS = [{"name": f"n{n}", "size": n, "of": {"kind": n % 3, "tags": ["a", n]}, "even": n % 2 == 0} for n in range(100)]
TEXT = json.dumps(ROWS)


def stands_still() -> float:
    """The time of questions that have enough of it, also where the garbage of other tests is collected meanwhile."""
    return 0.0


def answer(sql: str, text: str = TEXT, *, clock: Callable[[], float] = stands_still) -> list[tuple[Any, ...]]:
    return Question(sql, clock=clock).answer(text, 1_000)[1]


def refusal(sql: str, text: str = TEXT, *, clock: Callable[[], float] = stands_still) -> str:
    with pytest.raises(ToolError) as error:
        answer(sql, text, clock=clock)
    return str(error.value)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


CELLS = st.one_of(st.none(), st.integers(-(2**62), 2**62), st.text(st.characters(codec="utf-8"), max_size=8))
RECORDS = st.lists(st.fixed_dictionaries({"key": st.integers(0, 5), "cell": CELLS}), min_size=1, max_size=30)


@given(RECORDS, st.integers(0, 5))
def test_an_answer_is_what_python_computes(rows: list[dict[str, Any]], key: int) -> None:
    wanted = [(row["cell"],) for row in rows if row["key"] == key]
    sql = f"SELECT cell FROM rows WHERE key = {key}"
    for text in (json.dumps(rows), "\n".join(map(json.dumps, rows)), json.dumps({"rows": rows, "total": 3})):
        assert answer(sql, text) == wanted
    counts = {one: sum(row["key"] == one for row in rows) for one in {row["key"] for row in rows}}
    assert answer("SELECT key, count(*) FROM rows GROUP BY key ORDER BY key", json.dumps(rows)) == sorted(
        counts.items()
    )


@given(st.lists(st.tuples(st.text('ab,";\n0x', min_size=1, max_size=6), st.integers(0, 10**6)), min_size=1, max_size=9))
def test_csv_is_read_as_python_writes_it(rows: list[tuple[str, int]]) -> None:
    written = io.StringIO()
    csv.writer(written).writerows([("name", "size"), *rows])
    given_rows = answer("SELECT name, size FROM rows", written.getvalue())
    assert [size for _, size in given_rows] == [size for _, size in rows]
    assert [str(name) for name, _ in given_rows] == [name for name, _ in rows]


@given(st.text("aAb_%é", max_size=6), st.text("aAbé", max_size=8))
def test_like_is_sqlites_but_for_letters_beyond_ascii(pattern: str, text: str) -> None:
    def matches(p: str, t: str) -> bool:
        if not p:
            return not t
        if p[0] == "%":
            return any(matches(p[1:], t[n:]) for n in range(len(t) + 1))
        return bool(t) and (p[0] == "_" or p[0].casefold() == t[0].casefold()) and matches(p[1:], t[1:])

    (found,) = answer(f"SELECT x LIKE '{pattern}' FROM rows", json.dumps([{"x": text}]))
    assert bool(found[0]) == matches(pattern, text)


def test_nested_values_are_columns() -> None:
    assert answer('SELECT "of.kind", "of.tags", even FROM rows WHERE size = 4') == [(1, '["a",4]', 1)]
    assert answer('SELECT j.value FROM rows, json_each("of.tags") j WHERE size = 7') == [("a",), (7,)]
    several = json.dumps({"total": 2, "items": [1, "x"], "none": []})
    assert answer("SELECT value, total FROM items, top", several) == [(1, 2), ("x", 2)]


def test_only_a_newline_ends_a_line_and_a_byte_order_mark_is_no_part_of_one() -> None:
    lines = '{"a": "x\u2028y"}\r\n\n{"a": "x\x85y"}\r\n'
    for text in (
        lines,
        f"\ufeff{lines}",
        '\ufeff[{"a": "x\u2028y"}, {"a": "x\x85y"}]',
        "\ufeffa,b\nx\u2028y,\nx\x85y,\n",
    ):
        assert answer("SELECT a FROM rows", text) == [("x\u2028y",), ("x\x85y",)]


def test_values_of_csv_stay_what_they_are() -> None:
    text = "id;size;A;a\n007;2.5;;1e3\n"
    assert answer("SELECT id, size, A, A_2 FROM rows", text) == [("007", 2.5, None, 1000.0)]


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM rows", "PRAGMA table_info(rows)", "ATTACH 'x' AS y", "SELECT * FROM pragma_table_info('rows')",
        "SELECT load_extension('x')", "SELECT 1; SELECT 2", "CREATE TABLE x (y)", "VACUUM INTO '/tmp/x'",
        "SELECT randomblob(1000000000)", "SELECT name FROM rows WHERE name GLOB '*a*'", "DROP TABLE rows",
    ],
)  # fmt: skip
def test_nothing_but_reading_is_allowed(sql: str) -> None:
    assert refusal(sql).startswith('only one SELECT of this content is allowed. "rows" has the columns "name", ')


@pytest.mark.parametrize(
    ("sql", "text", "said"),
    [
        ("SELECT nme FROM rows", TEXT, 'no such column: nme. "rows" has the columns "name", "size", "of.kind"'),
        ('SELECT "of.knd" FROM rows', TEXT, 'no such column: of.knd. "rows" has the columns'),
        ("SELECT 1 FROM row", TEXT, "no such table: row. "),
        ("", TEXT, "use one SELECT"),
        ("SELECT 1", "hello", "neither JSON, nor JSON lines, nor CSV"),
        ("SELECT 1", "5", "a single value"),
        ("SELECT 1", "a,b\n1\n", "do not have as many fields"),
        ("SELECT 1", 'a,b\n1,"x"y\n', "as CSV it is wrong"),
        ("SELECT 1", json.dumps([{"x": "a" * 70_000}]), "larger than 65,536 bytes"),
        ("SELECT 1", json.dumps([{f"c{n}": n for n in range(600)}]), "more than 500 columns"),
        ("SELECT 1", ",".join(f"c{n}" for n in range(2_500)) + "\n" + "1," * 2_499, "more than 500 columns"),
        ("SELECT 1", json.dumps([{"n" * 300 + str(n): n for n in range(400)}]), "names of the columns"),
        ("SELECT 1", json.dumps([{"a": nested(300)}]), "nested too deeply"),
        (f"SELECT name LIKE '{'a' * 2_000}' FROM rows", TEXT, "user-defined function raised exception"),
        (f"SELECT name LIKE '{'a' * 2_000}' ESCAPE '+' FROM rows", TEXT, "pattern too complex"),
    ],
)
def test_what_is_wrong_is_said(sql: str, text: str, said: str) -> None:
    assert said in refusal(sql, text)


def test_an_alias_in_quotes_is_a_name() -> None:
    assert answer('SELECT max(size) AS "The largest" FROM rows ORDER BY "The largest"') == [(99,)]


def test_a_question_ends_when_its_time_is_over() -> None:
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    ticks = iter([0.0] * 20 + [1.0] * 10)
    assert refusal(endless, clock=lambda: next(ticks)).startswith("the question took too long")
    assert "too many rows" in refusal("SELECT 1", clock=iter([0.0, 1.0, 1.0]).__next__)


@pytest.mark.anyio
async def test_a_model_asks_what_was_evicted(tmp_path: Any) -> None:
    async with Context(root_path=tmp_path, keep_recent={"rows": 1}) as context:
        ask = query_tool(Scope(context.fs, 4_000, None), ids_from="context_list")
        await context.add({"role": "user", "content": "Go"})
        for n in (1, 2):
            call = {"type": "tool_use", "id": f"call_{n}", "name": "rows", "input": {}}
            await context.add({"role": "assistant", "content": [call]})
            result = {"type": "tool_result", "tool_use_id": f"call_{n}", "content": json.dumps(ROWS * n)}
            await context.add({"role": "user", "content": [result]})
        await context.messages()
        counted = await ask.run({"ref": "call_1", "sql": "SELECT count(*) AS n, sum(size) FROM rows"})
        assert counted.content == '["n","sum(size)"]\n[100,4950]\n[1 row]'
        several = await ask.run({"ref": "call_1", "sql": "SELECT a.name, b.name FROM rows a, rows b"})
        assert str(several.content).endswith(" rows; more follow: use LIMIT and OFFSET, or ask for less]")
        assert len(str(several.content)) < 12_000
        wrong = await ask.run({"ref": "call_9", "sql": "SELECT 1"})
        assert wrong.is_error
        long = await ask.run({"ref": "call_1", "sql": "SELECT group_concat(name || name || name || name) FROM rows"})
        assert "… (1,259 characters)" in str(long.content)
