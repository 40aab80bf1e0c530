import json
import re
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxfs.eviction.placeholder.digest import _CODE, _HEADING, _outline, _telling_lines, describe
from ctxfs.eviction.placeholder.lines import Pick, error_lines, errors_of, line_count, lines_of
from ctxfs.eviction.placeholder.text import HEADER
from ctxfs.messages import CharsCounter
from ctxfs.messages.messages import Content
from ctxfs.messages.tokens import default_counter

COUNTER = default_counter()
MEGABYTES_10 = 10_000_000

any_text = st.text(st.characters(codec=None), max_size=400)
line_like = st.sampled_from(
    [
        "",
        "{",
        "[1,",
        '"a": 1,',
        "def f(x):",
        "ERROR no",
        "a,b,c",
        "| a | b |",
        "|---|---|",
        HEADER,
        "# x",
        "\ud800",
        "\r",
    ]
)
texts = st.one_of(any_text, st.lists(line_like, max_size=60).map("\n".join))
blocks = st.lists(
    st.one_of(
        texts.map(lambda t: {"type": "text", "text": t}),
        st.just({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}),
        any_text.map(lambda t: {"type": t}),
    ),
    max_size=4,
).map(tuple)
contents = st.one_of(texts, blocks)


def digest(content: Content, budget_tokens: int = 200) -> str:
    return describe(content, budget_tokens=budget_tokens, counter=COUNTER)


def shown_lines(text: str) -> dict[int, str]:
    return {int(m[1]): m[2] for m in re.finditer(r"^(\d+): (.*)$", text, re.MULTILINE)}


@given(contents, st.integers(-1, 300))
@settings(max_examples=5 * settings().max_examples)
def test_a_digest_is_never_over_its_budget_and_always_the_same(content: Content, budget: int) -> None:
    first = digest(content, budget)
    assert COUNTER.count(first) <= max(budget, 0)
    assert digest(content, budget) == first


@given(contents, st.integers(1, 400))
def test_no_line_of_a_digest_can_be_taken_for_a_placeholder_of_its_own(content: Content, budget: int) -> None:
    for line in digest(content, budget).split("\n"):
        assert not line.lstrip().startswith(HEADER)


@given(contents)
def test_a_digest_can_be_sent_and_printed(content: Content) -> None:
    made = digest(content)
    made.encode()
    assert made.replace("\n", "").isprintable() or not made.isascii() or "\x7f" not in made
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x85\u2028]", made)


@given(st.lists(st.text("abc \r\u2028\x85\ud800", max_size=12), max_size=80), st.integers(20, 400))
def test_a_shown_number_is_the_place_of_that_line_in_the_content(lines: list[str], budget: int) -> None:
    text = "\n".join(lines)
    reference = text.split("\n")
    for number, shown in shown_lines(digest(text, budget)).items():
        assert re.sub(r"\W", "", shown) == re.sub(r"\W", "", reference[number - 1])


@pytest.mark.parametrize(
    ("content", "size"), [("a", "1 line, 1 token."), ("a\nb\n", "2 lines, 4 tokens."), ("\n", "1 line, 1 token.")]
)
def test_the_size_in_lines_and_tokens_comes_first(content: str, size: str) -> None:
    assert digest(content).split("\n")[0] == size


def test_a_known_size_is_not_counted_again() -> None:
    assert describe("abc", counter=COUNTER, content_tokens=1234).startswith("1 line, 1,234 tokens.")


def test_nothing_is_said_without_a_budget_or_without_content() -> None:
    assert digest("abc", 0) == digest("", 200) == digest((), 200) == digest("abc", 3) == ""


def test_a_log_shows_head_tail_and_its_errors_with_their_line_numbers() -> None:
    log = [f"12:00:{i % 60:02} INFO request {i} done" for i in range(1, 5001)]
    log[776] = "12:00:07 ERROR disk full"
    log[3999] = "ValueError: no such user"
    log[2000] = "finished: 0 errors, 0 failed"
    made = digest("\n".join(log) + "\n")
    lines = shown_lines(made)
    assert made.startswith("5,000 lines, ")
    assert "2 lines with errors." in made
    assert lines[777] == log[776]
    assert lines[4000] == log[3999]
    assert lines[1] == log[0]
    assert lines[5000] == log[4999]


def test_error_lines_keep_their_numbers_across_slices_and_wide_characters() -> None:
    log = ["Zeile äöü 😀 " + "x" * 80] * 30_000
    for number in (9_000, 20_000):
        log[number - 1] = f"FATAL: ü {number}"
    lines = shown_lines(digest("\n".join(log)))
    assert lines[9_000] == "FATAL: ü 9000"
    assert lines[20_000] == "FATAL: ü 20000"


def test_an_error_far_to_the_right_of_a_long_line_is_shown_where_it_stands() -> None:
    made = digest("a\n" + "x" * 5_000 + " connection denied by peer\nb")
    assert "denied by peer" in shown_lines(made)[2]


def test_a_json_value_shows_keys_types_and_lengths() -> None:
    rows = [{"id": i, "name": f"name-{i}", "tags": ["a", "b"]} for i in range(300)]
    made = digest(json.dumps({"total": 300, "status": "ok", "rows": rows, "next": None}))
    assert 'JSON: {total: 300, status: "ok", rows: [300 × {id: int, name: str(' in made
    assert "tags: [2 × str]" in made
    assert "next: null}" in made


def test_a_json_value_too_large_to_be_parsed_at_once_says_so() -> None:
    rows = [{"id": i, "name": f"name-{i}"} for i in range(100_000)]
    made = digest(json.dumps({"total": 1, "rows": rows, "next": None}))
    assert re.search(r"rows: \[over [\d,]+ × \{id: int, name: str\(", made)
    assert "over 2 keys" in made


def test_one_long_string_in_a_json_value_is_seen_as_one() -> None:
    made = digest(json.dumps({"code": 0, "stdout": "line\n" * 100_000}))
    assert re.search(r"\{code: 0, stdout: str\(over [\d,]+\)", made)


def test_json_lines_show_the_first_record() -> None:
    made = digest("\n".join(json.dumps({"id": i, "ok": True}) for i in range(100)))
    assert "JSON lines, each like {id: 0, ok: true}" in made


def test_what_only_begins_like_json_is_text() -> None:
    log = "\n".join(f"[{i}] step" for i in range(200))
    assert shown_lines(digest(log))[1] == "[0] step"


def test_source_shows_its_definitions_with_line_numbers() -> None:
    source = "import os\n\n\nclass Store:\n    def get(self):\n        pass\n\n\ndef main():\n    pass\n" * 3
    lines = shown_lines(digest(source))
    assert lines[4] == "class Store:"
    assert lines[5] == "    def get(self):"
    assert lines[9] == "def main():"
    assert 1 not in lines


def test_source_that_numbers_its_own_lines_shows_each_number_once() -> None:
    source = "\n".join(f"{i:6}\t{line}" for i, line in enumerate(["import os", *["def f(x):", "    return x"] * 9], 1))
    assert shown_lines(digest(source))[2] == "def f(x):"


def test_a_test_run_is_a_log_and_no_source() -> None:
    output = "def test_a():\n    assert 1 == 2\nE   assert 1 == 2\n" * 20
    assert shown_lines(digest(output))[3].startswith("E   assert")


def test_a_document_shows_its_headings() -> None:
    lines = shown_lines(digest("# Title\n\ntext\n\n## One\n\ntext\n\n## Two\n\ntext\n"))
    assert lines == {1: "# Title", 5: "## One", 9: "## Two"}


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ('{i},"a, {i}",x', "Comma-separated table, 3 columns:"),
        ("k{i}\tb", "Tab-separated table, 2 columns:"),
        ("{i};b;c", "Semicolon-"),
    ],
)
def test_a_table_shows_its_header_and_first_rows(row: str, kind: str) -> None:
    made = digest("\n".join(row.format(i=i) for i in range(100)))
    assert kind in made
    assert shown_lines(made)[1] == row.format(i=0).replace("\t", " ")


@pytest.mark.parametrize(
    "line",
    [
        "src/module_{i}.py:{i}: def function_{i}(self, value):",
        "src/module_{i}.py:{i}: def function_{i}(self, value, other):",
        "The revenue of region {i} was {i} million euros, up {i} percent.",
        "First, region {i} grew by a tenth, and then, in the end, it fell.",
        "2026-11-22 12:00:{i:02},123 INFO the request took a moment",
        "call(a,{i})",
        "pair = ({i},2)",
        "int value_{i};",
        "\tindented_{i}();",
        "{i},2",
    ],
)
def test_prose_code_and_logs_are_not_tables(line: str) -> None:
    made = digest("\n".join(line.format(i=i) for i in range(100)))
    assert "table" not in made
    assert 1 in shown_lines(made)


@pytest.mark.parametrize("header", ["name,value", "Unit price (EUR),Share %", "id;note"])
def test_two_columns_are_a_table_where_they_have_a_header(header: str) -> None:
    delimiter = "," if "," in header else ";"
    assert "separated table, 2 columns:" in digest("\n".join([header, *(f"{i}{delimiter}x" for i in range(50))]))


def test_rows_with_stray_quotes_are_text() -> None:
    assert shown_lines(digest('x,"y"z,1\n' * 50))[1] == 'x,"y"z,1'


def test_a_json_shape_shrinks_to_its_budget() -> None:
    value = {f"a_rather_long_key_{i}": [{"x": i, "y": {"z": "w" * 30}}] for i in range(100)}
    small, smaller, none = (digest(json.dumps(value), budget) for budget in (200, 60, 30))
    assert len(none) < len(smaller) < len(small)
    assert "… 100 keys}" in small
    assert "… 100 keys}" in smaller
    assert "JSON" not in none


class NewlineHeavy:
    """A counter to which the whole is more than the sum of its lines."""

    def count(self, text: str) -> int:
        return len(text) + 20 * text.count("\n")


def test_the_budget_holds_for_the_digest_as_a_whole() -> None:
    made = describe("abcd\n" * 50, budget_tokens=200, counter=NewlineHeavy(), content_tokens=9)
    assert NewlineHeavy().count(made) <= 200
    assert describe("x" * 60, budget_tokens=70, counter=NewlineHeavy(), content_tokens=9) == "1 line, 9 tokens."


def test_a_markdown_table_is_seen_as_one() -> None:
    assert "Markdown table:\n1: | a | b |" in digest("| a | b |\n|---|:-:|\n" + "| 1 | 2 |\n" * 50)


def test_blocks_are_counted_by_type_before_their_text() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
    content = ({"type": "text", "text": "hello\nworld"}, image, image)
    made = digest(content)
    assert made.startswith("3 blocks (1 text, 2 image); text: 4 lines; ")
    assert shown_lines(made) == {
        1: "hello",
        2: "world",
        3: "[image: image/png, 3 bytes]",
        4: "[image: image/png, 3 bytes]",
    }


@pytest.mark.parametrize(
    "unit",
    [
        "x y ",
        "\n",
        "error\n",
        "\ud800",
        "[",
        "[1,",
        '\\"',
        '{"a":',
        ",",
        "def a\n",
        "\u0a0a",
        "# a\n",
        "|-",
        "a\tb\n",
        " error",
    ],
)
def test_hostile_megabytes_end_in_bounded_memory(unit: str) -> None:
    text = '["' + unit * (MEGABYTES_10 // 4 // len(unit))
    tracemalloc.start()
    made = describe(text, budget_tokens=200, counter=CharsCounter())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(made) < 2_000
    assert peak < 8_000_000


def outline_line_by_line(text: str) -> list[Pick]:
    """The outline of a text, with every line looked at on its own."""
    lines = list(lines_of(text))
    code = [line for line in lines if _CODE.match(text, line.start, line.end)]
    headings = [line for line in lines if _HEADING.match(text, line.start, line.end)]
    for found, density in ((code, 80), (headings, 120)):
        if len(found) >= 3 and len(found) * density >= len(lines):
            return found
    return []


SOURCE_LINES = st.builds(
    lambda number, indent, modifiers, rest: f"{number}{indent}{modifiers}{rest}",
    st.sampled_from(["", "", "", "12→", "  7\t", "3: ", "١٢:", "99|", "1234567→", "12345678→"]),
    st.sampled_from(["", "", "    ", "\t", " " * 17]),
    st.sampled_from(["", "", "export default ", "pub(crate) async ", "static " * 5, "pub(A) "]),
    st.sampled_from(
        [
            "def f(x):",
            "class\tÄ",
            "fn größe() {",
            "function* g() {",
            "macro_rules! m",
            "type T = int",
            "type Schöpfung {",
            "const f = (a) => a",
            "let x = 1",
            "# Title",
            "####### no",
            "#\u00a0x",
            "prose, and more",
            "",
            "\ud800",
        ]
    ),
)


ERROR_LINES = (
    "ERROR: failed",
    "it failed: größer",
    "no errors",
    "0 errors, 1 failure",
    "def fail(): raise ValueError",
    "# cannot",
    "E   assert 1",
    "äöü MyError here",
    "x" * 200 + " denied",
)


@given(st.lists(SOURCE_LINES, max_size=40), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_an_outline_is_what_a_look_at_every_line_finds(lines: list[str], newline: str, ends: bool) -> None:
    text = newline.join(lines) + newline * ends
    assert _outline(text, line_count(text), _telling_lines(text)) == outline_line_by_line(text)


@given(
    st.lists(st.one_of(SOURCE_LINES, st.sampled_from(ERROR_LINES)), max_size=40),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([0, 131_050, 131_072]),
)
def test_one_pass_finds_the_lines_with_errors_too(lines: list[str], newline: str, before: int) -> None:
    text = "ä" * before + newline.join(lines)
    assert list(errors_of(text, _telling_lines(text).errors)) == list(error_lines(text))


def test_the_rest_of_a_very_long_line_is_no_line_of_an_outline() -> None:
    text = "x" * 131_072 + "def f(x):\n" + "def g(x):\n" * 3
    assert [pick.number for pick in _outline(text, line_count(text), _telling_lines(text))] == [2, 3, 4]
