"""Strands with one more line: ``plugins=[CtxfsPlugin(history)]``.

    pip install 'ctxfs[strands]'
    python examples/with_strands.py

The model is a script, so it needs no key.
"""

import json
import tempfile
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, tool
from strands.models import Model

from ctxfs import History
from ctxfs.adapters.strands import CtxfsPlugin


@tool
def service_log(service: str) -> str:
    """Look up the log of a service."""
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(1800))


class Script(Model):
    """Asks for one log at a time."""

    services = iter(("api", "billing", "mail"))

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Reply to a request."""
        print(f"{len(json.dumps(messages)):7} characters in the prompt")
        start: dict[str, Any] = {}
        delta: dict[str, Any] = {"text": "Every request was served."}
        if service := next(self.services, None):
            start = {"toolUse": {"toolUseId": f"call_{service}", "name": "service_log"}}
            delta = {"toolUse": {"input": json.dumps({"service": service})}}
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": start}}
        yield {"contentBlockDelta": {"delta": delta}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if service else "end_turn"}}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        """Not used here."""
        raise NotImplementedError

    def update_config(self, **_: Any) -> None:
        """There is none."""

    def get_config(self) -> dict[str, Any]:
        """Return none."""
        return {}


with History("thread-1", root_path=tempfile.mkdtemp()) as history:
    agent = Agent(model=Script(), tools=[service_log], plugins=[CtxfsPlugin(history)], callback_handler=None)
    print(agent("Is everything all right?"))
