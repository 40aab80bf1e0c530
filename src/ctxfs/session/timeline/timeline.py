"""A session's journal by call: what its context held at each call of the model, and what changed in between. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ctxfs.errors import UnknownCall
from ctxfs.errors.checks import require_kind
from ctxfs.messages.base import ModelRequest, ToolSchema, Usage
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import Message
from ctxfs.messages.serialize import to_messages_body
from ctxfs.session.records import Record
from ctxfs.session.state import SessionState, fold
from ctxfs.session.timeline.changes import Call, Changes, ItemChange, rewritten_tokens
from ctxfs.session.timeline.lives import Lives

MESSAGES_ELSEWHERE: Final = (
    "the messages: your framework, program or loop keeps them, so look there; `ctxfs ls` lists what was replaced"
)
"""What is not recorded about each request where somebody else keeps the messages."""

READ_BACKS_ELSEWHERE: Final = "not recorded: the loop has its messages"
"""What is known about read-backs there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRequest:
    """What the model was sent: every byte of the messages, as far as the session recorded them.

    Attributes:
        call: the number of the call, from 1; one more than there were calls is the request that comes next.
        items: the items that the context held, each as it was then; ``damaged`` says that a content could not be read.
        tools: the definitions of the tools that were sent along, as JSON data; None: they were not recorded.
        breakpoints: after how many of the messages a cache breakpoint was to be set; None: not recorded.
        status: the text that followed the messages in this request only; "": none.
        sent_at: when it was sent, in seconds since the epoch; None: not recorded.
        replied_at: when the reply came; None: not recorded, or there is none.
        model: the model that the reply named; "": not recorded.
        usage: what the provider billed; None: not recorded.
        reply_id: the item of the reply; None: there is none yet, or a framework has it.
        not_recorded: what else about the request is not known, as sentences for people.

    """

    call: int
    items: tuple[ContextItem, ...]
    tools: tuple[Mapping[str, Any], ...] | None = None
    breakpoints: tuple[int, ...] | None = None
    status: str = ""
    sent_at: float | None = None
    replied_at: float | None = None
    model: str = ""
    usage: Usage | None = None
    reply_id: str | None = None
    not_recorded: tuple[str, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages, the system prompt first."""
        return tuple([item.message for item in self.items])

    @property
    def token_count(self) -> int:
        """Tokens of all items, by the session's counter."""
        return sum(item.token_count for item in self.items)

    def body(self, *, cache: bool = True) -> dict[str, Any]:
        """``system``, ``messages`` and ``tools`` as the Messages API got them; those that were empty are left out.

        ``cache`` sets the prompt-cache breakpoints. Tools that are not of the form name, description and
        ``input_schema``, such as the provider's own, are returned as they were recorded.
        """
        tools = self.tools or ()
        schemas: tuple[ToolSchema, ...] = ()
        have_our_form = all(set(tool) == {"name", "description", "input_schema"} for tool in tools)
        if have_our_form:
            schemas = tuple(ToolSchema(**tool) for tool in tools)
        request = ModelRequest(messages=self.messages, tools=schemas, breakpoints=self.breakpoints, status=self.status)
        body = to_messages_body(request, model="", max_tokens=0, cache=cache)
        del body["model"]
        del body["max_tokens"]
        if not have_our_form:
            body["tools"] = [dict(tool) for tool in tools]
        return body


_TOOLS = "the tools that were sent along"
_NOT_SENT = (_TOOLS, "the cache breakpoints", "when it was sent")
"""What is not known of a request without a record."""


class Walk:
    """The states of a session along its journal: a step forward costs only the records in between."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._place = 0
        self._state = SessionState()

    def to(self, place: int) -> SessionState:
        """The state after this many records. The next step changes it; a step back starts from the beginning."""
        if place < self._place:
            self._place = 0
            self._state = SessionState()
        fold(self._state, self._records[self._place : place])
        self._place = place
        return self._state


class Timeline:
    """What the records of a session's journal say about each call of the model; ``read_timeline`` reads them."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = tuple(records)
        self._lives = Lives().take_all(self._records)
        self._places = [change.place for change in self._lives.changes]

    @property
    def lives(self) -> Lives:
        """What the records add up to, and what became of each item; not to be changed."""
        return self._lives

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls of the model on the context, in order."""
        return tuple(self._lives.calls)

    def history(self, item_id: str | None = None) -> tuple[ItemChange, ...]:
        """Everything that happened to the item, in order; None: to all items. Empty if the item is not known."""
        return tuple(change for change in self._lives.changes if item_id in (None, change.item_id))

    def state_at(self, call: int | None = None, *, walk: Walk | None = None) -> SessionState:
        """The state of the session when the request of ``call`` was sent; None: at the end of the journal.

        Raises ``UnknownCall``.
        """
        if call is None and walk is None:
            return self._lives.state
        return (walk or self.walk()).to(self._end(call))

    def records_before(self, call: int | None = None) -> tuple[Record, ...]:
        """The records of the journal before the request of ``call``; None: all. Raises ``UnknownCall``."""
        return self._records[: self._end(call)]

    def walk(self) -> Walk:
        """A ``Walk``, which makes the ``changes`` of several nearby calls cheaper."""
        return Walk(self._records)

    def request(self, call: int | None = None, *, state: SessionState | None = None) -> PastRequest:
        """The request of ``call``; None: the next one, as the context stands. Contents in files are left empty.

        ``state``: the result of ``state_at``, if it is known. Raises ``UnknownCall``.
        """
        state = self.state_at(call) if state is None else state
        calls = self._lives.calls
        number = len(calls) + 1 if call is None else call
        items = tuple(state.items.values())
        missing: list[str] = []
        if number > len(calls):
            if not items and calls and calls[-1].reply_id is None:
                missing.append(MESSAGES_ELSEWHERE)
            return PastRequest(call=number, items=items, not_recorded=tuple(missing))
        made = calls[number - 1]
        if made.reply_id is None:
            missing.append(MESSAGES_ELSEWHERE)
        sent = made.sent
        if sent is None:
            missing += _NOT_SENT
        elif sent.tools not in state.tools:
            missing.append(_TOOLS)
        return PastRequest(
            call=number,
            items=items,
            tools=None if sent is None else state.tools.get(sent.tools),
            breakpoints=None if sent is None else sent.breakpoints,
            status="" if sent is None else sent.status,
            sent_at=made.sent_at,
            replied_at=made.replied_at,
            model=made.model,
            usage=made.usage,
            reply_id=made.reply_id,
            not_recorded=tuple(missing),
        )

    def changes(self, first: int, last: int | None = None, *, walk: Walk | None = None) -> Changes:
        """What changed from the request of call ``first`` to that of ``last``; None: of the call after ``first``.

        The number after the last call means the next request, as the context stands. Raises ``UnknownCall``.
        """
        if last is None:
            last = first + 1
        first_end = self._end(first)
        last_end = self._end(last)
        if last < first:
            first, last = last, first
            first_end, last_end = last_end, first_end
        walk = walk or self.walk()
        before = tuple(walk.to(first_end).items.values())
        after = tuple(walk.to(last_end).items.values())
        kept = 0
        for old, new in zip(before, after, strict=False):
            if not _same(old, new):
                break
            kept += 1
        known = {item.id for item in before}
        changes = self._lives.changes[bisect_left(self._places, first_end) : bisect_left(self._places, last_end)]
        calls = self._lives.calls
        return Changes(
            first=first,
            last=last,
            items=tuple(changes),
            tokens_before=_tokens(before),
            tokens_after=_tokens(after),
            first_changed=before[kept].id if kept < len(before) else None,
            kept_tokens=_tokens(after[:kept]),
            rewritten_tokens=rewritten_tokens(after, kept, known),
            new_tokens=_tokens([item for item in after if item.id not in known]),
            usage=calls[last - 1].usage if last <= len(calls) else None,
        )

    def _end(self, call: int | None) -> int:
        """How many records are before the request of ``call``."""
        if call is None:
            return len(self._records)
        require_kind("call", call, int, "a number from 1")
        if not 1 <= call <= len(self._lives.calls) + 1:
            raise UnknownCall(call, len(self._lives.calls))
        if call > len(self._lives.calls):
            return len(self._records)
        return self._lives.calls[call - 1].end


def _same(before: ContextItem, after: ContextItem) -> bool:
    """Whether the model sees the same text; a content that was never replaced does not change, wherever it is."""
    if before.id != after.id:
        return False
    whole = not (before.destroyed or before.trimmed or after.destroyed or after.trimmed)
    return whole or before.message == after.message


def _tokens(items: Sequence[ContextItem]) -> int:
    return sum(item.token_count for item in items)
