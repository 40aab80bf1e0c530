"""The session as a storage for Strands."""

import builtins
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ctxfs.context.history.history import History
from ctxfs.context.history.pool import GIVEN_TO_HISTORY, require_history
from ctxfs.errors import CtxfsError
from ctxfs.errors.checks import names_settings
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import Decided

__all__ = ["CtxfsStorage"]

_STORED = "strands_storage"
"""The tool name under which the session records what is written to the storage."""


@names_settings(GIVEN_TO_HISTORY)
class CtxfsStorage:
    """The session as a ``Storage`` of Strands, for its ``ContextOffloader``: durable, checksummed, and never lost.

    A write to an existing key stores another version, and the newest is read. ``delete`` also keeps the content, since
    a message may still name it: the offloader deletes contents that are older than 20 cycles.
    """

    def __init__(self, history: History) -> None:
        require_history(history)
        self.history = history

    async def write(self, key: str, data: bytes) -> None:
        """Store ``data``; it is durable on return. Raises Strands' ``StorageError`` if it is not."""

        async def versions(fs: ContextFileSystem) -> int:
            return _versions(fs).get(key, 0)

        if "\n" in key:
            raise _storage_error()(f"the key {key!r} contains a line break: use one without")
        text, stub = data.decode("utf-8", "surrogateescape"), f"[stored as {key}]"
        try:
            if await self.read(key) == data:
                return
            call_id = _call_id(key, await self.history.aread(versions))
            kept = await self.history.aarrive(text, tool=_STORED, call_id=call_id, replacement=stub)
        except CtxfsError as error:
            raise _storage_error()(f"{key} could not be stored: {error}") from error
        if kept != stub:
            raise _storage_error()(f"{key} could not be stored")

    async def read(self, key: str) -> bytes | None:
        """Return the newest version of ``key``; None if there is none."""

        async def work(fs: ContextFileSystem) -> bytes | None:
            if (count := _versions(fs).get(key)) is None:
                return None
            wanted = _call_id(key, count - 1)
            item_id = next(one.item_id for one in _written(fs) if one.call_id == wanted)
            content = await fs.load(item_id)
            assert isinstance(content, str)
            return content.encode("utf-8", "surrogateescape")

        return await self.history.aread(work)

    async def delete(self, key: str) -> None:
        """Keep the content, so that a message that names it can still be followed."""

    async def list(self, query: str) -> list[str]:
        """Return the keys that begin with ``query``, sorted."""

        async def work(fs: ContextFileSystem) -> builtins.list[str]:
            return sorted(key for key in _versions(fs) if key.startswith(query))

        return await self.history.aread(work)

    async def search(self, query: str) -> builtins.list[Any]:
        """Find contents with the words of ``query``, as Strands' own storages do."""
        from strands.storage.search import KeywordSearchStrategy  # noqa: PLC0415 - since 1.48

        return await KeywordSearchStrategy().search(self, query)


def _storage_error() -> type[Exception]:
    from strands.types.exceptions import StorageError  # noqa: PLC0415 - since 1.48

    return StorageError


def _call_id(key: str, version: int) -> str:
    """The call id under which a version of ``key`` is stored; that of the first version is the key."""
    return f"{key}\n{version}" if version else key


def _versions(fs: ContextFileSystem) -> dict[str, int]:
    """The number of versions stored under each key."""
    return Counter(one.call_id.partition("\n")[0] for one in _written(fs))


def _written(fs: ContextFileSystem) -> Iterator[Decided]:
    return (one for one in fs.state.decisions if one.tool == _STORED)
