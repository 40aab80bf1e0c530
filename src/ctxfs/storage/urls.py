"""Where sessions are kept: the stores of all of them, named by a directory or a URL."""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings
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

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

STORE_IS_ROOT_PATH: Final = "give it as root_path, which takes a path, a URL or a SessionStores"
"""What to write in the place of the setting ``store``."""


@names_settings()
def stores_at(root_path: str | Path | SessionStores | None, *, fs: FileSystem | None = None) -> SessionStores:
    """Return the place that a user named; None means ``~/.agent/context``.

    Args:
        root_path: the path of a directory, a URL (``file:///…``, ``s3://…``, ``gs://…``, ``az://…``,
            ``postgresql://…``, ``memory://…``) or a ``SessionStores``, which is returned.
        fs: the system that a directory is in, for tests.

    Raises:
        ConfigError: it is something else, or the URL is not understood.
        MissingExtra: a package that the URL needs is not installed.

    """
    if isinstance(root_path, str) and _URL.match(root_path):
        return at_url(root_path)
    if root_path is None or isinstance(root_path, str | Path):
        _check_no_url(str(root_path))
        return LocalSessions(absolute_root(root_path), fs=fs)
    if not is_stores(root_path):
        raise ConfigError(
            f"sessions cannot be in {root_path!r}: give the path of a directory, a URL, such as 's3://bucket/prefix', "
            "or a SessionStores"
        )
    return root_path


def _check_no_url(path: str) -> None:
    """Raise ``ConfigError`` for a URL that lost a slash, as ``Path`` makes it: it would be a directory named "s3:"."""
    scheme, colon, _ = path.partition(":")
    if colon and (scheme == "file" or scheme in _ELSEWHERE):
        raise ConfigError(f"{path!r} is no directory: give a URL as text, with two slashes, as in '{scheme}://…'")


async def resolved_stores(
    root_path: str | Path | SessionStores | None, *, fs: FileSystem | None = None
) -> SessionStores:
    """``stores_at`` in a worker thread: asking for the working directory is a call to the system."""
    return await run_to_completion(lambda: stores_at(root_path, fs=fs))


def scheme_of(url: str) -> str:
    """The scheme of a URL that names a place for sessions. Raises ``ConfigError`` for any other text."""
    scheme = urlsplit(url).scheme
    if scheme != "file" and scheme not in _ELSEWHERE:
        known = ", ".join(f"{one}://" for one in ("file", *_ELSEWHERE))
        raise ConfigError(
            f"{url!r} is not a place for sessions: use one of {known}; for a directory, give its path (--root DIR)"
        )
    return scheme


def at_url(url: str) -> SessionStores:
    """The place at a URL. Raises ``ConfigError`` for any other text, and ``MissingExtra``."""
    if (scheme := scheme_of(url)) == "file":
        parts = urlsplit(url)
        if parts.netloc or not parts.path.startswith("/"):
            raise ConfigError(f"{url!r} is not the URL of a directory: use file:///absolute/path")
        return LocalSessions(absolute_root(unquote(parts.path)))
    make: Callable[[str], SessionStores] = import_module(_ELSEWHERE[scheme]).stores_at
    return make(url)
