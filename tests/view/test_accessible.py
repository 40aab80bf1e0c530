"""In a real browser: recordings, buttons and exported pages at every width, in both colours; the strip of all calls."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

import recording_samples as samples
from ctxfs.cli.app import run
from ctxfs.lab.ab.render import comparison_html
from ctxfs.lab.ab.report import Comparison
from ctxfs.lab.ab.results import Header, Results, SessionResult
from view.chromium import watched
from view.served import serving
from view_session import SESSION

pytestmark = pytest.mark.service

WIDTHS = (400, 800, 1400)


def fits_and_is_accessible(page: Page) -> None:
    """At all widths, in light and in dark."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            where = f"{page.url} at {width} in {scheme}"
            assert page.evaluate("document.documentElement.scrollWidth") <= width, where
            found = Axe().run(page).response["violations"]
            assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found] == [], where


def test_rows_out_of_sight_do_not_lengthen_the_page_of_a_recording(browser: Browser, tmp_path: Path) -> None:
    messages: list[object] = [{"role": "user", "content": "What is in there?"}]
    for number in range(60):
        call = {"type": "tool_use", "id": f"c{number}", "name": "look", "input": {"at": number}}
        text = f"{number}: nothing new\n" * 800
        messages.append({"role": "assistant", "content": [call]})
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": text}]}
        )
    file = tmp_path / "recorded.json"
    file.write_text(json.dumps(messages))
    with serving(tmp_path, [file]) as url, watched(browser, url, viewport={"width": 400, "height": 900}) as page:
        page.goto(f"{url}recording/0")
        page.locator("#chart-context canvas").wait_for()
        assert page.locator("#item li").count() > 30
        end = page.evaluate("document.body.getBoundingClientRect().bottom")
        assert page.evaluate("document.documentElement.scrollHeight") <= max(end, 900) + 1


def test_a_recording_is_accessible(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "recorded.json"
    samples.inspect_json(file)
    with serving(tmp_path, [file]) as url, watched(browser, url) as page:
        page.goto(f"{url}recording/0")
        page.locator("#chart-context canvas").wait_for()
        fits_and_is_accessible(page)
        page.goto(f"{url}recording/0/text?call=2&block=0")
        fits_and_is_accessible(page)


def test_a_long_path_does_not_widen_the_page_of_a_recording(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "recorded.jsonl"
    samples.codex(file)
    file.write_text(file.read_text().replace('"/p"', f'"/{"a-directory" * 9}"'))
    with serving(tmp_path, [file]) as url, watched(browser, url, viewport={"width": 400, "height": 900}) as page:
        page.goto(f"{url}recording/0")
        assert "a-directory" in page.locator(".figures").first.inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") <= 400


def compared(file: Path) -> None:
    with Results(file, Header(seed=0, arms=("none", "default"), repeats=1, tasks="x")) as results:
        for task in ("port", "name"):
            for arm in ("none", "default"):
                note = "exit code 1: " + "no " * 60
                results.ended(SessionResult(task=task, repeat=0, arm=arm, outcome="crashed", usd=0.2, note=note))


def test_a_comparison_of_arms_on_the_page_is_accessible(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "tasks.results.jsonl"
    with ThreadPoolExecutor(1) as thread:  # the browser's driver has an event loop in this one
        thread.submit(compared, file).result()
    with serving(tmp_path, comparisons=[file]) as url, watched(browser, url) as page:
        page.goto(f"{url}comparison/0")
        fits_and_is_accessible(page)
        page.set_viewport_size({"width": 800, "height": 900})
        fits = "[...document.querySelectorAll('.scroll')].every((one) => one.scrollWidth <= one.clientWidth)"
        assert page.evaluate(fits), "the last columns would be out of sight"
        page.get_by_role("link", name="ctxfs", exact=True).click()
        page.get_by_role("link", name="tasks.results.jsonl").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("comparison of arms")


def test_a_comparison_of_arms_is_accessible(browser: Browser, tmp_path: Path) -> None:
    sessions = [
        SessionResult(
            task=task, repeat=0, arm=arm, outcome="crashed", usd=0.2, calls=7, note="exit code 1: " + "no " * 60
        )
        for task in ("port", "name")
        for arm in ("none", "default")
    ]
    comparison = Comparison(arms=("none", "default"), tasks=2, repeats=1, sessions=tuple(sessions), spent_usd=0.8)
    file = tmp_path / "comparison.html"
    file.write_text(comparison_html(comparison))
    with watched(browser, file.as_uri()) as page:
        page.goto(file.as_uri())
        assert page.get_by_role("columnheader", name="repeat", exact=True).count() == 0, "there was one repeat"
        fits_and_is_accessible(page)


def test_a_page_that_may_write_is_accessible(browser: Browser, root: Path) -> None:
    with serving(root, may_write=True) as url, watched(browser, url) as page:
        page.goto(f"{url}session/{SESSION}?call=12&item=call_003")
        page.locator("#chart-context canvas").wait_for()
        expect(page.locator("button", has_text="Restore")).to_be_visible()
        fits_and_is_accessible(page)


def test_an_exported_page_is_accessible(browser: Browser, root: Path) -> None:
    file = root / "page.html"
    with ThreadPoolExecutor() as elsewhere:  # the driver has an event loop in this thread
        assert elsewhere.submit(run, ["view", SESSION, "--root", str(root), "--export", str(file)]).result() == 0
    with watched(browser, file.as_uri()) as page:
        page.goto(file.as_uri())
        page.locator("#chart-context canvas").wait_for()
        page.locator("#item-call_003 summary").click()
        fits_and_is_accessible(page)


def test_a_question_that_is_cut_leaves_room_for_its_sessions_id(browser: Browser, root: Path) -> None:
    with serving(root) as url, watched(browser, url, viewport={"width": 1000, "height": 900}) as page:
        page.goto(url)
        cell = page.locator(".one-line th", has_text=SESSION).bounding_box()
        session_id = page.locator(".one-line th small", has_text=SESSION).bounding_box()
        assert cell is not None
        assert session_id is not None
        assert session_id["x"] + session_id["width"] <= cell["x"] + cell["width"]


def test_a_narrow_list_leaves_its_room_to_the_questions(browser: Browser, root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "root")
    with (tmp_path / "root" / SESSION / "journal.jsonl").open("ab") as journal:
        journal.write(b"no line\n")
    with serving(tmp_path / "root") as url, watched(browser, url, viewport={"width": 400, "height": 900}) as page:
        page.goto(url)
        mark = page.locator(".one-line .mark", has_text="damaged").bounding_box()
        assert mark is not None
        assert mark["width"] < 16
        fits_and_is_accessible(page)
        for width, is_shown in ((1000, True), (800, False)):
            page.set_viewport_size({"width": width, "height": 900})
            expect(page.locator(".one-line th small", has_text=SESSION)).to_be_visible(visible=is_shown)


def test_the_strip_chooses_the_part_that_the_charts_show(browser: Browser, root: Path) -> None:
    with serving(root) as url, watched(browser, url, viewport={"width": 1400, "height": 900}) as page:
        page.goto(f"{url}session/{SESSION}")
        page.locator("#chart-context canvas").wait_for()
        strip, everything = page.locator("#chart-overview .u-over"), page.locator("#all-calls")
        box = strip.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + box["height"] / 2, steps=5)
        page.mouse.up()
        expect(everything).to_be_visible()
        chosen = page.locator("#chart-overview .u-select").bounding_box()
        assert chosen is not None
        assert chosen["width"] == pytest.approx(box["width"] / 4, rel=0.1)
        plot = page.locator("#chart-context .u-over").bounding_box()
        assert plot is not None
        page.mouse.click(plot["x"] + plot["width"] * 0.5, plot["y"] + 40)
        expect(page.locator("#call-title")).to_contain_text("Call 19 ")
        everything.click()
        expect(everything).to_be_hidden()
        expect(page.locator("#chart-overview .u-select")).to_have_css("width", "0px")


def test_it_is_printed_in_dark_ink_on_white_whatever_the_screen_shows(browser: Browser, root: Path) -> None:
    with serving(root) as url, watched(browser, url, color_scheme="dark") as page:
        page.goto(f"{url}session/{SESSION}?call=12&item=call_003")
        page.locator("#chart-context canvas").wait_for()
        body = page.locator("body")
        expect(body).to_have_css("background-color", "rgb(20, 23, 27)")
        page.emulate_media(media="print", color_scheme="dark")
        expect(body).to_have_css("background-color", "rgb(255, 255, 255)")
        expect(body).to_have_css("color", "rgb(27, 31, 36)")
        expect(page.locator("#item .content")).to_be_visible()
        expect(page.locator(".readout")).to_be_hidden()
