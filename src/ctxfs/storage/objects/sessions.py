"""The sessions in a bucket of an object store."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from ctxfs.errors import ConfigError, NotStored
from ctxfs.storage.answers import GIVE_UP_S, TTL_S
from ctxfs.storage.objects.bucket import Bucket, open_bucket
from ctxfs.storage.objects.cache import ReadCache
from ctxfs.storage.objects.row import session_prefix
from ctxfs.storage.objects.segments import decode, is_segment_key
from ctxfs.storage.objects.store import ObjectStore, session_ids
from ctxfs.storage.remote import RemoteSessionStores
from ctxfs.storage.sessions import SessionFound
from ctxfs.storage.threads import run_to_completion

__all__ = ["ObjectSessions", "stores_at"]

_AT_ONCE: Final = 16
"""Listing sessions makes up to this many requests at the same time."""


class ObjectSessions(RemoteSessionStores):
    """See ``SessionStores``: the sessions in a bucket.

    Args:
        bucket: see ``open_bucket``.
        url: its name, to be shown.
        ttl_s: see ``ObjectStore``.
        give_up_s: see ``ObjectStore``.
        cache: see ``ObjectStore``; one for all sessions.
    """

    def __init__(
        self,
        bucket: Bucket,
        *,
        url: str,
        ttl_s: float = TTL_S,
        give_up_s: float = GIVE_UP_S,
        cache: ReadCache | None = None,
    ) -> None:
        super().__init__(url, ttl_s=ttl_s, give_up_s=give_up_s)
        self._bucket = bucket
        self._cache = cache

    def store(self, session_id: str) -> ObjectStore:
        """See ``SessionStores.store``."""
        return ObjectStore(
            self._bucket,
            session_id,
            ttl_s=self._ttl_s,
            give_up_s=self._give_up_s,
            cache=self._cache,
            place=self._url,
        )

    async def sessions(self) -> list[SessionFound]:
        """See ``SessionStores.sessions``: a request for each 1,000 sessions, and two for each of them."""
        return await run_to_completion(self._sessions, waits=True)

    def _sessions(self) -> list[SessionFound]:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ctxfs") as threads:
            found = threads.map(self._found, session_ids(self._bucket))
            return [one for one in found if one is not None]

    def _found(self, session_id: str) -> SessionFound | None:
        """What the last segment says; None: the session was removed, or its making was cut short."""
        prefix = session_prefix(session_id)
        keys = [key.removeprefix(prefix) for key in self._bucket.keys(f"{prefix}s/")]
        last = max(filter(is_segment_key, keys), default=None)
        if last is None:
            return None
        try:
            head = decode(last, self._bucket.get(prefix + last)).head
        except NotStored:
            return None
        return None if head.removed else SessionFound(session_id, f"{head.identity}-{last}", head.at)


def stores_at(url: str) -> ObjectSessions:
    """Return the sessions in the bucket at ``url``, as ``open_bucket`` does; ``objects+file:///…``: in a directory.

    ``?cache=DIRECTORY`` at the end keeps what is read there; see ``ReadCache``.

    Raises ``ConfigError`` for another setting, or a directory that is not absolute.
    """
    place, _, settings = url.partition("?")
    given = parse_qs(settings, keep_blank_values=True)
    directories = given.pop("cache", [])
    if given or len(directories) > 1 or not all(Path(directory).is_absolute() for directory in directories):
        raise ConfigError(f"{url!r}: after the '?' of a bucket's URL, only cache=DIRECTORY (absolute) is valid")
    cache = ReadCache(Path(directories[0])) if directories else None
    return ObjectSessions(open_bucket(place.removeprefix("objects+")), url=place, cache=cache)
