"""The directories that hold sessions."""

import hashlib
import os
from pathlib import Path

from ctxfs.errors import ConfigError


def default_root() -> Path:
    """Return the directory that holds sessions by default: ``~/.agent/context``."""
    return Path.home() / ".agent" / "context"


def list_path(url: str) -> Path | None:
    """Return the file that keeps the list of the sessions at ``url``: in ``$XDG_CACHE_HOME``, or ``~/.cache``.

    None: this user has no home directory.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not caches.is_absolute():  # which is invalid, by the XDG standard
        try:
            caches = Path.home() / ".cache"
        except RuntimeError:
            return None
    return caches / "ctxfs" / f"sessions-{hashlib.sha256(url.encode()).hexdigest()[:32]}.sqlite"


def absolute_root(path: str | Path | None) -> Path:
    """Return the directory that ``path`` names, absolute; None is ``default_root()``.

    A relative one is taken from the working directory of this moment. Not resolved: links in it are the user's.
    Raises ``ConfigError`` if it is not a path, or empty.
    """
    if path == "":  # Python would take the working directory
        raise ConfigError("the directory '' cannot be used: name one, or give None for ~/.agent/context")
    try:
        found = default_root() if path is None else Path(path).expanduser()
    except (TypeError, RuntimeError) as error:  # not a path, or an unknown user's home
        raise ConfigError(f"the directory {path!r} cannot be used: it must be a path ({error})") from error
    return Path(os.path.normpath(found if found.is_absolute() else Path.cwd() / found))
