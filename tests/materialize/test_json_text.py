"""Whether a text is JSON: the same answer as a parser's, whatever its size."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.text.jsontext.tokens import is_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
PADDING = " " * 1_100_000
"""Makes a text so long that it is walked in steps."""


@given(value=VALUES, indent=st.sampled_from([None, 1]))
def test_what_a_serializer_wrote_is_json(value: object, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    text = text.encode("utf-8", "replace").decode()
    assert is_json(text)
    assert is_json(text + PADDING)


@given(value=VALUES, data=st.data())
def test_a_damaged_text_is_what_a_parser_says(value: object, data: st.DataObject) -> None:
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text)))
    damaged = (
        text[:at] + data.draw(st.sampled_from(['"', "{", "}", "]", ",", ":", "\\", "x", "\x01", ""])) + text[at + 1 :]
    )
    assert is_json(damaged + PADDING) == parses(damaged)
    assert is_json(damaged) == parses(damaged)


def parses(text: str) -> bool:
    try:
        json.loads(text, parse_constant=pytest.fail)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "text", ["", " ", "plain", "NaN", "[NaN]", "{'a': 1}", '{"a": 1} {"b": 2}', '{"a": 1}x', "[" * 100_000]
)
def test_what_is_not_json(text: str) -> None:
    assert not is_json(text)
    assert not is_json(text + PADDING)


def test_a_large_value_is_recognised() -> None:
    rows = [
        {"id": n, "name": f"row {n}", "tags": ["a", "b"], "nested": {"deep": {"deeper": [n]}}} for n in range(5_000)
    ]
    text = json.dumps({"rows": rows, "long": "x\n" * 100_000})
    assert is_json(text)
    assert not is_json(text[:-1])
    assert not is_json(text.replace('"name"', "name", 1))


@pytest.mark.parametrize("depth", range(1, 9))
def test_values_of_any_depth_are_recognised(depth: int) -> None:
    value: object = [1, "é", {}]
    for level in range(depth):
        value = [value, -1.5e3] if level % 2 else {"a key": value, "": None}
    text = json.dumps(value, ensure_ascii=False)
    assert is_json(text)
    assert not is_json(text[:-1])
    assert not is_json(text.replace("{}", "{},"))
    assert not is_json(text.replace("{}", "{1}"))
