"""SWE-bench-like tasks by arms: mini-swe-agent's own runner behind ``ctxfs ab``, a repository and its test for each.

    python examples/with_mini_swe_agent.py [--json]

The model is a fake on loopback, so it needs no key. With a key, leave out the server and ``--upstream-anthropic``.
Needs ``pip install 'ctxfs[proxy]' mini-swe-agent``.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ctxfs.messages import ToolCall
from ctxfs.testing import MessagesServer

BROKEN = "def double(number):\n    return number + 1\n"
TEST = "from maths import double\n\nassert double(4) == 8\n"
COMMANDS = (
    "cat maths.py",
    "seq 1 3000",
    "sed -i 's/number + 1/number * 2/' maths.py",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
)


def works(body: dict[str, Any]) -> list[ToolCall]:
    """What the fake model does: one command after the other."""
    done = sum(message["role"] == "assistant" for message in body["messages"])
    return [ToolCall("bash", {"command": COMMANDS[min(done, len(COMMANDS) - 1)]})]


folder = Path(tempfile.mkdtemp())
(folder / "repository").mkdir()
(folder / "repository" / "maths.py").write_text(BROKEN)
(folder / "repository" / "test_maths.py").write_text(TEST)
prompt = "double(4) should be 8. Repair maths.py."
check = [sys.executable, "test_maths.py"]
task = {"id": "double", "prompt": prompt, "directory": "repository", "check": check}
(folder / "tasks.jsonl").write_text(json.dumps(task) + "\n")

mini = [str(Path(sys.executable).parent / "mini"), "--model", "anthropic/claude-sonnet-5-5", "--task", "{prompt}"]
mini += ["--yolo", "--exit-immediately", "--output", "trajectory.json"]
with MessagesServer([works] * 100) as server:
    ab = [sys.executable, "-m", "ctxfs", "ab", str(folder / "tasks.jsonl"), "--budget", "5", *sys.argv[1:]]
    ab += ["--arms", "none,exact:1", "--reading-turns", "8"]  # its shell is all that it has
    ab += ["--upstream-anthropic", server.url, "--keep", str(folder / "kept"), "--", *mini]
    environment = {
        **os.environ,
        "ANTHROPIC_API_KEY": "any",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
    }
    done = subprocess.run(ab, check=False, env=environment, stdout=subprocess.PIPE, text=True)
print(done.stdout)
sys.exit(done.returncode)
