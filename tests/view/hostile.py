"""A session in which everything that can be hostile is."""

from pathlib import Path

from ctxfs.context.context import Context
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage

__all__ = ["HOSTILE", "make_hostile"]

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egnp.exe & </pre><img src=x onerror=alert(2)>"


async def make_hostile(root: Path) -> None:
    """A session in which everything that can be hostile is."""
    async with Context("hostile", root_path=root, model="", window=None, pricing=None) as context:
        await context.add(UserMessage(HOSTILE))
        block = {"type": "tool_use", "id": "call_1", "name": "run", "input": {"c": HOSTILE}}
        await context.add(AssistantMessage((block,)))
        await context.add(ToolMessage("call_1", "run", HOSTILE + "\ud800\n" + "x" * 300_000 + "\nend"))
        await context.add(AssistantMessage(HOSTILE))
