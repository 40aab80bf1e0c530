"""The OpenAI Agents SDK with one more line: ``RunConfig(call_model_input_filter=CtxfsFilter(history))``.

    pip install 'ctxfs[openai_agents]'
    python examples/with_openai_agents.py

It talks to a Responses API on loopback, so it needs no key. With the real API, leave out ``base_url``.
"""

import asyncio
import tempfile

from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

from ctxfs import History
from ctxfs.adapters.openai_agents import CtxfsFilter
from ctxfs.messages import ToolCall
from ctxfs.testing import ResponsesServer


@function_tool
def service_log(service: str) -> str:
    """Look up the log of a service."""
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(1800))


async def main() -> None:
    script = [[ToolCall("service_log", {"service": name})] for name in ("api", "billing", "mail")]
    async with (
        ResponsesServer([*script, "Every request was served."]) as server,
        History("thread-1", root_path=tempfile.mkdtemp()) as history,
    ):
        ctxfs = CtxfsFilter(history)
        model = OpenAIResponsesModel("gpt-5", AsyncOpenAI(api_key="any", base_url=server.url))
        agent = Agent(name="Operator", model=model, tools=[service_log, *ctxfs.tools])
        config = RunConfig(call_model_input_filter=ctxfs, tracing_disabled=True)
        result = await Runner.run(agent, "Is everything all right?", hooks=ctxfs, run_config=config)
        for response in result.raw_responses:
            print(f"{response.usage.input_tokens:6} tokens in the prompt")
        print(result.final_output)


asyncio.run(main())
