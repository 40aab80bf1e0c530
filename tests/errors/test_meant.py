"""What a user writes by mistake, or as another project writes it, is answered with what was meant."""

import importlib
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import ctxfs
from ctxfs import Agent, AgentConfig, Context, ContextFileSystem, ContextItem, History, ItemType, OffloadPolicy, tool
from ctxfs.adapters.transport import history_transport
from ctxfs.agent import ChatAnthropic
from ctxfs.context import Histories
from ctxfs.errors import ConfigError, SessionLocked, SessionNotFound
from ctxfs.errors.spelling import did_you_mean, nearest
from ctxfs.eviction import EvictionParameters, SelectiveCompaction, Window
from ctxfs.lazy import OTHER_NAMES, lazy
from ctxfs.messages import Prices, ToolMessage, UnknownModel
from ctxfs.session import tag_session
from ctxfs.testing import ScriptedModel
from ctxfs.tools import KnowledgeService, Materialize
from test_public_names import PUBLIC

# Settings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "written", "says"),
    [
        (Context, {"session": "x"}, "Context has no setting 'session': did you mean 'session_id'?"),
        (Context, {"root": "x"}, "did you mean 'root_path'?"),
        (Context, {"offload_token_threshold": 9}, r"give offload_policy=OffloadPolicy\(token_threshold=...\)"),
        (Context, {"zzz": 1}, "Context has no setting 'zzz': its settings are session_id, model, root_path, "),
        (AgentConfig, {"tool": []}, "AgentConfig has no setting 'tool': did you mean 'tools'?"),
        (AgentConfig, {"root_path": "x"}, "it is offload_root_path here"),
        (Agent, {"tools": []}, r"Agent has no setting 'tools': write Agent\(llm, AgentConfig\(tools=...\)\)"),
        (Agent, {"model": "x"}, r"it is llm here, such as ChatAnthropic\(\)"),
        (AgentConfig, {"model": "x"}, r"give the model to Agent\(llm, config\)"),
        (History, {"offload_enabled": False}, "pricing=None and no keep_recent replace nothing"),
        (History, {"materialise": 1}, "did you mean 'materialize'?"),
        (ContextFileSystem, {"readonly": True}, "did you mean 'read_only'?"),
        (Window, {"window": 9}, "Window has no setting 'window': did you mean 'window_tokens'?"),
        (OffloadPolicy, {"threshold": 9}, "it is token_threshold, or type_thresholds for some types"),
        (OffloadPolicy, {"tokens_threshold": 9}, "did you mean 'token_threshold'?"),
        (SelectiveCompaction, {"rule": {}}, "did you mean 'rules'?"),
        (SelectiveCompaction, {"policy": None}, "give offload_policy beside window: it says what may be evicted"),
        (Materialize, {"max_chars": 9}, "did you mean 'max_inline_chars'?"),
        (ChatAnthropic, {"apikey": "x"}, "did you mean 'api_key'?"),
        (Histories, {"preview_above_token": 9}, "Histories has no setting 'preview_above_token': did you mean 'prev"),
        (Histories, {"max_opened": 9}, "did you mean 'max_open'?"),
        (Histories, {"session_id": "x"}, r"each thread has a session of its own: give the thread's id to of\(...\)"),
        (Histories, {"idle_s": 9}, "with a smaller max_open it is closed earlier"),
        (Histories, {"budget": 9}, "it is window here, which takes a Window"),
        (history_transport, {"reading_turn": 8}, "history_transport has no setting 'reading_turn': did you mean"),
        (history_transport, {"preview_above_tokens": 9}, r"give it to the History\(...\) or Histories\(...\)"),
        (EvictionParameters, {"max_los": 9}, "EvictionParameters has no setting 'max_los': did you mean 'max_loss'?"),
        (tool, {"ephemral": 2}, "tool has no setting 'ephemral': did you mean 'ephemeral'?"),
    ],
)
def test_a_setting_that_is_not_there_is_answered_with_the_one_that_was_meant(
    make: Callable[..., Any], written: Mapping[str, Any], says: str
) -> None:
    with pytest.raises(TypeError, match=says.replace("?", r"\?")):
        make(**written)


def _said(word: str) -> str:
    return word


def test_settings_are_taken_as_before(tmp_path: Path) -> None:
    context = Context("s", root_path=tmp_path, keep_recent={"search": 2})
    assert context.session_id == "s"
    assert Window(window_tokens=9, reply_tokens=1) == Window(window_tokens=9, reply_tokens=1)
    assert tool("Say a word")(_said).name == "_said"


@pytest.mark.parametrize(
    ("make", "written", "says"),
    [
        (Prices, {"input": 1, "output": 5}, "Prices needs cache_read: write Prices(cache_read=...)"),
        (Agent, {}, "Agent needs llm: write Agent(llm=...)"),
        (tool, {"name": "say"}, "tool needs description: write tool(description=...)"),
    ],
)
def test_a_setting_that_must_be_given_and_is_not_is_named(
    make: Callable[..., Any], written: Mapping[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        make(**written)


@pytest.mark.parametrize(
    "make",
    [Context, ContextFileSystem, KnowledgeService, lambda: Agent(ScriptedModel([]))],
    ids=["Context", "ContextFileSystem", "KnowledgeService", "Agent"],
)
def test_with_says_that_async_with_is_needed(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    made = make()
    with pytest.raises(TypeError, match=f"{type(made).__name__} needs `async with`, not `with`"), made:
        pass
    with pytest.raises(TypeError, match="needs `async with`"):
        made.__exit__(None, None, None)


# Names ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("facade", ["ctxfs", "ctxfs.context"])
@pytest.mark.parametrize("name", ["SelectiveCompactionPolicy", "EphemeralManager", "ToolMessage"])
def test_a_name_of_the_specification_is_answered_with_the_one_here(facade: str, name: str) -> None:
    with pytest.raises(ImportError, match=f"{facade} has no {name}: write "):
        exec(f"from {facade} import {name}")


def answer_to(name: str) -> str | None:
    """What to write instead of ``from ctxfs import name``; None: nobody looks for it there."""
    try:
        getattr(ctxfs, name)
    except ImportError as error:
        return str(error).split("`")[1]
    except AttributeError:
        return None
    return None


def test_a_name_that_lives_elsewhere_is_answered_with_the_line_to_write() -> None:
    lines = []
    for home, names in PUBLIC.items():
        for name in sorted(set(names.split()) - set(PUBLIC["ctxfs"].split())):
            line = answer_to(name)
            assert line in (None, f"from {home} import {name}")
            lines.append(line)
    assert len([line for line in lines if line is not None]) >= 20
    assert "from ctxfs.agent import ChatAnthropic" in lines


def test_what_other_names_say_is_there() -> None:
    exec(OTHER_NAMES["SelectiveCompactionPolicy"])
    assert "Context(keep_recent=" in OTHER_NAMES["EphemeralManager"]
    with pytest.raises(ImportError, match=r"ctxfs.eviction has no Budget: write `Window\("):
        from ctxfs.eviction import Budget  # noqa: F401


def test_a_misspelled_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"module 'ctxfs' has no attribute 'Agnt': did you mean 'Agent'\?"):
        ctxfs.Agnt  # noqa: B018
    with pytest.raises(AttributeError, match=r"module 'ctxfs' has no attribute 'zzz'$"):
        ctxfs.zzz  # noqa: B018
    assert not hasattr(ctxfs, "__wrapped__")


def test_a_facade_without_other_names_gives_what_it_has() -> None:
    get, names = lazy("ctxfs", {"ctxfs.errors": ["CtxfsError"]})
    assert get("CtxfsError") is ctxfs.CtxfsError
    assert "Agent" in names()
    with pytest.raises(AttributeError, match="has no attribute 'ChatAnthropic'"):
        get("ChatAnthropic")


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        ("ctxfs.context.fs", "ContextFileSystem", ContextFileSystem),
        ("ctxfs.context.offload", "OffloadPolicy", OffloadPolicy),
        ("ctxfs.context.items", "ContextItem", ContextItem),
        ("ctxfs.context.items", "ItemType", ItemType),
        ("ctxfs.messages.messages", "ToolMessage", ToolMessage),
    ],
)
def test_the_modules_of_the_specification_have_its_names(module: str, name: str, value: object) -> None:
    assert getattr(importlib.import_module(module), name) is value


@pytest.mark.anyio
async def test_the_loop_of_the_specification_over_the_items_works(tmp_path: Path) -> None:
    async with Agent(ScriptedModel(["ok"]), AgentConfig(offload_root_path=tmp_path)) as agent:
        await agent.query("go")
        as_specified = agent._context.conversation.items  # noqa: SLF001 - the specification's own line
        assert [item.id for item in as_specified] == [item.id for item in agent.context.items]
        assert len(agent.context.items) == 2


# Models ---------------------------------------------------------------------------------------------------------------


def warned(model: str, tmp_path: Path) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        Context(model=model, root_path=tmp_path)
    assert all(w.category is UnknownModel for w in seen)
    return [str(w.message) for w in seen]


def test_a_misspelled_model_gives_one_warning_with_the_model_that_was_meant(tmp_path: Path) -> None:
    (said,) = warned("claude-sonet-5-5", tmp_path)
    assert said.startswith(
        "the model 'claude-sonet-5-5' is unknown: did you mean 'claude-sonnet-5-5'? Assumed of it are "
    )
    assert re.search(
        r"a window of 128,000 tokens and Anthropic's ratios of prices: give your own, as window=... \(--window N\)",
        said,
    )


def test_a_model_that_is_like_no_other_is_unknown_without_a_question(tmp_path: Path) -> None:
    (said,) = warned("zzzz", tmp_path)
    assert said.startswith("the model 'zzzz' is unknown. Assumed of it are ")


def test_a_new_version_of_a_known_model_is_no_misspelling(tmp_path: Path) -> None:
    (said,) = warned("gpt-5-words", tmp_path)
    assert said.startswith(
        "the model 'gpt-5-words' is unknown. Assumed of it are a window of 400,000 tokens and the prices of 'gpt-5'"
    )


# Spelling -------------------------------------------------------------------------------------------------------------


def test_only_a_name_that_is_like_another_is_taken_for_it() -> None:
    assert nearest("economical", ["exact", "economic"]) == "economic"
    assert nearest("budget", ["digest_tokens", "status_tokens"]) is None
    assert did_you_mean("economical", iter(["economic"])) == ": did you mean 'economic'?"
    assert did_you_mean("x", []) == ""


# Writers --------------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_second_writer_in_one_process_is_told_that_the_first_is_its_own(tmp_path: Path) -> None:
    async with Context("s", root_path=tmp_path) as context:
        await context.add({"role": "user", "content": "go"})
        with pytest.raises(
            SessionLocked, match="is locked by another Context, Agent or History of this process: close"
        ):
            await Context("s", root_path=tmp_path).open()


# Sessions -------------------------------------------------------------------------------------------------------------


def test_a_session_that_is_not_found_names_the_one_that_was_meant() -> None:
    found = SessionNotFound("smal1", "/root", meant="small")
    assert str(found).startswith("no session 'smal1' under /root: did you mean 'small'? `ctxfs sessions` lists what is")
    assert found.meant == "small"
    assert "did you mean" not in str(SessionNotFound("smal1", "/root"))
    assert str(SessionNotFound("small", "/root", "removed")) == "session small was removed"


@pytest.mark.anyio
async def test_a_session_that_is_opened_by_a_misspelt_id_is_answered_with_the_one_that_was_meant(
    tmp_path: Path,
) -> None:
    async with Context("nightly-crawl", root_path=tmp_path):
        pass
    (tmp_path / "nightly-crawls").mkdir()  # which is no session
    for given, meant in (("nigthly-crawl", "nightly-crawl"), ("xyzzy", "")):
        with pytest.raises(SessionNotFound) as raised:
            await ContextFileSystem(given, root_path=tmp_path, read_only=True).open()
        assert raised.value.meant == meant
    with pytest.raises(SessionNotFound, match="did you mean 'nightly-crawl'"):
        await tag_session("nightly_crawl", add=["x"], root_path=tmp_path)
