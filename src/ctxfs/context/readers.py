"""With which tools of the requests a model reads what was evicted. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ctxfs.eviction.placeholder.text import READ_TOOL, reading_tools
from ctxfs.messages.wire_names import named_definitions
from ctxfs.tools.base import READING_DESCRIPTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """The tools of the requests that read what was stored.

    ``names``: of those that previews may name. ``reader``: the tool that opens a file by its path; None: there is none,
    as far as the definitions say. ``is_ours``: it is the one of ctxfs, which finds short names too, opens compressed
    files, and reads what is stored on a server.
    """

    names: tuple[str, ...]
    reader: str | None
    is_ours: bool

    @property
    def by_path(self) -> bool:
        """Whether placeholders name files by their paths: no tool of ctxfs opens them by short names."""
        return self.reader is None or not self.is_ours

    def why_not(self, *, has_files: bool, compresses: bool) -> str | None:
        """Why the model cannot open what placeholders name, as one says to a user; None: it can."""
        if self.reader is None:
            return f"of the tools, none is named {READ_TOOL!r}"
        if self.is_ours:
            return None
        if not has_files:
            return f"the tool {self.reader!r} is not the one of ctxfs, and the session is in no directory"
        if compresses:
            return f"the tool {self.reader!r} is not the one of ctxfs, and large contents are compressed (layout=TEXT)"
        return None

    def without_files(self) -> "Readers":
        """These, if none of them opens a file by its path."""
        names = tuple(name for name in self.names if name != self.reader)
        return replace(self, names=names, reader=None)


ASSUMED: Final = Readers(names=(READ_TOOL,), reader=READ_TOOL, is_ours=True)
"""What is assumed where the tools of the requests are not known."""


def readers_in(tools: Sequence[Mapping[str, Any]]) -> Readers:
    """Find them in the definitions of a request's tools, by what they are: a user's tool may have any name."""
    reading: list[str] = []
    others: list[str] = []
    for one in named_definitions(tools):
        is_known = str(one.get("description")) in READING_DESCRIPTIONS
        (reading if is_known else others).append(one["name"])
    is_ours = READ_TOOL in reading
    if not is_ours and READ_TOOL in others:  # the user's own, which opens files by their path
        return Readers(names=reading_tools([*reading, READ_TOOL]), reader=READ_TOOL, is_ours=False)
    return Readers(names=reading_tools(reading), reader=READ_TOOL if is_ours else None, is_ours=True)
