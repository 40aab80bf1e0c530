"""Looking into sessions: what is printed, byte for byte, and what wrong use is told."""

import base64
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from ctxfs import Agent, AgentConfig, ContextFileSystem, tool
from ctxfs.cli.app import run
from ctxfs.messages import ToolCall
from ctxfs.messages.names import Layout
from ctxfs.session.content.visible import visible_text as for_terminal
from ctxfs.testing import ScriptedModel
from session_items import tool_result
from terminal import on_a_terminal

LOG = "".join(f"12:00 request {n} {'ERROR refused' if n == 77 else 'served'}\n" for n in range(1, 201))
LATIN = b"caf\xe9 \xff\x00\x1b[31m\n" * 400
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
PIXEL = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
BIG = "".join(f"big line {n} " + "x" * 80 + "\n" for n in range(8_000))


@tool("Get a log", ephemeral=1)
def log(name: str) -> str:
    return LOG


@tool("Get bytes", ephemeral=1)
def latin() -> bytes:
    return LATIN


@tool("Get a picture", ephemeral=1)
def picture() -> list[object]:
    return [{"type": "text", "text": "what it shows: " + "a cat, " * 200}, PIXEL]


@tool("Get much")
def big() -> str:
    return BIG


@dataclass(frozen=True)
class Session:
    """Where the session lies."""

    root: Path
    session_id: str

    @property
    def path(self) -> Path:
        return self.root / self.session_id


async def _make(root: Path) -> str:
    calls = [ToolCall("log", {"name": "a"}), ToolCall("latin", {}), ToolCall("picture", {}), ToolCall("big", {})]
    config = AgentConfig(tools=[log, latin, picture, big], offload_root_path=root, layout=Layout("envelope", 0))
    async with Agent(ScriptedModel([calls, calls[:3], "done"]), config) as agent:
        await agent.query("Look around — déjà vu.")
        return agent.session_id


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Session:
    root = tmp_path_factory.mktemp("root")
    return Session(root, anyio.run(_make, root))


@pytest.fixture
def session(made: Session, tmp_path: Path) -> Session:
    """A copy that the test may damage; items call_001 to call_003 have left its context."""
    shutil.copytree(made.root, tmp_path / "root", copy_function=shutil.copy2)
    for path in (tmp_path / "root").rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return Session(tmp_path / "root", made.session_id)


@dataclass(frozen=True)
class Result:
    """What a command printed and its exit code."""

    code: int
    out: bytes
    err: str


@pytest.fixture
def ctxfs(capfdbinary: pytest.CaptureFixture[bytes]) -> "Command":
    """Run a command in this process, as the installed script would."""

    def call(*arguments: object) -> Result:
        capfdbinary.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return Result(code, out, err.decode())

    return call


Command = Callable[..., Result]


def loads(result: Result) -> Any:
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_sessions_lists_what_is_there(ctxfs: Command, session: Session) -> None:
    (listed,) = loads(ctxfs("sessions", "--root", session.root, "--json"))
    assert listed["session_id"] == session.session_id
    assert listed["path"] == str(session.path)
    stored = list(session.path.rglob("tool_result/*/call_*.json"))
    assert (listed["calls"], listed["stored"], listed["error"]) == (3, len(stored), None)
    assert listed["context_tokens"] < listed["content_tokens"]
    text = ctxfs("sessions", "--root", session.root).out.decode()
    assert session.session_id in text
    assert f"{listed['context_tokens']:,} tokens" in text


def test_sessions_of_a_root_without_any(ctxfs: Command, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    assert loads(ctxfs("sessions", "--root", tmp_path / "none", "--json")) == []
    result = ctxfs("sessions", "--root", tmp_path / "none")
    assert (result.code, result.out) == (0, b"")
    assert "no sessions" in result.err


def test_a_damaged_session_does_not_hide_the_others(ctxfs: Command, session: Session) -> None:
    other = session.root / "session_20200101_000000_broken"
    other.mkdir(mode=0o777)
    other.chmod(0o777)
    (other / "journal.jsonl").write_text("")
    listed = {s["session_id"]: s["error"] for s in loads(ctxfs("sessions", "--root", session.root, "--json"))}
    assert listed[session.session_id] is None
    assert "written by others" in listed[other.name]
    assert "written by others" in ctxfs("sessions", "--root", session.root).out.decode()


def test_ls_shows_what_left_and_where_it_is(ctxfs: Command, session: Session) -> None:
    items = {item["item_id"]: item for item in loads(ctxfs("ls", session.session_id, "--root", session.root, "--json"))}
    gone = items["call_001"]
    assert (gone["place"], gone["tool_name"], gone["item_type"]) == ("file", "log", "tool_result")
    assert gone["tokens"] < gone["content_tokens"]
    assert gone["path"] == str(session.path / "tool_result/log/call_001.json")
    assert Path(gone["path"]).exists()
    assert (gone["size_bytes"], gone["lines"]) == (len(LOG), 200)
    assert items["call_005"]["place"] == "context"
    assert items["call_005"]["path"] is None
    text = ctxfs("ls", "last", "--root", session.root).out.decode()
    assert "tool_result/log/call_001.json" in text
    total = sum(item["tokens"] for item in items.values())
    assert f"the context holds {total:,} tokens" in text


@pytest.mark.parametrize(
    ("item", "content"),
    [("call_001", LOG.encode()), ("call_002", LATIN), ("call_004", BIG.encode()), ("call_005", LOG.encode())],
    ids=["stored", "no UTF-8", "in the context, in its file", "in the journal"],
)
def test_cat_is_byte_exact(ctxfs: Command, session: Session, item: str, content: bytes) -> None:
    result = ctxfs("cat", "last", item, "--root", session.root)
    assert (result.code, result.err) == (0, "")
    assert result.out == content


def test_cat_of_blocks_is_readable_and_exact_as_json(ctxfs: Command, session: Session) -> None:
    text = ctxfs("cat", "last", "call_003", "--root", session.root).out.decode()
    assert text.startswith("what it shows: a cat")
    assert "image/png" in text
    assert PNG not in text
    content = loads(ctxfs("cat", "last", "call_003", "--root", session.root, "--json"))["content"]
    assert content[1] == PIXEL


def test_cat_of_messages(ctxfs: Command, session: Session) -> None:
    assert ctxfs("cat", "last", "msg_001", "--root", session.root).out.decode() == "Look around — déjà vu."


@pytest.mark.parametrize("item", ["call_001", "call_005"])
@pytest.mark.parametrize(
    ("lines", "span"),
    [("2:4", (2, 4)), ("199:", (199, 200)), (":2", (1, 2)), ("77", (77, 77)), ("199:900", (199, 200))],
)
def test_cat_lines(ctxfs: Command, session: Session, item: str, lines: str, span: tuple[int, int]) -> None:
    first, last = span
    expected = "".join(line + "\n" for line in LOG.split("\n")[first - 1 : last] if line).encode()
    assert ctxfs("cat", "last", item, "--lines", lines, "--root", session.root).out == expected
    as_json = loads(ctxfs("cat", "last", item, "--lines", lines, "--json", "--root", session.root))
    assert as_json["content"].encode() + b"\n" == expected


@pytest.mark.parametrize("item", ["call_001", "call_005"])
def test_tail(ctxfs: Command, session: Session, item: str) -> None:
    lines = LOG.encode().splitlines(keepends=True)
    assert ctxfs("cat", "last", item, "--tail", 10, "--root", session.root).out == b"".join(lines[-10:])
    assert ctxfs("cat", "last", item, "--tail", 3, "--root", session.root).out == b"".join(lines[-3:])
    assert ctxfs("cat", "last", item, "--tail", 9999, "--root", session.root).out == LOG.encode()


def test_grep_searches_what_left_and_what_is_still_there(ctxfs: Command, session: Session) -> None:
    result = ctxfs("grep", "last", r"request \d+ ERROR", "--root", session.root)
    assert result.code == 0
    expected = b"12:00 request 77 ERROR refused"
    assert result.out.splitlines() == [b"call_001:77:" + expected, b"call_005:77:" + expected]
    found = loads(ctxfs("grep", "last", "error REFUSED", "-i", "--item", "call_001", "--root", session.root, "--json"))
    assert found == [{"item_id": "call_001", "line": 77, "text": expected.decode()}]


def test_grep_counts_lines_over_the_pieces_of_a_large_content(ctxfs: Command, session: Session) -> None:
    found = loads(ctxfs("grep", "last", "^big line (0|3999|7999) ", "--root", session.root, "--json"))
    assert [match["line"] for match in found] == [1, 4000, 8000]


def test_grep_without_a_match_is_1(ctxfs: Command, session: Session) -> None:
    assert ctxfs("grep", "last", "nowhere", "--root", session.root) == Result(1, b"", "")
    assert ctxfs("grep", "last", "nowhere", "--root", session.root, "--json") == Result(1, b"[]\n", "")


def test_a_hostile_pattern_ends_at_once(ctxfs: Command, session: Session) -> None:
    assert ctxfs("grep", "last", "(x+x+)+y", "--root", session.root).code == 1


def test_verify(ctxfs: Command, session: Session) -> None:
    (report,) = loads(ctxfs("check", "last", "--root", session.root, "--json"))
    assert report.pop("checked") == report.pop("contents") >= 4
    assert report == {"session_id": session.session_id, "ok": True, "problems": [], "error": None}
    assert b"all as written" in ctxfs("check", "last", "--root", session.root).out


def test_verify_finds_one_changed_byte(ctxfs: Command, session: Session) -> None:
    path = session.path / "tool_result/log/call_001.json"
    path.write_bytes(path.read_bytes().replace(b"request 77 ERROR", b"request 77 ERRER"))
    result = ctxfs("check", "last", "--root", session.root)
    assert result.code == 1
    assert "tool_result/log/call_001.json" in result.out.decode()
    report = ctxfs("check", "last", "--root", session.root, "--json")
    assert report.code == 1
    assert json.loads(report.out)[0]["ok"] is False
    cat = ctxfs("cat", "last", "call_001", "--root", session.root)
    assert (cat.code, cat.out) == (1, b"")
    assert "damaged" in cat.err


def test_a_damaged_content_hides_nothing_else(ctxfs: Command, session: Session) -> None:
    path = session.path / "tool_result/big/call_004.json"  # still in the context
    path.write_bytes(path.read_bytes().replace(b"big line 77 ", b"big line 78 "))
    assert ctxfs("ls", "last", "--root", session.root).code == 0
    assert ctxfs("cat", "last", "call_001", "--root", session.root).out == LOG.encode()
    assert ctxfs("cat", "last", "call_004", "--root", session.root).code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("cat", "last", "call_001"),
        ("show", "last"),
        ("diff", "last", "1"),
        ("explain", "last"),
        ("ls", "last", "--json"),
    ],
)
def test_what_is_shown_of_a_damaged_journal_tells_it(
    ctxfs: Command, session: Session, arguments: tuple[str, ...]
) -> None:
    lines = (session.path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"1", b"2", 1)
    (session.path / "journal.jsonl").write_bytes(b"".join(lines))
    assert "ctxfs: journal.jsonl, at byte " in ctxfs(*arguments, "--root", session.root).err


@pytest.mark.parametrize("arguments", [("cat", "last", "call_001"), ("grep", "last", "request 77")])
def test_of_many_damages_the_first_are_told(ctxfs: Command, session: Session, arguments: tuple[str, ...]) -> None:
    with (session.path / "journal.jsonl").open("ab") as log:
        log.write(b"not a line\n" * 600)
    told = ctxfs(*arguments, "--root", session.root).err.splitlines()
    assert [line.startswith("ctxfs: journal.jsonl, at byte ") for line in told] == [True, True, True, False]
    assert told[3] == f"ctxfs: journal.jsonl: 597 more: `ctxfs check {session.path.name}`"
    check = ctxfs("check", session.path.name, "--root", session.root)
    assert len(re.findall("journal.jsonl: ", check.out.decode())) == 600


def test_grep_goes_on_after_a_damaged_content(ctxfs: Command, session: Session) -> None:
    path = session.path / "tool_result/log/call_001.json"
    path.write_bytes(path.read_bytes().replace(b"request 77 ERROR", b"request 77 ERRER"))
    (session.path / "tool_result/big/call_004.json").unlink()
    result = ctxfs("grep", "last", "request 77 ERR", "--root", session.root)
    assert (result.code, result.out) == (1, b"call_005:77:12:00 request 77 ERROR refused\n")
    assert [line.startswith("ctxfs: ") for line in result.err.splitlines()] == [True, True]
    assert "tool_result/log/call_001.json" in result.err
    assert "tool_result/big/call_004.json" in result.err
    as_json = ctxfs("grep", "last", "request 77 ERR", "--root", session.root, "--json")
    assert (as_json.code, [match["item_id"] for match in json.loads(as_json.out)]) == (1, ["call_005"])


def test_rm_asks_and_removes(ctxfs: Command, session: Session) -> None:
    assert ctxfs("forget", "last", "--root", session.root).code != 0  # nobody answers
    assert session.path.exists()
    assert ctxfs("forget", "last", "--yes", "--root", session.root).code == 0
    assert not session.path.exists()


def test_the_beginning_of_an_id_is_enough_and_last_is_what_changed_last(ctxfs: Command, session: Session) -> None:
    other = session.root / "session_99990101_000000_zzzzzz"
    other.mkdir(mode=0o700)
    (other / "journal.jsonl").write_text("")
    os.utime(other / "journal.jsonl", (0, 0))
    assert session.session_id in ctxfs("check", "last", "--root", session.root).out.decode()
    assert session.session_id in ctxfs("check", session.session_id[:14], "--root", session.root).out.decode()
    ambiguous = ctxfs("check", "session_", "--root", session.root)
    assert ambiguous.code == 2
    assert other.name in ambiguous.err


def test_last_is_the_newest_also_when_a_session_has_that_name(ctxfs: Command, session: Session) -> None:
    shutil.copytree(session.path, session.root / "last", copy_function=shutil.copy2)
    os.utime(session.root / "last" / "journal.jsonl", (0, 0))
    assert session.session_id in ctxfs("check", "last", "--root", session.root).out.decode()
    said = ctxfs("check", "las", "--root", session.root).out.splitlines()
    assert said[0].startswith(b"last: index.json: it is the index of another session")
    assert said[-1].startswith(b"last: ")


PRINTED = b"first \xff\xfe line\n" + "é\u202e \ud800\n".encode("utf-8", "surrogatepass") + b"\n\rlast\377\376"


@pytest.fixture
def printed(tmp_path: Path) -> Path:
    """A root with a session in which a command printed what is no text."""

    async def make() -> None:
        async with ContextFileSystem("one", root_path=tmp_path) as fs:
            log = await fs.writer.grow("Bash")
            await log.append(PRINTED)
            await log.finish({})

    anyio.run(make)
    return tmp_path


def test_lines_are_byte_exact(ctxfs: Command, printed: Path) -> None:
    def lines(*arguments: object) -> bytes:
        return ctxfs(arguments[0], "last", "terminal_001", *arguments[1:], "--root", printed).out

    every = PRINTED.split(b"\n")
    assert lines("cat", "--tail", 10) == lines("cat", "--lines", "1:") == lines("cat") == PRINTED
    assert lines("cat", "--tail", 1) == every[-1]
    assert lines("cat", "--tail", 2) == b"\n".join(every[-2:])
    assert lines("cat", "--lines", "1:2") == b"\n".join(every[:2]) + b"\n"


def test_lines_of_what_is_no_utf8_are_byte_exact(ctxfs: Command, session: Session) -> None:
    for item in ("call_002", "call_006"):  # in its file, in the journal
        result = ctxfs("cat", "last", item, "--lines", "400:", "--root", session.root)
        assert result.out == b"caf\xe9 \xff\x00\x1b[31m\n"


@pytest.mark.parametrize(
    ("arguments", "key", "exact"),
    [
        (("cat",), "content", PRINTED),
        (("cat", "--tail", "1"), "content", PRINTED.split(b"\n")[-1]),
        (("cat", "--lines", "1"), "content", PRINTED.split(b"\n")[0]),
    ],
)
def test_json_is_unicode_and_has_the_bytes_beside_it(
    ctxfs: Command, printed: Path, arguments: tuple[str, ...], key: str, exact: bytes
) -> None:
    result = ctxfs(arguments[0], "last", "terminal_001", *arguments[1:], "--root", printed, "--json")
    told = orjson.loads(result.out)  # refuses lone surrogates
    assert told[key] == exact.decode("utf-8", "replace")
    assert base64.b64decode(told[f"{key}_base64"]) == exact


def test_json_of_matches_is_exact_too(ctxfs: Command, printed: Path) -> None:
    first, last = orjson.loads(ctxfs("grep", "last", "first|last", "--root", printed, "--json").out)
    assert first["text"] == "first \ufffd\ufffd line"
    assert base64.b64decode(first["text_base64"]) == b"first \xff\xfe line"
    assert base64.b64decode(last["text_base64"]) == b"\rlast\xff\xfe"


def test_json_of_blocks_with_a_lone_surrogate(ctxfs: Command, tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": "half \ud83d \U0001f600"}]

    async def make() -> None:
        async with ContextFileSystem("one", root_path=tmp_path) as fs:
            await fs.writer.store([tool_result(fs, tuple(blocks))])

    anyio.run(make)
    told = orjson.loads(ctxfs("cat", "last", "call_1", "--root", tmp_path, "--json").out)
    assert told["content"] == [{"type": "text", "text": "half \ufffd \U0001f600"}]
    assert json.loads(base64.b64decode(told["content_base64"])) == blocks


def test_json_of_text_has_no_base64(ctxfs: Command, session: Session) -> None:
    assert "content_base64" not in loads(ctxfs("cat", "last", "call_001", "--root", session.root, "--json"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls", "nope"),
        ("ls", ""),
        ("cat", "last", "nope"),
        ("cat", "last", ""),
        ("cat", "last", "call_00"),
        ("cat", "last", "call_001", "--lines", "5:2"),
        ("cat", "last", "call_001", "--lines", "0:2"),
        ("cat", "last", "call_001", "--lines", "x"),
        ("cat", "last", "call_001", "--lines", "201:"),
        ("cat", "last", "call_005", "--lines", "201:"),
        ("grep", "last", "("),
        ("grep", "last", r"(a)\1"),
        ("grep", "last", "x", "--item", "nope"),
        ("check", "../" * 3),
        ("forget", "nope", "--yes"),
        ("chat", "--session", "nope"),
    ],
    ids=" ".join,
)
def test_wrong_use_is_one_line_and_2(ctxfs: Command, session: Session, arguments: tuple[str, ...]) -> None:
    result = ctxfs(*arguments, "--root", session.root)
    assert (result.code, result.out) == (2, b"")
    assert result.err.startswith("ctxfs: ")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("frob",), "ctxfs --help"),
        (("--root", "x", "ls"), "ctxfs --help"),
        (("ls",), "ctxfs ls --help"),
        (("cat", "last", "call_001", "--tail", "0"), "ctxfs cat --help"),
        (("ls", "last", "-x"), "ctxfs ls --help"),
        (("ls", "last", "two\nlines\u202e"), "ctxfs ls --help"),
    ],
)
def test_wrong_arguments_are_one_line_and_2(ctxfs: Command, arguments: tuple[str, ...], where: str) -> None:
    result = ctxfs(*arguments)
    assert (result.code, result.out) == (2, b"")
    assert result.err.startswith("ctxfs: ")
    assert result.err.endswith(f": see `{where}`\n")
    assert result.err.count("\n") == 1
    assert "\u202e" not in result.err


def test_without_a_command_it_shows_its_help(ctxfs: Command) -> None:
    result = ctxfs()
    assert (result.code, result.out) == (2, b"")
    assert "keep tidy  du " in result.err


def test_the_version(ctxfs: Command) -> None:
    assert ctxfs("--version") == Result(0, f"ctxfs {version('ctxfs')}\n".encode(), "")


def test_a_content_that_is_gone_is_1(ctxfs: Command, session: Session) -> None:
    (session.path / "tool_result/log/call_001.json").unlink()
    result = ctxfs("cat", "last", "call_001", "--root", session.root)
    assert (result.code, result.out, result.err.count("\n")) == (1, b"", 1)
    assert "tool_result/log/call_001.json" in result.err


def test_what_a_command_had_not_finished_is_partial(ctxfs: Command, tmp_path: Path) -> None:
    async def make() -> None:
        async with ContextFileSystem("one", root_path=tmp_path) as fs:
            await (await fs.writer.grow("Bash")).append(b"so far")
            log = await fs.writer.grow("Bash")
            await log.finish({})

    anyio.run(make)
    partial = {item["item_id"]: item["partial"] for item in loads(ctxfs("ls", "one", "--root", tmp_path, "--json"))}
    assert partial == {"terminal_001": True, "terminal_002": False}
    text = ctxfs("ls", "one", "--root", tmp_path).out.decode()
    assert "terminal_001.log (partial)" in text
    assert "terminal_002.log (partial)" not in text


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, 60, 100])
def test_a_narrow_terminal_has_whole_ids(session: Session, columns: int) -> None:
    words = [sys.executable, "-m", "ctxfs", "ls", "last", "--root", str(session.root)]
    plain = {**os.environ, "CTXFS_PAGER": "", "TERM": "dumb"}
    lines = on_a_terminal(words, plain, columns=columns).splitlines()
    assert {"msg_001", "call_001", "call_005"} <= {line.partition(" ")[0] for line in lines}


@pytest.mark.parametrize("character", [*"\u061c\u200e\u200f\u202a\u202e\u2066\u2069\ud800"])
def test_what_turns_text_round_is_shown_as_an_escape(character: str) -> None:
    assert for_terminal(f"a{character}b") == f"a\\u{ord(character):04x}b"
    assert for_terminal("\x1b[31m\x9b\n\té→") == "\\x1b[31m\\x9b\n\té→"


def test_a_root_that_is_a_file(ctxfs: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = ctxfs("sessions", "--root", tmp_path / "file")
    assert (result.code, result.err.count("\n")) == (2, 1)


def test_a_session_that_is_written_can_be_read_but_not_removed(ctxfs: Command, session: Session) -> None:
    async def hold() -> tuple[Result, Result]:
        async with ContextFileSystem(session.session_id, root_path=session.root):
            ls = await anyio.to_thread.run_sync(lambda: ctxfs("ls", "last", "--root", session.root))
            rm = await anyio.to_thread.run_sync(lambda: ctxfs("forget", "last", "--yes", "--root", session.root))
            return ls, rm

    ls, rm = anyio.run(hold)
    assert ls.code == 0
    assert rm.code == 2
    assert "is locked" in rm.err
    assert session.path.exists()


@tool("Get several logs")
def logs() -> str:
    return LOG * 4


async def _make_damaged(root: Path) -> None:
    """Of three results one has left; that one is lost, one that stays is changed, and so is the journal's end."""
    config = AgentConfig(tools=[logs, log], offload_root_path=root, session_id="s", pricing=None)
    calls = [ToolCall("log", {"name": "a"}), ToolCall("logs", {}), ToolCall("log", {"name": "b"})]
    async with Agent(ScriptedModel([calls, "done"]), config) as agent:
        await agent.query("Look around")
        await agent.context.evict()
    results = anyio.Path(root / "s" / "tool_result")
    data = bytearray(await (results / "logs" / "call_002.json").read_bytes())
    data[-100] ^= 1
    await (results / "logs" / "call_002.json").write_bytes(data)
    await (results / "log" / "call_001.json").unlink()
    async with await (results.parent / "journal.jsonl").open("ab") as journal:
        await journal.write(b"no line of a journal\n")


def test_what_is_damaged_is_told(ctxfs: Command, tmp_path: Path) -> None:
    anyio.run(_make_damaged, tmp_path)
    root = ("--root", tmp_path)
    (listed,) = loads(ctxfs("sessions", *root, "--json"))
    assert listed["error"] is None
    assert len(listed["damages"]) == 3
    assert "s has 3 damaged parts: `ctxfs ls` lists them" in ctxfs("sessions", *root).out.decode()
    shown = ctxfs("ls", "s", *root)
    assert shown.code == 0
    for text in ("journal.jsonl, at byte", "call_001 is damaged", "call_002 is damaged", "(damaged)"):
        assert text in shown.out.decode()
    in_json = ctxfs("ls", "s", *root, "--json")
    assert [row["item_id"] for row in loads(in_json) if row["damaged"]] == ["call_001", "call_002"]
    assert in_json.err.count("\n") == 3
    assert len(re.findall(r"damaged:", ctxfs("explain", "s", *root, "--json").out.decode())) == 2
    assert ctxfs("check", "s", *root).code == 1
    assert ctxfs("cat", "s", "call_002", *root).code == 1


def test_the_root_may_be_in_the_environment(ctxfs: Command, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTXFS_ROOT", str(session.root))
    assert str(session.path) in ctxfs("ls", "last").out.decode()


def test_a_session_that_lost_its_journal_and_its_index_is_there(ctxfs: Command, session: Session) -> None:
    before = ctxfs("cat", "last", "call_002", "--root", session.root).out
    (session.path / "journal.jsonl").unlink()
    (session.path / "index.json").unlink()
    for command in ("ls", "check", "explain", "cat"):
        result = ctxfs(command, session.session_id, *(["call_002"] if command == "cat" else []), "--root", session.root)
        assert "no session" not in result.err
    assert result.out == before == LATIN
