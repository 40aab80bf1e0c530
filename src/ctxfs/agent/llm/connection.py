"""A model's connection to its provider: an SDK's client, made when it is first needed."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Generic, Protocol, TypeVar

import anyio
from anyio import to_thread

from ctxfs.errors import MissingExtra


def require_sdk(package: str) -> None:
    """Raise ``MissingExtra`` unless the SDK is installed; its extra has its name."""
    if find_spec(package) is None:
        raise MissingExtra(package, package)


class Client(Protocol):
    """The part of an SDK's client that is alike in all of them."""

    async def close(self) -> None:
        """Close its connections."""


C = TypeVar("C", bound=Client)


class Connection(Generic[C]):
    """At most one client at a time, for all callers."""

    def __init__(self) -> None:
        self._client: C | None = None
        self._connecting = anyio.Lock()

    async def client(self, connect: Callable[[], C]) -> C:
        """Return the client; ``connect`` makes it if there is none."""
        async with self._connecting:
            # In a thread: importing the SDK and reading certificates would stall the event loop.
            if self._client is None:
                self._client = await to_thread.run_sync(connect)
            return self._client

    async def close(self) -> None:
        """Release connections; the next call opens new ones."""
        client = self._client
        self._client = None
        if client is not None:
            await client.close()
