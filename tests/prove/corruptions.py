"""Transcripts with one known fault each: what a provider refuses, and the reason to expect."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from ctxfs.testing.strategies import bodies, pdf, png

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Corrupted:
    """A body with the fault ``name``; a violation that contains ``reason`` is expected."""

    name: str
    body: Body
    reason: str


def _image(data: str, media_type: str = "image/png") -> Body:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def valid_body() -> Body:
    """A body with something of everything that can be spoiled, in its last four messages."""
    calls = [{"type": "tool_use", "id": f"last_{i}", "name": "Read", "input": {"path": str(i)}} for i in (1, 2)]
    return {
        "model": "a-model",
        "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [{"name": n, "description": "", "input_schema": {"type": "object"}} for n in ("Read", "Bash")],
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look."}, _image(png(2, 2))]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Two files.", "signature": "c2ln"},
                    {"type": "text", "text": "Reading."},
                    *calls,
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "last_1", "content": "one"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "last_2",
                        "content": [{"type": "text", "text": "two"}, _image(png(1, 1))],
                    },
                ],
            },
        ],
    }


def _user(body: Body) -> list[Body]:
    content: list[Body] = body["messages"][-3]["content"]
    return content


def _said(body: Body) -> list[Body]:
    content: list[Body] = body["messages"][-2]["content"]
    return content


def _results(body: Body) -> list[Body]:
    content: list[Body] = body["messages"][-1]["content"]
    return content


def _mark(*blocks: Body, **control: str) -> None:
    for block in blocks:
        block["cache_control"] = {"type": "ephemeral", **control}


def _five_breakpoints(body: Body) -> None:
    _mark(*body["tools"], *body["system"], *_user(body))


def _short_before_long(body: Body) -> None:
    _mark(body["tools"][0])
    _mark(body["system"][0], ttl="1h")


def _empty_marked_text(body: Body) -> None:
    _user(body)[0]["text"] = ""
    _mark(_user(body)[0])


def _answer_later(body: Body) -> None:
    late = _results(body).pop()
    body["messages"] += [{"role": "assistant", "content": "Wait."}, {"role": "user", "content": [late]}]


def _answered_then_spaces(body: Body) -> None:
    del body["thinking"]
    body["messages"].append({"role": "assistant", "content": "Well, "})


def _set_image(data: str, media_type: str = "image/png") -> Callable[[Body], None]:
    def spoil(body: Body) -> None:
        _user(body)[1] = _image(data, media_type)

    return spoil


def _add_document(source: Body) -> Callable[[Body], None]:
    def spoil(body: Body) -> None:
        _user(body).append({"type": "document", "source": source})

    return spoil


def _set(pick: Callable[[Body], Body], **fields: Any) -> Callable[[Body], None]:
    def spoil(body: Body) -> None:
        pick(body).update(fields)

    return spoil


def _choose(kind: str, *, tools: list[Any] | None = None, **choice: str) -> Callable[[Body], None]:
    def spoil(body: Body) -> None:
        body["tool_choice"] = {"type": kind, **choice}
        body["tools"] = body["tools"] if tools is None else tools

    return spoil


def _drop(pick: Callable[[Body], Any], key: Any) -> Callable[[Body], None]:
    def spoil(body: Body) -> None:
        del pick(body)[key]

    return spoil


def _add(pick: Callable[[Body], list[Body]], *added: Body, at: int = 99) -> Callable[[Body], None]:
    def spoil(body: Body) -> None:
        pick(body)[at:at] = copy.deepcopy(list(added))

    return spoil


_CALL = {"type": "tool_use", "id": "more", "name": "Read", "input": {}}
_RESULT = {"type": "tool_result", "tool_use_id": "last_1", "content": "again"}
_ORPHAN = {"type": "tool_result", "tool_use_id": "nobody", "content": "x"}
_THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}

CORRUPTIONS: dict[str, tuple[Callable[[Body], None], str]] = {
    "no model": (_drop(lambda b: b, "model"), "model: field required"),
    "no room for a reply": (_set(lambda b: b, max_tokens=0), "max_tokens: must be"),
    "a choice of tools, and none there": (_choose("auto", tools=[]), "only be specified while providing tools"),
    "an unknown choice of tools": (_choose("required"), "tool_choice.type: should be one of"),
    "the choice of an unknown tool": (_choose("tool", name="Write"), "tool 'Write' not found"),
    "a choice of tools that is no object": (_set(lambda b: b, tool_choice="auto"), "tool_choice: should be an object"),
    "thinking with a call that is forced": (_choose("any"), "thinking: may not be enabled when tool_choice forces"),
    "thinking over the reply's limit": (
        _set(lambda b: b["thinking"], budget_tokens=9999),
        "thinking.budget_tokens: must be",
    ),
    "no messages": (_set(lambda b: b, messages=[]), "at least one message"),
    "starts with the assistant": (
        _add(lambda b: b["messages"], {"role": "assistant", "content": "Hello."}, at=0),
        "first message must have the role 'user'",
    ),
    "unknown role": (_set(lambda b: b["messages"][-1], role="tool"), "should be 'user' or 'assistant'"),
    "content of no type": (_set(lambda b: b["messages"][-1], content=7), "a string or a list of blocks"),
    "block without a type": (_drop(lambda b: _user(b)[0], "type"), "an object with a type"),
    "empty message": (_set(lambda b: b["messages"][-3], content=[]), "must have non-empty content"),
    "empty text": (_set(lambda b: _user(b)[0], text=""), "must contain non-whitespace text"),
    "white space as text": (_set(lambda b: _user(b)[0], text=" \n"), "must contain non-whitespace text"),
    "white space as message": (_set(lambda b: b["messages"][-3], content="\t"), "must contain non-whitespace text"),
    "empty text in a result": (
        _set(lambda b: _results(b)[1]["content"][0], text=""),
        "tool_result.content.0: text content blocks must contain",
    ),
    "empty text in the system prompt": (_set(lambda b: b["system"][0], text=""), "system.0: text content blocks"),
    "unanswered call": (_drop(_results, 1), "'last_2' has no tool_result"),
    "unanswered call at the end": (_drop(lambda b: b["messages"], -1), "has no tool_result in the next message"),
    "answered twice": (_add(_results, _RESULT), "must have a single result"),
    "answered too late": (_answer_later, "'last_2' has no tool_result"),
    "orphan result": (_add(_results, _ORPHAN), "unexpected tool_use_id 'nobody'"),
    "result after text": (
        _add(_results, {"type": "text", "text": "First."}, at=0),
        "must come before all other content",
    ),
    "repeated call id": (_add(_said, {**_CALL, "id": "last_1"}), "tool_use ids must be unique"),
    "call id that is no id": (_add(_said, {**_CALL, "id": "../x"}), "tool_use.id: should match"),
    "tool name that is no name": (_set(lambda b: _said(b)[2], name="no name"), "tool_use.name: should match"),
    "arguments that are no object": (_set(lambda b: _said(b)[2], input="x"), "input: should be an object"),
    "call by the user": (_add(_user, _CALL), "tool_use blocks cannot stand in user messages"),
    "thinking by the user": (_add(_user, _THOUGHT), "thinking blocks cannot stand in user messages"),
    "result by the assistant": (_add(_said, _ORPHAN), "tool_result blocks cannot stand in assistant messages"),
    "image by the assistant": (_add(_said, _image(png(1, 1))), "image blocks cannot stand in assistant messages"),
    "call inside a result": (_set(lambda b: _results(b)[1], content=[_CALL]), "cannot stand in a tool_result"),
    "unsigned thinking": (_drop(lambda b: _said(b)[0], "signature"), "needs its thinking and its signature"),
    "redacted thinking without data": (
        _add(_said, {"type": "redacted_thinking"}, at=0),
        "redacted_thinking block needs its data",
    ),
    "thinking at the end": (_add(_said, _THOUGHT), "cannot be thinking"),
    "thinking left out of an open loop": (_drop(_said, 0), "expected thinking or redacted_thinking"),
    "white space at the very end": (_answered_then_spaces, "cannot end with trailing whitespace"),
    "answer begun with thinking on": (
        _add(lambda b: b["messages"], {"role": "assistant", "content": "Well"}),
        "must end with a user message",
    ),
    "error without a word": (_set(lambda b: _results(b)[0], content="", is_error=True), "content cannot be empty"),
    "five breakpoints": (_five_breakpoints, "a maximum of 4 blocks with cache_control"),
    "breakpoint on empty text": (_empty_marked_text, "cannot be set for empty text blocks"),
    "breakpoint on thinking": (lambda b: _mark(_said(b)[0]), "cannot be set for thinking"),
    "breakpoint that lives a day": (lambda b: _mark(b["system"][0], ttl="24h"), "a ttl of '5m' or '1h'"),
    "long-lived breakpoint last": (_short_before_long, "must not come after"),
    "error with an image": (_set(lambda b: _results(b)[1], is_error=True), 'must be type "text" if "is_error"'),
    "image that is no base64": (_set_image("%%%"), "invalid base64"),
    "image without data": (_set_image(""), "invalid base64"),
    "image of no known kind": (_set_image(png(1, 1), "image/tiff"), "media_type: should be one of"),
    "image of another kind": (_set_image(png(1, 1), "image/jpeg"), "appears to be image/png"),
    "image that cannot be read": (_set_image("aGVsbG8="), "could not process image"),
    "image over 5 MB": (_set_image("A" * (6 << 20)), "exceeds 5 MB"),
    "image of too many pixels": (_set_image(png(8001, 1)), "maximum of 8000 pixels"),
    "image from nowhere": (_set(lambda b: _user(b)[1], source={"type": "disk"}), "'base64', 'url' or 'file'"),
    "PDF that is none": (
        _add_document({"type": "base64", "media_type": "application/pdf", "data": "aGVsbG8="}),
        "the PDF specified was not valid",
    ),
    "PDF that is no base64": (
        _add_document({"type": "base64", "media_type": "application/pdf", "data": "%"}),
        "invalid base64",
    ),
    "PDF under another type": (
        _add_document({"type": "base64", "media_type": "text/html", "data": pdf(1)}),
        "should be 'application/pdf'",
    ),
    "empty document": (
        _add_document({"type": "text", "media_type": "text/plain", "data": " "}),
        "document must contain non-whitespace text",
    ),
    "document from nowhere": (_add_document({"type": "disk"}), "is not a document source"),
    "lone surrogate": (_set(lambda b: _results(b)[0], content="\ud800"), "lone surrogate"),
    "two tools of one name": (_set(lambda b: b["tools"][1], name="Read"), "tool names must be unique"),
    "tool of no name": (_set(lambda b: b["tools"][0], name="a b"), "tools.0.name"),
    "tool that takes a list": (_set(lambda b: b["tools"][0], input_schema={"type": "array"}), "should be 'object'"),
}
"""Each fault: what spoils a ``valid_body``, and the reason that a check has to give."""


def corrupt(name: str, body: Body) -> Corrupted:
    """``body``, which ends like a ``valid_body``, with the fault ``name``."""
    spoil, reason = CORRUPTIONS[name]
    spoiled = copy.deepcopy(body)
    spoil(spoiled)
    return Corrupted(name, spoiled, reason)


@st.composite
def corrupted_bodies(draw: st.DrawFn) -> Corrupted:
    """Any fault, behind any valid beginning."""
    body = valid_body()
    body["messages"] = [*draw(bodies())["messages"], *body["messages"]]
    return corrupt(draw(st.sampled_from(sorted(CORRUPTIONS))), body)
