"""The histories of many threads: found by the thread's id, and closed when they are idle."""

import logging
import threading
import time
from inspect import signature
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from ctxfs.context.history.history import MEANT, History
from ctxfs.errors import ConfigError, CtxfsError
from ctxfs.errors.checks import refuse_unknown, require_int, require_text
from ctxfs.messages.names import session_name
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.urls import stores_at
from ctxfs.tools.base import Tool

_log = logging.getLogger("ctxfs.context")

_OF_EACH: Final = tuple(name for name in signature(History).parameters if name not in ("session_id", "root_path"))
"""The settings of every ``History``."""
_MEANT: Final = {
    **MEANT,
    "session_id": "each thread has a session of its own: give the thread's id to of(...)",
    "idle_s": "a history that was not used for five minutes is closed when another one is asked for; with a smaller "
    "max_open it is closed earlier",
}
GIVEN_TO_HISTORY: Final = dict.fromkeys(("max_open", *_OF_EACH), "give it to the History(...) or Histories(...)")
"""What an adapter, which is given a history, answers to a setting of that."""


class Histories:
    """A ``History`` for each thread (conversation) of a framework, in one place, however many there are.

    It may be used in any thread of the process. A history that was not used for five minutes is closed when another
    one is asked for. Several processes may serve the same conversations.

    Args:
        root_path: where sessions are: a directory, a URL (``s3://bucket/prefix``) or a ``SessionStores``; None means
            ``~/.agent/context``.
        max_open: the most histories that are kept open; the least recently used is closed first.
        settings: the settings of every ``History``.

    Raises:
        ConfigError: a setting that cannot work.

    """

    idle_s: ClassVar[float] = 300.0
    """A conversation that pauses for longer has no cached prefix to save, so opening its session again costs little."""

    def __init__(
        self,
        root_path: str | Path | SessionStores | None = None,
        *,
        max_open: int = 64,
        **settings: Any,
    ) -> None:
        refuse_unknown("Histories", settings, ("root_path", "max_open", *_OF_EACH), _MEANT)
        require_int("max_open", max_open, at_least=1)
        self._stores = stores_at(root_path)
        self._max_open = max_open
        self._settings = settings
        self._lock = threading.Lock()
        self._open: dict[str, tuple[History, float]] = {}
        # Refuses what cannot work, and writes nothing.
        self._any = History(session_name("settings"), root_path=self._stores, **settings)

    @property
    def stores(self) -> SessionStores:
        """The place of the sessions."""
        return self._stores

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of a ``History``, for their schemas, which are the same for all threads; nothing is opened."""
        return self._any.tools

    def of(self, thread_id: str) -> History:
        """Return the history of a thread: the same object while it is open.

        A history that was closed because it was idle opens again at its next use.
        """
        require_text("thread_id", thread_id)
        session_id = session_name(thread_id)
        now = time.monotonic()
        with self._lock:
            history, _ = self._open.pop(session_id, (None, now))
            if history is None:
                history = History(session_id, root_path=self._stores, **self._settings)
            self._open[session_id] = (history, now)
            idle = self._idle(now)
        for other in idle:
            try:
                other.close()
            except CtxfsError as error:  # it does not concern the requested thread
                _log.warning("session %s: %s", other.session_id, error)
        return history

    def _idle(self, now: float) -> list[History]:
        """Remove and return the histories to close, the longest unused first."""
        going = [name for name, (_, used) in self._open.items() if now - used >= self.idle_s]
        surplus = len(self._open) - len(going) - self._max_open
        going += [name for name in self._open if name not in going][: max(0, surplus)]
        return [self._open.pop(name)[0] for name in going]

    def close(self) -> None:
        """Close all histories; idempotent.

        Raises what ``History.close`` raises: the first error, after all have been closed.
        """
        with self._lock:
            going = list(self._open.values())
            self._open = {}
        errors: list[CtxfsError] = []
        for history, _ in going:
            try:
                history.close()
            except CtxfsError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def history_of(owner: History | Histories, thread_id: str) -> History:
    """Return ``owner`` itself if it is the history of one thread; else the thread's history among many."""
    return owner if isinstance(owner, History) else owner.of(thread_id)


def require_history(value: object, *, many: bool = False) -> None:
    """Raise ``ConfigError`` unless ``value`` is a ``History``, or ``Histories`` where an adapter can take ``many``."""
    if not isinstance(value, (History, Histories) if many else History):
        wanted = "History(...) or Histories(...)" if many else "History(...), or histories.of(thread_id)"
        raise ConfigError(f"history is {value!r:.80}: use {wanted}")
