"""What the model finds again: everything that was ever in its session, and its own notes."""

from ctxfs.recall.tools import recall_tools

__all__ = ["recall_tools"]
