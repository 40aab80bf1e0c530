"""Large tool results of a plain message list go to files: no agent, no session, plain dicts in and out.

python examples/raw_messages.py
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from ctxfs.tools import offload_tool_result, offload_tool_results


def result(tool_use_id: str, content: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": tool_use_id, "content": content}]}


async def main() -> None:
    folder = tempfile.mkdtemp()

    # One message, when a tool has just returned: the caller decides that it is too large.
    output = "a line of a long build log\n" * 500
    one = await offload_tool_result(result("toolu_01", output), session_id="build-42", output_dir=folder)
    print(one.message["content"][0]["content"].replace(folder, "…"))
    print(f"freed {one.freed_chars:,} characters")

    # A whole history, when it gets too long: results of 100 characters or more are offloaded.
    history = [
        {"role": "user", "content": "Build it."},
        result("toolu_02", "ok"),
        result("toolu_03", output),
        result("toolu_03", output.upper()),  # the same id again
    ]
    done = await offload_tool_results(history, output_dir=folder)
    for message in done.messages[1:]:
        print(message["content"][0]["content"])
    print(f"{done.offloaded_count} offloaded, {done.freed_chars:,} characters: {[Path(f).name for f in done.files]}")


asyncio.run(main())
