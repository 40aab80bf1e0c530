"""Hypothesis strategies for transcripts: valid ones as our messages, valid bodies, and bodies with one known fault.

Needs the package ``hypothesis``.
"""

import base64
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ParamSpec, TypeVar, cast

from hypothesis import strategies as st

from ctxfs.errors.checks import names_settings
from ctxfs.messages.messages import AssistantMessage, Block, Content, Message, SystemMessage, ToolMessage, UserMessage

__all__ = [
    "blocks",
    "contents",
    "texts",
    "transcripts",
]

TOOL_NAMES = ("Read", "Bash", "web-search", "mcp__db__query")
P = ParamSpec("P")
T = TypeVar("T")
HOSTILE_IDS = ("../../etc/passwd", "a\0b", "CON", "con", "call_1.", "é", " ", "x" * 1500, "\ud800", ".", "call 1")


def png(width: int, height: int) -> str:
    """A black PNG of that size, in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    rows = chunk(b"IDAT", zlib.compress((b"\0" + b"\0" * ((width + 7) // 8)) * height))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + header + rows + chunk(b"IEND", b"")).decode()


def pdf(pages: int) -> str:
    """A PDF's page objects behind its header, in base64."""
    return base64.b64encode(b"%PDF-1.4\n" + b"<< /Type /Page >>\n" * pages + b"%%EOF\n").decode()


def _made_once(make: Callable[P, T]) -> Callable[P, T]:
    """Make each strategy once: making one takes longer than drawing from it, and a transcript draws from dozens."""
    return cast("Callable[P, T]", cache(make))


@names_settings()
@_made_once
def texts(*, surrogates: bool = True) -> st.SearchStrategy[str]:
    """Texts as tools return them: lines, white space, any code point, nothing at all; lone surrogates if wanted."""
    anything = st.characters() if surrogates else st.characters(exclude_categories=["Cs"])
    return st.one_of(
        st.text(anything, max_size=40),
        st.text("ab\n \t\r\u2028é😀\0" + ("\ud800\udc00" if surrogates else ""), max_size=60),
        st.lists(st.sampled_from(["Error: x", "line", "", "  indented", '{"k": [1, 2]}']), max_size=8).map("\n".join),
    )


@_made_once
def visible_texts(*, surrogates: bool = False) -> st.SearchStrategy[str]:
    """Texts that a provider accepts as a text block."""
    return texts(surrogates=surrogates).map(lambda text: text.strip() or "text")


@_made_once
def json_objects(*, surrogates: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of a tool call."""
    keys = st.sampled_from(["path", "query", "limit", "ключ", ""])
    values: st.SearchStrategy[Any] = st.recursive(
        st.one_of(
            st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(-1e6, 1e6), texts(surrogates=surrogates)
        ),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=5,
    )
    return st.dictionaries(keys, values, max_size=3)


@_made_once
def images() -> st.SearchStrategy[Block]:
    """Image blocks, small but real."""
    data = st.builds(png, st.integers(1, 20), st.integers(1, 20))
    return st.one_of(
        data.map(lambda d: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": d}}),
        st.just({"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}),
    )


@_made_once
def documents() -> st.SearchStrategy[Block]:
    """PDF and text documents."""
    data = st.integers(1, 3).map(pdf)
    return st.one_of(
        data.map(
            lambda d: {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": d},
                "title": "a.pdf",
            }
        ),
        visible_texts().map(
            lambda t: {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": t}}
        ),
    )


@_made_once
def thinking() -> st.SearchStrategy[Block]:
    """Thinking blocks, redacted ones too; their texts may be anything that came over JSON."""
    signatures = st.binary(min_size=1, max_size=20).map(lambda b: base64.b64encode(b).decode())
    return st.one_of(
        st.builds(
            lambda text, signature: {"type": "thinking", "thinking": text, "signature": signature},
            texts(surrogates=False),
            signatures,
        ),
        signatures.map(lambda data: {"type": "redacted_thinking", "data": data}),
    )


@names_settings()
@_made_once
def blocks(*, surrogates: bool = True, visible: bool = False) -> st.SearchStrategy[Block]:
    """Blocks of a user message or a tool result; ``visible`` leaves out texts that a provider refuses."""
    text = visible_texts(surrogates=surrogates) if visible else texts(surrogates=surrogates)
    return st.one_of(text.map(lambda t: {"type": "text", "text": t}), images(), documents())


@names_settings()
@_made_once
def contents(*, surrogates: bool = True) -> st.SearchStrategy[Content]:
    """What a tool may return: a text, an empty one, a list of blocks, an empty list."""
    return st.one_of(texts(surrogates=surrogates), st.lists(blocks(surrogates=surrogates), max_size=3).map(tuple))


@names_settings()
@st.composite
def transcripts(
    draw: st.DrawFn, *, max_rounds: int = 3, max_steps: int = 3, max_calls: int = 4, hostile_ids: bool = False
) -> tuple[Message, ...]:
    """A transcript that can be sent: it ends with the user, or with results of tools.

    Rounds of a user message, steps of parallel calls with their results in call order, and a final answer. Whatever
    tools return is in it, and thinking. ``hostile_ids``: call ids that repeat or that no file could be named after.
    """
    messages: list[Message] = []
    if draw(st.booleans()):
        messages.append(SystemMessage(draw(visible_texts())))
    number = 0
    rounds = draw(st.integers(1, max_rounds))
    for index in range(rounds):
        messages.append(
            UserMessage(
                draw(visible_texts(surrogates=True) | st.lists(blocks(visible=True), min_size=1, max_size=2).map(tuple))
            )
        )
        steps = draw(st.integers(0, max_steps))
        for _ in range(steps):
            size = draw(st.integers(1, max_calls))
            ids = [f"call_{number + i + 1:03d}" for i in range(size)]
            number += size
            if hostile_ids:
                ids = draw(st.lists(st.sampled_from([*HOSTILE_IDS, *ids]), min_size=size, max_size=size))
            messages += draw(_step(ids))
        if index < rounds - 1:
            messages.append(AssistantMessage(({"type": "text", "text": draw(visible_texts())},)))
    return tuple(messages)


@st.composite
def _step(draw: st.DrawFn, ids: Sequence[str]) -> list[Message]:
    """One reply that calls tools, and a result for each call."""
    said: list[Block] = draw(st.lists(thinking(), max_size=1))
    said += [{"type": "text", "text": text} for text in draw(st.lists(texts(), max_size=1))]
    names = [draw(st.sampled_from(TOOL_NAMES)) for _ in ids]
    for call_id, name in zip(ids, names, strict=True):
        said.append({"type": "tool_use", "id": call_id, "name": name, "input": draw(json_objects())})
    results = [
        ToolMessage(call_id, name, draw(contents()), is_error=draw(st.booleans()))
        for call_id, name in zip(ids, names, strict=True)
    ]
    return [AssistantMessage(tuple(said)), *results]


@st.composite
def bodies(draw: st.DrawFn, *, max_rounds: int = 3) -> dict[str, Any]:
    """A Messages API body that a provider accepts, in all the forms in which clients write one.

    Contents are strings or lists, results have their content or none, and messages of one role may follow each other.
    """
    messages: list[dict[str, Any]] = []
    number = 0
    for _ in range(draw(st.integers(1, max_rounds))):
        messages += [{"role": "user", "content": draw(_body_content())} for _ in range(draw(st.integers(1, 2)))]
        for _ in range(draw(st.integers(0, 2))):
            size = draw(st.integers(1, 3))
            ids = [f"toolu_{number + i + 1:03d}" for i in range(size)]
            number += size
            messages += draw(_body_step(ids))
        messages.append({"role": "assistant", "content": draw(visible_texts())})
    messages.append({"role": "user", "content": draw(_body_content())})
    body: dict[str, Any] = {"model": "a-model", "max_tokens": draw(st.integers(1, 9999)), "messages": messages}
    if draw(st.booleans()):
        body["system"] = draw(visible_texts() | _text_blocks())
    return body


@_made_once
def _text_blocks() -> st.SearchStrategy[list[Block]]:
    return st.lists(visible_texts().map(lambda t: {"type": "text", "text": t}), min_size=1, max_size=2)


@_made_once
def _body_content() -> st.SearchStrategy[str | list[Block]]:
    return visible_texts() | st.lists(blocks(surrogates=False, visible=True), min_size=1, max_size=3)


@st.composite
def _body_step(draw: st.DrawFn, ids: Sequence[str]) -> list[dict[str, Any]]:
    said: list[Block] = draw(st.lists(thinking(), max_size=2)) + draw(st.just([]) | _text_blocks())
    for call_id in ids:
        arguments = draw(json_objects(surrogates=False))
        said.append({"type": "tool_use", "id": call_id, "name": draw(st.sampled_from(TOOL_NAMES)), "input": arguments})
    results: list[Block] = []
    for call_id in draw(st.permutations(ids)):
        result: Block = {"type": "tool_result", "tool_use_id": call_id}
        if draw(st.booleans()):
            content = draw(_body_content())
            only_text = isinstance(content, str) or all(b["type"] == "text" for b in content)
            result |= {"content": content, "is_error": only_text and draw(st.booleans())}
        elif draw(st.booleans()):
            result["content"] = draw(st.sampled_from(["", []]))
        results.append(result)
    after = draw(st.lists(blocks(surrogates=False, visible=True), max_size=2))
    cut = draw(st.integers(1, len(results)))
    split = [results[:cut], results[cut:] + after]
    return [{"role": "assistant", "content": said}, *({"role": "user", "content": part} for part in split if part)]
