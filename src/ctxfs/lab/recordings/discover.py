"""Where recordings lie: what agents write by themselves, and what stands in a folder."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ctxfs.errors import ConfigError
from ctxfs.storage.local import is_session

_SUFFIXES: Final = (".jsonl", ".json", ".eval", ".db")
"""The names of recordings; only these are looked at in a folder."""


def default_places(home: Path | None = None, environment: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """The folders and the database that are there, in which agents keep their sessions; ``home`` None: the user's.

    Those of Claude Code, Codex, Gemini CLI, Copilot CLI, pi and opencode. Some may have been moved, which
    ``CLAUDE_CONFIG_DIR``, ``CODEX_HOME``, ``PI_CODING_AGENT_DIR`` and ``XDG_DATA_HOME`` of ``environment`` say (None:
    the process's).
    """
    home = home or Path.home()
    environment = os.environ if environment is None else environment
    places = (
        Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects",
        Path(environment.get("CODEX_HOME") or home / ".codex") / "sessions",
        home / ".gemini" / "tmp",
        home / ".copilot" / "session-state",
        Path(environment.get("PI_CODING_AGENT_DIR") or home / ".pi" / "agent") / "sessions",
        # The database alone: beside it are thousands of files that older versions wrote, and that it has taken over.
        Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode" / "opencode.db",
    )
    return tuple(place for place in places if place.exists())


def recordings_in(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The files that are named, and those in the folders that are named, oldest first in each; none twice.

    A folder that cannot be read is among them, so that reading it reports why.

    Raises:
        ConfigError: one of the paths does not exist or holds sessions of ctxfs, or the folders hold no such file.
    """
    if missing := [str(path) for path in paths if not path.exists()]:
        raise ConfigError(f"there is no file or folder {', '.join(missing)}")
    for path in paths:
        if path.is_dir() and any(is_session(path, child.name) for child in path.iterdir()):
            raise ConfigError(
                f"{path} holds sessions of ctxfs, which are no recordings: `ctxfs explain SESSION --root {path}` shows "
                f"what each saved, `ctxfs view --root {path}` all of them"
            )
    found = dict.fromkeys(file for path in paths for file in (_in_folder(path) if path.is_dir() else [path]))
    if not found:
        folders = ", ".join(map(str, paths))
        raise ConfigError(f"no recorded sessions in {folders}: a folder is searched for {', '.join(_SUFFIXES)} files")
    return tuple(found)


def _in_folder(folder: Path) -> list[Path]:
    unreadable: list[Path] = []
    walk = os.walk(folder, onerror=lambda error: unreadable.append(Path(error.filename)))
    files = [Path(at, name) for at, _, names in walk for name in names]
    return [*sorted((f for f in files if f.suffix in _SUFFIXES and f.is_file()), key=_age), *unreadable]


def _age(file: Path) -> tuple[float, Path]:
    """When it was last written, and its name; 0 for one that is gone by now."""
    try:
        return file.stat().st_mtime, file
    except OSError:
        return 0.0, file
