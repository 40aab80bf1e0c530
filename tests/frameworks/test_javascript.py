"""The programs of docs/javascript.md behind ``ctxfs proxy``, as the page has them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ctxfs.messages import ToolCall
from ctxfs.testing import ChatCompletionsServer, MessagesServer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "javascript.md"
LOGS = [[ToolCall("service_log", {"service": name})] for name in ("api", "billing", "mail")]
LONGEST_S = 600
SERVERS: dict[str, Any] = {
    "AI SDK": MessagesServer,
    "LangGraph.js": ChatCompletionsServer,
    "Mastra": ChatCompletionsServer,
}


@pytest.mark.parametrize("library", SERVERS)
def test_the_program_of_the_page(library: str, tmp_path: Path) -> None:
    section = PAGE.read_text().partition(f"\n## {library}\n")[2].partition("\n## ")[0]
    (program,) = re.findall(r"(?ms)^```js\n(.*?)^```", section)
    (tmp_path / "agent.mjs").write_text(program)
    (tmp_path / "node_modules").symlink_to(Path(sys.prefix) / "npm" / "node_modules")
    own = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
    answer = "Every request was served."
    with SERVERS[library]([*LOGS, [ToolCall("context_list", {})], answer]) as server:
        own |= {"ANTHROPIC_API_KEY": "any", "ANTHROPIC_BASE_URL": server.url}
        own |= {"OPENAI_API_KEY": "any", "OPENAI_BASE_URL": server.url, "HOME": str(tmp_path)}
        proxy = [sys.executable, "-m", "ctxfs", "proxy", "--root", str(tmp_path / "sessions"), "--reading-turns", "8"]
        done = subprocess.run(
            [*proxy, "--keep-recent", "service_log=1", "--", "node", "agent.mjs"],
            cwd=tmp_path,
            env=own,
            check=False,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            stdin=subprocess.DEVNULL,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == answer
    assert server.refusals == []
    assert json.dumps(server.requests[-1]).count("[Content offloaded]") == 2
    assert "5 calls, 5 of them with a bill; 2 contents replaced" in done.stderr
    assert "1 reading turn answered" in done.stderr
