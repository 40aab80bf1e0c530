"""Contents in an object store: those that grow, those that are large, and those that were read before."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs import ContextFileSystem
from ctxfs.errors import ConfigError, NotStored, OutcomeUnknown, SessionLocked, WriteFailed
from ctxfs.session.filesystem import storage_of
from ctxfs.storage import NewFile
from ctxfs.stores import ObjectStore, ReadCache
from ctxfs.stores.objects.segments import Located, within
from ctxfs.stores.objects.store import newest_marks
from storage.buckets import Fate, MemoryBucket
from storage.test_objects import Clock, commit, lines, opened

MIB = 1 << 20

# Output that grows ---------------------------------------------------------------------------------------------------


def test_what_grows_waits_for_more_and_is_read_at_once() -> None:
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    bucket.requests.clear()
    for number in range(100):
        session.append("log", b"%03d\n" % number, sync=False)
    assert bucket.requests == []
    assert session.size("log") == 400
    assert session.names("") == ["log"]
    assert session.read("log", 0, 4) + session.read("log", 398, 100) == b"000\n9\n"
    session.append("log", b"", sync=True)
    assert [kind for kind, _ in bucket.requests] == ["create"]
    session.append("log", b"end", sync=False)
    assert session.read("log", 396, None) == b"099\nend"
    assert session.read("log", 1_000, 1) == b""
    reader = opened(bucket, clock, write=False)
    assert reader.read("log", 396, None) == b"099\n", "the rest is on its way"


def test_what_grows_goes_with_the_next_commit_after_a_while_or_when_there_is_much() -> None:
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    bucket.requests.clear()
    session.append("log", b"1", sync=False)
    commit(session, "a")
    assert len(bucket.requests) == 1
    session.append("log", b"2", sync=False)
    clock.now += 6
    session.append("log", b"3", sync=False)
    assert len(bucket.requests) == 2
    session.append("log", bytes(MIB), sync=False)
    assert len(bucket.requests) == 3
    session.append("log", bytes(MIB + 1), sync=False)
    assert len(bucket.requests) == 5, "it has an object of its own"
    assert opened(bucket, clock, write=False).read("log", 0, 4) == b"123\0"
    assert opened(bucket, clock, write=False).size("log") == 2 * MIB + 4


def test_closing_keeps_what_grew_and_a_refused_request_too() -> None:
    fates: Iterator[Fate] = iter(["refused"])
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    bucket.fate = lambda _: next(fates, "done")
    with pytest.raises(WriteFailed):
        session.append("log", b"1", sync=True)
    session.append("log", b"2", sync=False)
    session.close()
    assert opened(bucket, clock, write=False).read("log", 0, None) == b"12"


def test_a_growing_file_is_deleted_with_all_its_parts() -> None:
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    session.append("log", bytes(2 * MIB), sync=True)
    session.append("log", bytes(2 * MIB), sync=True)
    session.append("log", b"1", sync=False)
    session.append("other", b"1", sync=False)
    session.delete(["log", "other", "never"])
    assert session.names("") == []
    assert not [key for key in bucket.objects if "/c/" in key]
    with pytest.raises(NotStored):
        session.read("other", 0, None)


@given(
    sizes=st.lists(st.integers(0, 9), max_size=5),
    offset=st.integers(0, 40),
    length=st.none() | st.integers(0, 40),
    waiting=st.integers(0, 9),
)
def test_parts_are_read_as_one(sizes: list[int], offset: int, length: int | None, waiting: int) -> None:
    session = opened(MemoryBucket(), Clock())
    whole = b""
    for size in sizes:
        session.append("log", part := bytes(range(len(whole), len(whole) + size)), sync=True)
        whole += part
    session.append("log", b"x" * waiting, sync=False)
    whole += b"x" * waiting
    assert session.read("log", offset, length) == whole[offset:][:length]


def test_no_empty_range_is_asked_for() -> None:
    parts = [Located("a", 0, 3), Located("b", 5, 0), Located("c", 7, 2)]
    assert list(within(parts, 0, None)) == [(parts[0], 0, 3), (parts[2], 0, 2)]
    assert list(within(parts, 2, 2)) == [(parts[0], 2, 1), (parts[2], 0, 1)]
    assert list(within(parts, 3, 1)) == [(parts[2], 0, 1)]
    assert list(within(parts, 5, 1)) == []
    assert list(within(parts, 0, 0)) == []


def test_many_contents_in_one_commit_are_written_one_at_a_time() -> None:
    """A segment is read whole, and is in memory as a whole."""
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    contents = {f"f{number}": bytes([number]) * 900_000 for number in range(20)}
    session.commit([NewFile(name=name, chunks=[data]) for name, data in contents.items()], lambda: b"a\n")
    assert max(map(len, bucket.objects.values())) < 9 * MIB
    reader = opened(bucket, clock, write=False)
    assert {name: reader.read(name, 0, None) for name in reader.names("")} == contents


# Own outcomes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", ["lost", "answer lost", "delayed"])
def test_a_writer_does_not_wait_for_its_own_lease(fate: Fate) -> None:
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    bucket.fate = lambda _: fate
    with pytest.raises(OutcomeUnknown):
        commit(session, "a")
    bucket.fate = lambda _: "done"
    with pytest.raises(SessionLocked):
        opened(bucket, clock)
    assert session.acquire() is False, "what its last commit left has to be looked for"
    commit(session, "b")
    assert lines(bucket) in (["b"], ["a", "b"])


@pytest.mark.parametrize("fate", ["lost", "answer lost", "delayed"])
def test_closing_after_an_unknown_outcome_lets_the_session_go(fate: Fate) -> None:
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    bucket.fate = lambda _: fate
    with pytest.raises(OutcomeUnknown):
        commit(session, "a")
    bucket.fate = lambda _: "done"
    session.close()
    commit(opened(bucket, clock), "b")
    assert lines(bucket) in (["b"], ["a", "b"])


def test_a_large_content_without_an_answer_was_not_stored() -> None:
    bucket, clock = MemoryBucket(), Clock()
    session = opened(bucket, clock)
    bucket.fate = lambda _: "answer lost"
    with pytest.raises(WriteFailed) as failed:
        commit(session, "a", bytes(2 * MIB))
    assert not isinstance(failed.value, OutcomeUnknown)
    bucket.fate = lambda _: "done"
    commit(session, "a", bytes(2 * MIB))
    assert lines(bucket) == ["a"]


@pytest.mark.anyio
async def test_the_store_numbers_its_writers_and_writes_no_index() -> None:
    bucket = MemoryBucket()
    epochs = []
    for number in range(3):
        async with ContextFileSystem("session", store=ObjectStore(bucket, "session")) as fs:
            store = storage_of(fs)
            assert fs.recovery.rebuilt_index is False
            epochs.append((store.epoch, fs.writer.journal.state.epoch))
            assert (await fs.verify()).ok
            assert await store.names() == [], number
        assert store.epoch == 0
    assert epochs == [(1, 1), (2, 2), (3, 3)]


# Listing -------------------------------------------------------------------------------------------------------------


def test_sessions_are_listed_until_they_are_removed() -> None:
    bucket, clock = MemoryBucket(), Clock()
    for name in ("b", "a", "c"):
        session = ObjectStore(bucket, name, clock=clock, sleep=clock.sleep).open(create=True, write=True)
        if name == "c":
            session.remove()
    assert list(newest_marks(bucket)) == ["a", "b"]
    ObjectStore(bucket, "c", clock=clock, sleep=clock.sleep).open(create=True, write=True)
    assert list(newest_marks(bucket)) == ["a", "b", "c"]


# The cache -----------------------------------------------------------------------------------------------------------


def reading(bucket: MemoryBucket, cache: ReadCache) -> ObjectStore:
    session = ObjectStore(bucket, "session", clock=Clock(), cache=cache).open(create=False, write=False)
    bucket.requests.clear()
    return session


def stored(data: bytes) -> MemoryBucket:
    bucket = MemoryBucket()
    opened(bucket, Clock()).commit([NewFile(name="a", chunks=[data])], lambda: b"a\n")
    return bucket


def test_a_page_that_was_read_before_needs_no_request(tmp_path: Path) -> None:
    data = os.urandom(3 * MIB + 17)
    bucket = stored(data)
    session = reading(bucket, ReadCache(tmp_path / "cache"))
    assert session.read("a", MIB - 5, 10) == data[MIB - 5 :][:10]
    assert session.read("a", 3 * MIB + 10, None) == data[3 * MIB + 10 :]
    assert len(bucket.requests) == 3, "the parts in which they stand"
    other = reading(bucket, ReadCache(tmp_path / "cache"))
    assert other.read("a", MIB - 100, 200) == data[MIB - 100 :][:200]
    assert other.read("a", 3 * MIB, 17) == data[3 * MIB :]
    assert bucket.requests == []
    assert other.read("a", 0, None) == data
    assert len(bucket.requests) == 1
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "cache").glob("??/*")} == {0o600}


@pytest.mark.parametrize("damage", [b"", b"x" * 40, None])
def test_what_is_damaged_in_the_cache_is_fetched_again(tmp_path: Path, damage: bytes | None) -> None:
    bucket = stored(b"content" * 100)
    reading(bucket, ReadCache(tmp_path)).read("a", 0, 7)
    (path,) = tmp_path.glob("??/*")
    path.write_bytes(path.read_bytes()[:-1] + b"X" if damage is None else damage)
    session = reading(bucket, ReadCache(tmp_path))
    assert [session.read("a", 0, 7) for _ in range(2)] == [b"content"] * 2
    assert len(bucket.requests) == 1


def test_parts_in_each_others_place_are_fetched_again(tmp_path: Path) -> None:
    """Each is whole, and of the same size."""
    bucket = MemoryBucket()
    files = [NewFile(name=name, chunks=[name.encode() * 100]) for name in ("a", "b")]
    opened(bucket, Clock()).commit(files, lambda: b"a\n")
    session = reading(bucket, ReadCache(tmp_path))
    for name in ("a", "b"):
        session.read(name, 0, None)
    first, second = tmp_path.glob("??/*")
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    assert (session.read("a", 0, 1), session.read("b", 0, 1)) == (b"a", b"b")


def test_the_cache_of_one_bucket_says_nothing_of_another(tmp_path: Path) -> None:
    """Also where one bucket was emptied, and its keys are made again."""
    for data in (b"one", b"two"):
        assert reading(stored(data), ReadCache(tmp_path)).read("a", 0, None) == data


@pytest.mark.slow
def test_the_cache_is_bounded(tmp_path: Path) -> None:
    cache = ReadCache(tmp_path, max_bytes=100_000)
    for number in range(300):
        assert cache.read(f"{number}", 1_000, 0, 1_000, lambda _, size: bytes(size)) == bytes(1_000)
        assert sum(path.stat().st_size for path in tmp_path.glob("??/*")) <= 107_000
    reads: list[int] = []

    def fetch(offset: int, size: int) -> bytes:
        reads.append(offset)
        return bytes(size)

    cache.read("299", 1_000, 0, 1_000, fetch)
    assert reads == [], "what was read last stays"


def test_a_cache_that_cannot_be_written_costs_requests_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    session = reading(bucket := stored(b"content"), ReadCache(tmp_path / "file"))
    assert [session.read("a", 0, None) for _ in range(2)] == [b"content"] * 2
    assert len(bucket.requests) == 2


def test_a_cache_of_no_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_bytes"):
        ReadCache(tmp_path, max_bytes=0)


# Forks ---------------------------------------------------------------------------------------------------------------

FORKED = """
import os, sys
from ctxfs.errors import StorageError
from ctxfs.stores import open_bucket
bucket = open_bucket("memory:///")
bucket.put("a", b"1")
if (child := os.fork()) == 0:
    try:
        open_bucket("memory:///").put("a", b"1")
    except StorageError as error:
        os._exit(7 if "spawn" in str(error) else 1)
    os._exit(2)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_is_told_that_it_cannot_use_the_bucket() -> None:
    assert subprocess.run([sys.executable, "-c", FORKED], check=False).returncode == 7
