"""Places for sessions other than a root directory: a bucket in memory or in a directory, and real servers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ctxfs.storage import SessionStores, stores_at
from ctxfs.stores import ObjectSessions, PostgresBucket
from storage.buckets import MemoryBucket
from storage.contest import bucket_at
from storage.object_servers import azurite, moto, seaweedfs
from storage.postgres_server import postgres

__all__ = ["ALL", "Machine", "place"]

Machine = Callable[[], SessionStores]
"""Gives the sessions of one place, as another machine has them."""

_SERVERS = {"moto": moto, "seaweedfs": seaweedfs, "azurite": azurite}
ALL = ["memory", "directory", *(pytest.param(name, marks=pytest.mark.service) for name in (*_SERVERS, "postgres"))]


@pytest.fixture(scope="module", params=ALL)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Start what the sessions are on."""
    directory: Path = tmp_path_factory.mktemp("place")
    with ExitStack() as running:
        if request.param == "memory":
            bucket = MemoryBucket()
            yield lambda: ObjectSessions(bucket, url="s3://test")
        elif request.param == "directory":
            yield lambda: stores_at(f"objects+{directory.as_uri()}")
        elif request.param == "postgres":
            server = running.enter_context(postgres())
            database = PostgresBucket(server.url)
            running.callback(database.close)
            yield lambda: ObjectSessions(database, url="postgresql://test")
        else:
            found = running.enter_context(_SERVERS[request.param](directory))
            yield lambda: ObjectSessions(bucket_at(found.url, found.options), url=found.url)
