"""What object stores refuse with: one line that says what to do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from ctxfs.errors import ConfigError, NotStored, StorageError, StoreRefused
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.stores import Bucket, ObjectStore, open_bucket

OPTIONS = {"region": "us-east-1", "access_key_id": "key", "secret_access_key": "secret"}


@contextmanager
def answering(status: int, body: str) -> Iterator[str]:
    """Serve S3 that refuses all."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - as the server calls it

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def bucket(endpoint: str, *, allow_http: bool = True) -> Bucket:
    client = {"allow_http": allow_http}
    retries = {"max_retries": 0}
    return open_bucket("s3://b/p", {**OPTIONS, "endpoint": endpoint, "client_options": client, "retry_config": retries})


def said(act: Callable[[], object], kind: type[Exception] = StorageError) -> str:
    with pytest.raises(kind) as raised:
        act()
    text = str(raised.value)
    assert len(text.splitlines()) == 1
    return text


def test_a_store_that_denies_access() -> None:
    with answering(403, "<Error><Code>SignatureDoesNotMatch</Code></Error>") as endpoint:
        for act in (
            lambda: list(bucket(endpoint).keys("")),
            lambda: bucket(endpoint).get("k"),
            lambda: bucket(endpoint).create("k", b""),
        ):
            assert "access was denied: check the credentials" in said(act, StoreRefused)


def test_a_bucket_that_is_not_there() -> None:
    with answering(404, "<Error><Code>NoSuchBucket</Code></Error>") as endpoint:
        for act in (
            lambda: list(bucket(endpoint).keys("")),
            lambda: bucket(endpoint).get("k"),
            lambda: bucket(endpoint).create("k", b""),
        ):
            assert "there is no such bucket: make it, or correct the URL" in said(act, StoreRefused)


@pytest.mark.anyio
async def test_what_is_refused_for_good_is_not_repeated() -> None:
    """The error comes at once, however long a missing answer would be waited for."""
    with answering(403, "<Error><Code>AccessDenied</Code></Error>") as endpoint:
        store = ThreadedStore(ObjectStore(bucket(endpoint), "s", give_up_s=3_600))
        for write in (True, False):
            with pytest.raises(StoreRefused, match="access was denied"):
                await store.open(create=True, write=write)


def test_a_server_that_is_not_reached() -> None:
    with answering(200, "") as endpoint:
        pass
    assert "the server was not reached: check the network, and the endpoint" in said(
        lambda: list(bucket(endpoint).keys(""))
    )
    assert "set AWS_ALLOW_HTTP=true" in said(lambda: list(bucket(endpoint, allow_http=False).keys("")))


def test_what_the_environment_says_of_the_client_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """``options`` come before the environment, and that before our own time-outs."""
    for name, value in OPTIONS.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with answering(404, "<Error><Code>NoSuchKey</Code></Error>") as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with pytest.raises(NotStored):
            open_bucket("s3://b/p").get("k")
        refused = open_bucket("s3://b/p", {"client_options": {"allow_http": False}})
        assert "the endpoint is not valid" in said(lambda: refused.get("k"))
        monkeypatch.setenv("AWS_TIMEOUT", "long")
        assert "long" in said(lambda: open_bucket("s3://b/p"), ConfigError)


def test_a_url_that_names_no_bucket() -> None:
    for url in ("s3:/bucket", "s3://"):
        assert repr(url) in said(partial(open_bucket, url), ConfigError)
