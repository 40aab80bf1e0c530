"""What the planner knows of an item: whose result it is, which files it is about, which identifiers it brought in."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from ctxfs.patterns import possessive

__all__ = [
    "MAX_IDENTIFIER_CHARS",
    "ToolClass",
    "classify",
    "identifiers_in",
    "paths_of",
    "program_of",
    "strings_of",
    "writes",
]

# What stands before an identifier is passed over with it, so that no character is looked at twice; "" ends the text.
_IDENTIFIER = re.compile(
    r"[^A-Za-z0-9_./:-]*+"
    + possessive(r"[A-Za-z0-9_./:-]{1,11}+(?:[^A-Za-z0-9_./:-]++|\Z)", "*")
    + r"([A-Za-z0-9_./:-]{12,}+|\Z)"
)

MAX_IDENTIFIER_CHARS: Final = 40
"""Longer ones (hashes, long paths) are hardly ever quoted, and cost more."""

_PATH_KEYS = ("path", "file_path", "filePath", "filename", "file", "notebook_path", "target_file")
_PATCH_HEADER = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)
_WRITING = re.compile("write|edit|create|insert|patch|replace")
_WRITING_WHOLE = ("write", "write_file", "create", "create_file")
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
_SEARCHING = ("grep", "glob", "search", "web_search", "web_fetch", "ls", "list", "rg", "find", "tree")
_MAPPINGS = (dict, Mapping)  # the class of most first: others take many times as long to ask for
_SEQUENCES = (list, Sequence)
_COMMAND_KEYS = ("command", "cmd")
_COMMAND_ENDS = re.compile(r"&&|\|\||;|\n")
_COMMAND_CHARS = 1_000
_SILENT = ("cd", "echo", "export", "set", "source", "true")


def identifiers_in(text: str) -> dict[str, None]:
    """What a model can only quote if it has seen it, in order: runs of 12 or more of ``[A-Za-z0-9_./:-]``."""
    found = dict.fromkeys(_IDENTIFIER.findall(text))
    found.pop("", None)
    return found


class ToolClass(StrEnum):
    """Kinds of items whose chance to be needed again differs."""

    FILE = "file"
    """The result of reading a file."""
    SEARCH = "search"
    """The result of a search, a web page, a listing, another agent."""
    OTHER = "other"
    """Any other result: commands, APIs."""
    WHOLE = "whole"
    """The arguments of a call that writes a whole file."""
    EDIT = "edit"
    """The arguments of any other call: edits, patches, commands."""


def classify(name: str, *, is_input: bool) -> ToolClass:
    """The class of a tool's result, or of a call's arguments (``is_input``), by the name of the tool or program."""
    name = name.lower()
    if is_input:
        return ToolClass.WHOLE if name in _WRITING_WHOLE else ToolClass.EDIT
    if name in _READING:
        return ToolClass.FILE
    return ToolClass.SEARCH if name in _SEARCHING else ToolClass.OTHER


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


def writes(tool_name: str) -> bool:
    """Whether a call of this tool changes the files it names."""
    name = tool_name.lower()
    return _WRITING.search(name) is not None and name != "write_stdin"


def paths_of(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The files that a call names: in the usual arguments, or in the headers of a patch."""
    named = [value for value in map(arguments.get, _PATH_KEYS) if isinstance(value, str)]
    patched = [path for text in strings_of(arguments) if "*** " in text for path in _PATCH_HEADER.findall(text)]
    return tuple(dict.fromkeys([*named, *patched]))


def strings_of(value: Any) -> list[str]:
    """All strings in a JSON value, as the model wrote them (unescaped), keys left out."""
    texts: list[str] = []
    _add_strings(value, texts)
    return texts


def _add_strings(value: Any, texts: list[str]) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, _MAPPINGS):
        for inner in value.values():
            _add_strings(inner, texts)
    elif isinstance(value, _SEQUENCES):
        for inner in value:
            _add_strings(inner, texts)
