"""Serving the page on 127.0.0.1, at a port and a path that nobody can guess."""

import secrets
import socket
from dataclasses import dataclass, field

import uvicorn

from ctxfs.errors import ConfigError
from ctxfs.storage.sessions import SessionStores
from ctxfs.view.app import ViewApp
from ctxfs.view.recordings import Comparisons, NoComparisons, NoRecordings, Recordings
from ctxfs.view.sources import OpenSessions

DEFAULT_PORT = 7575
_HOST = "127.0.0.1"


@dataclass(slots=True)
class ViewServer:
    """The server of the page that shows sessions.

    Args:
        stores: where the sessions are.
        port: where to serve; 0: any free port; None: ``DEFAULT_PORT``, or any free port if that is taken.
        recordings: recorded sessions that can be viewed.
        may_write: whether items can be restored and pinned, and changes undone.
        comparisons: comparisons of arms that can be viewed.

    Raises:
        ConfigError: the port cannot be used.
    """

    stores: SessionStores
    port: int | None = None
    recordings: Recordings = field(default_factory=NoRecordings)
    may_write: bool = False
    comparisons: Comparisons = field(default_factory=NoComparisons)
    _token: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    _listening: socket.socket = field(init=False)
    _server: uvicorn.Server = field(init=False)

    def __post_init__(self) -> None:
        app = ViewApp(OpenSessions(self.stores), self._token, recordings=self.recordings, comparisons=self.comparisons)
        app.may_write = secrets.token_urlsafe(16) if self.may_write else ""
        self._listening = _listening_on(self.port)
        app.port = self._listening.getsockname()[1]
        config = uvicorn.Config(
            app.asgi(), log_config=None, access_log=False, timeout_graceful_shutdown=1, server_header=False
        )
        config.load()  # here, since importing blocks: on files, and on imports in other threads
        self._server = uvicorn.Server(config)

    @property
    def url(self) -> str:
        """The page's address, which ends with a slash. Anyone on this machine who knows it can see all sessions."""
        return f"http://{_HOST}:{self._listening.getsockname()[1]}/{self._token}/"

    async def serve(self) -> None:
        """Answer requests until ``stop`` is called, or until an interrupt."""
        await self._server.serve(sockets=[self._listening])

    def stop(self) -> None:
        """Stop serving."""
        self._server.should_exit = True

    def close(self) -> None:
        """Free the port, if ``serve`` was never called."""
        self._listening.close()


def _listening_on(port: int | None) -> socket.socket:
    try:
        return socket.create_server((_HOST, DEFAULT_PORT if port is None else port))
    except OSError as error:
        if port is None:
            return socket.create_server((_HOST, 0))
        raise ConfigError(
            f"port {port} of {_HOST} cannot be used: {error.strerror}; --port 0 chooses a free one"
        ) from error
