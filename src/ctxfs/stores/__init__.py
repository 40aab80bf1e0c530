"""Sessions on servers: buckets, and Postgres as one more bucket.

The names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import lazy

if TYPE_CHECKING:
    from ctxfs.stores.objects.bucket import Bucket, Taken, open_bucket
    from ctxfs.stores.objects.cache import ReadCache
    from ctxfs.stores.objects.sessions import ObjectSessions
    from ctxfs.stores.objects.store import ObjectStore
    from ctxfs.stores.postgres import PostgresBucket

__all__ = [
    "Bucket",
    "ObjectSessions",
    "ObjectStore",
    "PostgresBucket",
    "ReadCache",
    "Taken",
    "open_bucket",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.stores.objects.bucket": (
            "Bucket",
            "Taken",
            "open_bucket",
        ),
        "ctxfs.stores.objects.cache": ("ReadCache",),
        "ctxfs.stores.objects.sessions": ("ObjectSessions",),
        "ctxfs.stores.objects.store": ("ObjectStore",),
        "ctxfs.stores.postgres": ("PostgresBucket",),
    },
)
