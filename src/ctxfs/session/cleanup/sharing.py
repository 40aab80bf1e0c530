"""Files that several sessions name, such as those of a fork: each is counted once."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ctxfs.session.listing.catalogue import list_summaries
from ctxfs.session.listing.summary import SessionSummary, file_stats
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threads import run_to_completion


async def counted_once(stores: SessionStores) -> list[SessionSummary]:
    """The sessions of a place, each with the ``disk_bytes`` that it does not share with newer ones.

    Removing it frees that much, as long as the oldest are removed first.
    Raises ``ConfigError`` if the place cannot be read.
    """
    summaries = await list_summaries(stores)
    root = stores.directory
    if root is None:
        return summaries
    shared = await run_to_completion(lambda: shared_with_newer(root, summaries))
    return [replace(one, disk_bytes=max(0, one.disk_bytes - shared.get(one.session_id, 0))) for one in summaries]


def shared_with_newer(root: Path, summaries: Sequence[SessionSummary]) -> dict[str, int]:
    """How many bytes of each session are in files that it shares with newer ones. Examines every stored file."""
    seen: set[tuple[int, int]] = set()
    shared: dict[str, int] = {}
    for summary in sorted(summaries, key=lambda one: one.changed_at, reverse=True):
        if not summary.stored:
            continue
        for status in file_stats(root / summary.session_id):
            if status.st_nlink == 1:
                continue
            file = status.st_dev, status.st_ino
            if file in seen:
                shared[summary.session_id] = shared.get(summary.session_id, 0) + status.st_size
            seen.add(file)
    return shared
