"""JSON in and out: exact."""

import pytest
from hypothesis import given

from contents import JSON
from ctxfs.json_codec import dumps, loads


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


@pytest.mark.parametrize("value", [b"x", object(), {1, 2}])
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        dumps(value)


def test_what_is_no_json_is_not_read() -> None:
    with pytest.raises(ValueError):
        loads(b"{")
