"""Which identifiers each item of a session brought in, found when a placeholder needs them."""

from hypothesis import given
from hypothesis import strategies as st

from ctxfs.eviction.placeholder.identifiers import MAX_IDENTIFIER_CHARS, IdentifierIndex, identifiers_in

TEXTS = st.lists(st.lists(st.sampled_from("abcdefg"), max_size=4).map(lambda names: " ".join(n * 12 for n in names)))


def in_order(texts: list[str]) -> list[list[str]]:
    """What each text brings in, where all are read as they come."""
    known: set[str] = set()
    brought = []
    for text in texts:
        brought.append([name for name in identifiers_in(text) if name not in known])
        known.update(identifiers_in(text))
    return brought


def test_the_first_item_that_brings_an_identifier_lists_it() -> None:
    index = IdentifierIndex()
    first = index.bring(["call first_identifier and second_identifier,", "first_identifier"])
    second = index.bring([f"second_identifier third_identifier short {'x' * 60}"])
    assert first.names() == ["first_identifier", "second_identifier"]
    assert second.names() == ["third_identifier"]


def test_an_identifier_may_have_as_many_characters_as_the_limit_says() -> None:
    longest = "a_" + "b" * (MAX_IDENTIFIER_CHARS - 2)
    assert IdentifierIndex().bring([f"{longest} {longest}c"]).names() == [longest]


def test_nothing_is_read_before_somebody_asks() -> None:
    index = IdentifierIndex()
    first, second, third = (index.bring(["same_identifier"]) for _ in range(3))
    assert second.names() == []
    assert first.found == ["same_identifier"]
    assert third.found is None
    assert (first.texts, third.texts) == ((), ["same_identifier"])


@given(TEXTS, st.sets(st.integers(0, 20)), st.sampled_from([None, 0, 30, 100]))
def test_it_does_not_matter_when_they_are_read(texts: list[str], asked: set[int], limit: int | None) -> None:
    index, brought = IdentifierIndex(max_unread_chars=limit), []
    for number, text in enumerate(texts):
        brought.append(index.bring([text]))
        if number in asked:
            brought[-1].names()
    assert [one.names() for one in brought] == in_order(texts)


@given(TEXTS, st.sets(st.integers(0, 20)))
def test_a_draft_is_read_like_what_it_was_made_of(texts: list[str], asked: set[int]) -> None:
    index, brought = IdentifierIndex(), []
    for number, text in enumerate(texts):
        both = index.draft()
        draft = both.draft()
        brought.append(draft.bring([text]))
        if number in asked:
            brought[-1].names()
        both.take(draft)
        index.take(draft)
    assert [one.names() for one in brought] == in_order(texts)


def test_what_was_read_in_a_draft_is_known_where_it_was_taken_in() -> None:
    index = IdentifierIndex()
    draft = index.draft()
    assert draft.bring(["same_identifier"]).names() == ["same_identifier"]
    index.take(draft)
    assert index.draft().bring(["same_identifier"]).names() == []


def test_what_came_into_a_draft_alone_is_not_known() -> None:
    index = IdentifierIndex()
    earlier = index.bring(["earlier_identifier"])
    trial = index.draft().bring(["earlier_identifier trial_identifier"])
    assert trial.names() == ["trial_identifier"]
    assert earlier.found == ["earlier_identifier"]
    assert index.bring(["trial_identifier"]).names() == ["trial_identifier"]


def test_the_oldest_are_read_once_too_much_waits() -> None:
    index = IdentifierIndex(max_unread_chars=40)
    first, second = index.bring(["first_identifier"]), index.bring(["second_identifier"])
    assert first.found is None
    third = index.draft().bring(["third_identifier"])
    assert (first.found, second.found, third.found) == (None, None, None)
    large = index.draft().bring(["large_identifier " * 4])
    assert (second.found, large.found) == (["second_identifier"], ["large_identifier"])


def test_what_came_into_a_draft_of_a_draft_is_known_once_it_is_taken() -> None:
    index = IdentifierIndex()
    several = index.draft()
    for text in ("first_identifier", "first_identifier second_identifier"):
        one = several.draft()
        brought = one.bring([text])
        several.take(one)
        index.take(one)
    assert brought.names() == ["second_identifier"]
    assert index.bring(["first_identifier second_identifier"]).names() == []


def test_what_a_draft_has_read_is_not_read_again() -> None:
    index = IdentifierIndex()
    draft = index.draft()
    read = draft.bring(["first_identifier"])
    assert read.names() == ["first_identifier"]
    index.take(draft)
    assert index.bring(["first_identifier second_identifier"]).names() == ["second_identifier"]
    assert read.names() == ["first_identifier"]
