"""What a session has for itself: a copy of its task's directory, and a place for what is stored."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ctxfs.errors import ConfigError
from ctxfs.storage.failures import reason_of
from ctxfs.storage.port import DIR_MODE


@dataclass(frozen=True, slots=True)
class SessionDirectory:
    """A directory of one session; its name does not tell the arm, since a model may see it.

    ``work``: where its program works. ``stored``: where its contents are stored.
    """

    path: Path
    is_kept: bool

    @classmethod
    def made(cls, keep: Path | None, name: str, copied: Path | None) -> Self:
        """Make it: in ``keep`` under ``name``, or among the temporary files. ``copied``: what it has.

        Raises ``ConfigError`` if it cannot be made; nothing is left of it then.
        """
        try:
            return cls._made(keep, name, copied)
        except OSError as error:
            what = "a session's directory" if copied is None else f"a copy of {copied}"
            raise ConfigError(f"{what} cannot be made: {_first_reason(error)}") from error

    @classmethod
    def _made(cls, keep: Path | None, name: str, copied: Path | None) -> Self:
        if keep is None:
            path = Path(tempfile.mkdtemp(prefix="ctxfs-ab-"))
        else:
            path = keep.resolve() / name
            shutil.rmtree(path, ignore_errors=True)  # of a session that was interrupted
            path.mkdir(parents=True)
        made = cls(path, keep is not None)
        try:
            made.stored.mkdir(mode=DIR_MODE)  # a program is let only into a directory that is there when it begins
            if copied is None:
                made.work.mkdir()
            else:
                shutil.copytree(copied, made.work, symlinks=True)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return made

    @property
    def work(self) -> Path:
        """Where its program works."""
        return self.path / "work"

    @property
    def stored(self) -> Path:
        """Where its contents are stored."""
        return self.path / "sessions"

    def remove(self) -> None:
        """Remove it at its end, unless it is to be kept."""
        if not self.is_kept:
            shutil.rmtree(self.path, ignore_errors=True)


def _first_reason(error: OSError) -> str:
    """Why a directory could not be made or copied: ``copytree`` lists each file that it failed for."""
    if isinstance(error, shutil.Error):
        _, _, reason = error.args[0][0]
        return str(reason)
    return reason_of(error)
