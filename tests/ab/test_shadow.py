"""Shadow runs: what the model does next with and without the rewriting, beside the real requests."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ctxfs.adapters.serve.calls import unstreamed_url
from ctxfs.cli.app import run
from ctxfs.context import History
from ctxfs.errors import ConfigError
from ctxfs.lab import Shadow
from ctxfs.lab.shadow import compared, hidden, next_actions, shadow_figures
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import Shadowed
from ctxfs.testing import MessagesServer
from needle_agent import LOGS, MODEL, looks

LOG = "a line of the log\n" * 700
READ = {"name": "Read", "input_schema": {"type": "object"}}


def body(results: int = 3, **more: Any) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look"}]
    for n in range(results):
        call = {"type": "tool_use", "id": f"c{n}", "name": "log", "input": {"day": n}}
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": LOG}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return {"model": MODEL, "max_tokens": 100, "messages": messages, "tools": [READ], **more}


def reply(*calls: tuple[str, dict[str, Any]], text: str = "") -> dict[str, Any]:
    content = [
        {"type": "tool_use", "id": f"d{n}", "name": name, "input": given} for n, (name, given) in enumerate(calls)
    ]
    usage = {"input_tokens": 1_000, "output_tokens": 10}
    return {"content": content or [{"type": "text", "text": text}], "usage": usage, "model": MODEL}


async def recorded(fs: ContextFileSystem) -> list[Shadowed]:
    return list(fs.state.shadowed)


def history(folder: Path, shadow: Any) -> History:
    return History("s", root_path=folder, keep_recent={"log": 1}, shadow=shadow)


def test_a_model_that_sees_less_does_something_else(tmp_path: Path) -> None:
    asked = list[dict[str, Any]]()

    def send(given: dict[str, Any]) -> dict[str, Any]:
        asked.append(given)
        hides = "offloaded" in json.dumps(given)
        return reply(("log", {"day": 9})) if hides else reply(text="It is fine.")

    shadow = Shadow(send, share=1)
    given = body(stream=True)
    with history(tmp_path, shadow) as kept:
        sent = kept.messages(given)
        assert sent is not given
        assert given == body(stream=True), "it is not changed"
        shadow.close()
        (found,) = kept.read(recorded)
    assert [("offloaded" in json.dumps(one), "stream" in one) for one in asked] == [(False, False)] * 2 + [
        (True, False)
    ]
    assert (found.is_noise, found.differs, found.reads_back) == (False, True, False)
    assert (found.original, found.again, found.rewritten) == ("(a text)", "(a text)", 'log {"day":9}')
    assert (found.tools, found.age) == (("log",), 1)
    assert 0 < found.usd == pytest.approx(shadow.spent_usd)
    with ContextOpened(tmp_path) as again:
        assert again == [found], "it is in the journal"


class ContextOpened:
    """What another process reads in the session's journal."""

    def __init__(self, folder: Path) -> None:
        self._history = History("s", root_path=folder)

    def __enter__(self) -> list[Shadowed]:
        return self._history.read(recorded)

    def __exit__(self, *_: object) -> None:
        self._history.close()


def test_a_run_that_ends_after_the_history_was_closed_is_recorded_too(tmp_path: Path) -> None:
    shadow = Shadow(lambda _: reply(text="a"), share=1)
    kept = history(tmp_path, shadow)
    kept.messages(body())
    kept.close()
    shadow.close()
    with ContextOpened(tmp_path) as found:
        assert [one.differs for one in found] == [False]


@pytest.mark.parametrize(
    ("given", "spent"),
    [(body(model="nobody-7"), 0), (body(max_tokens=1_000_000), 0), (body(), 3)],
)
def test_it_stops_at_its_budget(tmp_path: Path, given: dict[str, Any], spent: int) -> None:
    asked = list[Any]()

    def send(one: Any) -> Any:
        asked.append(one)
        return reply(text="a")

    shadow = Shadow(send, share=1, budget_usd=0.08)
    with history(tmp_path, shadow) as kept:
        for _ in range(3):
            kept.messages(given)
            shadow.close()
    assert len(asked) == spent or (spent and len(asked) % 3 == 0)
    assert shadow.spent_usd <= 0.08


def test_what_fails_changes_nothing_and_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: Any) -> Any:
        raise RuntimeError("the secret of a request")

    shadow = Shadow(fails, share=1)
    with history(tmp_path, shadow) as kept:
        assert kept.messages(body()) is not None
        shadow.close()
        assert kept.read(recorded) == []
        kept.messages(body())
        shadow.close()
    assert "a request could not be compared: RuntimeError" in caplog.text
    assert "secret" not in caplog.text
    assert shadow.spent_usd > 0, "what was sent may have been billed"
    unusable: Any = {"messages": object()}
    shadow("messages", unusable, unusable, print)
    assert "a request is not compared: " in caplog.text


def test_only_a_share_of_what_was_rewritten_is_sampled(tmp_path: Path) -> None:
    asked = list[Any]()

    def send(one: Any) -> Any:
        asked.append(one)
        return reply(text="a")

    none, some = Shadow(send, share=0), Shadow(send, share=0.5)
    for shadow in (none, some):
        for _ in range(40):
            shadow("messages", body(1), body(1), lambda _: None)
            shadow.close()
    assert 0 < len(asked) < 120
    with history(tmp_path, Shadow(send, share=1)) as kept:
        before = len(asked)
        kept.messages(body(1))
        assert len(asked) == before, "nothing was rewritten"


@pytest.mark.parametrize("wrong", [{"share": 2}, {"share": -1}, {"budget_usd": -1}])
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Shadow(print, **wrong)


def test_actions_are_compared_by_tool_and_arguments_and_texts_by_kind() -> None:
    one = reply(("a", {"x": 1, "y": " z "}), ("b", {}))
    other = reply(("b", {}), ("a", {"y": "z", "x": 1}))
    assert next_actions("messages", one) == next_actions("messages", other) == ['a {"x":1,"y":"z"}', "b {}"]
    assert next_actions("messages", reply(text="Which?")) == ["(a question)"]
    assert next_actions("messages", reply(text="It.")) == ["(a text)"]
    call = {"id": "c", "type": "function", "function": {"name": "a", "arguments": '{"y": 2, "x": 1}'}}
    chat = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
    assert next_actions("chat", chat) == ['a {"x":1,"y":2}']
    output = [{"type": "function_call", "call_id": "c", "name": "a", "arguments": '{"x": 1}'}]
    assert next_actions("responses", {"output": output}) == ['a {"x":1}']
    parts = [{"functionCall": {"name": "a", "args": {"x": 1}}}]
    assert next_actions("gemini", {"candidates": [{"content": {"role": "model", "parts": parts}}]}) == ['a {"x":1}']
    assert next_actions("gemini", {"candidates": [{"finishReason": "SAFETY"}]}) == ["(nothing)"]


def test_a_read_back_is_known_by_what_only_the_placeholder_names() -> None:
    given = body(2)
    short = json.loads(json.dumps(given).replace(json.dumps(LOG)[1:-1], "[offloaded] Path: /files/call_1.txt", 1))
    replies = [reply(("log", {"day": 5}))] * 2 + [reply(("Read", {"file_path": "/files/call_1.txt"}))]
    assert compared("messages", given, short, replies).reads_back
    replies[2] = reply(("log", {"day": 6}))
    assert not compared("messages", given, short, replies).reads_back
    assert hidden("messages", given, short) == (("log",), 1)
    assert hidden("messages", given, given) == ((), 0)


def shadowed(**changed: Any) -> Shadowed:
    values: dict[str, Any] = {"original": "a", "again": "a", "rewritten": "a", "is_noise": False, "differs": False}
    values |= {"model": MODEL, "reads_back": False, "tools": ("log",), "age": 1, "usd": 0.01, "made_at": 1.0}
    return Shadowed(**{**values, **changed})


def test_the_excess_over_the_noise_has_an_interval_by_tool_and_age() -> None:
    some = [shadowed(differs=True, age=20, tools=("log", "web"))] * 8 + [shadowed(is_noise=True, differs=True)] * 2
    rows = shadow_figures([*some, *[shadowed()] * 4])
    assert [row.name for row in rows] == ["anything", "of log", "of web", "up to 2 replies ago", "over 10 replies ago"]
    assert [(row.requests, row.differs, row.noise) for row in rows] == [
        (14, 10, 2),
        (14, 10, 2),
        (8, 8, 0),
        (6, 2, 2),
        (8, 8, 0),
    ]
    assert rows[0].excess.value == pytest.approx(8 / 14)
    assert rows[0].excess.low > 0
    assert rows[3].excess.low < 0 < rows[3].excess.high, "noise alone shows nothing"
    assert rows[2].cells() == ("of web", "8", "8", "0", "+100 (+23 … +100)", "0")
    assert shadow_figures([]) == []


@pytest.mark.slow
def test_noise_alone_is_shown_as_no_difference_in_95_of_100_sessions() -> None:
    draw = random.Random(3)
    kinds = [shadowed(differs=differs, is_noise=noise) for differs in (False, True) for noise in (False, True)]
    missed = 0
    for _ in range(100):
        found = [kinds[2 * (draw.random() < 0.3) + (draw.random() < 0.3)] for _ in range(20)]
        excess = shadow_figures(found)[0].excess
        missed += not excess.low <= 0 <= excess.high
    assert missed <= 5


ASKS = """
import json, os, sys, urllib.request
headers = {"x-api-key": "of the user", "content-type": "application/json"}
request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", sys.argv[1].encode(), headers)
with urllib.request.urlopen(request) as reply:
    print(json.load(reply)["content"][0]["name"])
"""


@pytest.mark.service
def test_the_proxy_sends_beside_the_program(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "root"
    asked = body(LOGS, tools=[READ, {**READ, "name": "log"}])
    asked["messages"][2]["content"][0]["content"] = f"{LOG}Look has CODE-1234\n{LOG}"
    with MessagesServer([looks] * 4, min_cache_tokens=0, api_key="of the user") as model:
        options = ["--root", str(root), "--upstream-anthropic", model.url]
        options += ["--session", "s", "--keep-recent", "log=1", "--shadow", "100%", "--shadow-budget", "50"]
        words = [sys.executable, "-m", "ctxfs", "proxy", *options, "--", sys.executable, "-c", ASKS, json.dumps(asked)]
        done = subprocess.run(words, cwd=tmp_path, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert model.refusals == []
        assert len(model.requests) == 4
    assert done.stdout == "Read\n", "the program got the reply to what was rewritten"
    assert run(["explain", "s", "--root", str(root), "--json"]) == 0
    rows = json.loads(capfd.readouterr().out)["shadow"]
    assert (rows[0]["requests"], rows[0]["noise"]) == (1, 0)
    assert rows[0]["differs"] == rows[0]["read_backs"] == 1, "the code was hidden, and the model opened the file"
    assert rows[0]["usd"] > 0
    assert run(["explain", "s", "--root", str(root)]) == 0
    assert "shadow runs cost $" in capfd.readouterr().out
    assert run(["sessions", "--root", str(root)]) == 0
    assert "the model did something else in 1 of 1 shadow run: " in capfd.readouterr().out
    kept = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert b"of the user" not in kept, "no key is kept"


def test_geminis_streamed_address_has_one_that_answers_at_once() -> None:
    url = "http://h/v1beta/models/g:"
    assert unstreamed_url(f"{url}streamGenerateContent?alt=sse&key=k") == f"{url}generateContent?key=k"
    assert unstreamed_url(f"{url}streamGenerateContent?alt=sse") == f"{url}generateContent"
    assert unstreamed_url("http://h/v1/messages?beta=true") == "http://h/v1/messages?beta=true"


@pytest.mark.parametrize("share", ["x", "200%", "-1"])
def test_the_share_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str], share: str) -> None:
    assert run(["proxy", "--root", str(tmp_path), "--shadow", share, "--", "true"]) == 2
    assert "give a share, as in 2%" in capsys.readouterr().err
