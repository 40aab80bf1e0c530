"""A session on the disk whose results are given texts, for tests of what shows sessions."""

from pathlib import Path

import anyio

from ctxfs.context.context import Context
from ctxfs.messages import AssistantMessage, ToolMessage, UserMessage

__all__ = ["write_session"]


def write_session(root: Path, *texts: str) -> None:
    """Write the session ``s`` under ``root``: a call of ``look`` for each text, of which the last result stays."""
    anyio.run(_write, root, texts)


async def _write(root: Path, texts: tuple[str, ...]) -> None:
    async with Context("s", root_path=root, keep_recent={"look": 1}) as context:
        await context.add(UserMessage("What is in there?"))
        for number, text in enumerate(texts, start=1):
            await context.messages()
            call_id = f"call_{number:03d}"
            call = {"type": "tool_use", "id": call_id, "name": "look", "input": {"at": number}}
            await context.add(AssistantMessage((call,)), ToolMessage(call_id, "look", text))
        await context.messages()
        await context.add(AssistantMessage("That is all."))
