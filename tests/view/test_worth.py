"""What the page says that evictions were worth."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from ctxfs.context.context import Context
from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContentRange
from ctxfs.messages.messages import AssistantMessage, UserMessage
from ctxfs.session.records import CallMade, Record, Restored
from ctxfs.storage import LocalSessions
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.view.activity import Activity
from ctxfs.view.activity_builder import ActivityBuilder
from ctxfs.view.findings import Unfinished
from ctxfs.view.sources import OpenSession
from ctxfs.view.worth import Unevicted, unevicted, worth
from patience import HANGS_S
from session_items import stored_record
from view.test_activity import BEGINNING, PRICES, asked, bill, replaced, result, told

UNIT = PRICES.input / 1e6
READ, REWRITE = 0.1, 1.25 - 0.1


CACHED = CallMade(number=1, usage=Usage(cache_read_input_tokens=100, output_tokens=10), model="m", made_at=5.0)
UNCACHED = CallMade(number=1, usage=Usage(input_tokens=100, output_tokens=10), model="m", made_at=5.0)


def session(*, bills: Sequence[int] = (1, 2, 3, 4), billed: CallMade = CACHED) -> Activity:
    """Four calls; before the third one ``call_1`` leaves, which the second one had sent."""
    parts: list[Record] = [*BEGINNING[:3]]
    steps: Sequence[tuple[int, Sequence[Record]]] = (
        (1, [result(1, 1_000), asked(2, "b.py")]),
        (2, [result(2, 500), replaced("call_1", 40), asked(3)]),
        (
            3,
            [
                result(3, 50, source=ContentRange(item_id="call_1", path="call_1.json", first_line=1, last_line=9)),
                asked(4),
            ],
        ),
        (4, []),
    )
    for number, between in steps:
        parts += [billed] if number in bills else []
        parts += between
    return told(*parts, prices=PRICES)


def test_an_eviction_saves_reading_and_costs_writing_again() -> None:
    activity = session()
    life = activity.items["call_1"]
    found = worth(activity, life, life.events[0])
    assert (found.calls, found.saved_tokens, found.rewritten_tokens, found.others) == (2, 2 * 960, 50, 0)
    assert found.saved_usd == pytest.approx(1_920 * READ * UNIT)
    assert found.rewritten_usd == pytest.approx(50 * REWRITE * UNIT)
    assert found.net_usd == pytest.approx((1_920 * READ - 50 * REWRITE) * UNIT)
    assert replace(found, others=1).net_usd is None, "the cost is not its own"


def test_what_was_never_sent_saves_being_written() -> None:
    activity = told(*BEGINNING[:3], bill(0, 1), result(1, 1_000), replaced("call_1", 40), asked(2), prices=PRICES)
    life = activity.items["call_1"]
    found = worth(activity, life, life.events[0])
    assert found.rewritten_tokens == 0
    assert found.saved_usd == pytest.approx(960 * 1.25 * UNIT)


def test_an_eviction_after_the_last_call_has_saved_and_cost_nothing_yet() -> None:
    activity = told(*BEGINNING[:3], bill(0, 1), result(1, 1_000), replaced("call_1", 40), prices=PRICES)
    life = activity.items["call_1"]
    found = worth(activity, life, life.events[0])
    assert (found.calls, found.saved_tokens, found.saved_usd, found.rewritten_tokens) == (0, 0, 0.0, 0)


def test_nothing_is_saved_once_it_is_back_and_no_dollars_are_known_without_prices() -> None:
    restored = Restored(item_id="call_1", reason="asked")
    activity = told(*BEGINNING, stored_record(), replaced("call_1", 40), asked(3), restored, asked(4), asked(5))
    life = activity.items["call_1"]
    found = worth(activity, life, life.events[0])
    assert (found.calls, found.saved_tokens) == (1, 960)
    assert (found.saved_usd, found.rewritten_usd, found.net_usd) == (None, None, None)


def test_the_cost_without_eviction_has_neither_its_savings_nor_its_costs() -> None:
    activity = session()
    paid = [call.usd for call in activity.calls if call.usd is not None]
    found = unevicted(activity, window_tokens=None)
    assert found.too_long_from is None
    assert found.usd[:2] == pytest.approx(paid[:2])
    assert found.usd[2] == pytest.approx(paid[2] + UNIT * (960 * READ - 50 * REWRITE))
    assert found.usd[3] == pytest.approx(paid[3] + UNIT * (960 * READ - 50 * 1.25))


def test_where_bills_say_that_nothing_was_cached_a_token_saves_its_full_price_and_nothing_is_written_again() -> None:
    activity = session(billed=UNCACHED)
    life = activity.items["call_1"]
    found = worth(activity, life, life.events[0])
    assert (found.saved_tokens, found.rewritten_tokens, found.rewritten_usd) == (2 * 960, 0, 0.0)
    assert found.saved_usd == pytest.approx(1_920 * UNIT)
    paid = [call.usd for call in activity.calls if call.usd is not None]
    assert unevicted(activity, window_tokens=None).usd[2] == pytest.approx(paid[2] + UNIT * 960)


def test_it_ends_where_the_context_would_not_have_fitted() -> None:
    found = unevicted(session(), window_tokens=1_100)
    assert (len(found.usd), found.too_long_from) == (2, 3)


def test_it_is_not_known_without_all_bills() -> None:
    assert unevicted(session(bills=(1, 2)), window_tokens=None) == Unevicted()
    assert unevicted(Activity(), window_tokens=None) == Unevicted()


@pytest.mark.anyio
async def test_what_a_writer_left_unrecorded_is_a_warning_once_it_is_gone(tmp_path: Path) -> None:
    async with Context("s", root_path=tmp_path, model="", window=None, pricing=None) as context:
        await context.add(UserMessage("question"))
        opened = await OpenSession(LocalSessions(tmp_path), "s").open()
        journal = tmp_path / "s" / LOG_NAME
        assert opened.unfinished == Unfinished()
    await opened.refresh()
    assert opened.unfinished == Unfinished()
    with journal.open("ab") as file:
        file.write(b'{"half')
    await opened.refresh()
    assert opened.unfinished.torn_bytes == 6
    await opened.close()


@pytest.mark.anyio
async def test_a_page_is_made_beside_the_event_loop_and_again_when_its_session_has_grown(tmp_path: Path) -> None:
    """It takes seconds where a session is long: other requests are answered meanwhile."""
    made: list[int] = []

    def make(_: OpenSession) -> str:
        made.append(threading.get_ident())
        return "page"

    async with Context("s", root_path=tmp_path, model="", window=None, pricing=None) as context:
        await context.add(UserMessage("question"))
        opened = await OpenSession(LocalSessions(tmp_path), "s").open()
        assert [await opened.derived(str, make) for _ in range(2)] == ["page", "page"]
        assert len(made) == 1
        await context.add(UserMessage("another"))
        await opened.refresh()
        await opened.derived(str, make)
    assert len(made) == 2
    assert threading.get_ident() not in made
    await opened.close()


class _Held(ActivityBuilder):
    """One that takes nothing in before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()

    def feed(self, records: Iterable[Record]) -> None:
        self.has_begun.set()
        assert self.may_go_on.wait(HANGS_S)
        super().feed(records)


@pytest.mark.anyio
async def test_records_are_taken_in_once_when_a_tab_is_closed_meanwhile(tmp_path: Path) -> None:
    async with Context("s", root_path=tmp_path, model="", window=None, pricing=None) as context:
        await context.add(UserMessage("question"))
        opened = OpenSession(LocalSessions(tmp_path), "s")
        opened._builder = held = _Held()  # noqa: SLF001 - so that the request can be cancelled at the right moment
        held.may_go_on.set()
        await opened.open()
        await context.add(AssistantMessage("answer"))
        held.has_begun.clear()
        held.may_go_on.clear()
        async with anyio.create_task_group() as requests:
            requests.start_soon(opened.refresh)
            await anyio.to_thread.run_sync(held.has_begun.wait, HANGS_S)
            requests.cancel_scope.cancel()
            held.may_go_on.set()
        await opened.refresh()
        afresh = await OpenSession(LocalSessions(tmp_path), "s").open()
        assert opened.records == afresh.records
        assert opened.activity == afresh.activity
        assert len(opened.activity.calls) == 1
        await afresh.close()
    await opened.close()
