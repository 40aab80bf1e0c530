"""The index of words, as a database of its own."""

import gc

import pytest

from connections import noted_connections
from ctxfs.tools.recall.archive import Passage, WordIndex


def test_an_index_that_is_dropped_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = noted_connections(monkeypatch)
    index = WordIndex()
    index.add(0, [Passage(1, 0, "a word\n")])
    assert [ranked.position for ranked in index.search("word", limit=3, positions=[0])] == [0]
    assert closed == {0: False}
    del index
    gc.collect()
    assert closed == {0: True}


def test_an_index_may_be_closed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = noted_connections(monkeypatch)
    index = WordIndex()
    index.close()
    index.close()
    assert closed == {0: True}
