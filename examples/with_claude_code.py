"""Claude Code with the plug-in of ctxfs: large output goes to a file before the model sees it.

    pip install 'ctxfs[cli]' claude-agent-sdk       # that package brings Claude Code
    python examples/with_claude_code.py

Claude Code talks to a Messages API on loopback here, so it needs no key. With the real API, leave out ``environment``.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import claude_agent_sdk

from ctxfs.messages import ToolCall
from ctxfs.testing import MessagesServer

CLAUDE = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
PLUGIN = Path(__file__).resolve().parent.parent / "plugins" / "claude-code"
GREP = "mcp__plugin_ctxfs_ctxfs__context_grep"


def main(base_url: str) -> None:
    home = tempfile.mkdtemp()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # where the command ctxfs is
        "HOME": home,
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": "any",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    command = [str(CLAUDE), "-p", "Which number is the last?", "--plugin-dir", str(PLUGIN)]
    command += ["--allowedTools", f"Bash,{GREP}"]
    done = subprocess.run(command, cwd=home, env=environment, check=True, capture_output=True, text=True)
    print(done.stdout)


def turn(body: dict[str, Any]) -> Any:
    """The scripted model: it runs a command, and searches its stored output."""
    if not body.get("tools"):
        return "ok"
    said = [block for m in body["messages"] if isinstance(m["content"], list) for block in m["content"]]
    results = [json.dumps(block["content"]) for block in said if block["type"] == "tool_result"]
    if not results:
        return [ToolCall("Bash", {"command": "seq 100000 105000", "description": "Count"}, id="call_1")]
    if len(results) == 1:
        print(f"the model sees {len(results[0]):,} characters of 35,000: {results[0][1:42]}…")
        return [ToolCall(GREP, {"ref": "call_1", "pattern": "^105"})]
    return "It is 105000." if "105000" in results[1] else f"I cannot find it: {results[1]}"


with MessagesServer([turn] * 20) as server:
    main(server.url)
