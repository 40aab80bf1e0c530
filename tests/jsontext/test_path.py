import gc
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.errors import InvalidToolArguments, WorkLimitReached
from ctxfs.text.jsontext import path as path_module
from ctxfs.text.jsontext.path import PathStep, parse_path, select_lines
from ctxfs.text.steps import Abandoned, CpuBudget, Waiting

DATA = {
    "rows": [{"id": n, "name": f"name {n}", "tags": ["a", "b"][: n % 3]} for n in range(30)],
    "log": "first\nsecond\n",
    "odd key": {"a.b": 1, "ü": None},
    "empty": [],
    "none": {},
    "n": 1.5,
}


def lines_of(text: str, path: str) -> Iterator[str]:
    """What the path selects, however slow the machine is."""
    return select_lines(text, path, budget=CpuBudget(None))


def selected(path: str, value: Any = DATA, **dump: Any) -> str:
    return "".join(lines_of(json.dumps(value, **dump), path))


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
        list(lines_of(text, path))


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("rows", "starts with \\$"),
        ('$["\\q"]', "not a JSON string"),
        ("$.rows[", "from character 6 on"),
        ("$..rows", "from character 1 on"),
        ("$." + "a" * 1_000, "at most 1,000"),
        ("$" + "[0]" * 65, "from character"),
        ("$.cols", "no key 'cols' at step 1: the keys are rows, log, odd key"),
        ("$.rows[-31]", "no element -31 at step 2: it is an array of 30"),
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
    with pytest.raises(InvalidToolArguments, match="not JSON at character"):
        lines_of(text, path)


def test_the_last_of_equal_keys_counts() -> None:
    assert "".join(lines_of('{"a": 1, "a": 2}', "$.a")) == "2"


def test_too_many_values_are_refused() -> None:
    with pytest.raises(InvalidToolArguments, match="over 100,000 values"):
        lines_of("[" + "1," * 100_001 + "1]", "$[*]")


@pytest.mark.not_measured
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


nested = st.recursive(
    st.one_of(st.none(), st.integers(), st.sampled_from(["", 'a "quoted" ]', "[", "\\"])),
    lambda v: st.lists(v, max_size=5) | st.dictionaries(st.sampled_from("abc"), v, max_size=3),
    max_leaves=30,
)
bounds = st.integers(-6, 6) | st.none()
steps = st.one_of(
    st.sampled_from("abc").map(".{}".format),
    st.integers(-5, 5).map("[{}]".format),
    st.builds(lambda a, b: f"[{'' if a is None else a}:{'' if b is None else b}]", bounds, bounds),
    st.just("[*]"),
)


def meant(value: Any, path: list[PathStep]) -> list[Any]:
    """What the steps mean, from parsed JSON; LookupError if a step that means one value finds none."""
    values, strict = [value], True
    for step in path:
        strict = strict and (step.single or step.key is not None)
        found = [child for parent in values for child in children(parent, step)]
        if strict and not found:
            raise LookupError(step)
        values = found
    return values


def children(value: Any, step: PathStep) -> list[Any]:
    if step.key is not None:
        return [value[step.key]] if isinstance(value, dict) and step.key in value else []
    if isinstance(value, dict):
        return [] if step.single else list(value.values())[step.start : step.stop]
    return list(value)[step.start : step.stop] if isinstance(value, list) else []


@given(nested, st.lists(steps, max_size=5), st.sampled_from([None, 2]), st.sampled_from([0, 70_000]))
def test_a_path_means_what_it_means_in_the_parsed_value(value: Any, path: list[str], indent: Any, padding: int) -> None:
    """``padding`` is white space that goes into each array and object."""
    text = json.dumps(value, indent=indent).replace("[", "[" + " " * padding).replace("{", "{" + " " * padding)
    if padding and (text.count(" ") > 1_000_000 or '"[' in text):
        return
    parsed = parse_path("$" + "".join(path))
    try:
        expected = meant(value, list(parsed))
    except LookupError:
        with pytest.raises(InvalidToolArguments, match="there is no"):
            lines_of(text, "$" + "".join(path))
        return
    lines = "".join(lines_of(text, "$" + "".join(path)))
    if any(step.key is None and not step.single for step in parsed):
        assert [json.loads(line) for line in lines.splitlines()] == expected
    elif not isinstance(expected[0], str | list | dict):
        assert json.loads(lines) == expected[0]


class Meter:
    """CPU time that passes by the second, whenever it is asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return float(self.asked)


@pytest.mark.parametrize("text", ["[" * 200_000 + "]" * 200_000, '{"a":' * 5_000 + "1" + "}" * 5_000, "[" * 9_000])
@pytest.mark.parametrize("path", ["$", "$[0]", "$[*].a", "$.a.a"])
def test_what_is_nested_too_deeply_says_so(text: str, path: str) -> None:
    with pytest.raises(InvalidToolArguments, match="nested too deeply to be read by path: read it by lines"):
        list(lines_of(text, path))


def test_lines_that_are_taken_deeper_in_the_stack_than_the_text_was_checked() -> None:
    """Before Python 3.12 the parser's levels and those of the program count together."""
    text = "[" * 450 + "]" * 450
    lines = lines_of(text, "$")

    def taken(frames: int) -> str:
        return taken(frames - 1) if frames else "".join(lines)

    refused = pytest.raises(InvalidToolArguments, match="nested too deeply")
    with refused if sys.version_info < (3, 12) else nullcontext():
        taken(600)


@pytest.mark.parametrize("path", ["$", "$[*]", "$[*].a", "$[*][*][*]"])
def test_what_would_take_too_long_says_how_to_ask_for_less(path: str) -> None:
    text = "[" + ",".join([f"[{n},[]]" for n in range(20_000)]) + "]"
    with pytest.raises(
        WorkLimitReached, match=r"more than the 3 s of CPU that one call may take: use a path to a smaller"
    ):
        list(select_lines(text, path, budget=CpuBudget(3, clock=Meter())))


def test_nobody_waits_any_more_so_the_text_is_not_read_to_its_end() -> None:
    waiting, meter = Waiting(), Meter()

    def clock() -> float:
        if meter.asked == 3:
            waiting.end()
        return meter()

    with pytest.raises(Abandoned):
        waiting.run(lambda: list(select_lines(f"[{'1,' * 100_000}1]", "$", budget=CpuBudget(None, clock=clock))))
    assert meter.asked == 4


SURROGATES = [
    "\ud800",
    "\udc00",
    "x\ud83dy",
    "\udc00\ud800",
    "\\ud800",
    "\\\ud800",
    "\ud83d😀",
    "\ue000",
    "\ue000ud800",
    "a\n\ud800",
]


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("part", SURROGATES)
def test_lone_surrogates_stay_as_they_are(part: str, ascii_only: bool) -> None:
    value = {"lone": "\udfff", part: [part, {part: 1}], "n": 1}
    text = json.dumps(value, ensure_ascii=ascii_only)
    key = f"[{json.dumps(part)}]"
    assert "".join(lines_of(text, "$.n")) == "1"
    assert "".join(lines_of(text, f"${key}[0]")) == part
    assert "".join(lines_of(text, f"${key}[1]{key}")) == "1"
    assert "".join(lines_of(text, "$.*[0]")) == json.dumps(part, ensure_ascii=ascii_only) + "\n"
    assert "".join(lines_of(text, "$")).startswith(f'"lone": {json.dumps(value["lone"], ensure_ascii=ascii_only)}\n')
    with pytest.raises(InvalidToolArguments, match="the keys are lone, "):
        lines_of(text, "$.missing")
    with pytest.raises(InvalidToolArguments, match=f"not JSON at character {len(text) - 1}:"):
        lines_of(text[:-1], "$.n")


def test_a_key_that_is_no_name_is_found() -> None:
    value = {'a "quoted" \\ key\n': 1}
    assert selected(f"$[{json.dumps(next(iter(value)))}]", value) == "1"
    with pytest.raises(InvalidToolArguments, match="there is no key"):
        selected('$["\\n"]', value)


def test_many_surrogates_are_marked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_module, "_PART_BYTES", 10)
    value = ["\ud800", "\\\ud800", "a, b, \n\udc00", "😀"] * 20
    assert [json.loads(line) for line in selected("$", value).splitlines()] == value


@pytest.mark.parametrize("scale", [1, 40])
def test_a_large_container_is_opened_in_parts(monkeypatch: pytest.MonkeyPatch, scale: int) -> None:
    """What is in it does not depend on where it is cut; the entries may be larger, strings hold commas."""
    monkeypatch.setattr(path_module, "_PART_BYTES", 50 * scale)
    monkeypatch.setattr(path_module, "_COMMAS_OF_ARRAY", 3)
    monkeypatch.setattr(path_module, "_COMMAS_OF_OBJECT", 3)
    rows = [[n, ["a,b", "],[", {"c": "},{", "d": [",,"] * (n % 7 * 4)}]] for n in range(60)]
    for value in (rows, {f"key {n}": row for n, row in enumerate(rows)}, [1] * 500, ["," * 300] * 3):
        shown = selected("$[*]" if isinstance(value, list) else "$.*", value)
        assert [json.loads(line) for line in shown.splitlines()] == list(
            value.values() if isinstance(value, dict) else value
        )
    assert [json.loads(line) for line in selected("$[-1]", rows).splitlines()] == rows[-1]
    with pytest.raises(InvalidToolArguments, match="it is an array of 60"):
        selected("$[60]", rows)
    with pytest.raises(InvalidToolArguments, match=r"the keys are key 0, .*, key 19, …$"):
        selected("$.missing", {f"key {n}": row for n, row in enumerate(rows)})


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ('{"x": 1, "a": 1, "b": 2, "a": 3, "c": [4, "}"]}', "$.a", "3"),
        ('{"x": 1, "\\u0061": 5, "y": {"a": 6}}', "$.a", "5"),
        ('{"axb": 1, "a.b": 2}', '$["a.b"]', "2"),
        ('{"ab": 1, "a": 2, "": 3}', '$[""]', "3"),
        ('[{"x": 1, "y": "a"} , {"x": 2, "a": 7}]', "$[*].a", "7\n"),
        ("{" + ",".join(f'"k{n}": {n}' for n in range(100)) + "}", "$.k77", "77"),
    ],
)
def test_entries_that_are_not_meant_are_passed_over(text: str, path: str, expected: str) -> None:
    assert "".join(lines_of(text, path)) == expected


ROWS = 500


def calls_of(text: str, path: str) -> int:
    """Count the function calls that selecting takes: work that no clock of a busy machine makes larger.

    What is done once in a process was done before, and the garbage collector, which calls functions too, waits.
    """
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    for _ in lines_of(text, path):
        pass
    gc.disable()
    sys.setprofile(count)
    try:
        for _ in lines_of(text, path):
            pass
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def test_entries_that_are_passed_over_cost_no_calls() -> None:
    def rows(others: str) -> str:
        row = f'{{"id": 1, {others}"name": "x", {others}"at": {{"y": 2}}}}'
        return f"[{','.join([row] * ROWS)}]"

    few, many = rows('"tags": ["a"], '), rows("".join(f'"tag {n}": ["a", {n}], ' for n in range(7)))
    assert calls_of(many, "$[*].name") - calls_of(few, "$[*].name") < ROWS


@pytest.mark.parametrize("path", ["$[-1]", "$[-3:]", "$[99999]", "$[-60000:-59998]"])
def test_many_short_elements_are_passed_over_at_once(path: str) -> None:
    value: list[Any] = [*range(50_000), *["a", 1.5, None, True] * 12_500]
    calls = calls_of(json.dumps(value), path)
    assert calls < len(value) / 5


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 63, 64, 65, 129]), st.sampled_from([1, "a", None, {"a": [1]}, []]))),
    st.integers(-300, 300),
    st.none() | st.integers(-300, 300),
    st.sampled_from([None, 1]),
)
def test_elements_are_counted_the_same_one_by_one_and_at_once(
    parts: list[tuple[int, Any]], start: int, stop: int | None, indent: int | None
) -> None:
    value = [element for count, element in parts for element in [element] * count]
    text = json.dumps(value, indent=indent)
    shown = "".join(lines_of(text, f"$[{start}:{'' if stop is None else stop}]"))
    assert [json.loads(line) for line in shown.splitlines()] == value[start:stop]
    if not -len(value) <= start < len(value):
        with pytest.raises(InvalidToolArguments, match=f"it is an array of {len(value)}"):
            lines_of(text, f"$[{start}]")


@pytest.mark.parametrize("path", ["$[-1]", "$[90]", "$[-90:]"])
@pytest.mark.parametrize("fault", ["1 2", "1,,2", "x", "1:2", "]"])
def test_elements_that_are_passed_over_at_once_still_have_to_be_json(path: str, fault: str) -> None:
    text = "[" + "1," * 70 + fault + ",1" * 70 + "]"
    with pytest.raises(InvalidToolArguments, match="not JSON"):
        lines_of(text, path)


@pytest.mark.parametrize("text", ['{"x": 1,}', '{"x": 1,, "a": 2}', '{"x": 1, "y": 2', '{"x": 1 "a": 2}'])
def test_what_is_passed_over_still_has_to_be_json(text: str) -> None:
    with pytest.raises(InvalidToolArguments, match="not JSON"):
        list(lines_of(text, "$.a"))
