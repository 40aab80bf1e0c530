"""What a context reports: events for its owner, and lines of the log."""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from ctxfs.errors import StorageError
from ctxfs.eviction.events import ContextEvent, Offloaded, OffloadFailed, RecordFailed, SummaryFailed, story
from ctxfs.eviction.keep_recent import unknown_tools
from ctxfs.messages.wire_names import short
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import CallMade

_log = logging.getLogger("ctxfs.context")


class Warnings:
    """Warnings about one session, each logged once."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._warned: set[str] = set()
        self._knows_tools = False  # no request has named its tools so far

    def once(self, text: str, *, about: str = "") -> None:
        """Log a warning; ``about`` stands for it where its figures change from time to time."""
        key = about or text
        if key not in self._warned:
            self._warned.add(key)
            _log.warning("session %s: %s", self._session_id, text)

    def of_unknown(self, tools: Collection[str], **named: Collection[str]) -> None:
        """Log which tools the settings name that are not among ``tools``, those of the first request that has any.

        ``named``: by setting.
        """
        if self._knows_tools or not tools:
            return
        self._knows_tools = True
        for setting, names in named.items():
            warning = unknown_tools(setting, names, tools)
            if warning is not None:
                self.once(warning)


class Notices:
    """Passes the events of one context to ``on_event``, and logs them.

    ``last_failure`` is the last write that failed; a caller that waits for the next one sets it to None.
    """

    def __init__(self, fs: ContextFileSystem, on_event: Callable[[ContextEvent], None] | None) -> None:
        self._fs = fs
        self._on_event = on_event
        self.last_failure: StorageError | None = None

    def emit(self, event: ContextEvent) -> None:
        """Log ``event``, and pass it on."""
        if isinstance(event, OffloadFailed | RecordFailed):
            self.last_failure = event.error
            _log.warning("session %s: %s", self._fs.session_id, event.error)
        elif isinstance(event, Offloaded):
            if _log.isEnabledFor(logging.INFO):
                self._log_offload(event.item_id)
        else:
            level = logging.WARNING if isinstance(event, SummaryFailed) else logging.INFO
            if _log.isEnabledFor(level):
                _log.log(level, "session %s: %s", self._fs.session_id, story(event))
        if self._on_event is None:
            return
        if isinstance(event, Offloaded):
            event = replace(event, size_bytes=self._fs.state.stored[event.item_id].size_bytes)
        self._on_event(event)

    def called(self, call: CallMade) -> None:
        """Log what a call of the model was billed."""
        if not _log.isEnabledFor(logging.INFO):
            return
        used = call.usage
        text = "session %s: %s read a prompt of %s tokens, %s of them from the cache, and wrote %s"
        figures = (used.total_input_tokens, used.cache_read_input_tokens, used.output_tokens)
        _log.info(text, self._fs.session_id, call.model or "the model", *(f"{number:,}" for number in figures))

    def _log_offload(self, item_id: str) -> None:
        """Log what was stored under the names by which a workspace finds it."""
        stored = self._fs.state.stored[item_id]
        fields = {
            "context_type": stored.item_type.value,
            "biz_id": short(stored.metadata.get("tool_call_id", item_id)),
            "session_id": self._fs.session_id,
            "artifact_id": item_id,
        }
        text = (
            "offloaded: context_type=%(context_type)s biz_id=%(biz_id)r session_id=%(session_id)s "
            "artifact_id=%(artifact_id)s"
        )
        _log.info(text, fields, extra=fields)
