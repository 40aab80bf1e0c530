"""A small HTTP server on loopback, in threads of its own, so that clients of every kind can call it."""

import threading
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from anyio import to_thread

from ctxfs.errors.checks import names_settings
from ctxfs.text.jsontext import codec as json_codec

__all__ = ["Answer", "LoopbackServer"]

MAX_BODY_BYTES = 32 * 1024 * 1024
POLL_S = 0.02


@names_settings()
class Answer:
    """What to send: a JSON ``body``, or server-sent ``events``; ``whole`` False breaks off after the events."""

    def __init__(
        self,
        status: int,
        body: Any = None,
        *,
        events: Iterable[bytes] | None = None,
        whole: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.events = events
        self.whole = whole
        self.headers = dict(headers or {})


class LoopbackServer:
    """Serves ``answer`` while it is entered, with ``with`` or ``async with``; ``url`` is its address."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """What to send for a POST of ``body`` to ``path``; calls come one at a time. Header names are lower case."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        """The address, without a slash at its end."""
        if self._server is None:
            raise RuntimeError(f"{type(self).__name__} is not running: enter it with `with` first")
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        server = _Server(("127.0.0.1", 0), _Handler)
        server.serve_answer = self._serialised
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        if server is not None and self._thread is not None:
            server.shutdown()
            server.server_close()
            self._thread.join()

    async def __aenter__(self) -> Self:
        return await to_thread.run_sync(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await to_thread.run_sync(self.__exit__, kind, error, trace)

    def _serialised(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        with self._lock:
            return self.answer(path, headers, body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    serve_answer: Any


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        length = int(headers.get("content-length", "0"))
        if length > MAX_BODY_BYTES:
            self._send(Answer(413, _error("request_too_large", "Request exceeds the maximum size")))
            return
        answer = self.server.serve_answer(self.path, headers, self.rfile.read(length))
        try:
            self._send(answer)
        except (BrokenPipeError, ConnectionResetError):  # the client went away, which is its right
            return

    def do_GET(self) -> None:
        self._send(Answer(405, _error("invalid_request_error", "Method Not Allowed")))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 — the base class's name
        """Keep quiet: ``requests`` of the server tell more."""

    def _send(self, answer: Answer) -> None:
        self.close_connection = True
        self.send_response(answer.status)
        for name, value in {**answer.headers, "connection": "close"}.items():
            self.send_header(name, value)
        if answer.events is None:
            self._send_json(answer.body)
            return
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in answer.events:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.flush()
        if answer.whole:
            self.wfile.write(b"0\r\n\r\n")

    def _send_json(self, body: Any) -> None:
        data = json_codec.dumps(body)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}
