"""What a session needs from an object store: keys and bytes, and a request that fails if its key already exists.

``open_bucket`` opens one with obstore: S3 and compatible stores, Google Cloud Storage, Azure, a directory, memory.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from typing_extensions import override

from ctxfs.errors import ConfigError, CtxfsError, MissingExtra, NotStored, StorageError, StoreRefused, WriteFailed
from ctxfs.errors.checks import names_settings
from ctxfs.storage.failures import NoAnswer
from ctxfs.stores.answers import SILENT_S

_LISTED = 1000
_ANSWERS: Final[dict[str, Any]] = {
    "retry_config": {"max_retries": 3, "retry_timeout": timedelta(seconds=10)},
    "client_options": {"timeout": timedelta(seconds=SILENT_S), "connect_timeout": timedelta(seconds=5)},
}
"""How long obstore waits for an answer, and repeats what may be repeated; its own time-out of 30 s is longer than a
commit is repeated, so that one silent answer would leave the outcome unknown."""
_PREFIXES: Final = {"s3": "AWS_", "s3a": "AWS_", "gs": "GOOGLE_", "az": "AZURE_", "azure": "AZURE_", "abfs": "AZURE_"}
"""What the settings of a kind of store begin with in the environment, by the scheme of its URL."""
_CLIENT_OPTIONS: Final = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "http1_only",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "timeout",
    "user_agent",
)
"""obstore reads these from the environment only where it is given no ``client_options``, and it is given time-outs."""
_DEFAULTS: dict[str, dict[str, Any]] = {
    "file": {"mkdir": True, "automatic_cleanup": True},
    "memory": {},
}
"""The settings of what is on no server, so that nothing is waited for."""
_used_in: list[int] = []  # the process that uses obstore, which does not work in processes forked from it


class Taken(CtxfsError):
    """The key already exists, so nothing was written."""


class Bucket(Protocol):
    """Keys and bytes. All methods block, and may be called in any thread.

    As soon as the request that created a key has been answered, the key can be read, and is listed. Each method returns
    or raises after a bounded time, also when the server is silent. All of them raise ``StoreRefused`` for what the
    server will always refuse: there is no such bucket, the credentials are not valid, or they give no right to it.
    """

    def create(self, key: str, data: bytes) -> None:
        """Create an object, in one request that fails if the key exists.

        Raises ``Taken``, ``WriteFailed`` (it was not created, and will not be) and ``NoAnswer``.
        """

    def put(self, key: str, data: bytes) -> None:
        """Create or replace an object. Raises ``WriteFailed`` and ``NoAnswer``."""

    def get(self, key: str) -> bytes:
        """Return an object. Raises ``NotStored`` and ``StorageError``."""

    def get_range(self, key: str, offset: int, size: int) -> bytes:
        """Return ``size`` bytes (at least 1), all within the object. Raises ``NotStored`` and ``StorageError``."""

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yield the keys that begin with ``prefix`` and come after ``after``, sorted. Raises ``StorageError``."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; keys that do not exist count as deleted. Raises ``WriteFailed`` and ``NoAnswer``."""


@names_settings()
def open_bucket(url: str, options: Mapping[str, Any] | None = None) -> Bucket:
    """Return the bucket at ``url``: ``s3://…``, ``gs://…``, ``az://…``, ``file:///…`` or ``memory:///``, with a prefix.

    A directory that does not exist is created when the first object is written.
    ``options`` are obstore's for that kind of store, such as ``endpoint`` or ``client_options``; settings that they
    leave out come from the environment, as with the providers' own tools (AWS_ENDPOINT_URL, AWS_ALLOW_HTTP …). A
    request without an answer ends after 8 seconds, unless ``client_options`` or AWS_TIMEOUT has another ``timeout``: it
    should be less than half of the ``give_up_s`` of the sessions. On a slow network a longer one leaves more time for a
    segment, which has up to 8 MB.

    Raises:
        MissingExtra: obstore is not installed.
        ConfigError: there is no such kind of store, or the store has no such option.
    """
    if url.startswith("file:"):
        return _Directory(url, options)
    return ObstoreBucket(_store_at(url, options))


def _obstore() -> Any:
    try:
        import obstore.exceptions  # noqa: PLC0415 - an extra
        import obstore.store  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra("objects", "obstore") from error
    return obstore


def _store_at(url: str, options: Mapping[str, Any] | None) -> Any:
    obstore = _obstore()
    scheme = url.partition(":")[0]
    if scheme not in _DEFAULTS and not re.match(r"[^:/]+://[^/]", url):
        raise ConfigError(f"{url!r} names no bucket: write {scheme}://bucket/prefix")
    try:
        given = dict(options or {})
        settings = {**_DEFAULTS.get(scheme, _ANSWERS), **given}
        if "client_options" in settings:
            settings["client_options"] = {
                **_ANSWERS["client_options"],
                **_client_options_of(url, os.environ),
                **given.get("client_options", {}),
            }
        return obstore.store.from_url(url, **settings)
    except (obstore.exceptions.BaseError, TypeError, ValueError) as error:
        raise ConfigError(f"{url!r} cannot be opened as an object store: {_reason(error)}") from error


def _client_options_of(url: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the options of obstore's client that the environment sets, such as AWS_ALLOW_HTTP."""
    prefix = _PREFIXES.get(urlsplit(url).scheme)
    if prefix is None:
        return {}
    names = {option: f"{prefix}{option.upper()}" for option in _CLIENT_OPTIONS}
    return {option: environment[name] for option, name in names.items() if name in environment}


class ObstoreBucket(Bucket):
    """A bucket of ``store``, one of obstore's stores.

    Requests are not repeated here: only the caller knows whether one is safe to repeat. obstore repeats some by itself,
    which is harmless; its option ``retry_config`` says for how long.
    """

    def __init__(self, store: Any) -> None:
        self._o = _obstore()
        self.store = store
        exceptions = self._o.exceptions
        self._taken = (exceptions.AlreadyExistsError, FileExistsError)
        self._missing = (exceptions.NotFoundError, FileNotFoundError)
        self._denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError)
        self._refused = (
            exceptions.InvalidPathError,
            exceptions.NotSupportedError,
            exceptions.UnknownConfigurationKeyError,
            NotImplementedError,
        )
        self._any = (exceptions.BaseError, OSError)

    @override
    def create(self, key: str, data: bytes) -> None:
        self._prepare_writing()
        try:
            self._o.put(self.store, key, data, mode="create", use_multipart=False)
        except self._taken as error:
            raise Taken(key) from error
        except self._any as error:
            raise self._write_error(key, error) from error

    @override
    def put(self, key: str, data: bytes) -> None:
        self._prepare_writing()
        try:
            self._o.put(self.store, key, data)
        except self._any as error:
            raise self._write_error(key, error) from error

    @override
    def get(self, key: str) -> bytes:
        if not self._can_be_read():
            raise NotStored(key)
        try:
            return bytes(self._o.get(self.store, key).bytes())
        except self._any as error:
            raise self._read_error(key, error) from error

    @override
    def get_range(self, key: str, offset: int, size: int) -> bytes:
        if not self._can_be_read():
            raise NotStored(key)
        try:
            return bytes(self._o.get_range(self.store, key, start=offset, length=size))
        except self._any as error:
            raise self._read_error(key, error) from error

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Some stores ignore ``after``, and not all list in order."""
        if not self._can_be_read():
            return
        try:
            pages = self._o.list(self.store, prefix=prefix, offset=after or None, chunk_size=_LISTED)
            found = sorted(row["path"] for row in chain.from_iterable(pages))
        except self._any as error:
            raise self._read_error(prefix, error) from error
        yield from (key for key in found if key > after)

    @override
    def delete(self, keys: Sequence[str]) -> None:
        self._prepare_writing()
        for start in range(0, len(keys), _LISTED):
            try:
                self._o.delete(self.store, list(keys[start : start + _LISTED]))
            except self._missing:
                continue
            except self._any as error:
                raise self._write_error(keys[start], error) from error

    def _can_be_read(self) -> bool:
        """Whether there is something to read. Raises ``StorageError`` in a forked process."""
        _check_process()
        return True

    def _prepare_writing(self) -> None:
        """Raise ``StorageError`` in a forked process."""
        _check_process()

    def _write_error(self, key: str, error: Exception) -> StorageError:
        if self._is_for_good(error):
            return StoreRefused(_reason(error))
        if isinstance(error, (*self._refused, *self._missing)):
            return WriteFailed(key, _reason(error))
        return NoAnswer(f"{key}: {_reason(error)}")

    def _read_error(self, key: str, error: Exception) -> StorageError:
        if self._is_for_good(error):
            return StoreRefused(_reason(error))
        if isinstance(error, self._missing):
            return NotStored(key)
        return StorageError(f"could not read {key}: {_reason(error)}")

    def _is_for_good(self, error: Exception) -> bool:
        """Whether it is the bucket that does not exist, or its owner who does not allow this."""
        return isinstance(error, self._denied) or any(sign in str(error) for sign in _FOR_GOOD)


class _Directory(ObstoreBucket):
    """A directory, which is created by the first write; obstore would create it at once. Until then, it is empty."""

    def __init__(self, url: str, options: Mapping[str, Any] | None) -> None:
        super().__init__(None)
        self._url = url
        self._options = options
        self._path = Path(unquote(urlsplit(url).path))

    def _can_be_read(self) -> bool:
        _check_process()
        if self.store is None and self._path.exists():
            self._prepare_writing()
        return self.store is not None

    def _prepare_writing(self) -> None:
        _check_process()
        if self.store is None:
            with suppress(OSError):  # obstore says what is wrong with it
                # obstore's files have the modes of the umask; below this directory only its owner reaches them
                self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.store = _store_at(self._url, self._options)


_FOR_GOOD: Final = {
    "NoSuchBucket": "there is no such bucket: make it, or correct the URL",
    "ContainerNotFound": "there is no such container: make it, or correct the URL",
    "403 Forbidden": "access was denied: check the credentials, and what they may do in this bucket",
    "401 Unauthorized": "access was denied: check the credentials",
}
_ADVICE: Final = {
    **_FOR_GOOD,
    "latest/api/token": "no credentials are set: set them as for the provider's own tools (AWS_ACCESS_KEY_ID …)",
    "builder error": "the endpoint is not valid; for one that begins with http:// set AWS_ALLOW_HTTP=true",
    "error sending request": "the server was not reached: check the network, and the endpoint (AWS_ENDPOINT_URL)",
}
"""What to do, by a text that obstore's error contains. The first match counts."""


def _reason(error: Exception) -> str:
    """What to do, and obstore's message without the details that it adds for its own developers."""
    said = " ".join(str(error).partition("Debug source")[0].split())
    advice = next((advice for sign, advice in _ADVICE.items() if sign in said), "")
    return f"{advice} ({said[:300]})" if advice else said[:300]


def _check_process() -> None:
    """Raise ``StorageError`` in a forked process, where obstore would wait forever for threads that do not exist."""
    if not _used_in:
        _used_in.append(os.getpid())
    if _used_in[0] != os.getpid():
        raise StorageError(
            "this process was forked from one that had used an object store, which works only in that first process: "
            'start processes with multiprocessing\'s "spawn" or "forkserver", or fork before the first use'
        )
