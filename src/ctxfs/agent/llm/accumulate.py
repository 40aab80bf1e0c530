"""The events of a Messages API stream put together to the reply, block by block, verbatim: pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from ctxfs.messages.base import Reply, TextDelta, ThinkingDelta, Usage
from ctxfs.messages.messages import AssistantMessage, Block, check_content
from ctxfs.text.jsontext import codec as json_codec

INVALID_JSON = "invalid_json"
"""The only argument of a call whose arguments are not a JSON object: its raw text, which no tool's schema accepts."""


def parse_arguments(text: str) -> dict[str, Any]:
    """The arguments of a tool call from their JSON; empty text means no arguments (see ``INVALID_JSON``)."""
    if not text.strip():
        return {}
    try:
        value = json_codec.loads(text)
        json_codec.check_json(value, max_depth=json_codec.MAX_DEPTH - 1)  # nan, or too deep for the call's block
    except ValueError:
        return {INVALID_JSON: text}
    if not isinstance(value, dict):
        return {INVALID_JSON: text}
    return value


def text_in(fields: Mapping[str, Any], name: str) -> str:
    """The text under ``name``, "" when it is missing or null. Raises TypeError when it is something else."""
    value = fields.get(name)
    if not isinstance(value, str | None):
        raise TypeError(f"{name} is not a text: {value!r:.80}")
    return value or ""


class ReplyBuilder:
    """Takes the stream's events in order and ends in a ``Reply`` (see ``Builder``)."""

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        self._pieces: dict[int, dict[str, list[Any]]] = {}
        """What is still to be joined, by block and field: one join when a block ends takes linear time."""
        self._usage: dict[str, Any] = {}
        self._model = ""
        self._stop_reason = ""
        self.finished = False

    def feed(self, event: Mapping[str, Any]) -> Iterator[TextDelta | ThinkingDelta]:
        """Take the next event; the deltas to show. Unknown events change nothing."""
        match event["type"]:
            case "message_start":
                self._model = text_in(event["message"], "model")
                self._count(event["message"].get("usage"))
            case "content_block_start":
                self._blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                yield from self._delta(event["index"], event["delta"])
            case "content_block_stop":
                self._close(event["index"])
            case "message_delta":
                self._stop_reason = text_in(event["delta"], "stop_reason") or self._stop_reason
                self._count(event.get("usage"))
            case "message_stop":
                self.finished = True

    def reply(self) -> Reply:
        """The reply so far."""
        for index in list(self._pieces):
            self._close(index)
        return Reply(
            message=AssistantMessage(check_content([block for _, block in sorted(self._blocks.items())])),
            usage=Usage.of({"input_tokens": 0, **self._usage}),
            stop_reason=self._stop_reason or "end_turn",
            model=self._model,
        )

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        self._usage.update((k, v) for k, v in (usage or {}).items() if v is not None)

    def _delta(self, index: int, delta: Mapping[str, Any]) -> Iterator[TextDelta | ThinkingDelta]:
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta":
                text = text_in(delta, "text")
                self._add(index, "text", text)
                yield TextDelta(text)
            case "thinking_delta":
                thinking = text_in(delta, "thinking")
                self._add(index, "thinking", thinking)
                yield ThinkingDelta(thinking)
            case "signature_delta":
                block.setdefault("signature", "")
                self._add(index, "signature", text_in(delta, "signature"))
            case "citations_delta":
                self._add(index, "citations", delta["citation"])
            case "input_json_delta":
                self._add(index, "input", text_in(delta, "partial_json"))

    def _add(self, index: int, name: str, piece: Any) -> None:
        self._pieces.setdefault(index, {}).setdefault(name, []).append(piece)

    def _close(self, index: int) -> None:
        block = self._blocks.get(index, {})
        for name, pieces in self._pieces.pop(index, {}).items():
            match name:
                case "input":
                    block[name] = parse_arguments("".join(pieces))
                case "citations":
                    block[name] = [*(block.get(name) or ()), *pieces]
                case _:
                    block[name] += "".join(pieces)
