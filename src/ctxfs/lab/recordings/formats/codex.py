"""Codex: rollouts as JSON lines, items of the Responses API with events between them.

What a call was billed stands in an event after it (``token_count``); a compaction brings the history that replaces all
before it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ctxfs.lab.recordings.formats.builder import Builder, Document, model_call, seconds
from ctxfs.lab.recordings.formats.responses import add_item
from ctxfs.lab.recordings.recording import Recording

_LINES = ("response_item", "session_meta", "event_msg", "turn_context")


def is_codex(doc: Document) -> bool:
    """Whether a line is one of a rollout's."""
    return any(row.get("type") in _LINES for row in doc.rows)


def read(doc: Document) -> Iterable[Recording]:
    """The one session of the file."""
    rollout = _Rollout()
    for row in doc.rows:
        rollout.take(row)
    yield rollout.builder.finish(name=doc.name, project=rollout.project)


class _Rollout:
    """What is known up to a line."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.project = ""
        self._model = ""
        self._billed: Any = None  # the running total of the last bill: an event that repeats it tells of no call

    def take(self, row: Mapping[str, Any]) -> None:
        payload = row.get("payload")
        given = payload if isinstance(payload, Mapping) else {}
        match row.get("type"):
            case "response_item":
                add_item(given, self.builder, at=seconds(row.get("timestamp")))
            case "session_meta":
                self.project = self.project or str(given.get("cwd") or "")
            case "turn_context":
                self._model = str(given.get("model") or self._model)
            case "event_msg":
                self._event(given, row.get("timestamp"))
            case "compacted":
                self.builder.fresh()
                for item in given.get("replacement_history") or _summary(given):
                    add_item(item, self.builder)
            case _:
                add_item(row, self.builder, at=seconds(row.get("timestamp")))

    def _event(self, event: Mapping[str, Any], at: Any) -> None:
        if event.get("type") == "thread_rolled_back":
            self.builder.rewind(int(event.get("num_turns") or 0))
        info = event.get("info")
        if event.get("type") != "token_count" or not isinstance(info, Mapping):
            return
        total, last = info.get("total_token_usage"), info.get("last_token_usage")
        if not isinstance(last, Mapping) or not last.get("input_tokens") or total == self._billed:
            return
        self._billed = total
        self.builder.bill(model_call(_usage(last), model=self._model, at=at))


def _usage(last: Mapping[str, Any]) -> dict[str, int]:
    """Codex counts cached tokens as part of the input."""
    read, written = int(last.get("cached_input_tokens") or 0), int(last.get("cache_write_input_tokens") or 0)
    return {
        "input_tokens": max(0, int(last["input_tokens"]) - read - written),
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": int(last.get("output_tokens") or 0),
    }


def _summary(given: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What older rollouts have of a compaction: its summary."""
    return [{"type": "message", "role": "user", "content": str(given["message"])}] if given.get("message") else []
