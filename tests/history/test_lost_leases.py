"""A history on a store that many machines reach: it was taken over, or its store did not answer, and goes on."""

import logging
from collections.abc import Callable, Iterator

import anyio
import pytest

from ctxfs.context.history.history import History
from ctxfs.errors import SessionNotFound, StorageError
from ctxfs.stores import ObjectSessions
from history.test_history import KEEP_ONE, conversation
from storage.buckets import Fate, MemoryBucket

pytestmark = pytest.mark.not_measured


class Disturbed(MemoryBucket):
    """A bucket that cannot be read while it is away; something else happens before its next writes."""

    def __init__(self) -> None:
        super().__init__()
        self.before_writes: list[Callable[[], object]] = []
        self.is_away = False

    def create(self, key: str, data: bytes) -> None:
        if self.before_writes:
            self.before_writes.pop(0)()
        super().create(key, data)

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        if self.is_away:
            raise StorageError("the server was not reached")
        return super().keys(prefix, after=after)


def stopped_for_long(bucket: MemoryBucket) -> ObjectSessions:
    """Sessions whose lease has always run out: as after a stop that is longer than it."""
    return ObjectSessions(bucket, url="s3://test", ttl_s=0, give_up_s=0)


def nothing() -> None:
    pass


def test_a_history_that_was_taken_over_takes_its_session_again(caplog: pytest.LogCaptureFixture) -> None:
    bucket = Disturbed()
    with (
        History("s", root_path=stopped_for_long(bucket), **KEEP_ONE) as stale,
        History("s", root_path=stopped_for_long(bucket), **KEEP_ONE) as other,
    ):
        first = stale.rewrite(conversation(2))
        # It takes the session, and stops before it commits.
        bucket.before_writes = [nothing, lambda: other.rewrite(conversation(3))]
        with caplog.at_level(logging.WARNING, "ctxfs.context"):
            assert stale.rewrite(conversation(3)) == first
        assert "session s is locked by a writer that took the session over meanwhile" in caplog.text
        assert stale.rewrite(conversation(3)) == other.rewrite(conversation(3))
        assert stale.rewrite(conversation(4)) == other.rewrite(conversation(4))


def test_a_history_that_was_taken_over_is_closed_without_a_word() -> None:
    bucket = Disturbed()
    with History("s", root_path=stopped_for_long(bucket), **KEEP_ONE) as other:
        with History("s", root_path=stopped_for_long(bucket), **KEEP_ONE) as stale:
            stale.rewrite(conversation(2))
            bucket.before_writes = [nothing, lambda: other.rewrite(conversation(3))]
            stale.rewrite(conversation(3))
        assert len(other.rewrite(conversation(4))) == 3


@pytest.mark.parametrize("fate", ["lost", "answer lost"])
@pytest.mark.parametrize("away", [False, True])
def test_a_commit_of_unknown_outcome_is_looked_up_at_once_or_at_the_next_use(fate: Fate, away: bool) -> None:
    fates: list[Fate] = []
    bucket = MemoryBucket(lambda _: fates.pop(0) if fates else "done")
    with History("s", root_path=stopped_for_long(bucket), **KEEP_ONE) as history:
        first = history.rewrite(conversation(2))
        fates += ["done", "done", fate]  # it marks and takes the session, and commits
        if away:
            fates += ["lost"]  # it takes the session again
            assert history.rewrite(conversation(3)) == first
        edits = history.rewrite(conversation(3))
        assert len(edits) == 2
    with History("s", root_path=stopped_for_long(bucket), **KEEP_ONE) as later:
        assert later.rewrite(conversation(3)) == edits


def test_what_was_replaced_stays_so_while_the_store_is_away(caplog: pytest.LogCaptureFixture) -> None:
    bucket = Disturbed()
    with History("s", root_path=stopped_for_long(bucket), **KEEP_ONE) as history:
        first = history.rewrite(conversation(2))
        bucket.is_away = True
        with caplog.at_level(logging.WARNING, "ctxfs.context"):
            assert history.rewrite(conversation(3)) == first
        assert "session s is used as it was last known: the server was not reached" in caplog.text
        with pytest.raises(StorageError, match="the server was not reached"):
            history.run_tool("context_list", {})
        history.replied({"input_tokens": 900, "output_tokens": 1})
        bucket.is_away = False
        assert len(history.rewrite(conversation(3))) == 2


def test_what_another_process_decided_is_taken_in_without_a_write() -> None:
    bucket = MemoryBucket()
    with (
        History("s", root_path=stopped_for_long(bucket), **KEEP_ONE) as first,
        History("s", root_path=stopped_for_long(bucket), **KEEP_ONE) as second,
    ):
        first.rewrite(conversation(2))
        second.rewrite(conversation(2))
        edits = first.rewrite(conversation(3))
        bucket.requests.clear()
        assert second.rewrite(conversation(3)) == edits
        assert {kind for kind, _ in bucket.requests} == {"list", "get"}
        assert len(second.rewrite(conversation(4))) == 3


def test_a_session_that_was_removed_and_made_again_is_opened_again() -> None:
    bucket = MemoryBucket()
    stores = stopped_for_long(bucket)
    with (
        History("s", root_path=stores, **KEEP_ONE) as first,
        History("s", root_path=stopped_for_long(bucket), **KEEP_ONE) as second,
    ):
        first.rewrite(conversation(3))
        anyio.run(stores.remove, "s")
        with pytest.raises(SessionNotFound):
            first.rewrite(conversation(4))
        edits = second.rewrite(conversation(4))
        assert first.rewrite(conversation(4)) == edits
        assert first.run_tool("context_read", {"ref": "c0"}).is_error is False


def test_what_a_removed_session_stored_is_stored_again() -> None:
    bucket = MemoryBucket()
    with (
        History("s", root_path=stopped_for_long(bucket), **KEEP_ONE) as first,
        History("s", root_path=stopped_for_long(bucket), **KEEP_ONE) as second,
    ):
        assert len(first.rewrite(conversation(4))) == 3
        anyio.run(stopped_for_long(bucket).remove, "s")
        second.rewrite(conversation(2))
        first.rewrite(conversation(4))
        for item in ("c0", "c1", "c2"):
            assert first.run_tool("context_read", {"ref": item}).is_error is False
