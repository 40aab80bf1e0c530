"""Find the objects in a bucket that still hold data that the session no longer has. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from ctxfs.stores.objects.segments import Append, Located, Piece, Put, is_segment_key


@dataclass(slots=True)
class Leftovers:
    """The objects to remove so that a bucket holds only the current state of the session.

    Args:
        files: the session's files, each with the locations of its parts.
        log: the session's log, as it will be.
    """

    files: Mapping[str, tuple[Located, ...]]
    log: bytes
    segments: set[str] = field(default_factory=set)
    """The keys of the segments that hold data besides the current state, and of earlier whole segments."""
    dead: set[Located] = field(default_factory=set)
    """Contents, in any segment, that the session no longer has."""
    _live: frozenset[Located] = field(init=False, repr=False)
    _lines: frozenset[bytes] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._live = frozenset(chain.from_iterable(self.files.values()))
        self._lines = frozenset(self.log.split(b"\n"))

    def look(self, key: str, piece: Piece) -> None:
        """Take note of what a segment holds besides the current state."""
        has_dead_content = False
        has_dead_line = False
        for step in piece.steps:
            if isinstance(step, Put) and step.at not in self._live:
                self.dead.add(step.at)
                if step.at.key == key:  # in the segment itself, and not in an object of its own
                    has_dead_content = True
            if isinstance(step, Append) and not self._lines.issuperset(step.data.split(b"\n")):
                has_dead_line = True
        if piece.head.whole or has_dead_line or has_dead_content:
            self.segments.add(key)

    def moves(self, parts: Iterable[Located]) -> bool:
        """Whether a content has to be written again, because a segment that holds part of it will be removed."""
        return any(at.key in self.segments for at in parts)

    def objects(self, keys: Collection[str]) -> list[str]:
        """The keys of the objects to delete: all chunks, and separate contents that the session no longer has."""
        live = {at.key for at in self._live}
        return [key for key in keys if not is_segment_key(key) and key not in live]
