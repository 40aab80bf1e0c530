"""Arrays read in steps give what a parser gives, wherever a step ends."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contents import JSON
from ctxfs.text.jsontext.tokens import JsonTokens, json_elements, string_pieces

LONG = [
    "x" * 700_000,
    "\n" * 700_000,
    '"\\' * 300_000,
    "é😀" * 200_000,
    "\ud800" * 300_000,
    {"type": "text", "text": "line\n" * 60_000, "more": [{"id": n, "name": f"item {n}"} for n in range(20_000)]},
    [[], {}, "", [[["deep" * 30_000]]], 10**40, -0.5, None, True],
]
windows = st.integers(64, 300)


@example([[None, None, 1.3407807929872125e154], [], 1.0000000000000002e16], 64, False, None)  # cut before its exponent
@given(st.lists(JSON, max_size=6), windows, st.booleans(), st.sampled_from([None, 1]))
def test_the_elements_are_those_of_a_parser(
    values: list[object], window_chars: int, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(values, ensure_ascii=ascii_only, indent=indent)
    assert list(json_elements(text, window_chars=window_chars)) == json.loads(text)


@pytest.mark.not_measured
@pytest.mark.parametrize("number", range(len(LONG)))
@pytest.mark.parametrize("ascii_only", [False, True])
def test_long_elements_are_taken_apart(number: int, ascii_only: bool) -> None:
    text = json.dumps([1, LONG[number], {"last": LONG[number]}], ensure_ascii=ascii_only)
    assert list(json_elements(text)) == json.loads(text)


@pytest.mark.parametrize("window_chars", range(64, 96))
def test_a_number_on_a_windows_edge_is_read_whole(window_chars: int) -> None:
    values = [*range(1_000_000, 1_000_060), -1.5e-7, True, None]
    assert list(json_elements(json.dumps(values), window_chars=window_chars)) == values


@pytest.mark.parametrize("text", ["", "{}", '"a"', "[", "[1", "[1 2]", "[1:2]", "[1,]", "[,1]", "[1}", "[1]x", "[1],"])
@pytest.mark.parametrize("more", ["", " " * 100])
def test_what_is_broken_between_elements_is_refused(text: str, more: str) -> None:
    with pytest.raises(ValueError):
        list(json_elements(more + text, window_chars=64))


@pytest.mark.parametrize("broken", ['{"a" 1}', '{"a":1 "b":2}', '{"a":1,}', "{2:1}", '{"a":1]'])
def test_what_is_broken_between_a_long_objects_members_is_refused(broken: str) -> None:
    long = broken.replace("1", f'"{"x" * 100}"')
    with pytest.raises(ValueError):
        list(json_elements(f"[{long}]", window_chars=64))


@given(st.text(st.sampled_from('[]{},:"\\u0ad8\n 1'), max_size=30), windows)
def test_what_is_no_array_is_refused(text: str, window_chars: int) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        expected = None
    if isinstance(expected, list):
        assert list(json_elements(text, window_chars=window_chars)) == expected
    else:
        with pytest.raises(ValueError):
            list(json_elements(text, window_chars=window_chars))


@pytest.mark.parametrize(
    "text",
    [
        '["' + "x" * 99,
        '["' + "x" * 99 + '"',
        '["' + "x" * 99 + '\\q"]',
        '["' + "x" * 99 + '\\uzz"]',
        "[" + "[" * 200_000,
        '[{"a' + "b" * 99 + '" 1}]',
    ],
)
def test_long_texts_that_break_off_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        list(json_elements(text, window_chars=64))


@given(st.text(st.characters(codec=None)), st.booleans(), st.text('"]a', max_size=3))
def test_a_string_ends_where_it_ends(value: str, ascii_only: bool, after: str) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert JsonTokens(text + after).string_end(0) == len(text)
    assert "".join(string_pieces(text + after, 0)) == json.loads(text)


@pytest.mark.not_measured
def test_the_pieces_of_a_string_are_bounded() -> None:
    for value in ("x" * 1_000_000, "\n" * 1_000_000, "😀" * 500_000):
        pieces = list(string_pieces(json.dumps(value), 0))
        assert "".join(pieces) == value
        assert max(map(len, pieces)) <= 262_144


def test_a_string_begins_with_a_quotation_mark() -> None:
    with pytest.raises(json.JSONDecodeError, match="expected a string"):
        JsonTokens("{1: 2}").string_end(1)
