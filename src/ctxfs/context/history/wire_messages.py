"""The view of a request to the Messages API: its ``messages`` as parts. Pure.

The place of a call or a result is (number of the message, number of the block), that of everything else in a message
(number of the message, None).
"""

from collections.abc import Mapping
from itertools import chain
from typing import Any

from typing_extensions import override

from ctxfs.context.history.parts import HostCache, Kind, Part, Replacement, asked_by, mark_of
from ctxfs.context.history.wire import Body, WireMemory, WireView, blocks_or_text, last_mark, spread
from ctxfs.errors import ConfigError
from ctxfs.messages.messages import to_plain

_OWN = frozenset({"tool_use", "tool_result"})
"""Blocks that are parts of their own."""

_CHAT_ROLES = frozenset({"tool", "function", "developer"})
_CHAT_KEYS = frozenset({"tool_calls", "tool_call_id", "function_call"})
"""Roles and keys that only messages of Chat Completions have."""


class _MessagesView(WireView):
    """Refuses a thread that the server holds."""

    @override
    def parts_of(self, body: Body, memory: WireMemory | None = None) -> list[Part]:
        given: object = body
        if isinstance(given, Mapping) and given.get("thread"):
            raise ConfigError(
                "thread is set: the server holds this history, so nothing in it can be replaced in a request; pass "
                "thread=False and send all messages, or replace results where they are made, with arrive() or "
                "at_source()"
            )
        return super().parts_of(body, memory)


def _read(message: Mapping[str, Any], number: int, parts: list[Part], tools: dict[str, str]) -> None:
    role = message["role"]
    if role in _CHAT_ROLES or not _CHAT_KEYS.isdisjoint(message):
        raise TypeError("it is one of Chat Completions, so call chat()")
    content = message["content"]
    kind: Kind = "reply" if role == "assistant" else "user"
    stays = role not in ("assistant", "user")
    if isinstance(content, str):
        parts.append(Part(kind, content, (number, None), stays=stays))
        return
    others: list[Any] = []
    calls: list[Part] = []
    for n, given in enumerate(content):
        block = given if isinstance(given, dict) else to_plain(given)
        if block["type"] == "tool_result":
            call_id = block["tool_use_id"]
            parts.append(Part("result", block.get("content") or "", (number, n), call_id, tools.get(call_id, "")))
        elif block["type"] == "tool_use":
            tools[block["id"]] = block["name"]
            calls.append(Part("call", block["input"], (number, n), block["id"], block["name"]))
        else:
            others.append(block)
    if others:
        parts.append(Part(kind, tuple(others), (number, None), stays=stays))  # as it is kept: compared quickly
    parts += calls


def _edited(message: Mapping[str, Any], edits: Mapping[Any, Replacement]) -> Mapping[str, Any]:
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": blocks_or_text(edits[None])}
    blocks: list[list[Any]] = [[block] for block in content]
    for n, new in edits.items():
        if n is not None:
            block = to_plain(content[n])
            if block["type"] == "tool_use":
                blocks[n] = [{**block, "input": new}]
            else:
                blocks[n] = [{**block, "content": _marked(new, block.get("content"))}]
    if None in edits:
        places = [n for n, block in enumerate(content) if to_plain(block)["type"] not in _OWN]
        replaced = spread([to_plain(content[n]) for n in places], edits[None])
        for n, others in zip(places, replaced, strict=True):
            blocks[n] = others
    return {**message, "content": list(chain.from_iterable(blocks))}


def _marked(new: Replacement, old: Any) -> Any:
    """A result's new content, with the prompt-cache mark that was inside the old one."""
    mark = None if isinstance(old, str) else last_mark(old or ())
    if mark is None or not isinstance(new, str):
        return blocks_or_text(new)
    return [{"type": "text", "text": new, "cache_control": mark}]


def _host_cache(body: Body) -> HostCache:
    """A breakpoint that the request asks for at its end, or one that a host set in its last messages."""
    return asked_by(body.get("cache_control"), mark_of(body["messages"]))


MESSAGES = _MessagesView(
    key="messages",
    what="a message of the Messages API",
    read=_read,
    edit=_edited,
    beside_keys=("system", "tools", "mcp_servers", "output_config", "output_format"),
    host_cache=_host_cache,
)
"""A request to the Messages API."""
