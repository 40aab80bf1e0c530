"""The adapter of the ``anthropic`` SDK, over loopback against a Messages API."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic, APIStatusError, AsyncAnthropic, beta_async_tool, beta_tool
from anthropic.lib.tools import ToolError
from anyio.from_thread import start_blocking_portal

from ctxfs.adapters.anthropic import CtxfsMiddleware
from ctxfs.adapters.transport import history_transport
from ctxfs.context import Histories, History
from ctxfs.errors import ConfigError
from ctxfs.messages import AssistantMessage, ToolCall
from ctxfs.testing import MessagesServer
from frameworks import flow, one_line

MODEL = "claude-sonnet-5-5"


def turn(body: dict[str, Any]) -> Any:
    """The scripted model, as a turn of the server."""
    move = next_move(body)
    return move if isinstance(move, str) else [ToolCall(move.name, move.arguments, id=move.id)]


def next_move(body: dict[str, Any]) -> flow.Call | str:
    """What the scripted model does next."""
    said = [block for message in body["messages"] for block in _blocks(message)]
    results = [_text(block["content"]) for block in said if block["type"] == "tool_result"]
    questions = [block["text"] for block in _blocks(body["messages"][-1]) if block["type"] == "text"]
    return flow.next_move(questions[-1] if questions else "", results)


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


@contextmanager
def server() -> Iterator[MessagesServer]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(MessagesServer([turn] * 400)) as running,
    ):
        yield running
    assert running.refusals == []


@beta_tool
def service_log(n: int) -> str:
    """Look up a log."""
    return flow.service_log(n)


@beta_async_tool
async def async_service_log(n: int) -> str:
    """Look up a log."""
    return flow.service_log(n)


async_service_log.name = flow.TOOL


class LoopAgent:
    """A loop of one's own: its messages are its own list, in which the SDK's replies stand as they came."""

    def __init__(self, server: MessagesServer, root: Path, kept: str | None, *, streams: bool = False) -> None:
        self.history = History("thread-1", root_path=root, **flow.SETTINGS)
        self.middleware = CtxfsMiddleware(self.history)
        self.client = Anthropic(api_key="any", base_url=server.url, middleware=[self.middleware], max_retries=0)
        self.messages: list[Any] = json.loads(kept or "[]")
        self._streams = streams
        self._server = server
        self._first = len(server.requests)

    @property
    def requests(self) -> list[list[str]]:
        sent = self._server.requests[self._first :]
        return [[json.dumps(message, sort_keys=True) for message in body["messages"]] for body in sent]

    def ask(self, question: str) -> str:
        tools = {tool.name: tool for tool in (service_log, *self.middleware.tools)}
        self.messages.append({"role": "user", "content": question})
        while True:
            reply = self._send([tool.to_dict() for tool in tools.values()])
            self.messages.append({"role": "assistant", "content": reply.content})
            calls = [block for block in reply.content if block.type == "tool_use"]
            if not calls:
                return str(reply.content[-1].text)
            results = [(call.id, tools[call.name].call(call.input)) for call in calls]
            blocks = [{"type": "tool_result", "tool_use_id": id_, "content": content} for id_, content in results]
            self.messages.append({"role": "user", "content": blocks})

    def _send(self, tools: list[Any]) -> Any:
        given: Any = {"model": MODEL, "max_tokens": 500, "messages": self.messages, "tools": tools}
        if not self._streams:
            return self.client.messages.create(**given)
        with self.client.messages.stream(**given) as stream:
            return stream.get_final_message()

    def kept(self) -> str:
        return json.dumps(self.messages, default=lambda block: block.model_dump(exclude_none=True))

    def close(self) -> None:
        self.history.close()
        self.client.close()


class RunnerAgent(LoopAgent):
    """The SDK's own tool runner."""

    def ask(self, question: str) -> str:
        self.messages.append({"role": "user", "content": question})
        tools = [self.logs(), *self.middleware.tools]
        runner = self.client.beta.messages.tool_runner(
            model=MODEL, max_tokens=500, messages=self.messages, tools=tools, thread=False
        )
        reply = runner.until_done()
        self._keep(runner)
        return _text([block.model_dump() for block in reply.content])

    def _keep(self, runner: Any) -> None:
        def look(params: dict[str, Any]) -> dict[str, Any]:
            self.messages = list(params["messages"])
            return params

        runner.set_messages_params(look)

    def logs(self) -> Any:
        return service_log


class AtSource(RunnerAgent):
    """The tool runner, with a tool whose results are replaced where they are made."""

    def logs(self) -> Any:
        return self.middleware.at_source(service_log)


class AsyncAgent(RunnerAgent):
    """The asynchronous client, with its tool runner; each question in an event loop of its own."""

    def ask(self, question: str) -> str:
        return asyncio.run(self._ask(question))

    async def _ask(self, question: str) -> str:
        self.messages.append({"role": "user", "content": question})
        async with AsyncAnthropic(
            api_key="any", base_url=self._server.url, middleware=[self.middleware], max_retries=0
        ) as client:
            tools = [self.logs(), *self.middleware.async_tools]
            runner = client.beta.messages.tool_runner(
                model=MODEL, max_tokens=500, messages=self.messages, tools=tools, thread=False
            )
            reply = await runner.until_done()
            self._keep(runner)
        return _text([block.model_dump() for block in reply.content])

    def logs(self) -> Any:
        return async_service_log


class AsyncAtSource(AsyncAgent):
    """``at_source`` on the asynchronous client."""

    def logs(self) -> Any:
        return self.middleware.async_at_source(async_service_log)


def streaming(server: MessagesServer, root: Path, kept: str | None) -> LoopAgent:
    """A loop of one's own that streams."""
    return LoopAgent(server, root, kept, streams=True)


@pytest.mark.parametrize("agent", [LoopAgent, streaming, RunnerAgent, AsyncAgent])
def test_the_flow_on_the_wire(agent: Callable[..., LoopAgent], tmp_path: Path) -> None:
    with server() as running:
        played = flow.play(lambda root, kept: agent(running, root, kept), tmp_path)
    assert flow.NEEDLE in played.kept, "what the developer keeps is the original"


@pytest.mark.parametrize("agent", [AtSource, AsyncAtSource])
def test_the_flow_at_the_source(agent: Callable[..., LoopAgent], tmp_path: Path) -> None:
    with server() as running:
        flow.play_at_source(lambda root, kept: agent(running, root, kept), tmp_path)


def ask_by_transport(url: str, question: str, transport: Any, kept: Any) -> tuple[str, Any]:
    """One turn with the tool runner, which has the tools of the program alone."""
    messages: list[Any] = [*(kept or []), {"role": "user", "content": question}]
    with Anthropic(
        api_key="any", base_url=url, http_client=httpx2.Client(transport=transport), max_retries=0
    ) as client:
        runner = client.beta.messages.tool_runner(
            model=MODEL, max_tokens=500, messages=messages, tools=[service_log], thread=False
        )
        reply = runner.until_done()
        seen: list[Any] = []

        def look(params: Any) -> Any:
            seen.extend(params["messages"])
            return params

        runner.set_messages_params(look)
    return _text([block.model_dump() for block in reply.content]), seen


def ask_by_stream(url: str, question: str, transport: Any, kept: Any) -> tuple[str, Any]:
    """One turn of a loop of one's own that streams, on the asynchronous client."""
    messages: list[Any] = [*(kept or []), {"role": "user", "content": question}]

    async def run() -> str:
        async with AsyncAnthropic(
            api_key="any", base_url=url, http_client=httpx2.AsyncClient(transport=transport), max_retries=0
        ) as client:
            while True:
                given: Any = {"messages": messages, "tools": [async_service_log.to_dict()]}
                async with client.messages.stream(model=MODEL, max_tokens=500, **given) as stream:
                    reply = await stream.get_final_message()
                messages.append({"role": "assistant", "content": [block.to_dict() for block in reply.content]})
                calls = [block for block in reply.content if block.type == "tool_use"]
                if not calls:
                    return _text(messages[-1]["content"])
                results = [(call.id, await async_service_log.call(call.input)) for call in calls]
                blocks = [{"type": "tool_result", "tool_use_id": id_, "content": content} for id_, content in results]
                messages.append({"role": "user", "content": blocks})

    return asyncio.run(run()), messages


@pytest.mark.parametrize("ask", [ask_by_transport, ask_by_stream])
def test_one_line_brings_the_tools_too(ask: one_line.Ask, tmp_path: Path) -> None:
    with one_line.messages_server() as running:
        one_line.play(ask, running, tmp_path, seen=lambda kept: json.dumps(kept, default=str))


def test_a_thread_that_the_server_holds_is_sent_as_it_is_by_the_transport(tmp_path: Path) -> None:
    turns: list[Any] = [[ToolCall(flow.TOOL, {"n": 1}, id="call_1")], "fine"]
    with MessagesServer(turns) as running, History(root_path=tmp_path) as history:
        transport = history_transport(history, reading_turns=8)
        client = Anthropic(api_key="any", base_url=running.url, http_client=httpx2.Client(transport=transport))
        given: Any = {"messages": [{"role": "user", "content": "Go."}], "tools": [service_log]}
        reply = client.beta.messages.tool_runner(model=MODEL, max_tokens=9, **given).until_done()
        client.close()
    assert reply.content[0].text == "fine"
    assert [tool["name"] for tool in running.requests[0]["tools"]] == [flow.TOOL]
    (problem,) = transport.savings.problems
    assert "thread is set: the server holds this history" in problem


def thinking(body: dict[str, Any]) -> Any:
    """``turn``, with thinking before each reply."""
    move = next_move(body)
    said: dict[str, Any] = {"type": "text", "text": move}
    if not isinstance(move, str):
        said = {"type": "tool_use", "id": move.id, "name": move.name, "input": move.arguments}
    signature = f"signature {len(body['messages'])}"
    return AssistantMessage(({"type": "thinking", "thinking": "Let me see.", "signature": signature}, said))


@pytest.mark.parametrize("agent", [LoopAgent, streaming, AsyncAgent])
def test_thinking_that_no_longer_fits_is_left_out_after_the_first_refusal(
    agent: Callable[..., LoopAgent], tmp_path: Path
) -> None:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(MessagesServer([thinking] * 400, binds_thinking=True)) as running,
    ):
        made = agent(running, tmp_path, None)
        made.ask(flow.QUESTION)
        made.ask(flow.THANKS)
        made.close()
    assert [refusal.partition(": ")[2][:27] for refusal in running.refusals] == ["Invalid `signature` in `thi"]
    assert running.dropped, "and the request was sent again, without"
    assert flow.NEEDLE in made.kept()


def test_many_conversations_with_one_client(tmp_path: Path) -> None:
    with server() as running, Histories(tmp_path, **flow.SETTINGS) as histories:
        client = Anthropic(api_key="any", base_url=running.url)
        for thread in ("user/1", "user/2"):
            one = client.with_middleware(CtxfsMiddleware(histories.of(thread)))
            reply = one.messages.create(model=MODEL, max_tokens=9, messages=[{"role": "user", "content": flow.THANKS}])
            assert reply.content[0].type == "text"
        assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("agent", [LoopAgent, streaming, AsyncAgent])
def test_what_was_billed_is_recorded(agent: Callable[..., LoopAgent], tmp_path: Path) -> None:
    with server() as running:
        made = agent(running, tmp_path, None)
        made.ask(flow.QUESTION)
        made.close()
    assert len(flow.billed_tokens(tmp_path)) == 5
    assert min(flow.billed_tokens(tmp_path)) > 0


def test_the_bill_of_a_stream_is_heard_whoever_reads_it_and_however_far(tmp_path: Path) -> None:
    given: Any = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": flow.THANKS}]}

    async def streamed(history: History, url: str) -> None:
        async with (
            AsyncAnthropic(api_key="any", base_url=url, middleware=[CtxfsMiddleware(history)]) as client,
            client.messages.stream(**given) as stream,
        ):
            assert await stream.get_final_text() == flow.WELCOME

    with server() as running, History("one", root_path=tmp_path) as history:
        client = Anthropic(api_key="any", base_url=running.url, middleware=[CtxfsMiddleware(history)])
        assert "message_stop" in [event.type for event in client.messages.create(stream=True, **given)]
        with client.messages.stream(**given) as stream:
            next(iter(stream))  # and no further
        with client.messages.with_streaming_response.create(stream=True, **given) as response:
            assert flow.WELCOME in "".join(response.iter_text())
        asyncio.run(streamed(history, running.url))
        history.close()
        output = [usage.output_tokens for usage in flow.bills(tmp_path)]
    assert len(output) == 4
    assert [tokens > 1 for tokens in output] == [True, False, True, True], "as far as the one that was left had come"


@pytest.mark.parametrize("wanted", ["raw", "streamed"])
def test_what_the_caller_asks_for_is_what_it_gets(wanted: str, tmp_path: Path) -> None:
    given: Any = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": flow.THANKS}]}
    with server() as running, History(root_path=tmp_path) as history:
        client = Anthropic(api_key="any", base_url=running.url, middleware=[CtxfsMiddleware(history)])
        if wanted == "raw":
            body = client.messages.with_raw_response.create(**given).text()
        else:
            with client.messages.with_streaming_response.create(**given) as response:
                body = "".join(response.iter_text())
        assert json.loads(body)["content"][0]["text"] == flow.WELCOME


def test_counting_counts_what_would_be_sent(tmp_path: Path) -> None:
    with server() as running:
        agent = LoopAgent(running, tmp_path, None)
        agent.ask(flow.QUESTION)
        counted = agent.client.messages.count_tokens(model=MODEL, messages=agent.messages).input_tokens
        agent.close()
        plain = Anthropic(api_key="any", base_url=running.url)
        assert counted < plain.messages.count_tokens(model=MODEL, messages=agent.messages).input_tokens / 2


@pytest.mark.parametrize("client_class", [Anthropic, AsyncAnthropic])
def test_a_thread_that_the_server_holds_is_refused(client_class: Any, tmp_path: Path) -> None:
    with server() as running, History(root_path=tmp_path) as history:
        client = client_class(api_key="any", base_url=running.url, middleware=[CtxfsMiddleware(history)])
        thread = client.beta.messages.thread(model=MODEL, max_tokens=9)
        send = thread.send if client_class is Anthropic else lambda text: asyncio.run(thread.send(text))
        with pytest.raises(ConfigError, match="pass thread=False and send all messages"):
            send("Hello")
        assert running.requests == []


def test_other_routes_pass(tmp_path: Path) -> None:
    with server() as running, History(root_path=tmp_path / "sessions") as history:
        client = Anthropic(api_key="any", base_url=running.url, middleware=[CtxfsMiddleware(history)], max_retries=0)
        with pytest.raises(APIStatusError, match="405"):
            client.models.list()
    assert not (tmp_path / "sessions").exists()


def test_a_tool_says_what_is_wrong(tmp_path: Path) -> None:
    with History(root_path=tmp_path) as history:
        tools = {tool.name: tool for tool in CtxfsMiddleware(history).tools}
        with pytest.raises(ToolError, match="limit"):
            tools["Read"].call({"file_path": "x", "limit": -1})
        with pytest.raises(ToolError, match="no item 'unknown' in this session"):
            tools["context_grep"].call({"ref": "unknown", "pattern": "x"})


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use History"):
        CtxfsMiddleware(Histories(tmp_path))  # type: ignore[arg-type]


def test_a_subagent_has_a_branch_of_its_own_and_what_its_requests_hold_is_counted(
    tmp_path: Path, seen: flow.Seen
) -> None:
    def move(body: dict[str, Any]) -> Any:
        said = [block for message in body["messages"] for block in _blocks(message)]
        results = [_text(block["content"]) for block in said if block["type"] == "tool_result"]
        move = flow.shared_move(
            flow.Call("ask_helper", {}, "ask_1"), results, helps=body["system"] == flow.HELPER_PROMPT
        )
        return move if isinstance(move, str) else [ToolCall(move.name, move.arguments, id=move.id)]

    def run(branch: str, prompt: str, tools: Sequence[Any]) -> str:
        middleware = CtxfsMiddleware(history, branch=branch)
        runner = client.with_middleware(middleware).beta.messages.tool_runner(
            model=MODEL,
            max_tokens=500,
            system=prompt,
            messages=[{"role": "user", "content": flow.QUESTION}],
            tools=[*tools, *middleware.tools],
            thread=False,
        )
        return _text([block.model_dump() for block in runner.until_done().content])

    @beta_tool
    def ask_helper() -> str:
        """Ask another agent."""
        return run("helper", flow.HELPER_PROMPT, [service_log])

    with (
        MessagesServer([move] * 40, **flow.window_of_server()) as running,
        History(root_path=tmp_path, **flow.SHARED) as history,
    ):
        client = Anthropic(api_key="any", base_url=running.url, max_retries=0)
        for _ in range(2):
            assert run("", flow.LONG_PROMPT, [ask_helper, service_log]) == flow.THANKS
    assert running.refusals == []
    seen.check_subagent([flow.beside_in(body) for body in running.requests])
