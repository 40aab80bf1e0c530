"""A session is gone on with by the kind of writer that it was written by, and refused, untouched, by the other one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs.agent import Agent, AgentConfig
from ctxfs.cli.app import run
from ctxfs.context.context import Context
from ctxfs.context.history.files import SessionFiles
from ctxfs.context.history.history import History
from ctxfs.context.history.parts import Part
from ctxfs.context.history.pool import Histories
from ctxfs.errors import ConfigError
from ctxfs.messages import CharsCounter
from ctxfs.messages.base import Usage
from ctxfs.session import tag_session
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.testing import ScriptedModel
from ctxfs.tools import Materialize

pytestmark = pytest.mark.not_measured

USER = {"role": "user", "content": "hello"}
BIG = "".join(f"line {i} of a file\n" for i in range(400))
RESULT = Part("result", BIG, 0, "c1", "Read")
TWO = [RESULT, Part("result", BIG[1:], 1, "c2", "Read")]
KEEP_ONE: dict[str, Any] = {
    "keep_recent": {"Read": 1},
    "pricing": None,
    "window": None,
    "materialize": Materialize(max_inline_chars=2_000),
}


def by_context(root: Path) -> None:
    async def write() -> None:
        async with Context("s", root_path=root) as context:
            await context.add(USER)

    anyio.run(write)


def by_agent(root: Path) -> None:
    async def write() -> None:
        config = AgentConfig(session_id="s", offload_root_path=root)
        async with Agent(ScriptedModel(["fine"]), config=config) as agent:
            await agent.query("hello")

    anyio.run(write)


def by_history(root: Path) -> None:
    with History("s", root_path=root, **KEEP_ONE) as history:
        history.rewrite(TWO)


def by_histories(root: Path) -> None:
    with Histories(root, **KEEP_ONE) as histories:
        histories.of("s").rewrite(TWO)


def by_arrival(root: Path) -> None:
    with History("s", root_path=root, **KEEP_ONE) as history:
        assert history.arrive(BIG, tool="Read", call_id="c1") != BIG


def by_bills(root: Path) -> None:
    with History("s", root_path=root, counter=CharsCounter()) as history:
        history.replied(Usage(input_tokens=9, output_tokens=1))


def by_counts(root: Path) -> None:
    with History("s", root_path=root, preview_above_tokens=None) as history:
        history.rewrite([RESULT])


def journal(root: Path) -> bytes:
    (written,) = root.glob("*/journal.jsonl")
    return written.read_bytes()


@pytest.mark.parametrize("write", [by_history, by_histories, by_arrival, by_bills, by_counts])
def test_a_context_and_an_agent_refuse_the_session_of_a_history(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path)
    before = journal(tmp_path)
    (session_id,) = [found.name for found in tmp_path.iterdir() if found.is_dir()]
    what_to_do = (
        f"Continue it there, or as History\\('{session_id}'\\) with the same root_path; a Context or an Agent needs "
    )
    with pytest.raises(ConfigError, match=what_to_do):
        anyio.run(Context(session_id, root_path=tmp_path).open)
    agent = Agent(ScriptedModel(["fine"]), config=AgentConfig(session_id=session_id, offload_root_path=tmp_path))
    with pytest.raises(ConfigError, match=what_to_do):
        anyio.run(agent.query, "hello")
    assert journal(tmp_path) == before
    with History(session_id, root_path=tmp_path, **KEEP_ONE) as history:  # nothing holds it, and its own kind goes on
        history.rewrite([RESULT])


@pytest.mark.parametrize("write", [by_context, by_agent])
def test_a_history_refuses_the_session_of_a_context(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path)
    before = journal(tmp_path)
    history = History("s", root_path=tmp_path, **KEEP_ONE)
    uses: list[Callable[[], Any]] = [
        lambda: history.rewrite([RESULT]),
        lambda: history.arrive(BIG, tool="Read", call_id="c1"),
        lambda: history.replied(Usage(input_tokens=9, output_tokens=1)),
        lambda: history.run_tool("Read", {"file_path": "c1"}),
    ]
    for use in uses:
        with pytest.raises(ConfigError, match=r"continue it as Context\('s'\) or with AgentConfig\(session_id='s'\)"):
            use()
    history.close()
    assert journal(tmp_path) == before
    write(tmp_path)  # nothing holds it, and its own kind goes on


def test_a_session_without_a_conversation_may_become_either(tmp_path: Path) -> None:
    async def make(session_id: str) -> None:
        async with ContextFileSystem(session_id, root_path=tmp_path):
            pass
        await tag_session(session_id, add=["new"], root_path=tmp_path)

    anyio.run(make, "s")
    by_context(tmp_path)
    anyio.run(make, "other")
    with History("other", root_path=tmp_path, **KEEP_ONE) as history:
        assert history.arrive(BIG, tool="Read", call_id="c1") != BIG


def test_a_history_notices_that_a_context_took_its_empty_session(tmp_path: Path) -> None:
    history = History("s", root_path=tmp_path, **KEEP_ONE)
    assert history.rewrite([]).tokens == 0
    by_context(tmp_path)
    before = journal(tmp_path)
    with pytest.raises(ConfigError, match="has messages of its own"):
        history.arrive(BIG, tool="Read", call_id="c1")
    assert journal(tmp_path) == before
    history.close()


@pytest.mark.parametrize("command", [("mcp", "wrap"), ("proxy",)])
@pytest.mark.parametrize("named", ["s", "last"])
def test_a_command_that_keeps_results_says_which_option_to_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], named: str
) -> None:
    by_context(tmp_path)
    before = journal(tmp_path)
    assert run([*command, "--root", str(tmp_path), "--session", named, "--", "true"]) == 2
    assert "a Context or an Agent wrote: give another --session, or none" in capsys.readouterr().err
    assert journal(tmp_path) == before


@pytest.mark.parametrize("error", [None, KeyError("of the block")])
def test_bills_of_a_session_that_a_context_took_are_logged_when_it_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception | None
) -> None:
    """An error of closing would hide that of the block."""

    def use() -> None:
        with History("s", root_path=tmp_path, **KEEP_ONE) as history:
            history.rewrite([])
            history.replied(Usage(input_tokens=9, output_tokens=1), model="m")
            by_context(tmp_path)
            if error is not None:
                raise error

    if error is None:
        use()
    else:
        with pytest.raises(KeyError, match="of the block"):
            use()
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "has messages of its own" in warning
    assert "bills are lost: 1" in warning
    by_context(tmp_path)  # nothing holds it


def test_bills_that_are_due_just_when_a_context_took_the_session_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    history = History("s", root_path=tmp_path, **KEEP_ONE)
    history.rewrite([])
    usage = Usage(input_tokens=9, output_tokens=1)
    for _ in range(9):
        history.replied(usage, model="m")
    by_context(tmp_path)
    before = journal(tmp_path)
    monkeypatch.setattr(SessionFiles, "catch_up", lambda _: False)  # it came between the look and the write
    history.replied(usage, model="m")
    assert "has messages of its own" in caplog.text
    history.close()
    assert "bills are lost: 10" in caplog.text
    assert journal(tmp_path) == before


def test_closing_hides_no_other_error_of_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> bool:
        raise ConfigError("the store cannot do this")

    history = History("s", root_path=tmp_path)
    history.rewrite([Part("user", "hi", 0)])
    history.replied(Usage(input_tokens=5), "m")
    monkeypatch.setattr(SessionFiles, "write", refused)
    with pytest.raises(ConfigError, match="cannot do this"):
        history.close()
