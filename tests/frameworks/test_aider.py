"""aider behind ``ctxfs proxy``: it has no tools, so that nothing is replaced; its calls pass, and are counted."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ctxfs.testing import ChatCompletionsServer
from frameworks.proxied import behind_the_proxy

AIDER = Path(sys.prefix) / "apart" / "bin" / "aider"
EDIT = "hello.py\n```\nprint('hello, world')\n```\n"


def test_aider(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    (work / "hello.py").write_text("print('hello')\n")
    quiet = (
        "--no-git",
        "--no-check-update",
        "--analytics-disable",
        "--no-show-model-warnings",
        "--no-show-release-notes",
    )
    prices = tmp_path / ".aider" / "caches" / "model_prices_and_context_window.json"
    prices.parent.mkdir(parents=True)
    prices.write_text(json.dumps({"x": {}}))  # aider's own copy of the prices: if it has none, it asks the network
    options = ("--model", "openai/gpt-5", "--edit-format", "whole", "--yes-always", *quiet)
    asked: list[str] = []

    def turn(body: dict[str, Any]) -> str:
        asked.append(str(body["messages"]))
        return EDIT

    with ChatCompletionsServer([turn] * 3) as server:
        done = behind_the_proxy(
            [str(AIDER), *options, "--message", "Greet the world.", "hello.py"],
            ("--upstream-openai", server.url),
            sessions=tmp_path / "sessions",
            cwd=work,
            environment={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "OPENAI_API_KEY": "any",
                "LITELLM_LOCAL_MODEL_COST_MAP": "true",  # or LiteLLM asks the network for them too
            },
        )
    assert server.refusals == []
    assert "Greet the world." in asked[0]
    assert "print('hello')" in asked[0]
    assert (work / "hello.py").read_text() == "print('hello, world')\n"
    # It streams, and does not ask for a bill.
    assert "ctxfs: 1 call, 0 with a bill; 0 contents replaced" in done.stderr
