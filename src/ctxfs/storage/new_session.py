"""A session that is imported or forked: it is made under a temporary name, then renamed, so it appears whole."""

import errno
import random
import time
from contextlib import suppress
from pathlib import Path

from ctxfs.errors import ConfigError, CtxfsError, SessionExists, SessionLocked, SessionNotFound, WriteFailed
from ctxfs.storage.failures import reason_of
from ctxfs.storage.local import remove_session
from ctxfs.storage.port import FileSystem, close_quietly
from ctxfs.storage.threads import result_of

IMPORT_PREFIX = ".ctxfs-import-"
STALE_S = 600.0


def temporary_id() -> str:
    """A new name for a session that is being made; no session is listed under it."""
    return f"{IMPORT_PREFIX}{random.SystemRandom().getrandbits(64):016x}"


def prepare_root(fs: FileSystem, root: Path, session_id: str) -> bool:
    """Check that the session can be created; return whether the root exists already."""
    try:
        root_fd = fs.open_root(root)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # opening the store says what is wrong with it
    try:
        if _is_there(fs, root_fd, session_id):
            raise SessionExists(session_id, str(root))
    except OSError as error:
        raise ConfigError(f"{root} cannot be read: {reason_of(error)}") from error
    else:
        return True
    finally:
        close_quietly(fs, root_fd)


def _is_there(fs: FileSystem, root_fd: int, name: str) -> bool:
    try:
        fs.stat(root_fd, name)
    except FileNotFoundError:
        return False
    return True


async def remove_stale(fs: FileSystem, root: Path) -> None:
    """Remove what a killed import left; a running one holds its lock, except in its first moments."""

    def names() -> list[str]:
        try:
            root_fd = fs.open_root(root)
        except OSError:
            return []  # no root yet; opening the store raises whatever else is wrong
        try:
            found = [name for name, _ in fs.list_dir(root_fd) if name.startswith(IMPORT_PREFIX)]
            before = time.time() - STALE_S
            return [name for name in found if fs.stat(root_fd, name).modified_at < before]
        except FileNotFoundError:
            return []  # another import has just ended
        except OSError as error:
            raise ConfigError(f"{root} cannot be read: {reason_of(error)}") from error
        finally:
            close_quietly(fs, root_fd)

    for name in await result_of(names):
        with suppress(SessionLocked, SessionNotFound):
            await remove_session(root, name, fs=fs)


def publish(fs: FileSystem, root: Path, temporary: str, session_id: str) -> None:
    """Give the session its name, but never that of another one: only an empty directory can be replaced."""
    try:
        root_fd = fs.open_root(root)
        try:
            if _is_there(fs, root_fd, session_id):
                raise SessionExists(session_id, str(root))
            fs.rename(root_fd, temporary, session_id)
            try:
                fs.sync(root_fd)
            except BaseException:
                fs.rename(root_fd, session_id, temporary)  # it is then removed like any failed import
                raise
        finally:
            close_quietly(fs, root_fd)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
            raise SessionExists(session_id, str(root)) from None
        raise WriteFailed(session_id, reason_of(error)) from error


async def remove_import(fs: FileSystem, root: Path, temporary: str, error: BaseException, *, existed: bool) -> None:
    """Remove what a failed import left, and the root unless it ``existed``; failures are noted on ``error``."""
    try:
        with suppress(SessionNotFound):
            await remove_session(root, temporary, fs=fs)
        if not existed:
            with suppress(FileNotFoundError):
                await result_of(lambda: _remove_root(fs, root))
    except (CtxfsError, OSError) as failure:
        error.add_note(f"the partial import could not be removed from {root}: {failure}")


def _remove_root(fs: FileSystem, root: Path) -> None:
    above = fs.open_root(root.parent)
    try:
        fs.remove_dir(above, root.name)
    finally:
        close_quietly(fs, above)
