"""What a request's tools can open is replaced in it; nothing else is."""

import json
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ctxfs import History, Part
from ctxfs.context.history.views import Api

pytestmark = pytest.mark.not_measured

LOG = "".join(f"request {n} was served in time\n" for n in range(1_500))


def messages(count: int, tools: Sequence[str]) -> dict[str, Any]:
    said: list[Any] = [{"role": "user", "content": "What happened?"}]
    for n in range(count):
        said.append({"role": "assistant", "content": [{"type": "tool_use", "id": f"c{n}", "name": "log", "input": {}}]})
        said.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{n}", "content": f"log {n}\n{LOG}"}]}
        )
    return {"messages": said, "tools": [{"name": name} for name in tools]}


def chat(count: int, tools: Sequence[str]) -> dict[str, Any]:
    said: list[Any] = [{"role": "user", "content": "What happened?"}]
    for n in range(count):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "log", "arguments": "{}"}}
        said.append({"role": "assistant", "content": None, "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"log {n}\n{LOG}"})
    return {"messages": said, "tools": [{"type": "function", "function": {"name": name}} for name in tools]}


def responses(count: int, tools: Sequence[str]) -> dict[str, Any]:
    said: list[Any] = [{"role": "user", "content": "What happened?"}]
    for n in range(count):
        said.append({"type": "function_call", "call_id": f"c{n}", "name": "log", "arguments": "{}"})
        said.append({"type": "function_call_output", "call_id": f"c{n}", "output": f"log {n}\n{LOG}"})
    return {"input": said, "tools": [{"type": "function", "name": name} for name in tools]}


BODIES: dict[Api, Callable[[int, Sequence[str]], dict[str, Any]]] = {
    "messages": messages,
    "chat": chat,
    "responses": responses,
}
APIS = pytest.mark.parametrize("api", BODIES)


def history(root: Path, read_tool: str = "Read") -> History:
    return History("one", root_path=root, keep_recent={"log": 1}, read_tool=read_tool, preview_above_tokens=None)


def placeholders(body: Any) -> list[tuple[str, str]]:
    """The path, and the tool to use, of each placeholder in a request."""
    text = json.dumps(body).replace("\\n", "\n")
    return re.findall(r"\[Content offloaded\]\nPath: (.+)\nUse (\w+) tool to view details\.", text)


@APIS
@pytest.mark.parametrize(
    ("read_tool", "tools"),
    [
        ("Read", ["log", "Read"]),
        ("Read", ["log", "read"]),
        ("Read", ["mcp__files__Read"]),
        ("shell", ["log", "shell"]),
        ("context_read", ["log", "context_read"]),
    ],
)
def test_what_a_tool_of_the_request_opens_is_replaced(
    tmp_path: Path, api: Api, read_tool: str, tools: list[str]
) -> None:
    with history(tmp_path, read_tool) as one:
        sent, _ = one.rewritten(api, BODIES[api](3, tools))
        found = placeholders(sent)
        assert len(found) == 2
        for number, (path, tool) in enumerate(found):
            assert tool == read_tool
            assert Path(path).read_text() == f"log {number}\n{LOG}", "a file of the content as it is"
            field = "ref" if read_tool == "context_read" else "file_path"
            assert f"log {number}" in one.run_tool(read_tool, {field: path}).text


@pytest.mark.parametrize("layout", ["text", "envelope"])
def test_a_tool_of_the_users_opens_a_large_file_in_each_layout(tmp_path: Path, layout: Any) -> None:
    large = "a line of a long log, as it was printed\n" * 3_000
    with History(root_path=tmp_path, layout=layout, keep_recent={"log": 1}, preview_above_tokens=None) as one:
        parts = [Part("user", "go", 0)]
        for n in (1, 2):
            parts.append(Part("call", {}, ("call", n), f"c{n}", "log"))
            parts.append(Part("result", large, ("result", n), f"c{n}", "log"))
        new = one.rewrite(parts, tools=["log", "Read"])["result", 1]
    found = re.match(r"\[Content offloaded\]\nPath: (.+)\n", str(new))
    assert found is not None, new
    assert "a line of a long log, as it was printed" in Path(found[1]).read_text()


@APIS
def test_nothing_new_is_replaced_that_no_tool_of_the_request_opens(
    tmp_path: Path, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    body = BODIES[api]
    with history(tmp_path) as one, caplog.at_level(logging.WARNING, "ctxfs.context"):
        for count in (3, 4):
            given = body(count, ["log", "Bash"])
            assert one.rewritten(api, given)[0] == given
        assert caplog.text.count("requests have no tool 'Read'") == 1
        with_tool, _ = one.rewritten(api, body(4, ["log", "Read"]))
        assert len(placeholders(with_tool)) == 3
        without, _ = one.rewritten(api, body(5, ["log"]))
        assert placeholders(without) == placeholders(with_tool), "a decision that was given is never taken back"
        assert len(placeholders(one.rewritten(api, body(5, []))[0])) == 4, "without any tools nothing is known of them"


@APIS
def test_requests_that_name_no_tools_are_warned_of_once(
    tmp_path: Path, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as those of a hook that is given the messages alone."""
    body = BODIES[api]
    with history(tmp_path) as one, caplog.at_level(logging.WARNING, "ctxfs.context"):
        for count in (3, 4):
            assert placeholders(one.rewritten(api, body(count, []))[0])
        assert caplog.text.count("requests without 'tools'") == 1
        assert "give it a tool that does" in caplog.text, "also to whom a proxy or a transport passes whole requests"


@APIS
def test_a_request_without_tools_after_one_that_had_them_is_not_warned_of(
    tmp_path: Path, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """It asks for a text."""
    body = BODIES[api]
    with history(tmp_path) as one, caplog.at_level(logging.WARNING, "ctxfs.context"):
        one.rewritten(api, body(3, ["log", "Read"]))
        assert placeholders(one.rewritten(api, body(4, []))[0])
    with History("two", root_path=tmp_path, keep_recent={"log": 1}, preview_above_tokens=None) as two:
        assert placeholders(two.rewritten(api, body(3, []), has_tools=True)[0])
    assert "requests without 'tools'" not in caplog.text


def test_a_window_that_cannot_be_kept_without_the_tool_is_not_reported_as_kept(tmp_path: Path) -> None:
    with History("one", root_path=tmp_path, window=20_000, pricing=None, preview_above_tokens=None) as one:
        body = messages(4, ["log", "Bash"])
        sent, edits = one.rewritten("messages", body)
        assert sent == body
        assert edits.tokens > 20_000
        assert one.rewritten("messages", messages(4, ["Read"]))[1].tokens < 20_000


def test_an_adapter_names_the_tools_of_its_request(tmp_path: Path) -> None:
    parts = [Part("user", "What happened?", 0)]
    for n in range(3):
        parts.append(Part("call", {}, (n, "call"), f"c{n}", "log"))
        parts.append(Part("result", f"log {n}\n{LOG}", (n, "result"), f"c{n}", "log"))
    with history(tmp_path) as one:
        assert not one.rewrite(parts, tools=["log"])
        assert len(one.rewrite(parts, tools=["log", "Read"])) == 2


def test_a_tool_of_keep_recent_that_requests_do_not_have_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with History("one", root_path=tmp_path, keep_recent={"lag": 1, "Read": 2}) as one:
        one.messages(messages(1, []))
        assert "keep_recent" not in caplog.text, "the tools are not known yet"
        for count in (1, 2):
            one.messages(messages(count, ["log", "Read"]))
    assert caplog.text.count("keep_recent names tools that the requests do not have so far") == 1
    assert "'lag' (did you mean 'log'?)" in caplog.text
    assert "'Read'" not in caplog.text
