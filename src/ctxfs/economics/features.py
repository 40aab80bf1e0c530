"""What the planner knows of an item: whose result it is, which files it is about, which identifiers it brought in."""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

__all__ = [
    "IdentifierIndex",
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
    r"[^A-Za-z0-9_./:-]*+(?:[A-Za-z0-9_./:-]{1,11}+(?:[^A-Za-z0-9_./:-]++|\Z))*+([A-Za-z0-9_./:-]{12,}+|\Z)"
)

MAX_IDENTIFIER_CHARS: Final = 40
"""Longer ones (hashes, long paths) are hardly ever quoted, and cost more."""

_PATH_KEYS = ("path", "file_path", "filePath", "filename", "file", "notebook_path", "target_file")
_PATCH_HEADER = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)
_WRITING = ("write", "edit", "create", "insert", "patch", "replace")
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
    "task",
    "agent",
)
_SEARCHING = ("grep", "glob", "search", "web_search", "web_fetch", "ls", "list", "rg", "find", "tree")
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

    ``cd``, assignments and output that is redirected to a file show nothing. The text after ``<<`` is data.
    """
    command = next((arguments[key] for key in _COMMAND_KEYS if arguments.get(key)), "")
    if isinstance(command, list):
        command = command[-1] if command else ""  # as in ["bash", "-lc", "cat a.py"]
    program = ""
    for line in _COMMAND_ENDS.split(str(command)[:_COMMAND_CHARS].partition("<<")[0]):
        words = [word for word in line.split("|")[0].split() if "=" not in word]
        if words and words[0] not in _SILENT and ">" not in line:
            program = words[0].rpartition("/")[2]
    return program


def writes(tool_name: str) -> bool:
    """Whether a call of this tool changes the files it names."""
    name = tool_name.lower()
    return any(word in name for word in _WRITING) and name != "write_stdin"


def paths_of(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The files that a call names: in the usual arguments, or in the headers of a patch."""
    named = [value for key in _PATH_KEYS if isinstance(value := arguments.get(key), str)]
    patched = [path for text in strings_of(arguments) if "*** " in text for path in _PATCH_HEADER.findall(text)]
    return tuple(dict.fromkeys([*named, *patched]))


def strings_of(value: Any) -> list[str]:
    """All strings in a JSON value, as the model wrote them (unescaped), keys left out."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for inner in value.values() for text in strings_of(inner)]
    if isinstance(value, Sequence):
        return [text for inner in value for text in strings_of(inner)]
    return []


class IdentifierIndex:
    """The identifiers that a session has brought in so far; the first item that brings one in lists it.

    Grows with the session and is fed in the order of the messages, so that it depends on the history alone.
    """

    __slots__ = ("_layers",)

    def __init__(self) -> None:
        # Known names are written to the first layer; a draft puts its own layer above the layers that it came from.
        self._layers: tuple[set[str], ...] = (set(),)

    def draft(self) -> "IdentifierIndex":
        """Return an index to read more texts on trial: what they bring in is known here only by ``take``."""
        draft = IdentifierIndex()
        draft._layers = (set(), *self._layers)
        return draft

    @property
    def added(self) -> frozenset[str]:
        """What is known here and not in the index that this is a draft of."""
        return frozenset(self._layers[0])

    def take(self, identifiers: Iterable[str]) -> None:
        """Count these as known."""
        self._layers[0].update(identifiers)

    def new_in(self, text: str) -> list[str]:
        """The identifiers of ``text`` that no earlier text had, in order; they count as known from now on."""
        found = list(identifiers_in(text))
        for known in self._layers:
            found = [name for name in found if name not in known]
        self.take(found)
        return [name for name in found if len(name) <= MAX_IDENTIFIER_CHARS]
