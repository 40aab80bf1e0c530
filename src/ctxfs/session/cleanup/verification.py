"""Check many sessions: every content, or a sample, against its checksum."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings, require_number
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.listing.summary import problem_of
from ctxfs.session.verify import VerifyReport
from ctxfs.storage.sessions import DirectoryStores, SessionStores
from ctxfs.storage.sessions import session_ids as all_session_ids
from ctxfs.storage.urls import STORE_IS_ROOT_PATH, resolved_stores


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedSession:
    """The result of checking a session. ``contents``: how many it holds; ``error``: why it cannot be read, else ""."""

    session_id: str
    report: VerifyReport
    contents: int
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether everything that was checked is as it was written."""
        return self.report.ok and not self.error


@names_settings({"store": STORE_IS_ROOT_PATH})
async def check(
    session_ids: Sequence[str] | None = None,
    *,
    root_path: str | Path | SessionStores | None = None,
    share: float = 1.0,
    seed: int = 0,
) -> AsyncIterator[CheckedSession]:
    """Check sessions, one after the other.

    Args:
        session_ids: which sessions; None: all of them, and any directory among them that may not be read.
        root_path: where sessions are: a directory, a URL (``s3://bucket/prefix``) or a ``SessionStores``; None means
            ``~/.agent/context``.
        share: which part of the contents is read, above 0 up to 1; journals and indexes are read in any case.
        seed: the number of the sample; another number gives another one.

    Raises:
        ConfigError: the share is not above 0 and at most 1.

    """
    require_number("share", share, at_least=0)
    if not 0 < share <= 1:
        raise ConfigError(f"share is {share!r}: use a number above 0, up to 1")
    stores = await resolved_stores(root_path)
    for session_id in await _all_names(stores) if session_ids is None else session_ids:
        nothing = VerifyReport(checked=0, problems=())
        try:
            async with ContextFileSystem(session_id, root_path=stores, read_only=True) as fs:
                contents = len(fs.state.stored)
                chosen = [item_id for item_id in fs.state.stored if _chosen(f"{seed} {session_id} {item_id}", share)]
                report = await fs.verify(chosen)
            yield CheckedSession(session_id=session_id, report=report, contents=contents)
        except Exception as error:  # noqa: BLE001 - what is wrong with one must not keep the others from being checked
            problem = problem_of(session_id, error)
            yield CheckedSession(session_id=session_id, report=nothing, contents=0, error=problem)


async def _all_names(stores: SessionStores) -> list[str]:
    if isinstance(stores, DirectoryStores):
        return await stores.all_names()
    return await all_session_ids(stores)


def _chosen(name: str, share: float) -> bool:
    """Whether a content is in the sample: the same for the same name."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return number < share * 2**64
