"""Which placeholder an item gets."""

from functools import partial

from ctxfs.eviction.placeholder.attach import placeholder_for, with_placeholder
from ctxfs.eviction.placeholder.text import render
from ctxfs.messages import CharsCounter
from ctxfs.messages.messages import ToolMessage
from session_items import make_item

COUNTER = CharsCounter()
PATH = "/s/call_1.json"


def test_a_description_with_which_nothing_would_be_saved_is_left_out() -> None:
    item = make_item("call_1", ToolMessage("call_1", "Read", "found"), tokens=40)
    for description, text in (("short", render(PATH, "short")), ("d" * 1_000, render(PATH))):
        found = placeholder_for(item, path=PATH, counter=COUNTER, digest=partial(str, description))
        assert found is not None
        assert found.write()[0] == text


def test_an_item_that_is_no_larger_than_its_placeholder_has_none() -> None:
    item = make_item("call_1", ToolMessage("call_1", "Read", "found"), tokens=1, placeholder_tokens=1)
    bare = with_placeholder(item, path=PATH, counter=COUNTER)
    assert (bare.placeholder, bare.placeholder_tokens) == (None, 0)
