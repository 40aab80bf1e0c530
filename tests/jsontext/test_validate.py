"""Which texts are JSON."""

import pytest

from ctxfs.text.jsontext.tokens import is_json


@pytest.mark.parametrize("text", ['"\ud800"', '["\ud800"]', "[" * 300 + "]" * 300])
def test_json_that_a_fast_parser_refuses_is_json_all_the_same(text: str) -> None:
    assert is_json(text)


@pytest.mark.parametrize("text", ['["\ud800\n"]', '["\ud800" oops', '{"a": "\ud800"', '["\ud800"] x', '["\ud800",]'])
def test_lone_surrogates_make_nothing_json(text: str) -> None:
    assert not is_json(text)


@pytest.mark.parametrize("text", ["NaN", '["\ud800", Infinity]', '{1: "\ud800"}', '{"\ud800": 1, 2: 3}'])
def test_constants_and_keys_that_are_no_json(text: str) -> None:
    assert not is_json(text)
