"""The ``anthropic`` SDK and its tool runner, with one more line: ``middleware=[CtxfsMiddleware(history)]``.

    pip install 'ctxfs[anthropic]'
    python examples/with_anthropic.py

It talks to a Messages API on loopback, so it needs no key. With the real API, leave out ``base_url``.
"""

import tempfile

from anthropic import Anthropic, beta_tool

from ctxfs import History
from ctxfs.adapters.anthropic import CtxfsMiddleware
from ctxfs.messages import ToolCall
from ctxfs.testing import MessagesServer

MODEL = "claude-sonnet-5-5"


@beta_tool
def service_log(service: str) -> str:
    """Look up the log of a service."""
    return "".join(f"{service} 12:{n // 60:02}:{n % 60:02} request {n} served\n" for n in range(1800))


def main(base_url: str) -> None:
    with History("thread-1", root_path=tempfile.mkdtemp(), model=MODEL) as history:
        middleware = CtxfsMiddleware(history)
        client = Anthropic(api_key="any", base_url=base_url, middleware=[middleware])
        runner = client.beta.messages.tool_runner(
            model=MODEL,
            max_tokens=1024,
            messages=[{"role": "user", "content": "Is everything all right?"}],
            tools=[service_log, *middleware.tools],
            thread=False,  # the history is sent with each request, so that something in it can be replaced
        )
        for message in runner:
            print(f"{message.usage.input_tokens:6} tokens in the prompt: {message.content[0].type}")


script = [[ToolCall("service_log", {"service": name})] for name in ("api", "billing", "mail")]
with MessagesServer([*script, "Every request was served."]) as server:
    main(server.url)
