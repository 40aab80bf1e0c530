"""The directory that holds sessions, as a command is given it; the plug-in checks it before all else is imported."""

import stat
from pathlib import Path

from ctxfs.errors import ConfigError
from ctxfs.storage.roots import absolute_root

ROOT_VARIABLE = "CTXFS_ROOT"


def sessions_directory(root: str | Path | None, *, may_be_new: bool = False) -> Path:
    """The directory that holds sessions, absolute; None is the default one, which may not exist yet.

    Raises ``ConfigError`` for what cannot be one, and for a directory that was named and does not exist, unless it
    ``may_be_new``.
    """
    found = absolute_root(root)
    try:
        is_directory = stat.S_ISDIR(found.stat().st_mode)
    except FileNotFoundError:
        if root is None or may_be_new:
            return found
        raise ConfigError(f"there is no directory {found}: name the one that holds sessions with --root DIR") from None
    except NotADirectoryError:  # below a file
        is_directory = False
    except OSError as error:
        raise ConfigError(f"{found} cannot hold sessions: {error.strerror}") from error
    if not is_directory:
        raise ConfigError(f"{found} is not a directory, and sessions are kept in one: name it with --root DIR")
    return found
