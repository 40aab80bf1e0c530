"""What the tests of the page share: a browser, and a page of two sessions, the second one hostile."""

from collections.abc import Iterator
from pathlib import Path

import anyio.from_thread
import pytest
from playwright.sync_api import Browser

from view.chromium import chromium
from view.hostile import make_hostile
from view.served import serving
from view_session import make_session


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    with anyio.from_thread.start_blocking_portal() as portal:  # a browser's driver has an event loop in this thread
        portal.call(make_session, root)
        portal.call(make_hostile, root)
    return root


@pytest.fixture(scope="module")
def url(root: Path) -> Iterator[str]:
    with serving(root) as address:
        yield address
