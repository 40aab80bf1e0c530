"""What happened to the context, as a sentence for the log."""

import pytest

from ctxfs.errors import StorageError
from ctxfs.eviction.events import (
    Compacted,
    ContentReadBack,
    ContentRestored,
    ContextEvent,
    Evicted,
    Offloaded,
    OffloadFailed,
    RecordFailed,
    SummaryFailed,
    story,
)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (Offloaded(item_id="a", path="/s/a", tokens=9, size_bytes=1_000), "stored a: 1,000 bytes in /s/a"),
        (
            Evicted(item_id="a", tool_name="Re\nad", path="/s/a", tokens_before=1_000, tokens_after=9, reason="due"),
            "evicted a (of 'Re\\nad'): 1,000 -> 9 tokens; due",
        ),
        (
            Compacted(tokens_before=1_000, tokens_after=9, steps=("types", "archive")),
            "compacted the context: 1,000 -> 9 tokens, by types, archive",
        ),
        (ContentRestored(item_id="a", tokens=1_000, reason="as\nasked"), "restored a: 1,000 tokens; 'as\\nasked'"),
        (
            ContentReadBack(item_id="a", first_line=1, last_line=9, tokens=1_000),
            "read back lines 1-9 of a: 1,000 tokens",
        ),
        (SummaryFailed(reason="it is long"), "there is no summary: it is long"),
        (OffloadFailed(item_id="a", error=StorageError("the disk is full")), "the disk is full"),
        (RecordFailed(item_ids=("a",), error=StorageError("the disk is full")), "the disk is full"),
    ],
)
def test_an_event_is_a_sentence(event: ContextEvent, said: str) -> None:
    assert story(event) == said
