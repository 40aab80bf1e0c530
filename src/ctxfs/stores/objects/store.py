"""Sessions in an object store: each a row of immutable segments in a bucket."""

import time
from collections.abc import Callable, Iterable, Iterator

from ctxfs.stores.answers import GIVE_UP_S, TTL_S, Terms
from ctxfs.stores.objects.bucket import Bucket
from ctxfs.stores.objects.cache import ReadCache
from ctxfs.stores.objects.opened import OpenedObjectSession
from ctxfs.stores.objects.row import SESSIONS
from ctxfs.stores.remote import RemoteStore, names_no_server


class ObjectStore(RemoteStore[OpenedObjectSession]):
    """A ``Store`` in a bucket of an object store, for one session, which any machine that reaches the bucket can open.

    A commit is one request, which creates a segment with a number that nobody else can use. So a writer that was taken
    over, however long it slept, fails at its next commit with ``SessionLocked``, and nothing of that commit is visible.
    An acknowledged commit is in the bucket; how durable the bucket is, is up to its provider.

    Args:
        bucket: where the sessions are; see ``open_bucket``.
        session_id: the id of the session.
        ttl_s: the lease: how many seconds after its last commit a writer that did not release the session may be
            taken over. It only avoids needless take-overs: correctness does not depend on it, nor on any clock.
        give_up_s: for how many seconds a request that gets no answer is repeated before ``OutcomeUnknown`` is raised.
        cache: keeps pages that were read on this machine's disk; None: each page is a request.
        clock: gives this machine's time, in seconds since the epoch.
        place: the store's name, for errors.
        snapshot: readers see the session as it is when they open it, which takes fewer requests.

    Raises:
        UnsafePath: the session id is invalid.
        ConfigError: a time that is negative, or not a number.
    """

    def __init__(
        self,
        bucket: Bucket,
        session_id: str,
        *,
        ttl_s: float = TTL_S,
        give_up_s: float = GIVE_UP_S,
        cache: ReadCache | None = None,
        clock: Callable[[], float] = time.time,
        place: str = "this object store",
        snapshot: bool = False,
    ) -> None:
        super().__init__(session_id, place)
        self._snapshot = snapshot
        self._bucket = bucket
        self._terms = Terms(ttl_s=ttl_s, give_up_s=give_up_s, clock=clock)
        self._cache = cache

    def _new(self) -> OpenedObjectSession:
        return OpenedObjectSession(
            self._bucket,
            self._session_id,
            self._terms,
            cache=self._cache,
            mine=self._mine,
            place=self._place,
            snapshot=self._snapshot,
        )

    async def has_orphans(self) -> bool:
        """Whether there are large contents that no commit names, since their writers were killed before it.

        A writer that works may be about to write such a commit. Raises ``StorageError``.
        """
        return await self._run(lambda opened: opened.has_orphans(), writes=False)

    async def delete_orphans(self) -> int:
        """Delete these contents, as the one writer, and return how many there were. Raises as ``delete``."""
        return await self._run(lambda opened: opened.delete_orphans())

    def pieces(self, name: str, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """See ``ThreadStore.pieces``."""
        with names_no_server():
            yield from self._opened().pieces(name, spans)


def newest_marks(bucket: Bucket) -> dict[str, str]:
    """List the sessions of a bucket, sorted, each with the newest mark of its writers: ``IDENTITY-EPOCH``. Blocks.

    It may include a session whose creation or removal was interrupted: opening it raises ``SessionNotFound``.
    Raises ``StorageError``.
    """
    newest: dict[str, tuple[int, str]] = {}
    for key in bucket.keys(SESSIONS):
        session_id, _, mark = key.removeprefix(SESSIONS).partition("/")
        epoch = mark.rpartition("-")[2]
        made = (int(epoch) if epoch.isdigit() else 0, mark)
        newest[session_id] = max(made, newest.get(session_id, made))
    return {session_id: newest[session_id][1] for session_id in sorted(newest)}


def session_ids(bucket: Bucket) -> list[str]:
    """List the sessions of a bucket, as ``newest_marks`` does."""
    return list(newest_marks(bucket))
