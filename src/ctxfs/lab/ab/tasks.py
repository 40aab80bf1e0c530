"""The tasks of a comparison: what the model is asked, and how one knows whether it is solved."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings, require_number, require_text
from ctxfs.errors.spelling import did_you_mean
from ctxfs.text.jsontext import codec as json_codec

DEFAULT_TIMEOUT_S = 1_800.0
_KEYS = ("id", "prompt", "check", "timeout_s", "directory")

Check = tuple[str, ...] | Callable[["Task", Any], bool]
"""A command whose exit code 0 says "solved", or a function of the task and of what ``solve`` returned."""


@names_settings()
@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task, which each arm gets.

    Args:
        id: names it in the results; unique.
        prompt: what the model is asked.
        check: whether it is solved. None: what ``solve`` returns says so.
        timeout_s: after how many seconds a session that still runs is ended, unsolved.
        directory: what each session gets a copy of to work in; None: an empty directory.

    Raises:
        ConfigError: a value that cannot work.

    """

    id: str
    prompt: str
    check: Check | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    directory: Path | None = None

    def __post_init__(self) -> None:
        require_text("id", self.id)
        require_text("prompt", self.prompt)
        require_number("timeout_s", self.timeout_s, at_least=0)
        if not self.id:
            raise ConfigError("the id of a task is empty: give each task an id of its own")
        if self.directory is not None and not self.directory.is_dir():
            raise ConfigError(f"task {self.id}: {self.directory} is not a directory")


def read_tasks(path: Path) -> list[Task]:
    """Read a JSONL file: one task a line, with the keys ``id``, ``prompt``, ``check`` and, optionally, others.

    ``check`` is a list of the words of a command, or a text for the shell; ``directory`` is relative to the file.

    Raises:
        ConfigError: the file cannot be read, or a line is not a task; it names the line.

    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise ConfigError(f"the tasks in {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the tasks in {path} are not UTF-8: {error}") from error
    tasks = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                tasks.append(_task(json_codec.loads(line), path.parent))
            except (ConfigError, ValueError) as error:
                raise ConfigError(f"{path}:{number}: {error}") from error
    checked_tasks(tasks)
    return tasks


def checked_tasks(tasks: Sequence[Task]) -> None:
    """Raise ``ConfigError`` if there are none, or if two have the same id."""
    if not tasks:
        raise ConfigError("there are no tasks: give one JSON object a line, with id, prompt and check")
    seen = set[str]()
    for task in tasks:
        if task.id in seen:
            raise ConfigError(f"two tasks have the id {task.id!r}: give each task an id of its own")
        seen.add(task.id)


def fingerprint(tasks: Sequence[Task]) -> str:
    """What identifies the tasks of a comparison: it changes with each prompt, check and name, not with files."""
    digest = hashlib.sha256()
    for task in tasks:
        check = list(task.check) if isinstance(task.check, tuple) else task.check is not None
        digest.update(json_codec.dumps([task.id, task.prompt, check, task.timeout_s, str(task.directory or "")]))
    return digest.hexdigest()


def _task(given: Any, folder: Path) -> Task:
    if not isinstance(given, Mapping):
        raise ConfigError("a task is a JSON object with id, prompt and check")
    for key in given:
        if key not in _KEYS:
            raise ConfigError(f"a task has no {key!r}{did_you_mean(key, _KEYS) or '.'} Its keys: {', '.join(_KEYS)}")
    for key in ("id", "prompt", "check"):
        if key not in given:
            raise ConfigError(f"{key!r} is missing: a task needs id, prompt and check")
    directory = given.get("directory")
    if directory is not None and not isinstance(directory, str):
        raise ConfigError("directory must be a text: the path of what is copied")
    return Task(
        id=given["id"],
        prompt=given["prompt"],
        check=_command(given["check"]),
        timeout_s=given.get("timeout_s", DEFAULT_TIMEOUT_S),
        directory=None if directory is None else (folder / directory).resolve(),
    )


def _command(given: Any) -> tuple[str, ...]:
    if isinstance(given, str) and given.strip():
        return ("sh", "-c", given)
    if isinstance(given, list) and given and all(isinstance(word, str) for word in given):
        return tuple(given)
    raise ConfigError("check must be a command: a text for the shell, or a list of its words")
