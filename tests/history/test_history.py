"""A history that a framework owns: what is replaced, when, for how long, and in which threads and processes."""

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio

from ctxfs.context.history.core import HistoryCore
from ctxfs.context.history.history import History
from ctxfs.context.history.parts import Edits, Part
from ctxfs.context.history.settings import HistorySettings
from ctxfs.errors import (
    ConfigError,
    ContextOverflow,
    InvalidToolArguments,
    PromptTooLong,
    SessionLocked,
    TranscriptError,
)
from ctxfs.eviction.compaction import SelectiveCompaction, Strategy
from ctxfs.eviction.economics.economy import EvictionPricing
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.events import ContextEvent, Evicted, Offloaded, OffloadFailed
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.window import Window
from ctxfs.lab.replay.explanation import Explanation, explain
from ctxfs.messages.base import Reply, Usage
from ctxfs.messages.items import ItemType
from ctxfs.messages.names import ENVELOPE
from ctxfs.session.entries import entries
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.shared import SharedFileSystem
from ctxfs.session.timeline.costs import Account, account
from ctxfs.tools import Materialize
from patience import HANGS_S

MOVING = SelectiveCompaction(rules={ItemType.USER_MESSAGE: Strategy.DROP})

KEEP_ONE: dict[str, Any] = {
    "keep_recent": {"Read": 1},
    "pricing": None,
    "window": None,
    "materialize": Materialize(max_inline_chars=2_000),
}


def big(n: int, lines: int = 400) -> str:
    return "".join(f"line {i} of file {n}\n" for i in range(lines))


def exchange(n: int, content: Any = None, call_id: str | None = None) -> list[Part]:
    call_id = f"c{n}" if call_id is None else call_id
    content = big(n) if content is None else content
    return [
        Part("reply", f"reading {n}", ("r", n)),
        Part("call", {"path": f"/f{n}"}, ("c", n), call_id, "Read"),
        Part("result", content, ("o", n), call_id, "Read"),
    ]


def conversation(exchanges: int) -> list[Part]:
    return [Part("user", "go", "u"), *(part for n in range(exchanges) for part in exchange(n))]


def applied(parts: list[Part], edits: Edits) -> list[Part]:
    return [part._replace(content=edits.get(part.place, part.content)) for part in parts]


def loaded(history: History, item_id: str) -> Any:
    async def load() -> Any:
        async with ContextFileSystem(history.session_id, root_path=history.session_path.parent, read_only=True) as fs:
            return await fs.load(item_id)

    return anyio.run(load)


# What is replaced ----------------------------------------------------------------------------------------------------


def test_what_is_due_is_replaced_and_read_back(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        assert not history.rewrite(conversation(1))
        edits = history.rewrite(conversation(3))
        assert list(edits) == [("o", 0), ("o", 1)]
        placeholder = edits["o", 0]
        assert isinstance(placeholder, str)
        path = f"{tmp_path}/s/tool_result/Read/c0.txt"
        assert placeholder.startswith(f"[Content offloaded]\nPath: {path}\nUse Read tool to view details.")
        assert Path(path).read_text() == big(0)
        page = history.run_tool("Read", {"file_path": path, "offset": 400})
        assert str(page.content).startswith("400\tline 399 of file 0\n")


def test_explain_says_what_replacing_made_the_cache_write_again(tmp_path: Path) -> None:
    counted: list[int] = []
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        for exchanges in range(1, 5):
            counted.append(history.rewrite(conversation(exchanges)).tokens)
            cached = 100 * exchanges  # as many in each bill would be a system prompt alone
            usage = {"input_tokens": counted[-1] - cached, "cache_read_input_tokens": cached, "output_tokens": 5}
            history.replied(usage, "claude-sonnet-5-5")

    async def explained() -> tuple[Account, Explanation]:
        async with ContextFileSystem("s", root_path=tmp_path, read_only=True) as fs:
            return account(await fs.history()), await explain(fs)

    costs, told = anyio.run(explained)
    again = [call.rewritten for call in costs.requests]
    assert [tokens > 0 for tokens in again] == [False, True, True, True]
    assert again[1] < counted[0] / 2, "a result that is gone is not written again"
    assert again[1] == again[3], "one placeholder, and the reply with its call"
    assert told.effect.rewriting > 0
    assert told.effect.net == told.effect.saved - told.effect.rewriting


def test_the_same_history_is_rewritten_to_the_same_bytes_also_after_a_restart(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        first = dict(history.rewrite(conversation(3)))
        assert dict(history.rewrite(conversation(3))) == first
    with History("s", root_path=tmp_path, **{**KEEP_ONE, "keep_recent": None}) as history:
        assert dict(history.rewrite(conversation(3))) == first


def test_a_history_that_kept_what_was_sent_is_the_same_history(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        kept = applied(conversation(3), history.rewrite(conversation(3)))
        assert not history.rewrite(kept)
        assert list(history.rewrite([*kept, *exchange(3)])) == [("o", 2)]
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        assert list(history.rewrite(kept)) == [("o", 2)]
        assert history.rewrite(conversation(3))[("o", 0)] == kept[3].content


def test_what_was_replaced_stays_so_in_a_rewound_and_in_an_edited_history(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        edits = history.rewrite(conversation(3))
        assert dict(history.rewrite(conversation(2))) == {("o", 0): edits["o", 0], ("o", 1): edits["o", 1]}
        other = [*conversation(2), *exchange(7)]
        assert dict(history.rewrite(other)) == dict(edits)
        edited = [part if part.place != ("o", 0) else part._replace(content="short") for part in other]
        assert list(history.rewrite(edited)) == [("o", 1)]


def test_any_order_is_taken(tmp_path: Path) -> None:
    orphan = Part("result", big(8), "orphan", "gone", "Read")
    open_call = Part("call", {"path": "x"}, "open", "c9", "Read")
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        parts = [orphan, open_call, Part("user", "steer", "s"), *exchange(1), *exchange(1), *exchange(2)]
        placed = [part._replace(place=n) for n, part in enumerate(parts)]
        assert history.rewrite(placed)
        assert not history.rewrite([])


def test_a_part_that_stays_is_counted_and_never_replaced(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        parts = [p._replace(stays=p.place == ("o", 0)) for p in conversation(3)]
        edits = history.rewrite(parts)
        assert list(edits) == [("o", 1)]
        assert edits.tokens > 2_000


def test_content_blocks_and_their_text_are_the_same_content(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        edits = history.rewrite(conversation(3))
        mark = {"cache_control": {"type": "ephemeral"}}
        blocks = [
            p._replace(content=[{"type": "text", "text": p.content, **mark}]) if p.kind == "result" else p
            for p in conversation(3)
        ]
        assert dict(history.rewrite(blocks)) == dict(edits)


def test_dicts_that_the_framework_changes_in_place_are_seen_as_changed(tmp_path: Path) -> None:
    block = {"type": "text", "text": big(0)}
    two = [block, {"type": "text", "text": "and more"}]
    parts = [p if p.place != ("o", 0) else p._replace(content=two) for p in conversation(3)]
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        assert ("o", 0) in history.rewrite(parts)
        block["text"] = "changed"
        assert ("o", 0) not in history.rewrite(parts)


def test_arguments_of_calls_leave_when_that_pays(tmp_path: Path) -> None:
    pricing = EvictionPricing(parameters=EvictionParameters(read_back_weight=0.0, max_loss=100.0))
    with History("s", root_path=tmp_path, pricing=pricing, window=None) as history:
        written = Part("call", {"path": "/f", "text": big(1)}, "written", "w1", "Write")
        parts = [Part("user", "go", "u"), written, Part("result", "ok", "ok", "w1", "Write")]
        for n in range(5):
            parts += exchange(n, "short")
            edits = history.rewrite(parts)
        assert edits["written"]["path"] == "/f"  # type: ignore[index, call-overload]
        assert edits["written"]["text"].startswith("[Content offloaded]")  # type: ignore[index, call-overload]
        kept = applied(parts, edits)
        assert not history.rewrite(kept)
        assert loaded(history, "w1.input")[0]["text"] == big(1)


def test_the_window_is_guarded_without_moving_a_message(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, pricing=None, window=6_000) as history:
        edits = history.rewrite(conversation(8))
        assert edits.tokens < 6_000
        assert edits.overflow is None
        assert {place[0] for place in edits} == {"o"}  # type: ignore[index]
        stays = [p._replace(stays=True) for p in conversation(8)]
        over = history.rewrite(stays, branch="b")
        assert over.overflow is not None
        assert not over


KEEPS_RESULTS = OffloadPolicy(type_enabled={"tool_result": False})


def test_what_the_policy_keeps_stays_even_when_the_window_is_full(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, pricing=None, window=6_000, offload_policy=KEEPS_RESULTS) as history:
        edits = history.rewrite(conversation(8))
        assert edits.overflow is not None
        assert not edits


@pytest.mark.parametrize("policy", [KEEPS_RESULTS, OffloadPolicy(token_threshold=100_000)], ids=["type", "size"])
def test_what_the_policy_keeps_is_not_previewed(tmp_path: Path, policy: OffloadPolicy) -> None:
    large = big(1, 2_000)
    parts = [Part("user", "go", "u"), *exchange(1, large)]
    for name, allowed in (("kept", policy), ("previewed", None)):
        with History(name, root_path=tmp_path, offload_policy=allowed) as history:
            assert bool(history.rewrite(parts)) is (allowed is None)
            assert (history.arrive(large, tool="Read", call_id="c9") == large) is (allowed is not None)


def test_a_reply_that_does_not_fit_is_replaced_part_by_part(tmp_path: Path) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    said = [thought, {"type": "text", "text": big(1, 900)}]
    call = Part("call", {"text": big(2, 900), "n": 1}, "call", "c1", "Write")
    parts = [Part("user", "go", "u"), Part("reply", said, "reply"), call, Part("result", "ok", "o", "c1", "Write")]
    with History("s", root_path=tmp_path, pricing=None, window=3_000) as history:
        edits: Any = history.rewrite(parts)
        assert edits.overflow is None
        assert edits["reply"][0] == thought  # the provider wants it back with the result
        assert edits["reply"][1]["text"].startswith("[Content offloaded]")
        assert edits["call"]["n"] == 1
        assert not history.rewrite(applied(parts, edits))
    plain = [Part("user", "go", "u"), Part("reply", big(3, 3_000), "r"), Part("user", "and", "v")]
    with History("t", root_path=tmp_path, pricing=None, window=3_000) as history:
        assert isinstance(history.rewrite(plain)["r"], str)


def test_thinking_of_an_earlier_reply_leaves_with_it(tmp_path: Path) -> None:
    thought = {"type": "thinking", "thinking": big(1, 900), "signature": "s"}
    call = {"type": "tool_use", "id": "c1", "name": "Write", "input": {"text": big(2, 900), "n": 1}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "ok"}
    body: dict[str, Any] = {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [thought, call]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": "and"},
        ]
    }
    with History("s", root_path=tmp_path, pricing=None, window=3_000) as history:
        sent = history.messages(body)
        said = sent["messages"][1]["content"]
        assert [block["type"] for block in said] == ["text", "tool_use"]
        assert said[0]["text"].startswith("[Content offloaded]")
        assert said[1]["input"]["n"] == 1
        assert said[1]["input"]["text"].startswith("[Content offloaded]")
        assert history.messages(body) == sent
        assert history.messages(sent) == sent
    with History("s", root_path=tmp_path, pricing=None, window=3_000) as history:
        assert history.messages(body) == sent


def test_a_reply_of_thinking_alone_is_never_left_empty(tmp_path: Path) -> None:
    thought = {"type": "thinking", "thinking": big(1, 900), "signature": "s"}
    call = Part("call", {"text": big(2, 900)}, "call", "c1", "Write")
    parts = [
        *(Part("user", "go", "u"), Part("reply", [thought], "first")),
        *(Part("reply", [thought, {"type": "text", "text": big(3, 900)}], "second"), call),
        *(Part("result", "ok", "o", "c1", "Write"), Part("reply", "done", "r"), Part("user", "and", "v")),
    ]
    with History("s", root_path=tmp_path, pricing=None, window=3_000) as history:
        edits = history.rewrite(parts)
        assert "second" in edits
        assert all(edits.values())
    empty = [part._replace(content=()) if part.place == "first" else part for part in parts]
    pricing = EvictionPricing(parameters=EvictionParameters(read_back_weight=0.0, max_loss=100.0))
    with History("t", root_path=tmp_path, pricing=pricing, window=None) as history:
        for n in range(5):
            empty += exchange(n, "short")
            calls = history.rewrite(empty)
        assert list(calls) == ["call"]


def test_what_is_sent_beside_the_history_counts(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, pricing=None, window=60_000) as history:
        alone = history.rewrite(conversation(8))
        assert not alone
        beside = history.rewrite(conversation(8), overhead_tokens=30_000)
        assert beside
        assert beside.tokens > 30_000


def test_breakpoints_name_places(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        assert history.rewrite(conversation(1)).breakpoints == ("u", ("o", 0))
        assert history.rewrite(conversation(4)).breakpoints[-1] == ("o", 3)


# Branches ------------------------------------------------------------------------------------------------------------


def test_branches_share_decisions_and_not_what_is_due(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        assert not history.rewrite(conversation(1), branch="b")
        edits = history.rewrite(conversation(3))
        assert dict(history.rewrite(conversation(1), branch="b")) == {("o", 0): edits["o", 0]}


def test_two_branches_may_use_one_call_id(tmp_path: Path) -> None:
    """Each knows its own content under the name that the other one's got first."""
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        for branch, n in (("a", 100), ("b", 200)):
            parts = [Part("user", "go", "u"), *exchange(n, call_id="c")]
            assert not history.rewrite(parts, branch=branch)
        found = [
            history.rewrite([Part("user", "go", "u"), *exchange(n, call_id="c"), *exchange(n + 1)], branch=branch)
            for branch, n in (("a", 100), ("b", 200))
        ]
        assert "Read/c.txt" in str(found[0]["o", 100])
        assert "Read/c~2.txt" in str(found[1]["o", 200])
        assert (loaded(history, "c"), loaded(history, "c~2")) == (big(100), big(200))


def test_a_branch_that_was_dropped_is_derived_again(tmp_path: Path) -> None:
    settings = settings_of(kept_branches=1)
    core = HistoryCore(SharedFileSystem("s", root_path=tmp_path, layout=settings.file_layout), settings)
    with core.used():
        edits = dict(core.rewrite(conversation(3), "", 0))
        core.rewrite(conversation(2), "b", 0)
        assert edits
        assert dict(core.rewrite(conversation(3), "", 0)) == edits
    core.close()


@pytest.mark.parametrize("branch", ["", "reader"])
def test_the_first_branch_in_use_learns_from_the_bills_before_a_restart(tmp_path: Path, branch: str) -> None:
    """Some frameworks name each of their agents: no branch of theirs is the main one's."""
    settings: dict[str, Any] = {"window": 10_000, "pricing": None, "root_path": tmp_path}
    with History("s", **settings) as history:
        edits = history.rewrite(conversation(3), branch=branch)
        history.replied(Usage(input_tokens=edits.tokens * 3, output_tokens=1), "model", branch=branch)
    with History("s", **settings) as history:
        assert history.rewrite(conversation(3), branch=branch).tokens < edits.tokens / 3


# At the source -------------------------------------------------------------------------------------------------------


def test_a_large_result_is_replaced_where_it_is_made_and_never_again(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        summary = history.arrive(big(0), tool="Read", call_id="c0")
        assert isinstance(summary, str)
        assert summary.startswith("[Output stored in full: Read, call c0]")
        assert history.arrive(big(0), tool="Read", call_id="c0") == summary
        assert history.arrive(summary, tool="Read", call_id="c0") == summary
        assert history.arrive("short", tool="Read", call_id="c5") == "short"
        parts = [Part("user", "go", "u"), *exchange(0, summary), *exchange(1), *exchange(2)]
        assert list(history.rewrite(parts)) == [("o", 1)]
        assert history.rewrite(conversation(3))["o", 0] == summary  # had the framework kept the original
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        assert history.arrive(big(0), tool="Read", call_id="c0") == summary


def test_what_is_stored_can_be_read_from_any_loop(tmp_path: Path) -> None:
    history = History("s", root_path=tmp_path, **KEEP_ONE)

    async def stored(fs: ContextFileSystem) -> list[str]:
        return [str(await fs.load(item_id)) for item_id in fs.state.stored]

    assert history.read(stored) == []
    history.rewrite(conversation(2))
    assert history.read(stored) == [big(0)]
    for run in (anyio.run, trio.run):
        assert run(history.aread, stored) == [big(0)]
    for wrong in (5, lambda fs: len(fs.state.stored)):
        with pytest.raises(ConfigError, match="use an async function of a session"):
            history.read(wrong)  # type: ignore[arg-type]
    ran: list[str] = []

    def runs(fs: ContextFileSystem) -> None:
        ran.append(fs.session_id)

    @wraps(stored)
    def wrapped(fs: ContextFileSystem) -> Coroutine[None, None, list[str]]:
        return stored(fs)

    with pytest.raises(ConfigError, match="use an async function of a session"):
        history.read(runs)  # type: ignore[arg-type]
    assert ran == []
    assert history.read(wrapped) == [big(0)]
    assert history.read(lambda fs: fs.load(next(iter(fs.state.stored)))) == big(0)
    history.close()


def test_without_ids_the_content_alone_says_what_it_is(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        summary = history.arrive(big(0), tool="Read", call_id="real")
        parts = [Part("user", "go", "u"), *exchange(0, summary, call_id=""), *exchange(1, call_id="")]
        assert not history.rewrite(parts)
        assert history.rewrite([Part("user", "go", "u"), *exchange(0, call_id="")])["o", 0] == summary
        other = history.arrive(big(5), tool="Read")
        assert history.rewrite([Part("user", "go", "u"), *exchange(5)])["o", 5] == other


def test_what_another_library_put_in_its_place_is_known(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        stub = "[stored at /large_tool_results/c0] " + "x" * 3_000
        assert history.arrive(big(0), tool="Read", call_id="c0", replacement=stub) == stub
        parts = [Part("user", "go", "u"), *exchange(0, stub), *exchange(1), *exchange(2)]
        assert list(history.rewrite(parts)) == [("o", 1)]
        assert loaded(history, "c0") == big(0)


def test_what_is_read_back_is_never_stored_a_second_time(tmp_path: Path) -> None:
    def asked(history: History, content: Any) -> list[Part]:
        call = Part("call", {"ref": "c0"}, "call", "b1", "context_read")
        page = Part("result", content, "page", "b1", "context_read")
        return [*conversation(2), Part("reply", "again", "a"), call, page]

    settings = {**KEEP_ONE, "keep_recent": {"Read": 1, "context_read": 1}}
    with History("s", root_path=tmp_path, **settings) as history:
        history.rewrite(conversation(2))
        content = history.run_tool("context_read", {"ref": "c0", "offset": 1, "limit": 300}).content
        assert history.arrive(content, tool="context_read", call_id="b1") == content
        history.rewrite(asked(history, content))
    with History("s", root_path=tmp_path, **settings) as history:
        assert history.arrive(content, tool="other") == content
        later = [*asked(history, content), *exchange(8)]
        later += [Part("call", {}, "x", "b2", "context_read"), Part("result", "y", "y", "b2", "context_read")]
        later += [Part("reply", "done", "d")]
        placeholder = str(history.rewrite(later)["page"])
        assert "Path: " + str(tmp_path / "s/tool_result/Read/c0.txt") in placeholder
        assert "Lines 1-300 of it were here" in placeholder
        assert {path.name for path in (tmp_path / "s").rglob("*.txt")} == {"c0.txt", "c1.txt"}


def test_tools_refuse_what_they_cannot_do(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path) as history:
        assert {tool.name for tool in history.tools} == {
            *("Read", "context_read", "context_tail", "context_grep", "context_list")
        }
        with pytest.raises(ConfigError, match="use one of Read, context_read"):
            history.run_tool("bash", {})
        assert history.run_tool("context_read", {"ref": "c0"}).is_error
        with pytest.raises(InvalidToolArguments):
            history.run_tool("context_read", {})


# What cannot be stored -----------------------------------------------------------------------------------------------


def test_what_cannot_be_stored_stays_and_the_call_goes_on(tmp_path: Path) -> None:
    events: list[ContextEvent] = []
    with History("s", root_path=tmp_path, on_event=events.append, **KEEP_ONE) as history:
        assert not history.rewrite(conversation(1))
        folder = tmp_path / "s" / "tool_result" / "Read"
        folder.mkdir(parents=True, mode=0o700)
        (folder / "c0.txt").write_text("somebody else's")
        edits = history.rewrite(conversation(3))
        assert list(edits) == [("o", 1)]  # what failed does not hold back the others
        assert [type(event) for event in events] == [OffloadFailed, Offloaded, Evicted]
        assert history.arrive(big(0), tool="Read", call_id="c0").startswith("[Output")  # type: ignore[union-attr]
        (folder / "c0.txt").unlink()
        assert list(history.rewrite(conversation(3))) == [("o", 0), ("o", 1)]


def settings_of(**chosen: Any) -> HistorySettings:
    """The settings of a ``History`` that keeps one result, as it gives them to its core."""
    defaults: dict[str, Any] = {
        "model": "",
        "offload_policy": None,
        "preview_above_tokens": 8_000,
        "layout": "text",
        "read_tool": "Read",
        "recall": False,
        "counter": None,
        "on_event": None,
    }
    return HistorySettings(**{**defaults, **KEEP_ONE, **chosen})


def test_a_session_that_another_writer_keeps_is_not_waited_for_without_end(tmp_path: Path) -> None:
    settings = settings_of()
    fs = SharedFileSystem("s", root_path=tmp_path, layout=settings.file_layout)
    core = HistoryCore(fs, settings, wait_s=0.01)

    def rewritten(count: int) -> Edits:
        with core.used():
            return core.rewrite(conversation(count), "", 0)

    def listed() -> None:
        with core.used(reads=True):
            core.run_tool("context_list", {})

    rewritten(1)

    async def keep() -> Edits:
        async with ContextFileSystem("s", root_path=tmp_path):
            assert not await anyio.to_thread.run_sync(rewritten, 3)
            with pytest.raises(SessionLocked):
                await anyio.to_thread.run_sync(listed)
        return await anyio.to_thread.run_sync(rewritten, 3)

    assert len(anyio.run(keep)) == 2
    core.close()


# Settings ------------------------------------------------------------------------------------------------------------


async def answered(prompt: str) -> Reply:
    raise NotImplementedError(prompt)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"layout": "yaml"}, "layout is 'yaml': use one of envelope, text"),
        ({"read_tool": "read file"}, "'read file' cannot be a tool's name"),
        ({"window": Window(50_000, summarize=answered)}, "leave out summarize"),
        ({"window": Window(50_000, compaction=MOVING)}, "moves messages"),
        ({"keep_recent": 2}, "keep_recent is 2"),
        ({"materialize": 5}, "materialize"),
        ({"pricing": 5}, "pricing"),
        ({"session_id": "../x"}, "session id"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_written(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        History(root_path=tmp_path / "root", **settings)
    assert not (tmp_path / "root").exists()


def test_bad_parts_decide_nothing(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        with pytest.raises(TranscriptError):
            history.rewrite([*conversation(3), Part("user", 5, "x")])  # type: ignore[arg-type]
        assert len(history.rewrite(conversation(3))) == 2
        with pytest.raises(ConfigError):
            history.rewrite(conversation(3), overhead_tokens=-1)
        with pytest.raises(ConfigError):
            history.rewrite(conversation(3), branch=5)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="error is 'too long'"):
            history.refused("too long")  # type: ignore[arg-type]


TWICE = Part("user", "go", "twice")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (None, "the history is of type NoneType: use a list of Part"),
        ("parts", "the history is of type str"),
        ([Part("user", "go", 0), 3], "a part is of type int: use Part"),
        ([Part("result", "text", 0, 3)], "the id of a part is of type int"),  # type: ignore[arg-type]
        ([Part("result", "text", 0, "c1", None)], "the tool of a part is of type NoneType"),  # type: ignore[arg-type]
        ([Part("user", "go", [1])], "a place of a part cannot be a key"),  # type: ignore[arg-type]
        ([TWICE, Part("reply", "ok", "once"), TWICE], "several parts have the place 'twice'"),
    ],
)
def test_what_is_no_history_is_refused_before_the_session_is_opened(tmp_path: Path, parts: Any, said: str) -> None:
    with History(root_path=tmp_path / "root", **KEEP_ONE) as history:
        with pytest.raises(TranscriptError, match=said):
            history.rewrite(parts)
        with pytest.raises(TranscriptError, match=said):
            anyio.run(history.arewrite, parts)
    assert not (tmp_path / "root").exists()


@pytest.mark.not_measured
def test_every_placeholder_names_the_tool_that_opens_its_file(tmp_path: Path) -> None:
    """Those of what is due, of what pays, of arguments, of what does not fit, of read-backs, and of what arrives."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    written = Part("call", {"path": "/f", "text": big(1)}, "written", "w1", "Write")
    pricing = EvictionPricing(parameters=EvictionParameters(read_back_weight=0.0, max_loss=100.0))
    settings: dict[str, Any] = {"root_path": tmp_path, "read_tool": "open_file", "pricing": None, "window": None}
    found: list[Any] = []
    with History("due", **{**settings, "keep_recent": {"Read": 1, "open_file": 1}}) as history:
        found += history.rewrite(conversation(2)).values()
        path = history.session_path / "tool_result/Read/c0.txt"
        page = history.run_tool("open_file", {"file_path": str(path)}).content
        back = [Part("result", page, "b", "b1", "open_file"), Part("reply", "I see.", "r")]
        more = [*back, Part("result", "x", "e", "b2", "open_file"), Part("reply", "Good.", "s")]
        found.append(history.rewrite([*conversation(2), *more])["b"])
        assert next(tool.name for tool in history.tools) == "open_file"
    with History("pays", **{**settings, "pricing": pricing}) as history:
        parts = [Part("user", "go", "u"), written, Part("result", "ok", "ok", "w1", "Write")]
        for n in range(8):
            parts += exchange(n)
            edits = history.rewrite(parts)
        found += [value["text"] if isinstance(value, dict) else value for value in edits.values()]
    with History("window", **{**settings, "window": 3_000, "preview_above_tokens": None}) as history:
        parts = [Part("user", big(7, 900), "u"), Part("reply", [thought, {"type": "text", "text": big(1, 900)}], "r")]
        parts.append(Part("user", "And now?", "v"))
        edits = history.rewrite([*parts, *exchange(1, big(1, 900))])
        found += [value[-1]["text"] if isinstance(value, tuple) else value for value in edits.values()]
    assert len(found) > 8
    assert [text for text in found if "\nUse open_file tool to view details." not in text] == []
    with History("arrives", **{**settings, "materialize": Materialize(max_inline_chars=500)}) as history:
        assert 'open_file(file_path="' not in str(history.arrive(big(1), tool="t"))  # two better ways come first
    with History("reads", **{**settings, "read_tool": "context_read"}) as history:
        assert [tool.name for tool in history.tools].count("context_read") == 1


def test_the_layout_is_that_of_the_session(tmp_path: Path) -> None:
    with History("s", root_path=tmp_path, layout=ENVELOPE.name, **KEEP_ONE) as history:
        edits = history.rewrite(conversation(2))
        assert "Read/c0.json" in str(edits["o", 0])
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        assert "Read/c1.json" in str(history.rewrite(conversation(3))["o", 1])


def test_bills_and_counts_are_recorded_with_the_next_write_and_on_close(tmp_path: Path) -> None:
    usage = {"input_tokens": 1_000, "output_tokens": 5}
    with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        history.rewrite(conversation(1))
        history.replied(usage, "claude-x")
        history.replied(usage, "claude-x")

    async def look() -> Any:
        async with ContextFileSystem("s", root_path=tmp_path, read_only=True) as fs:
            return fs.state

    state = anyio.run(look)
    assert [(call.number, call.usage.input_tokens) for call in state.calls] == [(1, 1_000), (2, 1_000)]
    assert state.calls[0].counted_tokens > 1_000
    assert list(state.noted_tokens.values()) == [pytest.approx(2_800, abs=800)]
    assert state.eviction.keep_recent == {"Read": 1}


def test_ten_bills_do_not_wait_for_anything(tmp_path: Path) -> None:
    history = History("s", root_path=tmp_path, **KEEP_ONE)
    for _ in range(19):
        history.replied({"input_tokens": 1, "output_tokens": 1}, "m")
    lines = (tmp_path / "s" / "journal.jsonl").read_text()
    assert lines.count('"call_made"') == 10


# What a provider refuses ---------------------------------------------------------------------------------------------


class TooLongForTheServer(Exception):
    """As an SDK words it."""


def test_what_a_provider_refuses_as_too_long_is_made_smaller(tmp_path: Path) -> None:
    parts = conversation(8)
    with History("s", root_path=tmp_path, pricing=None, window=100_000) as history:
        assert not history.rewrite(parts)
        history.refused(TooLongForTheServer("prompt is too long: 21000 tokens > 9000 maximum"))
        edits = history.rewrite(parts)
        assert edits
        assert edits.tokens < 9_000
        assert dict(history.rewrite(parts)) == dict(edits)
        history.refused(PromptTooLong("too long"))  # it does not say by how much
        assert history.rewrite(parts).tokens < edits.tokens
        with pytest.raises(TooLongForTheServer, match="try later"):
            history.refused(TooLongForTheServer("try later"))
        stays = [part._replace(stays=True) for part in parts]
        history.rewrite(stays, branch="b")
        with pytest.raises(ContextOverflow):
            history.refused(PromptTooLong("too long", limit_tokens=500, actual_tokens=20_000), branch="b")
        assert history.rewrite(stays, branch="b").overflow is not None
    with History("t", root_path=tmp_path, pricing=None, window=None) as history:
        history.rewrite(parts)
        with pytest.raises(PromptTooLong):
            history.refused(PromptTooLong("too long"))


# Threads, loops and processes ----------------------------------------------------------------------------------------


def in_threads(work: Callable[[int], Any], count: int = 3) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def test_three_threads_with_a_loop_each_share_a_history(tmp_path: Path) -> None:
    history = History("s", root_path=tmp_path, **KEEP_ONE)

    async def rounds(n: int) -> list[Edits]:
        return [await history.arewrite(conversation(length), branch=str(n)) for length in range(1, 8)]

    found = in_threads(lambda n: asyncio.run(rounds(n)) if n else trio.run(rounds, n))
    last = [dict(edits[-1]) for edits in found]
    assert last[0] == last[1] == last[2]
    assert len(last[0]) == 6


def test_a_loop_inside_a_loop_and_a_synchronous_call_in_a_running_one(tmp_path: Path) -> None:
    history = History("s", root_path=tmp_path, **KEEP_ONE)

    async def outer() -> tuple[Edits, Edits]:
        def inner() -> Edits:
            return asyncio.run(history.arewrite(conversation(3)))

        nested = await asyncio.to_thread(inner)
        here = await asyncio.to_thread(lambda: history.rewrite(conversation(4)))
        return nested, here

    nested, here = asyncio.run(outer())
    assert (len(nested), len(here)) == (2, 3)
    assert len(history.rewrite(conversation(5))) == 4


@pytest.mark.anyio
async def test_every_method_has_an_async_twin(tmp_path: Path) -> None:
    async with History("s", root_path=tmp_path, **KEEP_ONE) as history:
        assert len(await history.arewrite(conversation(3))) == 2
        assert str(await history.aarrive(big(9), tool="Read", call_id="c9")).startswith("[Output")
        await history.areplied({"input_tokens": 1, "output_tokens": 1}, "m")
        with pytest.raises(PromptTooLong):
            await history.arefused(PromptTooLong("a history without a window"))
        assert (await history.arun_tool("context_tail", {"ref": "c0", "lines": 1})).content
        body = {"messages": [{"role": "user", "content": "go"}]}
        assert await history.amessages(body) is body
        assert await history.achat(body) is body
        assert await history.aresponses({"input": "go"}) == {"input": "go"}


@pytest.mark.both_loops
@pytest.mark.anyio
async def test_a_cancelled_rewrite_loses_no_decision(tmp_path: Path) -> None:
    history = History("s", root_path=tmp_path, **KEEP_ONE)
    with anyio.move_on_after(0):
        await history.arewrite(conversation(3))
    assert len(await history.arewrite(conversation(3))) == 2
    await history.aclose()


def _child(path: Path, queue: Any, history: History) -> None:
    queue.put(sorted(history.rewrite(conversation(4)), key=str))
    history.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_goes_on_with_the_same_history(tmp_path: Path) -> None:
    history = History("s", root_path=tmp_path, **KEEP_ONE)
    edits = history.rewrite(conversation(3))
    locked = threading.Event()
    released = threading.Event()

    def hold() -> None:
        with history._core.used():  # noqa: SLF001 - as if another thread were in the middle of a call
            locked.set()
            released.wait(HANGS_S)

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(HANGS_S)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(tmp_path, queue, history))
    child.start()
    found = queue.get(timeout=HANGS_S)
    child.join(HANGS_S)
    released.set()
    holder.join()
    assert found == [("o", 0), ("o", 1), ("o", 2)]
    assert child.exitcode == 0
    after = history.rewrite(conversation(4))
    assert {place: after[place] for place in edits} == dict(edits)
    assert len(after) == 3


OTHER = """
import sys
sys.path.insert(0, {tests!r})
from history.test_history import KEEP_ONE, conversation
from ctxfs.context.history.history import History
history = History("s", root_path={root!r}, **KEEP_ONE)
for line in sys.stdin:
    edits = history.rewrite(conversation(int(line)))
    print(sorted((str(place), new) for place, new in edits.items()), flush=True)
"""


@pytest.mark.service
def test_two_processes_serve_one_session_in_turn(tmp_path: Path) -> None:
    code = OTHER.format(tests=str(Path(__file__).parent.parent), root=str(tmp_path))
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdin is not None
    assert other.stdout is not None
    history = History("s", root_path=tmp_path, **KEEP_ONE)
    here: list[Any] = []
    there: list[Any] = []
    for exchanges in range(1, 8):
        if exchanges % 2:
            here.append(sorted((str(place), new) for place, new in history.rewrite(conversation(exchanges)).items()))
        else:
            other.stdin.write(f"{exchanges}\n")
            other.stdin.flush()
            there.append(eval(other.stdout.readline()))
    other.stdin.close()
    other.stdout.close()
    other.wait(HANGS_S)
    longest = dict(here[-1])
    assert len(longest) == 6
    assert all(dict(found).items() <= longest.items() for found in [*here, *there])


@pytest.mark.not_measured
def test_processes_that_write_at_the_same_time_decide_once(tmp_path: Path) -> None:
    histories = [History("s", root_path=tmp_path, **KEEP_ONE) for _ in range(3)]
    found = in_threads(lambda n: [dict(histories[n].rewrite(conversation(k))) for k in range(1, 12)])
    assert found[0][-1].keys() == found[1][-1].keys() == found[2][-1].keys()
    for edits in zip(*found, strict=True):
        union: dict[Any, Any] = {}
        for one in edits:
            assert all(union.setdefault(place, new) == new for place, new in one.items())
    lines = [json.loads(line)["rec"] for line in (tmp_path / "s/journal.jsonl").read_text().splitlines()]
    records = [r for rec in lines for r in (rec["records"] if rec["type"] == "batch" else [rec])]
    decided = [r["call_id"] for r in records if r["type"] == "decided"]
    assert sorted(decided) == sorted(set(decided))


class Overtaken:
    """A counter; before it counts a text with ``word`` for the first time, another process decides something."""

    def __init__(self, word: str, decides: Callable[[], object]) -> None:
        self.word = word
        self.decides = decides
        self.is_done = False

    def count(self, text: str) -> int:
        if self.word in text and not self.is_done:
            self.is_done = True
            self.decides()
        return len(text) // 4


def two_logs() -> list[Part]:
    """Two calls of one reply, and a large result of each."""
    logs = ["".join(f"line {i} of {name}\n" for i in range(9_000)) for name in ("first.log", "second.log")]
    calls = [Part("call", {"n": n}, ("c", n), f"log{n}", "Bash") for n in range(2)]
    results = [Part("result", log, ("o", n), f"log{n}", "Bash") for n, log in enumerate(logs)]
    return [Part("user", "go", "u"), *calls, *results]


def test_a_result_is_previewed_even_if_another_process_decides_first(tmp_path: Path) -> None:
    shown = two_logs()
    with History("s", root_path=tmp_path) as other:
        counter = Overtaken("second.log", lambda: other.rewrite(shown[:-1]))
        with History("s", root_path=tmp_path, counter=counter) as history:
            edits = history.rewrite(shown)
            assert counter.is_done
            assert set(edits) == {("o", 0), ("o", 1)}
            assert history.rewrite(shown) == edits


def test_the_window_is_guarded_even_if_another_process_decides_first(tmp_path: Path) -> None:
    compaction = SelectiveCompaction(rules={ItemType.TOOL_RESULT: 1})
    guarded: dict[str, Any] = {
        "root_path": tmp_path,
        "pricing": None,
        "window": Window(19_000, compaction=compaction),
        "preview_above_tokens": None,
        "offload_policy": OffloadPolicy(token_threshold=500),
    }
    with History("alone", **guarded, counter=Overtaken("line", lambda: None)) as history:
        alone = history.rewrite(conversation(5))
        assert set(alone) == {("o", 0), ("o", 1)}
    with History("s", root_path=tmp_path) as other:
        counter = Overtaken("line", lambda: other.rewrite(two_logs(), branch="b"))
        with History("s", **guarded, counter=counter) as history:
            assert set(history.rewrite(conversation(5))) == set(alone)
            assert counter.is_done


def test_a_session_that_was_removed_is_said_to_be_so(tmp_path: Path) -> None:
    history = History("s", root_path=tmp_path, **KEEP_ONE)
    history.rewrite(conversation(1))
    history.close()
    history.close()
    assert len(history.rewrite(conversation(2))) == 1


def test_a_preview_is_one_of_the_results_that_a_tool_keeps(tmp_path: Path) -> None:
    """Not only those that are whole: else the first one would stay for as long as larger ones follow."""
    small = "".join(f"line {n}\n" for n in range(300))
    large = "".join(f"line {n} of a long log\n" for n in range(3_000))
    parts = [Part("user", "go", 0)]
    with History("s", root_path=tmp_path, keep_recent={"Bash": 1}, pricing=None) as history:
        for number, text in enumerate((small, large), 1):
            parts.append(Part("call", {"n": number}, 2 * number - 1, f"c{number}", "Bash"))
            parts.append(Part("result", text, 2 * number, f"c{number}", "Bash"))
            edits = history.rewrite(parts)
    assert str(edits[2]).startswith("[Content offloaded]")
    assert str(edits[4]).startswith("[Output stored in full")


def test_what_is_stored_is_listed_in_the_order_of_the_history(tmp_path: Path) -> None:
    shown = [Part("user", "Find it", 0)]
    results = [("c1", "log", 1_000), ("c2", "dump", 20_000), ("c3", "log", 1_000)]
    with History("one", root_path=tmp_path, keep_recent={"log": 1}, preview_above_tokens=8_000) as history:
        for call_id, tool, words in results:
            shown.append(Part("call", {}, f"call {call_id}", call_id, tool))
            shown.append(Part("result", f"{call_id} word" * words, f"result {call_id}", call_id, tool))
            history.rewrite(shown)
            history.replied({"prompt_tokens": 50, "completion_tokens": 5}, "gpt-5")

    async def read() -> tuple[list[str], list[str]]:
        async with ContextFileSystem("one", root_path=tmp_path, read_only=True) as fs:
            return list(fs.state.stored), [entry.item_id for entry in await entries(fs)]

    stored, listed = anyio.run(read)
    assert stored[0].startswith("c2"), "it was stored first, since it came as a preview"
    assert listed == sorted(stored)
