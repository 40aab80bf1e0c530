"""Google's ADK with one more line: ``plugins=[CtxfsPlugin(history)]``.

    pip install 'ctxfs[google_adk]'
    python examples/with_google_adk.py

The model is a script, so it needs no key.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

from ctxfs import History
from ctxfs.adapters.google_adk import CtxfsPlugin

SERVICES = ["api", "billing", "mail"]


def service_log(service: str) -> str:
    """Look up the log of a service."""
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(1800))


class Script(BaseLlm):
    """Asks for one log at a time."""

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: ARG002
    ) -> AsyncGenerator[LlmResponse, None]:
        """Reply to a request."""
        print(f"{sum(len(content.model_dump_json()) for content in llm_request.contents):7} characters in the prompt")
        part = types.Part(text="Every request was served.")
        if SERVICES:
            part = types.Part.from_function_call(name="service_log", args={"service": SERVICES.pop(0)})
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def main() -> None:
    ctxfs = CtxfsPlugin(History("thread-1", root_path=tempfile.mkdtemp()))
    agent = LlmAgent(name="operator", model=Script(model="script"), tools=[service_log])
    async with InMemoryRunner(app=App(name="app", root_agent=agent, plugins=[ctxfs])) as runner:
        for event in await runner.run_debug("Is everything all right?", quiet=True):
            if event.is_final_response() and event.content and event.content.parts:
                print(event.content.parts[0].text)


asyncio.run(main())
