"""What a session sends and is billed, counted; and its budget, which refuses a call before it is sent."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ctxfs.context.history.views import VIEWS, Api
from ctxfs.errors import BudgetSpent, ConfigError, CtxfsError
from ctxfs.errors.checks import names_settings
from ctxfs.lab.ab.arms import Clearing
from ctxfs.lab.ab.results import Outcome, Results, SessionKey, SessionResult
from ctxfs.messages.base import Usage
from ctxfs.messages.models.known import ModelInfo, known_model
from ctxfs.messages.models.prices import Prices
from ctxfs.messages.rates import bill_usd
from ctxfs.text import figures
from ctxfs.text.jsontext import codec as json_codec

_MILLION = 1_000_000
_DENSER = 2.0
"""A prompt may have up to this many times the tokens for a byte of the densest one that was billed in its session."""
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
"""How the APIs name the bound of a reply, in tokens; Gemini's stands in ``generationConfig``."""
_REPLIES = ("n", "candidateCount")
"""How they name the number of replies to one request."""
_REFUSED = (400, 413, 422)
"""Statuses of a request that is not valid, or too long."""
_READERS = ("context_read", "context_tail", "context_grep", "get_knowledge_by_", "grep_knowledge", "history_")
"""How the names of ctxfs's own reading tools begin."""


class Budget:
    """The dollars of a comparison: what is reserved is spent, until the bill says what it was.

    ``limit_usd`` None: there is no limit.
    """

    def __init__(self, limit_usd: float | None, spent_usd: float = 0.0) -> None:
        self.limit_usd = limit_usd
        self._spent = spent_usd
        self._lock = threading.Lock()

    @property
    def spent_usd(self) -> float:
        """What was spent, or is reserved."""
        with self._lock:
            return self._spent

    @property
    def left_usd(self) -> float:
        """What may still be reserved; infinite without a limit."""
        with self._lock:
            return float("inf") if self.limit_usd is None else self.limit_usd - self._spent

    def reserve(self, usd: float) -> bool:
        """Whether a call that may cost so much can be afforded; if it can, that much is reserved."""
        with self._lock:
            if self.limit_usd is not None and self._spent + usd > self.limit_usd:
                return False
            self._spent += usd
            return True

    def settle(self, reserved_usd: float, usd: float) -> None:
        """Replace what was reserved by what it cost."""
        with self._lock:
            self._spent += usd - reserved_usd


@names_settings()
@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """How calls are turned into dollars.

    Args:
        model: all calls cost what this model's do, by its list prices; None: each call's own model.
        reply_tokens: the most tokens of a reply whose request sets no limit; None: what the model may write at most.

    Raises:
        ConfigError: no prices are known of ``model``.

    """

    model: str | None = None
    reply_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.model is not None and self._known(self.model) is None:
            raise ConfigError(f"no prices are known of {self.model!r}: name another model")

    def prices(self, model: str) -> Prices | None:
        """The list prices of a call of ``model``; None: not known."""
        info = self._known(self.model or model)
        return None if info is None else info.prices

    def longest_reply(self, model: str) -> int | None:
        """The most tokens that a reply of ``model`` may have without a limit in its request; None: not known."""
        if self.reply_tokens is not None:
            return self.reply_tokens
        info = self._known(self.model or model)
        if info is None or info.window_tokens is None:
            return None
        return info.window_tokens - (info.input_tokens or 0)

    def most_usd(self, model: str, prompt_tokens: int, reply_tokens: int | None, replies: int) -> float | None:
        """The most that a call of ``model`` may cost; None: its prices, or its longest reply, are not known.

        ``reply_tokens`` None: the request sets no limit.
        """
        prices = self.prices(model)
        longest = reply_tokens if reply_tokens is not None else self.longest_reply(model)
        if prices is None or longest is None:
            return None
        paid = prices.at(prompt_tokens)
        dearest = max(paid.input, *paid.cache_write.values())
        return (prompt_tokens * dearest + longest * replies * paid.output) / _MILLION

    @staticmethod
    def _known(model: str) -> ModelInfo | None:
        info = known_model(model)
        return info if info is not None and info.prices is not None else None


@dataclass(slots=True)
class Counts:
    """What was counted of one session so far; see ``SessionResult``."""

    usd: float = 0.0
    most_usd: float = 0.0
    calls: int = 0
    unbilled_calls: int = 0
    unpriced_calls: int = 0
    input_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0
    read_backs: int = 0
    repeated_calls: int = 0
    refusals: int = 0
    cache_breaks: int = 0


@dataclass(slots=True)
class MeteredCall:
    """One call: ``content`` is what to send, ``number`` counts the calls of its session."""

    meter: "Meter"
    number: int
    content: bytes
    size: int
    reserved_usd: float
    model: str
    place: str
    is_open: bool = True

    def ended(self, status: int, bill: tuple[dict[str, Any], str | None] | None, *, is_whole: bool) -> None:
        """Settle the call.

        Args:
            status: of the answer; 0: there was none.
            bill: the usage and the model that the reply names; None: it names none.
            is_whole: the reply came to its end; if not, it counts with the most that it may cost.

        """
        if self.is_open:
            self.is_open = False
            self.meter.settle(self, status, bill, is_whole=is_whole)


class Meter:
    """Counts one session's calls, and refuses those that its budget, or that of the comparison, does not allow.

    Any thread may use it. ``stored_in``: where the session stores contents, so that calls that open them are known.
    ``limit_usd``: the session's own budget; None: only that of the comparison. ``stopped``: what refused a call, if
    anything did. ``replaced``: how many contents were replaced; who plays the session sets it. None: not known.
    """

    def __init__(
        self,
        key: SessionKey,
        results: Results,
        budget: Budget,
        *,
        pricing: Pricing,
        stored_in: str = "",
        limit_usd: float | None = None,
        clearing: Clearing | None = None,
    ) -> None:
        self.counts = Counts()
        self.stopped: Outcome | None = None
        self.replaced: int | None = None
        self._key = key
        self._results = results
        self._budget = budget
        self._pricing = pricing
        self._own = Budget(limit_usd)
        self._stored_in = stored_in
        self._clearing = clearing
        self._lock = threading.Lock()
        self._number = 0
        self._density = 0.0
        self._seen_calls = set[str]()
        self._made = set[str]()
        self._cached: dict[str, int] = {}

    # Before a call ---------------------------------------------------------------------------------------------------

    def began(
        self, api: Api, body: Mapping[str, Any] | None, content: bytes, *, place: str, model: str = ""
    ) -> MeteredCall:
        """Count a request of the wire before it is sent.

        Args:
            api: the API that it is for.
            body: what is to be sent, decoded; None: it could not be read.
            content: its bytes, perhaps compressed.
            place: the conversation and its branch, which have a prompt cache of their own.
            model: the model that the path of the request names; "": the body names it.

        Raises:
            BudgetSpent: it could cost more than is left; nothing was reserved.

        """
        given = body or {}
        with self._lock:
            self._observe(_calls_in(api, given))
        if self._clearing is not None and body is not None:
            edited = self._clearing.edited(api, body)
            if edited is not body:
                content = json_codec.dumps(edited)
                given = edited
        longest, replies = bounds_of(given)
        size = len(content) if body is None else len(json_codec.dumps(given))
        model = model or str(given.get("model", ""))
        call = self.reserve(model, size, reply_tokens=longest, replies=replies, place=place)
        call.content = content
        return call

    def reserve(
        self, model: str, size: int, *, reply_tokens: int | None, replies: int = 1, place: str = ""
    ) -> MeteredCall:
        """Reserve the most that a call may cost: a prompt of ``size`` bytes, and replies of at most ``reply_tokens``.

        ``reply_tokens`` None: the request sets no limit. Raises ``BudgetSpent``.
        """
        most = self._most_usd(model, size, reply_tokens, replies)
        if not self._own.reserve(most):
            self._refuse("limit", f"the session's budget of {figures.usd(self._own.limit_usd)}")
        if not self._budget.reserve(most):
            self._own.settle(most, 0.0)
            self._refuse("budget", f"the budget of {figures.usd(self._budget.limit_usd)}")
        with self._lock:
            self.counts.most_usd = max(self.counts.most_usd, self._own.spent_usd)
            self._number += 1
            number = self._number
        self._results.sent(self._key, number, most)
        return MeteredCall(self, number, b"", size, most, model, place)

    def observe(self, calls: Iterable[tuple[str, str, Any]]) -> None:
        """Count the calls of tools that a request shows: the id, the tool and the arguments of each."""
        with self._lock:
            self._observe(calls)

    def _refuse(self, outcome: Outcome, what: str) -> None:
        self.stopped = self.stopped or outcome
        raise BudgetSpent(
            f"{what} does not allow this call: its prompt and the longest reply could cost more than is left"
        )

    def _most_usd(self, model: str, size: int, reply_tokens: int | None, replies: int) -> float:
        """The most that a call may cost; 0 where there is no limit and no price is known."""
        prompt = size if not self._density else min(size, round(size * self._density * _DENSER))
        most = self._pricing.most_usd(model, prompt, reply_tokens, replies)
        if most is not None:
            return most
        if self._budget.limit_usd is not None or self._own.limit_usd is not None:
            self._refuse_unknown(model)
        return 0.0

    def _refuse_unknown(self, model: str) -> None:
        self.stopped = self.stopped or "failed"
        raise BudgetSpent(
            f"no prices are known of the model {model!r}, so no budget can be kept: name one whose list prices count"
        )

    # After a call ----------------------------------------------------------------------------------------------------

    def settle(
        self, call: MeteredCall, status: int, bill: tuple[dict[str, Any], str | None] | None, *, is_whole: bool
    ) -> None:
        """Count the end of a call; see ``MeteredCall.ended``."""
        usd, usage = self._cost(call, status, bill, is_whole=is_whole)
        with self._lock:
            counts = self.counts
            counts.calls += 200 <= status < 300
            counts.refusals += status in _REFUSED
            counts.usd += usd
            if usage is not None:
                self._count(usage, call)
                counts.unpriced_calls += self._prices(call, bill) is None
            elif 200 <= status < 300:
                counts.unbilled_calls += 1
        self._own.settle(call.reserved_usd, usd)
        self._budget.settle(call.reserved_usd, usd)
        self._results.billed(self._key, call.number, usd)

    def _cost(
        self, call: MeteredCall, status: int, bill: tuple[dict[str, Any], str | None] | None, *, is_whole: bool
    ) -> tuple[float, Usage | None]:
        """What a call cost, and its usage, if that is known."""
        if not 200 <= status < 300:
            return 0.0, None
        if bill is None:
            return call.reserved_usd, None
        try:
            usage = Usage.of(bill[0])
        except CtxfsError:
            return call.reserved_usd, None
        prices = self._prices(call, bill)
        usd = 0.0 if prices is None else billed_usd(bill[0], usage, prices)
        return (usd if is_whole else max(usd, call.reserved_usd)), usage

    def _prices(self, call: MeteredCall, bill: tuple[dict[str, Any], str | None] | None) -> Prices | None:
        """The prices of the model that was asked for, or of the one that the reply names."""
        named = "" if bill is None else bill[1] or ""
        return self._pricing.prices(call.model) or self._pricing.prices(named)

    def _count(self, usage: Usage, call: MeteredCall) -> None:
        counts = self.counts
        counts.input_tokens += usage.input_tokens
        counts.cache_write_tokens += usage.cache_creation_input_tokens
        counts.cache_read_tokens += usage.cache_read_input_tokens
        counts.output_tokens += usage.output_tokens
        before = self._cached.get(call.place, 0)
        counts.cache_breaks += usage.cache_read_input_tokens < before
        self._cached[call.place] = usage.cache_read_input_tokens
        if call.size:
            self._density = max(self._density, usage.total_input_tokens / call.size)

    def result(self, outcome: Outcome, *, wall_s: float, note: str = "") -> SessionResult:
        """How the session ended, with all that was counted."""
        with self._lock:
            counts = {name: getattr(self.counts, name) for name in Counts.__slots__}
        replaced = self.replaced if self._clearing is None else self._clearing.cleared
        key = self._key._asdict()
        return SessionResult(**key, outcome=outcome, wall_s=round(wall_s, 3), replaced=replaced, note=note, **counts)

    # Calls of tools --------------------------------------------------------------------------------------------------

    def _observe(self, calls: Iterable[tuple[str, str, Any]]) -> None:
        for call_id, tool, arguments in calls:
            made = json_codec.dumps_text([tool, _sorted(arguments)])
            known = call_id or made
            if known in self._seen_calls:
                continue
            self._seen_calls.add(known)
            self.counts.read_backs += tool.startswith(_READERS) or (bool(self._stored_in) and self._stored_in in made)
            self.counts.repeated_calls += made in self._made
            self._made.add(made)


def bounds_of(body: Mapping[str, Any]) -> tuple[int | None, int]:
    """The most tokens that a request allows a reply, and how many replies it asks for; None: it sets no limit."""
    config = body.get("generationConfig")
    given = {**body, **config} if isinstance(config, Mapping) else body
    limits = [given[name] for name in _LIMITS if isinstance(given.get(name), int)]
    replies = [given[name] for name in _REPLIES if isinstance(given.get(name), int)]
    return max(limits, default=None), max([1, *replies])


def billed_usd(given: Mapping[str, Any], usage: Usage, prices: Prices) -> float:
    """What a call cost by list prices; ``given`` is the usage as the provider says it, which may tell cache times."""
    split = given.get("cache_creation")
    an_hour = split.get("ephemeral_1h_input_tokens") if isinstance(split, Mapping) else None
    usd = bill_usd(usage, prices)
    paid = prices.at(usage.total_input_tokens)
    if isinstance(an_hour, int) and "1h" in paid.cache_write:
        usd += an_hour * (paid.cache_write["1h"] - paid.cache_write[paid.ttl(None)]) / _MILLION
    return usd


def _calls_in(api: Api, body: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """The calls of tools in a request; none, if it is not one."""
    try:
        return [(part.id, part.tool, part.content) for part in VIEWS[api].parts_of(body) if part.kind == "call"]
    except CtxfsError:
        return []


def _sorted(arguments: Any) -> Any:
    """Arguments in one order, however the model wrote them."""
    if isinstance(arguments, Mapping):
        return {key: _sorted(arguments[key]) for key in sorted(arguments, key=str)}
    return arguments
