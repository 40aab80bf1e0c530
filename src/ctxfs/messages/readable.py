"""The readable text of a content, in which its lines are counted. Pure."""

from collections.abc import Mapping

from ctxfs.messages.messages import Block, Content, text_with
from ctxfs.text.jsontext import codec as json_codec

TITLE_CHARS = 120
"""The most characters of a title."""


def readable_text(content: Content) -> str:
    """Return what lines are counted in: the text, or the text blocks by line, and calls; other blocks are named."""
    return text_with(content, _named)


def _named(block: Block) -> str:
    kind = block["type"]
    if kind == "tool_use":
        return f"[calls {block.get('name')} {json_codec.dumps_text(block.get('input'))}]"
    source = block.get("source")
    if isinstance(source, Mapping) and isinstance(source.get("data"), str):
        data = source["data"]
        size = len(data)
        if source.get("type") == "base64":
            size = len(data) * 3 // 4 - data[-2:].count("=")
        return f"[{kind}: {source.get('media_type', 'unknown')}, {size} bytes]"
    return f"[{kind}: {len(json_codec.dumps(block))} bytes of JSON]"


def part_of(size_bytes: int, full_bytes: int) -> str:
    """How much of an output is there, if its end is missing."""
    return f"the first {size_bytes:,} of {full_bytes:,} bytes"


def title_of(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text[: 4 * TITLE_CHARS].split())
    return line if len(line) <= TITLE_CHARS else f"{line[: TITLE_CHARS - 1]}…"
