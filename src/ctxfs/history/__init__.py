"""A history that somebody else owns, such as a framework's: parts of it in, edits to it out."""

from ctxfs.history.history import History
from ctxfs.history.parts import Edits, Kind, Part, Replacement
from ctxfs.history.pool import Histories

__all__ = ["Edits", "Histories", "History", "Kind", "Part", "Replacement"]
