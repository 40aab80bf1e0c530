import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.text.jsontext.shape import Detail, parse_prefix, shape

FULL = Detail(depth=4, keys=10, value_chars=12)
TYPES = Detail(depth=3, keys=10, value_chars=0)

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=4)),
)


def shape_of(value: Any, detail: Detail = FULL) -> str:
    parsed = parse_prefix(json.dumps(value))
    assert parsed is not None
    return shape(parsed, detail)


def begins(cut: Any, whole: Any) -> bool:
    """Whether ``cut`` is ``whole`` up to some point."""
    if isinstance(cut, list):
        last = len(cut) - 1
        return isinstance(whole, list) and all(
            begins(c, w) if i == last else c == w for i, (c, w) in enumerate(zip(cut, whole[: len(cut)], strict=True))
        )
    if isinstance(cut, dict):
        last_key = next(reversed(cut), None)
        return isinstance(whole, dict) and all(
            k in whole and (begins(c, whole[k]) if k == last_key else c == whole[k]) for k, c in cut.items()
        )
    return bool(cut == whole) or (isinstance(cut, str) and cut.endswith("…") and str(whole).startswith(cut[:-1]))


@given(values, st.data())
def test_the_prefix_of_a_json_text_parses_to_the_beginning_of_its_value(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=False)
    parsed = parse_prefix(text, data.draw(st.integers(1, len(text))))
    assert parsed is None or begins(parsed.value, value)


@given(st.lists(values, min_size=2), st.data())
def test_a_cut_array_is_seen_up_to_the_cut(value: list[Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    first_comma_outside = len(json.dumps(value[0])) + 2
    cut = data.draw(st.integers(first_comma_outside, len(text) - 1))
    parsed = parse_prefix(text, cut)
    assert parsed is not None
    assert parsed.open_levels >= 1
    assert shape(parsed, TYPES).startswith("[over ")


@given(st.text('[]{}",:1\\\\ \ud800', max_size=200), st.integers(1, 200))
def test_any_text_is_parsed_or_refused(text: str, prefix_chars: int) -> None:
    parsed = parse_prefix(text, prefix_chars)
    if parsed is not None:
        shape(parsed, FULL)


def test_deep_nesting_is_refused_or_cut() -> None:
    assert parse_prefix("[" * 50_000 + "]" * 50_000) is None
    assert shape_of([[[[[[1]]]]]]) == "[1 × [1 × [1 × [1 × [1 elements]]]]]"


@pytest.mark.parametrize(
    ("text", "prefix_chars", "value"),
    [
        ('["one", "two words"]', 12, ["one", "two…"]),
        ('["one", "a\\u00e9 word"]', 14, ["one", "a…"]),
        ('["one", {"key": "value"}]', 12, ["one"]),
        ('["one", 12345]', 10, ["one"]),
    ],
)
def test_a_prefix_is_closed_where_it_is_cut(text: str, prefix_chars: int, value: list[str]) -> None:
    parsed = parse_prefix(text, prefix_chars)
    assert parsed is not None
    assert parsed.value == value


def test_crossed_brackets_are_refused() -> None:
    assert parse_prefix('[1, {"a": 2]}' * 10, 40) is None
    assert parse_prefix("[1, 2]]" * 10, 40) is None


def test_elements_of_an_array_are_merged() -> None:
    assert shape_of([{"a": None}, {"a": 1, "b": []}]) == "[2 × {a: int, b: []}]"
    assert shape_of([1, "x", None, 2.5, True]) == "[5 × int | str | null | float | …]"
    assert shape_of([], FULL) == "[]"
    assert shape_of({}, FULL) == "{}"


def test_more_keys_than_are_shown_are_counted() -> None:
    assert shape_of({f"k{i}": 1 for i in range(12)}).endswith("k9: 1, … 12 keys}")
    assert shape_of({"odd key": {"a": {"b": {"c": {"d": 1}}}}}) == '{"odd key": {a: {b: {c: {1 keys}}}}}'


def test_a_sample_value_is_shown_where_it_is_short() -> None:
    assert (
        shape_of({"s": "ok", "n": 12, "f": 1.5, "t": True, "z": None}) == '{s: "ok", n: 12, f: 1.5, t: true, z: null}'
    )
    assert shape_of({"s": "ok", "n": 12, "t": True}, TYPES) == "{s: str(2), n: int, t: true}"
