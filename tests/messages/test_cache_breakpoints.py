"""Where the next request tells the provider to cache."""

from hypothesis import given
from hypothesis import strategies as st

from ctxfs.messages.cache_breakpoints import CacheMarks
from ctxfs.messages.messages import AssistantMessage, Message, UserMessage
from ctxfs.messages.serialize import MAX_BREAKPOINTS


def conversation(turns: int) -> list[Message]:
    return [message for n in range(turns) for message in (UserMessage(f"q{n}"), AssistantMessage(f"a{n}"))]


@given(grown=st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_what_only_grows_is_marked_where_it_ended_last_time_and_at_its_end(grown: list[int]) -> None:
    marks, messages = CacheMarks(), conversation(sum(grown))
    before = sent = 0
    for turns in grown:
        sent += 2 * turns
        marks.sent(tuple(messages[:sent]))
        assert marks.breakpoints[-1] == sent
        assert not before or marks.breakpoints[0] == before
        assert list(marks.breakpoints) == sorted(set(marks.breakpoints))
        assert len(marks.breakpoints) < MAX_BREAKPOINTS  # one is the system prompt's
        before = sent


def test_what_changed_is_cached_up_to_the_last_mark_before_the_change() -> None:
    marks, messages = CacheMarks(), conversation(4)
    marks.sent(tuple(messages))
    assert marks.breakpoints == (5, 8)
    changed = [*messages[:6], UserMessage("another")]
    marks.sent(tuple(changed))
    assert marks.breakpoints == (5, 7)


def test_a_spare_breakpoint_stands_before_the_next_change_with_each_request() -> None:
    marks, messages = CacheMarks(), conversation(10)
    for sent, expected in ((10, (3, 10)), (16, (3, 10, 16)), (18, (3, 16, 18))):
        marks.sent(tuple(messages[:sent]), spare=3)
        assert marks.breakpoints == expected
    changed = [*messages[:3], UserMessage("evicted"), *messages[4:20]]
    marks.sent(tuple(changed), spare=5)
    assert marks.breakpoints == (3, 5, 20)  # what was marked is read, the rest is written again
    marks.sent(tuple(changed[:1]), spare=0)
    assert len(marks.breakpoints) == 1  # before the first message nothing is worth a breakpoint
