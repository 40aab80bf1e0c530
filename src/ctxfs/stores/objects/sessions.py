"""The sessions in a bucket of an object store."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from typing_extensions import override

from ctxfs.errors import ConfigError, NotStored, StorageError
from ctxfs.errors.checks import names_settings
from ctxfs.storage.roots import list_path
from ctxfs.storage.sessions import ListingStores, SessionFound
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import run_to_completion, uninterrupted
from ctxfs.stores.answers import GIVE_UP_S, TTL_S
from ctxfs.stores.objects.bucket import Bucket, open_bucket
from ctxfs.stores.objects.cache import ReadCache
from ctxfs.stores.objects.row import SESSIONS, session_prefix
from ctxfs.stores.objects.segments import decode, is_segment_key
from ctxfs.stores.objects.store import ObjectStore, newest_marks

_AT_ONCE: Final = 16
"""Up to this many requests are made at the same time to list sessions."""


@names_settings()
class ObjectSessions(ListingStores):
    """The sessions in a bucket, as ``SessionStores``.

    Args:
        bucket: see ``open_bucket``.
        url: the name under which the bucket is shown.
        ttl_s: see ``ObjectStore``.
        give_up_s: see ``ObjectStore``.
        cache: see ``ObjectStore``; all sessions share it.
        list_path: see ``ListingStores.list_path``.
    """

    def __init__(
        self,
        bucket: Bucket,
        *,
        url: str,
        ttl_s: float = TTL_S,
        give_up_s: float = GIVE_UP_S,
        cache: ReadCache | None = None,
        list_path: Path | None = None,
    ) -> None:
        self._bucket = bucket
        self._url = url
        self._ttl_s = ttl_s
        self._give_up_s = give_up_s
        self._list_path = list_path
        self._cache = cache
        self._known: dict[str, SessionFound] = {}  # as they were last listed

    @property
    @override
    def url(self) -> str:
        return self._url

    @property
    @override
    def directory(self) -> None:
        """They are in no directory."""

    @override
    def store(self, session_id: str) -> ObjectStore:
        return self._store(session_id, snapshot=False)

    @override
    def snapshot(self, session_id: str) -> ObjectStore:
        return self._store(session_id, snapshot=True)

    def _store(self, session_id: str, *, snapshot: bool) -> ObjectStore:
        return ObjectStore(
            self._bucket,
            session_id,
            ttl_s=self._ttl_s,
            give_up_s=self._give_up_s,
            cache=self._cache,
            place=self._url,
            snapshot=snapshot,
        )

    @property
    @override
    def list_path(self) -> Path | None:
        return self._list_path

    @override
    async def sessions(self, known: Iterable[SessionFound] = ()) -> list[SessionFound]:
        """List the sessions; one that is ``known`` with its newest ``mark`` takes no request.

        One request lists 500 to 1,000 sessions. A session takes two more, or, if it is known and its writer did not
        release it, one; a session that is known and was released takes none until a writer opens it again.
        """
        self._known.update((found.session_id, found) for found in known)
        listed = await run_to_completion(self._sessions, waits=True)
        self._known = {found.session_id: found for found in listed}
        return listed

    @override
    async def remove(self, session_id: str, *, tombstone: Mapping[str, Any] | None = None) -> None:
        """No tombstone is kept."""
        store = ThreadedStore(self.store(session_id))
        await store.open(create=False, write=True)
        try:
            await store.change(ObjectStore.remove)
        finally:
            await uninterrupted(store.close)()

    def forget(self, session_id: str) -> None:
        """Delete all objects of a session, also those that keep a sleeping writer of it out. Blocks.

        Its id must never be used again, and no writer of it may still be running. Raises ``StorageError``.
        """
        own = self._bucket.keys(session_prefix(session_id))
        listed = self._bucket.keys(f"{SESSIONS}{session_id}/")
        self._bucket.delete([*own, *listed])

    def _sessions(self) -> list[SessionFound]:
        marks = newest_marks(self._bucket)  # before the sessions are read: see _found
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ctxfs") as threads:
            found = threads.map(self._found, marks, marks.values())
            return [one for one in found if one is not None]

    def _found(self, session_id: str, mark: str) -> SessionFound | None:
        """Describe a session by its last segment; None: it was removed, or its creation was interrupted.

        A writer makes its mark before its first segment. So if the last segment releases the session, and is of the
        newest mark's writer, nothing can change before there is a newer mark.
        """
        known = self._known.get(session_id)
        if known is not None and known.mark == mark:
            return known
        prefix = session_prefix(session_id)
        # A session that was removed and made again under its id has another identity: what is known is of the old one.
        after = ""
        if known is not None:
            identity, _, last_seen = known.version.partition("-")
            if identity == mark.partition("-")[0]:
                after = prefix + last_seen
            else:
                known = None
        keys = [key.removeprefix(prefix) for key in self._bucket.keys(f"{prefix}s/", after=after)]
        last = max(filter(is_segment_key, keys), default=None)
        if last is None:
            return known
        try:
            head = decode(last, self._bucket.get(prefix + last)).head
        except NotStored:
            return None
        except StorageError:  # damaged: opening the session says so, and the others are listed
            return SessionFound(session_id, last, 0.0)
        if head.removed:
            return None
        is_final = not head.writer and f"{head.identity}-{head.epoch}" == mark
        return SessionFound(session_id, f"{head.identity}-{last}", head.at, mark if is_final else "")


def stores_at(url: str) -> ObjectSessions:
    """Return the sessions in the bucket at ``url``, as for ``open_bucket``; ``objects+file:///…`` is a directory.

    With ``?cache=DIRECTORY`` at the end, pages that were read are kept in that directory; see ``ReadCache``.

    Raises ``ConfigError`` for another setting, or a directory that is not absolute.
    """
    place, _, settings = url.partition("?")
    given = parse_qs(settings, keep_blank_values=True)
    directories = given.pop("cache", [])
    if given or len(directories) > 1 or not all(Path(directory).is_absolute() for directory in directories):
        raise ConfigError(f"{url!r}: after the '?' of a bucket's URL, only cache=DIRECTORY (absolute) is valid")
    cache = ReadCache(Path(directories[0])) if directories else None
    return ObjectSessions(
        open_bucket(place.removeprefix("objects+")), url=place, cache=cache, list_path=list_path(place)
    )
