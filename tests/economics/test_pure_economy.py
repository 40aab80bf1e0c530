"""The economy of a context without a context: what it makes of items, and what a rewrite in the middle leaves of it."""

from dataclasses import replace

from ctxfs.context.entry import EntryRules, Known, recorded_entry
from ctxfs.eviction.candidates import Candidates, EvictionOptions
from ctxfs.eviction.economics.economy import ModelPricing, SessionPricing
from ctxfs.eviction.economics.parameters import EvictionParameters, ItemKind
from ctxfs.eviction.offload_plan import Trim
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.messages import CharsCounter
from ctxfs.messages.items import ContentRange, ContextItem
from ctxfs.messages.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ctxfs.messages.names import NameAllocator
from ctxfs.messages.rates import Rates
from session_items import make_item

COUNTER = CharsCounter()
TEXT = "a line of a file that was written\n" * 200
CALL = {"type": "tool_use", "id": "call_1", "name": "Write", "input": {"path": "a.py", "content": TEXT, "mode": "w"}}


class Session:
    """An economy, and the items that it was given."""

    def __init__(self, **parameters: float) -> None:
        settings = ModelPricing(clock=lambda: 0.0, parameters=EvictionParameters(**parameters))  # type: ignore[arg-type]
        self.candidates = Candidates()
        self.economy = SessionPricing(settings, self.candidates)
        self.known = Known(NameAllocator())
        self.items: list[ContextItem] = []

    def take(self, item_id: str, message: Message) -> ContextItem:
        content = message.content
        text = content if isinstance(content, str) else str(content)
        placeholder_tokens = 5 if isinstance(message, ToolMessage) else None
        item = make_item(item_id, message, COUNTER.count(text), placeholder_tokens=placeholder_tokens)
        self.candidates.enter(item, f"/s/{item.name}", self.options(item))
        self.economy.entered(item)
        self.items.append(item)
        return item

    def options(self, item: ContextItem) -> EvictionOptions:
        rules = EntryRules(counter=COUNTER, base="/s", policy=OffloadPolicy(digest_tokens=0), by_price=True)
        return recorded_entry(item, self.known, rules).options

    @property
    def tokens(self) -> int:
        return sum(item.token_count for item in self.items)


def test_a_reply_is_its_text_and_each_call_whose_arguments_could_leave() -> None:
    session = Session()
    reply = session.take("msg_1", AssistantMessage(({"type": "text", "text": "I write"}, CALL)))
    (trim,) = session.options(replace(reply, id="msg_2")).trims
    assert trim.arguments["path"] == "a.py"
    assert trim.arguments["mode"] == "w"
    assert trim.arguments["content"].startswith("[Content offloaded: Read stored/")
    assert trim.stored.message.content[0] == {"type": "text", "text": TEXT, "argument": "content", "json": False}
    assert set(session.economy.ledger.held) == {"call_1.input"}
    assert session.economy.ledger.total_tokens == session.tokens


def test_the_arguments_of_a_reply_that_was_moved_away_cannot_leave_any_more() -> None:
    session = Session()
    for number in (1, 2):
        session.take(f"msg_{number}", AssistantMessage(({**CALL, "id": f"call_{number}"},)))
    session.candidates.left(["msg_1"])
    assert [len(session.candidates.trims_of(f"msg_{number}")) for number in (1, 2)] == [0, 1]


def test_arguments_that_left_are_not_looked_at_again() -> None:
    session = Session()
    reply = session.take("msg_1", AssistantMessage((CALL,)))
    assert session.options(replace(reply, trimmed=(0,))) == EvictionOptions()


def test_a_rewrite_in_the_middle_keeps_what_could_leave_and_forgets_what_is_gone() -> None:
    session = Session()
    session.take("msg_0", UserMessage("do it"))
    session.take("msg_1", AssistantMessage((CALL,)))
    session.take("call_1", ToolMessage("call_1", "Write", "written\n" * 500))
    session.take("msg_2", AssistantMessage("done"))
    economy = session.economy
    assert set(economy.ledger.held) == {"call_1.input", "call_1"}

    economy.rebuilt(session.items, unchanged=0)
    assert set(economy.ledger.held) == {"call_1.input", "call_1"}
    assert economy.ledger.total_tokens == economy.ledger.new_tokens == session.tokens

    economy.rebuilt(session.items[:1] + session.items[3:], unchanged=1)
    assert economy.ledger.held == {}
    assert economy.plan() == ()
    assert economy.decisions() == ()


def test_after_a_rewrite_arguments_still_leave_by_their_price() -> None:
    session = Session(max_loss=1000.0)
    session.take("msg_1", AssistantMessage((CALL,)))
    session.take("call_1", ToolMessage("call_1", "Write", "ok"))
    session.economy.rebuilt(session.items, unchanged=0)
    for number in range(2, 200):
        session.take(f"msg_{number}", AssistantMessage("on"))
    (step,) = session.economy.plan()
    assert isinstance(step, Trim)
    assert (step.item_id, step.stored.id) == ("msg_1", "call_1.input")
    assert step.reason.startswith("evicted")


def test_what_was_read_back_stays_as_long_as_a_file_that_was_read() -> None:
    session = Session()
    page = replace(
        make_item("call_2", ToolMessage("call_2", "Bash", "printed\n" * 300), 600, placeholder_tokens=5),
        source=ContentRange(item_id="call_1", path="/s/call_1", first_line=1, last_line=300),
    )
    session.candidates.enter(page, "/s/call_2", session.options(page))
    session.economy.entered(page)
    (held,) = session.economy.ledger.held.values()
    assert held.candidate.kind is ItemKind.FILE


def test_a_resumed_economy_knows_what_the_one_before_knew_of_the_same_items() -> None:
    before, session = Session(), Session()
    for one in (before, session):
        one.take("msg_0", UserMessage("do it"))
        one.take("msg_1", AssistantMessage((CALL,)))
    before.economy.ledger.saved = 100.0
    before.economy.pin(["call_1.input"], pinned=True)
    session.economy.resumed(before.economy)
    assert session.economy.ledger is before.economy.ledger
    assert not session.economy.ledger.held["call_1.input"].candidate.pinned


def test_where_the_items_are_others_it_knows_what_they_cost_and_saved() -> None:
    before, session = Session(), Session()
    before.take("msg_0", UserMessage("do it"))
    for one in (before, session):
        one.take("msg_1", AssistantMessage((CALL,)))
    before.economy.ledger.saved = 100.0
    session.economy.resumed(before.economy)
    assert session.economy.ledger.total_tokens == session.tokens
    assert session.economy.ledger.saved == 100.0


def test_a_placeholder_that_may_shrink_is_held_as_what_it_has_more_than_the_short_one() -> None:
    session = Session()
    item = make_item("call_1", ToolMessage("call_1", "Bash", "a long placeholder"), 300, placeholder_tokens=20)
    item = replace(item, offloaded=True, destroyed=True)
    assert item.can_shrink
    session.candidates.enter(item, "/s/call_1", session.options(item))
    session.economy.entered(item)
    (held,) = session.economy.ledger.held.values()
    assert (held.candidate.tokens, held.candidate.placeholder_tokens) == (280, 0)
    assert session.economy.ledger.total_tokens == 300


def test_a_host_says_what_its_cache_costs_and_whether_a_change_rewrites_all_of_it() -> None:
    economy = Session().economy
    economy.follow_host(None, rewrites_all=True)
    assert economy.ledger.rates.rewrites_all
    economy.follow_host(ModelPricing(rates=Rates(read=0.5, write=1.0, output=4.0)), rewrites_all=False)
    assert (economy.ledger.rates.read, economy.ledger.rates.rewrites_all) == (0.5, False)
    economy.follow_host(
        ModelPricing(rates=Rates(read=0.5, write=1.0, output=4.0, rewrites_all=True)), rewrites_all=False
    )
    assert economy.ledger.rates.rewrites_all
