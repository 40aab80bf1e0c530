import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.errors import InvalidToolArguments
from ctxfs.tools.json_path import parse_path, select_lines

DATA = {
    "rows": [{"id": n, "name": f"name {n}", "tags": ["a", "b"][: n % 3]} for n in range(30)],
    "log": "first\nsecond\n",
    "odd key": {"a.b": 1, "ü": None},
    "empty": [],
    "none": {},
    "n": 1.5,
}


def selected(path: str, value: Any = DATA, **dump: Any) -> str:
    return "".join(select_lines(json.dumps(value, **dump), path))


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("$.rows[10:12].name", ["name 10", "name 11"]),
        ("$.rows[-2:].id", [28, 29]),
        ("$.rows[:2].id", [0, 1]),
        ("$.rows[28:99].id", [28, 29]),
        ("$.rows[*].tags[0]", ["a"] * 20),
        ("$.rows[1:3].tags", [["a"], ["a", "b"]]),
        ("$.rows[2].tags", ["a", "b"]),
        ("$.rows[0:2].missing", []),
        ("$.empty", []),
        ("$.empty[*]", []),
        ("$.*[5].id", [5]),
        ("$['odd key'].*", [1, None]),
    ],
)
def test_several_values_are_shown_one_a_line(path: str, values: list[Any], indent: int | None) -> None:
    lines = selected(path, indent=indent).splitlines()
    assert [json.loads(line) for line in lines] == values


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("$.log", "first\nsecond\n"),
        ("$.n", "1.5"),
        ("$.rows[0].id", "0"),
        ("$.rows[-1].name", "name 29"),
        ('$["odd key"]["a.b"]', "1"),
        ('$["odd key"]', '"a.b": 1\n"ü": null\n'),
        ("$.none", ""),
    ],
)
def test_one_value_is_shown_by_what_it_is(path: str, shown: str, indent: int | None) -> None:
    assert selected(path, indent=indent, ensure_ascii=False) == shown


@given(
    st.recursive(st.one_of(st.none(), st.integers(), st.text()), lambda v: st.lists(v) | st.dictionaries(st.text(), v))
)
def test_every_value_of_a_json_text_can_be_addressed(value: Any) -> None:
    if isinstance(value, list):
        assert [json.loads(line) for line in selected("$", value).split("\n")[:-1]] == value
        for index, inner in enumerate(value):
            assert [json.loads(line) for line in selected(f"$[{index}:{index + 1}]", value).split("\n")[:-1]] == [inner]
    elif isinstance(value, dict):
        assert json.loads("{" + ",".join(selected("$", value).split("\n")[:-1]) + "}") == value
        for key, inner in value.items():
            path = f"$[{json.dumps(key)}]"
            if len(path) <= 1_000 and not isinstance(inner, list | dict | str):
                assert json.loads(selected(path, value)) == inner


@given(st.text("$.[]\"*:-0123456789abc' \\", max_size=30))
def test_any_path_is_parsed_or_refused(path: str) -> None:
    with suppress(InvalidToolArguments):
        parse_path(path)


@given(st.text('{}[]",:123 \\anul\n', max_size=60), st.sampled_from(["$", "$.a", "$[0]", "$[*]", "$.*.*"]))
def test_any_text_is_addressed_or_refused(text: str, path: str) -> None:
    with suppress(InvalidToolArguments):
        list(select_lines(text, path))


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("rows", "starts with \\$"),
        ("$.rows[", "from character 6 on"),
        ("$..rows", "from character 1 on"),
        ("$." + "a" * 1_000, "at most 1,000"),
        ("$" + "[0]" * 65, "from character"),
        ("$.cols", "no key 'cols' at step 1: the keys are rows, log, odd key"),
        ("$.rows[99]", "no element 99 at step 2: it is an array of 30"),
        ("$.n.x", "no key 'x' at step 2: it is neither an object nor an array"),
        ("$.none.x", "the object is empty"),
    ],
)
def test_what_is_not_there_says_what_is(path: str, reason: str) -> None:
    with pytest.raises(InvalidToolArguments, match=reason):
        selected(path)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", "$"),
        ("plain text, no JSON", "$"),
        ("[12:00] a log", "$[0]"),
        ("[1, 2", "$[0]"),
        ("[1 2]", "$[1]"),
        ('{"a" 1}', "$.a"),
        ("{1: 2}", "$.a"),
        ('{"a": }', "$.a"),
        ('{"\\x": 1}', "$.a"),
        ("[-]", "$[0]"),
    ],
)
def test_what_is_no_json_says_so(text: str, path: str) -> None:
    with pytest.raises(InvalidToolArguments, match="no JSON at character"):
        select_lines(text, path)


def test_the_last_of_equal_keys_counts() -> None:
    assert "".join(select_lines('{"a": 1, "a": 2}', "$.a")) == "2"


def test_too_many_values_are_refused() -> None:
    with pytest.raises(InvalidToolArguments, match="over 100,000 values"):
        select_lines("[" + "1," * 100_001 + "1]", "$[*]")


def test_long_strings_are_passed_over_and_given_whole() -> None:
    long = 'a "quoted" [bracket] {brace}, \\ and \\" and é😀\n' * 20_000
    value = {"first": long, long[:3_000]: 1, "rows": [[long, n] for n in range(3)], "last": 2}
    for ascii_only in (False, True):
        assert selected("$.first", value, ensure_ascii=ascii_only) == long
        assert selected("$.rows[2][0]", value, ensure_ascii=ascii_only) == long
        assert selected("$.rows[*][1]", value, ensure_ascii=ascii_only) == "0\n1\n2\n"
        assert selected("$.last", value, ensure_ascii=ascii_only) == "2"


def test_slices_from_the_end() -> None:
    value = list(range(10))
    assert selected("$[-3:]", value) == "7\n8\n9\n"
    assert selected("$[-3:-1]", value) == "7\n8\n"
    assert selected("$[5:-4]", value) == "5\n"
    assert selected("$[-1:3]", value) == ""
