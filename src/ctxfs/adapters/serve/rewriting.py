"""A request for a model's reply on its way out and back: what the proxy and the transport share."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from textwrap import shorten
from typing import Any

from ctxfs.adapters.serve.bodies import TooLarge, UnreadableReply, can_unpack, unpacked
from ctxfs.adapters.serve.calls import Endpoint, branch_of
from ctxfs.adapters.serve.reading import LAST, NO_MORE, Reading, ReadingTurns, answered
from ctxfs.adapters.serve.replies import FORMATS, Call, reply_in, written
from ctxfs.adapters.serve.savings import Savings
from ctxfs.agent.llm.bound_thinking import ThinkingDropper, beta_headers
from ctxfs.agent.llm.sse import UsageReader
from ctxfs.context.history.history import History
from ctxfs.context.history.parts import Edits
from ctxfs.context.history.views import VIEWS
from ctxfs.errors import ConfigError, CtxfsError, SessionError, StorageError
from ctxfs.messages.base import Usage
from ctxfs.messages.overflow import too_long
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.base import ToolResult

_log = logging.getLogger("ctxfs.adapters")

REFUSED = (400, 413)
"""Statuses under which a provider refuses a prompt as too long, or thinking that no longer fits."""

MOST_BODY_BYTES = 64 << 20
"""The most bytes of a request for a reply, as it comes and unpacked: twice what Anthropic's API takes."""

MOST_REFUSAL_BYTES = 1 << 20
"""The most bytes of a refusal that are read for its reason; a longer one passes unread."""

_SHOWN = (ConfigError, SessionError, StorageError)
"""Errors whose text never quotes a request."""

_MOST_REASON_CHARS = 500
"""Of a reason that a request was sent as it came. What to do stands at its end, which fits for all of ours."""

_BETA = "anthropic-beta"

Bill = tuple[dict[str, Any], str | None]
"""The usage that a reply reports, and its model if it names one."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that was rewritten, or could have been.

    Args:
        asked: the request before anything in it was replaced, with the reading tools if they are offered here.
        body: the request to send.
        content: its bytes.
        reading: the reading inside of this request; None: the program answers the calls of all tools.

    """

    to: Endpoint
    history: History
    branch: str
    model: str
    edits: Edits
    asked: Mapping[str, Any]
    body: Mapping[str, Any]
    content: bytes
    reading: Reading | None = None


@dataclass(slots=True)
class Rewriting:
    """Rewrites requests for replies, and records what the answers say. Its methods may be called in any thread.

    ``history_of`` returns the history that a request belongs to, by the request's model, headers and body.
    ``reading``: answers the calls of the reading tools; None: the program does.
    """

    history_of: Callable[[str, Mapping[str, str], Mapping[str, Any]], History]
    savings: Savings = field(default_factory=Savings)
    reading: ReadingTurns | None = None
    _dropper: ThinkingDropper = field(default_factory=ThinkingDropper)

    def rewrite(self, raw: bytes, to: Endpoint, headers: Mapping[str, str]) -> Sent | None:
        """The request to send; None if it cannot be rewritten, and is sent as it came: ``savings`` say why.

        ``headers`` have lower-case names.

        Raises:
            TooLarge: the body is larger than any provider takes.

        """
        try:
            return self._rewritten(raw, to, headers)
        except TooLarge:
            raise
        except _SHOWN as error:
            self.savings.problem(shorten(f"{type(error).__name__}: {error}", _MOST_REASON_CHARS, placeholder=" …"))
        except CtxfsError as error:  # its text may quote a message
            self.savings.problem(f"{type(error).__name__}: it is not a request that this API takes")
        except ValueError:
            encoding = headers.get("content-encoding")
            packed = f"its body is compressed ({encoding!r:.20}) and cannot be unpacked"
            self.savings.problem(packed if encoding else "its body is not JSON")
        return None

    def _rewritten(self, raw: bytes, to: Endpoint, headers: Mapping[str, str]) -> Sent:
        body = json_codec.loads(unpacked(raw, headers.get("content-encoding"), MOST_BODY_BYTES))
        parts = VIEWS[to.api].parts_of(body)
        model = to.model or str(body.get("model", ""))
        branch = branch_of(body, parts)
        history = self.history_of(model, headers, body)
        asked, reading = body, None
        if self.reading is not None and to.reads:
            tools = [tool.schema for tool in history.tools]
            asked, reading = self.reading.begun(to.api, body, history.session_id, tools)
        new, edits = history.rewritten(to.api, asked, branch=branch)
        if to.api == "messages":
            new = self._dropper.asking(new)
        content = raw if new is body else json_codec.dumps(new)
        return Sent(to, history, branch, model, edits, asked, new, content, reading)

    def again(self, sent: Sent) -> Sent:
        """The request once more, with what was decided since ``sent``; nothing is replaced if that is not possible."""
        try:
            new, edits = sent.history.rewritten(sent.to.api, sent.asked, branch=sent.branch)
        except CtxfsError as error:
            self.savings.problem(f"{type(error).__name__}: a later turn of the request could not be rewritten")
            new, edits = sent.asked, sent.edits
        if sent.to.api == "messages":
            new = self._dropper.asking(new)
        content = sent.content if new is sent.body else json_codec.dumps(new)
        return replace(sent, edits=edits, body=new, content=content)

    def reads(self, sent: Sent, encodings: str | None) -> bool:
        """Whether the reply to ``sent`` is read here; what is compressed in an unknown way, unasked, passes."""
        return sent.reading is not None and can_unpack(encodings)

    def read_on(self, sent: Sent, raw: bytes, encodings: str | None) -> Sent | bytes:
        """Take the reply to ``sent``: the request for the next turn, or the reply for the program.

        The bill is recorded. ``encodings``: how ``raw`` is compressed; the reply for the program never is.

        Raises:
            UnreadableReply: ``raw`` is damaged or too large.

        """
        try:
            raw = unpacked(raw, encodings, MOST_BODY_BYTES)
        except ValueError as error:
            raise UnreadableReply(f"the provider's reply cannot be read: {error}") from error
        heard = UsageReader()
        heard.feed(raw)
        self.billed(sent, heard.bill())
        reply = reply_in(raw)
        if reply is None or sent.reading is None or self.reading is None:
            return raw
        api, reading, session = sent.to.api, sent.reading, sent.history.session_id
        form = FORMATS[api]
        try:
            items = form.items_of(reply)
        except (AttributeError, LookupError, TypeError, ValueError):  # it is no reply of this API
            return raw
        calls = [call for item in items for call in form.calls_in(item)]
        own = [call for call in calls if call.name in reading.own]
        if not own:
            self.reading.keep(api, session, reading, items, ())
            return raw
        if len(own) == len(calls) and reading.left >= 0:
            return self._next_turn(sent, [*items], own)
        if len(own) < len(calls):  # the program answers the others, and its next request gets these answers too
            self.savings.read_back()
            answers = answered(api, [(call, _result(sent.history, call)) for call in own])
            self.reading.keep(api, session, reading, items, answers)
        return written(api, reply, form.without(reply, reading.own))

    def _next_turn(self, sent: Sent, items: list[Any], own: list[Call]) -> Sent:
        """The request with what the model asked to read; once too much was read, without the reading tools."""
        assert self.reading is not None
        assert sent.reading is not None
        left = sent.reading.left - 1
        if left < 0:
            results = [(call, ToolResult(NO_MORE, is_error=True)) for call in own]
        else:
            results = [(call, _result(sent.history, call)) for call in own]
            self.savings.read_back()
        added = [*items, *answered(sent.to.api, results, note=LAST if left == 0 else "")]
        removed = sent.reading.own if left < 0 else frozenset[str]()
        asked = self.reading.continued(sent.to.api, sent.asked, added, removed)
        reading = replace(sent.reading, left=left, read=(*sent.reading.read, *added))
        return self.again(replace(sent, asked=asked, reading=reading))

    def headers_of(self, sent: Sent, raw: bytes, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """The headers to send with ``sent``, made of those that came with ``raw``; their names are lower-case."""
        replaced = {"accept-encoding"}
        if sent.content is not raw:  # it is another body, and is not compressed
            replaced |= {"content-length", "content-encoding"}
        if self._dropper.models:
            replaced.add(_BETA)
        kept = [(name, value) for name, value in headers if name not in replaced]
        kept.append(("accept-encoding", "identity"))  # the bill is read from the reply
        if self._dropper.models:
            named = beta_headers(sent.body, dict(headers)).get(_BETA)
            if named is not None:
                kept.append((_BETA, named))
        return kept

    def mends(self, sent: Sent, status: int, refusal: bytes, encodings: str | None) -> bool:
        """Whether a second try may succeed: the prompt was too long and can be cut, or can do without its thinking."""
        try:
            text = unpacked(refusal, encodings, MOST_REFUSAL_BYTES).decode()
            if sent.to.api == "messages" and self._dropper.refused(sent.body, text):
                return True
            said = too_long(text, status=status)
            if said is not None:
                sent.history.refused(said, branch=sent.branch)
        except (CtxfsError, ValueError):  # nothing more can be replaced: the program gets the refusal
            return False
        return said is not None

    def billed(self, sent: Sent, bill: Bill | None) -> None:
        """Record what a reply to ``sent`` said of its bill; None: nothing. Never fails: the caller has the reply."""
        place = (sent.history.session_id, sent.branch)
        self.savings.answered(place, replaced=len(sent.edits))
        if bill is None:
            return
        model = bill[1] or sent.model
        try:
            usage = Usage.of(bill[0])
            sent.history.replied(usage, model or None, branch=sent.branch)
        except CtxfsError as error:
            _log.warning("session %s: %s", sent.history.session_id, error)
            return
        self.savings.called(
            place,
            usage,
            model,
            counted_tokens=sent.edits.tokens,
            freed_tokens=sent.edits.freed_tokens,
            window_tokens=sent.edits.window_tokens,
        )


def _result(history: History, call: Call) -> ToolResult:
    """What the model gets of a call of a reading tool."""
    try:
        return history.run_tool(call.name, call.arguments)
    except CtxfsError as error:  # the model can do something else; the program must not fail
        return ToolResult(f"Error: {error}", is_error=True)
