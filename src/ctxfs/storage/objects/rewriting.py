"""What a session's segments still hold, and what is left of things that it has no more. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ctxfs.storage.objects.segments import Append, Located, Piece, Put, is_segment_key

__all__ = ["Leftovers"]


@dataclass(slots=True)
class Leftovers:
    """What has to go so that a bucket holds nothing but the session as it is.

    Args:
        files: the session's files, each with where its parts are.
        log: its log, as it will be.
    """

    files: Mapping[str, tuple[Located, ...]]
    log: bytes
    segments: set[str] = field(default_factory=set)
    """The keys of the segments that hold something else too, and of earlier whole ones."""
    dead: set[Located] = field(default_factory=set)
    """The contents of earlier that were seen in segments."""
    _live: frozenset[Located] = field(init=False, repr=False)
    _lines: frozenset[bytes] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._live = frozenset(at for parts in self.files.values() for at in parts)
        self._lines = frozenset(self.log.split(b"\n"))

    def look(self, key: str, piece: Piece) -> None:
        """Look at a segment."""
        dead = {step.at for step in piece.steps if isinstance(step, Put)} - self._live
        lines = {line for step in piece.steps if isinstance(step, Append) for line in step.data.split(b"\n")}
        self.dead |= dead
        if piece.head.whole or not lines <= self._lines or any(at.key == key for at in dead):
            self.segments.add(key)

    def moves(self, parts: Iterable[Located]) -> bool:
        """Whether a content has to be written again, since a segment that holds a part of it goes."""
        return any(at.key in self.segments for at in parts)

    def objects(self, keys: Collection[str]) -> list[str]:
        """The keys of the objects that go: contents with an object of their own, and all chunks but segments."""
        live = {at.key for at in self._live}
        return [key for key in keys if not is_segment_key(key) and key not in live]
