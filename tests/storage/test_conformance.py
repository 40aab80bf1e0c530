"""The stores that we ship pass the suite that we ship."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ctxfs.storage.base import Store
from ctxfs.storage.local import LocalStore
from ctxfs.storage.memory import MemoryStore
from ctxfs.testing.store_conformance import StoreConformance


@pytest.mark.anyio
class TestMemoryStore(StoreConformance):
    def new_session(self) -> Callable[[], Store]:
        return MemoryStore().peer


@pytest.mark.anyio
class TestLocalStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def root(self, tmp_path: Path) -> None:
        self.path = tmp_path / "not" / "there" / "yet"

    def new_session(self) -> Callable[[], Store]:
        return lambda: LocalStore(self.path, "session_1")


@pytest.mark.anyio
class TestLocalStoreWithoutSync(TestLocalStore):
    def new_session(self) -> Callable[[], Store]:
        return lambda: LocalStore(self.path, "session_1", durability="process")
