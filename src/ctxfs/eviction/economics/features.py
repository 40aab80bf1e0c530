"""What the planner knows of an item: its kind."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

_READING = (
    "read",
    "read_file",
    "open",
    "view",
    "view_file",
    "cat",
    "nl",
    "sed",
    "head",
    "tail",
    "less",
    "bat",
    "git show",
    "task",
    "agent",
)
_COMMAND_KEYS = ("command", "cmd")
_COMMAND_ENDS = re.compile(r"&&|\|\||;|\n")
_COMMAND_CHARS = 1_000
_SILENT = ("cd", "echo", "export", "set", "source", "true")


class ItemKind(StrEnum):
    """Kinds of items that differ in how often they are read back."""

    FILE = "file"
    """The result of reading a file, and any page that was read back."""
    RESULT = "result"
    """Any other result: of a command, a search, an API."""
    ARGUMENTS = "arguments"
    """What the model wrote to call a tool."""


def kind_of_result(name: str) -> ItemKind:
    """The kind of a result, by the name of its tool, or of the program that a shell ran."""
    return ItemKind.FILE if name.lower() in _READING else ItemKind.RESULT


def program_of(arguments: Mapping[str, Any]) -> str:
    """The program whose output a call of a shell shows: the first word of its last command; "" for any other call.

    ``git show`` prints files as they were, so it is told apart from ``git``.
    ``cd``, assignments and output that is redirected to a file show nothing. The text after ``<<`` is data.
    """
    command = next((found for found in map(arguments.get, _COMMAND_KEYS) if found), "")
    if not command:
        return ""
    if isinstance(command, list):
        command = command[-1] if command else ""  # as in ["bash", "-lc", "cat a.py"]
    program = ""
    for line in _COMMAND_ENDS.split(str(command)[:_COMMAND_CHARS].partition("<<")[0]):
        words = [word for word in line.split("|")[0].split() if "=" not in word]
        if words and words[0] not in _SILENT and ">" not in line:
            program = "git show" if words[:2] == ["git", "show"] else words[0].rpartition("/")[2]
    return program
