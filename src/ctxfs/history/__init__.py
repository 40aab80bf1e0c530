"""A history that a framework owns: its parts in, edits to it out."""

from ctxfs.history.history import History
from ctxfs.history.host_cache import HostCache
from ctxfs.history.parts import Edits, Kind, Part, Replacement
from ctxfs.history.pool import Histories

__all__ = ["Edits", "Histories", "History", "HostCache", "Kind", "Part", "Replacement"]
