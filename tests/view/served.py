"""A page that is served in a thread of its own: to the tests, to the benchmark and for the pictures."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import anyio

from ctxfs.lab.ab.compared_page import ComparedFiles
from ctxfs.lab.replay.recorded_page import RecordedFiles
from ctxfs.storage import LocalSessions, SessionStores
from ctxfs.view.server import ViewServer

__all__ = ["serving"]


@contextmanager
def serving(
    place: Path | SessionStores,
    recordings: Sequence[Path] = (),
    *,
    may_write: bool = False,
    comparisons: Sequence[Path] = (),
) -> Iterator[str]:
    """Serve the sessions of a directory or of another place, ``recordings`` and ``comparisons``; give the address."""
    stores = LocalSessions(place) if isinstance(place, Path) else place
    with ThreadPoolExecutor(1) as thread:
        # Made there too: it reads its templates, and the browser's driver has an event loop in this thread.
        server = thread.submit(
            ViewServer,
            stores,
            port=0,
            recordings=RecordedFiles(recordings),
            may_write=may_write,
            comparisons=ComparedFiles(comparisons),
        ).result()
        serving = thread.submit(anyio.run, server.serve)
        # If it ends too soon, whoever still asks is refused, and does not wait.
        serving.add_done_callback(lambda _: server.close())
        try:
            yield server.url
        finally:
            server.stop()
            serving.result()
