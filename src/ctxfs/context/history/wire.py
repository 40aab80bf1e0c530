"""What the views of the wire formats share: reading and rewriting a request's list of messages. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ctxfs.context.history.parts import NO_HOST_CACHE, HostCache, Part, Replacement, check_names
from ctxfs.errors import TranscriptError
from ctxfs.messages.messages import Block, to_plain
from ctxfs.messages.wire_names import tool_names
from ctxfs.text.jsontext.codec import json_copy

Body = Mapping[str, Any]
"""The body of a request, as it would be sent."""

_DICTS = frozenset({dict})

_RUN = 256
"""Messages are compared in runs of this length, and one by one only where a run differs."""


def messages_in(body: Body, key: str) -> list[Mapping[str, Any]]:
    """The messages of ``body`` under ``key``, those of an SDK as the dicts that they would be sent as.

    Raises:
        TranscriptError: there are no messages, or one of them is not a message.

    """
    given: object = body
    found = given.get(key) if isinstance(given, Mapping) else None
    if not isinstance(found, list | tuple):
        raise TranscriptError([f"the body of a request needs a list under {key!r}{_other_method(found, given, key)}"])
    if _DICTS.issuperset(map(type, found)):  # without looking at each one, since there may be thousands
        return list(found)
    messages = [message if isinstance(message, dict) else to_plain(message) for message in found]
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TranscriptError([f"{key}[{number}] is not a message: {message!r:.80}"])
    return messages


def tools_in(body: Body) -> list[str]:
    """The names of the tools in the body of a request to any of the APIs."""
    found = body.get("tools")
    if not isinstance(found, list | tuple):
        return []
    return tool_names([to_plain(tool) for tool in found])


_METHODS = {"messages": "messages() or chat()", "input": "responses()", "contents": "gemini()"}
"""The methods that take a body with a list under this key."""


def _other_method(found: object, body: object, key: str) -> str:
    """What to call for a body that lacks ``key`` and has the list of another API; "" if it has none."""
    if found is not None or not isinstance(body, Mapping):
        return ""
    for other, methods in _METHODS.items():
        if other != key and other in body:
            return f"; this one has {other!r}, so call {methods}"
    return ""


class _Tools(dict[str, str]):
    """Which tool each call id belongs to, and the order in which that was learned."""

    def __init__(self, learned: Iterable[tuple[str, str]] = ()) -> None:
        self.learned = list(learned)
        super().__init__(self.learned)

    def __setitem__(self, call_id: str, tool: str) -> None:
        self.learned.append((call_id, tool))
        super().__setitem__(call_id, tool)


class WireMemory:
    """What was last read of a request, so that only the new messages of the next one have to be read.

    Messages are compared with copies: a message that was changed in place is read again. Nothing is copied before the
    second request, since many histories are shown only once; from then on the parts are read from the copies.
    ``is_own``: nobody else can change the contents of the parts that were read last.
    """

    def __init__(self) -> None:
        self.is_own = False
        self._messages: list[Mapping[str, Any]] = []
        self._parts: list[Part] = []
        self._tools = _Tools()
        self._ends: list[tuple[int, int]] = [(0, 0)]  # lengths of the parts and of what was learned, after each message
        self._requests = 0

    def known(
        self, messages: Sequence[Mapping[str, Any]]
    ) -> tuple[Sequence[Mapping[str, Any]], int, list[Part], _Tools]:
        """The new messages, how many known ones come before them, and the parts and the tools of the known ones."""
        same = _same(self._messages, messages)
        parts, learned = self._ends[same]
        del self._messages[same:], self._ends[same + 1 :]
        self._requests += 1
        self.is_own = self._requests > 1
        new = json_copy(messages[same:]) if self.is_own else messages[same:]
        return new, same, self._parts[:parts], _Tools(self._tools.learned[:learned])

    def keep(self, new: Sequence[Mapping[str, Any]], parts: list[Part], tools: _Tools, ends: list[Any]) -> None:
        """Keep the new messages after the unchanged ones, and where the parts of each message end."""
        if self.is_own:
            self._messages += new
            self._ends += ends
            self._parts = list(parts)
            self._tools = tools


def _same(old: Sequence[Any], new: Sequence[Any]) -> int:
    """How many messages from the first one on are equal in both."""
    pairs = min(len(old), len(new))
    for start in range(0, pairs, _RUN):
        end = min(start + _RUN, pairs)
        before = old[start:end]
        after = new[start:end]
        if before != after:
            return start + next(n for n, (one, other) in enumerate(zip(before, after, strict=True)) if one != other)
    return pairs


def _has_no_marks(_: Body) -> HostCache:
    return NO_HOST_CACHE


@dataclass(frozen=True, slots=True, kw_only=True)
class WireView:
    """How to read a history out of the body of a request to one API, and how to send it with edits.

    Args:
        key: the body has the messages under it.
        what: describes a message, for the error about anything else.
        read: adds the parts of one message, by its number, to the parts before it; it gets, and updates, which tool
            each call id belongs to.
        edit: changes one message, by edits whose keys are places inside it.
        beside_keys: those of all else that takes up room in the request, such as the system prompt and the tools.
        host_cache: returns what the request asks of the prompt cache.
    """

    key: str
    what: str
    read: Callable[[Mapping[str, Any], int, list[Part], dict[str, str]], None]
    edit: Callable[[Mapping[str, Any], Mapping[Any, Replacement]], Mapping[str, Any]]
    beside_keys: Sequence[str]
    host_cache: Callable[[Body], HostCache] = _has_no_marks

    def parts_of(self, body: Body, memory: WireMemory | None = None) -> list[Part]:
        """The parts of the messages of ``body``.

        ``memory``: what was read of this history before; None: all of it is read.

        Raises:
            TranscriptError: there are no messages, or something among them is not one.

        """
        messages = messages_in(body, self.key)
        memory = memory or WireMemory()
        new, same, parts, tools = memory.known(messages)
        ends: list[tuple[int, int]] = []
        for number, message in enumerate(new, same):
            known = len(parts)
            try:
                self.read(message, number, parts, tools)
            except (KeyError, TypeError, AttributeError) as error:
                said = f"a part of it has another type ({error})"
                if isinstance(error, KeyError):
                    said = f"{error} is missing"
                raise TranscriptError([f"{self.key}[{number}] is not {self.what}: {said}"]) from error
            named = [part for part in parts[known:] if part.kind == "result" and part.id is not None]
            check_names(named, f"a result in {self.key}[{number}]")
            ends.append((len(parts), len(tools.learned)))
        memory.keep(new, parts, tools, ends)
        return parts

    def applied(self, body: Body, edits: Mapping[Any, Replacement]) -> Body:
        """``body`` with edits whose places are (number of the message, place inside it).

        Unchanged messages are the same objects, and changed ones keep their fields.
        """
        if not edits:
            return body
        by_message: dict[int, dict[Any, Replacement]] = {}
        for (number, inner), new in edits.items():
            by_message.setdefault(number, {})[inner] = new
        messages = list(body[self.key])
        for number, inside in by_message.items():
            messages[number] = self.edit(to_plain(messages[number]), inside)
        return {**body, self.key: messages}

    def beside(self, body: Body) -> dict[str, Any]:
        """What else takes up room in a request, as JSON."""
        return {key: body[key] for key in self.beside_keys if body.get(key)}


def blocks_or_text(content: Replacement) -> Any:
    """A replacement as the value of a message's content."""
    return content if isinstance(content, str) else list(content)


def spread(blocks: Sequence[Block], new: Replacement) -> list[list[Block]]:
    """The blocks that replace each of ``blocks`` once ``new`` replaces all of them.

    If there are as many new blocks as old ones, each takes the place of one, with its prompt-cache mark. A text, or any
    other number of blocks, takes the place of the first.
    """
    others: list[list[Block]] = [[] for _ in blocks[1:]]
    if isinstance(new, str):
        first: Block = {"type": "text", "text": new}
        mark = last_mark(blocks)
        return [[first if mark is None else {**first, "cache_control": mark}], *others]
    given = [block for block in new if isinstance(block, dict)]
    if len(given) != len(blocks):
        return [given, *others]
    return [
        [{**block, "cache_control": old["cache_control"]} if "cache_control" in old else block]
        for block, old in zip(given, blocks, strict=True)
    ]


def last_mark(blocks: Iterable[Any]) -> Any:
    """The last prompt-cache mark in ``blocks``; None: there is none."""
    marks = [block["cache_control"] for block in blocks if isinstance(block, Mapping) and "cache_control" in block]
    return marks[-1] if marks else None
