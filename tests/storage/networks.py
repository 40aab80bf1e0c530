"""Buckets behind a network that loses requests, those that break their promise, and what notices it."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import anyio

from ctxfs.storage import SharedStore
from ctxfs.stores import Bucket, ObjectStore
from ctxfs.testing.network import Network
from ctxfs.testing.shared_store_conformance import Machine, SharedStoreConformance


class NetworkBucket:
    """``bucket``, whose requests that write go through ``network``."""

    def __init__(self, bucket: Bucket, network: Network) -> None:
        self._bucket = bucket
        self._network = network

    def create(self, key: str, data: bytes) -> None:
        self._network.carry(lambda: self._bucket.create(key, data))

    def put(self, key: str, data: bytes) -> None:
        self._network.carry(lambda: self._bucket.put(key, data))

    def get(self, key: str) -> bytes:
        return self._bucket.get(key)

    def get_range(self, key: str, offset: int, size: int) -> bytes:
        return self._bucket.get_range(key, offset, size)

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        return self._bucket.keys(prefix, after=after)

    def delete(self, keys: Sequence[str]) -> None:
        self._network.carry(lambda: self._bucket.delete(keys))


class OverwritingBucket(NetworkBucket):
    """The control: it writes without the condition."""

    def create(self, key: str, data: bytes) -> None:
        self._network.carry(lambda: self._bucket.put(key, data))


def shared_objects(bucket: Bucket, behind: type[NetworkBucket] = NetworkBucket) -> Callable[[Machine], SharedStore]:
    """Make stores of a new session in ``bucket``, each on its machine."""
    session_id = f"session_{uuid4().hex}"

    def make(machine: Machine) -> SharedStore:
        return ObjectStore(
            behind(bucket, machine.network),
            session_id,
            ttl_s=machine.ttl_s,
            give_up_s=machine.give_up_s,
            clock=lambda: time.time() + machine.ahead_s,
        )

    return make


def found_out(suite: SharedStoreConformance) -> list[str]:
    """Run all tests of a suite; returns the names of those that fail."""
    failed: list[str] = []
    for name in sorted(name for name in dir(suite) if name.startswith("test_")):
        test: Callable[[], Any] = getattr(suite, name)
        try:
            anyio.run(test)
        except Exception:  # noqa: BLE001 - whatever a broken store causes
            failed.append(name)
    return failed
