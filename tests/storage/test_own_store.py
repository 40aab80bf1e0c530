"""The store that the page on own stores shows: it keeps what a store must."""

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from uuid import uuid4

import pytest

from ctxfs.storage import Store
from ctxfs.testing.store_conformance import StoreConformance

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "own_store.py"


def example() -> ModuleType:
    spec = spec_from_file_location("own_store", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.anyio
class TestSqliteStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def directory(self, tmp_path: Path) -> None:
        self._directory = tmp_path

    def new_session(self) -> Callable[[], Store]:
        path = self._directory / f"{uuid4().hex}.sqlite"
        make = example().SqliteStore
        return lambda: make(path, "session_1")
