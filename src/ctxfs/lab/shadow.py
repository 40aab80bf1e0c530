"""Shadow runs: some requests are also sent as they were given, to see whether the model then does something else.

Of a sampled request the original is sent twice, and the rewritten one once, beside the real one, in a thread. That the
two replies to the original differ is the noise; that the one to the rewritten request differs more often is what the
rewriting does.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ctxfs.context.history.parts import Part
from ctxfs.context.history.views import VIEWS, Api
from ctxfs.context.history.wire import Body
from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings, require_kind, require_number
from ctxfs.lab.ab.meter import Budget, Pricing, billed_usd, bounds_of
from ctxfs.lab.ab.statistics import Difference, solved_difference
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import readable_text, to_plain
from ctxfs.session.records import Shadowed
from ctxfs.storage.pool import Work
from ctxfs.storage.threads import begin
from ctxfs.text.jsontext import codec as json_codec

_log = logging.getLogger("ctxfs.lab")

DEFAULT_SHARE = 0.02
DEFAULT_BUDGET_USD = 5.0

_MOST_AT_ONCE = 2
"""Requests that are compared at a time; others are not sampled meanwhile, so that nothing piles up."""
_BYTES_A_TOKEN = 2
"""For what a prompt may cost at most: the densest text of the recorded sessions has 2.3 bytes a token."""
_MOST_CHARS = 2_000
"""How much is kept of what a reply does."""
_PATH_CHARS = 12
"""Shorter arguments may be anywhere."""
_AGES = ((2, "up to 2 replies ago"), (10, "3 to 10 replies ago"), (1 << 60, "over 10 replies ago"))
"""The most replies that the youngest hidden content is old, and how such requests are called."""
_NOT_SENT = ("stream", "stream_options")

Send = Callable[[dict[str, Any]], Any]
"""Sends the body of a request, not streamed, and returns the reply: its JSON, or what an SDK makes of it."""


class Sampler:
    """Compares a share of the rewritten requests that it is given, each with a function that sends it.

    What was found is recorded in the session, and nowhere else: the beginnings of the calls, and no text. ``share``,
    ``budget_usd`` and what they raise: see ``Shadow``.
    """

    def __init__(self, *, share: float = DEFAULT_SHARE, budget_usd: float | None = DEFAULT_BUDGET_USD) -> None:
        require_number("share", share, at_least=0)
        if share > 1:
            raise ConfigError(f"share is {share!r}: use a share from 0 to 1, as in 0.02")
        if budget_usd is not None:
            require_number("budget_usd", budget_usd, at_least=0)
        self._share = share
        self._budget = Budget(budget_usd)
        self._pricing = Pricing()
        self._draw = random.Random()  # noqa: S311 - which requests are sampled is no secret
        self._lock = threading.Lock()
        self._running = set[Work[None]]()

    @property
    def spent_usd(self) -> float:
        """What was spent, or may be spent by what is being compared."""
        return self._budget.spent_usd

    def take(
        self, api: Api, given: Body, rewritten: Body, note: Callable[[Any], None], *, send: Send, model: str = ""
    ) -> None:
        """Take a request that is about to be sent, perhaps to compare it; never raises.

        Args:
            api: the API that it is for.
            given: its body as it was given.
            rewritten: its body as it is sent.
            note: records what was found.
            send: sends a body to the same place, and returns the reply. It is called in a thread.
            model: the model, where the body does not name it.

        """
        if self._draw.random() >= self._share:
            return
        try:
            # Copied here: the caller may change them as soon as they are sent.
            original, other = (json_codec.dumps(_plain(body)) for body in (given, rewritten))
            named = model or str(given.get("model", ""))
            self._begin(_Sampled(api, original, other, named, note, send))
        except Exception as error:  # noqa: BLE001 - whatever is wrong here must not fail the real request
            _log.warning("a request is not compared: %s", type(error).__name__)

    def close(self) -> None:
        """Wait for what is being compared; call it before the history is closed. It can be used again."""
        while True:
            with self._lock:
                running = list(self._running)
            if not running:
                return
            for one in running:
                one.result()

    def _begin(self, sampled: "_Sampled") -> None:
        """Compare a request in a thread, if none too many are being compared and the budget allows it."""
        most = self._most_usd(sampled)
        with self._lock:
            if len(self._running) >= _MOST_AT_ONCE or most is None or not self._budget.reserve(most):
                return
            one = begin(partial(self._compare, sampled, most))
            self._running.add(one)
        one.add_done_callback(self._ended)

    def _ended(self, one: Work[None]) -> None:
        with self._lock:
            self._running.discard(one)

    def _most_usd(self, sampled: "_Sampled") -> float | None:
        """The most that the three requests cost; None: it is not known, and there is a budget."""
        longest, replies = bounds_of(json_codec.loads(sampled.original))
        most = self._pricing.most_usd(sampled.model, len(sampled.original) // _BYTES_A_TOKEN, longest, replies)
        if most is not None:
            return 3 * most
        return 0.0 if self._budget.limit_usd is None else None

    def _compare(self, sampled: "_Sampled", reserved: float) -> None:
        original, rewritten = sampled.original, sampled.rewritten
        cost = reserved  # also if it fails: what was sent may be billed
        try:
            replies = [_plain(sampled.send(_unstreamed(body))) for body in (original, original, rewritten)]
            cost = sum(self._usd(sampled.model, reply) for reply in replies)
            found = compared(sampled.api, json_codec.loads(original), json_codec.loads(rewritten), replies)
            sampled.note(replace(found, model=sampled.model, usd=cost, made_at=time.time()))
        except Exception as error:  # noqa: BLE001 - whatever the program's own function raises
            _log.warning("a request could not be compared: %s", type(error).__name__)
        finally:
            self._budget.settle(reserved, cost)

    def _usd(self, model: str, reply: Mapping[str, Any]) -> float:
        given = reply.get("usage") or reply.get("usageMetadata") or {}
        prices = self._pricing.prices(model)
        return 0.0 if prices is None else billed_usd(given, Usage.of(given), prices)


@names_settings()
class Shadow(Sampler):
    """Compares what the model does next with and without the rewriting: ``History(shadow=Shadow(send))``.

    What the program gets is neither changed nor delayed: a sampled request is copied, and compared in a thread. What
    was found is recorded in the session, and nowhere else: the beginnings of the calls, and no text.

    Args:
        send: sends the body of a request, as ``lambda body: client.messages.create(**body)`` does, and returns the
            reply. It is called in a thread.
        share: the share of rewritten requests that are sampled, from 0 to 1.
        budget_usd: dollars at list prices that are not exceeded: a request that could cost more than is left is not
            compared, nor one of a model without known prices. None: no limit.

    Raises:
        ConfigError: a value that cannot work.

    """

    def __init__(
        self, send: Send, *, share: float = DEFAULT_SHARE, budget_usd: float | None = DEFAULT_BUDGET_USD
    ) -> None:
        require_kind("send", send, Callable, "a function of the body of a request")
        super().__init__(share=share, budget_usd=budget_usd)
        self._send = send

    def __call__(self, api: Api, given: Body, rewritten: Body, note: Callable[[Any], None]) -> None:
        """Take a request that a history has rewritten; see ``take``."""
        self.take(api, given, rewritten, note, send=self._send)


@dataclass(frozen=True, slots=True)
class _Sampled:
    """A request to compare: its body as it was given and as it was rewritten, as JSON, and what records the result."""

    api: Api
    original: bytes
    rewritten: bytes
    model: str
    note: Callable[[Any], None]
    send: Send


def _plain(value: Any) -> Any:
    """``value`` as JSON data, wherever objects of an SDK stand in it."""
    found = to_plain(value)
    if isinstance(found, Mapping):
        return {key: _plain(one) for key, one in found.items()}
    if isinstance(found, list | tuple):
        return [_plain(one) for one in found]
    return found


def _unstreamed(body: bytes) -> dict[str, Any]:
    return {name: value for name, value in json_codec.loads(body).items() if name not in _NOT_SENT}


# What one comparison says -------------------------------------------------------------------------------------------


def compared(api: Api, given: Body, rewritten: Body, replies: Sequence[Mapping[str, Any]]) -> Shadowed:
    """What the replies say: two to the request as it was given, and one to the rewritten one."""
    original, again, other = (next_actions(api, reply) for reply in replies)
    tools, age = hidden(api, given, rewritten)
    return Shadowed(
        original=_beginning(original),
        again=_beginning(again),
        rewritten=_beginning(other),
        is_noise=original != again,
        differs=original != other,
        reads_back=original != other and _reads_back(other, given, rewritten),
        tools=tools,
        age=age,
    )


def next_actions(api: Api, reply: Mapping[str, Any]) -> list[str]:
    """What a reply does: its calls, in one order and with their arguments in one, or the kind of its text."""
    parts = VIEWS[api].parts_of(_as_request(api, reply))
    calls = [part for part in parts if part.kind == "call"]
    if calls:
        return sorted(f"{part.tool} {json_codec.dumps_text(_normal(part.content))}" for part in calls)
    text = "".join(readable_text(part.content) for part in parts if part.kind == "reply").strip()  # type: ignore[arg-type]
    if not text:
        return ["(nothing)"]
    return ["(a question)" if text.endswith("?") else "(a text)"]


def _normal(arguments: Any) -> Any:
    """Arguments in one order, and their texts without white space around them: what a model varies for no reason."""
    if isinstance(arguments, Mapping):
        return {key: _normal(arguments[key]) for key in sorted(arguments, key=str)}
    if isinstance(arguments, list | tuple):
        return [_normal(one) for one in arguments]
    return arguments.strip() if isinstance(arguments, str) else arguments


def _as_request(api: Api, reply: Mapping[str, Any]) -> dict[str, Any]:
    """A request whose history is only the reply."""
    if api == "messages":
        return {"messages": [{"role": "assistant", "content": reply["content"]}]}
    if api == "chat":
        return {"messages": [reply["choices"][0]["message"]]}
    if api == "responses":
        return {"input": reply["output"]}
    content = reply["candidates"][0].get("content") or {}
    return {"contents": [{"role": "model", "parts": content.get("parts") or []}]}


def hidden(api: Api, given: Body, rewritten: Body) -> tuple[tuple[str, ...], int]:
    """The tools whose contents differ in the two requests, and how many replies the youngest of these is old."""
    before, after = (VIEWS[api].parts_of(body) for body in (given, rewritten))
    new = {part.place: part.content for part in after}
    turns = 0
    is_reply = False
    found: list[tuple[Part, int]] = []
    for part in before:
        was_reply = is_reply
        is_reply = part.kind in ("reply", "call")
        turns += is_reply and not was_reply
        if new.get(part.place) != part.content:
            found.append((part, turns))
    tools = {part.tool or part.kind for part, _ in found}
    return tuple(sorted(tools)), min((turns - turn for _, turn in found), default=0)


def _reads_back(actions: Sequence[str], given: Body, rewritten: Body) -> bool:
    """Whether an argument stands only in the rewritten request: in a placeholder."""
    whole, short = (json_codec.dumps_text(dict(body)) for body in (given, rewritten))
    words = {word for action in actions for word in action.split('"') if len(word) >= _PATH_CHARS}
    return any(word in short and word not in whole for word in words)


def _beginning(actions: Sequence[str]) -> str:
    return "\n".join(actions)[:_MOST_CHARS]


# What many say ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowFigures:
    """Some comparisons, added up.

    ``name``: which ones. ``differs``, ``noise`` and ``read_backs`` count requests; ``excess`` is the share that differs
    less the share that is noise, from -1 to 1.
    """

    name: str
    requests: int
    differs: int
    noise: int
    read_backs: int
    excess: Difference
    usd: float

    def cells(self) -> tuple[str, ...]:
        """Its name and figures, for a table."""
        low, high = (f"{value * 100:+.0f}" for value in (self.excess.low, self.excess.high))
        excess = f"{self.excess.value * 100:+.0f}"
        return (
            self.name,
            f"{self.requests:,}",
            f"{self.differs:,}",
            f"{self.noise:,}",
            f"{excess} ({low} … {high})",
            f"{self.read_backs:,}",
        )


COLUMNS = ("hidden", "requests", "differ", "noise", "excess, in points", "read back")
"""By weight: a narrow terminal has no room for the last."""


def shadow_figures(found: Sequence[Shadowed]) -> list[ShadowFigures]:
    """All comparisons, those of each tool, and those of each age of what was hidden; none: no rows."""
    groups = {"anything": found}
    for tool in sorted({tool for one in found for tool in one.tools}):
        groups[f"of {tool}"] = [one for one in found if tool in one.tools]
    least = 0
    for most, name in _AGES:
        groups[name] = [one for one in found if least <= one.age <= most]
        least = most + 1
    rows = [_figures(name, some) for name, some in groups.items()]
    return [row for row in rows if row is not None]


def _figures(name: str, found: Sequence[Shadowed]) -> ShadowFigures | None:
    excess = solved_difference([(float(one.differs), float(one.is_noise)) for one in found])
    if excess is None:
        return None
    return ShadowFigures(
        name=name,
        requests=len(found),
        differs=sum(one.differs for one in found),
        noise=sum(one.is_noise for one in found),
        read_backs=sum(one.reads_back for one in found),
        excess=excess,
        usd=sum(one.usd for one in found),
    )
