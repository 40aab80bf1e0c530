"""One task of Inspect by arms: each sample is a session of ``ctxfs ab``, and its score says whether it is solved.

    python examples/with_inspect_ai.py [--json]

The model is a fake on loopback, so it needs no key. With a key, leave out the server and ``--upstream-anthropic``.
Needs ``pip install 'ctxfs[proxy]' inspect-ai anthropic``.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ctxfs.messages import ToolCall
from ctxfs.testing import MessagesServer

TASK = '''
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool


@tool
def read_log():
    async def execute(server: int) -> str:
        """Read the log of a server.

        Args:
            server: its number
        """
        served = "request served\\n" * 400
        return f"{served}server {server} has CODE-{server * 7}\\n{served}"

    return execute


@task
def codes():
    samples = [Sample(id=str(n), input=f"Which code has server {n}?", target=f"CODE-{n * 7}") for n in range(2)]
    return Task(dataset=samples, solver=[use_tools(read_log()), generate()], scorer=includes())
'''
LOGS = 3
SCORED = """
import json, pathlib, sys
(log,) = pathlib.Path("logs").glob("*.json")
sys.exit(json.loads(log.read_text())["samples"][0]["scores"]["includes"]["value"] != "C")
"""


def answers(body: dict[str, Any]) -> str | list[ToolCall]:
    """What the fake model does: it reads all logs, then says the code if it sees it, and else looks for it."""
    server = int(re.findall(r"server (\d+)", json.dumps(body["messages"][0]))[0])
    seen = json.dumps(body["messages"][1:])
    read = seen.count('"name": "read_log"')
    if read < LOGS:
        return [ToolCall("read_log", {"server": read})]
    if found := re.search(rf"server {server} has (CODE-\d+)", seen):
        return found[1]
    paths = re.findall(r"Path: ([^\s\\]+)", seen)
    return [ToolCall("Read", {"file_path": paths[server], "offset": 401, "limit": 1})] if paths else "I do not know."


folder = Path(tempfile.mkdtemp())
(folder / "given").mkdir()
(folder / "given" / "codes.py").write_text(TASK)
check = [sys.executable, "-c", SCORED]
sample = {"id": "sample-1", "prompt": "1", "directory": "given", "check": check}  # a line for each that is to be played
(folder / "tasks.jsonl").write_text(json.dumps(sample) + "\n")

inspect = [str(Path(sys.executable).parent / "inspect"), "eval", "codes.py", "--sample-id", "{prompt}"]
inspect += ["--model", "anthropic/claude-sonnet-5-5", "--log-dir", "logs", "--log-format", "json", "--display", "none"]
with MessagesServer([answers] * 100) as server:
    ab = [sys.executable, "-m", "ctxfs", "ab", str(folder / "tasks.jsonl"), "--budget", "5", *sys.argv[1:]]
    ab += ["--arms", "none,exact:1", "--reading-turns", "8"]  # none of Inspect's tools opens what was stored
    ab += ["--upstream-anthropic", server.url, "--keep", str(folder / "kept"), "--", *inspect]
    environment = {**os.environ, "ANTHROPIC_API_KEY": "any"}
    done = subprocess.run(ab, check=False, env=environment, stdout=subprocess.PIPE, text=True)
print(done.stdout)
sys.exit(done.returncode)
