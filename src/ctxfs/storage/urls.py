"""Where sessions are kept: the stores of all of them, named by a directory or a URL."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final, cast
from urllib.parse import unquote, urlsplit

from ctxfs.errors import ConfigError
from ctxfs.storage.local_sessions import LocalSessions
from ctxfs.storage.port import FileSystem
from ctxfs.storage.roots import absolute_root
from ctxfs.storage.sessions import SessionStores, is_stores
from ctxfs.storage.threads import run_to_completion

_ELSEWHERE: Final = {
    "s3": "ctxfs.stores.objects.sessions",
    "gs": "ctxfs.stores.objects.sessions",
    "az": "ctxfs.stores.objects.sessions",
    "objects+file": "ctxfs.stores.objects.sessions",
    "postgresql": "ctxfs.stores.postgres",
    "postgres": "ctxfs.stores.postgres",
    "memory": "ctxfs.storage.memory",
}
"""The module of each scheme but ``file``; its ``stores_at`` takes the URL."""


def stores_at(root_path: str | Path | None, store: object = None, *, fs: FileSystem | None = None) -> SessionStores:
    """Return the place that a user named with a directory or a store; if both are None: ``~/.agent/context``.

    ``store`` is a URL (``file:///…``, ``s3://…``, ``gs://…``, ``az://…``, ``postgresql://…``,
    ``memory://…``) or a ``SessionStores``.
    ``fs``: the system that a directory is in, for tests.

    Raises:
        ConfigError: both are given, or ``store`` is something else, or the URL is not understood.
        MissingExtra: a package that the URL needs is not installed.
    """
    if store is None:
        return LocalSessions(absolute_root(root_path), fs=fs)
    if root_path is not None:
        raise ConfigError(
            "store already says where sessions are: leave out the directory, which is root_path, or offload_root_path "
            "of an agent"
        )
    if isinstance(store, str):
        return _at_url(store)
    if not is_stores(store):
        raise ConfigError(f"store is {store!r}: use a URL, such as 's3://bucket/prefix', or a SessionStores")
    return cast("SessionStores", store)


async def resolved_stores(
    root_path: str | Path | None, store: object = None, *, fs: FileSystem | None = None
) -> SessionStores:
    """``stores_at`` in a worker thread: asking for the working directory is a call to the system."""
    return await run_to_completion(lambda: stores_at(root_path, store, fs=fs))


def scheme_of(url: str) -> str:
    """The scheme of a URL that names a place for sessions. Raises ``ConfigError`` for any other text."""
    scheme = urlsplit(url).scheme
    if scheme != "file" and scheme not in _ELSEWHERE:
        known = ", ".join(f"{one}://" for one in ("file", *_ELSEWHERE))
        raise ConfigError(
            f"{url!r} is not a place for sessions: use one of {known}; for a directory, root_path (--root DIR)"
        )
    return scheme


def _at_url(url: str) -> SessionStores:
    if (scheme := scheme_of(url)) == "file":
        parts = urlsplit(url)
        if parts.netloc or not parts.path.startswith("/"):
            raise ConfigError(f"{url!r} is not the URL of a directory: use file:///absolute/path")
        return LocalSessions(absolute_root(unquote(parts.path)))
    make: Callable[[str], SessionStores] = import_module(_ELSEWHERE[scheme]).stores_at
    return make(url)
