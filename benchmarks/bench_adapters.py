"""What a framework sends with nothing, with its own offloader, and with ctxfs, in one turn of twelve large results.

    python benchmarks/bench_adapters.py
    .venv-frameworks/NAME-newest/bin/python benchmarks/bench_adapters.py NAME

The second runs in the environment of one framework, which `make frameworks` makes; the first runs that for each of them
that is there. The model is scripted: it calls a tool that
returns 27,000 characters twelve times, and answers. For each way it prints the tokens of all thirteen requests, how
many requests change what the one before them sent, and what an agent's call costs beside the framework, in
milliseconds of processor time. "ctxfs" is ctxfs as it is set at first, for a model whose prices it knows; "ctxfs, last
kept" shows the model the newest result in full, and replaces it when the next one comes.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from frameworks import flow  # noqa: E402 - the path comes first

LOGS = 12
ROUNDS = 3
SETTINGS: dict[str, dict[str, Any]] = {
    "ctxfs": {"model": "claude-sonnet-4-5"},
    "ctxfs, last kept": {"model": "claude-sonnet-4-5", "keep_recent": {flow.TOOL: 1}},
}

Make = Callable[[Path], Any]

OPEN = ExitStack()
"""What is open until the end."""


def anthropic(module: Any) -> dict[str, Make]:
    server = OPEN.enter_context(module.server())

    class Nothing(module.LoopAgent):
        def __init__(self, root: Path) -> None:
            super().__init__(server, root, None)
            self.client = module.Anthropic(api_key="any", base_url=server.url)

    return {"nothing": Nothing, "ctxfs": lambda root: module.LoopAgent(server, root, None)}


def langchain(module: Any) -> dict[str, Make]:
    from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware  # noqa: PLC0415

    def made(middleware: list[Any]) -> Make:
        def make(root: Path) -> Any:
            agent = module.LangChainAgent(root, None)
            tools = [module.service_log]
            agent.graph = module.create_agent(agent.model, tools=tools, middleware=middleware, checkpointer=agent.saver)
            return agent

        return make

    own = made([ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=30_000, keep=1)])])
    return {"nothing": made([]), "ContextEditing": own, "ctxfs": lambda root: module.LangChainAgent(root, None)}


def deepagents(module: Any) -> dict[str, Make]:
    def own(root: Path) -> Any:  # as it comes: nothing of this size leaves
        agent = module.DeepAgent(root, None)
        agent.graph = module.create_deep_agent(agent.model, tools=[module.service_log], checkpointer=agent.saver)
        return agent

    return {"nothing": own, "ctxfs": lambda root: module.DeepAgent(root, None)}


def pydantic_ai(module: Any) -> dict[str, Make]:
    class Nothing(module.PydanticAgent):
        def capabilities(self) -> list[Any]:
            return []

    ways = {"nothing": lambda root: Nothing(root, None), "ctxfs": lambda root: module.PydanticAgent(root, None)}
    try:
        compaction = import_module("pydantic_ai_harness.compaction")
    except ImportError:
        return ways

    class Own(module.PydanticAgent):
        def capabilities(self) -> list[Any]:
            return [compaction.ClearToolResults(max_tokens=40_000)]

    return {**ways, "ClearToolResults": lambda root: Own(root, None)}


def openai_agents(module: Any) -> dict[str, Make]:
    from agents import RunConfig  # noqa: PLC0415 - of one framework
    from agents.extensions import ToolOutputTrimmer  # noqa: PLC0415

    def filtered(given: Any) -> Make:
        class Filtered(module.FilteredAgent):
            def config(self) -> Any:
                return RunConfig(call_model_input_filter=given, tracing_disabled=True)

        return lambda root: Filtered(root, None)

    own = filtered(ToolOutputTrimmer())
    return {"nothing": filtered(None), "ToolOutputTrimmer": own, "ctxfs": lambda root: module.FilteredAgent(root, None)}


def strands(module: Any) -> dict[str, Make]:
    from strands.vended_plugins.context_offloader import ContextOffloader, InMemoryStorage  # noqa: PLC0415

    def plugged(plugins: Callable[[], list[Any]]) -> Make:
        class Plugged(module.PluggedAgent):
            def plugins(self) -> list[Any]:
                return plugins()

        return lambda root: Plugged(root, None)

    own = plugged(lambda: [ContextOffloader(storage=InMemoryStorage())])
    return {
        "nothing": plugged(list),
        "ContextOffloader": own,
        "ctxfs": lambda root: module.PluggedAgent(root, None),
    }


def google_adk(module: Any) -> dict[str, Make]:
    from google.adk.plugins.context_filter_plugin import ContextFilterPlugin  # noqa: PLC0415

    def plugged(plugins: Callable[[], list[Any]]) -> Make:
        class Plugged(module.WithIds):
            def plugins(self) -> list[Any]:
                return plugins()

        return lambda root: Plugged(root, None)

    own = plugged(lambda: [ContextFilterPlugin(num_invocations_to_keep=3)])
    return {"nothing": plugged(list), "ContextFilterPlugin": own, "ctxfs": lambda root: module.WithIds(root, None)}


def litellm(module: Any) -> dict[str, Make]:
    server = OPEN.enter_context(module.server(turns=400))

    class Nothing(module.LoopAgent):
        def _reply(self, body: Any) -> Any:
            return module.litellm.completion(**body, api_base=server.url, api_key="any")

    return {
        "nothing": lambda root: Nothing(server, root, None),
        "ctxfs": lambda root: module.LoopAgent(server, root, None),
    }


def smolagents(module: Any) -> dict[str, Make]:
    class Nothing(module.MemoryAgent):
        def wrapped(self) -> Any:
            return self.model

    def made(root: Path) -> Any:
        module.SETTINGS = {
            key: {"observation": 1} if key == "keep_recent" else flow.SETTINGS[key] for key in flow.SETTINGS
        }
        return module.MemoryAgent(root, None)

    return {"nothing": lambda root: Nothing(root, None), "ctxfs": made}


def claude_agent_sdk(module: Any) -> dict[str, Make]:
    """Claude Code runs in a process of its own: what is measured is what the hooks take in this one."""

    def turn(body: dict[str, Any]) -> Any:
        move = scripted("", []) if any(tool.get("name") == "Bash" for tool in body.get("tools", ())) else "ok"
        return move if isinstance(move, str) else module.cat(folder, move.arguments["n"])

    folder = Path(OPEN.enter_context(tempfile.TemporaryDirectory()))
    for n in range(1, LOGS + 1):
        (folder / f"log{n}.txt").write_text(flow.service_log(n))
    server = OPEN.enter_context(module.MessagesServer([turn] * 2000))

    class Hooked:
        def __init__(self, root: Path, *, hooks: bool) -> None:
            self.history = module.History("t", root_path=root, **flow.SETTINGS)
            self._hooks, self._first = hooks, len(server.requests)

        @property
        def requests(self) -> list[list[str]]:
            sent = [body for body in server.requests[self._first :] if len(body.get("tools", ())) > 1]
            return [[without_marks(message) for message in body["messages"]] for body in sent]

        def ask(self, question: str) -> None:
            ctxfs = module.CtxfsHooks(self.history)
            module.asyncio.run(module.ask(folder, server.url, question, ctxfs, hooks=self._hooks, turns=LOGS + 2))

        def close(self) -> None:
            self.history.close()

    return {"nothing": lambda root: Hooked(root, hooks=False), "ctxfs": lambda root: Hooked(root, hooks=True)}


def without_marks(message: dict[str, Any]) -> str:
    """A message as text, without where the cache is to end, which Claude Code moves on with each request."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    bare = [{key: value for key, value in block.items() if key != "cache_control"} for block in blocks]
    return json.dumps({**message, "content": bare})


def scripted(question: str, results: list[str]) -> flow.Call | str:
    """Twelve logs, and an answer: ``results`` may be fewer than were given."""
    del question, results
    scripted.asked += 1
    n = scripted.asked
    return flow.Call(flow.TOOL, {"n": n}, f"call_{n}") if n <= LOGS else "Done."


def played(way: str, make: Make, root: Path) -> tuple[list[list[str]], float]:
    """The requests of one turn, and the processor time of it in seconds."""
    flow.SETTINGS = SETTINGS.get(way, {})
    scripted.asked = 0
    agent = make(root)
    start = time.process_time()
    agent.ask(flow.QUESTION)
    spent = time.process_time() - start
    requests = agent.requests
    agent.close()
    return requests, spent


WAYS: dict[str, Callable[[Any], dict[str, Make]]] = {
    way.__name__: way
    for way in (
        *(anthropic, langchain, deepagents, pydantic_ai, openai_agents, strands, google_adk),
        *(litellm, smolagents, claude_agent_sdk),
    )
}
WHOLE_TURN = {"claude_agent_sdk"}
"""Where results are replaced as they come in and when a conversation is resumed, and not within a turn."""


def main_for_all() -> int:
    """Run this in each environment that is there; return the number of those in which it failed."""
    pythons = {name: ROOT / ".venv-frameworks" / f"{name}-newest" / "bin" / "python" for name in WAYS}
    there = [name for name in WAYS if pythons[name].exists()]
    done = [subprocess.run([pythons[name], "-W", "ignore", __file__, name], check=False).returncode for name in there]
    return sum(map(bool, done))


def main(name: str) -> None:
    module = import_module(f"frameworks.test_{name}")
    flow.next_move = scripted
    made = WAYS[name](module)
    if name not in WHOLE_TURN:
        made["ctxfs, last kept"] = made["ctxfs"]
    spent: dict[str, float] = {}
    for way in [*made, *made]:  # the first time loads what is loaded once
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as folder:
                requests, seconds = played(way, made[way], Path(folder) / "sessions")
            spent[way] = min(seconds, spent.get(way, seconds))
    for way in made:
        with tempfile.TemporaryDirectory() as folder:
            requests, _ = played(way, made[way], Path(folder) / "sessions")
        tokens, broken = flow.tokens_sent(requests), len(flow.broken_prefixes(requests))
        beside = (spent[way] - spent["nothing"]) / len(requests) * 1000
        print(f"{name:14} {way:20} {tokens:9,} tokens, {broken:2} broken prefixes, {beside:6.1f} ms a call")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(main_for_all())
    with OPEN:
        main(sys.argv[1])
