"""What the tests of the page share: a browser, and a page of two sessions, the second one hostile."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.from_thread
import pytest

from view.hostile import make_hostile
from view.served import serving
from view_session import make_session

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    from view.chromium import chromium  # playwright: most tests of the page need no browser

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
