"""The page on a session of 5,000 items and 200 MB: what is seen first, and every step after that.

Limits: the first part of the page, which a browser paints, in at most 300 ms from a server that has not read the
session yet; every step on the page in at most 100 ms. It is the processor's time of the server and of this client, the
best of several. Then the same in Chromium, if it is there: the processor's time of its main thread, which has the same
limits, and the time until the page is painted. ``--quick`` takes a tenth of the session.
"""

import http.client
import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from playwright.sync_api import Page

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from ctxfs.context.context import Context
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.messages import CharsCounter
from ctxfs.messages.base import Usage
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.local import LocalStore
from view.chromium import installed, launched
from view.served import serving

SESSION = "nightly-crawl"
MODEL = "claude-sonnet-4-5"
RESULT_CHARS = 80_000
FIRST_LIMIT_MS = 300.0
STEP_LIMIT_MS = 100.0
ROUNDS = 5
STEPS = {
    "the page again": ("", ""),
    "the next call": ("call", "?call={call}"),
    "an item, full": ("item", "?item=call_{call:05}"),
    "an item, tail": ("item", "?item=call_{call:05}&how=tail"),
    "an item, grep": ("item", "?item=call_{call:05}&how=grep&find=00{call:03}"),
    "the items": ("", "/items"),
    "the items, filtered": ("items", "/items?filter=example.org/{call}&order=size"),
    "the warnings": ("", "/warnings"),
    "the charts' data": ("", "/timeline.json"),
}


async def make_session(root: Path, calls: int) -> None:
    """A session of that many calls of one tool, whose results are evicted but for the last twenty."""
    draw = random.Random(3)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 9))) for _ in range(500)]
    text = "\n".join(f"{n:06} {' '.join(draw.choices(words, k=12))}" for n in range(1_500))[:RESULT_CHARS]
    fs = ContextFileSystem(SESSION, root_path=root, store=LocalStore(root, SESSION, durability="process"))
    async with Context(
        fs,
        model=MODEL,
        counter=CharsCounter(),
        keep_recent={"fetch": 20},
        window=None,
        pricing=None,
        offload_policy=OffloadPolicy(digest_tokens=0),
    ) as context:
        await context.add(UserMessage("Crawl the pages and collect the prices."))
        for n in range(1, calls + 1):
            call = {
                "type": "tool_use",
                "id": f"call_{n:05}",
                "name": "fetch",
                "input": {"url": f"https://example.org/{n}"},
            }
            usage = Usage(cache_read_input_tokens=400_000, cache_creation_input_tokens=21_000, output_tokens=60)
            await context.add(AssistantMessage((call,)), usage=usage, model=MODEL)
            await context.add(ToolMessage(f"call_{n:05}", "fetch", f"{n}\n{text}"))
            await context.evict()


def cpu_ms(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1_000


class Client:
    """A browser's requests."""

    def __init__(self, url: str) -> None:
        host, _, path = url.removeprefix("http://").partition("/")
        self._connection = http.client.HTTPConnection(host, timeout=600)
        self._path = f"/{path}session/{SESSION}"

    def get(self, path: str, target: str = "") -> None:
        """Ask for a page, or for the part of it that is named ``target``, and read it whole."""
        self._connection.request("GET", self._path + path, headers={"HX-Target": target} if target else {})
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body[:200]

    def first_part(self) -> tuple[float, float]:
        """Ask for the page of a session that is not open: until its first part is here, and until all of it is."""
        start = time.process_time()
        self._connection.request("GET", self._path)
        answer = self._connection.getresponse()
        assert b"Reading the journal" in answer.read1(20_000)
        first = time.process_time()
        answer.read()
        return (first - start) * 1_000, (time.process_time() - start) * 1_000


def main() -> int:
    """Print the table; 1 when a limit is not reached."""
    calls = 250 if "--quick" in sys.argv else 2_500
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        anyio.run(make_session, root, calls)
        opened = [opening(root) for _ in range(3)]
        first, whole = (min(times) for times in zip(*opened, strict=True))
        print(f"{2 * calls + 1:,} items, {calls * RESULT_CHARS / 1e6:,.0f} MB, {calls:,} calls; processor time in ms")
        print(f"{'first part of the page':24}{first:8.1f}  at most {FIRST_LIMIT_MS:.0f}")
        print(f"{'all of it':24}{whole:8.1f}")
        slow = first > FIRST_LIMIT_MS
        with serving(root) as url:
            client = Client(url)
            client.get("")
            for name, (target, path) in STEPS.items():
                paths = [path.format(call=calls // 2 + n) for n in range(ROUNDS)]
                best = min(cpu_ms(partial(client.get, one, target)) for one in paths)
                print(f"{name:24}{best:8.1f}  at most {STEP_LIMIT_MS:.0f}")
                slow |= best > STEP_LIMIT_MS
            slow |= in_chromium(url, calls // 2)
    return int(slow)


IN_CHROMIUM = {
    "j: the next call": ("key", "j", "#call"),
    "click: an item": ("click", "#call .row a[data-item]", "#item"),
    "click: its end": ("click", "#item .hows a:nth-of-type(2)", "#item"),
    "+: zoom in": ("key", "+", ""),
    "0: zoom out": ("key", "0", ""),
}
"""What is done, and the part of the page that is another one afterwards; "": what is painted is."""
STEP = """async ([what, given, part]) => {
    const old = part && document.querySelector(part), start = performance.now();
    if (what === "key") document.body.dispatchEvent(new KeyboardEvent("keydown", { key: given, bubbles: true }));
    else document.querySelector(given).click();
    while (part && document.querySelector(part) === old) await new Promise((done) => setTimeout(done, 1));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    const waited = performance.now() - start;
    await new Promise((done) => setTimeout(done, 100));  // htmx takes a moment until it knows what is new
    return waited;
}"""
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


class Chromium:
    """A page in a browser, and the processor's time of its main thread."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self._address = page, address
        self._session: Any = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def measured(self, work: Callable[[], float]) -> tuple[float, float]:
        """The processor's time of ``work``, and what it returns; in ms."""
        before = 0.0 if work == self.load else self._worked_ms()  # a page that is loaded starts at 0
        waited = work()
        return self._worked_ms() - before, waited

    def _worked_ms(self) -> float:
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        return 1_000 * float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

    def load(self) -> float:
        """Load the page whole, and return when its first part was painted."""
        self.page.goto(self._address)
        self.page.locator("#chart-context canvas").wait_for()
        self.page.wait_for_function(PAINTED)
        return float(self.page.evaluate(PAINTED))

    def step(self, step: tuple[str, str, str]) -> float:
        """Do something, and return how long it took until it was painted."""
        return float(self.page.evaluate(STEP, list(step)))


def in_chromium(url: str, call: int) -> bool:
    """The steps in a browser; whether one is too slow, by the processor's time."""
    if (found := installed()) is None:
        print("NOT MEASURED in a browser: install Chromium")
        return False
    address = f"{url}session/{SESSION}?call={call}&item=call_{call:05}"
    slow = False
    with launched(found) as browser:
        print(f"\n{'Chromium ' + browser.version:26}main thread            until painted, which other programs delay")
        at = Chromium(browser.new_page(viewport={"width": 1400, "height": 900}), address)
        steps: list[tuple[str, float, Callable[[], float]]] = [
            ("the whole page", FIRST_LIMIT_MS, at.load),
            *((name, STEP_LIMIT_MS, partial(at.step, step)) for name, step in IN_CHROMIUM.items()),
        ]
        for name, limit_ms, work in steps:
            worked, waited = (min(times) for times in zip(*(at.measured(work) for _ in range(ROUNDS)), strict=True))
            print(f"{name:24}{worked:8.1f}  at most {limit_ms:3.0f}  {waited:12.1f}")
            slow |= worked > limit_ms
    return slow


def opening(root: Path) -> tuple[float, float]:
    """What a server that knows nothing yet takes for the page: for its first part, and for all of it."""
    with serving(root) as url:
        return Client(url).first_part()


if __name__ == "__main__":
    sys.exit(main())
