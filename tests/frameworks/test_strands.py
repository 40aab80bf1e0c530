"""The adapter of Strands, with a model of its interface."""

import asyncio
import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from boto3 import Session  # type: ignore[import-untyped]
from strands import Agent, tool
from strands.models import BedrockModel
from strands.models.model import CacheConfig, Model
from strands.session import FileSessionManager

from ctxfs.adapters.strands import CtxfsPlugin, CtxfsStorage, host_cache_of
from ctxfs.context import Histories, History, HostCache, Part
from ctxfs.errors import ConfigError
from frameworks import flow
from frameworks.conformance import AdapterConformance, text_of, with_text


class ScriptedModel(Model):
    """Says what the flow's model says, or what ``moves`` say, and keeps what it got."""

    def __init__(self, *moves: Any) -> None:
        self.moves = list(moves)
        self.requests: list[list[str]] = []

    def update_config(self, **_: Any) -> None:
        """Nothing to configure."""

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> Any:
        items = [item for message in messages for item in message["content"]]
        self.requests.append([json.dumps(item, sort_keys=True, default=str) for item in items])
        move = self.moves.pop(0) if self.moves else flow.next_move(items[-1].get("text", ""), results_in(messages))
        move = move(messages) if callable(move) else move
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(move, str):
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": move}}}
        else:
            name, arguments, call_id = move
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": call_id, "name": name}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if isinstance(move, str) else "tool_use"}}
        usage = {"inputTokens": 1000, "outputTokens": 10, "totalTokens": 1010, "cacheReadInputTokens": 400}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


def results_in(messages: Any) -> list[str]:
    results = [item["toolResult"] for message in messages for item in message["content"] if "toolResult" in item]
    return ["".join(content.get("text", "") for content in result["content"]) for result in results]


@tool
def service_log(n: int) -> str:
    """Look up a log."""
    return flow.service_log(n)


class PluggedAgent:
    """An agent with a plug-in; what it keeps are the files of its session manager."""

    at_source = False

    def __init__(self, root: Path, kept: Path | None) -> None:
        self.model = ScriptedModel()
        self.stored = kept or root.with_name(f"{root.name}_strands")
        self.history = History("thread-1", root_path=root, **flow.SETTINGS)
        self.agent = Agent(
            model=self.model,
            tools=[service_log],
            plugins=self.plugins(),
            session_manager=FileSessionManager(session_id="s", storage_dir=str(self.stored)),
            callback_handler=None,
        )

    def plugins(self) -> list[Any]:
        return [CtxfsPlugin(self.history, at_source=self.at_source)]

    @property
    def requests(self) -> list[list[str]]:
        return self.model.requests

    def ask(self, question: str) -> str:
        return str(self.agent(question)).strip()

    def kept(self) -> Path:
        return self.stored

    def close(self) -> None:
        self.history.close()


class Async(PluggedAgent):
    """The same, in an event loop."""

    def ask(self, question: str) -> str:
        return str(asyncio.run(self.agent.invoke_async(question))).strip()


class Streamed(PluggedAgent):
    """The same, streamed."""

    def ask(self, question: str) -> str:
        async def run() -> str:
            return [str(event["result"]) async for event in self.agent.stream_async(question) if "result" in event][-1]

        return asyncio.run(run()).strip()


class AtSource(PluggedAgent):
    """Results are replaced where they are made."""

    at_source = True


@pytest.mark.parametrize("agent", [PluggedAgent, Async, Streamed])
def test_the_flow_on_the_wire(agent: Any, tmp_path: Path) -> None:
    agents = []

    def made(root: Path, kept: Any) -> Any:
        agents.append(agent(root, kept))
        return agents[-1]

    played = flow.play(made, tmp_path / "sessions")
    stored = "".join(path.read_text() for path in played.kept.rglob("*.json"))
    assert json.dumps(flow.service_log(1))[1:-1] in stored
    originals = flow.service_log(1) in results_in(agents[0].agent.messages)
    assert originals is hasattr(Agent, "add_middleware"), "the agent's messages hold the original, since 1.62"


def test_the_flow_at_the_source(tmp_path: Path) -> None:
    flow.play_at_source(AtSource, tmp_path / "sessions")


def test_what_was_billed_is_recorded(tmp_path: Path) -> None:
    agent = PluggedAgent(tmp_path, None)
    agent.ask(flow.QUESTION)
    agent.close()
    assert flow.billed_tokens(tmp_path) == [1000] * 5


def test_agents_with_ids_share_a_session(tmp_path: Path) -> None:
    with History("t", root_path=tmp_path, **flow.SETTINGS) as history:
        for agent_id in ("one", "two"):
            agent = Agent(
                model=ScriptedModel(),
                tools=[service_log],
                agent_id=agent_id,
                plugins=[CtxfsPlugin(history)],
                callback_handler=None,
            )
            assert flow.NEEDLE in str(agent(flow.QUESTION))
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_all_kinds_of_content_are_taken(tmp_path: Path) -> None:
    """Media, reasoning, an error: they are counted, and stay the same objects; data is replaced as its JSON."""
    image = {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}
    results: list[Any] = [
        {"content": [{"text": "Look:"}, image], "status": "success"},
        {"content": [{"text": "No. " * 5000}], "status": "error"},
        {"content": [{"json": {"log": flow.service_log(1)}}], "status": "success"},
        {"content": [{"text": flow.service_log(2)}, {"text": "end"}], "status": "success"},
        {"content": [{"text": "last"}], "status": "success"},
    ]
    messages: list[Any] = [{"role": "user", "content": [image, {"cachePoint": {"type": "default"}}, {"text": "See."}]}]
    for n, result in enumerate(results):
        thought = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}}
        use = {"toolUse": {"toolUseId": f"c{n}", "name": "t", "input": {"n": n}}}
        messages.append({"role": "assistant", "content": [thought, use]})
        messages.append({"role": "user", "content": [{"toolResult": {"toolUseId": f"c{n}", **result}}]})
    messages.append({"role": "assistant", "content": [{"text": "Yes."}]})
    seen: list[Any] = []

    def move(given: Any) -> str:
        seen.append(given)
        return "Fine."

    model = ScriptedModel(move)
    history = History("t", root_path=tmp_path, keep_recent={"t": 1})
    Agent(model=model, messages=messages, plugins=[CtxfsPlugin(history)], callback_handler=None)("And?")
    sent = [item["toolResult"] for message in seen[0] for item in message["content"] if "toolResult" in item]
    assert [sent[n]["content"] == results[n]["content"] for n in range(5)] == [True, True, False, False, True]
    for n in (2, 3):
        assert sent[n]["content"][0]["text"].startswith("[Content offloaded]")
    assert seen[0][0]["content"] == messages[0]["content"]
    assert seen[0][1]["content"] == messages[1]["content"]
    assert history.run_tool("context_grep", {"ref": "c2", "pattern": "WARNING"}).content.count(flow.NEEDLE) == 1


def test_a_tool_says_what_is_wrong(tmp_path: Path) -> None:
    moves = [("context_grep", {"pattern": 5}, "c1"), ("context_grep", {"ref": "nothing", "pattern": "x"}, "c2")]
    model = ScriptedModel(*moves, lambda messages: " ".join(results_in(messages)))
    agent = Agent(model=model, plugins=[CtxfsPlugin(History("t", root_path=tmp_path))], callback_handler=None)
    told = str(agent("Go."))
    assert "pattern" in told
    assert "no item 'nothing' in this session" in told


HAS_STORAGE = find_spec("strands.storage") is not None
since_1_48 = pytest.mark.skipif(not HAS_STORAGE, reason="Strands has no storage before 1.48")


@since_1_48
def test_the_storage_keeps_every_byte(tmp_path: Path) -> None:
    from strands.storage import Storage

    data = {"a/1": b"\x00\xff\x89PNG\r\n", "a/2": flow.service_log(1).encode(), "b": b"\xc3\xa9 mail\r\n\n"}

    async def run(storage: CtxfsStorage) -> None:
        assert isinstance(storage, Storage)
        for key, given in data.items():
            await storage.write(key, given)
            await storage.write(key, b"another one")
            await storage.write(key, given)
            await storage.write(key, given)
        await storage.delete("a/1")

    async def look(storage: CtxfsStorage) -> None:
        assert {key: await storage.read(key) for key in data} == data
        assert await storage.read("c") is None
        assert await storage.list("") == ["a/1", "a/2", "b"]
        assert await storage.list("a/") == ["a/1", "a/2"]
        assert next(found.key for found in await storage.search("mail queue")) == "a/2"

    for work in (run, look):
        with History("t", root_path=tmp_path) as history:
            asyncio.run(work(CtxfsStorage(history)))


@since_1_48
def test_what_cannot_be_stored_is_an_error_of_strands(tmp_path: Path) -> None:
    from strands.types.exceptions import StorageError

    (tmp_path / "file").write_text("no directory")
    storage = CtxfsStorage(History("t", root_path=tmp_path / "file"))
    with pytest.raises(StorageError, match="could not be stored"):
        asyncio.run(storage.write("a", b"x"))
    with pytest.raises(StorageError, match="line break"):
        asyncio.run(storage.write("a\n1", b"x"))


@since_1_48
def test_the_offloader_of_strands_writes_to_the_session(tmp_path: Path) -> None:
    """What it leaves of a result stays: there is no placeholder of a placeholder."""
    from strands.vended_plugins.context_offloader import ContextOffloader

    with History("t", root_path=tmp_path, **flow.SETTINGS) as history:
        moves = [(flow.TOOL, {"n": n}, f"call_{n}") for n in (1, 2, 3)]
        found = {"reference": "call_1_0", "pattern": "WARNING"}
        model = ScriptedModel(*moves, ("retrieve_offloaded_content", found, "c9"), lambda given: results_in(given)[-1])
        plugins = [ContextOffloader(storage=CtxfsStorage(history)), CtxfsPlugin(history)]
        agent = Agent(model=model, tools=[service_log], plugins=plugins, callback_handler=None)
        said = str(agent(flow.QUESTION))
    assert flow.NEEDLE in said, said
    assert flow.broken_prefixes(model.requests) == []


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use History"):
        CtxfsPlugin(Histories(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="use History"):
        CtxfsStorage(tmp_path)  # type: ignore[arg-type]


class TestConformance(AdapterConformance):
    """Each request shows copies of the agent's messages."""

    def message(self, part: Part) -> Any:
        content: Any = part.content
        role = "assistant" if part.kind in ("reply", "call") else "user"
        if part.kind == "call":
            return {"role": role, "content": [{"toolUse": {"toolUseId": part.id, "name": part.tool, "input": content}}]}
        if part.kind == "result":
            texts = [{"text": content}] if isinstance(content, str) else [{"text": block["text"]} for block in content]
            status = "error" if part.stays else "success"
            return {
                "role": role,
                "content": [{"toolResult": {"toolUseId": part.id, "status": status, "content": texts}}],
            }
        blocks: list[Any] = [] if isinstance(content, str) else [b for b in content if b["type"] == "thinking"]
        said: list[Any] = [{"reasoningContent": {"reasoningText": {"text": b["thinking"]}}} for b in blocks]
        return {"role": role, "content": [*said, *([{"text": text_of(part)}] if text_of(part) else [])]}

    def sent(self, history: History, messages: list[Any], branch: str) -> Any:
        sent: list[Any] = []
        agent = SimpleNamespace(agent_id=branch or "default", model=ScriptedModel())
        context = SimpleNamespace(
            agent=agent,
            messages=messages,
            system_prompt=None,
            tool_specs=[],
            replace=lambda *, messages: sent.extend(messages),
        )
        plugin: Any = CtxfsPlugin(history)
        asyncio.run(plugin._in_request(context))  # noqa: SLF001 - strands calls it
        return sent

    def content(self, part: Part, message: Any) -> Any:
        new = message["content"][-1]
        if part.kind == "call":
            return new["toolUse"]["input"]
        if part.kind != "result":
            return with_text(part, new["text"])
        texts = [item["text"] for item in new["toolResult"]["content"]]
        return texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]


def test_the_cache_points_of_the_messages_and_of_the_model_are_seen(tmp_path: Path, seen: flow.Seen) -> None:
    point: Any = {"cachePoint": {"type": "default"}}
    for given, told in (([], HostCache()), ([point], HostCache(at_end=True))):
        with History(root_path=tmp_path) as history:
            agent = Agent(model=ScriptedModel("Done."), plugins=[CtxfsPlugin(history)])
            agent([{"text": "Go on."}, *given])
            assert seen.last.host == told


def test_the_prompt_and_the_tools_of_a_request_are_counted(tmp_path: Path, seen: flow.Seen) -> None:
    with History(root_path=tmp_path) as history:
        plugins: Any = [CtxfsPlugin(history)]
        agent = Agent(
            model=ScriptedModel("Done."), plugins=plugins, tools=[service_log], system_prompt=flow.LONG_PROMPT
        )
        agent("Go on.")
        seen.check_overhead(history)


def test_a_model_of_bedrock_that_sets_cache_points_is_seen() -> None:
    account = Session(aws_access_key_id="id", aws_secret_access_key="key", region_name="us-west-2")
    plain, marking = BedrockModel(boto_session=account), BedrockModel(boto_session=account, cache_config=CacheConfig())
    assert host_cache_of([], plain) == HostCache()
    assert host_cache_of([], marking) == HostCache(at_end=True)
    if "ttl" in CacheConfig.__dataclass_fields__:
        for_an_hour = BedrockModel(boto_session=account, cache_config=CacheConfig(ttl="1h"))
        assert host_cache_of([], for_an_hour) == HostCache(at_end=True, ttl="1h")


def test_a_subagent_has_a_branch_of_its_own_and_what_its_requests_hold_is_counted(
    tmp_path: Path, seen: flow.Seen
) -> None:
    besides: list[str] = []

    class Shared(ScriptedModel):
        async def stream(self, messages: Any, tool_specs: Any = None, system_prompt: Any = None, **_: Any) -> Any:
            besides.append(json.dumps([system_prompt, tool_specs], separators=(",", ":")))
            over = flow.Call("ask_helper", {}, "ask_1")
            helps = system_prompt == flow.HELPER_PROMPT
            self.moves = [flow.shared_move(over, results_in(messages), helps=helps)]
            sent = flow.counted_in_window(besides[-1], json.dumps(messages, separators=(",", ":")))
            async for event in super().stream(messages):
                if "metadata" in event:
                    event["metadata"]["usage"] |= {"inputTokens": sent, "cacheReadInputTokens": 0}
                yield event

    @tool
    def ask_helper() -> str:
        """Ask another agent."""
        return str(helper(flow.QUESTION)).strip()

    with History(root_path=tmp_path, **flow.SHARED) as history:

        def agent(**given: Any) -> Agent:
            return Agent(model=Shared(), plugins=[CtxfsPlugin(history)], callback_handler=None, **given)

        for _ in range(2):
            helper = agent(agent_id="helper", tools=[service_log], system_prompt=flow.HELPER_PROMPT)
            main = agent(tools=[ask_helper, service_log], system_prompt=flow.LONG_PROMPT)
            assert str(main(flow.QUESTION)).strip() == flow.THANKS
    seen.check_subagent(besides)
