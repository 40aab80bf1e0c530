"""Sessions in an object store: `ObjectStore`, and the bucket that it needs."""

from ctxfs.storage.failures import NoAnswer
from ctxfs.storage.objects.bucket import Bucket, ObstoreBucket, Taken, open_bucket
from ctxfs.storage.objects.cache import ReadCache
from ctxfs.storage.objects.sessions import ObjectSessions
from ctxfs.storage.objects.store import ObjectStore, session_ids

__all__ = [
    "Bucket",
    "NoAnswer",
    "ObjectSessions",
    "ObjectStore",
    "ObstoreBucket",
    "ReadCache",
    "Taken",
    "open_bucket",
    "session_ids",
]
