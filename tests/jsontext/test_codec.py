"""JSON in and out: exact."""

import copy
import math
import re
from collections import OrderedDict
from datetime import date
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contents import JSON
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.text.jsontext.codec import MAX_DEPTH, check_json, dumps, dumps_text, json_copy, loads


@given(JSON)
def test_what_was_dumped_loads_equal_or_nearly(value: object) -> None:
    """Only two lone surrogates side by side come back joined; contents with surrogates never go this way."""
    data = dumps(value)
    assert dumps(loads(data)) == dumps(loads(dumps(loads(data))))
    if "\\ud" not in data.decode():
        assert loads(data) == value


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, 2**64, -(2**70), [10**30], 1e300, [[[]]], "é\u2028", 0.1])
def test_the_hard_ones(value: object) -> None:
    assert loads(dumps(value)) == value
    assert loads(dumps(value).decode()) == value
    assert type(loads(dumps(value))) is type(value)


class Color(StrEnum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


class Weight(float): ...


@pytest.mark.parametrize(
    "value",
    [{Color.RED: Size.LARGE}, [Color.RED, Size.LARGE, Weight(1.5)], OrderedDict(a=OrderedDict()), 10**4300 - 1],
)
def test_what_is_equal_to_json_is_json(value: object) -> None:
    check_json(value)
    assert loads(dumps(value)) == loads(dumps_text(value)) == value


def test_a_tuple_is_dumped_as_a_list_but_is_not_what_it_loads_as() -> None:
    value = {"a": (2, ())}
    assert loads(dumps(value)) == loads(dumps_text(value)) == {"a": [2, []]}
    with pytest.raises(ValueError, match=re.escape("value['a'] is of type tuple: JSON is")):
        check_json(value)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (b"x", "value is of type bytes"),
        ([0, {"a": object()}], "value[1]['a'] is of type object"),
        ({"a": [{1, 2}]}, "value['a'][0] is of type set"),
        ({"when": date(2026, 1, 1)}, "value['when'] is of type date: JSON is"),
        ([UUID(int=1)], "value[0] is of type UUID"),
        ([MappingProxyType({})], "value[0] is of type mappingproxy"),
        ({"a": math.nan}, "value['a'] is nan: use a finite number"),
        ([-math.inf], "value[0] is -inf"),
        ([Weight("inf")], "value[0] is inf"),
        ([10**4300], "value[0] has more than 4,300 digits"),
        ({"a": {1: 2}}, "value['a'] has the key 1: use strings"),
        ({None: 2}, "value has the key None"),
        ([[[[[[[[[b""]]]]]]]]], "value[0][0][0][0][0][0][0][0]… is of type bytes"),
    ],
)
def test_what_would_not_load_equal_is_refused_and_named(value: object, fault: str) -> None:
    for refuse in (check_json, dumps, dumps_text):
        with pytest.raises(ValueError, match=re.escape(fault)):
            refuse(value)


LOOSE: st.SearchStrategy[Any] = st.recursive(
    st.one_of(JSON, st.floats(), st.binary(max_size=2), st.dates(), st.integers(-(10**4400), 10**4400)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.one_of(st.text(), st.integers()), inner)),
    max_leaves=6,
)


@given(LOOSE)
def test_whatever_is_accepted_loads_equal(value: object) -> None:
    try:
        check_json(value)
    except ValueError:
        with pytest.raises(ValueError):
            dumps(value)
    else:
        data = dumps(value)
        assert loads(data) == value or "\\ud" in data.decode()


def nested(depth: int) -> Any:
    value: Any = {}
    for number in range(depth - 1):
        value = {"a": value} if number % 2 else [value]
    return value


def test_what_is_nested_no_deeper_than_allowed_can_be_recorded_and_read() -> None:
    check_json(nested(MAX_DEPTH))
    record = {"records": [{"item": {"message": {"content": [nested(MAX_DEPTH)]}}}]}
    assert loads(dumps(record)) == record
    with pytest.raises(ValueError, match="nested too deep: at most 200"):
        check_json(nested(MAX_DEPTH + 1))


def test_what_holds_itself_is_nested_too_deep() -> None:
    value: list[Any] = [1]
    value += [value, value]
    for refuse in (check_json, dumps, dumps_text):
        with pytest.raises(ValueError, match="nested too deep"):
            refuse(value)


@pytest.mark.parametrize("data", [b"{", "[" * 100_000 + "]" * 100_000])
def test_what_is_no_json_is_not_read(data: bytes | str) -> None:
    with pytest.raises(ValueError):
        loads(data)


def test_a_value_that_is_nested_too_deep_is_a_value_error() -> None:
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ValueError, match="nested too deep"):
        json_codec.dumps(nested)


@given(JSON)
def test_a_copy_is_equal_and_shares_no_list_and_no_dict(value: object) -> None:
    def containers(value: object) -> list[object]:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        own = [value] if isinstance(value, dict | list) else []
        return own + [found for one in inner for found in containers(one)]

    copied = json_copy(value)
    assert copied == value
    assert not {id(one) for one in containers(value)} & {id(one) for one in containers(copied)}


@pytest.mark.parametrize(
    "value", [1, "a", None, [1, ["b"], {"c": {"d": 1.5}}], {"e": (1, [2])}, {"f": OrderedDict(g=[1])}]
)
def test_what_is_not_json_is_copied_too(value: Any) -> None:
    copied = json_copy(value)
    assert copied == copy.deepcopy(value)
    if isinstance(value, dict) and "e" in value:
        assert copied["e"][1] is not value["e"][1]


def test_what_holds_itself_is_copied() -> None:
    value: dict[str, Any] = {}
    value["self"] = [value]
    copied = json_copy(value)
    assert copied["self"][0] is copied is not value
