"""Reading turns: the reading tools are offered to the model, and their calls answered, inside one request of a program.

The program never sees them. What the model read is put back before the reply that it led to in the program's later
requests, so that the prompt cache holds, and so does thinking that is bound to what stood before it. Pure.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ctxfs.adapters.serve.replies import FORMATS, Call, Item
from ctxfs.context.history.views import Api
from ctxfs.context.history.wire import tools_in
from ctxfs.messages.base import ToolSchema
from ctxfs.tools.base import ToolResult

_MOST_KEPT = 1_000
"""Replies whose reading is kept in memory; the model can read again what is no longer there."""

NO_MORE = "Error: nothing more can be read in this request. Answer with what you have, or use another tool."
LAST = "[This was the last page that can be read in this request.]"

_MODELS_OWN = frozenset({"reasoning", "function_call", "custom_tool_call"})
"""Items of the Responses API that a model wrote, beside its messages."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a program does not know of a reply.

    Args:
        before: the turns that led to it.
        reply: the reply with the calls that were answered here; () if it has none. For the Responses API, these calls.
        answers: what answers these.

    """

    before: tuple[Item, ...]
    reply: tuple[Item, ...] = ()
    answers: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """The reading inside of one request.

    Args:
        own: the names of the tools that were offered here.
        left: how many more turns are answered.
        number: how many items the program's request has.
        read: the items of the turns so far.

    """

    own: frozenset[str]
    left: int
    number: int
    read: tuple[Item, ...] = ()


@dataclass(slots=True)
class ReadingTurns:
    """What was read in which reply, by session; ``turns``: how many are answered in one request. For any thread."""

    turns: int
    _kept: OrderedDict[tuple[str, str], Kept] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begun(
        self, api: Api, body: Mapping[str, Any], session: str, tools: Sequence[ToolSchema]
    ) -> tuple[Mapping[str, Any], Reading | None]:
        """The request with the reading tools, and with what was read before; None: it is left as it is.

        A request without tools asks for a text, and one for several replies cannot be continued.
        """
        names = tools_in(body)
        several = body.get("n") or (body.get("generationConfig") or {}).get("candidateCount") or 1
        if not names or several != 1:
            return body, None
        offered = [tool for tool in tools if tool.name not in names]
        own = frozenset(tool.name for tool in offered)
        if not own:
            return body, None
        form = FORMATS[api]
        items = _items_in(body, form.key)
        new = {**body, "tools": [*body["tools"], *form.tools(offered)], form.key: self._restored(api, items, session)}
        return new, Reading(own, self.turns, len(items))

    def continued(
        self, api: Api, body: Mapping[str, Any], added: Sequence[Item], own: frozenset[str]
    ) -> dict[str, Any]:
        """The request for the next turn; ``own``: tools that it no longer offers."""
        key = FORMATS[api].key
        new = {**body, key: [*_items_in(body, key), *added]}
        if own:
            new["tools"] = [tool for tool in body["tools"] if own.isdisjoint(tools_in({"tools": [tool]}))]
        return new

    def keep(self, api: Api, session: str, reading: Reading, items: Sequence[Item], answers: Sequence[Item]) -> None:
        """Keep what led to a reply, and what answers the calls in it that are not the program's."""
        form = FORMATS[api]
        mark = next((mark for item in items if (mark := form.mark(item, reading.own))), "")
        if not mark or not (reading.read or answers):
            return
        reply = tuple(items) if answers else ()
        if api == "responses":
            reply = tuple(item for item in reply if item.get("name") in reading.own)
        with self._lock:
            self._kept[_key(api, session, mark, reading.number)] = Kept(reading.read, reply, tuple(answers))
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)

    def _found(self, api: Api, session: str, item: Item, number: int) -> Kept | None:
        mark = FORMATS[api].mark(item, ())
        if not mark:
            return None
        with self._lock:
            kept = self._kept.get(key := _key(api, session, mark, number))
            if kept is not None:
                self._kept.move_to_end(key)
        return kept

    def _restored(self, api: Api, items: Sequence[Item], session: str) -> list[Item]:
        """The items with what was read before each reply, and with the calls that were answered here."""
        if api == "responses":
            return self._restored_responses(items, session)
        restored: list[Item] = []
        answers: tuple[Item, ...] = ()
        for number, item in enumerate(items):
            if answers:
                item = _with_answers(api, item, answers[0])  # noqa: PLW2901 - the same item, with its other results
                answers = ()
            kept = self._found(api, session, item, number)
            if kept is None:
                restored.append(item)
                continue
            restored += kept.before
            restored += kept.reply or (item,)
            if api == "chat":
                restored += kept.answers
            else:
                answers = kept.answers
        return restored

    def _restored_responses(self, items: Sequence[Item], session: str) -> list[Item]:
        """A reply is a run of items: what was read stands before the run, and each call beside the program's call."""
        restored: list[Item] = []
        start = 0
        for number, item in enumerate(items):
            restored.append(item)
            if item.get("type") not in _MODELS_OWN and item.get("role") != "assistant":
                start = len(restored)
                continue
            kept = self._found("responses", session, item, number)
            if kept is not None:
                restored[start:start] = kept.before
                restored += (*kept.reply, *kept.answers)
        return restored


def answered(api: Api, calls: Sequence[tuple[Call, ToolResult]], *, note: str = "") -> list[Item]:
    """What the next request holds of these results; ``note`` is added to each."""
    noted = []
    for call, result in calls:
        content = result.content
        if note and isinstance(content, str):
            content = f"{content}\n{note}"
        noted.append((call, ToolResult(content, is_error=result.is_error)))
    return FORMATS[api].answers(noted)


def _items_in(body: Mapping[str, Any], key: str) -> list[Item]:
    given = body[key]
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)


def _key(api: Api, session: str, mark: str, number: int) -> tuple[str, str]:
    """Calls to Gemini mostly have no ids: there the place in the history distinguishes equal ones."""
    return session, f"{number} {mark}" if api == "gemini" else mark


def _with_answers(api: Api, item: Item, answers: Item) -> Item:
    """The message with the results of the program's calls, and with those of the calls that were answered here."""
    key = "parts" if api == "gemini" else "content"
    content = item[key]
    given = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    return {**item, key: [*answers[key], *given]}
