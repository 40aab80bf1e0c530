"""The view of a request to Gemini's ``generateContent``: its ``contents`` as parts. Pure.

The place of a part is (number of the content, number of the part). Requests to Gemini may have no call ids; decisions
are then found by the content.
"""

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from ctxfs.context.history.parts import Kind, Part, Replacement
from ctxfs.context.history.wire import Body, WireView
from ctxfs.messages.messages import to_plain
from ctxfs.text.jsontext import codec as json_codec

_RESULT = "result"
"""The key under which Google's SDKs send a result that is no object; ctxfs sends what replaces a result there, too."""

_THOUGHT = ("thought", "thoughtSignature")


def _read(content: Mapping[str, Any], number: int, parts: list[Part], tools: dict[str, str]) -> None:
    kind: Kind = "reply" if content.get("role") == "model" else "user"
    for n, given in enumerate(content["parts"]):
        parts.append(_part(to_plain(given), kind, (number, n), tools))


def _part(part: Mapping[str, Any], kind: Kind, place: tuple[int, int], tools: dict[str, str]) -> Part:
    signed = any(part.get(key) for key in _THOUGHT)
    if "functionCall" in part:
        call = part["functionCall"]
        call_id = call.get("id") or ""
        if call_id:
            tools[call_id] = call["name"]
        return Part("call", dict(call.get("args") or {}), place, call_id, call["name"], stays=signed)
    if "functionResponse" in part:
        response = part["functionResponse"]
        text, stays = result_text(response.get("response"), media=response.get("parts"))
        return Part("result", text, place, response.get("id") or "", response["name"], stays)
    if "text" in part:
        return Part(kind, part["text"], place, stays=signed)
    if "inlineData" in part or "fileData" in part:
        return Part(kind, [_media_block(part)], place, stays=True)
    return Part(kind, [{"type": "text", "text": json_codec.dumps_text(dict(part))}], place, stays=True)


def result_text(response: Mapping[str, Any] | None, *, media: Any = None) -> tuple[str, bool]:
    """A function's response as text, and whether it stays, since it is an error or has media."""
    given = dict(response or {})
    text = given.get(_RESULT) if given.keys() == {_RESULT} else None
    shown = text if isinstance(text, str) else json_codec.dumps_text(given)
    return shown, "error" in given or bool(media)


def _media_block(part: Mapping[str, Any]) -> dict[str, Any]:
    """An image as a block of our own, so that it is counted as one."""
    inline = part.get("inlineData")
    if inline is None:
        return {"type": "image", "source": {"type": "url", "url": str(part["fileData"].get("fileUri"))}}
    source = {"type": "base64", "media_type": inline.get("mimeType"), "data": inline.get("data", "")}
    return {"type": "image", "source": source}


def _edited(content: Mapping[str, Any], edits: Mapping[Any, Replacement]) -> Mapping[str, Any]:
    parts = list(content["parts"])
    for n, new in edits.items():
        parts[n] = _edited_part(to_plain(parts[n]), new)
    return {**content, "parts": parts}


def _edited_part(part: Mapping[str, Any], new: Replacement) -> Mapping[str, Any]:
    if "functionCall" in part:
        return {**part, "functionCall": {**part["functionCall"], "args": new}}
    if "functionResponse" in part:
        return {**part, "functionResponse": {**part["functionResponse"], "response": {_RESULT: new}}}
    return {**part, "text": new}


class _GeminiView(WireView):
    """The schema of the answer stands among the settings."""

    @override
    def beside(self, body: Body) -> dict[str, Any]:
        beside = super().beside(body)
        config = body.get("generationConfig")
        if isinstance(config, Mapping):
            beside |= {key: config[key] for key in ("responseSchema", "responseJsonSchema") if config.get(key)}
        return beside


GEMINI = _GeminiView(
    key="contents",
    what="a content of generateContent",
    read=_read,
    edit=_edited,
    beside_keys=("systemInstruction", "tools"),
)
"""A request to Gemini's ``generateContent`` or ``streamGenerateContent``, as JSON: names in camel case."""
