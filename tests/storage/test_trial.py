"""Whether a store keeps one writer: tried on one that does, and on some that do not."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from ctxfs.errors import NotStored
from ctxfs.storage.local_sessions import LocalSessions
from ctxfs.storage.memory import MemorySessions, MemoryStore
from ctxfs.storage.port import OsFileSystem
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.trial import Trial, try_stores
from ctxfs.storage.urls import stores_at
from ctxfs.stores import Bucket, ObjectSessions
from ctxfs.testing.network import Network
from storage.buckets import MemoryBucket
from storage.networks import NetworkBucket, OverwritingBucket


class LateBucket(NetworkBucket):
    """It lists segments late, which is not enough."""

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        found = list(super().keys(prefix, after=after))
        return iter(found[:-1] if "/s/" in prefix else found)


class TogetherBucket(OverwritingBucket):
    """It overwrites, and the writers of the first race all look before the first of them writes."""

    together = threading.Barrier(8)

    def create(self, key: str, data: bytes) -> None:
        if key.endswith("/s/000000000000"):
            self.together.wait()
        super().create(key, data)


class DeadBucket(NetworkBucket):
    def get(self, key: str) -> bytes:
        raise NotStored(key)


def tried(kind: type[NetworkBucket]) -> Trial:
    bucket: Bucket = kind(MemoryBucket(), Network())
    return try_stores(ObjectSessions(bucket, url="trial", ttl_s=600), "trial", races=5)


def test_a_store_that_keeps_one_writer() -> None:
    trial = tried(NetworkBucket)
    assert (trial.races, trial.writers, trial.problem) == (5, 8, None)
    assert trial.commit_ms is not None


def test_what_a_url_names_keeps_one_writer(tmp_path: Path) -> None:
    """A directory with its lock, and this process's memory, too."""
    for url in (tmp_path.as_uri(), "memory://trial", f"objects+{(tmp_path / 'objects').as_uri()}"):
        stores = stores_at(url)
        trial = try_stores(stores, "trial", races=3)
        assert (trial.races, trial.problem) == (3, None)


class UnlockedFileSystem(OsFileSystem):
    """Its locks do not exclude anybody, as on some network file systems."""

    def lock(self, fd: int) -> None: ...


def test_a_directory_whose_locks_do_not_exclude_is_found_out(tmp_path: Path) -> None:
    stores: SessionStores = LocalSessions(tmp_path, fs=UnlockedFileSystem())
    problem = try_stores(stores, "trial", races=5).problem
    assert problem is not None


def test_a_store_that_overwrites_is_found_out() -> None:
    problem = tried(TogetherBucket).problem
    assert problem is not None
    assert "8 of several writers" in problem


def test_a_store_that_lists_late_is_found_out() -> None:
    assert tried(LateBucket).problem is not None


def test_a_store_that_cannot_be_read_is_a_problem() -> None:
    assert tried(DeadBucket).problem is not None


class FailingStores(MemorySessions):
    """The first opening fails as a driver does, and not with an error of ctxfs."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = iter(range(8))

    def store(self, session_id: str) -> MemoryStore:
        return FailingStore(session_id) if next(self._numbers) == 0 else super().store(session_id)


class FailingStore(MemoryStore):
    def open(self, *, create: bool, write: bool) -> Self:
        raise RuntimeError("too many connections")


def test_what_one_writer_raises_is_raised_once_the_others_have_ended() -> None:
    with pytest.raises(RuntimeError, match="too many connections"):
        try_stores(FailingStores(), "trial", races=1)
