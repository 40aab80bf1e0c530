"""A program that knows nothing of ctxfs, run behind ``ctxfs proxy``: old results are replaced in its requests.

    python examples/behind_a_proxy.py

The model is a fake on loopback that plays a script. Needs the extra: pip install 'ctxfs[proxy]'
"""

import subprocess
import sys
import tempfile

from ctxfs.messages import ToolCall
from ctxfs.testing import MessagesServer

PROGRAM = """
from anthropic import Anthropic

client = Anthropic(api_key="of the user")  # the proxy's address comes from the environment
names = {"read_log": "The log of a day", "Read": "A file, by its file_path"}  # the model reads back with Read
tools = [{"name": n, "description": d, "input_schema": {"type": "object"}} for n, d in names.items()]

def result(call):
    if call.name == "Read":
        return open(call.input["file_path"]).read()
    return f"day {call.input['day']}: request served\\n" * 1_000

messages = [{"role": "user", "content": "What went wrong this week?"}]
while True:
    reply = client.messages.create(model="claude-sonnet-5-5", max_tokens=999, messages=messages, tools=tools)
    messages.append({"role": "assistant", "content": reply.model_dump()["content"]})
    calls = [block for block in reply.content if block.type == "tool_use"]
    if not calls:
        break
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": result(call)} for call in calls]
    messages.append({"role": "user", "content": results})
print(reply.content[0].text, sum(len(str(message)) for message in messages), "characters are in my own history")
"""

with MessagesServer([*[[ToolCall("read_log", {"day": day})] for day in range(12)], "Nothing."]) as server:
    proxy = [sys.executable, "-m", "ctxfs", "proxy", "--root", tempfile.mkdtemp(), "--keep-recent", "read_log=1"]
    command = [*proxy, "--upstream-anthropic", server.url, "--", sys.executable, "-c", PROGRAM]
    sys.exit(subprocess.run(command, check=False).returncode)
