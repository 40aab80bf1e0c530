"""Sessions that cannot have a match are not opened, and nothing is missed for that."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from ctxfs.cli.app import run
from ctxfs.cli.grep import Search, Shown, grep_all
from ctxfs.cli.grep_output import Form
from ctxfs.cli.listed import ProgressLine
from ctxfs.context import Context
from ctxfs.messages.items import ItemType
from ctxfs.messages.messages import AssistantMessage, UserMessage
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.listing.summary import looked_at
from ctxfs.tools.search.search import Query
from ctxfs.tools.search.sessions import may_match, needed_words
from session_items import claimed_item, make_item, tool_result

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}
CALL = {
    "type": "tool_use",
    "id": "c1",
    "name": "Read",
    "input": {"path": "/etc/hosts", "lines": [1, 2.50, "ein Ärger"]},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    anyio.run(make, root)
    return root


async def make(root: Path) -> None:
    async with Context("inline", root_path=root) as context:
        await context.add(UserMessage('say "hello\tworld"\nport = 8080'), AssistantMessage((CALL,)))
    async with ContextFileSystem("stored", root_path=root) as fs:
        await fs.writer.store([tool_result(fs, 'first line\nsecond "line" of session 17\n' * 5)])
    async with ContextFileSystem("large", root_path=root) as fs:
        text = "".join(f"row {n} of the large one\n" for n in range(5_000))
        await fs.writer.store([tool_result(fs, f"{text}a Needle in the haystack\n")])
    async with ContextFileSystem("odd", root_path=root) as fs:
        await fs.writer.store([tool_result(fs, "a lone \ud800 surrogate\n" * 20)])
        name, path = fs.writer.allocate(ItemType.TOOL_RESULT, "Bash")
        await fs.writer.store([make_item(name, UserMessage("hidden in base64 \udcff"), name=path)])
        await fs.writer.add([claimed_item(fs, UserMessage(({"type": "text", "text": "an image"}, IMAGE)))])


NAMES = ("inline", "stored", "large", "odd")


def printed(root: Path, query: Query, capfd: pytest.CaptureFixture[str], *, filtered: bool = True) -> str:
    whole = {name: looked_at(root / name).disk_bytes for name in NAMES if filtered}
    search = Search(root, query, form=Form(), as_json=False, whole=whole)
    grep_all(search, NAMES, Shown(ProgressLine(), len(NAMES)), together=False)
    return capfd.readouterr().out


def found(root: Path, name: str, words: bytes) -> bool:
    return may_match(root / name, words, ignore_case=False, disk_bytes=looked_at(root / name).disk_bytes)


PATTERNS = (
    *("port = 8080", "hello", "world", "say", "session 17", "second", "Needle", "row 499. of", "haystack$", "lone"),
    *(
        "surrogate",
        "hidden in base64",
        "calls Read",
        "alls Read",
        "ls Read",
        "Read",
        "etc/hosts",
        "Ärger",
        "rger",
        "2.5",
    ),
    *(
        "image",
        "image/png",
        "5 bytes",
        "5 by",
        "bytes",
        "of J",
        "nosuchword",
        "po?rt",
        "ports*",
        "(port|hello)",
        "[p]ort",
    ),
    *("", ".", "^port", r"\bport\b", "an image", "8080", "p", "Read {", "line", 'say "hello', "hello.world", "kelvin"),
)


SETTINGS: tuple[dict[str, bool], ...] = ({}, {"fixed": True}, {"ignore_case": True}, {"word": True}, {"invert": True})
QUERIES = [
    Query(pattern=pattern, max_count=3, **settings)  # type: ignore[arg-type]
    for settings in SETTINGS
    for pattern in PATTERNS
]
WORDLESS = [query for query in QUERIES if needed_words(query) is None]
"""Every session is opened for them, whatever they are."""


@pytest.mark.parametrize("query", [query for query in QUERIES if query not in WORDLESS])
def test_nothing_is_missed(root: Path, query: Query, capfd: pytest.CaptureFixture[str]) -> None:
    every = printed(root, query, capfd, filtered=False)
    assert printed(root, query, capfd) == every
    if query.ignore_case and "\\" not in query.pattern:
        upper = replace(query, pattern=query.pattern.upper())
        assert printed(root, upper, capfd) == every


@pytest.mark.parametrize("query", [WORDLESS[0], WORDLESS[-1]])
def test_every_session_is_opened_where_a_line_needs_no_word(
    root: Path, query: Query, capfd: pytest.CaptureFixture[str]
) -> None:
    every = printed(root, query, capfd, filtered=False)
    assert every
    assert printed(root, query, capfd) == every


def test_lines_that_do_not_match_need_no_word() -> None:
    assert {query.pattern for query in WORDLESS if query.invert} == set(PATTERNS)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("needle in it", b"needle in it"),
        ("port = 8080", b"port = 8080"),
        ("ab", None),
        ("8080", None),
        ("calls", None),
        ("calls Read", b"Read"),
        ("a needle|another", None),
        ("needl?e", b"need"),
        ("a.needle+", b"needle"),
    ],
)
def test_what_a_matching_line_must_have(pattern: str, words: bytes | None) -> None:
    assert needed_words(Query(pattern=pattern)) == words


def test_most_sessions_are_not_opened(root: Path) -> None:
    names = ("inline", "stored", "large")
    assert [name for name in names if found(root, name, b"Needle")] == ["large"]
    assert [name for name in names if found(root, name, b"port =")] == ["inline"]
    assert found(root, "odd", b"nosuchword"), "its words are in base64"
    assert may_match(root / "none", b"nosuchword", ignore_case=False, disk_bytes=0), "opening it says what is wrong"


def cut(session: Path) -> None:
    (content,) = session.glob("tool_result/*/call_1.json")
    os.truncate(content, content.stat().st_size - 30)
    os.utime(content, (0, 0))


def overwritten(session: Path) -> None:
    (content,) = session.glob("tool_result/*/call_1.json")
    data = content.read_bytes()
    content.write_bytes(data.replace(b"session 17", b"session 18"))
    later = (session / "journal.jsonl").stat().st_mtime + 60
    os.utime(content, (later, later))


def flipped(session: Path) -> None:
    journal = session / "journal.jsonl"
    status = journal.stat()
    journal.write_bytes(journal.read_bytes().replace(b'"tool_name":"', b'"tool_nbme":"', 1))
    os.utime(journal, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("damage", [cut, overwritten, flipped])
def test_a_session_that_was_damaged_since_it_was_listed_is_named(
    damage: Callable[[Path], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    anyio.run(make, tmp_path)
    assert run(["grep", "--all", "nosuchword", "--root", str(tmp_path)]) == 1
    assert capfd.readouterr().err == ""
    damage(tmp_path / "stored")
    assert run(["grep", "--all", "nosuchword", "--root", str(tmp_path)]) == 1
    assert "session stored" in capfd.readouterr().err
