"""Models whose SDK is not installed say what to install, before any work."""

import subprocess
import sys

import pytest

WITHOUT = """
import sys

import anyio

package, model = sys.argv[1:]
sys.modules[package] = None  # what "not installed" is to an import
import ctxfs
import ctxfs.agent
from ctxfs.errors import MissingExtra

chat = getattr(ctxfs.agent, model)("m", api_key="k", base_url="http://127.0.0.1:9")
request = ctxfs.messages.ModelRequest(messages=(ctxfs.messages.UserMessage("q"),))

async def stream():
    async for _ in chat.stream(request):
        pass

asked = [lambda: ctxfs.Agent(chat), lambda: anyio.run(stream)]
if hasattr(chat, "count_tokens"):
    asked.append(lambda: anyio.run(chat.count_tokens, request))
for ask in asked:
    try:
        ask()
    except MissingExtra as error:
        print(error)
    else:
        print("no error")
"""


@pytest.mark.service
@pytest.mark.parametrize(
    ("package", "model", "asked"), [("anthropic", "ChatAnthropic", 3), ("openai", "ChatOpenAI", 2)]
)
def test_a_model_without_its_sdk_says_what_to_install(package: str, model: str, asked: int) -> None:
    command = [sys.executable, "-W", "error", "-c", WITHOUT, package, model]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [f"{package} is not installed: pip install 'ctxfs[{package}]'"] * asked
