"""Sessions in an object store: any store of obstore's, and a bucket that loses requests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.errors import (
    NotStored,
    OutcomeUnknown,
    SessionClosed,
    SessionLocked,
    SessionNotFound,
    StorageError,
    UnsafePath,
    WriteFailed,
)
from ctxfs.storage import NewFile, SharedStore, Store
from ctxfs.stores import Bucket, ObjectStore, open_bucket
from ctxfs.stores.objects.row import session_prefix
from ctxfs.stores.objects.segments import chunks_to_read, decode
from ctxfs.testing.shared_store_conformance import Machine, SharedStoreConformance
from ctxfs.testing.store_conformance import StoreConformance
from storage.buckets import Fate, MemoryBucket
from storage.networks import NetworkBucket, OverwritingBucket, found_out, shared_objects


class OnObjects(SharedStoreConformance):
    """Sessions in ``self.bucket``."""

    bucket: Bucket
    network_bucket = NetworkBucket

    def new_shared(self) -> Callable[[Machine], SharedStore]:
        return shared_objects(self.bucket, self.network_bucket)


@pytest.mark.anyio
class TestInMemory(OnObjects):
    @property
    def bucket(self) -> Bucket:  # type: ignore[override]
        return MemoryBucket()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the engine is that of the class above
class TestInADirectory(OnObjects):
    @pytest.fixture(autouse=True)
    def directory(self, tmp_path: Path) -> None:
        self.bucket = open_bucket((tmp_path / "made").as_uri())


class Overwriting(OnObjects):
    bucket = MemoryBucket()
    network_bucket = OverwritingBucket


@pytest.mark.slow
def test_a_store_that_writes_without_the_condition_is_found_out() -> None:
    failed = found_out(Overwriting())
    assert "test_a_writer_that_was_stopped_past_its_lease_is_fenced" in failed
    assert "test_a_request_that_arrives_after_the_take_over_does_nothing" in failed
    assert "test_acknowledged_means_there_once_and_in_order" in failed


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the engine is that of TestInMemory
class TestInObstoresMemory(StoreConformance):
    def new_session(self) -> Callable[[], Store]:
        bucket = open_bucket("memory:///")
        return lambda: ObjectStore(bucket, "session")


class Clock:
    """Seconds that pass when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("session_id", ["a/b", "..", "a\\b", ""])
def test_a_session_id_that_is_a_path_is_refused(session_id: str) -> None:
    with pytest.raises(UnsafePath):
        ObjectStore(MemoryBucket(), session_id)


def opened(bucket: Bucket, clock: Clock, *, write: bool = True, create: bool = True) -> ObjectStore:
    store = ObjectStore(bucket, "session", ttl_s=30, give_up_s=10, clock=clock, sleep=clock.sleep)
    return store.open(create=create, write=write)


def commit(session: ObjectStore, name: str, data: bytes = b"data") -> None:
    session.commit([NewFile(name=name, chunks=[data])], f"{name}\n".encode)


def lines(bucket: Bucket) -> list[str]:
    """The log, as somebody reads it who was not there."""
    return opened(bucket, Clock(), write=False, create=False).read_log(0).decode().split()


# One writer ---------------------------------------------------------------------------------------------------------


def test_a_writer_that_slept_past_its_lease_is_fenced() -> None:
    bucket, clock = MemoryBucket(), Clock()
    first = opened(bucket, clock)
    commit(first, "a")
    clock.now += 29
    with pytest.raises(SessionLocked):
        opened(bucket, clock)
    clock.now += 2
    second = opened(bucket, clock)
    commit(second, "b")
    for _ in range(2):
        with pytest.raises(SessionLocked):
            commit(first, "c")
    with pytest.raises(SessionLocked):
        first.truncate_log(0)
    first.close()
    commit(second, "d")
    assert lines(bucket) == ["a", "b", "d"]


def test_clocks_that_disagree_cost_politeness_only() -> None:
    bucket, early, late = MemoryBucket(), Clock(), Clock()
    late.now += 10_000
    first = opened(bucket, early)
    second = opened(bucket, late)
    commit(second, "a")
    with pytest.raises(SessionLocked):
        commit(first, "b")
    assert lines(bucket) == ["a"]


def test_without_a_lease_no_clock_keeps_a_session() -> None:
    bucket = MemoryBucket()
    for now in (2_000.0004, 1_000.0, 1_000.0):
        session = ObjectStore(bucket, "session", ttl_s=0, clock=lambda now=now: now)  # type: ignore[misc]
        assert session.open(create=True, write=True).epoch


def test_the_time_of_a_commit_is_not_after_it() -> None:
    bucket = MemoryBucket()
    for now in (2_000.0009, 2_030.0009):
        session = ObjectStore(bucket, "session", ttl_s=30, clock=lambda now=now: now)  # type: ignore[misc]
        assert session.open(create=True, write=True).epoch


def test_a_session_that_was_let_go_of_is_taken_at_once() -> None:
    bucket, clock = MemoryBucket(), Clock()
    first = opened(bucket, clock)
    commit(first, "a")
    first.close()
    opened(bucket, clock)


def test_a_writer_that_died_is_told_to_who_comes_back() -> None:
    bucket, clock = MemoryBucket(), Clock()
    first = opened(bucket, clock)
    first.release()
    second = opened(bucket, clock)
    commit(second, "a")
    clock.now += 31  # it is gone, and never released
    assert first.acquire() is False
    commit(first, "b")
    assert lines(bucket) == ["a", "b"]


# Requests without an answer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", ["lost", "answer lost", "delayed"])
def test_a_request_without_an_answer_is_repeated(fate: Fate) -> None:
    fates: Iterator[Fate] = iter([fate])
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    bucket.fate = lambda _: next(fates, "done")
    commit(session, "a")
    commit(session, "b")
    assert lines(bucket) == ["a", "b"]


@pytest.mark.parametrize("fate", ["lost", "answer lost", "delayed"])
def test_what_stays_without_an_answer_is_unknown_until_the_session_is_opened_again(fate: Fate) -> None:
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    commit(session, "a")
    bucket.fate = lambda _: fate
    with pytest.raises(OutcomeUnknown):
        commit(session, "b")
    bucket.fate = lambda _: "done"
    with pytest.raises(OutcomeUnknown):
        commit(session, "c")
    clock.now += 31
    commit(opened(bucket, clock), "d")
    assert lines(bucket) in (["a", "d"], ["a", "b", "d"])


def test_a_refusal_after_a_lost_answer_is_no_failure() -> None:
    """The first try may have been done."""
    fates: Iterator[Fate] = iter(["answer lost", "refused"])
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    bucket.fate = lambda _: next(fates)
    with pytest.raises(OutcomeUnknown):
        commit(session, "a")
    assert lines(bucket) == ["a"]


def test_what_is_refused_was_not_done_and_may_be_tried_again() -> None:
    fates: Iterator[Fate] = iter(["refused"])
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    bucket.fate = lambda _: next(fates, "done")
    with pytest.raises(WriteFailed) as failed:
        commit(session, "a")
    assert not isinstance(failed.value, OutcomeUnknown)
    commit(session, "a")
    assert lines(bucket) == ["a"]


FATES: st.SearchStrategy[Fate] = st.sampled_from(["done", "done", "done", "lost", "answer lost", "delayed", "refused"])


@given(
    fates=st.lists(FATES, max_size=60),
    turns=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.booleans()), max_size=40),
)
def test_acknowledged_means_there_once_and_in_order(fates: list[Fate], turns: list[tuple[int, int, bool]]) -> None:
    """Three writers that sleep, lose answers and take each other's sessions over."""
    drawn = iter(fates)
    bucket, clock = MemoryBucket(lambda _: next(drawn, "done")), Clock()
    writers: list[ObjectStore | None] = [None, None, None]
    acknowledged: list[str] = []
    for number, (who, seconds, ends) in enumerate(turns):
        clock.now += seconds
        name = f"{who}-{number}"
        try:
            writer = writers[who] = writers[who] or opened(bucket, clock)
            commit(writer, name)
            acknowledged.append(name)
            if ends:
                writer.close()
                writers[who] = None
        except (SessionLocked, OutcomeUnknown):
            writers[who] = None
        except WriteFailed:
            continue
    bucket.fate = lambda _: "done"
    try:
        found = lines(bucket)
    except SessionNotFound:
        found = []  # no writer got as far as the session's first segment
    assert len(set(found)) == len(found)
    assert [line for line in found if line in set(acknowledged)] == acknowledged


# Opening -------------------------------------------------------------------------------------------------------------


def test_opening_reads_few_objects() -> None:
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    for number in range(2_000):
        commit(session, f"f{number}", b"%d" % number)
    bucket.requests.clear()
    assert len(lines(bucket)) == 2_000
    assert len(bucket.requests) <= 32, "it was killed: the last segments have no chunk"
    session.close()
    bucket.requests.clear()
    reader = opened(bucket, clock, write=False, create=False)
    assert reader.read("f1234", 0, None) == b"1234"
    assert len(bucket.requests) <= 20


@pytest.mark.slow
def test_opening_after_many_short_turns_reads_few_objects() -> None:
    """Wherever the turns end, and though a writer only knows the chunks that it read or wrote itself."""
    for commits in (1, 2, 3, 5):
        bucket, clock = MemoryBucket(), Clock()
        sleeping = opened(bucket, clock)
        sleeping.release()
        for turn in range(120):
            session = sleeping if turn % 10 == 9 else opened(bucket, clock)
            session.acquire()
            for number in range(commits):
                name = f"f{turn}-{number}"
                last = turn % 2 > 0 and number == commits - 1
                file = NewFile(name=name, chunks=[b"x"])
                commits_it = session.commit_and_release if last else session.commit
                commits_it([file], f"{name}\n".encode)
            session.release()
        bucket.requests.clear()
        assert len(lines(bucket)) == 120 * commits
        assert len(bucket.requests) <= 24, commits


@pytest.mark.slow
@given(commits=st.integers(0, 150), kept=st.sets(st.integers(0, 12)))
def test_any_chunks_are_enough(commits: int, kept: set[int]) -> None:
    """They are derived: whichever are lost, a session is the same."""
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    for number in range(commits):
        if number % 7 == 3:
            session.delete([f"f{number - 1}"])
        commit(session, f"f{number}", b"%d" % number)
    before = lines(bucket), opened(bucket, clock, write=False).names("")
    chunks = [key for key in bucket.objects if "/k/" in key]
    for number, key in enumerate(chunks):
        if number not in kept:
            del bucket.objects[key]
    assert (lines(bucket), opened(bucket, clock, write=False).names("")) == before


def test_a_damaged_chunk_is_not_needed() -> None:
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    for number in range(20):
        commit(session, f"f{number}")
    before = lines(bucket)
    (key,) = (key for key in bucket.objects if "/k/" in key)
    head, _, frame = bucket.objects[key].partition(b"\n")
    for damaged in (
        head,
        head + b"\n",
        head + b"\n" + frame[:-1],
        head.replace(b'"size":', b'"size":9') + b"\n",
        b"{}\n",
    ):
        bucket.objects[key] = damaged
        assert lines(bucket) == before


def test_no_byte_of_a_chunk_or_segment_can_change_unnoticed() -> None:
    """A session whose chunk is damaged is read from the segments; one whose segment is damaged is not read."""
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    for number in range(20):
        commit(session, f"f{number}")
    session.close()
    before = lines(bucket)
    (chunk,) = (key for key in bucket.objects if "/k/" in key)
    last = max(key for key in bucket.objects if "/s/" in key)
    for key in (chunk, last):
        whole = bucket.objects[key]
        for at in range(len(whole)):
            damaged = whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]
            with pytest.raises(StorageError, match=key[-12:]):
                decode(key.removeprefix(session_prefix("session")), damaged)
    for at in (0, 40, len(bucket.objects[chunk]) - 9):
        whole = bucket.objects[chunk]
        bucket.objects[chunk] = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        assert lines(bucket) == before
        bucket.objects[chunk] = whole


def test_an_object_in_the_place_of_another_is_not_read() -> None:
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    for number in range(70):
        commit(session, f"f{number}")
    before = lines(bucket)
    chunks = sorted(key for key in bucket.objects if "/k/" in key)
    first = bucket.objects[chunks[0]]
    for key in chunks[1:]:
        bucket.objects[key] = first
        assert lines(bucket) == before
    segments = sorted(key for key in bucket.objects if "/s/" in key)
    bucket.objects[segments[-1]] = bucket.objects[segments[-2]]
    with pytest.raises(StorageError, match="checksum"):
        lines(bucket)


def test_chunks_that_lead_furthest_are_read() -> None:
    keys = ["k/000000000000-000000000016", "k/000000000000-000000000064", "k/000000000064-000000000080", "k/x-y"]
    assert chunks_to_read(keys) == [keys[1], keys[2]]
    assert chunks_to_read(keys[2:]) == []


def test_damage_is_named() -> None:
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    for name in "abc":
        commit(session, name)
    key = f"{session_prefix('session')}s/000000000002"
    whole = bucket.objects[key]
    for damaged in (b"", b"{}\n", whole[:-1], b'{"v":1}\n', b'{"v":3}\n'):
        bucket.objects[key] = damaged
        with pytest.raises(StorageError, match="000000000002"):
            lines(bucket)
    del bucket.objects[key]
    with pytest.raises(StorageError, match="segment 2 is missing"):
        lines(bucket)


# Removing ------------------------------------------------------------------------------------------------------------


def test_a_removed_session_is_gone_and_its_sleeping_writer_stays_out() -> None:
    bucket, clock = MemoryBucket(), Clock()
    sleeper = opened(bucket, clock)
    for number in range(40):
        commit(sleeper, f"f{number}", bytes(2_000_000) if number == 3 else b"x")
    clock.now += 31
    opened(bucket, clock).remove()
    assert len(bucket.objects) == 2, "where the sleeper wakes up, and the end"
    assert not any("session" in key for key in bucket.objects), "no id"
    assert not any(b'"f1"' in data or b'"f39"' in data for data in bucket.objects.values()), "no name"
    with pytest.raises(SessionNotFound):
        lines(bucket)
    with pytest.raises(SessionLocked):
        commit(sleeper, "late")
    fresh = opened(bucket, clock)
    commit(fresh, "new")
    assert lines(bucket) == ["new"]
    with pytest.raises(NotStored):
        fresh.read("f1", 0, None)


def test_one_object_is_left_of_a_session_whose_writers_took_turns() -> None:
    """However many there were: one that released the session does not wake up in it."""
    bucket, clock = MemoryBucket(), Clock()
    for turn in range(20):
        session = opened(bucket, clock)
        commit(session, f"f{turn}")
        session.close()
    opened(bucket, clock).remove()
    assert len(bucket.objects) == 1
    again = opened(bucket, clock)
    for number in range(100):
        commit(again, f"n{number}")
    again.close()
    bucket.requests.clear()
    assert lines(bucket) == [f"n{number}" for number in range(100)]
    assert len(bucket.requests) <= 24, "it has summaries as any other session"
    opened(bucket, clock).remove()
    assert len(bucket.objects) == 1


def test_a_writer_that_slept_through_two_lives_of_a_session_stays_out() -> None:
    bucket, clock = MemoryBucket(), Clock()
    sleeper = opened(bucket, clock)
    commit(sleeper, "a")
    for _ in range(2):
        clock.now += 31
        opened(bucket, clock).remove()
        with pytest.raises(SessionLocked):
            commit(sleeper, "late")
        sleeper._lost = None  # noqa: SLF001 - it never learned that it was refused
        commit(opened(bucket, clock), "b")
    assert lines(bucket) == ["b"]


class Asleep(MemoryBucket):
    """A bucket whose first creation of a segment comes after ``meanwhile``."""

    meanwhile: Callable[[MemoryBucket], None] | None = None

    def create(self, key: str, data: bytes) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile(self)
        super().create(key, data)


def lived_and_removed(bucket: MemoryBucket) -> None:
    """Others use the session, and remove it: the numbers that they had are free again."""
    for turn in range(2):
        session = opened(bucket, Clock())
        commit(session, f"others{turn}")
        session.close()
    opened(bucket, Clock()).remove()


def lived_removed_and_made_again(bucket: MemoryBucket) -> None:
    lived_and_removed(bucket)
    commit(opened(bucket, Clock()), "theirs")


@pytest.mark.parametrize("existed", [False, True])
def test_a_writer_that_slept_before_it_took_a_removed_session_makes_it_again(*, existed: bool) -> None:
    """Its number was free again, below the removal: what it wrote there, nobody would ever read."""
    bucket = Asleep()
    if existed:
        session = opened(bucket, Clock())
        commit(session, "before")
        session.close()
    bucket.meanwhile = lived_and_removed
    woken = opened(bucket, Clock())
    for number in range(10):
        commit(woken, f"n{number}")
    woken.close()
    assert lines(bucket) == [f"n{number}" for number in range(10)]
    opened(bucket, Clock()).remove()
    assert len(bucket.objects) == 1, "also of its first try nothing is left"


def test_a_writer_that_slept_before_it_took_a_removed_session_finds_none() -> None:
    bucket = Asleep()
    opened(bucket, Clock()).close()
    bucket.meanwhile = lived_and_removed
    with pytest.raises(SessionNotFound):
        opened(bucket, Clock(), create=False)
    assert len(bucket.objects) == 1, "it leaves no mark, and no segment"
    assert not any("session" in key for key in bucket.objects), "no id"


def test_a_writer_that_slept_before_it_took_a_session_waits_for_the_next_one_of_this_id() -> None:
    bucket = Asleep()
    opened(bucket, Clock()).close()
    bucket.meanwhile = lived_removed_and_made_again
    with pytest.raises(SessionLocked):
        opened(bucket, Clock())
    assert lines(bucket) == ["theirs"]


def test_a_writer_that_comes_back_lists_once() -> None:
    """After it has taken the session: what others wrote meanwhile has its number, or is listed after it."""
    bucket = MemoryBucket()
    session = ObjectStore(bucket, "session").open(create=True, write=True)
    for name in ("a", "b"):
        session.commit_and_release([], f"{name}\n".encode)
        bucket.requests.clear()
        session.acquire()
        assert [kind for kind, _ in bucket.requests if kind != "delete"] == ["put", "create", "list"]
    session.release()
    other = ObjectStore(bucket, "session").open(create=False, write=True)
    other.commit_and_release([], lambda: b"theirs\n")
    session.acquire()
    session.commit_and_release([], lambda: b"c\n")
    assert lines(bucket) == ["a", "b", "theirs", "c"]
    other.acquire()
    other.remove()
    with pytest.raises(SessionNotFound):
        session.acquire()
    assert len(bucket.objects) == 1


def test_a_snapshot_is_the_session_as_it_was_opened_in_two_lists() -> None:
    bucket = MemoryBucket()
    writer = ObjectStore(bucket, "session").open(create=True, write=True)
    writer.commit([NewFile(name="a", chunks=[b"a"])], lambda: b"a\n")
    bucket.requests.clear()
    reader = ObjectStore(bucket, "session", snapshot=True).open(create=False, write=False)
    writer.commit([NewFile(name="b", chunks=[b"b"])], lambda: b"b\n")
    for _ in range(2):
        assert reader.read_log() == b"a\n"
        assert reader.names() == ["a"]
        assert reader.read("a") == b"a"
    assert [kind for kind, _ in bucket.requests].count("list") == 2
    writer.close()


# What takes space ----------------------------------------------------------------------------------------------------


def _lines_of_random_text(count: int) -> list[bytes]:
    """Lines of 400 characters that hardly compress."""
    random = Random(28)
    return [b"%s\n" % random.randbytes(200).hex().encode() for _ in range(count)]


def test_each_line_is_in_one_summary_at_most() -> None:
    """Bytes that no compression makes smaller are in the bucket twice: in a segment, and in a summary."""
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    random = Random(28)
    for _ in range(1_500):
        session.commit([], lambda: random.randbytes(400))
    segments = sum(len(data) for key, data in bucket.objects.items() if "/s/" in key)
    assert sum(map(len, bucket.objects.values())) <= 2 * segments
    reader = opened(bucket, clock, write=False, create=False)
    assert len(reader.read_log()) == 1_500 * 400


@pytest.mark.parametrize("content", [0, 200])
def test_a_bucket_holds_at_most_twice_the_log_beside_the_contents(content: int) -> None:
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    written = _lines_of_random_text(1_000)
    for number, line in enumerate(written):
        files = [NewFile(name=f"tool_result/Read/call_{number}.json", chunks=[b"c" * content])] if content else []
        session.commit(files, lambda line=line: line)  # type: ignore[misc]
    session.close()
    assert lines(bucket) == [line.decode().strip() for line in written]
    held = sum(map(len, bucket.objects.values()))
    assert held <= 2 * sum(map(len, written)) + 1_000 * content


def test_a_summary_that_is_deleted_while_it_is_read_is_looked_for_again() -> None:
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    for number in range(60):
        commit(session, f"f{number}")

    class Overtaken(MemoryBucket):
        def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
            found = list(super().keys(prefix, after=after))
            if "/k/" in prefix and session.read_log(0).count(b"\n") < 70:
                for number in range(60, 70):
                    commit(session, f"f{number}")
            return iter(found)

    reader = Overtaken()
    reader.objects = bucket.objects
    assert lines(reader) == [f"f{number}" for number in range(70)]
    assert len([key for kind, key in reader.requests if kind == "get" and "/s/" in key]) < 16


def test_what_a_killed_writer_left_is_an_orphan() -> None:
    """Only the one writer deletes it: another one may be about to write its segment."""
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    commit(session, "kept", bytes(2_000_000))
    bucket.fate = lambda key: "refused" if "/s/" in key else "done"
    with pytest.raises(WriteFailed):
        commit(session, "lost", bytes(2_000_000))
    bucket.fate = lambda _: "done"
    reader = opened(bucket, clock, write=False)
    assert reader.has_orphans()
    with pytest.raises(SessionClosed):
        reader.delete_orphans()
    assert session.delete_orphans() == 1
    assert not reader.has_orphans()
    assert len(session.read("kept", 0, None)) == 2_000_000
    assert session.delete_orphans() == 0


def test_a_session_whose_oldest_objects_expired_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """What is gone is not listed, so that opening and ``verify`` report it; the rest is there, and it goes on."""
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    for number in range(40):
        commit(session, f"f{number:02}")
    session.close()
    opened(bucket, clock, write=False)
    assert not caplog.records
    for key in sorted(key for key in bucket.objects if "/s/" in key)[:6]:
        del bucket.objects[key]
    reader = opened(bucket, clock, write=False)
    (record,) = caplog.records
    assert "5 of its files are gone from the store" in record.getMessage()
    assert "lifecycle rule" in record.getMessage()
    assert reader.names("") == [f"f{number:02}" for number in range(5, 40)]
    with pytest.raises(NotStored):
        reader.read("f00", 0, None)
    assert reader.read("f39", 0, None) == b"data"
    writer = opened(bucket, clock)
    commit(writer, "f40")
    writer.remove()
    assert len(bucket.objects) == 1


def test_a_removal_that_was_interrupted_is_a_removal() -> None:
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    for number in range(40):
        commit(session, f"f{number}")
    written = iter(range(1_000))
    bucket.fate = lambda _: "done" if next(written) < 12 else "lost"
    with pytest.raises(StorageError):
        session.remove()
    assert len(bucket.objects) > 20
    with pytest.raises(SessionNotFound):
        lines(bucket)


@pytest.mark.parametrize("has_chunk", [True, False])
def test_a_writer_that_slept_while_the_session_was_rewritten_and_removed_stays_out(*, has_chunk: bool) -> None:
    bucket, clock = MemoryBucket(), Clock()
    sleeper = opened(bucket, clock)
    commit(sleeper, "a")
    clock.now += 31
    second = opened(bucket, clock)
    commit(second, "b")
    second.rewrite(b"x\nb\n")
    second.close()
    assert lines(bucket) == ["x", "b"]
    for key in [key for key in bucket.objects if "/k/" in key and not has_chunk]:
        del bucket.objects[key]
    assert lines(bucket) == ["x", "b"]
    opened(bucket, clock).remove()
    with pytest.raises(SessionLocked):
        commit(sleeper, "late")


def test_a_damaged_segment_that_a_chunk_covers_does_not_keep_a_session_from_being_rewritten() -> None:
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    for number in range(20):
        commit(session, f"f{number}")
    session.close()
    key = f"{session_prefix('session')}s/000000000003"
    whole = bucket.objects[key]
    bucket.objects[key] = b"?" + whole[1:]
    writer = opened(bucket, clock)
    before = lines(bucket)
    writer.rewrite()
    assert lines(bucket) == before
    assert bucket.objects[key] == b""
    assert writer.read("f2", 0, None) == b"data"


def test_retries_unknown_outcomes_and_lost_leases_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ctxfs.stores")
    bucket, clock = MemoryBucket(), Clock()
    first = opened(bucket, clock)
    fates: list[Fate] = ["answer lost"]
    bucket.fate = lambda _: fates.pop() if fates else "done"
    commit(first, "a")
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "written again" in caplog.text
    clock.now += 31
    opened(bucket, clock)
    with pytest.raises(SessionLocked):
        commit(first, "b")
    assert "taken over by another writer" in caplog.records[-1].getMessage()
    clock.now += 31
    third = opened(bucket, clock)
    bucket.fate = lambda _: "lost"
    with pytest.raises(OutcomeUnknown):
        commit(third, "c")
    assert "whether a change was stored is not known" in caplog.records[-1].getMessage()
