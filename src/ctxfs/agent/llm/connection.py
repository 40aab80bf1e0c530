"""A model's connection to its provider: an SDK's client, made when first needed, and checks of its settings."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Generic, Protocol, TypeVar

import anyio
from anyio import to_thread

from ctxfs.errors import ConfigError, MissingExtra
from ctxfs.errors.checks import require_int, require_kind, require_number, require_text

REPLACED = {
    "retry": "give max_retries; the delays begin at half a second and double, and Retry-After counts up to 60 seconds",
    "sleep": "give max_retries=0 and wait yourself",
}
"""What to write for a setting that the clients do not have any more."""


def check_client(
    *,
    model: object,
    api_key: object,
    base_url: object,
    max_tokens: object,
    options: object,
    timeout_s: object,
    max_retries: object,
) -> None:
    """Raise ``ConfigError`` for a setting of another type, or one that cannot work."""
    require_text("model", model)
    require_kind("api_key", api_key, str, "a key")
    require_kind("base_url", base_url, str, "a URL")
    require_int("max_tokens", max_tokens, at_least=1)
    require_kind("options", options, Mapping, "a mapping of fields of the request")
    require_number("timeout_s", timeout_s, at_least=0)
    if not timeout_s:
        raise ConfigError("timeout_s is 0: use more than 0 seconds")
    require_int("max_retries", max_retries, at_least=0)
    if isinstance(options, Mapping) and "stream" in options:
        raise ConfigError("options: a reply is always streamed: leave out stream")


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
