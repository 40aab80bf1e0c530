"""Sessions on real servers of object stores, and several processes that want one session."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ctxfs.storage import SharedStore
from ctxfs.stores import ObjectSessions
from ctxfs.testing.shared_store_conformance import Machine, SharedStoreConformance
from storage.contest import CONTROLS, TAKE_OVERS, bucket_at, contest
from storage.logical_paths import check_tools_at_logical_paths
from storage.networks import shared_objects
from storage.object_servers import Server, azurite, moto, seaweedfs

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="module")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="module")
def azurite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
class TestOnS3(SharedStoreConformance):
    histories = 2  # the same are played in memory, and more; here a server must refuse what they write too late

    @pytest.fixture(autouse=True)
    def connected(self, server: Server) -> None:
        self.bucket = bucket_at(server.url, server.options)

    def new_shared(self) -> Callable[[Machine], SharedStore]:
        return shared_objects(self.bucket)


class TestOnMoto(TestOnS3):
    @pytest.fixture(autouse=True)
    def connected(self, moto_server: Server) -> None:
        self.bucket = bucket_at(moto_server.url, moto_server.options)


class TestOnAzurite(TestOnS3):
    @pytest.fixture(autouse=True)
    def connected(self, azurite_server: Server) -> None:
        self.bucket = bucket_at(azurite_server.url, azurite_server.options)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_tools_find_what_a_path_without_a_directory_names(server: Server) -> None:
    await check_tools_at_logical_paths(ObjectSessions(bucket_at(server.url, server.options), url=server.url))


def test_a_contest_on_s3_loses_nothing(server: Server) -> None:
    outcome = contest(server.url, server.options, seconds=8)
    assert outcome.violations == []
    assert outcome.acknowledged > 0
    assert outcome.turns > outcome.take_overs >= TAKE_OVERS


def test_a_contest_in_a_directory_loses_nothing(tmp_path: Path) -> None:
    outcome = contest(tmp_path.as_uri(), {}, seconds=6)
    assert outcome.violations == []
    assert outcome.acknowledged > 0
    assert outcome.turns > outcome.take_overs >= TAKE_OVERS


def test_a_contest_finds_a_store_that_overwrites(tmp_path: Path) -> None:
    """The control: the same with writes that do not fail where the key exists. One contest may have luck, not all."""
    for number in range(CONTROLS):
        (place := tmp_path / str(number)).mkdir()
        if contest(place.as_uri(), {}, seconds=3, broken=True).violations:
            return
    raise AssertionError("it lost nothing")
