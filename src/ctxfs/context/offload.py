"""The module of this name in "Context FileSystem 上下文卸载功能", for imports that follow it."""

from ctxfs.eviction.policy import OffloadPolicy

__all__ = ["OffloadPolicy"]
