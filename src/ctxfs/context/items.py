"""The module of this name in "Context FileSystem 上下文卸载功能", for imports that follow it."""

from ctxfs.messages.items import ContextItem, ItemType

__all__ = ["ContextItem", "ItemType"]
