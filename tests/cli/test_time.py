"""A session in time, from the command line: show, diff, history, restore, undo, pin and fork."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from ctxfs.cli.app import run
from ctxfs.cli.items import preview
from ctxfs.context import History
from ctxfs.context.context import Context
from ctxfs.context.history.parts import Part
from ctxfs.messages import CharsCounter
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage, readable_text

TEXT = "a line of the log\n" * 200
Command = Callable[..., tuple[int, str, str]]


async def filled(root: Path) -> None:
    settings: dict[str, Any] = {"keep_recent": {"log": 1}, "window": 12_000, "pricing": None}
    async with Context("first", root_path=root, counter=CharsCounter(), **settings) as ctx:
        await ctx.add(UserMessage("go"))
        for n in (1, 2, 3, 4):
            await ctx.messages()
            call = {"type": "tool_use", "id": f"c{n}", "name": "log", "input": {"path": f"{n}.log"}}
            await ctx.add(AssistantMessage((call,)), ToolMessage(f"c{n}", "log", TEXT))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    anyio.run(filled, tmp_path)
    return tmp_path


@pytest.fixture
def ctxfs(root: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Command:
    def command(*arguments: str) -> tuple[int, str, str]:
        code = run([*arguments, "--root", str(root)])
        out, err = capsysbinary.readouterr()
        return code, out.decode(), err.decode()

    return command


def as_json(ctxfs: Command, *arguments: str) -> Any:
    code, out, err = ctxfs(*arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_show_prints_the_conversation_as_it_was_sent(ctxfs: Command) -> None:
    code, out, _ = ctxfs("show", "first", "--call", "3")
    assert code == 0
    assert out.startswith("call 3 of 4 · ")
    assert '[calls log {"path":"1.log"}]' in out
    assert "c1  tool_result of log" in out
    assert ", evicted" in out
    assert "… 188 more lines" in out
    assert "not recorded: the tools that were sent along" in out
    assert "188 more lines" not in ctxfs("show", "first", "--call", "3", "--full")[1]
    now = ctxfs("show", "first", "--last", "1")[1]
    assert "the context after 4 calls" in now
    assert "c4  tool_result" in now
    assert "c3" not in now


def test_show_prints_the_request_itself(ctxfs: Command) -> None:
    code, out, _ = ctxfs("show", "first", "--call", "2", "--request")
    assert code == 0
    body = json.loads(out)
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    found = as_json(ctxfs, "show", "first", "--call", "2", "--last", "1")
    assert (found["call"], found["usage"], found["reply_id"]) == (2, None, "msg_003")
    assert [item["item_id"] for item in found["items"]] == ["c1"]
    assert found["items"][0]["content"] == TEXT


def test_diff_and_history_say_what_left_and_by_which_id_it_is_undone(ctxfs: Command) -> None:
    found = as_json(ctxfs, "diff", "first", "2")
    assert (found["first_changed"], found["items"][-1]["change"]) == ("c1", "change_1")
    assert "the first change is c1" in ctxfs("diff", "first", "2", "3")[1]
    assert "nothing that was sent has changed" in ctxfs("diff", "first", "1")[1]
    listed = as_json(ctxfs, "explain", "first", "--changes")
    assert [(one["item_id"], one["what"], one["undone"]) for one in listed] == [
        ("c1", "evicted", False),
        ("c2", "evicted", False),
    ]
    assert [one["what"] for one in as_json(ctxfs, "explain", "first", "c1")["changes"]] == ["added", "evicted"]
    assert "change_2" in ctxfs("explain", "first", "--changes")[1]
    assert ctxfs("explain", "first", "nothing")[0] == 2


def test_undo_restore_and_pin_change_the_session(ctxfs: Command) -> None:
    code, out, _ = ctxfs("undo", "first")
    assert (code, out.splitlines()[:2]) == (0, ["c2 is back", "change_2 is undone"])
    assert "(undone)" in ctxfs("explain", "first", "--changes")[1]
    assert as_json(ctxfs, "restore", "first", "c1")["item_ids"] == ["c1"]
    assert "nothing to do" in ctxfs("restore", "first", "c1")[1]
    assert "msg_001 is pinned" in ctxfs("pin", "first", "msg_001")[1]
    assert ", pinned" in ctxfs("show", "first")[1]
    assert "no longer pinned" in ctxfs("pin", "first", "msg_001", "--off")[1]
    for wrong in (("undo", "first", "change_9"), ("restore", "first", "x"), ("pin", "first", "x")):
        code, _, err = ctxfs(*wrong)
        assert code == 2
        assert err.startswith("ctxfs: ")


def test_what_changes_nothing_writes_nothing(ctxfs: Command, root: Path) -> None:
    assert ctxfs("pin", "first", "msg_001")[0] == 0
    assert ctxfs("tag", "first", "kept")[0] == 0
    journal = root / "first" / "journal.jsonl"
    before = (journal.read_bytes(), journal.stat().st_mtime_ns, sorted(path.name for path in root.iterdir()))
    for command, code in (
        (("restore", "first", "c4"), 0),
        (("pin", "first", "msg_001"), 0),
        (("pin", "first", "c4", "--off"), 0),
        (("tag", "first", "kept"), 0),
        (("tag", "first"), 0),
        (("restore", "first", "x"), 2),
        (("pin", "first", "x"), 2),
        (("pin", "first", "x", "--off"), 2),
        (("undo", "first", "change_9"), 2),
    ):
        assert ctxfs(*command)[0] == code, command
        assert before == (journal.read_bytes(), journal.stat().st_mtime_ns, sorted(p.name for p in root.iterdir()))


def test_an_undo_that_does_not_fit_is_refused_with_figures(ctxfs: Command, root: Path) -> None:
    async def smaller() -> None:
        async with Context("first", root_path=root, counter=CharsCounter(), window=2_000, pricing=None):
            """The window is recorded."""

    anyio.run(smaller)
    code, _, err = ctxfs("undo", "first")
    assert code == 2
    assert "change_2 would bring back: c2" in err


def test_a_fork_goes_on_from_the_call(ctxfs: Command) -> None:
    made = as_json(ctxfs, "fork", "first", "--call", "3", "--as", "second")
    assert (made["session_id"], made["call"], made["shared"]) == ("second", 3, 1)
    assert [item["item_id"] for item in as_json(ctxfs, "show", "second")["items"]][-1] == "c2"
    assert "continues at call 5" in ctxfs("fork", "first")[1]
    assert ctxfs("fork", "first", "--as", "second")[0] == 2


def test_items_are_filtered_ordered_and_previewed(ctxfs: Command) -> None:
    results = as_json(ctxfs, "ls", "first", "--type", "tool_result", "--sort", "tokens")
    assert [item["preview"] for item in results] == [f'{{"path":"{n}.log"}}' for n in (1, 2, 3, 4)]
    evicted = as_json(ctxfs, "ls", "first", "--tool", "log", "--place", "file")
    assert [item["item_id"] for item in evicted] == ["c1", "c2"]
    largest = as_json(ctxfs, "ls", "first", "--sort", "size")
    assert {item["item_id"] for item in largest[:2]} == {"c1", "c2"}
    assert "go" in ctxfs("ls", "first")[1]


def test_cat_of_a_reply_shows_its_calls(ctxfs: Command) -> None:
    assert ctxfs("cat", "first", "msg_002")[1].strip() == '[calls log {"path":"1.log"}]'


def test_a_message_is_shown_in_as_many_lines_as_are_counted() -> None:
    blocks = (
        {"type": "text", "text": "one\ntwo"},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": "x\ny"}},
    )
    assert readable_text(blocks).splitlines() == ["one", "two", '[calls f {"a":"x\\ny"}]']
    assert preview(blocks) == 'f {"a":"x\\ny"}'
    assert preview("word " * 100).endswith("…")


def _exchange(call_id: str) -> tuple[Part, Part]:
    return Part("call", {}, f"the call {call_id}", call_id, "log"), Part("result", TEXT, call_id, call_id, "log")


@pytest.mark.parametrize("command", [("restore", "c1"), ("pin", "c1"), ("pin", "c1", "--off"), ("undo",)])
def test_the_history_of_a_framework_is_not_changed(command: tuple[str, ...], ctxfs: Command, root: Path) -> None:
    parts = [part for n in (1, 2) for part in _exchange(f"c{n}")]
    with History("owned", root_path=root, keep_recent={"log": 1}, counter=CharsCounter(), pricing=None) as history:
        assert list(history.rewrite(parts)) == ["c1"]
    before = (root / "owned" / "journal.jsonl").read_bytes()
    name, *rest = command
    code, _, said = ctxfs(name, "owned", *rest)
    assert code == 2
    assert "owned cannot be changed: its messages are in a framework, a program or your own list" in said
    assert (root / "owned" / "journal.jsonl").read_bytes() == before
