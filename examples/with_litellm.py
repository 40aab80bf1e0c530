"""LiteLLM, with the request rewritten on its way out: ``litellm.completion(**history.chat(body))``.

    pip install ctxfs litellm mcp
    python examples/with_litellm.py

It talks to a Chat Completions API on loopback, so it needs no key. For a provider, leave out ``api_base``.
"""

import json
import os
import tempfile
from typing import Any

from ctxfs import History
from ctxfs.messages import ToolCall
from ctxfs.testing import ChatCompletionsServer

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or its import fetches a list of prices

import litellm


def service_log(service: str) -> str:
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(1800))


def schema(name: str, description: str, parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


LOG = schema("service_log", "Look up a log", {"type": "object", "properties": {"service": {"type": "string"}}})


def ask(history: History, question: str, **server: str) -> str:
    """The loop: ``messages`` is never changed by ctxfs."""
    tools = [LOG, *(schema(tool.name, tool.description, dict(tool.input_schema)) for tool in history.tools)]
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        body = history.chat({"model": "openai/gpt-5", "messages": messages, "tools": tools})
        reply: Any = litellm.completion(**body, **server)
        history.replied(reply.usage, reply.model)
        print(f"{reply.usage.prompt_tokens:6} tokens in the prompt")
        message = reply.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            name, given = call.function.name, json.loads(call.function.arguments)
            result = service_log(**given) if name == "service_log" else history.run_tool(name, given).content
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


names = ["api", "billing", "mail"]
script: list[Any] = [[ToolCall("service_log", {"service": name}, id=f"call_{name}")] for name in names]
script += [[ToolCall("context_grep", {"ref": "call_api", "pattern": "request 1234 "})], "Every request was served."]
with (
    ChatCompletionsServer(script) as stand_in,
    History(root_path=tempfile.mkdtemp(), model="gpt-5") as session,
):
    print(ask(session, "Was request 1234 of the API served?", api_base=stand_in.url, api_key="any"))
