"""The page of a session as one file: what is in it, and what is not."""

import os
import re
import stat
from pathlib import Path

import anyio
import anyio.from_thread
import pytest

from ctxfs.cli.app import run
from ctxfs.context.context import Context
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.session.listing.summary import Question
from ctxfs.session.redaction import REDACTED
from ctxfs.storage import LocalSessions
from ctxfs.view.sources import OpenSession
from view.hostile import HOSTILE
from view_session import SESSION

SECRET = "sk-" + "4f9a" * 12
KEY = "-----BEGIN KEY-----\n" + "QUJD\n" * 30 + "-----END KEY-----"


async def make_secret(root: Path) -> None:
    """A session with secrets at places where a text is cut: in titles, long lines and at the end of what is shown."""
    async with Context("secrets", root_path=root, model="", window=None, pricing=None) as context:
        for number in range(90, 121):
            await context.add(UserMessage("x" * number + SECRET))
            call = {"type": "tool_use", "id": f"call_{number}", "name": "run", "input": {"c": "y" * number + SECRET}}
            await context.add(AssistantMessage((call,)))
            text = f"{KEY}\n{'z' * (2_880 + number)}{SECRET}\n{SECRET * 300}"
            await context.add(ToolMessage(f"call_{number}", "run", text))
        await context.add(AssistantMessage("done"))


@pytest.fixture(scope="module")
def with_secrets(root: Path) -> Path:
    with anyio.from_thread.start_blocking_portal() as portal:
        portal.call(make_secret, root)
    return root


def exported(root: Path, session: str, *options: str) -> str:
    file = root / "page.html"
    file.unlink(missing_ok=True)
    assert run(["view", session, "--root", str(root), "--export", str(file), *options]) == 0
    return file.read_text()


def test_the_file_holds_calls_items_and_charts(root: Path) -> None:
    page = exported(root, SESSION)
    assert 'id="call-30"' in page
    assert 'id="item-call_009"' in page
    assert "read_file keeps its last 4" in page
    assert '"bills":' in page
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page)
    assert len(page) < 400_000


def test_what_is_hostile_stays_text(root: Path) -> None:
    page = exported(root, "hostile")
    assert HOSTILE not in page
    assert "<script>alert" not in page
    assert "alert(1)&lt;/script&gt;" in page


@pytest.mark.not_measured
def test_no_part_of_a_secret_is_left(with_secrets: Path) -> None:
    assert SECRET[:20] in exported(with_secrets, "secrets")
    page = exported(
        with_secrets, "secrets", "--redact", "sk-[0-9a-f]+", "--redact", r"(?s)-----BEGIN KEY-----.*?-----END KEY-----"
    )
    assert REDACTED in page
    for part in ("sk-4", "4f9a4f", "BEGIN KEY", "QUJD"):
        assert part not in page


@pytest.mark.not_measured
def test_without_contents_nothing_is_left_that_somebody_wrote(with_secrets: Path) -> None:
    page = exported(with_secrets, "secrets", "--no-contents")
    for part in ("sk-4", "4f9a", "xxx", "yyy", "zzz", "QUJD", str(with_secrets)):
        assert part not in page
    assert "Contents are left out" in page
    assert 'id="item-call_90"' in page


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--export", "x.html"], "name it, or write 'last'"),
        (["last", "--redact", "a"], "name the file"),
        (["last", "--no-contents"], "name the file"),
        (["last", "--export", "no/such/folder/x.html"], "is not a directory"),
        (["last", "--export", "x.html", "--redact", "("], "write an RE2 expression"),
        (["last", "--export", "x.html", "--write"], "leave out --write"),
    ],
)
def test_wrong_use_is_one_line(given: list[str], said: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["view", *given, "--root", str(root)]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_exists_is_not_overwritten(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.html"
    file.write_text("mine")
    assert run(["view", SESSION, "--root", str(root), "--export", str(file)]) == 2
    assert "already exists: choose another name" in capsys.readouterr().err
    assert file.read_text() == "mine"


LINES = 45


def long_key(number: int) -> str:
    lines = "".join(f"{number:02d}SECRETLINE{line:03d}{'x' * 48}\n" for line in range(LINES))
    return f"-----BEGIN KEY-----\n{lines}-----END KEY-----\n"


async def make_long(root: Path) -> None:
    """Secrets of 3 kB: each becomes a few characters, so that many are in what is shown."""
    call = {"type": "tool_use", "id": "call", "name": "n" * 110 + long_key(0), "input": {"c": [long_key(1)] * 9}}
    async with Context("long", root_path=root, model="", window=None, pricing=None) as context:
        await context.add(UserMessage("".join(map(long_key, range(40)))), AssistantMessage((call,)))
        await context.add(ToolMessage("call", "log", "".join(map(long_key, range(40)))), AssistantMessage("ok"))


@pytest.mark.not_measured
def test_no_secret_is_cut_before_it_is_found(root: Path) -> None:
    with anyio.from_thread.start_blocking_portal() as portal:
        portal.call(make_long, root)
    assert "SECRETLINE" in exported(root, "long")
    page = exported(root, "long", "--redact", r"(?s)-----BEGIN KEY-----.*?-----END KEY-----")
    assert REDACTED in page
    assert "SECRETLINE" not in page


@pytest.mark.not_measured
def test_a_content_that_is_too_large_to_search_is_left_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctxfs.view.export.SEARCHED_CHARS", 2_000)
    page = exported(root, SESSION, "--redact", "no such text")
    assert "it has more than 2,000 characters, too many to search" in page
    assert "it has more than" not in exported(root, SESSION)


@pytest.mark.not_measured
@pytest.mark.parametrize("umask", [0, 0o022])
def test_only_the_owner_can_read_the_file(root: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        exported(root, SESSION)
    finally:
        os.umask(before)
    assert stat.S_IMODE((root / "page.html").stat().st_mode) == 0o600


@pytest.mark.service
def test_the_file_opens_without_a_server(root: Path) -> None:
    from playwright.sync_api import expect

    from view.chromium import chromium, watched

    exported(root, SESSION, "--redact", "stock")
    address = (root / "page.html").as_uri()
    with chromium() as browser, watched(browser, address, viewport={"width": 400, "height": 900}) as page:
        page.goto(address)
        page.locator("#chart-context canvas").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        page.locator("#call-12 .told a").first.click()
        expect(page.locator("details:target")).to_have_attribute("open", "")
    with chromium() as browser, watched(browser, address, viewport={"width": 1400, "height": 900}) as page:
        page.goto(address)
        page.locator("#chart-context canvas").wait_for()
        box = page.locator("#chart-context .u-over").bounding_box()
        assert box is not None
        page.locator("#chart-context .u-over").click(position={"x": box["width"] * 9.5 / 30, "y": 40})
        expect(page.locator("tr:target")).to_have_attribute("id", "call-10")


async def make_stored_question(root: Path) -> None:
    """A session whose first question is in a file, and has a secret in its first line."""
    async with Context("asked", root_path=root, model="", window=2_000, pricing=None) as context:
        await context.add(UserMessage(f"Why does {SECRET} not work? {'word ' * 40_000}"), AssistantMessage("I see"))


def test_a_later_question_is_no_headline_where_the_first_cannot_be_read(tmp_path: Path) -> None:
    async def ask_again() -> Question | None:
        await make_stored_question(tmp_path)
        for file in (tmp_path / "asked" / "user_message").rglob("msg_001*"):
            await anyio.Path(file).unlink()
        opened = await OpenSession(LocalSessions(tmp_path), "asked").open()
        async with Context("asked", root_path=tmp_path, model="", window=2_000, pricing=None) as context:
            await context.add(UserMessage("And now?"), AssistantMessage("I see"))
        assert await opened.refresh()
        await opened.close()
        return opened.question

    assert anyio.run(ask_again) == Question("msg_001", "")
    page = exported(tmp_path, "asked")
    assert "<h1>asked</h1>" in page
    assert "And now?" in page


@pytest.mark.not_measured
def test_the_headline_is_the_first_question_also_where_it_is_in_a_file(root: Path) -> None:
    with anyio.from_thread.start_blocking_portal() as portal:
        portal.call(make_stored_question, root)
    assert f"<h1>Why does {SECRET} not" in exported(root, "asked")
    page = exported(root, "asked", "--redact", "sk-[0-9a-f]+")
    assert f"<h1>Why does {REDACTED} not work? word" in page
    assert SECRET[:20] not in page
    assert "<h1>asked</h1>" in exported(root, "asked", "--no-contents")
