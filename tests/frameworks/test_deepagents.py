"""The adapter of Deep Agents, with LangChain's own fake model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from ctxfs.adapters.deepagents import CtxfsBackend, CtxfsMiddleware, _is_stub
from ctxfs.context import Histories, History, HostCache, Part
from ctxfs.testing import MessagesServer
from frameworks import flow
from frameworks.langchain_model import (
    CONFIG,
    Awaited,
    GraphAgent,
    ScriptedModel,
    anthropic_model,
    anthropic_server,
    results_in,
    service_log,
    text_of,
)

OWN_LIMIT_CHARS = 80_000
"""From how many characters on the own offloader takes a result out of the history."""


class DeepAgent(GraphAgent):
    """A deep agent with the backend of ctxfs."""

    def make(self, *, at_source: bool) -> Any:
        middleware = CtxfsMiddleware(self.histories, at_source=at_source)
        return create_deep_agent(
            self.model,
            tools=[service_log],
            middleware=[middleware],
            backend=middleware.backend(),
            checkpointer=self.saver,
        )


class AsyncDeepAgent(DeepAgent, Awaited):
    """Awaited."""


@pytest.mark.parametrize("agent", [DeepAgent, AsyncDeepAgent])
def test_the_flow_on_the_wire(agent: Callable[..., DeepAgent], tmp_path: Path) -> None:
    flow.play(agent, tmp_path)


def test_the_flow_at_the_source(tmp_path: Path) -> None:
    flow.play_at_source(lambda root, kept: DeepAgent(root, kept, at_source=True), tmp_path)


class OwnModel(ScriptedModel):
    """Reads back what the own offloader wrote, with the own tools, and what ctxfs replaced, with those of ctxfs."""

    def move(self, question: str, results: Sequence[str]) -> flow.Call | str:
        if question == flow.THANKS:
            return flow.WELCOME
        n = len(results)
        if n < 3:
            return flow.Call("large_log", {"n": n + 1, "times": 4 if n == 0 else 1}, f"call_{n + 1}")
        if n == 3:
            assert results[0].startswith("Tool result too large"), results[0][:100]
            assert results[1].startswith("[Content offloaded]\nPath: "), results[1][:100]
            offset = flow.NEEDLE_LINE - 1
            return flow.Call(
                "read_file", {"file_path": "/large_tool_results/call_1", "offset": offset, "limit": 1}, "c4"
            )
        if n == 4:
            assert flow.NEEDLE in results[3]
            given = {"pattern": "mail queue", "path": "/large_tool_results", "output_mode": "content"}
            return flow.Call("grep", given, "call_5")
        if n == 5:
            assert flow.NEEDLE in results[4], results[4]
            assert results[4].count(flow.NEEDLE) == 4
            return flow.Call("context_grep", {"ref": "call_2", "pattern": "request 77 "}, "call_6")
        assert "request 77 of client" in results[5]
        return f"The log says: {flow.NEEDLE}"


@tool
def large_log(n: int, times: int) -> str:
    """Look up a log."""
    return "\n".join([flow.service_log(n)] * times)


def test_what_the_own_offloader_left_is_no_placeholder_of_a_placeholder(tmp_path: Path) -> None:
    histories = Histories(tmp_path, keep_recent={"large_log": 1}, preview_above_tokens=20_000)
    middleware, saver = CtxfsMiddleware(histories), InMemorySaver()

    def agent() -> tuple[Any, OwnModel]:
        model = OwnModel(messages=iter(()), requests=[])
        graph = create_deep_agent(
            model, tools=[large_log], middleware=[middleware], backend=middleware.backend(), checkpointer=saver
        )
        return graph, model

    graph, model = agent()
    state = graph.invoke({"messages": [HumanMessage(flow.QUESTION)]}, CONFIG)
    assert flow.NEEDLE in text_of(state)
    assert "files" not in state or not state["files"], "nothing is kept in the state"
    stub = str(results_in(state)[0].content)
    assert len(stub) < OWN_LIMIT_CHARS
    assert all(stub.splitlines()[0] in "".join(request) for request in model.requests[1:])
    histories.close()
    graph, again = agent()
    assert text_of(graph.invoke({"messages": [HumanMessage(flow.THANKS)]}, CONFIG)) == flow.WELCOME
    assert again.requests[0][: len(model.requests[-1])] == model.requests[-1]
    histories.close()


def test_a_subagent_shares_the_session(tmp_path: Path) -> None:
    class Main(ScriptedModel):
        def move(self, question: str, results: Sequence[str]) -> flow.Call | str:
            given = {"description": flow.QUESTION, "subagent_type": "helper"}
            return flow.Call("task", given, "task_1") if not results else results[0]

    histories = Histories(tmp_path, **flow.SETTINGS)
    middleware, model = CtxfsMiddleware(histories), ScriptedModel(messages=iter(()), requests=[])
    helper: Any = {
        "name": "helper",
        "description": "Reads logs",
        "system_prompt": "Read logs.",
        "model": model,
        "tools": [service_log],
        "middleware": [middleware],
    }
    graph: Any = create_deep_agent(
        Main(messages=iter(()), requests=[]),
        middleware=[middleware],
        subagents=[helper],
        backend=middleware.backend(),
        checkpointer=InMemorySaver(),
    )
    assert flow.NEEDLE in text_of(graph.invoke({"messages": [HumanMessage(flow.QUESTION)]}, CONFIG))
    assert "".join(model.requests[3]).count("[Content offloaded]") == 2
    histories.close()
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture
def backend(tmp_path: Path) -> Any:
    return CtxfsBackend(CtxfsMiddleware(History("mine", root_path=tmp_path)))


def test_files_of_the_backend(backend: CtxfsBackend) -> None:
    assert backend.read("/a").error == "File '/a' not found"
    assert backend.write("/a", "one\ntwo\nthree\n").path == "/a"
    assert backend.write("/b", "four").path == "/b"
    page = backend.read("/a", 1, 1)
    assert page.file_data is not None
    assert (page.file_data["content"], page.start_line, page.end_line, page.next_offset) == ("two", 2, 2, 2)
    assert backend.read("/a", -5, 0).no_lines_requested
    assert backend.read("/a", 9, 5).error == "Line offset 9 exceeds file length (3 lines)"
    assert [entry["path"] for entry in backend.ls("/").entries or ()] == ["/a", "/b"]
    assert [entry["path"] for entry in backend.glob("b*").matches or ()] == ["/b"]
    assert [(m["path"], m["line"]) for m in backend.grep("o").matches or ()] == [("/a", 1), ("/a", 2), ("/b", 1)]
    assert backend.grep("t.o").matches == [], "a text, and no expression"
    assert [m["path"] for m in backend.grep("o", glob="b").matches or ()] == ["/b"]
    some = backend.grep("o", max_count=2)
    assert (len(some.matches or ()), some.truncated) == (2, True)
    assert "cannot be edited" in str(backend.edit("/a", "one", "two").error)


def test_a_file_that_is_written_again_is_the_new_one(backend: CtxfsBackend) -> None:
    for content in ("old", "new", "new"):
        assert backend.write("/a", content).error is None
    page = backend.read("/a")
    assert page.file_data is not None
    assert page.file_data["content"] == "new"


def test_what_cannot_be_stored_is_an_error(backend: CtxfsBackend, tmp_path: Path) -> None:
    assert backend.write("/a", "one").error is None
    blocked = tmp_path / "mine" / "tool_result" / "large_tool_results"
    stored = next(blocked.iterdir())
    stored.rename(tmp_path / "moved")
    blocked.rmdir()
    blocked.write_text("in the way")
    assert backend.write("/b", "two").error == "/b could not be stored"


def test_only_what_names_the_own_directory_is_a_stub() -> None:
    assert _is_stub(Part("result", "Saved at /large_tool_results/x", 0))
    assert _is_stub(Part("result", [{"type": "text", "text": "Saved at /large_tool_results/x"}], 0))
    assert not _is_stub(Part("result", "x" * 400 + "/large_tool_results/", 0))
    assert not _is_stub(Part("reply", "/large_tool_results/", 0))


def test_the_breakpoints_that_it_sets_for_anthropic_are_seen(tmp_path: Path, seen: flow.Seen) -> None:
    with MessagesServer(["Done."]) as server, History(root_path=tmp_path) as history:
        middleware = CtxfsMiddleware(history)
        given: Any = {"model": "claude-sonnet-5-5", "api_key": "any", "max_tokens": 99}
        model = ChatAnthropic(base_url=server.url, **given)
        agent: Any = create_deep_agent(model, middleware=[middleware], backend=middleware.backend())
        assert text_of(agent.invoke({"messages": [HumanMessage("Go on.")]})) == "Done."
        assert seen.last.host == HostCache(at_end=True, ttl="5m")
    assert server.requests[0]["cache_control"]


def test_what_the_requests_of_a_subagent_hold_is_counted(tmp_path: Path, seen: flow.Seen) -> None:
    task = flow.Call("task", {"description": flow.QUESTION, "subagent_type": "helper"}, "task_1")
    with anthropic_server(task) as server, Histories(tmp_path, **flow.SHARED) as histories:
        middleware = CtxfsMiddleware(histories)
        helper: Any = {
            "name": "helper",
            "description": "Reads logs",
            "system_prompt": flow.HELPER_PROMPT,
            "tools": [service_log],
            "middleware": [middleware],
        }
        graph: Any = create_deep_agent(
            anthropic_model(server),
            tools=[service_log],
            system_prompt=flow.LONG_PROMPT,
            middleware=[middleware],
            subagents=[helper],
            backend=middleware.backend(),
        )
        for _ in range(2):
            assert text_of(graph.invoke({"messages": [HumanMessage(flow.QUESTION)]}, CONFIG)) == flow.THANKS
    seen.check_subagent([flow.beside_in(body) for body in server.requests])
