"""Messages as they are shown to people: the text, and the calls that a reply makes. Pure, and quick to import."""

from ctxfs.messages.messages import Block, Content
from ctxfs.messages.readable import readable_text
from ctxfs.text.jsontext import codec as json_codec

_PREVIEW_CHARS = 60


def preview(content: Content) -> str:
    """The beginning of a message on one line; for a reply that calls tools, the calls."""
    calls = [] if isinstance(content, str) else [_call(block) for block in content if block["type"] == "tool_use"]
    text = " ".join(("; ".join(calls) or readable_text(content)[: 4 * _PREVIEW_CHARS]).split())
    return text if len(text) <= _PREVIEW_CHARS else f"{text[: _PREVIEW_CHARS - 1]}…"


def _call(block: Block) -> str:
    return f"{block['name']} {json_codec.dumps_text(block['input'])}"
