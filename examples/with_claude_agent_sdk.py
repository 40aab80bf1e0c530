"""The Claude Agent SDK, with the hook, the tools and the store of ``CtxfsHooks(history)``.

    pip install 'ctxfs[claude_agent_sdk]'
    python examples/with_claude_agent_sdk.py

Claude Code, which comes with the SDK, talks to a Messages API on loopback, so it needs no key. With the real API, leave
out ``env``.
"""

import asyncio
import tempfile
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, InMemorySessionStore, ResultMessage, query

from ctxfs import History
from ctxfs.adapters.claude_agent_sdk import CtxfsHooks
from ctxfs.messages import ToolCall
from ctxfs.testing import MessagesServer


def model(body: dict[str, Any]) -> Any:
    if not any(tool["name"] == "Bash" for tool in body.get("tools", ())):
        return "A title."
    blocks = [b for message in body["messages"] if isinstance(message["content"], list) for b in message["content"]]
    results = [block for block in blocks if block["type"] == "tool_result"]
    print(f"{sum(len(str(result['content'])) for result in results):7} characters of results in the prompt")
    if len(results) < 3:
        return [ToolCall("Bash", {"command": "seq -f 'request %g served' 1000", "description": "Read a log"})]
    return "Every request was served."


async def main(folder: str) -> None:
    kept, conversation = InMemorySessionStore(), None
    async with MessagesServer([model] * 20) as server:
        for question in ("Is everything all right?", "Are you sure?"):
            with History("thread-1", root_path=f"{folder}/sessions") as history:
                ctxfs = CtxfsHooks(history)
                options = ClaudeAgentOptions(
                    hooks=ctxfs.hooks,
                    mcp_servers={**ctxfs.mcp_servers},
                    allowed_tools=["Bash", *ctxfs.allowed_tools],
                    session_store=ctxfs.session_store(kept),
                    resume=conversation,
                    model="claude-sonnet-5-5",
                    cwd=folder,
                    env={"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "any"},
                )
                async for message in query(prompt=question, options=options):
                    if isinstance(message, ResultMessage):
                        conversation = message.session_id
                        print(message.result)


with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    asyncio.run(main(folder))
