"""GitHub Copilot CLI: ``events.jsonl`` of a session, one event a line.

A file of a session has its usage in total only, at its end, so its calls have no bill. The stream that
``copilot --output-format json`` prints has an event of usage for each call.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ctxfs.lab.recordings.formats.builder import Builder, Document, arguments, model_call, plain, seconds, text
from ctxfs.lab.recordings.recording import Block, Kind, Recording, Role

_EVENTS = ("session.start", "user.message", "assistant.message", "tool.execution_complete")


def is_copilot_cli(doc: Document) -> bool:
    """Whether a line is an event of a session."""
    return any(row.get("type") in _EVENTS and isinstance(row.get("data"), Mapping) for row in doc.rows)


def read(doc: Document) -> Iterable[Recording]:
    """The one session of the file."""
    session = _Session(doc.name)
    for row in doc.rows:
        data = row.get("data")
        session.take(str(row.get("type")), data if isinstance(data, Mapping) else {}, seconds(row.get("timestamp")))
    yield session.builder.finish(name=session.name, model=session.model, project=session.project)


class _Session:
    """What is known up to an event."""

    def __init__(self, name: str) -> None:
        self.builder = Builder()
        self.name = name
        self.project = ""
        self.model = ""

    def take(self, event: str, data: Mapping[str, Any], at: float | None) -> None:
        match event:
            case "session.start":
                self.name = str(data.get("sessionId") or self.name)
                self.project = str((data.get("context") or {}).get("cwd") or "")
                self._use(data.get("selectedModel"))
            case "session.model_change":
                self._use(data.get("newModel"))
            case "session.compaction_complete" if data.get("success", True):
                self.builder.fresh()
                self.builder.add(Role.USER, [text(plain(data.get("summaryContent")))], at=at)
            case "user.message":
                # What is sent has the program's notes in it, where a file has it.
                said = plain(data.get("transformedContent") or data.get("content"))
                self.builder.add(Role.USER, [text(said)], at=at)
            case "assistant.message":
                self._use(data.get("model"))
                self.builder.add(Role.ASSISTANT, self._blocks(data), at=at)
            case "assistant.usage":
                self._use(data.get("model"))
                self.builder.bill(model_call(_usage(data), model=self.model, at=at))
            case "tool.execution_complete":
                self._use(data.get("model"))
                result = self.builder.result(data["toolCallId"], _output(data))
                self.builder.add(Role.USER, [result], group="results", at=at)

    def _use(self, model: Any) -> None:
        """Note the model; Copilot writes a dot where Anthropic's own names have a hyphen."""
        if isinstance(model, str) and model:
            self.model = model.replace(".", "-") if model.startswith("claude-") else model

    def _blocks(self, data: Mapping[str, Any]) -> Iterator[Block]:
        if thinking := data.get("reasoningText"):
            yield text(thinking, Kind.THINKING)
        if said := data.get("content"):
            yield text(said)
        for request in data.get("toolRequests") or []:
            yield self.builder.call(request["toolCallId"], request["name"], arguments(request.get("arguments") or {}))


def _output(data: Mapping[str, Any]) -> str:
    """A result as the model got it: ``content``; ``detailedContent`` is for the terminal."""
    result = data.get("result", data.get("error"))
    return plain(result.get("content", result.get("message"))) if isinstance(result, Mapping) else plain(result)


def _usage(data: Mapping[str, Any]) -> dict[str, int]:
    """Copilot counts cached tokens as part of the input."""
    read_tokens = int(data.get("cacheReadTokens") or 0)
    written = int(data.get("cacheWriteTokens") or 0)
    return {
        "input_tokens": max(0, int(data.get("inputTokens") or 0) - read_tokens - written),
        "cache_read_input_tokens": read_tokens,
        "cache_creation_input_tokens": written,
        "output_tokens": int(data.get("outputTokens") or 0),
    }
