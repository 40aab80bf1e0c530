"""Tools with which the model searches everything that was ever in its session, and keeps notes."""

from ctxfs.recall.tools import recall_tools

__all__ = ["recall_tools"]
