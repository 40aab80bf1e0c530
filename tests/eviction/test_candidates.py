"""Placeholders are written when they are needed, and nothing that is decided depends on when that is."""

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from ctxfs.context.commit import evicted, trimmed
from ctxfs.context.entry import EntryRules, Known, build_entry
from ctxfs.eviction.candidates import Candidates, EvictionOptions
from ctxfs.eviction.compaction import ArchiveSlot, SelectiveCompaction, View
from ctxfs.eviction.economics.economy import ModelPricing, SessionPricing
from ctxfs.eviction.economics.held import Candidate
from ctxfs.eviction.economics.ledger import Ledger
from ctxfs.eviction.economics.parameters import EvictionParameters, ItemKind
from ctxfs.eviction.offload_plan import Offload, Trim
from ctxfs.eviction.placeholder.attach import Placeholder
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.messages import CharsCounter
from ctxfs.messages.incoming import Incoming
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ctxfs.messages.names import NameAllocator
from session_items import make_item

WORDS = " ".join(f"identifier_{n:05d}" for n in range(1500))


def rules(*, by_price: bool = False) -> EntryRules:
    return EntryRules(counter=CharsCounter(), base="/s", policy=OffloadPolicy(digest_tokens=200), by_price=by_price)


def test_entering_writes_no_placeholder() -> None:
    messages: list[Message] = [UserMessage(WORDS), ToolMessage("c", "Read", WORDS)]
    for by_price in (False, True):
        for message in messages:
            entry = build_entry(Incoming(message=message), Known(NameAllocator()), rules(by_price=by_price))
            placeholder = entry.options.placeholder
            assert entry.item.placeholder is None
            assert placeholder is not None
            assert (placeholder.is_written, placeholder.known_tokens) == (False, placeholder.least_tokens)
            text, tokens = placeholder.write()
            assert placeholder.least_tokens < tokens == CharsCounter().count(text)
            assert (placeholder.is_written, placeholder.known_tokens) == (True, tokens)


def test_what_has_no_smaller_placeholder_cannot_leave() -> None:
    entry = build_entry(Incoming(message=ToolMessage("c", "Read", "short")), Known(NameAllocator()), rules())
    candidates = Candidates()
    candidates.enter(entry.item, "/s/c", entry.options)
    assert not candidates.can_leave("c")
    assert candidates.known_tokens("c") is None
    assert candidates.written(entry.item) == entry.item


def test_a_step_has_the_reason_that_is_given() -> None:
    call = {"type": "tool_use", "id": "c", "name": "Write", "input": {"text": WORDS}}
    candidates = Candidates()
    known = Known(NameAllocator())
    for message in (AssistantMessage((call,)), ToolMessage("c", "Write", WORDS)):
        entry = build_entry(Incoming(message=message), known, rules(by_price=True))
        candidates.enter(entry.item, f"/s/{entry.item.id}", entry.options)
    (trim,) = candidates.trims_of("msg_001")
    assert candidates.step(trim.stored.id, trim.reason) is trim
    assert candidates.step(trim.stored.id, "another") == replace(trim, reason="another")
    assert candidates.step("c", "another").reason == "another"
    assert candidates.unwritten_tokens(["c", trim.stored.id]) == 0
    assert candidates.sizes(["c"]).keys() == {"c"}


def test_sizes_are_those_of_the_placeholders_that_were_written() -> None:
    candidates = Candidates()
    known = Known(NameAllocator())
    for item_id in ("a", "b"):
        entry = build_entry(Incoming(message=ToolMessage(item_id, "Read", WORDS)), known, rules())
        candidates.enter(entry.item, f"/s/{item_id}", entry.options)
    assert candidates.sizes(["a", "b"]) == {}
    assert candidates.unwritten_tokens(["a", "b"]) == 2 * CharsCounter().count(WORDS)
    candidates.write(["a", "nothing"])
    assert candidates.sizes(["a", "b"]) == {"a": candidates.known_tokens("a")}
    assert candidates.unwritten_tokens(["a", "b"]) == CharsCounter().count(WORDS)


def test_a_compaction_writes_placeholders_only_of_what_it_evicts() -> None:
    items, candidates, written = [], Candidates(), list[str]()
    for n in range(12):
        reply, result = f"m{n}", f"c{n}"
        call = {"type": "tool_use", "id": result, "name": "Read", "input": {}}
        items += [
            make_item(reply, AssistantMessage((call,))),
            make_item(result, ToolMessage(result, "Read", "x"), 5_000),
        ]
    for item in items:
        if isinstance(item.message, ToolMessage):

            def write(item_id: str = item.id) -> tuple[str, int]:
                written.append(item_id)
                return "gone", 5

            candidates.enter(item, f"/s/{item.id}", EvictionOptions(Placeholder(5, write)))
    view = View(
        items=items,
        counted_tokens=0,
        paths={item.id: f"/s/{item.id}" for item in items},
        slot=ArchiveSlot(item_id="a", name="a", path="/s/a"),
        with_placeholder=candidates.written,
    )
    plan = SelectiveCompaction().plan(view, policy=OffloadPolicy(), free_tokens=9_000, counter=CharsCounter())
    assert [step.item_id for step in plan.offloads] == ["c0", "c1"]
    assert len(written) <= 3


@dataclass(frozen=True)
class Call:
    """A call of a model: its large arguments, if any, and its result, whose placeholder has more than the least."""

    argument_tokens: int
    tokens: int
    more_tokens: int
    path: int


CALLS = st.builds(
    Call,
    argument_tokens=st.sampled_from([0, 0, 400]),
    tokens=st.sampled_from([40, 60, 500, 2_000, 9_000]),
    more_tokens=st.integers(0, 45),
    path=st.integers(0, 3),
)
LEAST = 30


class Play:
    """A session that takes calls in, one after the other; ``exact``: every placeholder is written when it enters."""

    def __init__(self, settings: ModelPricing, *, exact: bool) -> None:
        self.candidates = Candidates()
        self.economy = SessionPricing(settings, self.candidates)
        self.items: dict[str, ContextItem] = {}
        self._exact = exact

    def call(self, number: int, call: Call) -> list[tuple[str, int, str]]:
        """Take in a call and its result; what is evicted then."""
        arguments = {"path": f"file_{call.path}", "content": "x"}
        block = {"type": "tool_use", "id": f"c{number}", "name": "Write", "input": arguments}
        reply = make_item(f"m{number}", AssistantMessage((block,)), 20 + call.argument_tokens)
        trims = (self._trim(reply, call),) if call.argument_tokens else ()
        self._enter(reply, EvictionOptions(trims=trims))
        result = make_item(f"c{number}", ToolMessage(f"c{number}", "Read", "x"), call.tokens)
        self._enter(result, EvictionOptions(self._placeholder(call)))
        return self._evict()

    def _placeholder(self, call: Call) -> Placeholder:
        size = LEAST + call.more_tokens
        return Placeholder(size if self._exact else LEAST, lambda: ("gone", size))

    def _trim(self, reply: ContextItem, call: Call) -> Trim:
        return Trim(
            item_id=reply.id,
            block=0,
            arguments={},
            stored=make_item(f"{reply.id}.input", reply.message),
            path="/s/input",
            tokens_before=call.argument_tokens,
            tokens_after=LEAST,
            reason="",
        )

    def _enter(self, item: ContextItem, options: EvictionOptions) -> None:
        self.items[item.id] = item
        self.candidates.enter(item, f"/s/{item.id}", options)
        self.economy.entered(item)

    def _evict(self) -> list[tuple[str, int, str]]:
        steps, left = self.economy.plan(), list[str]()
        for step in steps:
            old = self.items[step.item_id]
            self.items[old.id] = evicted(old, step) if isinstance(step, Offload) else trimmed(old, step)
            left.append(step.item_id if isinstance(step, Offload) else step.stored.id)
        shrinkable = {i: self.items[i] for i in left if i in self.items and self.items[i].can_shrink}
        self.economy.left(left, shrinkable)
        self.candidates.left(left, shrinkable)
        assert not self.economy.plan()
        return [(step.item_id, step.tokens_after, step.reason) for step in steps]


@given(
    st.lists(CALLS, max_size=40),
    st.sampled_from([EvictionParameters(), EvictionParameters(max_loss=5.0)]),
)
def test_plans_are_the_same_as_if_every_placeholder_had_been_written(
    calls: list[Call], parameters: EvictionParameters
) -> None:
    now = [0.0]
    settings = ModelPricing(clock=lambda: now[0], parameters=parameters)
    lazy, exact = Play(settings, exact=False), Play(settings, exact=True)
    for number, call in enumerate(calls):
        now[0] += 400.0 if number % 7 == 6 else 1.0
        assert lazy.call(number, call) == exact.call(number, call)
    assert lazy.economy.ledger.total_tokens == exact.economy.ledger.total_tokens


def held(item_id: str, tokens: int, placeholder_tokens: int) -> Candidate:
    return Candidate(id=item_id, kind=ItemKind.FILE, tokens=tokens, placeholder_tokens=placeholder_tokens)


def state(ledger: Ledger) -> list[tuple[Candidate, int, float, int]]:
    return [(h.candidate, h.saved_tokens, h.hazard, h.tokens_after) for h in ledger.held.values()]


def test_a_ledger_with_exact_sizes_is_the_one_that_knew_them_from_the_start() -> None:
    known = Ledger().added([held("a", 500, 60), held("b", 700, 50), 30]).replied([10])
    exact = Ledger().added([held("a", 500, 20), held("b", 700, 20), 30]).replied([10])
    assert exact.resized({"a": 60, "b": 50, "c": 9})
    assert state(exact) == state(known)
    assert not exact.resized({"a": 60, "c": 9})


def test_what_saves_too_little_with_its_exact_size_is_no_longer_held() -> None:
    known = Ledger().added([40, 30, held("b", 700, 50), 25, 10])
    exact = Ledger().added([held("a", 40, 20), 30, held("b", 700, 50), held("c", 25, 10), 10])
    assert exact.resized({"a": 35, "c": 20})
    assert (state(exact), exact.total_tokens) == (state(known), known.total_tokens)
    alone = Ledger().added([held("a", 40, 20)])
    alone.resized({"a": 35})
    assert not alone.held
