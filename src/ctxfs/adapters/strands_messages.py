"""Strands' messages as parts, and edits applied to copies of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ctxfs.context.history.host_cache import HostCache, asked_by, mark_of
from ctxfs.context.history.parts import Part, Replacement
from ctxfs.messages.messages import Block, Content
from ctxfs.text.jsontext import codec as json_codec

__all__ = ["applied", "host_cache_of", "parts_of", "result_of"]

_OFFLOADED = "Tool result was offloaded to external storage"
"""A phrase near the start of the stub with which Strands' ContextOffloader replaces a result."""

_STUB_CHARS = 400


def result_of(result: Any) -> tuple[Content, bool]:
    """A tool's result as a content; and whether it stays: errors, media and stubs of another offloader do."""
    blocks = tuple(_block(item) for item in result["content"])
    stays = result.get("status") == "error" or any(
        block["type"] != "text" or _OFFLOADED in block["text"][:_STUB_CHARS] for block in blocks
    )
    return (blocks[0]["text"] if len(blocks) == 1 and not stays else blocks), stays


def _block(item: Any) -> Block:
    """The block as which a piece of content is counted; all media count as images."""
    if "text" in item or "json" in item:
        return {"type": "text", "text": item["text"] if "text" in item else json_codec.dumps_text(item["json"])}
    return {"type": "image", "source": {"type": "url"}}


def host_cache_of(messages: Sequence[Any], model: Any) -> HostCache:
    """What cache points at the end of the messages, or else the model's settings, ask of the prompt cache."""
    config = model.get_config().get("cache_config")
    return asked_by(mark_of(messages, "cachePoint"), config and (getattr(config, "ttl", None) or True))


def parts_of(messages: Sequence[Any]) -> Iterator[Part]:
    """The parts of messages; the place of each is (number of the message, number in its content)."""
    tools: dict[str, str] = {}
    for i, message in enumerate(messages):
        kind: Any = "reply" if message["role"] == "assistant" else "user"
        for j, item in enumerate(message["content"]):
            if use := item.get("toolUse"):
                tools[use["toolUseId"]] = use["name"]
                is_plain = isinstance(use["input"], Mapping)
                arguments = use["input"] if is_plain else {"input": use["input"]}
                yield Part("call", arguments, (i, j), use["toolUseId"], use["name"], stays=not is_plain)
            elif result := item.get("toolResult"):
                content, stays = result_of(result)
                yield Part("result", content, (i, j), result["toolUseId"], tools.get(result["toolUseId"], ""), stays)
            elif "text" in item:
                yield Part(kind, item["text"], (i, j))
            elif "cachePoint" not in item:
                said = [_block(item)] if kind == "user" else str(item)
                yield Part(kind, said, (i, j), stays=True)


def applied(messages: Sequence[Any], edits: Mapping[Any, Replacement]) -> list[Any]:
    """Copies of the messages with these edits; unchanged messages are the same objects."""
    new = list(messages)
    for (i, j), content in edits.items():
        items = list(new[i]["content"])
        items[j] = _edited(items[j], content)
        new[i] = {**new[i], "content": items}
    return new


def _edited(item: Any, new: Replacement) -> Any:
    if "toolUse" in item:
        return {**item, "toolUse": {**item["toolUse"], "input": new}}
    if "text" in item:
        return {**item, "text": new}
    texts = [new] if isinstance(new, str) else [block["text"] for block in new if isinstance(block, dict)]
    return {**item, "toolResult": {**item["toolResult"], "content": [{"text": text} for text in texts]}}
