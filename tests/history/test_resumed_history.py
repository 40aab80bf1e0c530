"""A history that is resumed at each call plans as one that goes on: its decisions say what the planner knew."""

import random
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ctxfs
from ctxfs.context.history.decisions import Decisions
from ctxfs.context.history.history import History
from ctxfs.context.history.parts import Edits, Part
from ctxfs.context.history.view import HistoryView
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.economics.plans import Why
from ctxfs.eviction.events import ContextEvent, Evicted
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.messages import CharsCounter, ContentRange, Usage
from ctxfs.session.fingerprint import sha256_of
from ctxfs.session.records import CallMade, Decided
from ctxfs.session.state import SessionState, fold
from ctxfs.testing.history_conformance import pricing_on
from ctxfs.tools import Materialize
from history.test_history import settings_of
from line_count import counted_lines

CALLS = 30
OURS = str(Path(ctxfs.__file__).parent)


@dataclass
class Server:
    """One conversation, whose history is opened for each request, or once. It has what it was shown and sent."""

    root: Path
    resumes: bool
    settings: dict[str, Any] = field(default_factory=dict)
    copies: bool = False
    parts: list[Part] = field(default_factory=lambda: [Part("user", "go " * 20_000, "u")])
    evicted: list[Evicted] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.history = self.opened()

    def opened(self) -> History:
        pricing = pricing_on(lambda: 0.0, parameters=EvictionParameters())  # the cache never expires
        settings = {
            "pricing": pricing,
            "offload_policy": OffloadPolicy(digest_tokens=0),
            "window": None,
            **self.settings,
        }
        return History("s", root_path=self.root, counter=CharsCounter(), on_event=self.told, **settings)

    def told(self, event: ContextEvent) -> None:
        if isinstance(event, Evicted):
            self.evicted.append(event)

    def call(self, number: int, draw: random.Random) -> Edits:
        """Send what is there, and add a reply with its result: of a command, a file, a patch, or read back."""
        if self.resumes:
            self.history.close()
            self.history = self.opened()
        edits = self.history.rewrite(self.parts)
        self.sent.append(f"{sorted(map(str, edits))} {edits.tokens}")
        missed = draw.random() < 0.1
        read = 0 if missed else edits.tokens
        usage = Usage(cache_read_input_tokens=read, cache_creation_input_tokens=edits.tokens - read)
        self.history.replied(usage, None)
        lines = draw.choice([20, 200, 900, 2_000])
        tool = draw.choice(["Read", "Bash", "Write"])
        text = f"{number} {draw.random()} and more\n" * lines
        arguments: dict[str, Any] = {"n": number}
        if draw.random() < 0.1 and self.evicted:
            path = self.evicted[draw.randrange(len(self.evicted))].path
            tool = "Read"
            text = str(self.history.run_tool("Read", {"file_path": path}).content)
        elif tool == "Write":
            arguments["text"] = text
            text = "ok"
        call_id = f"c{number}"
        if self.copies:  # calls that have no ids, of which two may be equal
            call_id = ""
            arguments["n"] = 0
            if tool == "Bash":
                text = f"{number // 3} is printed again\n" * lines
            self.parts.append(Part("call", arguments, ("copy", number), call_id, tool))
        self.parts.append(Part("call", arguments, ("c", number), call_id, tool))
        if "materialize" in self.settings:
            text = str(self.history.arrive(text, tool=tool, call_id=call_id))
        self.parts.append(Part("result", text, ("o", number), call_id, tool))
        return edits

    def keep_what_is_sent(self, edits: Edits) -> None:
        """As a framework does that stores its requests."""
        self.parts = [part._replace(content=edits.get(part.place, part.content)) for part in self.parts]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "keeps", "settings", "copies"),
    [
        (0, False, {}, False),
        (1, True, {}, False),
        (2, False, {"keep_recent": {"Bash": 3}}, False),
        (3, True, {"materialize": Materialize()}, False),
        (4, False, {"pricing": pricing_on(lambda: 0.0, parameters=EvictionParameters(max_loss=5.0))}, True),
    ],
)
def test_it_plans_as_one_that_goes_on(
    tmp_path: Path, seed: int, keeps: bool, settings: dict[str, Any], copies: bool
) -> None:
    servers = [
        Server(tmp_path / "one", resumes=False, settings=settings, copies=copies),
        Server(tmp_path / "two", resumes=True, settings=settings, copies=copies),
    ]
    for server in servers:
        draw = random.Random(seed)
        for number in range(CALLS):
            edits = server.call(number, draw)
            if keeps and number % 7 == 0:
                server.keep_what_is_sent(edits)
        economy = server.history._core._branches[""].view.transcript.economy  # noqa: SLF001 - no figure shows it
        assert economy is not None
        assert economy.ledger.total_tokens == edits.tokens
        server.history.close()
    going_on, again = servers
    for number, (one, other) in enumerate(zip(going_on.sent, again.sent, strict=True)):
        assert one == other, f"call {number}"
    assert len(going_on.evicted) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("longer", range(4))
def test_parts_that_come_in_get_the_same_names_once_others_were_replaced(tmp_path: Path, longer: int) -> None:
    """A name that is a character longer is a token more in one path out of four."""
    settings = {"pricing": pricing_on(lambda: 0.0, parameters=EvictionParameters(max_loss=5.0))}
    root = tmp_path / ("x" * (longer + 1))
    servers = [
        Server(root / "one", resumes=False, settings=settings, copies=True),
        Server(root / "two", resumes=True, settings=settings, copies=True),
    ]
    items: list[list[str]] = []
    for server in servers:
        draw = random.Random(4)
        for number in range(12):
            server.call(number, draw)
        items.append(list(server.history._core._branches[""].view.transcript.items))  # noqa: SLF001 - no figure shows it
        server.history.close()
    going_on, again = servers
    assert going_on.evicted
    assert items[0] == items[1]
    assert going_on.sent == again.sent


def derived(
    state: SessionState,
    sources: dict[str, ContentRange],
    decisions: Decisions,
    clock: list[float],
    keep_recent: dict[str, int] | None = None,
) -> HistoryView:
    settings = settings_of(
        keep_recent=keep_recent,
        pricing=pricing_on(lambda: clock[0], parameters=EvictionParameters(max_loss=5.0)),
        materialize=None,
        preview_above_tokens=None,
    )
    return HistoryView(settings, settings.entry_rules(CharsCounter(), "/s"), state, sources, decisions)


@pytest.mark.not_measured
def test_a_view_that_is_derived_again_plans_the_same() -> None:
    draw = random.Random(4)
    clock = [1_000_000.0]
    decisions = Decisions()
    state = SessionState()
    sources: dict[str, ContentRange] = {}
    going_on = derived(state, sources, decisions, clock)
    parts = [Part("user", "go " * 20_000, "u")]
    reasons: set[str] = set()
    for number in range(24):
        text = f"{number} {draw.random()} and more\n" * draw.choice([200, 900, 2_000])
        arguments: dict[str, Any] = {"n": number}
        if number % 3 == 1:
            arguments["text"] = text
            text = "ok"
        elif number % 5 == 3 and decisions:
            (one, *_) = decisions.since(0)
            sources[sha256_of(text)] = ContentRange(item_id=one.item_id, path="/s/x", first_line=1, last_line=5)
        parts.append(Part("call", arguments, ("c", number), f"c{number}", "Read"))
        parts.append(Part("result", text, ("o", number), f"c{number}", "Read"))
        again = derived(state, sources, decisions, clock)
        for view in (going_on, again):
            view.sent_at = clock[0]
            view.update(parts)
        clock[0] += 4_000.0 if number == 18 else 5.0
        plan = going_on.transcript.plan()
        assert again.transcript.plan().explain() == plan.explain(), f"call {number}"
        decided = going_on.decision(plan).decided
        decisions.take(decided)
        state = fold(state, decided)
        going_on.follow()
        reasons |= {one.reason for one in decided}
    assert {Why.SEEN, Why.EXPIRED} <= reasons


def test_calls_of_a_reply_that_is_stored_as_one_item_are_not_one_item_to_the_planner() -> None:
    arguments = [{"text": f"{n} " * 2_000} for n in range(2)]
    decided = [
        Decided(
            kind="call",
            call_id=f"c{n}",
            sha256=sha256_of(given),
            item_id="msg_9",
            content={"text": "[Content offloaded]"},
            tokens_before=1_000,
            tokens=15,
            reason="it does not fit the window",
            replies_since=1,
        )
        for n, given in enumerate(arguments)
    ]
    view = derived(SessionState(), {}, Decisions(decided), [0.0])
    calls = [Part("call", given, n, f"c{n}", "Write") for n, given in enumerate(arguments)]
    view.update([Part("user", "go", "u"), *calls, Part("result", "ok", "r", "c0", "Write"), Part("reply", "so", "s")])
    economy = view.transcript.economy
    assert economy is not None
    assert not economy.ledger.held
    assert economy.ledger.total_tokens == view.transcript.tokens


def gone(number: int, text: str, **changes: Any) -> Decided:
    values: dict[str, Any] = {
        "kind": "result",
        "call_id": f"c{number}",
        "sha256": sha256_of(text),
        "item_id": f"c{number}",
        "content": "[gone]",
        "tokens_before": CharsCounter().count(text),
        "tokens": 40,
        "reason": "it pays",
    }
    return Decided(**{**values, **changes})


def read(number: int, text: str) -> list[Part]:
    return [
        Part("call", {"n": number}, ("c", number), f"c{number}", "Read"),
        Part("result", text, ("o", number), f"c{number}", "Read"),
    ]


@pytest.mark.parametrize(("replies_since", "saves"), [(0, False), (1, True)])
def test_a_part_that_was_sent_nobody_noted_how_often_saves_nothing(replies_since: int, saves: bool) -> None:
    texts = [f"{n} and more\n" * 900 for n in range(6)]
    decided = [gone(n, text, sent=True, replies_since=replies_since) for n, text in enumerate(texts)]
    view = derived(SessionState(), {}, Decisions(decided), [0.0])
    view.update([Part("user", "go " * 20_000, "u"), *[part for n, text in enumerate(texts) for part in read(n, text)]])
    economy = view.transcript.economy
    assert economy is not None
    assert economy.ledger.total_tokens == view.transcript.tokens
    assert (economy.ledger.saved != 0) == saves


def lines_of_a_resume(room: str, calls: int, keep_recent: dict[str, int] | None) -> int:
    """How many lines of a room run when each of ``calls`` results has left long after it came, each at a reply."""
    texts = [f"{n} and more\n" * 100 for n in range(calls)]
    decided = [gone(n, text, replies_since=(calls - n) // 2 or 1) for n, text in enumerate(texts)]
    view = derived(SessionState(), {}, Decisions(decided), [0.0], keep_recent=keep_recent)
    parts = [Part("user", "go", "u"), *[part for n, text in enumerate(texts) for part in read(n, text)]]
    with counted_lines(f"{OURS}/{room}") as lines:
        view.update(parts)
    return lines.run


@pytest.mark.slow
@pytest.mark.no_cover  # this is another tracer
@pytest.mark.parametrize("keep_recent", [None, {"Read": 5}])
@pytest.mark.parametrize("room", ["context", "eviction"])
def test_a_reply_looks_only_at_what_left_before_it(room: str, keep_recent: dict[str, int] | None) -> None:
    lines_of_a_resume(room, 1, keep_recent)  # what runs once only
    lines = [lines_of_a_resume(room, calls, keep_recent) for calls in (50, 200, 350)]
    first, second = [more - less for less, more in pairwise(lines)]
    assert second < 1.1 * first


@pytest.mark.parametrize(("kind", "keep_recent"), [("call", None), ("result", {"Read": 3})])
def test_copies_leave_the_ledger_with_the_first_of_them(kind: str, keep_recent: dict[str, int] | None) -> None:
    decisions = Decisions()
    view = derived(SessionState(), {}, decisions, [0.0], keep_recent)
    economy = view.transcript.economy
    assert economy is not None
    parts = [Part("user", "go", "u")]
    gone_tokens = 0
    for number in range(20):
        text = f"{number} is said again\n" * 600
        said, printed = (text, f"{number}") if kind == "call" else (f"{number}", text)
        copies = range(2) if number == 2 else range(1)
        parts += [Part("call", {"text": said}, ("call", number, copy), "", "Write") for copy in copies]
        parts += [Part("result", printed, ("result", number, copy), "", "Read") for copy in copies]
        view.update(parts)
        decisions.take(view.decision(view.transcript.plan()).decided)
        view.follow()
        assert economy.ledger.total_tokens == view.transcript.tokens, f"call {number}"
        assert economy.ledger.gone_tokens >= gone_tokens
        gone_tokens = economy.ledger.gone_tokens
    assert {(kind, 2, 0), (kind, 2, 1)} <= view.edits(parts).keys()


@pytest.mark.parametrize(("which", "misses"), [("own", 1), ("of a branch", 0), ("uncounted", 0)])
def test_only_a_bill_that_counted_this_history_is_that_of_its_reply(which: str, misses: int) -> None:
    beside = 700
    parts = [Part("user", "go " * 20_000, "u")]
    view = derived(SessionState(), {}, Decisions(), [0.0])
    for number in range(3):
        view.update(parts)
        counted = view.transcript.tokens + beside
        missed = number == 2
        if missed and which != "own":
            counted = 0 if which == "uncounted" else 900
        usage = Usage(cache_read_input_tokens=0 if missed else counted, cache_creation_input_tokens=counted or 900)
        view.bills.append(CallMade(number=number + 1, usage=usage, model="m", counted_tokens=counted))
        parts += read(number, f"{number} and more\n" * 200)
    again = derived(SessionState(), {}, Decisions(), [0.0])
    again.bills += view.bills
    again.update(parts)
    economy = again.transcript.economy
    assert economy is not None
    assert economy.ledger.misses == misses
