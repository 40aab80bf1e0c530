"""What a reader of the page meets in a real browser: a slow disk, a session that grows, words that are explained."""

import re
from pathlib import Path
from threading import Event
from typing import Self

import anyio.from_thread
import anyio.to_thread
import pytest
from playwright.sync_api import Browser, expect

from ctxfs.context.context import Context
from ctxfs.messages.messages import AssistantMessage, UserMessage
from ctxfs.storage import LocalSessions
from ctxfs.storage.local import LocalStore
from view.chromium import SETTLED, leads_to, watched
from view.served import serving
from view.test_browser import box, drawn
from view_session import SESSION

pytestmark = pytest.mark.service


class SlowSessions(LocalSessions):
    """Sessions on a slow disk: one is opened when ``may_open`` is set."""

    def __init__(self, directory: Path, may_open: Event) -> None:
        super().__init__(directory)
        self.may_open = may_open

    def store(self, session_id: str) -> LocalStore:
        return SlowStore(self.directory, session_id, self.may_open)


class SlowStore(LocalStore):
    """See ``SlowSessions``."""

    def __init__(self, directory: Path, session_id: str, may_open: Event) -> None:
        super().__init__(directory, session_id)
        self.may_open = may_open

    def open(self, *, create: bool, write: bool) -> Self:
        self.may_open.wait()
        return super().open(create=create, write=write)


@pytest.mark.parametrize(("keys", "title"), [("kkjk", "Call 28 of 30"), ("g", "Call 1 of 30")])
def test_keys_typed_while_the_journal_is_read_are_not_lost(browser: Browser, root: Path, keys: str, title: str) -> None:
    may_open = Event()
    with serving(SlowSessions(root, may_open)) as url, watched(browser, url) as page:
        try:
            page.goto(f"{url}session/{SESSION}", wait_until="commit")
            expect(page.locator(".loading")).to_be_visible()
            for key in keys:
                page.keyboard.press(key)
        finally:
            may_open.set()
        expect(page.locator("#call-title")).to_have_text(title)
        page.wait_for_function(SETTLED)


def test_what_is_looked_for_while_the_journal_is_read_is_not_taken_for_keys(browser: Browser, root: Path) -> None:
    may_open = Event()
    with serving(SlowSessions(root, may_open)) as url, watched(browser, url) as page:
        try:
            page.goto(f"{url}session/{SESSION}/items", wait_until="commit")
            expect(page.locator(".loading")).to_be_visible()
            page.keyboard.press("/")
            page.keyboard.type("stock")
        finally:
            may_open.set()
        expect(page.locator("#item-filter")).to_have_value("stock")
        expect(page.locator("#items .rows li").first).to_contain_text("stock")
        expect(page).to_have_url(re.compile("filter=stock"))


def test_a_call_shows_what_changed_since_the_one_before_and_what_was_evicted_for_it(browser: Browser, url: str) -> None:
    with watched(browser, url, viewport={"width": 1400, "height": 900}) as page:
        page.goto(f"{url}session/{SESSION}?call=12")
        drawn(page)
        expect(page.locator("#call .row .mark", has_text="evicted")).to_have_count(1)
        marked = page.locator("#call .row", has=page.locator(".mark")).locator("a")
        expect(marked).to_have_attribute("data-item", "call_006")
        change = page.locator("#since + .changes .change-evicted")
        expect(change).to_contain_text("read_file(shop/db.py)")
        expect(change).to_contain_text("read_file keeps its last 4 (setting: keep_recent)")
        with leads_to(page, "call=11"):
            page.locator("#since a").click()
        expect(page.locator("#until")).to_have_text("What changed from here to call 12")
        expect(page.locator("#until + .changes .change-evicted")).to_contain_text("read_file(shop/db.py)")
        page.goto(f"{url}session/{SESSION}?call=1")
        expect(page.locator("#since")).to_have_count(0)


def test_an_item_is_in_sight_wherever_its_row_was_chosen(browser: Browser, url: str) -> None:
    with watched(browser, url, viewport={"width": 1400, "height": 700}) as page:
        page.goto(f"{url}session/{SESSION}?call=30&rows=all")
        drawn(page)
        row = page.locator("#until + .changes a, #call .row a").last
        row.scroll_into_view_if_needed()
        with leads_to(page, "item="):
            row.click()
        expect(page.locator("#item-title")).to_be_in_viewport()


def test_words_and_lines_are_explained_where_they_stand(browser: Browser, url: str) -> None:
    with watched(browser, url, viewport={"width": 400, "height": 900}) as page:
        page.goto(f"{url}session/{SESSION}")
        drawn(page)
        expect(page.locator("#facts dfn")).to_have_text(["Evicted", "Read back", "Without eviction"])
        dashed = page.locator(".legend span", has=page.locator("i.dashed"))
        expect(dashed).to_have_text(
            ["window 36k", "without eviction, estimated", "it would not have fitted from call 14 on"]
        )
        expect(page.locator("#facts dl")).to_contain_text("would not have fitted from call 14 on")
        page.goto(f"{url}session/hostile")  # which would have fitted its window: so it says what that would have cost
        expect(page.locator("#facts dl")).to_contain_text("Without eviction")
        expect(page.locator("#facts dl")).not_to_contain_text("fitted")


AT_PLACE = """([text, y]) => {
    const focused = document.querySelector("#call a:focus");
    return focused && focused.textContent.includes(text) && Math.abs(focused.getBoundingClientRect().y - y) <= 1;
}"""
"""Whether the row with a text has the focus, and is as far down in the window."""


def test_a_session_that_grows_keeps_the_readers_focus_and_place(browser: Browser, tmp_path: Path) -> None:
    async def begin() -> Context:
        context = Context("live", root_path=tmp_path, model="", window=None, pricing=None)
        await context.open()
        for number in range(1, 41):
            await context.add(UserMessage(f"question {number}"))
            await context.add(AssistantMessage(f"answer {number}"))
        return context

    async def go_on(context: Context, number: int) -> None:
        await context.add(UserMessage(f"question {number}"))
        await context.add(AssistantMessage(f"answer {number}"))

    with anyio.from_thread.start_blocking_portal() as portal, serving(tmp_path) as url:
        context = portal.call(begin)
        try:
            with watched(browser, url, viewport={"width": 1000, "height": 500}) as page:
                page.goto(f"{url}session/live")
                drawn(page)
                row = page.locator("#call a[data-item]", has_text="question 20")
                row.focus()
                before = box(page, "#call a:focus")
                portal.call(go_on, context, 41)
                expect(page.locator("#call-title")).to_have_text("Call 41 of 41")
                page.wait_for_function(AT_PLACE, arg=["question 20", before["y"]])  # each message swaps the panel
                page.locator("#call a[rel=prev]").focus()
                portal.call(go_on, context, 42)
                expect(page.locator("#call-title")).to_have_text("Call 42 of 42")
                expect(page.locator("#call a[rel=prev]")).to_be_focused()
        finally:
            portal.call(context.close)
