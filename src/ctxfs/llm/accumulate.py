"""The events of a Messages API stream put together to the reply, block by block, verbatim: pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from ctxfs import json_codec
from ctxfs.llm.base import Reply, TextDelta, ThinkingDelta, Usage
from ctxfs.llm.messages import AssistantMessage, Block

__all__ = ["INVALID_JSON", "ReplyBuilder", "parse_arguments", "usage_of"]

INVALID_JSON = "invalid_json"
"""The only argument of a call whose arguments are not a JSON object: its raw text, which no tool's schema accepts."""


def parse_arguments(text: str) -> dict[str, Any]:
    """The arguments of a tool call from their JSON; no text at all is no arguments (see ``INVALID_JSON``)."""
    if not text.strip():
        return {}
    try:
        value = json_codec.loads(text)
    except ValueError:
        return {INVALID_JSON: text}
    return value if isinstance(value, dict) else {INVALID_JSON: text}


def usage_of(counts: Mapping[str, Any]) -> Usage:
    """Our usage from the Messages API's; counts that are missing or null are 0."""
    return Usage(
        input_tokens=counts.get("input_tokens") or 0,
        cache_creation_input_tokens=counts.get("cache_creation_input_tokens") or 0,
        cache_read_input_tokens=counts.get("cache_read_input_tokens") or 0,
        output_tokens=counts.get("output_tokens") or 0,
    )


class ReplyBuilder:
    """Takes the stream's events in order and ends in a ``Reply``."""

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        self._json: dict[int, list[str]] = {}
        self._usage: dict[str, Any] = {}
        self._model = ""
        self._stop_reason: str | None = None
        self.finished = False

    def feed(self, event: Mapping[str, Any]) -> Iterator[TextDelta | ThinkingDelta]:
        """Take the next event; the deltas to show. Unknown events change nothing."""
        match event["type"]:
            case "message_start":
                self._model = event["message"]["model"]
                self._count(event["message"].get("usage"))
            case "content_block_start":
                self._blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                yield from self._delta(event["index"], event["delta"])
            case "content_block_stop":
                self._close(event["index"])
            case "message_delta":
                self._stop_reason = event["delta"].get("stop_reason") or self._stop_reason
                self._count(event.get("usage"))
            case "message_stop":
                self.finished = True

    def reply(self) -> Reply:
        """The reply so far."""
        for index in list(self._json):
            self._close(index)
        return Reply(
            message=AssistantMessage(tuple(block for _, block in sorted(self._blocks.items()))),
            usage=usage_of(self._usage),
            stop_reason=self._stop_reason or "end_turn",
            model=self._model,
        )

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        self._usage.update((k, v) for k, v in (usage or {}).items() if v is not None)

    def _delta(self, index: int, delta: Mapping[str, Any]) -> Iterator[TextDelta | ThinkingDelta]:
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta":
                block["text"] += delta["text"]
                yield TextDelta(delta["text"])
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
                yield ThinkingDelta(delta["thinking"])
            case "signature_delta":
                block["signature"] = block.get("signature", "") + delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
            case "input_json_delta":
                self._json.setdefault(index, []).append(delta["partial_json"])

    def _close(self, index: int) -> None:
        if pieces := self._json.pop(index, None):
            self._blocks[index]["input"] = parse_arguments("".join(pieces))
