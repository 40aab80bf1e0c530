"""The page in a real browser: every view at three widths, by mouse and keys, with hostile content, while it grows."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from ctxfs.context.context import Context
from ctxfs.messages.messages import AssistantMessage, UserMessage
from view.chromium import leads_to, watched
from view.served import serving
from view_session import SESSION

pytestmark = pytest.mark.service

WIDTHS = (400, 800, 1400)
VIEWS = (
    *("", f"session/{SESSION}", f"session/{SESSION}?call=12&item=call_009", f"session/{SESSION}/items"),
    *(f"session/{SESSION}/warnings", "session/hostile?item=call_1", "search?find=reserve"),
)


def box(page: Page, selector: str) -> Any:
    found = page.locator(selector).bounding_box()
    assert found is not None, selector
    return found


@contextmanager
def held_back(page: Page, pattern: str) -> Iterator[None]:
    """Answer the requests whose address matches ``pattern`` when all that is done inside was done."""
    held: list[Route] = []
    is_over = False
    page.route(re.compile(pattern), lambda route: route.continue_() if is_over else held.append(route))
    yield
    is_over = True
    for route in held:
        route.continue_()


def drawn_colours(page: Page, selector: str) -> int:
    """How many colours a chart has: one that was not drawn has one."""
    script = """(canvas) => {
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data, found = new Set();
        for (let i = 0; i < data.length; i += 4) found.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
        return found.size;
    }"""
    return int(page.locator(selector).evaluate(script))


def drawn(page: Page) -> None:
    page.locator("#chart-context canvas").wait_for()


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (400, "dark"), (800, "dark"), (1400, "light")])
def test_every_view_fits_and_is_accessible(browser: Browser, url: str, width: int, scheme: Any) -> None:
    for view in VIEWS:
        with watched(browser, url, viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
            page.goto(url + view)
            if page.locator("#chart-context").count():
                drawn(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view
            found = Axe().run(page).response["violations"]
            assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found] == [], view


def test_the_panels_stand_side_by_side_where_there_is_room(browser: Browser, url: str) -> None:
    for width in WIDTHS:
        with watched(browser, url, viewport={"width": width, "height": 900}) as page:
            page.goto(f"{url}session/{SESSION}?item=call_009")
            drawn(page)
            call, item, chart = box(page, "#call"), box(page, "#item"), box(page, "#chart-context canvas")
            assert chart["y"] < call["y"]
            assert chart["width"] > width * 0.8
            if width == 1400:
                assert abs(call["y"] - item["y"]) < 2
                assert item["x"] > call["x"] + call["width"]
            else:
                assert item["y"] > call["y"] + call["height"]
            assert drawn_colours(page, "#chart-context canvas") > 5
            assert drawn_colours(page, "#chart-cost canvas") > 2


def test_a_mark_opens_its_call_and_its_item(browser: Browser, url: str) -> None:
    for width in (400, 1400):
        with watched(browser, url, viewport={"width": width, "height": 900}) as page:
            page.goto(f"{url}session/{SESSION}?call=12&item=call_008&how=tail")
            drawn(page)
            lanes = page.locator("#chart-events .u-over")
            at = box(page, "#chart-events .u-over")
            with leads_to(page, "item=call_003"):  # the second of three lanes is "read back"
                lanes.click(position={"x": at["width"] * 19.5 / 30, "y": at["height"] / 2})
            assert "call=20" in page.url
            assert "how=" not in page.url
            expect(page.locator("#call-title")).to_contain_text("Call 20")
            expect(page.locator("#item-title")).to_have_text("read_file(shop/cart.py)")
            expect(page.locator("#item-title")).to_be_in_viewport()


def test_a_long_content_is_in_a_box_until_all_of_it_is_asked_for(browser: Browser, url: str) -> None:
    for width in WIDTHS:
        with watched(browser, url, viewport={"width": width, "height": 900}) as page:
            page.goto(f"{url}session/{SESSION}?call=12&item=call_008")
            assert box(page, "#item .content")["height"] <= 900
            page.get_by_label("Show all").check()
            assert box(page, "#item .content")["height"] > 2_000


def test_a_note_says_what_its_items_are(browser: Browser, url: str) -> None:
    with watched(browser, url, viewport={"width": 1400, "height": 900}) as page:
        page.goto(f"{url}session/{SESSION}/warnings")
        again = page.locator(".finding", has_text="made again").locator(".row").first
        expect(again).to_contain_text("read_file(shop/checkout.py) call_002")
        expect(again.locator(".size")).to_have_text("3,494 tokens")
        with leads_to(page, "item=call_002"):
            again.locator("a").click()
        expect(page.locator("#item-title")).to_have_text("read_file(shop/checkout.py)")


def test_keys_go_from_call_to_call(browser: Browser, url: str) -> None:
    with watched(browser, url) as page:
        page.goto(f"{url}session/{SESSION}?call=5")
        drawn(page)
        title = page.locator("#call-title")
        for key, number in (("j", 6), ("j", 7), ("k", 6), ("g", 1), ("Shift+G", 30)):
            with leads_to(page, f"call={number}"):
                page.keyboard.press(key)
            expect(title).to_have_text(re.compile(rf"^Call {number} of 30$"))
        page.keyboard.press("?")
        expect(page.locator("#help")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#help")).to_be_hidden()


def test_keys_that_come_faster_than_the_answers_add_up(browser: Browser, url: str) -> None:
    with watched(browser, url) as page:
        page.goto(f"{url}session/{SESSION}?call=5")
        with leads_to(page, "call=8"), held_back(page, r"\?call="):
            for key in "jjjjkj":
                page.keyboard.press(key)
            page.locator("#call a[rel=prev]").click()
        expect(page.locator("#call-title")).to_have_text(re.compile("^Call 8 of 30$"))
        page.go_back()
        page.wait_for_url("**/*call=5")
        expect(page.locator("#call-title")).to_have_text(re.compile("^Call 5 of 30$"))


def test_what_is_typed_before_an_answer_is_there_is_kept(browser: Browser, url: str) -> None:
    with watched(browser, url) as page:
        page.goto(f"{url}session/{SESSION}?item=call_009&how=placeholder")
        full, tail = (page.locator(f"#item .hows a[href*='how={how}']") for how in ("full", "tail"))
        with leads_to(page, "how=full"), held_back(page, "how=full"):
            full.click()
            page.keyboard.press("/")
            page.keyboard.type("work")
        page.keyboard.type("er")
        with leads_to(page, "find=worker"), held_back(page, "find=worker"):
            with held_back(page, "how=tail"):
                tail.click()
                page.keyboard.press("/")
                page.keyboard.press("Enter")
            page.evaluate("fetch(location).then((answer) => answer.text())")  # the answer that came too late is there
        expect(page.locator("#item .note")).to_have_text("9 lines match")
        page.goto(f"{url}session/{SESSION}/items")
        with leads_to(page, "filter=call_009"), held_back(page, "filter=call_0&"):
            page.keyboard.press("/")
            with page.expect_request(re.compile("filter=call_0&")):
                page.keyboard.type("call_0")
            page.keyboard.type("09")
        expect(page.locator("#items .rows li")).to_have_count(1)
        expect(page.locator("#item-filter")).to_have_value("call_009")


def test_the_chart_zooms_and_opens_a_call(browser: Browser, url: str) -> None:
    with watched(browser, url, viewport={"width": 1400, "height": 900}) as page:
        page.goto(f"{url}session/{SESSION}")
        drawn(page)
        plot, everything = box(page, "#chart-context .u-over"), page.locator("#all-calls")
        expect(everything).to_be_hidden()
        middle = plot["y"] + plot["height"] / 2
        page.mouse.move(plot["x"] + plot["width"] * 0.3, middle)
        expect(page.locator("#readout")).to_contain_text("tokens")
        page.mouse.down()
        page.mouse.move(plot["x"] + plot["width"] * 0.6, middle, steps=5)
        page.mouse.up()
        expect(everything).to_be_visible()
        everything.click()
        expect(everything).to_be_hidden()
        page.keyboard.press("+")
        expect(everything).to_be_visible()
        page.keyboard.press("0")
        expect(everything).to_be_hidden()
        with leads_to(page, "call=10"):
            page.mouse.click(plot["x"] + plot["width"] * (9.5 / 30), middle)
        expect(page.locator("#call-title")).to_have_text(re.compile("^Call 10 of 30$"))


def test_an_item_is_opened_searched_and_paged(browser: Browser, url: str) -> None:
    with watched(browser, url, viewport={"width": 1400, "height": 900}) as page:
        page.goto(f"{url}session/{SESSION}?call=12")
        with leads_to(page, "item=call_009"):
            page.locator("#call .row a", has_text="search(reserve)").last.click()
        expect(page.locator("#item-title")).to_have_text("search(reserve)")
        expect(page.locator("#call .row a[aria-current=true]")).to_have_count(1)
        with leads_to(page, "how=full"):
            page.locator("#item .hows a", has_text="full").click()
        expect(page.locator("#item .content")).to_contain_text("shop/checkout.py")
        with leads_to(page, "find=worker"):
            page.keyboard.press("/")
            page.keyboard.type("worker")
            page.keyboard.press("Enter")
        expect(page.locator("#item .note")).to_have_text("9 lines match")
        page.reload()
        expect(page.locator("#item .note")).to_have_text("9 lines match")
        with leads_to(page, "how=full"):
            page.go_back()
        expect(page.locator("#item .note")).to_have_count(0)
        expect(page.locator("#item .content")).to_contain_text("shop/checkout.py")


def test_on_a_phone_an_item_comes_into_view_and_leads_back_to_its_row(browser: Browser, url: str) -> None:
    with watched(browser, url, viewport={"width": 400, "height": 800}) as page:
        page.goto(f"{url}session/{SESSION}?call=12")
        drawn(page)
        row = page.locator("#call .row a[data-item=call_009]")
        row.focus()
        with leads_to(page, "item=call_009"):
            page.keyboard.press("Enter")
        expect(page.locator("#item-title")).to_be_in_viewport()
        expect(page.locator("#item")).to_be_focused()
        page.go_back()
        expect(page.locator("#item.none")).to_have_count(1)
        expect(row).to_be_in_viewport()
        row.focus()
        with leads_to(page, "item=call_009"):
            page.keyboard.press("Enter")
        expect(page.locator("#item-title")).to_be_in_viewport()
        page.keyboard.press("Tab")
        expect(page.locator("#item .to-row")).to_be_focused()
        page.keyboard.press("Enter")
        expect(row).to_be_focused()
        expect(row).to_be_in_viewport()
    with watched(browser, url, viewport={"width": 400, "height": 800}) as page:
        page.goto(f"{url}session/{SESSION}?call=12&item=call_009")  # an address that was copied has no #item
        expect(page.locator("#item-title")).to_be_in_viewport()


def test_the_list_is_filtered_while_one_types(browser: Browser, url: str) -> None:
    with watched(browser, url) as page:
        page.goto(url)
        expect(page.locator("#sessions tbody tr")).to_have_count(2)
        with leads_to(page, "filter=host"):
            page.keyboard.press("/")
            page.keyboard.type("host")
        expect(page.locator("#sessions tbody tr")).to_have_count(1)
        with leads_to(page, "/session/hostile"):
            page.locator("#sessions a", has_text="hostile").click()
        expect(page.locator("#facts .id code")).to_have_text("hostile")


def test_a_session_is_a_line_of_28_pixels_by_its_first_question(browser: Browser, url: str) -> None:
    for width in WIDTHS:
        with watched(browser, url, viewport={"width": width, "height": 900}) as page:
            page.goto(url)
            rows = page.locator("#sessions tbody tr")
            heights = rows.evaluate_all("(rows) => rows.map((row) => row.getBoundingClientRect().height)")
            assert [height <= 28 for height in heights] == [True, True], heights
            expect(page.locator("#sessions tbody th").filter(has_text="test_checkout fails about once")).to_be_visible()


def test_the_newest_result_is_open_in_a_request_of_full_width_until_an_item_is_chosen(
    browser: Browser, url: str
) -> None:
    with watched(browser, url, viewport={"width": 1400, "height": 900}) as page:
        page.goto(f"{url}session/{SESSION}?call=12")
        drawn(page)
        opened = page.locator("#call .opened pre")
        expect(opened).to_contain_text("shop/events.py: part of the shop")
        assert box(page, "#call")["width"] > 1_200
        with leads_to(page, "item=call_009"):
            page.locator("#call .row a", has_text="search(reserve)").last.click()
        expect(opened).to_be_hidden()
        assert box(page, "#call")["width"] < 700


def test_light_and_dark_can_be_switched_and_stay(browser: Browser, url: str) -> None:
    with watched(browser, url, color_scheme="dark") as page:
        page.goto(url)
        body = page.locator("body")
        expect(body).to_have_css("background-color", "rgb(20, 23, 27)")
        page.locator("#theme-button").click()
        expect(body).to_have_css("background-color", "rgb(255, 255, 255)")
        page.goto(f"{url}session/{SESSION}")
        drawn(page)
        expect(body).to_have_css("background-color", "rgb(255, 255, 255)")
        page.locator("#theme-button").click()
        expect(body).to_have_css("background-color", "rgb(20, 23, 27)")


def test_what_is_hostile_stays_text(browser: Browser, url: str) -> None:
    for view in ("?call=1", "?call=2", "?item=msg_001", "?item=call_1", "?item=call_1&how=tail", "/items"):
        with watched(browser, url) as page:
            page.goto(f"{url}session/hostile{view}")
            assert page.locator("main script, main img").count() == 0
            shown = page.locator("main").inner_text()
            assert "<script>alert(1)</script>" in shown
            assert "\\x1b[31m\\u202egnp.exe" in shown


def test_it_works_without_scripts(browser: Browser, url: str) -> None:
    with watched(browser, url, java_script_enabled=False) as page:
        page.goto(url)
        page.get_by_role("link", name=SESSION).click()
        page.wait_for_url(f"**/session/{SESSION}")
        page.get_by_role("link", name="Previous call").click()
        page.wait_for_url("**/*call=29")
        expect(page.locator("#call-title")).to_have_text(re.compile("^Call 29 of 30$"))
        page.locator("#call ol .row a").first.click()
        page.wait_for_url("**/*item=*")
        expect(page.locator("#item .content")).to_contain_text("You are a careful engineer")


def test_a_printed_page_has_no_buttons(browser: Browser, url: str) -> None:
    with watched(browser, url) as page:
        page.goto(f"{url}session/{SESSION}?item=call_009")
        page.emulate_media(media="print")
        for selector in (".tabs", ".hows", "#help-button", ".step"):
            expect(page.locator(selector).first).to_be_hidden()
        expect(page.locator("#item .content")).to_be_visible()


def test_a_running_session_grows_on_the_page(browser: Browser, tmp_path: Path) -> None:
    async def begin() -> Context:
        context = Context("live", root_path=tmp_path, model="", window=None, pricing=None)
        await context.open()
        await context.add(UserMessage("question 1"))
        await context.add(AssistantMessage("answer 1"))
        return context

    with anyio.from_thread.start_blocking_portal() as portal, serving(tmp_path) as url:
        context = portal.call(begin)
        try:
            with watched(browser, url) as page:
                page.goto(f"{url}session/live")
                expect(page.locator("h1 .live")).to_be_visible()
                expect(page.locator("#call-title")).to_have_text(re.compile("^Call 1 of 1$"))
                portal.call(context.add, UserMessage("question 2"))
                portal.call(context.add, AssistantMessage("answer 2"))
                expect(page.locator("#call-title")).to_have_text(re.compile("^Call 2 of 2$"))
                page.goto(f"{url}session/live?call=1")
                drawn(page)
                with page.expect_response("**/timeline.json"):  # it is asked for last
                    portal.call(context.add, UserMessage("question 3"))
                    portal.call(context.add, AssistantMessage("answer 3"))
                expect(page.locator("#facts .figures div", has_text="Calls").locator("dd")).to_have_text("3")
                expect(page.locator("#call-title")).to_have_text(re.compile("^Call 1 of"))
        finally:
            portal.call(context.close)
