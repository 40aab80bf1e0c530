"""A real browser for the tests: Chromium, as the system has it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from patience import HANGS_S

__all__ = ["MISSING", "SETTLED", "chromium", "installed", "launched", "leads_to", "watched"]

expect.set_options(timeout=HANGS_S * 1_000)  # as a page's own: a busy machine is slow, and that is no failure

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
MISSING = "NOT TESTED in a browser: install Chromium (Debian: apt-get install chromium), or name one in CTXFS_CHROMIUM"
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


def installed() -> str | None:
    """Return where Chromium is; None: it is not installed."""
    return os.environ.get("CTXFS_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start it; the test is skipped where there is none."""
    if (found := installed()) is None:
        pytest.skip(MISSING)
    with launched(found) as browser:
        yield browser


@contextmanager
def launched(program: str) -> Iterator[Browser]:
    """Start the Chromium ``program``."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=list(QUIET), timeout=HANGS_S * 1_000)
        try:
            yield browser
        finally:
            browser.close()


SETTLED = """() => document.readyState === "complete"
    && !document.querySelector(".htmx-request, .htmx-swapping, .htmx-settling, .htmx-added")"""


@contextmanager
def leads_to(page: Page, part: str) -> Iterator[None]:
    """Wait until what is done inside has led to an address with ``part``, and its page is there with its scripts.

    What is looked for next may be on the page that was there before, and a key that is pressed next would go to it.
    """
    assert part not in page.url, f"{page.url} would not show when the next page is there"
    yield
    page.wait_for_url(lambda url: part in url)
    page.wait_for_function(SETTLED)


def is_wrong(said: ConsoleMessage) -> bool:
    """Whether a line of the console is a complaint. htmx logs it as an error when a newer request replaces one."""
    return said.type in ("error", "warning") and not said.text.startswith(("htmx:sendAbort", "htmx:afterRequest"))


@contextmanager
def watched(browser: Browser, url: str, **settings: Any) -> Iterator[Page]:
    """A page in a context of its own; nothing may go wrong on it, and no request may leave ``url``."""
    wrong: list[str] = []
    context = browser.new_context(**settings)
    page = context.new_page()
    page.set_default_timeout(HANGS_S * 1_000)
    page.on("console", lambda said: wrong.append(said.text) if is_wrong(said) else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}"))
    page.on("request", lambda sent: None if sent.url.startswith((url, "data:,")) else wrong.append(sent.url))
    try:
        yield page
    finally:
        context.close()
    assert not wrong, wrong
