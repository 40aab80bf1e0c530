"""The programs of docs/javascript.md behind ``ctxfs proxy``, as the page has them."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ctxfs.messages import ToolCall
from ctxfs.testing import ChatCompletionsServer, MessagesServer, ResponsesServer
from frameworks.proxied import behind_the_proxy

PAGE = Path(__file__).resolve().parents[2] / "docs" / "javascript.md"
LOGS = [[ToolCall("service_log", {"service": name})] for name in ("api", "billing", "mail")]
ANSWER = "Every request was served."
SERVERS: dict[str, Any] = {
    "AI SDK": MessagesServer,
    "LangGraph.js": ChatCompletionsServer,
    "Mastra": ChatCompletionsServer,
}


def program_of(library: str) -> str:
    """The program that the page shows for a library."""
    section = PAGE.read_text().partition(f"\n## {library}\n")[2].partition("\n## ")[0]
    (program,) = re.findall(r"(?ms)^```js\n(.*?)^```", section)
    return str(program)


def check_replacing_and_reading(program: str, server_of: Any, tmp_path: Path) -> None:
    """Run a program; its old results must leave, and be read back inside of its requests."""
    (tmp_path / "agent.mjs").write_text(program)
    (tmp_path / "node_modules").symlink_to(Path(sys.prefix) / "npm" / "node_modules")
    with server_of([*LOGS, [ToolCall("context_list", {})], ANSWER]) as server:
        environment = {
            "HOME": str(tmp_path),
            "ANTHROPIC_API_KEY": "any",
            "ANTHROPIC_BASE_URL": server.url,
            "OPENAI_API_KEY": "any",
            "OPENAI_BASE_URL": server.url,
        }
        done = behind_the_proxy(
            ["node", "agent.mjs"],
            ["--reading-turns", "8", "--keep-recent", "service_log=1"],
            sessions=tmp_path / "sessions",
            cwd=tmp_path,
            environment=environment,
        )
    assert done.stdout.strip() == ANSWER
    assert server.refusals == []
    assert json.dumps(server.requests[-1]).count("[Content offloaded]") == 2
    assert "5 calls, 5 with a bill; 2 contents replaced" in done.stderr
    assert "1 reading turn answered" in done.stderr


@pytest.mark.parametrize("library", SERVERS)
def test_the_program_of_the_page(library: str, tmp_path: Path) -> None:
    check_replacing_and_reading(program_of(library), SERVERS[library], tmp_path)


@pytest.mark.parametrize(
    ("model", "server_of"),
    [('openai("gpt-5")', ResponsesServer), ('openai.chat("gpt-5")', ChatCompletionsServer)],
)
def test_the_ai_sdk_with_both_apis_of_openai(model: str, server_of: Any, tmp_path: Path) -> None:
    program = program_of("AI SDK").replace('anthropic("claude-sonnet-4-5")', model)
    program = program.replace('{ anthropic } from "@ai-sdk/anthropic"', '{ openai } from "@ai-sdk/openai"')
    check_replacing_and_reading(program, server_of, tmp_path)
