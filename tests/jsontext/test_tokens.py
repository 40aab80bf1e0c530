"""JSON with a line for each value: as the standard library writes it, and no token is another."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.text.jsontext.tokens import indented

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a{}[],:"\\ é', max_size=4), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.booleans(), st.sampled_from([None, 3]))
def test_a_value_is_laid_out_as_the_standard_library_does_it(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert indented(text) == json.dumps(value, ensure_ascii=False, indent=1)


@pytest.mark.parametrize("text", ["0.1000000000000000055", "1e400", '{\n "a": 1,\n "a": 1.0\n}', ""])
def test_what_a_parser_would_change_stays(text: str) -> None:
    assert indented(text) == text


def test_containers_and_escapes() -> None:
    assert indented('{"a":[],"b":{},"c":["\\u00e9"]}') == '{\n "a": [],\n "b": {},\n "c": [\n  "é"\n ]\n}'
