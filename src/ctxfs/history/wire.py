"""What the views of the three wire formats share: a request's list of messages, read and rewritten. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ctxfs.errors import TranscriptError
from ctxfs.history.parts import Part, Replacement
from ctxfs.llm.messages import Block, to_plain

__all__ = ["Body", "WireView", "blocks_or_text", "edited_list", "messages_in", "parts_in", "spread"]

Body = Mapping[str, Any]
"""The body of a request, as it would be sent."""


class WireView(NamedTuple):
    """How to read a history out of the body of a request, and how to send it with edits.

    ``parts_of`` raises ``TranscriptError`` for any other body. ``applied`` gives the body to send: what did not
    change is the same object, and the fields of what did are kept. ``beside`` gives what is sent beside the history
    and takes up room, as JSON: the system prompt, the tools.
    """

    parts_of: Callable[[Body], list[Part]]
    applied: Callable[[Body, Mapping[Any, Replacement]], Body]
    beside: Callable[[Body], Any]


def messages_in(body: Body, key: str) -> list[Mapping[str, Any]]:
    """The messages of ``body`` under ``key``, those of an SDK as the dicts that they would be sent as.

    Raises:
        TranscriptError: there are none, or something among them is no message.

    """
    given: object = body
    found = given.get(key) if isinstance(given, Mapping) else None
    if not isinstance(found, list | tuple):
        raise TranscriptError([f"the body of a request needs a list under {key!r}"])
    messages = [message if isinstance(message, dict) else to_plain(message) for message in found]
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TranscriptError([f"{key}[{number}] is not a message: {message!r:.80}"])
    return messages


def parts_in(
    body: Body,
    key: str,
    what: str,
    read: Callable[[Mapping[str, Any], int, list[Part], dict[str, str]], None],
) -> list[Part]:
    """The parts of the messages of ``body`` under ``key``.

    ``read`` adds those of one message, by its number, to the parts before it; it gets, and notes, which tool the call
    of an id was of. ``what`` describes a message, for the error about something else.

    Raises:
        TranscriptError: there are no messages, or something among them is not one.

    """
    parts: list[Part] = []
    tools: dict[str, str] = {}
    for number, message in enumerate(messages_in(body, key)):
        try:
            read(message, number, parts, tools)
        except (KeyError, TypeError, AttributeError) as error:
            said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise TranscriptError([f"{key}[{number}] is not {what}: {said}"]) from error
    return parts


def edited_list(
    body: Body,
    key: str,
    edits: Mapping[Any, Replacement],
    edit: Callable[[Mapping[str, Any], Mapping[Any, Replacement]], Mapping[str, Any]],
) -> Body:
    """``body`` with edits whose places are (number of the message, place inside it); ``edit`` changes one message."""
    if not edits:
        return body
    by_message: dict[int, dict[Any, Replacement]] = {}
    for (number, inner), new in edits.items():
        by_message.setdefault(number, {})[inner] = new
    messages = list(body[key])
    for number, inside in by_message.items():
        messages[number] = edit(to_plain(messages[number]), inside)
    return {**body, key: messages}


def blocks_or_text(content: Replacement) -> Any:
    """A replacement as the value of a message's content."""
    return content if isinstance(content, str) else list(content)


def spread(blocks: Sequence[Block], new: Replacement) -> list[list[Block]]:
    """The blocks that replace each of ``blocks`` once ``new`` replaces all of them.

    As many blocks take the places of the old ones, with the marks of a prompt cache that these had. A text, or another
    number of blocks, takes the place of the first.
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
    """The last mark of a prompt cache in ``blocks``; None when there is none."""
    marks = [block["cache_control"] for block in blocks if isinstance(block, Mapping) and "cache_control" in block]
    return marks[-1] if marks else None
