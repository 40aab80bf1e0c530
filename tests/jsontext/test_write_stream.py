"""How long the JSON of a value is, told without writing it."""

from collections.abc import Iterator
from enum import StrEnum

from ctxfs.text.jsontext.write_stream import is_longer


class Word(StrEnum):
    LONG = "longer"


def test_the_size_of_any_value_can_be_told() -> None:
    """It is asked before anything else is: what is wrong with the value is said by whoever writes it."""
    for value in (({"rows": {2024: 1, None: 2}},), ({"rows": {"2024": 1, "None": 2}},)):
        assert is_longer(value, 31)
        assert not is_longer(value, 32)
    assert is_longer({"one": ["two", 3, None, 4.5]}, 29)
    assert not is_longer({"one": ["two", 3, None, 4.5]}, 30)
    assert is_longer([Word.LONG], 13)
    assert not is_longer([Word.LONG], 14)


def test_of_a_long_list_no_more_is_looked_at_than_says_that_it_is_long() -> None:
    looked_at = 0

    class Rows(list[str]):
        def __iter__(self) -> Iterator[str]:
            nonlocal looked_at
            for row in super().__iter__():
                looked_at += 1
                yield row

    assert is_longer(Rows(["a row"] * 100_000), 4_000)
    assert looked_at < 500
